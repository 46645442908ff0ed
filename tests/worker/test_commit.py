"""The order of the steps of a commit, and the counters after it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from crawler.errors import SinkFull
from crawler.page import Exchange, Outcome, Page, Written
from crawler.scope.scope import RecentUrls
from crawler.sinks.archive import Archive
from crawler.worker.commit import BACKLOG, BACKLOG_BYTES, Committer, SettleLater
from crawler.worker.commit_group import LINK_BYTES, Result
from crawler.worker.held_leases import HeldLeases
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.runtime import Runtime
from frontier.clock import ServerClock
from frontier.counters import Counters, Counts
from frontier.entries import Entry
from frontier.keys import ShardKeys
from frontier.scripts import command
from frontier.settle import Lease, SettledUrl
from frontier.store import RedisStore
from tests.frontier.helpers import CountingStore, ManualTime, make_frontier
from tests.sinks.values import exchange, page, settings
from tests.worker.test_throttle import runtime

SAME = b"the same everywhere " * 100


async def on_a_clock(time: ManualTime) -> Runtime:
    server_clock = ServerClock(time, time.read_ms)
    await server_clock.refresh()
    return runtime(time, server_clock)


class WatchingSink:
    """Refuses the first call, and reads the crawl's counters at each call."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.seen: list[tuple[str, Counts]] = []

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[object] = ()
    ) -> Written:
        self.seen.append(("write", await self._counters.counts()))
        if len(self.seen) == 1:
            raise SinkFull("no room yet")
        return Written()

    async def settled(self, unsettled: Collection[int] = ()) -> None:
        self.seen.append(("settled", await self._counters.counts()))

    async def set_aside(self) -> SettleLater:
        raise AssertionError("there is one node only")


async def test_links_are_pushed_before_the_page_is_durable_and_it_is_settled_last(
    store: RedisStore, crawl_name: str
) -> None:
    """A crash between any two steps costs a second fetch, never a page or a link."""
    frontier = await make_frontier(store, crawl_name, ManualTime())
    await frontier.push([Entry("https://site.test/a", "site.test")])
    ((answer,), _) = await frontier.lease([0], 1, "me", 1)
    leased = LeasedDomain(answer.leases[0], lease_end=float("inf"), now=0.0)
    sink, shared = WatchingSink(Counters(store, frontier.keys)), await on_a_clock(ManualTime())
    committer = Committer(shared, frontier, sink, RecentUrls(10), HeldLeases(shared))
    running = asyncio.create_task(committer.run())
    (entry,) = leased.lease.entries
    link = Entry("https://site.test/linked", "site.test")
    await committer.add(Result(leased, SettledUrl(entry, Outcome.DONE, "200"), page(exchange("a", SAME)), [link]))
    await committer.flush()
    running.cancel()
    seen = [(step, counts.accepted, counts.done) for step, counts in sink.seen]
    assert seen == [("write", 2, 0), ("write", 2, 0), ("settled", 2, 1)]


async def test_the_counters_include_bodies_that_were_archived_before(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    # Given a lease on four URLs, three of which answer with the same body,
    frontier = await make_frontier(store, crawl_name, ManualTime())
    bodies = {"a": SAME, "b": SAME, "c": b"another one " * 200, "d": SAME}
    await frontier.push(Entry(f"https://site.test/{name}", "site.test") for name in bodies)
    ((answer,), _) = await frontier.lease([0], 1, "me", 1)
    (lease,) = answer.leases
    leased = LeasedDomain(lease, lease_end=float("inf"), now=0.0)
    # When their pages are committed, in two groups, to an archive that remembers bodies,
    archive = Archive(settings(tmp_path))
    await archive.start()
    shared = await on_a_clock(ManualTime())
    committer = Committer(shared, frontier, archive, RecentUrls(10), HeldLeases(shared))
    running = asyncio.create_task(committer.run())
    for entry in lease.entries:
        made = exchange(entry.url[-1], bodies[entry.url[-1]])
        await committer.add(Result(leased, SettledUrl(entry, Outcome.DONE, "200"), page(made)))
        if entry is lease.entries[1]:
            await committer.flush()
    await committer.flush()
    running.cancel()
    await archive.stop()
    # Then the counters know that two of them brought nothing new.
    counts = await Counters(store, frontier.keys).counts()
    assert (counts.done, counts.duplicates) == (4, 2)


class SlowSink:
    """Remembers what it is given. Each write takes `takes_ms`."""

    def __init__(self, time: ManualTime, takes_ms: int) -> None:
        self._time = time
        self._takes_ms = takes_ms
        self.pages: list[Page] = []
        self.exchanges: list[Exchange] = []
        self.unsettled: list[int] = []

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[object] = ()
    ) -> Written:
        self._time.ms += self._takes_ms
        self.pages += pages
        self.exchanges += exchanges
        return Written()

    async def settled(self, unsettled: Collection[int] = ()) -> None:
        self.unsettled += unsettled

    async def set_aside(self) -> SettleLater:
        raise AssertionError("there is one node only")


@pytest.mark.parametrize("ends_during_the_write", [False, True])
async def test_nothing_is_settled_after_the_lease_ended(
    store: RedisStore, crawl_name: str, ends_during_the_write: bool
) -> None:
    """Others may have given this replica up by then, with its share of the page budget, and found the end of the crawl."""
    # Given a page, its link and a robots.txt, fetched under a lease that Redis still has,
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time)
    await frontier.push([Entry("https://site.test/a", "site.test")])
    ((answer,), _) = await frontier.lease([0], 1, "me", 1)
    leased = LeasedDomain(answer.leases[0], lease_end=time.monotonic() + 10, now=time.monotonic())
    sink, shared = SlowSink(time, takes_ms=20_000 if ends_during_the_write else 0), await on_a_clock(time)
    committer = Committer(shared, frontier, sink, RecentUrls(10), HeldLeases(shared))
    (entry,) = leased.lease.entries
    link = Entry("https://site.test/linked", "site.test")
    made, robots = exchange("a", SAME), exchange("robots.txt", b"")
    await committer.add(Result(leased, SettledUrl(entry, Outcome.DONE, "200"), page(made), [link]))
    await committer.add(Result(leased, exchange=robots))
    # When the lease ends before the commit, or while the sink is writing,
    time.ms += 0 if ends_during_the_write else 20_000
    running = asyncio.create_task(committer.run())
    await committer.flush()
    running.cancel()
    # Then the URL is not settled, and the sink does not keep the page, but the robots.txt;
    counts = await Counters(store, frontier.keys).counts()
    assert (counts.accepted, counts.done) == (2 if ends_during_the_write else 1, 0)
    assert len(sink.pages) == len(sink.unsettled) == ends_during_the_write
    assert sink.exchanges == [robots]
    # and another replica fetches the URL again.
    time.ms += 60_000
    await frontier.lease([0], 2, "other", 1)
    time.ms += 60_000
    ((answer,), _) = await frontier.lease([0], 2, "other", 1)
    assert "https://site.test/a" in {one.url for one in answer.leases[0].entries}


async def test_a_lease_that_has_ended_is_not_renewed(store: RedisStore, crawl_name: str) -> None:
    # Given a lease that ended during an outage, and that Redis still has,
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time)
    await frontier.push([Entry("https://site.test/a", "site.test")])
    ((answer,), _) = await frontier.lease([0], 1, "me", 1)
    leased = LeasedDomain(answer.leases[0], lease_end=time.monotonic() + 10, now=time.monotonic())
    shared = await on_a_clock(time)
    committer = Committer(shared, frontier, SlowSink(time, 0), RecentUrls(10), HeldLeases(shared))
    time.ms += 60_000
    # When the renewal is repeated after the outage,
    await committer.renew([leased])
    # Then the lease is over here as well as in Redis.
    assert not leased.holds(time.monotonic())
    await frontier.lease([0], 2, "other", 1)
    time.ms += 60_000
    ((answer,), _) = await frontier.lease([0], 2, "other", 1)
    assert answer.leases


class RestartedStore(CountingStore):
    """A server with a run ID that a test may change."""

    run = "before"

    def run_of(self, key: str) -> str:
        return self.run

    def runs(self) -> str:
        return self.run


class ForgettingSink:
    """While a group is written, Redis is restarted so fast that no call fails, and forgets what was pushed to a shard."""

    def __init__(self, store: RestartedStore, shard: ShardKeys, domain: str) -> None:
        self._store = store
        self._shard = shard
        self._domain = domain

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[object] = ()
    ) -> Written:
        shard, domain = self._shard, self._domain
        await self._store.send(
            [
                command("DEL", shard.queue(domain), shard.domain(domain), shard.due, shard.seen(0)),
                command("HDEL", shard.stats, "accepted", "seen", "buckets", "domains"),
            ]
        )
        self._store.run = "after"
        return Written()

    async def settled(self, unsettled: Collection[int] = ()) -> None: ...

    async def take_back(self, urls: Sequence[object]) -> None: ...


async def test_links_that_redis_forgot_in_a_restart_are_pushed_again_before_their_page_is_settled(
    store: RedisStore, crawl_name: str
) -> None:
    time = ManualTime()
    restarted = RestartedStore(store)
    frontier = await make_frontier(restarted, crawl_name, time, shards=2)
    link = next(
        Entry(f"https://other{number}.test/", f"other{number}.test")
        for number in range(100)
        if frontier.shard_of(f"other{number}.test") != frontier.shard_of("site.test")
    )
    await frontier.push([Entry("https://site.test/a", "site.test")])
    ((answer,), _) = await frontier.lease([frontier.shard_of("site.test")], 1, "me", 1)
    leased = LeasedDomain(answer.leases[0], lease_end=float("inf"), now=0.0)
    shared = await on_a_clock(time)
    sink = ForgettingSink(restarted, frontier.keys.shards[frontier.shard_of(link.domain)], link.domain)
    committer = Committer(shared, frontier, sink, RecentUrls(10), HeldLeases(shared))
    running = asyncio.create_task(committer.run())
    (entry,) = leased.lease.entries
    await committer.add(Result(leased, SettledUrl(entry, Outcome.DONE, "200"), page(exchange("a", SAME)), [link]))
    await committer.flush()
    running.cancel()
    counts = await Counters(store, frontier.keys).counts()
    assert (counts.accepted, counts.done) == (2, 1)


@pytest.mark.parametrize(
    ("body_bytes", "links", "accepted"),
    [
        (100, 0, BACKLOG),
        (BACKLOG_BYTES // 4, 0, 4),
        (BACKLOG_BYTES * 2, 0, 1),
        (100, BACKLOG_BYTES // LINK_BYTES // 2, 2),
    ],
)
async def test_workers_wait_with_their_results_while_too_many_or_too_large_ones_wait(
    store: RedisStore, crawl_name: str, body_bytes: int, links: int, accepted: int
) -> None:
    time = ManualTime()
    frontier, shared = await make_frontier(store, crawl_name, time), await on_a_clock(time)
    committer = Committer(shared, frontier, SlowSink(time, 0), RecentUrls(10), HeldLeases(shared))
    leased = LeasedDomain(Lease("site.test", 0, 1, 0, 0, "", ()), lease_end=float("inf"), now=0.0)
    many = [Entry("https://site.test/link", "site.test")] * links
    result = Result(leased, links=many, exchange=exchange("robots.txt", bytes(body_bytes)))
    for _ in range(accepted):
        await asyncio.wait_for(committer.add(result), 60)
    waiting = asyncio.create_task(committer.add(result))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    running = asyncio.create_task(committer.run())
    await asyncio.wait_for(waiting, 60)
    running.cancel()
