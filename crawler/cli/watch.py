"""Commands that show the state of a crawl: `status`, `top`, `domains`, `shards`, `types`."""

from __future__ import annotations

import asyncio
import time

import click
import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from crawler.cli import screens
from crawler.cli.options import CrawlAccess, Number, Whole, as_json, command, on_a_crawl, titled
from crawler.cli.screens import ShardLine, TextTable, quit_key
from crawler.cli.text import Terminal, emit, note
from crawler.errors import UserError
from crawler.observe import summary
from crawler.observe.health import health_records
from crawler.observe.status import CrawlReader, LastRead, Snapshot, with_age
from crawler.observe.status import status as read_status
from crawler.observe.summary import Summary
from crawler.wording import count_of
from frontier.clock import SystemClock, crawl_ms
from frontier.counters import survey
from frontier.crawls import Crawl, FieldTypes
from frontier.errors import ShardLost
from frontier.store import RedisStore

TALL = 45
"""Lines of a terminal in which `top` has room for long lists."""


@command()
@on_a_crawl
@as_json
def status(access: CrawlAccess, as_json: bool) -> None:
    """Show the state of a crawl: its replicas and counters.

    Example:

        crawler status --crawl news --redis redis://queue:6379/0
    """
    found = access.do(read_status, for_reshard=True)
    emit(found, as_json, screens.status(found, access.place))


@command()
@on_a_crawl
@click.option("--every", type=Number(0.2), default=1.0, metavar="SECONDS", help="Seconds between updates.")
@click.option("--once", is_flag=True, help="Print once and exit.")
@as_json
def top(access: CrawlAccess, every: float, once: bool, as_json: bool) -> None:
    """Watch a crawl live: throughput, replicas, domains with most queued URLs, domains due last, and recent failures.

    Shows the same data as the live page of a replica. `q` or Ctrl-C ends only this display.

    Examples:

        crawler top --crawl news --redis redis://queue:6379/0
        crawler top --once --json
    """

    async def watch(store: RedisStore, opened: Crawl) -> None:
        console, reader = Terminal(), CrawlReader(store, opened.keys)
        last: LastRead[Snapshot] = LastRead(SystemClock())
        if once or as_json or not console.is_terminal:
            await last.update(reader.complete())
            found = with_age(last, access.crawl)
            emit(found, as_json, screens.top(found, access.place))
            return
        ended = asyncio.Event()
        quitting = asyncio.create_task(ended.wait())
        with quit_key(ended), Live(console=console, auto_refresh=False, screen=True) as screen:
            while not quitting.done():
                reading = asyncio.create_task(last.update(reader.complete()))
                await asyncio.wait({reading, quitting}, return_when=asyncio.FIRST_COMPLETED)
                rows = 8 if console.height >= TALL else 4
                screen.update(screens.top(with_age(last, access.crawl), access.place, rows, "q: quit"), refresh=True)
                await asyncio.wait({quitting}, timeout=every)
                reading.cancel()  # it is only running if the user has quit

    try:
        access.do(watch, for_reshard=True)
    except KeyboardInterrupt:
        return


@command()
@on_a_crawl
@click.option("--limit", "-n", type=Whole(1, summary.LISTED), default=10, help="Domains per list.")
@as_json
def domains(access: CrawlAccess, limit: int, as_json: bool) -> None:
    """List notable domains: most queued URLs, longest overdue, and due last, with the reason.

    They come from the ends of each shard's sorted sets, so the cost does not grow with the number of domains. While
    replicas run, the lists are those that one of them found some seconds ago.

    Example:

        crawler domains --limit 20
    """

    async def look(store: RedisStore, opened: Crawl) -> tuple[Summary, float]:
        written = await summary.load(store, opened.keys)
        now_ms = await crawl_ms(store, opened.keys.peers)()
        return written or await summary.take(store, opened.keys, int(now_ms), "", ()), now_ms

    found, now_ms = access.do(look)
    lists = {"busiest": found.busiest, "overdue": found.overdue, "resting": found.resting}
    shown = {name: lines[:limit] for name, lines in lists.items()}
    parts: list[RenderableType] = []
    if found.writer:
        age = screens.span((now_ms - found.at_ms) / 1000)
        parts += (Text(f"as replica {found.writer} found them {age} ago", style="dim"), Text())
    for heading, lines in zip(("most queued", "longest overdue", "due last"), shown.values(), strict=True):
        parts += (Text(heading, style="bold green"), screens.domains(lines, found.at_ms), Text())
    emit({"at_ms": found.at_ms, **shown}, as_json, Group(*parts))


@command()
@on_a_crawl
@as_json
def shards(access: CrawlAccess, as_json: bool) -> None:
    """Show which replica leases from which shards and since when, and which shards with work are unowned.

    Example:

        crawler shards --crawl news --redis redis://queue:6379/0
    """
    lines, unread = access.do(owner_lines)
    if unread:
        note(f"{count_of(unread, 'shard')} cannot be read, because Redis nodes are away")
    total = max(1, sum(len(line.shards) for line in lines))
    none = Text("no shard has work, and none is leased")
    emit(lines, as_json, screens.shards(lines, total, time.time() * 1000) if lines else none)


async def owner_lines(store: RedisStore, crawl: Crawl) -> tuple[list[ShardLine], int]:
    """Return the shards of each replica, unowned ones with work last, and how many shards cannot be read now."""
    live = {record.replica for record in await health_records(store, crawl.keys)}
    surveys = await survey(store, crawl.keys, range(crawl.shards), now_ms=0, names=1)
    lost = [one.shard for one in surveys if one.identity != crawl.keys.identity]
    if lost:
        raise ShardLost(crawl.name, lost)
    held: dict[str, list[int]] = {}
    since: dict[str, list[int]] = {}
    for one in surveys:
        holder = one.last_holder
        if holder is not None and holder.replica in live:
            held.setdefault(holder.replica, []).append(one.shard)
            since.setdefault(holder.replica, []).append(holder.since_ms)
        elif one.counters.open:
            held.setdefault("", []).append(one.shard)
    names = sorted(held, key=lambda name: (not name, name))
    lines = [ShardLine(name, held[name], min(since.get(name, [0])), max(since.get(name, [0]))) for name in names]
    return lines, crawl.shards - len(surveys)


# types


class FieldLine(msgspec.Struct, frozen=True):
    data_set: str
    field: str
    type: str


@command()
@click.argument("data_set", required=False, help="Only this data set.")
@on_a_crawl
@click.option("--forget", is_flag=True, help="Forget the types of this data set, so that the next items decide.")
@as_json
def types(data_set: str | None, access: CrawlAccess, forget: bool, as_json: bool) -> None:
    """Show the types of the fields of data sets, with which new items are compared.

    Types that `extract` tables declare are in the settings, count more than these, and are not shown. With `--forget`,
    replicas use other types within ten seconds. Items that are written stay as they are.

    Examples:

        crawler types products
        crawler types products --forget
    """
    if forget:
        _forget_types(data_set, access, as_json)
        return

    async def read(store: RedisStore, opened: Crawl) -> dict[tuple[str, str], str]:
        return await FieldTypes(store, opened.keys).read()

    fields = sorted(access.do(read).items())
    lines = [FieldLine(name, field, kind) for (name, field), kind in fields if data_set in (None, name)]
    table = TextTable("data set", "field", "type")
    for line in lines:
        table.add(line.data_set, line.field, line.type)
    of = "" if data_set is None else f" of a data set {data_set}"
    emit(lines, as_json, table if lines else Text(f"no types{of} are kept: no item was found yet"))


def _forget_types(data_set: str | None, access: CrawlAccess, as_json: bool) -> None:
    if data_set is None:
        raise UserError("name the data set: crawler types DATA_SET --forget")
    name = data_set

    async def forget(store: RedisStore, opened: Crawl) -> int:
        return await FieldTypes(store, opened.keys).forget(name)

    number = access.do(forget)
    result = f"has forgotten {count_of(number, 'type')}" if number else f"keeps no types of a data set {name}"
    counted = {"crawl": access.crawl, "data_set": name, "forgotten": number}
    emit(counted, as_json, Text(f"{titled(access.crawl, 'the crawl')} {result}"))
