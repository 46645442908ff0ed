"""A replica repeats its last writes after a restart of the server that has lost them. Runs on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest

from crawler.page import Exchange, Outcome, Page, Written
from crawler.scope.recent_urls import RecentUrls
from crawler.worker.commit import Committer, Result
from crawler.worker.held_leases import HeldLeases
from crawler.worker.visit import Visit
from frontier.clock import ServerClock, SystemClock
from frontier.counters import Counters
from frontier.entries import Entry
from frontier.keys import CrawlKeys
from frontier.queue import Frontier, FrontierSettings, LeasedUrl, SettledUrl
from frontier.shards import identify_shards
from frontier.store import connect
from tests.sinks.values import exchange, page
from tests.valkey import ValkeyProcess
from tests.worker.test_throttle import runtime

HOME = Entry("https://site.test/a", "site.test")
LINKS = [Entry(f"https://other{n}.test/", f"other{n}.test") for n in range(20)]


class KeepingSink:
    """Remembers which URLs it keeps."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> Written:
        self.kept += [one.url for one in pages]
        return Written()

    async def settled(self, unsettled: Collection[int] = ()) -> None: ...

    async def take_back(self, urls: Sequence[LeasedUrl]) -> None:
        for one in urls:
            self.kept.remove(one.entry.url)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyProcess]:
    with ValkeyProcess(tmp_path, persistent=True) as process:
        yield process


def cut_log(folder: Path, size: int | None = None) -> int:
    """Cut the server's log to `size`. Returns its size."""
    (log,) = (folder / "appendonlydir").glob("*.incr.aof")
    if size is not None:
        with log.open("r+b") as file:
            file.truncate(size)
    return log.stat().st_size


async def test_a_fast_restart_with_concurrent_calls_loses_no_link_and_no_page(
    server: ValkeyProcess, tmp_path: Path
) -> None:
    # Given a replica that has pushed and settled, in shards of which the server then loses the last writes,
    store = await connect(server.url)
    clock = SystemClock()
    server_clock = ServerClock(clock, store.time_ms)
    await server_clock.refresh()
    keys = CrawlKeys("news", 8, b"key".hex())
    await identify_shards(store, keys, range(8))
    frontier = Frontier(store, keys, server_clock, FrontierSettings(), b"key")
    shared, sink = runtime(clock, server_clock), KeepingSink()
    await frontier.push([HOME])
    size = cut_log(tmp_path)
    ((leased,), _) = await frontier.lease([frontier.shard_of("site.test")], 1, "me", 1)
    committer = Committer(shared, frontier, sink, RecentUrls(100), HeldLeases(shared))
    running = [asyncio.create_task(committer.run()), asyncio.create_task(committer.watch_runs())]
    visit = Visit(leased.leases[0], lease_end=float("inf"), now=0.0)
    made = page(exchange("a", b"body"))
    await committer.add(Result(visit, SettledUrl(visit.lease.entries[0], Outcome.DONE, "200"), made, LINKS))
    await committer.flush()
    counters = Counters(store, keys)
    before = await counters.counts()
    server.kill()
    cut_log(tmp_path, size)
    server.start()
    # when several calls meet the new process at once, of which each may be the first,
    await asyncio.gather(*(shared.retry.call(counters.done) for _ in range(8)))
    while frontier.replaced_runs():
        await clock.sleep(0.05)
    # then everything is as it was.
    after = await counters.counts()
    assert (before.accepted, before.done) == (after.accepted, after.done) == (21, 1)
    assert after.domains_due == 20
    assert sink.kept == ["https://site.test/a"]
    for task in running:
        task.cancel()
    await store.close()
