"""`crawler list` and `crawler remove`: the crawls of a server, and the end of one."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import click
import msgspec
from rich.text import Text

from crawler.app.embedded_valkey import open_store
from crawler.app.signals import run_until_signal
from crawler.cli import options as option
from crawler.cli.options import CrawlAccess, as_json, command, crawl_names, on_a_crawl, titled
from crawler.cli.screens import TextTable, span
from crawler.cli.text import Terminal, emit
from crawler.errors import UserError
from crawler.observe.health import health_records
from crawler.observe.status import status as read_status
from crawler.wording import DEFAULT_NAME, count_of
from frontier.counters import Counters
from frontier.crawls import Crawl, open_crawl
from frontier.errors import FrontierError, RedisAway
from frontier.shard_contents import remove_crawl
from frontier.store import RedisStore


class CrawlLine(msgspec.Struct, frozen=True):
    """A crawl of a server. `last_ms`: when its last page was settled, 0 for never; `problem`: why it is unreadable, or
    ""."""

    crawl: str
    state: str
    pages: int = 0
    open: int = 0
    seen: int = 0
    shards: int = 0
    last_ms: int = 0
    problem: str = ""


@command("list")
@option.store
@as_json
def list_(as_json: bool) -> None:
    """List the crawls of a server, with their state, size and last activity.

    Example:

        crawler list --redis redis://queue:6379/0
    """
    access = CrawlAccess.given(DEFAULT_NAME)
    access.check_place()

    async def read() -> list[CrawlLine]:
        async with open_store(access.settings.replica) as store:
            return [await _line(store, name) for name in await crawl_names(store)]

    lines = run_until_signal(read())
    table = TextTable("crawl", "state", ">pages", ">open", ">seen", ">shards", "last page", keeps="crawl")
    for line in lines:
        last = f"{span(time.time() - line.last_ms / 1000)} ago" if line.last_ms else "none yet"
        numbers = [f"{number:,}" for number in (line.pages, line.open, line.seen, line.shards)]
        table.add(line.crawl, line.state, *numbers, line.problem or last)
    emit(lines, as_json, table if lines else Text("no crawl here"))


async def _line(store: RedisStore, name: str) -> CrawlLine:
    try:
        found = await read_status(store, await open_crawl(store, name, for_reshard=True), exact=False)
    except RedisAway:
        raise
    except FrontierError as error:  # such as a crawl of another version
        return CrawlLine(name, "unreadable", problem=str(error))
    return CrawlLine(name, found.condition.word, found.done, found.open, found.accepted, found.shards, found.last_ms)


@command()
@on_a_crawl
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def remove(access: CrawlAccess, yes: bool) -> None:
    """Remove a crawl from Redis: its queue, counters and settings. Its output stays.

    No replica may run. Keys are removed in small steps, so other crawls of the server go on. If it is interrupted, run it
    again.

    Example:

        crawler remove --crawl news --redis redis://queue:6379/0
    """

    async def look(store: RedisStore, opened: Crawl) -> tuple[int, str]:
        if running := await health_records(store, opened.keys):
            raise UserError(
                f"{titled(opened.name)} has {count_of(len(running), 'replica')} running: `crawler stop {access.place}`, "
                "and repeat this command when they have ended"
            )
        counts = await Counters(store, opened.keys).counts()
        last = (
            f", the last page {datetime.fromtimestamp(counts.last_ms / 1000, UTC):%Y-%m-%d}" if counts.last_ms else ""
        )
        return counts.open, f"{count_of(counts.done, 'page')}, {count_of(counts.open, 'open URL')}{last}"

    left, size = access.do(look, for_reshard=True)
    if not yes:
        question = f"remove {titled(access.crawl, 'the crawl')} ({size}) from Redis, for good?"
        question += " It is not finished." if left else ""
        try:
            if not click.confirm(question, err=True):
                raise UserError("nothing was removed")
        except click.Abort as error:
            raise UserError("nothing was removed; without a terminal, add --yes") from error
    number = access.do(remove_crawl, for_reshard=True)
    Terminal().print(f"{titled(access.crawl)}: {count_of(number, 'key')} removed; its output stays in its folders")
