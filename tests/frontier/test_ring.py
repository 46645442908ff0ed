"""The ring: every shard has one owner, loads are even, and a change of the roster moves as few shards as possible."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.errors import BadInput
from frontier.peers import Handoff, assign, fair_shares, plan_handoff
from tests.frontier.helpers import moved

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
def test_every_shard_has_an_owner_from_the_roster(change: tuple[Roster, Roster, int]) -> None:
    before, after, shards = change
    owners = assign(after, shards, assign(before, shards))
    assert len(owners) == shards
    assert set(owners) <= set(after)


@settings(max_examples=200)
@given(changes())
def test_loads_are_within_one_shard_of_the_fair_share(change: tuple[Roster, Roster, int]) -> None:
    """So loads are also below the limit of I5, ceil(1.1 x the fair share)."""
    before, after, shards = change
    loads = Counter(assign(after, shards, assign(before, shards)))
    for replica, fair in fair_shares(after, shards).items():
        assert math.floor(fair) <= loads[replica] <= math.floor(fair) + 1
        assert loads[replica] <= math.ceil(1.1 * fair - 1e-9)


@settings(max_examples=200)
@given(changes())
def test_nothing_moves_less(change: tuple[Roster, Roster, int]) -> None:
    roster, after, shards = change
    before = assign(roster, shards)
    assert moved(before, assign(after, shards, before)) == fewest_moves(before, after, shards)


@settings(max_examples=200)
@given(changes())
def test_to_assign_again_changes_nothing(change: tuple[Roster, Roster, int]) -> None:
    """So all replicas of an epoch agree, whether they start from the old table or from the newly computed one."""
    before, after, shards = change
    owners = assign(after, shards, assign(before, shards))
    assert assign(after, shards, owners) == owners


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


def test_a_replica_of_hardly_any_capacity_takes_hardly_any_shard() -> None:
    loads = Counter(assign({"big": 1e9, "small": 1e-9}, 64))
    assert loads["small"] <= 1
    assert loads["big"] >= 63


def test_more_replicas_than_shards_leave_some_idle() -> None:
    loads = Counter(assign(equal_roster(512, "idle"), 64))
    assert max(loads.values()) == 1


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


def test_handoffs_of_all_replicas_meet() -> None:
    """The shards that replicas gain are exactly those that others lose."""
    roster = equal_roster(5, "handoff")
    before = assign(roster, 128)
    after = assign(roster | {"joiner": 1.0}, 128, before)
    changes = [
        plan_handoff(frozenset(s for s, owner in enumerate(before) if owner == me), after, me)
        for me in [*roster, "joiner"]
    ]
    taken = [shard for change in changes for shard in change.take]
    assert sorted(taken) == sorted(shard for change in changes for shard in change.drop)
    assert len(taken) == moved(before, after)
