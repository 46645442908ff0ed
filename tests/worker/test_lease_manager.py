"""The lease manager leases due domains of its shards, and only polls empty shards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from crawler.events import Events, ViewAdopted
from crawler.scope.scope import RecentUrls
from crawler.sinks.archive import Archive
from crawler.worker.commit import Committer
from crawler.worker.lease_manager import GATHER_S, LeaseManager, LeaseManagerSettings, PagePermits
from crawler.worker.leases import DelayQueue, HeldLeases, LeasedDomain
from frontier.budget import Budget, PageLimit
from frontier.clock import ServerClock, SystemClock
from frontier.counters import Counters, survey
from frontier.keys import CrawlKeys
from frontier.known_pages import refresh_page
from frontier.peers import Member, View
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import Call, Reply, command
from frontier.settle import SettledUrl, Settlement, with_next_visit
from frontier.shards import identify_shards
from frontier.store import RedisStore, Store
from tests.frontier.helpers import CountingStore, entry, lease_one
from tests.several_servers import until
from tests.sinks.values import settings
from tests.worker.helpers import leased_domain, runtime

PAGE = entry("/", "a.test")

Prefetch = Callable[[Sequence[LeasedDomain]], Awaitable[None]]


async def nothing(domains: Sequence[LeasedDomain]) -> None:
    """Prefetch nothing."""


class LookedAtStore(CountingStore):
    """`looked` is set after ten polls of the shards."""

    def __init__(self, store: RedisStore) -> None:
        super().__init__(store)
        self.looked = asyncio.Event()

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        replies = await super().send(calls)
        if self.calls["EXISTS"] >= 10:
            self.looked.set()
        return replies


@dataclass
class Fed:
    """A lease manager with one shard, on a real server."""

    frontier: Frontier
    committer: Committer
    held: HeldLeases
    queue: DelayQueue
    leases: LeaseManager

    @classmethod
    async def on(cls, store: Store, crawl_name: str, folder: Path, prefetch: Prefetch = nothing) -> Fed:
        clock = SystemClock()
        server_clock = ServerClock(clock, store.time_ms)
        await server_clock.refresh()
        keys = CrawlKeys(crawl_name, 1, b"key".hex())
        await identify_shards(store, keys, range(1))
        frontier = Frontier(store, keys, server_clock, FrontierSettings(), b"key")
        shared = runtime(clock, server_clock)
        held, queue = HeldLeases(shared), DelayQueue(clock)
        committer = Committer(shared, frontier, Archive(settings(folder)), RecentUrls(10), held)
        permits = PagePermits(shared, Budget(store, keys, server_clock, "me", PageLimit(0, 1)), queue, 4)
        often = LeaseManagerSettings(poll_s=0.01)
        leases = LeaseManager(shared, frontier, committer, held, queue, permits, prefetch, often)
        leases.adopt(View(3, (), "me", owners=("me",)))
        return cls(frontier, committer, held, queue, leases)


async def test_an_empty_shard_is_leased_from_once_and_then_looked_at_until_others_push_there(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    # Given a replica with one shard, in which there is nothing,
    counting = LookedAtStore(store)
    fed = await Fed.on(counting, crawl_name, tmp_path)
    feeding = asyncio.create_task(fed.leases.run())
    taking = asyncio.create_task(fed.queue.take())
    # When it has been looked at often,
    await counting.looked.wait()
    # Then it was leased from once, so that all know whose it is;
    assert counting.calls["lease"] == 1
    (surveyed,) = await survey(store, fed.frontier.keys, [0], 0, 1)
    assert surveyed.last_holder is not None
    assert (surveyed.last_holder.replica, surveyed.last_holder.epoch) == ("me", 3)
    # and what somebody else pushes there is found.
    await (await Fed.on(store, crawl_name, tmp_path)).frontier.push([entry()])
    assert (await taking).domain == "a.test"
    feeding.cancel()


async def test_a_shard_with_later_visits_is_leased_from_once_and_then_looked_at_until_one_is_due(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    # Given a replica with one shard, in which a page is visited again in an hour,
    counting = LookedAtStore(store)
    fed = await Fed.on(counting, crawl_name, tmp_path)
    frontier = (await Fed.on(store, crawl_name, tmp_path)).frontier
    for one in (frontier, fed.frontier):
        one.settings = FrontierSettings(known_share=0.5, delay_ms=0)
    await frontier.push([entry()])
    lease = await lease_one(frontier)
    now_ms = frontier.visits_by_ms or 0
    done = with_next_visit(SettledUrl(lease.entries[0], "done", "200"), "new", now_ms + 3_600_000, "00")
    await frontier.settle([Settlement(lease, 0, urls=[done])])
    feeding = asyncio.create_task(fed.leases.run())
    taking = asyncio.create_task(fed.queue.take())
    # When it has been looked at often,
    await counting.looked.wait()
    # Then it was leased from once;
    assert counting.calls["lease"] == 1
    # and a page that an operator refreshes is visited.
    await refresh_page(store, frontier.keys, entry().url, "a.test", now_ms)
    assert [one.visit for one in (await taking).lease.entries] == ["00"]
    feeding.cancel()


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_domain_is_prepared_before_its_first_turn_and_may_be_over_by_then(
    store: RedisStore, crawl_name: str, tmp_path: Path, is_over: bool
) -> None:
    # Given a leased domain that is being prepared,
    asked, may_go_on = asyncio.Event(), asyncio.Event()

    async def prepare(domains: Sequence[LeasedDomain]) -> None:
        assert [leased.domain for leased in domains] == ["a.test"]
        asked.set()
        await may_go_on.wait()

    fed = await Fed.on(store, crawl_name, tmp_path, prepare)
    await fed.frontier.push([entry()])
    tasks = [asyncio.create_task(work) for work in (fed.leases.run(), fed.committer.run())]
    taking = asyncio.create_task(fed.queue.take())
    await asked.wait()
    assert len(fed.queue) == 0
    assert not taking.done()
    # When the replica takes no more turns meanwhile, or goes on,
    if is_over:
        fed.leases.drain()
    may_go_on.set()
    # Then the lease is given back, or has its turn.
    if is_over:
        await fed.committer.flush()
        assert not taking.done()
        assert len(fed.queue) == len(fed.held) == 0
        assert (await Counters(store, fed.frontier.keys).counts()).domains_unleased == 1
    else:
        assert (await taking).domain == "a.test"
    for task in (*tasks, taking):
        task.cancel()


async def test_a_lease_that_redis_kept_though_its_urls_are_settled_is_given_back(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    """Redis has lost the settle call in a restart. Without the return, the lease would be renewed forever."""
    fed = await Fed.on(store, crawl_name, tmp_path)
    fed.frontier.settings = FrontierSettings(lease_ms=2_000)
    await fed.frontier.push([entry()])
    tasks = [asyncio.create_task(fed.leases.run()), asyncio.create_task(fed.committer.run())]
    leased = await fed.queue.take()
    leased.pending.clear()  # all settled, as far as the replica knows
    tasks.append(asyncio.create_task(fed.leases.keep_alive()))
    async with asyncio.timeout(60):
        again = await fed.queue.take()
    assert again.lease.token != leased.lease.token
    assert [one.url for one in again.lease.entries] == [entry().url]
    for task in tasks:
        task.cancel()


async def test_a_view_without_replicas_takes_no_shards_away(store: RedisStore, crawl_name: str, tmp_path: Path) -> None:
    """Nobody could claim a place while the node of the roster was away."""
    fed = await Fed.on(store, crawl_name, tmp_path)
    leases = fed.leases
    leases.adopt(View(4, (Member("me", 1),), "me", owners=("me",)))
    leases.adopt(View(9, (), "me"))
    assert fed.held.shards == {0}
    assert leases.view is not None and leases.view.epoch == 4
    leases.adopt(View(10, (Member("other", 1),), "me", owners=("other",)))
    assert fed.held.shards == set()


# permits


@pytest.fixture
def queue() -> DelayQueue:
    return DelayQueue(SystemClock())


async def permits_of(
    store: RedisStore,
    crawl_name: str,
    queue: DelayQueue,
    name: str,
    limit: int,
    replicas: Callable[[], int] = lambda: 1,
) -> tuple[PagePermits, Budget, Events]:
    clock = SystemClock()
    server_clock = ServerClock(clock, store.time_ms)
    await server_clock.refresh()
    budget = Budget(store, CrawlKeys(crawl_name, 1), server_clock, name, PageLimit(limit, 1))
    shared = runtime(clock, server_clock)
    return PagePermits(shared, budget, queue, 4, replicas), budget, shared.events


async def test_a_domain_that_found_no_permit_has_its_turn_when_one_is_given_back(
    store: RedisStore, crawl_name: str, queue: DelayQueue
) -> None:
    permits, budget, _ = await permits_of(store, crawl_name, queue, "one", limit=1)
    await budget.refresh(4, 1)
    assert permits.take(PAGE)
    closed, first, second = (leased_domain("1", now=0.0) for _ in range(3))
    for one in (closed, first, second):
        assert not permits.take(PAGE)
        permits.wait(one)
    assert permits.is_awaited
    assert len(queue) == 0
    closed.closing = True
    permits.give_back(PAGE)  # goes to the leased domain that has waited the longest, although its lease was returned
    assert len(queue) == 0
    assert permits.take(PAGE)
    permits.give_back(PAGE)
    assert await queue.take() is first


async def test_permits_are_fetched_with_the_first_view_and_not_before(
    store: RedisStore, crawl_name: str, queue: DelayQueue
) -> None:
    """Before it, a replica may not know the time, and would end the permits of others."""
    replicas = 0
    permits, _, events = await permits_of(store, crawl_name, queue, "one", limit=2, replicas=lambda: replicas)
    filling = asyncio.create_task(permits.run(lambda: None))
    await asyncio.sleep(2 * GATHER_S)
    assert await store.send([command("EXISTS", CrawlKeys(crawl_name, 1).budget)]) == [0]
    replicas = 1
    events.emit(ViewAdopted(View(1, (Member("one", 1),), "one"), 1, 1, 0))
    await until(lambda: permits.take(PAGE))
    filling.cancel()


async def test_domains_have_their_turn_when_another_replica_returns_its_permits(
    store: RedisStore, crawl_name: str, queue: DelayQueue
) -> None:
    """Waiting uses no turns."""
    _, budget_of_other, _ = await permits_of(store, crawl_name, queue, "other", limit=2)
    await budget_of_other.refresh(4, 1)
    permits, _, _ = await permits_of(store, crawl_name, queue, "one", limit=2)
    filling = asyncio.create_task(permits.run(lambda: None))
    waiting = leased_domain("1", now=0.0)
    assert not permits.take(PAGE)
    permits.wait(waiting)
    await budget_of_other.leave()
    async with asyncio.timeout(60):
        assert await queue.take() is waiting
    assert permits.take(PAGE)
    assert not permits.is_awaited
    filling.cancel()
