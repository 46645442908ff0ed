"""`ServerClock` is never ahead of the server, and behind it by at most `uncertainty_ms`."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from frontier.clock import PATIENCE, ServerClock, crawl_ms
from frontier.keys import CrawlKeys
from frontier.peers import PeerLoop, PeerSettings, View, epoch_of
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import CORRECT_TIME, script_call
from frontier.shards import identify_shards
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, ask, entry


class SlowServer:
    """A server whose clock is ahead of ours by `ahead_ms`, with latencies `out_s` and `back_s`."""

    def __init__(self, time: ManualTime, ahead_ms: int = 0) -> None:
        self.time = time
        self.ahead_ms = ahead_ms
        self.out_s = self.back_s = 0.0

    async def read_ms(self) -> float:
        await self.time.sleep(self.out_s)
        read = self.now_ms
        await self.time.sleep(self.back_s)
        return read

    @property
    def now_ms(self) -> int:
        return self.time.ms + self.ahead_ms


@pytest.mark.parametrize(("out_s", "back_s"), [(0.0, 0.4), (0.4, 0.0), (0.2, 0.2), (4.0, 0.1)])
async def test_the_server_lies_between_two_bounds_however_lopsided_the_way(out_s: float, back_s: float) -> None:
    time = ManualTime()
    server = SlowServer(time, ahead_ms=3_600_000)
    server.out_s, server.back_s = out_s, back_s
    clock = ServerClock(time, server.read_ms)
    await clock.refresh()
    assert clock.now_ms() <= server.now_ms <= clock.now_ms() + clock.uncertainty_ms
    assert clock.uncertainty_ms == pytest.approx((out_s + back_s) * 1000, abs=1)


async def test_a_slow_reading_does_not_replace_a_surer_one_until_that_has_aged() -> None:
    time = ManualTime()
    server = SlowServer(time)
    clock = ServerClock(time, server.read_ms)
    await clock.refresh()
    server.out_s = 0.1
    await clock.refresh()
    assert clock.uncertainty_ms == 0
    await time.sleep(200.0)  # a thousandth of it is more than the round trip
    await clock.refresh()
    assert clock.uncertainty_ms == 100


async def test_a_reading_during_which_the_process_was_suspended_is_repeated() -> None:
    """It would say only that the server's clock is between now and the beginning of the suspension."""
    time = ManualTime()
    server = SlowServer(time, ahead_ms=3_600_000)
    server.back_s = 80.0

    async def read_ms() -> float:
        read = await server.read_ms()
        server.back_s = 0.0
        return read

    clock = ServerClock(time, read_ms)
    await clock.refresh()
    assert clock.now_ms() == server.now_ms
    assert clock.uncertainty_ms == 0


async def test_it_cannot_be_read_before_it_was_set() -> None:
    time = ManualTime()
    with pytest.raises(RuntimeError):
        ServerClock(time, SlowServer(time).read_ms).now_ms()


# Crawl time goes on evenly when the server's clock steps, and a replica that cannot know it asks.


INTERVAL_S = 5.0
STEPS_S = (-3600, -60, 60, 3600)


class SteppingStore:
    """A real store. Its server's clock steps, and each reading of it takes `round_trip_s`."""

    def __init__(self, store: RedisStore, time: ManualTime) -> None:
        self._time = time
        self.send = store.send
        self.run_of = store.run_of
        self.runs = store.runs
        self.stepped_ms = 0
        self.round_trip_s = 0.0

    async def time_ms(self) -> float:
        await self._time.sleep(self.round_trip_s / 2)
        read_ms = self._time.ms + self.stepped_ms
        await self._time.sleep(self.round_trip_s / 2)
        return read_ms

    async def close(self) -> None: ...


class FrozenTime(ManualTime):
    """The clock of a machine that was frozen for a while: `time` without that while."""

    def __init__(self, time: ManualTime) -> None:
        self.time = time
        self.frozen_ms = 0

    def monotonic(self) -> float:
        return (self.time.ms - self.frozen_ms) / 1000


@pytest.fixture
def time() -> ManualTime:
    return ManualTime(ms=1_000_000_000 + 1_000)  # a second after the beginning of an epoch


@pytest.fixture
def server(store: RedisStore, time: ManualTime) -> SteppingStore:
    return SteppingStore(store, time)


Peer = Callable[..., PeerLoop]


@pytest.fixture
def peer(server: SteppingStore, crawl_name: str, time: ManualTime) -> Peer:
    def make(replica: str, clock: ManualTime | None = None) -> PeerLoop:
        key, settings = f"{{{crawl_name}}}:peers", PeerSettings(INTERVAL_S, shards=8)
        return PeerLoop(server, key, clock or time, settings, replica, random.Random(1))

    return make


async def rounds(time: ManualTime, peers: list[PeerLoop], count: int = 1) -> list[View]:
    """The last views of `peers`, after each has claimed in `count` intervals."""
    for _ in range(count):
        time.ms += 5_000 - (time.ms - 1_000) % 5_000  # all in the first half of an interval
        views = [await one.tick() for one in peers]
    return views


async def running(peer: Peer, time: ManualTime, names: str = "ab") -> list[PeerLoop]:
    peers = [peer(name) for name in names]
    for one in peers:
        await one.tick()
    await rounds(time, peers, 2)
    assert all(one.time.is_known for one in peers)
    return peers


def error_ms(one: PeerLoop, time: ManualTime) -> int:
    """By how much crawl time, as `one` knows it, is ahead of the true time."""
    return one.server_clock.now_ms() - time.ms


@pytest.mark.parametrize("step_s", STEPS_S)
@pytest.mark.parametrize("round_trip_s", [0.0, 0.2])
async def test_a_step_changes_neither_time_nor_views(
    peer: Peer, time: ManualTime, server: SteppingStore, step_s: int, round_trip_s: float
) -> None:
    peers = await running(peer, time)
    server.round_trip_s = round_trip_s
    (before, _) = await rounds(time, peers)
    server.stepped_ms += 1000 * step_s
    for number in range(1, 5):
        views = await rounds(time, peers)
        assert [view.replicas for view in views] == [2, 2]
        assert views[0].epoch == views[1].epoch == before.epoch + number
        assert views[0].owners == before.owners
        for one in peers:
            assert -3 * 1000 * round_trip_s - 30 <= error_ms(one, time) <= 0
    for one in peers:
        assert abs(error_ms(one, time) - error_ms(peers[0], time)) <= 1000 * round_trip_s + 10


@pytest.mark.parametrize("step_s", STEPS_S)
async def test_a_replica_that_joins_before_anybody_notices_the_step_waits_for_the_time(
    peer: Peer, time: ManualTime, server: SteppingStore, step_s: int
) -> None:
    peers = await running(peer, time)
    epoch = (await peers[0].tick()).epoch
    server.stepped_ms += 1000 * step_s
    new = peer("new")
    for _ in range(2):
        view = await new.tick()
        assert not new.time.is_known  # nobody has answered yet
        assert view.epoch == epoch  # it opened none
    views = await rounds(time, [*peers, new])
    assert not new.time.is_known  # what it had read was before the correction
    time.ms += 1000
    await new.tick()
    views = await rounds(time, [*peers, new])
    assert new.time.is_known
    assert abs(error_ms(new, time)) <= 20
    assert len({(view.epoch, view.owners) for view in views}) == 1
    assert views[0].replicas == 3


@pytest.mark.parametrize("step_s", STEPS_S)
async def test_a_replica_that_joins_after_the_step_agrees(
    peer: Peer, time: ManualTime, server: SteppingStore, step_s: int
) -> None:
    peers = await running(peer, time)
    server.stepped_ms += 1000 * step_s
    await rounds(time, peers)
    new = peer("new")
    await new.tick()
    views = await rounds(time, [*peers, new])
    assert new.time.is_known
    assert abs(error_ms(new, time)) <= 20
    assert len({(view.epoch, view.owners, view.replicas) for view in views}) == 1


@pytest.mark.parametrize("step_s", STEPS_S)
async def test_the_shards_of_a_dead_replica_move_within_two_intervals(
    peer: Peer, time: ManualTime, server: SteppingStore, step_s: int
) -> None:
    alive, _dead = await running(peer, time)
    server.stepped_ms += 1000 * step_s
    (view,) = await rounds(time, [alive], 2)
    assert view.owners == ("a",) * 8


@pytest.mark.parametrize("step_s", STEPS_S)
async def test_no_lease_ends_early_and_no_delay_is_shortened(
    peer: Peer, time: ManualTime, server: SteppingStore, crawl_name: str, step_s: int
) -> None:
    one, two = await running(peer, time)
    settings = FrontierSettings(lease_ms=30_000)

    def frontier(loop: PeerLoop) -> Frontier:
        return Frontier(server, CrawlKeys(crawl_name, 1, b"key".hex()), loop.server_clock, settings, b"key")

    async def leased(loop: PeerLoop) -> bool:
        found, _ = await frontier(loop).lease([0], 1 if loop is one else 2, loop.replica, 1)
        return bool(found[0].leases)

    await identify_shards(server, CrawlKeys(crawl_name, 1, b"key".hex()), [0])
    await frontier(one).push([entry()])
    assert await leased(one)
    began_ms = time.ms
    server.stepped_ms += 1000 * step_s
    while time.ms + 5_000 < began_ms + 30_000:
        await rounds(time, [one, two])
        assert not await leased(two)
    await rounds(time, [one, two])
    await rounds(time, [one, two])  # the lease has ended, and the delay is over
    assert await leased(two)


async def test_of_two_replicas_that_notice_a_step_one_corrects_it(
    peer: Peer, time: ManualTime, server: SteppingStore, store: RedisStore, crawl_name: str
) -> None:
    peers = await running(peer, time, "abc")
    server.stepped_ms -= 60_000
    await rounds(time, peers, 3)
    clock = f"{{{crawl_name}}}:peers:clock"
    assert await ask(store, "HGET", clock, "version") == b"1"
    server.stepped_ms += 60_000  # a second step
    await rounds(time, peers, 3)
    assert await ask(store, "HGET", clock, "version") == b"2"
    assert sum(one.time.corrections for one in peers) == 2
    assert [abs(error_ms(one, time)) <= 60 for one in peers] == [True] * 3


async def test_a_correction_that_arrives_late_changes_nothing(
    peer: Peer, time: ManualTime, server: SteppingStore, store: RedisStore, crawl_name: str
) -> None:
    (one,) = await running(peer, time, "a")
    clock = f"{{{crawl_name}}}:peers:clock"
    server.stepped_ms += 60_000
    await rounds(time, [one])
    right = await ask(store, "HGETALL", clock)
    ((word,),) = await store.send([script_call(CORRECT_TIME, [clock], 0, -59_000, 10, 7)])
    assert word == b"outdated"
    assert await ask(store, "HGETALL", clock) == right


async def test_a_replica_that_was_frozen_does_not_stop_the_time_of_the_others(
    peer: Peer, time: ManualTime, server: SteppingStore
) -> None:
    """Its clock stood still, so the server's clock seems to have stepped."""
    clock = FrozenTime(time)
    one, frozen = peer("a"), peer("b", clock)
    await one.tick()
    await frozen.tick()
    await rounds(time, [one, frozen], 2)
    assert frozen.time.is_known
    clock.frozen_ms = 60_000
    await rounds(time, [one], 12)
    await frozen.tick()
    assert not frozen.time.is_known
    await rounds(time, [one, frozen])
    assert frozen.time.is_known
    assert abs(error_ms(one, time)) <= 5
    assert abs(error_ms(frozen, time)) <= 5


async def test_an_uncertain_answer_does_not_change_the_time_of_others(
    peer: Peer, time: ManualTime, server: SteppingStore, store: RedisStore, crawl_name: str
) -> None:
    """The new replica's first reading may be behind the last claim, because it took long."""
    peers = await running(peer, time)
    new = peer("c")
    server.round_trip_s = 0.4
    await new.tick()
    server.round_trip_s = 0.0
    await rounds(time, peers)  # which answer
    time.ms += 100
    await new.tick()
    assert new.time.is_known
    views = await rounds(time, [*peers, new], 3)
    assert views[0].replicas == 3
    assert await ask(store, "HGET", f"{{{crawl_name}}}:peers:clock", "version") is None
    assert [abs(error_ms(one, time)) <= 20 for one in (*peers, new)] == [True] * 3


@pytest.mark.parametrize("frozen_s", [(60, 61), (61, 60), (60, 90)])
async def test_replicas_whose_clocks_stood_still_for_different_times_agree_again(
    peer: Peer, time: ManualTime, store: RedisStore, crawl_name: str, frozen_s: tuple[int, int]
) -> None:
    """Each of them is sure of its own clock. If both put crawl time right again and again, it would never be."""
    clocks = [FrozenTime(time), FrozenTime(time)]
    peers = [peer(name, clock) for name, clock in zip("ab", clocks, strict=True)]
    for one in peers:
        await one.tick()
    await rounds(time, peers, 2)
    assert all(one.time.is_known for one in peers)
    for clock, seconds in zip(clocks, frozen_s, strict=True):
        clock.frozen_ms = seconds * 1000
    time.ms += max(frozen_s) * 1000
    await rounds(time, peers, 6)
    version = await ask(store, "HGET", f"{{{crawl_name}}}:peers:clock", "version")
    views = await rounds(time, peers, 4)
    assert await ask(store, "HGET", f"{{{crawl_name}}}:peers:clock", "version") == version
    assert all(one.time.is_known for one in peers)
    assert abs(error_ms(peers[0], time) - error_ms(peers[1], time)) <= 40
    assert [view.replicas for view in views] == [2, 2]


async def test_a_crawl_that_goes_on_on_a_server_with_a_slow_clock_does_not_wait_for_it(
    peer: Peer, time: ManualTime, server: SteppingStore
) -> None:
    (one,) = await running(peer, time, "a")
    before = await one.tick()
    server.stepped_ms -= 3_600_000  # the replica was killed, and another server took over
    two = peer("b")
    await two.tick()
    time.ms += int(PATIENCE * INTERVAL_S * 1000) + 1
    view = await two.tick()
    assert two.time.is_known
    assert view.epoch >= before.epoch
    assert two.server_clock.now_ms() >= time.ms - 10_000
    (view,) = await rounds(time, [two], 3)
    assert [member.replica for member in view.roster] == ["b"]


async def test_the_first_replica_knows_the_time_at_once_and_the_commands_too(
    peer: Peer, time: ManualTime, server: SteppingStore, crawl_name: str
) -> None:
    one = peer("a")
    view = await one.tick()
    assert one.time.is_known
    assert view.epoch == epoch_of(time.ms, INTERVAL_S)
    server.stepped_ms += 60_000
    await rounds(time, [one])
    assert abs(await crawl_ms(server, f"{{{crawl_name}}}:peers")() - time.ms) <= 10


async def test_a_new_replica_that_nobody_answers_goes_on_alone(peer: Peer, time: ManualTime) -> None:
    """After a crash of all replicas, the roster still has members."""
    await running(peer, time)
    time.ms += 600_000
    new = peer("c")
    await new.tick()
    assert not new.time.is_known
    (view,) = await rounds(time, [new], 3)
    assert new.time.is_known
    assert [member.replica for member in view.roster] == ["c"]


async def test_a_clock_that_was_put_back_counts_as_uncertain_until_others_follow(
    peer: Peer, time: ManualTime, server: SteppingStore
) -> None:
    """Otherwise a replica that does not know the correction yet would start its request before the delay is over."""
    one, two = await running(peer, time)
    server.round_trip_s = 0.8  # of the readings that notice the step
    server.stepped_ms -= 60_000
    time.ms += 5_000
    await one.tick()
    server.round_trip_s = 0.0
    ahead_ms = two.server_clock.now_ms() - one.server_clock.now_ms()
    assert ahead_ms > 500
    assert one.server_clock.uncertainty_ms >= ahead_ms
    await rounds(time, [one, two], 5)
    assert abs(two.server_clock.now_ms() - one.server_clock.now_ms()) <= one.server_clock.uncertainty_ms <= 100
