"""Outboxes are looked at while there may be links in them. Runs on a real server that acts as one with two nodes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from crawler.events import Events
from crawler.redis_retry import RedisRetry
from crawler.scope.scope import RecentUrls
from crawler.worker.commit import Committer, Group, Result
from crawler.worker.leases import HeldLeases, LeasedDomain
from crawler.worker.outbox import IDLE_POLL_S, WATCHED_S, OutboxDelivery
from frontier.counters import Counters
from frontier.entries import Entry
from frontier.errors import RedisAway
from frontier.queue import Frontier
from frontier.scripts import PUSH, Call, Reply
from frontier.settle import SettledUrl, Settlement
from frontier.shards import Nodes
from frontier.store import RedisStore, Store
from tests.frontier.helpers import CountingStore, ManualTime, make_frontier
from tests.worker.helpers import NOBODY, runtime, server_clock_of

SHARDS = 3
CALM_S = 4 * IDLE_POLL_S


class TwoNodes(CountingStore):
    def node_of(self, key: str) -> str:
        return "b" if ":1}" in key else "a"


class RestartedAfterPush(TwoNodes):
    """Another process serves all shards after the first push."""

    run = "first"

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        replies = await super().send(calls)
        if any(call.script is PUSH for call in calls):
            self.run = "second"
        return replies

    def run_of(self, key: str) -> str:
        return self.run

    def runs(self) -> str:
        return self.run


class Over(Exception):
    """Raised when the time of a test has passed."""


class LimitedTime(ManualTime):
    """Passes for a while."""

    left_s = 0.0

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        self.left_s -= seconds
        if self.left_s <= 0:
            raise Over


async def looks(delivery: OutboxDelivery, store: CountingStore, time: LimitedTime, seconds: float) -> int:
    """How often all outboxes are looked at in so many `seconds`."""
    before, time.left_s = store.calls["EXISTS"], seconds
    try:
        await delivery.run()
    except Over:
        return (store.calls["EXISTS"] - before) // SHARDS
    raise AssertionError


async def a_delivery(
    frontier: Frontier, store: Store, time: LimitedTime
) -> tuple[OutboxDelivery, RedisRetry, HeldLeases]:
    retry = RedisRetry(time, Events(), random.Random(1), nodes=Nodes(store, frontier.keys))
    shared = runtime(time, await server_clock_of(time), retry=retry)
    held = HeldLeases(shared)
    return OutboxDelivery(shared, frontier, held), retry, held


async def test_outboxes_are_looked_at_seldom_unless_there_may_be_links(store: RedisStore, crawl_name: str) -> None:
    time, counting = LimitedTime(), TwoNodes(store)
    frontier = await make_frontier(counting, crawl_name, time, shards=SHARDS)
    delivery, retry, held = await a_delivery(frontier, counting, time)
    # Once a second for a while after shards were taken over, and then seldom,
    held.add_shards(range(SHARDS))
    watched = WATCHED_S + CALM_S / IDLE_POLL_S
    assert watched - 2 <= await looks(delivery, counting, time, WATCHED_S + CALM_S) <= watched + 2
    assert await looks(delivery, counting, time, CALM_S) <= CALM_S / IDLE_POLL_S + 1
    # once a second while a node is away,
    retry.failed(RedisAway("no"), "b")
    before = counting.calls["EXISTS"]
    await looks(delivery, counting, time, 20.0)
    assert (counting.calls["EXISTS"] - before) // (SHARDS - 1) >= 19  # shards of the other node
    retry.answered("b")
    await looks(delivery, counting, time, CALM_S)
    # and at once when this replica has put a link into one.
    link = Entry("https://b.test/1", "b.test")
    await frontier.outboxes.keep({0: [(frontier.shard_of("b.test"), link)]})
    await looks(delivery, counting, time, 2.0)
    counts = await Counters(counting, frontier.keys).counts()
    assert (counts.outbox, counts.accepted) == (0, 1)


async def test_a_link_stays_until_its_server_keeps_it(store: RedisStore, crawl_name: str) -> None:
    """A server that restarts after the push may have lost the link, and the replica may die before it pushes it again."""
    time, restarted = LimitedTime(), RestartedAfterPush(store)
    frontier = await make_frontier(restarted, crawl_name, time, shards=SHARDS)
    delivery, _, held = await a_delivery(frontier, restarted, time)
    held.add_shards(range(SHARDS))
    link = Entry("https://b.test/1", "b.test")
    await frontier.keep_links({0: [(frontier.shard_of("b.test"), link)]})
    await looks(delivery, restarted, time, 3.0)
    assert (await Counters(restarted, frontier.keys).counts()).outbox == 1
    runs = frontier.replaced_runs()
    await frontier.repeat_pushes(runs)
    await frontier.repeat_settlements(runs)
    await looks(delivery, restarted, time, 3.0)
    assert (await Counters(restarted, frontier.keys).counts()).outbox == 0


class OneAway(TwoNodes):
    """Another process serves all shards, or the node b is away."""

    run, is_one_away = "first", False

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        if self.is_one_away and any(self.node_of(call.key) == "b" for call in calls):
            raise RedisAway("away", "b")
        return await super().send(calls)

    def is_away(self, node: str) -> bool:
        return self.is_one_away and node == "b"

    def run_of(self, key: str) -> str:
        return self.run

    def runs(self) -> str:
        return self.run


class PageWithLink:
    """A page on the node a with a link to the node b. `committer` is not running."""

    def __init__(self, store: RedisStore) -> None:
        self.store = OneAway(store)

    async def begin(self, crawl_name: str) -> None:
        time = ManualTime()
        self.frontier = frontier = await make_frontier(self.store, crawl_name, time, shards=SHARDS)
        self.counters = Counters(self.store, frontier.keys)
        names = [f"{letter}.test" for letter in "abcdefgh"]
        by_node = {"b" if frontier.shard_of(name) == 1 else "a": name for name in names}
        self.page, self.link = (Entry(f"https://{by_node[node]}/1", by_node[node]) for node in "ab")
        await frontier.push([self.page])
        ((answer,), _) = await frontier.lease([self.shard], 1, "me", 1)
        self.leased = LeasedDomain(answer.leases[0], float("inf"), 0.0)
        retry = RedisRetry(time, Events(), random.Random(1), nodes=Nodes(self.store, frontier.keys))
        shared = runtime(time, await server_clock_of(time), retry=retry)
        self.committer = Committer(shared, frontier, NOBODY, RecentUrls(100), HeldLeases(shared))

    @property
    def shard(self) -> int:
        return self.frontier.shard_of(self.page.domain)

    @property
    def settled(self) -> SettledUrl:
        return SettledUrl(self.page, "done", "200")


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_settlement_is_repeated_after_its_links_are_in_an_outbox(
    store: RedisStore, crawl_name: str, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    """Both nodes may have lost their last writes, and one is away, so that its links cannot be repeated there."""
    scene = PageWithLink(store)
    await scene.begin(crawl_name)
    await scene.frontier.push([scene.link])
    await scene.frontier.settle([Settlement(scene.leased.lease, 0, urls=[scene.settled])])
    scene.store.run, scene.store.is_one_away = "second", True
    if is_full:
        monkeypatch.setattr("frontier.outboxes.OUTBOX_LINKS", 0)
    await scene.committer.repeat_lost_writes()
    assert (scene.shard in scene.frontier.replaced_runs()) == is_full
    assert await scene.frontier.outboxes.filled([scene.shard]) == ([] if is_full else [scene.shard])


async def test_a_page_whose_links_no_outbox_takes_is_not_settled(
    store: RedisStore, crawl_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = PageWithLink(store)
    await scene.begin(crawl_name)
    scene.store.is_one_away = True
    monkeypatch.setattr("frontier.outboxes.OUTBOX_LINKS", 0)
    group = Group()
    group.add(Result(scene.leased, scene.settled, links=[scene.link]), 0.0)
    await scene.committer._commit(group)
    assert scene.committer.parked == 1
    scene.store.is_one_away = False
    assert (await scene.counters.counts()).done == 0
