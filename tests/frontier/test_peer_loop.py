"""The peer loop: leaderless indices, equal views, late claims, leaving, against a real server and a manual clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from frontier.clock import SystemClock
from frontier.peers import Health, PeerLoop, PeerSettings, View, epoch_of, parse_roster, running_ms
from frontier.scripts import Call, Reply
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, ask

INTERVAL_S = 5.0


class ManualStore:
    """A real store with a manual server clock."""

    def __init__(self, store: RedisStore, time: ManualTime) -> None:
        self._store = store
        self._time = time
        self.received = 0  # bytes of the last replies
        self.largest = 0  # of all replies

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        replies = await self._store.send(calls)
        self.received = len(repr(replies))
        self.largest = max(self.largest, self.received)
        return replies

    async def time_ms(self) -> float:
        return self._time.ms

    async def close(self) -> None: ...


@pytest.fixture
def time() -> ManualTime:
    return ManualTime(ms=1_000_000_000)


@pytest.fixture
def peer(store: RedisStore, crawl_name: str, time: ManualTime) -> Callable[..., PeerLoop]:
    def make(replica: str, capacity: float = 1.0) -> PeerLoop:
        settings = PeerSettings(INTERVAL_S, capacity)
        return PeerLoop(ManualStore(store, time), f"{{{crawl_name}}}:peers", time, settings, replica, random.Random(1))

    return make


async def test_the_first_view_with_an_index_comes_one_epoch_after_the_claim(
    peer: Callable[..., PeerLoop], time: ManualTime
) -> None:
    one, two = peer("one"), peer("two")
    await one.tick()
    assert (await two.tick()).index == 0
    time.ms += 5000
    await one.tick()
    view = await two.tick()
    assert (view.index, view.replicas) == (2, 2)


async def test_a_replica_that_finds_nobody_is_in_the_view_at_once(
    peer: Callable[..., PeerLoop], time: ManualTime
) -> None:
    one, two = peer("one"), peer("two")
    views = [await one.tick(), await two.tick(), await one.tick()]
    assert [view.index for view in views] == [1, 0, 1]
    assert {view.roster for view in views} == {views[0].roster}
    assert len(views[0].roster) == 1
    time.ms += 5000
    assert [(await each.tick()).replicas for each in (one, two)] == [2, 2]


@pytest.mark.parametrize("pause_s", [5, 10, 3600])
async def test_a_replica_that_comes_when_the_last_one_has_left_is_in_the_view_at_once(
    peer: Callable[..., PeerLoop], time: ManualTime, pause_s: int
) -> None:
    one, two = peer("one"), peer("two")
    await one.tick()
    await one.leave()
    time.ms += pause_s * 1000
    assert (await two.tick()).index == 1


async def test_indices_are_unique_and_dense_and_views_are_equal(
    peer: Callable[..., PeerLoop], time: ManualTime
) -> None:
    peers = [peer(f"r{n}") for n in range(7)]
    for one in peers:
        await one.tick()
    time.ms += 5000
    views = [await one.tick() for one in peers]
    assert sorted(view.index for view in views) == list(range(1, 8))
    assert len({(view.epoch, view.roster) for view in views}) == 1
    assert len({view.checksum for view in views}) == 1


async def test_indices_stay_in_whatever_order_the_replicas_claim(
    peer: Callable[..., PeerLoop], time: ManualTime
) -> None:
    peers = [peer("c"), peer("a"), peer("b")]
    seen = []
    for turn in range(5):
        views = {one: await one.tick() for one in (peers[turn % 3 :] + peers[: turn % 3])}
        seen.append([views[one].index for one in peers])
        time.ms += 5000
    assert seen[3:] == [[1, 2, 3]] * 2


async def test_a_roster_and_a_table_that_did_not_change_are_not_sent_again(
    store: RedisStore, crawl_name: str, time: ManualTime
) -> None:
    """A claim transfers the same few bytes with any number of replicas and shards."""
    watched, key = ManualStore(store, time), f"{{{crawl_name}}}:peers"
    settings = PeerSettings(INTERVAL_S, shards=512)
    peers = [PeerLoop(watched, key, time, settings, f"r{n}", random.Random(1)) for n in range(40)]
    received: list[list[int]] = []
    for _ in range(4):
        received.append([])
        for one in peers:
            view = await one.tick()
            received[-1].append(watched.received)
        time.ms += 5000
    assert (view.replicas, len(set(view.owners))) == (40, 40)
    joined, then = received[1:3]
    assert min(joined[1:]) > 40 * 10, "all read the roster"
    assert max(joined[1:]) < 512 * 3, "all but the first compute the table instead of reading it"
    assert max(then) < 200


async def test_replicas_claim_one_after_another_early_in_the_interval(
    store: RedisStore, crawl_name: str, time: ManualTime
) -> None:
    """The later they claim, the longer they have a replica in their views that has died."""
    key, settings = f"{{{crawl_name}}}:peers", PeerSettings(INTERVAL_S)
    peers = [PeerLoop(ManualStore(store, time), key, time, settings, f"r{n}", random.Random(n)) for n in range(50)]
    for one in peers:
        await one.tick()
    time.ms += int(INTERVAL_S * 1000) - time.ms % int(INTERVAL_S * 1000)  # the last moment of an interval
    moments_s = sorted(one.until_next_tick_s() for one in peers)
    assert moments_s[0] > 0
    assert INTERVAL_S / 16 < moments_s[-1] < INTERVAL_S / 8 + 0.01
    assert len(set(moments_s)) == 50


async def test_a_replica_that_asks_for_the_time_reads_no_list_of_replicas(
    store: RedisStore, crawl_name: str, time: ManualTime
) -> None:
    """It looks for an answer several times in an interval, so a thousand new replicas would read a thousand names often."""
    watched, key = ManualStore(store, time), f"{{{crawl_name}}}:peers"
    peers = [PeerLoop(watched, key, time, PeerSettings(INTERVAL_S), f"r{n}", random.Random(1)) for n in range(100)]
    for one in peers:
        await one.tick()
    new = PeerLoop(watched, key, time, PeerSettings(INTERVAL_S), "new", random.Random(1))
    await new.tick()
    watched.largest = 0
    await new.tick()
    assert not new.time.is_known
    assert watched.largest < 200


async def test_a_replica_that_stops_claiming_is_gone_after_one_epoch(
    peer: Callable[..., PeerLoop], time: ManualTime
) -> None:
    one, two = peer("one"), peer("two")
    await one.tick()
    await two.tick()
    time.ms += 5000
    assert (await one.tick()).replicas == 2
    time.ms += 5000
    view = await one.tick()
    assert [(member.replica, member.index) for member in view.roster] == [("one", 1)]


async def test_a_late_claim_counts_for_the_open_epoch(
    peer: Callable[..., PeerLoop], time: ManualTime, store: RedisStore, crawl_name: str
) -> None:
    """Given an open epoch, when a replica with a slow clock claims in the previous one, then the roster that others have
    read does not change."""
    early, late = peer("early"), peer("late")
    await early.tick()
    time.ms += 5000
    before = await early.tick()
    time.ms -= 5000  # the late one still believes in the old epoch
    view = await late.tick()
    time.ms += 5000
    again = await early.tick()
    assert view.epoch == before.epoch
    assert again.roster == before.roster
    time.ms += 5000
    assert (await early.tick()).replicas == 2


async def test_a_doubled_claim_keeps_its_index(peer: Callable[..., PeerLoop], time: ManualTime) -> None:
    one, two = peer("one"), peer("two")
    await one.tick()
    await two.tick()
    await one.tick()
    time.ms += 5000
    assert [member.replica for member in (await one.tick()).roster] == ["one", "two"]


async def test_leaving_takes_effect_in_the_next_view(peer: Callable[..., PeerLoop], time: ManualTime) -> None:
    one, two = peer("one"), peer("two")
    await one.tick()
    await two.tick()
    await one.leave()
    time.ms += 5000
    view = await two.tick()
    assert [member.replica for member in view.roster] == ["two"]
    assert view.index == 1


async def test_a_replica_that_missed_an_epoch_owns_nothing_until_it_is_seen_again(
    peer: Callable[..., PeerLoop], time: ManualTime
) -> None:
    one, two = peer("one"), peer("two")
    await one.tick()
    await two.tick()
    time.ms += 5000
    await one.tick()
    time.ms += 5000
    await one.tick()
    paused = await two.tick()
    assert (paused.index, paused.owns("task")) == (0, False)
    time.ms += 5000
    assert (await two.tick()).index == 2


async def test_the_claims_of_an_epoch_are_no_roster_of_a_later_one(
    peer: Callable[..., PeerLoop], time: ManualTime
) -> None:
    """Given epochs without a claim, because Redis was away, then nobody is sure to be still there."""
    one, two = peer("one"), peer("two")
    await one.tick()
    await two.tick()
    time.ms += 3 * 5000
    assert (await one.tick()).roster == ()
    time.ms += 5000
    assert [member.replica for member in (await one.tick()).roster] == ["one"]


async def test_a_server_clock_that_goes_back_changes_no_view(peer: Callable[..., PeerLoop], time: ManualTime) -> None:
    one = peer("one")
    await one.tick()
    time.ms += 5000
    before = await one.tick()
    time.ms -= 60_000
    assert (await one.tick()).roster == before.roster


async def test_the_keys_of_the_loop_neither_expire_nor_grow_with_the_epochs(
    peer: Callable[..., PeerLoop], time: ManualTime, store: RedisStore, crawl_name: str
) -> None:
    """They must not expire, because the server's clock may step."""
    key, one = f"{{{crawl_name}}}:peers", peer("one")
    for _ in range(5):
        await one.tick()
        time.ms += 5_000
    found = {name.decode() for name in await ask(store, "KEYS", f"{key}*")}
    assert found >= {f"{key}:{kind}" for kind in ("claims", "roster", "numbers")}
    assert not [name for name in found if name[-1].isdigit()]
    assert {await ask(store, "PTTL", name) for name in found} == {-1}


async def test_capacity_and_address_are_in_the_roster(peer: Callable[..., PeerLoop], time: ManualTime) -> None:
    one = peer("one", capacity=2.5)
    one.settings = PeerSettings(INTERVAL_S, 2.5, "10.0.0.1:9410")
    await one.tick()
    time.ms += 5000
    (member,) = (await one.tick()).roster
    assert (member.capacity, member.address) == (2.5, "10.0.0.1:9410")


def test_each_task_has_exactly_one_owner_in_a_view() -> None:
    roster = parse_roster(b'["a","1 1.0 -","b","4 1.0 -","c","9 1.0 -"]')
    views = [View(7, roster, me) for me in ("a", "b", "c")]
    for task in range(200):
        assert sum(view.owns(f"task-{task}") for view in views) == 1


def test_the_next_tick_lies_in_the_first_half_of_the_next_epoch() -> None:
    assert epoch_of(5000, 5.0) == 1
    assert epoch_of(5001, 5.0) == 2


async def test_views_is_a_generator_that_survives_redis_being_away(
    peer: Callable[..., PeerLoop], time: ManualTime
) -> None:
    one = peer("one")
    views = one.views()
    first = await anext(views)
    second = await anext(views)
    assert (first.index, second.index) == (1, 1)
    assert second.epoch == first.epoch + 1
    await views.aclose()


async def test_health_records_expire_with_their_replica(store: RedisStore, crawl_name: str) -> None:
    health = Health(store, f"{{{crawl_name}}}:peers", ttl_s=60)
    await health.report("one", b"fine")
    assert await health.records() == {"one": b"fine"}
    assert 0 < await ask(store, "PTTL", f"{{{crawl_name}}}:peers:health:one") <= 60_000
    await health.report("two", b"fine")
    await ask(store, "DEL", f"{{{crawl_name}}}:peers:health:one")
    assert await health.records() == {"two": b"fine"}
    await health.withdraw("two")
    assert await health.records() == {}


async def test_running_time_counts_only_while_replicas_work(
    peer: Callable[..., PeerLoop], store: RedisStore, crawl_name: str, time: ManualTime
) -> None:
    async def worked_s() -> float:
        return await running_ms(store, f"{{{crawl_name}}}:peers", time.ms) / 1000

    async def tick(loop: PeerLoop, times: int) -> None:
        for _ in range(times):
            time.ms += 5_000
            await loop.tick()

    assert await worked_s() == 0
    one, two = peer("one"), peer("two")
    await one.tick()
    await tick(one, 2)
    await two.tick()  # several replicas count once
    await tick(two, 2)
    assert await worked_s() == 20
    time.ms += 1_000
    assert await worked_s() == 21  # also the time since the last claim
    two.set_paused(True)
    await two.tick()
    await tick(two, 10)
    two.set_paused(False)
    await tick(two, 1)
    assert await worked_s() == 21
    await tick(two, 1)
    time.ms += 2_000
    await two.leave()
    assert await worked_s() == 28
    time.ms += 20_000  # nothing runs
    three = peer("three")
    await three.tick()
    await tick(three, 1)
    assert await worked_s() == 33
    time.ms += 40_000  # it was killed
    four = peer("four")
    await four.tick()
    await tick(four, 2)  # now it knows that it is alone
    assert await worked_s() == 33
    await tick(four, 1)
    assert await worked_s() == 38


async def test_a_loop_that_continues_the_time_of_an_earlier_one_does_not_ask_for_it(
    store: RedisStore, crawl_name: str
) -> None:
    """All replicas of a crawl that is resharded are replaced at once, so nobody could answer."""
    loops = [
        PeerLoop(store, f"{{{crawl_name}}}:peers", SystemClock(), PeerSettings(60), name)
        for name in ("old", "new", "b")
    ]
    old, continuing, asking = loops
    await old.tick()
    continuing.continue_time(old.time)
    for loop in loops[1:]:
        await loop.tick()
    assert [loop.time.is_known for loop in loops] == [True, True, False]
    assert continuing.server_clock is continuing.time.server_clock
    assert asking.server_clock is not old.server_clock
