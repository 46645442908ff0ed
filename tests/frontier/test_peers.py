"""The peer loop: leaderless indices, equal views, late claims, leaving, against a real server and a manual clock."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from frontier.clock import SystemClock
from frontier.errors import BadInput, RedisAway
from frontier.peers import (
    Handoff,
    Health,
    OwnerTable,
    PeerLoop,
    PeerSettings,
    View,
    assign,
    fair_shares,
    parse_roster,
    plan_handoff,
    running_ms,
)
from frontier.scripts import SAVE_OWNERS, Call, Reply, script_call
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, ask, moved
from tests.valkey import ValkeyProcess

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


async def test_replicas_that_stop_reporting_are_remembered_for_a_while(store: RedisStore, crawl_name: str) -> None:
    """One that has left is not, nor is one that was lost long before the latest report."""
    health, key = Health(store, f"{{{crawl_name}}}:peers", ttl_s=60), f"{{{crawl_name}}}:peers:health"
    for name, at_ms in (("long ago", 1_000), ("lost", 500_000), ("left", 600_000), ("live", 700_000)):
        await health.report(name, b"fine", at_ms=at_ms)
    await health.withdraw("left")
    await ask(store, "DEL", f"{key}:long ago")
    await ask(store, "DEL", f"{key}:lost")
    assert await health.read() == ({"live": b"fine"}, {"lost": 500_000})
    assert await ask(store, "ZRANGE", key, 0, -1) == [b"lost", b"live"]


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
    two.is_paused = True
    await two.tick()
    await tick(two, 10)
    two.is_paused = False
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
    continuing.time = old.time
    for loop in loops[1:]:
        await loop.tick()
    assert [loop.time.is_known for loop in loops] == [True, True, False]
    assert continuing.server_clock is continuing.time.server_clock
    assert asking.server_clock is not old.server_clock


# The ring: every shard has one owner, loads are even, and a change of the roster moves as few shards as possible.


Roster = dict[str, float]

CAPACITIES = (0.25, 0.5, 1.0, 1.5, 2.0, 8.0)

rosters = st.dictionaries(st.text(min_size=1, max_size=12), st.sampled_from(CAPACITIES), min_size=1, max_size=24)
shard_counts = st.integers(1, 300)


@st.composite
def changes(draw: st.DrawFn) -> tuple[Roster, Roster, int]:
    """Two rosters that may share replicas, with different capacities, and a number of shards."""
    before, after = draw(rosters), draw(rosters)
    staying = draw(st.lists(st.sampled_from(sorted(before)), unique=True))
    return before, after | {name: before[name] for name in staying}, draw(shard_counts)


def equal_roster(replicas: int, seed: object) -> Roster:
    chance = random.Random(f"{replicas} {seed}")
    return {f"replica-{chance.getrandbits(64):016x}": 1.0 for _ in range(replicas)}


def churn(replicas: int, capacities: Sequence[float], steps: int) -> Iterator[tuple[str, Roster]]:
    """Random joins and leaves of 2 to 512 replicas: (the replica that joined or left, the new roster)."""
    chance = random.Random(f"{replicas} {capacities}")
    roster = {f"replica-{chance.getrandbits(64):016x}": chance.choice(capacities) for _ in range(replicas)}
    yield "", roster
    for _ in range(steps):
        if len(roster) == 2 or (len(roster) < 512 and chance.random() < 0.5):
            name = f"replica-{chance.getrandbits(64):016x}"
            roster = roster | {name: chance.choice(capacities)}
        else:
            name = chance.choice(sorted(roster))
            roster = {other: capacity for other, capacity in roster.items() if other != name}
        yield name, roster


def fewest_moves(before: Sequence[str], roster: Roster, shards: int) -> int:
    """The fewest shards that any change to fair loads, rounded down or up, must move: free shards and surplus."""
    held = Counter(before)
    fair = fair_shares(roster, shards)
    over = [max(0, held[name] - math.floor(share)) for name, share in fair.items()]
    left_over = shards - sum(math.floor(share) for share in fair.values())
    free = sum(load for name, load in held.items() if name not in roster)
    return free + sum(over) - min(left_over, sum(1 for excess in over if excess))


@settings(max_examples=200)
@given(changes())
def test_loads_are_within_one_shard_of_the_fair_share(change: tuple[Roster, Roster, int]) -> None:
    """So loads are also below the limit of I5, ceil(1.1 x the fair share). To assign again changes nothing, so all replicas
    of an epoch agree, whether they start from the old table or from the newly computed one."""
    before, after, shards = change
    owners = assign(after, shards, assign(before, shards))
    assert assign(after, shards, owners) == owners
    assert len(owners) == shards
    assert set(owners) <= set(after)
    loads = Counter(owners)
    for replica, fair in fair_shares(after, shards).items():
        assert math.floor(fair) <= loads[replica] <= math.floor(fair) + 1
        assert loads[replica] <= math.ceil(1.1 * fair - 1e-9)


@settings(max_examples=200)
@given(changes())
def test_nothing_moves_less(change: tuple[Roster, Roster, int]) -> None:
    roster, after, shards = change
    before = assign(roster, shards)
    assert moved(before, assign(after, shards, before)) == fewest_moves(before, after, shards)


@settings(max_examples=100)
@given(st.data(), changes())
def test_the_order_of_the_roster_does_not_matter(data: st.DataObject, change: tuple[Roster, Roster, int]) -> None:
    before, after, shards = change
    shuffled = dict(data.draw(st.permutations(list(after.items()))))
    assert assign(shuffled, shards) == assign(after, shards)
    earlier = assign(before, shards)
    assert assign(shuffled, shards, earlier) == assign(after, shards, earlier)


@settings(max_examples=50)
@given(rosters, shard_counts)
def test_only_the_ratios_of_capacities_count(roster: Roster, shards: int) -> None:
    """Scaling by a power of two is exact in floating point, so even the last bit must not matter."""
    assert assign({name: capacity * 4 for name, capacity in roster.items()}, shards) == assign(roster, shards)


SIZES = [
    *((2, 64), (3, 64), (8, 64), (64, 64), (512, 64), (16, 512), (500, 512)),
    *((8, 1024), (32, 1024), (100, 1024), (125, 1024), (376, 1024), (512, 1024)),
    *((128, 4096), (501, 4096), (500, 16_384), (512, 16_384)),
]


@pytest.mark.parametrize("capacities", [(1.0,), (0.5, 1.0, 2.0)], ids=["equal", "unequal"])
@pytest.mark.parametrize(("replicas", "shards"), SIZES)
def test_a_join_moves_the_joiners_share_and_a_leave_the_leavers(
    replicas: int, shards: int, capacities: tuple[float, ...]
) -> None:
    """I5, after any number of changes: at most one shard more than the ideal moves, and on average no more."""
    owners: tuple[str, ...] = ()
    moves = ideal = 0.0
    roster: Roster = {}
    for name, changed in churn(replicas, capacities, steps=12):
        before, larger, roster = owners, roster if name in roster else changed, changed
        owners = assign(roster, shards, before)
        if name:
            fair = fair_shares(larger, shards)[name]
            assert moved(before, owners) == before.count(name) + owners.count(name) <= math.floor(fair) + 1
            moves, ideal = moves + moved(before, owners), ideal + fair
            if fair >= 32:
                assert moved(before, owners) <= 1.04 * fair
    if shards >= 32 * replicas:
        assert moves <= 1.04 * ideal


def test_a_change_of_capacity_moves_the_difference() -> None:
    roster = equal_roster(16, "capacity")
    before = assign(roster, 1024)
    after = assign(roster | {min(roster): 2.0}, 1024, before)
    assert 2 / 17 * 1024 - 64 - 1 <= moved(before, after) <= 2 / 17 * 1024 - 64 + 1


def test_what_a_leaver_leaves_is_spread_over_the_others() -> None:
    roster = equal_roster(16, "spread")
    before = assign(roster, 1024)
    leaver = min(roster)
    after = assign({name: 1.0 for name in roster if name != leaver}, 1024, before)
    heirs = Counter(new for old, new in zip(before, after, strict=True) if old == leaver)
    assert len(heirs) == 15
    assert max(heirs.values()) <= 5


def test_the_first_assignment_is_consistent_hashing() -> None:
    """Two crawls that start with nearly the same roster start with nearly the same owners."""
    roster = equal_roster(16, "first")
    others = {name: 1.0 for name in roster if name != min(roster)}
    assert moved(assign(roster, 1024), assign(others, 1024)) <= 0.4 * 1024


GOLDEN = [
    ({"a": 1.0}, 4, "", "aaaa"),
    ({"a": 1.0, "b": 1.0, "c": 1.0}, 24, "", "ccaabbbccccbaccaaabbbbaa"),
    ({"a": 1.0, "b": 2.0, "c": 0.5, "d": 4.0}, 24, "", "dcdddbdbcddddddddabbbbaa"),
    ({"a": 1.0, "b": 1.0, "c": 1.0}, 12, "aaaabbbbdddd", "aaaabbbbcccc"),
    ({"a": 1.0, "b": 1.0, "c": 1.0}, 12, "aaaaaabbbbbb", "aaaaccbbbbcc"),
    (dict.fromkeys("abcdefghijklm", 1.0), 24, "", "hcmhfbdilcjgdkeiaebgkjaf"),
]


@pytest.mark.parametrize(("roster", "shards", "before", "owners"), GOLDEN)
def test_replicas_of_all_versions_agree(roster: Roster, shards: int, before: str, owners: str) -> None:
    """If this fails, the protocol has changed, and replicas of two versions would claim the same shards."""
    assert "".join(assign(roster, shards, before)) == owners


@pytest.mark.parametrize(
    ("roster", "shards", "before"),
    [
        ({}, 4, ""),
        ({"": 1.0}, 4, ""),
        ({"a": 1.0}, 0, ""),
        ({"a": 1.0}, 4, "aaaaa"),
    ],
)
def test_nonsense_is_refused(roster: Roster, shards: int, before: str) -> None:
    with pytest.raises(BadInput):
        assign(roster, shards, before)


@pytest.mark.parametrize(
    ("owned", "assignment", "take", "drop"),
    [
        ([], "aab", [0, 1], []),
        ([0, 1], "aab", [], []),
        ([0, 2], "aab", [1], [2]),
        ([0, 1, 2], "bbb", [], [0, 1, 2]),
        ([0, 1, 2], "", [], [0, 1, 2]),
    ],
)
def test_handoff_is_the_difference(
    owned: Sequence[int], assignment: str, take: Sequence[int], drop: Sequence[int]
) -> None:
    assert plan_handoff(frozenset(owned), assignment, "a") == Handoff(frozenset(take), frozenset(drop))


# The owner table: who saves it, that all views of an epoch have the same one, and that few shards move.


SHARDS = 64
INTERVAL_MS = 5000


class FaultyStore:
    """A real store with a manual server clock. While `loses` is set, calls of save_owners.lua are kept in `lost`."""

    def __init__(self, store: RedisStore, time: ManualTime) -> None:
        self._store = store
        self._time = time
        self.loses = False
        self.lost: list[Call] = []
        self.placed = 0

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        if calls[0].script is SAVE_OWNERS:
            self.placed += 1
            if self.loses:
                self.lost += calls
                raise RedisAway("no answer")
        return await self._store.send(calls)

    async def time_ms(self) -> float:
        return self._time.ms

    async def close(self) -> None: ...


class Cluster:
    """Replicas that claim one after another in each epoch."""

    def __init__(self, store: RedisStore, key: str) -> None:
        self._store = store
        self.key = key
        self.time = ManualTime(ms=1_000_000_000)
        self.stores: dict[str, FaultyStore] = {}
        self.peers: dict[str, PeerLoop] = {}

    def join(self, *replicas: str, capacity: float = 1.0) -> None:
        settings = PeerSettings(INTERVAL_MS / 1000, capacity, shards=SHARDS)
        for replica in replicas:
            store = self.stores[replica] = FaultyStore(self._store, self.time)
            self.peers[replica] = PeerLoop(store, self.key, self.time, settings, replica, random.Random(1))

    async def epoch(self) -> list[View]:
        """The next epoch's views, in the order in which the replicas claim."""
        self.time.ms += INTERVAL_MS
        return [await peer.tick() for peer in self.peers.values()]


@pytest.fixture
async def cluster(store: RedisStore, crawl_name: str) -> Cluster:
    cluster = Cluster(store, f"{{{crawl_name}}}:peers")
    cluster.join("one", "two", "three")
    await cluster.epoch()  # its table has only the one that came first
    for faulty in cluster.stores.values():
        faulty.placed = 0
    return cluster


def owners_of(views: Sequence[View]) -> tuple[str, ...]:
    """The owners that all of `views` have."""
    (owners,) = {view.owners for view in views}
    return owners


async def test_all_views_of_an_epoch_have_the_same_owners(cluster: Cluster) -> None:
    owners = owners_of(await cluster.epoch())
    assert sorted(Counter(owners).values()) == [21, 21, 22]
    assert len({view.checksum for view in await cluster.epoch()}) == 1


async def test_only_the_first_to_see_a_change_writes_the_table(cluster: Cluster) -> None:
    for _ in range(3):
        await cluster.epoch()
    assert [store.placed for store in cluster.stores.values()] == [1, 0, 0]


async def test_a_join_and_a_leave_move_one_share(cluster: Cluster) -> None:
    before = owners_of(await cluster.epoch())
    cluster.join("four")
    await cluster.epoch()
    joined = owners_of(await cluster.epoch())
    assert moved(before, joined) == joined.count("four") == 16
    await cluster.peers.pop("two").leave()
    left = owners_of(await cluster.epoch())
    assert moved(joined, left) == joined.count("two") == 16


async def test_after_a_silence_all_have_what_they_had(cluster: Cluster) -> None:
    """After Redis was away for some epochs, there is first a view without a roster, and then the old owners."""
    before = owners_of(await cluster.epoch())
    cluster.time.ms += 10 * INTERVAL_MS
    assert owners_of(await cluster.epoch()) == ()
    assert owners_of(await cluster.epoch()) == before


async def test_a_table_that_did_not_arrive_is_made_again(cluster: Cluster) -> None:
    """Given a first replica whose table is lost, then the others compute the same one, as does the first when it
    retries."""
    cluster.stores["one"].loses = True
    cluster.time.ms += INTERVAL_MS
    with pytest.raises(RedisAway):
        await cluster.peers["one"].tick()
    others = [await cluster.peers[name].tick() for name in ("two", "three")]
    assert owners_of([*others, await cluster.peers["one"].tick()])
    assert [store.placed for store in cluster.stores.values()] == [1, 1, 0]


async def test_a_late_table_of_a_closed_epoch_is_refused(cluster: Cluster, store: RedisStore) -> None:
    """Given a table that is delayed until another epoch is open, when it arrives, then it is refused."""
    before = owners_of(await cluster.epoch())
    cluster.join("four")
    await cluster.epoch()
    cluster.stores["one"].loses = True
    cluster.time.ms += INTERVAL_MS
    with pytest.raises(RedisAway):
        await cluster.peers["one"].tick()
    del cluster.peers["four"]
    cluster.time.ms += INTERVAL_MS
    await cluster.peers["two"].tick()
    cluster.time.ms += INTERVAL_MS
    first = await cluster.peers["two"].tick()
    assert await store.send(cluster.stores["one"].lost) == [[b"closed"]]
    assert await store.send([script_call(SAVE_OWNERS, [f"{cluster.key}:never"], 1, "v", "t")]) == [[b"closed"]]
    assert first == replace(await cluster.peers["three"].tick(), me="two")
    assert moved(before, first.owners) == before.count("one") + before.count("three")


async def test_a_table_lost_by_redis_is_made_anew_and_the_same_for_all(cluster: Cluster, store: RedisStore) -> None:
    await cluster.epoch()
    cluster.join("four")
    await cluster.epoch()
    remembered = owners_of(await cluster.epoch())
    await ask(store, "DEL", f"{cluster.key}:owners")
    fresh = owners_of(await cluster.epoch())
    assert fresh == assign(dict.fromkeys(("one", "two", "three", "four"), 1.0), SHARDS) != remembered
    assert sum(faulty.placed for faulty in cluster.stores.values()) == 3


async def test_a_server_that_went_back_is_followed(cluster: Cluster, store: RedisStore) -> None:
    """A failover may lose the last second of writes, and with it the newest table. The stored table then applies."""
    await cluster.epoch()
    old = await ask(store, "DUMP", f"{cluster.key}:owners")
    assert old is not None
    cluster.join("four")
    await cluster.epoch()
    owners = owners_of(await cluster.epoch())
    await ask(store, "RESTORE", f"{cluster.key}:owners", 0, old, "REPLACE")
    assert owners_of(await cluster.epoch()) == owners


async def test_capacities_count(cluster: Cluster) -> None:
    cluster.join("big", capacity=3.0)
    await cluster.epoch()
    assert Counter(owners_of(await cluster.epoch()))["big"] == SHARDS / 2


async def test_a_loop_without_shards_keeps_no_table(store: RedisStore, crawl_name: str) -> None:
    time = ManualTime(ms=1_000_000_000)
    key = f"{{{crawl_name}}}:peers"
    peer = PeerLoop(FaultyStore(store, time), key, time, PeerSettings(INTERVAL_MS / 1000), "one", random.Random(1))
    await peer.tick()
    time.ms += INTERVAL_MS
    assert (await peer.tick()).owners == ()
    assert not await ask(store, "EXISTS", f"{key}:owners")


async def test_a_replica_that_has_missed_a_reshard_leaves_the_table_of_the_others_alone(
    cluster: Cluster, store: RedisStore
) -> None:
    """It was suspended, and goes on with the old shards for a moment."""
    for peer in cluster.peers.values():
        peer.settings = replace(peer.settings, shards=2 * SHARDS, table="@4")
        peer._table = OwnerTable(2 * SHARDS)
    late = PeerLoop(cluster.stores["one"], cluster.key, cluster.time, PeerSettings(5.0, shards=SHARDS), "late")
    await cluster.epoch()
    table = await ask(store, "HGET", f"{cluster.key}:owners", "table@4")
    cluster.peers["late"] = late
    await cluster.epoch()
    assert (await cluster.epoch())[-1].owners
    assert await ask(store, "HGET", f"{cluster.key}:owners", "table@4") != table  # of four replicas
    assert len(late._table.owners) == SHARDS
    views = (await cluster.epoch())[:3]
    assert len({view.owners for view in views}) == 1
    assert len(views[0].owners) == 2 * SHARDS


def test_the_table_survives_its_encoding() -> None:
    table, copy = OwnerTable(8), OwnerTable(8)
    assert table.update({'a "quoted" name': 1.0, "ünïcode": 1.0, "c,d": 2.0})
    copy.read(table.version, table.encoded())
    assert (copy.owners, copy.version) == (table.owners, table.version)
    assert not copy.update({'a "quoted" name': 1.0, "ünïcode": 1.0, "c,d": 2.0})


def test_a_table_of_another_number_of_shards_is_none() -> None:
    table, other = OwnerTable(8), OwnerTable(9)
    table.update({"a": 1.0})
    other.read(table.version, table.encoded())
    assert other.owners == ()
    assert other.update({"a": 1.0})


# The example of docs/how-to/use-the-peer-loop.md runs: several processes' worth of mail senders share the
# mailboxes.


PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "use-the-peer-loop.md"


async def test_three_mail_senders_share_the_mailboxes(valkey: ValkeyProcess) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, str(PAGE), "exec"), names)
    shares = await asyncio.gather(*(names["send_mail"](valkey.url, rounds=3) for _ in range(3)))
    # One that ends a moment earlier leaves its share to the others: nothing is left out, and everybody had something.
    assert {mailbox for share in shares for mailbox in share} == set(names["MAILBOXES"])
    assert all(shares)


@pytest.mark.parametrize("capacity", ["nan", "inf", "0", "-1", "much"])
def test_a_claim_with_a_capacity_that_no_replica_has_is_left_out(capacity: str) -> None:
    members = json.dumps(["a", f"1 {capacity} -", "b", "2 1.0 -"])
    assert [member.replica for member in parse_roster(members.encode())] == ["b"]
