"""The lease manager leases due domains of its shards, and only polls empty shards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from crawler.scope.scope import RecentUrls
from crawler.sinks.archive import Archive
from crawler.worker.allowance import Allowance
from crawler.worker.commit import Committer
from crawler.worker.delay_queue import DelayQueue
from crawler.worker.held_leases import HeldLeases
from crawler.worker.lease_manager import LeaseManager, LeaseManagerSettings, Prefetch
from crawler.worker.leased_domain import LeasedDomain
from frontier.budget import Budget, PageLimit
from frontier.clock import ServerClock, SystemClock
from frontier.counters import Counters, survey
from frontier.keys import CrawlKeys
from frontier.known_pages import refresh_page
from frontier.peers import Member, View
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import Call, Reply
from frontier.settle import SettledUrl, Settlement, with_next_visit
from frontier.shards import identify_shards
from frontier.store import RedisStore, Store
from tests.frontier.helpers import CountingStore, entry, lease_one
from tests.sinks.values import settings
from tests.worker.test_throttle import runtime


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
    queue: DelayQueue[LeasedDomain]
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
        committer = Committer(shared, frontier, Archive(settings(folder)), RecentUrls(10), HeldLeases(shared))
        queue: DelayQueue[LeasedDomain] = DelayQueue(clock)
        allowance = Allowance(shared, Budget(store, frontier.keys, server_clock, "me", PageLimit(0, 1)), queue, 4)
        leases = LeaseManager(shared, frontier, committer, allowance, prefetch, LeaseManagerSettings(poll_s=0.01))
        leases.adopt(View(3, (), "me", owners=("me",)))
        return cls(frontier, committer, queue, leases)


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
        assert len(fed.queue) == len(fed.leases.held) == 0
        assert (await Counters(store, fed.frontier.keys).counts()).domains_unleased == 1
    else:
        assert (await taking).domain == "a.test"
    for task in (*tasks, taking):
        task.cancel()


async def test_a_lease_that_redis_kept_though_its_urls_are_settled_is_given_back(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    """Redis has lost the settle call in a restart. Without the return, the lease would be renewed for ever."""
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
    leases = (await Fed.on(store, crawl_name, tmp_path)).leases
    leases.adopt(View(4, (Member("me", 1),), "me", owners=("me",)))
    leases.adopt(View(9, (), "me"))
    assert leases.held.shards == {0}
    assert leases.view is not None and leases.view.epoch == 4
    leases.adopt(View(10, (Member("other", 1),), "me", owners=("other",)))
    assert leases.held.shards == set()
