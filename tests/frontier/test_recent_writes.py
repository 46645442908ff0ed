"""The last writes, and the shards whose servers may lack them."""

from __future__ import annotations

from collections.abc import Sequence

from frontier.counters import Counters
from frontier.recent_writes import KEPT_MS, SYNCED_MS, RecentWrites
from frontier.scripts import Call, Reply
from frontier.store import RedisStore
from tests.frontier.helpers import CountingStore, ManualTime, entry, lease_one, make_frontier, settle_all


class RestartedMeanwhile(CountingStore):
    """A server that is restarted after it has carried out the calls of `during`, before their replies are read."""

    run, during, away = "before", "", False

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        replies = await super().send(calls)
        if any(call.script and call.script.name == self.during for call in calls):
            self.run = "after"
        return replies

    def is_away(self, node: str) -> bool:
        return self.away

    def run_of(self, key: str) -> str:
        return self.run

    def runs(self) -> str:
        return self.run


async def test_what_a_server_has_done_before_its_restart_counts_as_lost(store: RedisStore, crawl_name: str) -> None:
    server = RestartedMeanwhile(store)
    frontier = await make_frontier(server, crawl_name, ManualTime())
    server.during = "push"
    await frontier.push([entry()])
    assert frontier.replaced_runs() == {0: "after"}


async def test_nothing_is_settled_again_on_a_server_that_lacks_the_pushes(store: RedisStore, crawl_name: str) -> None:
    # Given a page and its link, and a first restart after which the link is pushed again,
    server = RestartedMeanwhile(store)
    frontier = await make_frontier(server, crawl_name, ManualTime())
    await frontier.push([entry()])
    lease = await lease_one(frontier)
    await frontier.push([entry("https://a.test/link")])
    await frontier.settle([settle_all(lease)])
    server.run = "first"
    runs = frontier.replaced_runs()
    server.during = "push"
    await frontier.repeat_pushes(runs)
    # when the server is restarted a second time before the settlement is repeated,
    settled = server.calls["settle"]
    assert await frontier.repeat_settlements(runs) == []
    # then this waits until the link was pushed once more.
    assert server.calls["settle"] == settled
    assert frontier.replaced_runs() == {0: "after"}
    await frontier.repeat_pushes(frontier.replaced_runs())
    await frontier.repeat_settlements(frontier.replaced_runs())
    assert frontier.replaced_runs() == {}
    assert (await Counters(store, frontier.keys).counts()).done == 1


class Runs:
    """The run of each of two nodes, which serve the even and the odd shards."""

    def __init__(self) -> None:
        self.nodes = ["a", "b"]
        self.asked = 0
        self.writes = RecentWrites(self.of, lambda: tuple(self.nodes), lambda _: False, lambda: 0)
        for shard in range(1000):
            self.writes.reached(shard)

    def of(self, shard: int) -> str:
        self.asked += 1
        return self.nodes[shard % 2]


def test_shards_of_a_new_run_are_named_until_the_writes_are_repeated() -> None:
    runs = Runs()
    assert runs.writes.replaced_runs() == {}
    runs.nodes[1] = "c"
    assert runs.writes.replaced_runs() == dict.fromkeys(range(1, 1000, 2), "c")
    runs.writes.repeated({1: "c"})
    assert runs.writes.replaced_runs() == dict.fromkeys(range(3, 1000, 2), "c")
    runs.nodes[1] = "b"  # the slots have moved back
    assert runs.writes.replaced_runs() == {1: "b"}


def test_nothing_is_compared_again_while_the_runs_are_the_same() -> None:
    runs = Runs()
    runs.writes.replaced_runs()
    runs.asked = 0
    assert runs.writes.replaced_runs() == {}
    runs.writes.reached(5000)
    assert runs.writes.replaced_runs() == {}
    assert runs.asked == 1  # by `reached`


def test_a_shard_of_each_node_is_found() -> None:
    runs = Runs()
    assert {shard % 2 for shard in runs.writes.one_of_each(runs.of)} == {0, 1}
    runs.nodes[1] = "a"  # the slots have moved
    assert len(runs.writes.one_of_each(runs.of)) == 1


def test_nobody_is_asked_when_the_servers_keep_all_writes() -> None:
    now = [0]
    writes = RecentWrites(lambda _: "a", lambda: "a", lambda _: False, lambda: now[0])
    writes.pushed(3, [entry()])
    assert list(writes.one_of_each(lambda _: "a", if_lately=True)) == [3]
    now[0] = KEPT_MS + 1
    assert list(writes.one_of_each(lambda _: "a", if_lately=True)) == []
    assert list(writes.one_of_each(lambda _: "a")) == [3]


async def test_a_settlement_is_kept_while_its_server_is_away(store: RedisStore, crawl_name: str) -> None:
    """Until then, the page stays in the journal, so that it can be removed."""
    server, time = RestartedMeanwhile(store), ManualTime()
    frontier = await make_frontier(server, crawl_name, time)
    await frontier.push([entry()])
    lease = await lease_one(frontier)
    settlement = settle_all(lease)
    (url,) = settlement.leased
    assert not frontier.may_repeat(url)
    await frontier.settle([settlement])
    server.away = True
    time.ms += 10 * KEPT_MS
    await frontier.push([entry("https://a.test/2")])
    assert frontier.may_repeat(url)
    assert frontier.is_in_doubt
    server.away = False
    await frontier.push([entry("https://a.test/3")])
    assert not frontier.may_repeat(url)
    assert not frontier.is_in_doubt


def test_the_last_writes_are_safe_when_their_server_runs_long_enough() -> None:
    time, away, runs = ManualTime(), set[int](), ["a"]
    recent = RecentWrites(lambda _: runs[0], lambda: runs[0], away.__contains__, time.now_ms)
    assert recent.are_safe
    recent.pushed(0, [entry()])
    assert not recent.are_safe
    time.ms += SYNCED_MS + 1
    assert recent.are_safe
    away.add(0)  # for how long it ran is unknown
    assert not recent.are_safe
    away.clear()
    runs[0] = "b"
    assert not recent.are_safe


def test_writes_that_are_safe_are_dropped_behind_one_that_is_not() -> None:
    time, away = ManualTime(), {0}
    recent = RecentWrites(lambda shard: "run", lambda: "run", away.__contains__, time.now_ms)
    recent.pushed(0, [entry()])
    for _ in range(100):
        recent.pushed(1, [entry()])
        time.ms += KEPT_MS // 10
    assert len(recent.of([0])) == 1
    assert len(recent.of([1])) <= 20
