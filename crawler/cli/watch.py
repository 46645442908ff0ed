"""Commands that watch a crawl: `status`, `top`, `domains`, `shards`."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from crawler.cli import render
from crawler.cli.crawl_access import CrawlAccess, on_a_crawl
from crawler.cli.quit_key import quit_key
from crawler.cli.render import ShardLine
from crawler.cli.shared_options import AsJson, CrawlName, DataDir, Redis, SettingsFile
from crawler.cli.terminal import Terminal, emit
from crawler.cli.unknown_names import note
from crawler.observe import snapshot, summary
from crawler.observe.health_record import health_records
from crawler.observe.snapshot import CrawlReader, LastRead, Snapshot, aged
from crawler.observe.summary import Summary
from crawler.wording import count_of
from frontier.clock import SystemClock, crawl_ms
from frontier.counters import survey
from frontier.crawls import Crawl
from frontier.errors import ShardLost
from frontier.store import RedisStore

Every = Annotated[float, typer.Option("--every", min=0.2, help="Seconds between updates.")]
TALL = 45
"""Lines of a terminal in which `top` has room for long lists."""

Once = Annotated[bool, typer.Option("--once", help="Print once and exit.")]


@on_a_crawl
def status(*, access: CrawlAccess, json: AsJson = False) -> None:
    """Show the state of a crawl: its replicas and counters.

    [bold]Example[/bold]

        crawler status --crawl news --redis redis://queue:6379/0
    """
    found = access.do(snapshot.status, for_reshard=True)
    emit(found, json, render.status(found, access.place))


def top(
    crawl: CrawlName = "crawl",
    every: Every = 1.0,
    once: Once = False,
    redis: Redis = None,
    data_dir: DataDir = None,
    settings: SettingsFile = None,
    json: AsJson = False,
) -> None:
    """Watch a crawl live: throughput, replicas, domains with most queued URLs, domains due last, and recent failures.

    Shows the same data as the live page of a replica. `q` or Ctrl-C ends only this display.

    [bold]Examples[/bold]

        crawler top --crawl news --redis redis://queue:6379/0

        crawler top --once --json
    """
    access = CrawlAccess(crawl, redis, data_dir, settings)

    async def watch(store: RedisStore, opened: Crawl) -> None:
        console, reader = Terminal(), CrawlReader(store, opened.keys)
        last: LastRead[Snapshot] = LastRead(SystemClock())
        if once or json or not console.is_terminal:
            await last.update(reader.complete())
            found = aged(last, crawl)
            emit(found, json, render.top(found, access.place))
            return
        ended = asyncio.Event()
        quitting = asyncio.create_task(ended.wait())
        with quit_key(ended), Live(console=console, auto_refresh=False, screen=True) as screen:
            while not quitting.done():
                reading = asyncio.create_task(last.update(reader.complete()))
                await asyncio.wait({reading, quitting}, return_when=asyncio.FIRST_COMPLETED)
                rows = 8 if console.height >= TALL else 4
                screen.update(render.top(aged(last, crawl), access.place, rows, "q: quit"), refresh=True)
                await asyncio.wait({quitting}, timeout=every)
                reading.cancel()  # it is only running if the user has quit

    try:
        access.do(watch, for_reshard=True)
    except KeyboardInterrupt:
        return


def domains(
    crawl: CrawlName = "crawl",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=summary.LISTED, help="Domains per list.")] = 10,
    redis: Redis = None,
    data_dir: DataDir = None,
    settings: SettingsFile = None,
    json: AsJson = False,
) -> None:
    """List notable domains: most queued URLs, longest overdue, and due last, with the reason.

    They come from the ends of each shard's sorted sets, so the cost does not grow with the number of domains. While
    replicas run, the lists are those that one of them found some seconds ago.

    [bold]Example[/bold]

        crawler domains --limit 20
    """
    access = CrawlAccess(crawl, redis, data_dir, settings)

    async def look(store: RedisStore, opened: Crawl) -> tuple[Summary, float]:
        written = await summary.load(store, opened.keys)
        now_ms = await crawl_ms(store, opened.keys.peers)()
        return written or await summary.take(store, opened.keys, int(now_ms), "", ()), now_ms

    found, now_ms = access.do(look)
    lists = {
        "busiest": found.busiest[:limit],
        "overdue": found.overdue[:limit],
        "resting": found.resting[:limit],
    }
    headings = {"busiest": "most queued", "overdue": "longest overdue", "resting": "due last"}
    parts: list[RenderableType] = []
    if found.writer:
        age = render.span((now_ms - found.at_ms) / 1000)
        parts += (Text(f"as replica {found.writer} found them {age} ago", style="dim"), Text())
    for name, lines in lists.items():
        parts += (Text(headings[name], style="bold green"), render.domains(lines, found.at_ms), Text())
    emit({"at_ms": found.at_ms, **lists}, json, Group(*parts))


@on_a_crawl
def shards(*, access: CrawlAccess, json: AsJson = False) -> None:
    """Show which replica leases from which shards and since when, and which shards with work are unowned.

    [bold]Example[/bold]

        crawler shards --crawl news --redis redis://queue:6379/0
    """

    async def look(store: RedisStore, opened: Crawl) -> tuple[list[ShardLine], int]:
        return await owner_lines(store, opened)

    lines, unread = access.do(look)
    if unread:
        note(f"{count_of(unread, 'shard')} cannot be read, because Redis nodes are away")
    total = max(1, sum(len(line.shards) for line in lines))
    none = Text("no shard has work, and none is leased")
    emit(lines, json, render.shards(lines, total, time.time() * 1000) if lines else none)


async def owner_lines(store: RedisStore, crawl: Crawl) -> tuple[list[ShardLine], int]:
    """Return the shards of each replica, and the number of shards that cannot be read now. Shards with work whose last
    replica is not alive come last, as unowned."""
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
