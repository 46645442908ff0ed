"""A replica repeats its last writes after a restart of the server that has lost them. Runs on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.events import Events, WritesRepeated
from crawler.page import Exchange, Outcome, Page, Written
from crawler.redis_retry import RedisRetry
from crawler.scope.scope import RecentUrls
from crawler.worker.commit import Committer, Result
from crawler.worker.held_leases import HeldLeases
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.redis_restarts import WriteRepeater
from frontier.clock import ServerClock, SystemClock
from frontier.counters import Counters
from frontier.entries import Entry
from frontier.errors import RedisAway
from frontier.keys import CrawlKeys
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import Call, Reply
from frontier.settle import LeasedUrl, SettledUrl, Settlement
from frontier.shards import Nodes, identify_shards
from frontier.store import RedisStore, connect
from tests.frontier.helpers import CountingStore
from tests.sinks.values import exchange, page
from tests.valkey import ValkeyProcess
from tests.valkey_cluster import ValkeyCluster
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
    ((answer,), _) = await frontier.lease([frontier.shard_of("site.test")], 1, "me", 1)
    committer = Committer(shared, frontier, sink, RecentUrls(100), HeldLeases(shared))
    running = [asyncio.create_task(committer.run()), asyncio.create_task(committer.watch_runs())]
    leased = LeasedDomain(answer.leases[0], lease_end=float("inf"), now=0.0)
    made = page(exchange("a", b"body"))
    await committer.add(Result(leased, SettledUrl(leased.lease.entries[0], Outcome.DONE, "200"), made, LINKS))
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
    assert after.domains_unleased == 20
    assert sink.kept == ["https://site.test/a"]
    for task in running:
        task.cancel()
    await store.close()


class RestartsAtRelease(CountingStore):
    """A way to a server that is restarted just before the first lease is returned. Its log ends at `size` then."""

    def __init__(self, store: RedisStore, server: ValkeyProcess, folder: Path) -> None:
        super().__init__(store)
        self._server = server
        self._folder = folder
        self.size = 0

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        names = {call.script.name for call in calls if call.script}
        if "release" in names and not self.calls["release"]:
            self._server.kill()
            cut_log(self._folder, self.size)
            self._server.start()
        return await super().send(calls)


async def test_a_lease_is_not_returned_before_the_writes_under_it_are_repeated(
    server: ValkeyProcess, tmp_path: Path
) -> None:
    """Without the lease, Redis could not tell which of its URLs were settled, and would have them fetched again."""
    # Given a lease of which one of two URLs is settled,
    connected = await connect(server.url)
    store = RestartsAtRelease(connected, server, tmp_path)
    clock = SystemClock()
    server_clock = ServerClock(clock, connected.time_ms)
    await server_clock.refresh()
    keys = CrawlKeys("news", 1, b"key".hex())
    await identify_shards(store, keys, range(1))
    frontier = Frontier(store, keys, server_clock, FrontierSettings(), b"key")
    await frontier.push([HOME, Entry("https://site.test/b", "site.test")])
    ((answer,), _) = await frontier.lease([0], 1, "me", 1)
    store.size = cut_log(tmp_path)
    leased = LeasedDomain(answer.leases[0], lease_end=float("inf"), now=0.0)
    shared, sink = runtime(clock, server_clock), KeepingSink()
    committer = Committer(shared, frontier, sink, RecentUrls(100), HeldLeases(shared))
    running = asyncio.create_task(committer.run())
    made = page(exchange("a", b"body"))
    await committer.add(Result(leased, SettledUrl(leased.lease.entries[0], Outcome.DONE, "200"), made))
    # when the server is restarted without the settlement while the lease is returned,
    committer.give_back(leased)
    await committer.flush()
    # then only the other URL is queued.
    counts = await Counters(store, keys).counts()
    assert (counts.accepted, counts.done, counts.domains_unleased, counts.domains_leased) == (2, 1, 1, 0)
    running.cancel()
    await connected.close()


class Recent(RecentUrls):
    """Counts how often it is cleared."""

    cleared = 0

    def clear(self) -> None:
        self.cleared += 1
        super().clear()


@pytest.mark.e2e
async def test_two_new_masters_without_replicas_take_the_last_writes() -> None:
    """With `replicas_ack`, a master without replicas acknowledges nothing."""
    with ValkeyCluster() as cluster:
        store, clock, seen = await connect(cluster.url), SystemClock(), list[WritesRepeated]()
        server_clock, keys = ServerClock(clock, store.time_ms), CrawlKeys("news", 32, b"key".hex())
        await server_clock.refresh()
        await identify_shards(store, keys, range(32))
        frontier = Frontier(store, keys, server_clock, FrontierSettings(replicas_ack=1), b"key")
        nodes = Nodes(store, keys)
        shared = replace(runtime(clock, server_clock), retry=RedisRetry(clock, Events(), random.Random(1), nodes=nodes))
        shared.events.subscribe(seen.append, WritesRepeated)
        # Given a page on the first node, with links to all nodes,
        home = next(one for one in LINKS if nodes.of(frontier.shard_of(one.domain)) == cluster.masters[0].name)
        await frontier.push([home])
        ((answer,), _) = await frontier.lease([frontier.shard_of(home.domain)], 1, "me", 1)
        await frontier.push(LINKS)
        settled = SettledUrl(home, Outcome.DONE, "200")
        await frontier.settle([Settlement(answer.leases[0], 0, urls=[settled])])
        # when two nodes are replaced by masters without replicas,
        for master, replica in zip(cluster.masters[:2], cluster.replicas[:2], strict=True):
            cluster.kill(master)
            cluster.failover(replica, "TAKEOVER")
        async with asyncio.timeout(300):
            while len({nodes.of(shard) for shard in frontier.replaced_runs()}) < 2:
                with contextlib.suppress(RedisAway):
                    await frontier.look_for_new_runs()
                await clock.sleep(0.05)
            recent = Recent(100)
            repeater = WriteRepeater(shared, frontier, KeepingSink(), recent, HeldLeases(shared))
            replaced = frontier.replaced_runs()
            for replica in cluster.replicas[:2]:  # and hang first,
                cluster.suspend(replica)
            for _ in range(2):
                await repeater.repeat(no_renewal)
            assert frontier.replaced_runs() == replaced
            for replica in cluster.replicas[:2]:
                cluster.resume(replica)
            # then both take the writes in the end.
            watching = asyncio.create_task(shared.retry.watch())
            while frontier.replaced_runs():
                await repeater.repeat(no_renewal)
                await clock.sleep(0.05)
            watching.cancel()
        assert (sum(one.shards for one in seen), recent.cleared) == (len(replaced), 1)  # not once for each attempt
        counts = await Counters(store, keys).counts()
        assert (counts.accepted, counts.done) == (len(LINKS), 1)
        await store.close()


async def no_renewal(domains: Sequence[LeasedDomain]) -> None: ...
