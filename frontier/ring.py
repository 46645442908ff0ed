"""Which replica owns which shard: consistent hashing that remembers, as a pure function.

`assign` takes the roster and who owned the shards before. Each replica is to have its fair share, rounded down or up.
A shard stays with its owner unless that one is gone or has more than its share; the shards that are free then go along
uhashring's ring, each to the next replica that has less than its share (after Mirrokni, Thorup, Zadimoghaddam,
"Consistent Hashing with Bounded Loads", 2018, with the bound at the share itself).

So a leaver's shards move and no others, and a joiner takes its share and nothing else moves: no way to keep the loads
within one shard of the fair shares moves less, whatever the sizes and the capacities. Two properties carry the protocol:

- The result does not depend on the order of the roster, nor on the machine.
- Assigning again changes nothing: `assign(roster, shards, assign(roster, shards, before))` is the inner result. So it
  makes no difference whether a replica starts from what was before a change, or from what another made of it
  (`frontier/owners.py`).

Why it must remember: with even loads no function of the roster alone moves little. Among enough possible ids there are,
by Ramsey's theorem, rosters of which it sees only the order, and a leave from such a roster moves more than a fifth of
all shards on average. Random ids are kinder, but a function that gives each shard to the first in a ranking of its own
leaves a fifth of the replicas at a limit of 1.1 times the share with 32 shards a replica, and all of them where the
limit, a whole number, steps. The best that we found moved 1.2 times the ideal there, and 2 to 4 times near a step.
tests/bench/ring.py measures this ring, beside the usual one.

For editors: while a deployment is rolled out, replicas of two versions must agree on the owners. Each starts from the
same table, so they differ at most in where free shards go; the golden test holds that.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

import msgspec
from uhashring import HashRing
from xxhash import xxh3_64_intdigest

from frontier.errors import BadInput

VIRTUAL_NODES = 150
"""Of a replica of mean capacity. They only spread what a replica leaves behind over the others; the shares are even
with any number."""

_CAPACITIES = (1e-9, 1e9)
"""The least and the greatest capacity: far from where sums and quotients of floats overflow."""


class Handoff(msgspec.Struct, frozen=True):
    """What a replica takes up and lets go at a change of view."""

    take: frozenset[int]
    drop: frozenset[int]


def assign(roster: Mapping[str, float], shards: int, before: Sequence[str] = ()) -> tuple[str, ...]:
    """The owner of each shard: item `i` of the result is the replica id that owns shard `i`.

    `roster` maps replica ids to capacities from 1e-9 to 1e9; only their ratios count. `before` is an earlier result,
    whose replicas need not be in the roster any more; empty: all shards are free. Raises `BadInput` for an empty
    roster or id, a capacity out of range, no shards, or a `before` of another length.
    """
    if shards < 1:
        raise BadInput(f"shards must be at least 1, not {shards}")
    if not roster or "" in roster:
        raise BadInput("shards need replicas, and replicas need ids; wait for a view that has them")
    for replica, capacity in roster.items():
        if not _CAPACITIES[0] <= capacity <= _CAPACITIES[1]:
            raise BadInput(f"capacity of {replica} must be between 1e-9 and 1e9, not {capacity}")
    if len(before) not in (0, shards):
        raise BadInput(f"there were {len(before)} shards before, and now there are {shards}; their number is fixed")
    room = _shares(roster, shards, Counter(before))
    owners = [""] * shards
    for shard, owner in enumerate(before):
        if room.get(owner):
            owners[shard] = owner
            room[owner] -= 1
    free = [shard for shard, owner in enumerate(owners) if not owner]
    if free:
        _give_out(free, owners, room, _ring(roster, room))
    return tuple(owners)


def plan_handoff(owned: frozenset[int], assignment: Sequence[str], me: str) -> Handoff:
    """What replica `me` takes up and lets go when `assignment` replaces the one that `owned` came from."""
    mine = frozenset(shard for shard, owner in enumerate(assignment) if owner == me)
    return Handoff(take=mine - owned, drop=owned - mine)


def moved(before: Sequence[str], after: Sequence[str]) -> int:
    """How many shards have another owner in `after` than in `before`; both of the same length."""
    return sum(old != new for old, new in zip(before, after, strict=True))


def fair_shares(roster: Mapping[str, float], shards: int) -> dict[str, float]:
    """How many shards each replica would own if shards could be divided."""
    total = math.fsum(roster.values())
    return {name: shards * capacity / total for name, capacity in roster.items()}


def _shares(roster: Mapping[str, float], shards: int, held: Mapping[str, int]) -> dict[str, int]:
    """How many shards each replica is to own; `shards` in all.

    What rounding down leaves over goes, one each, first to those that hold more already, so that nothing moves without
    need; then to those that lost most by it.
    """
    fair = fair_shares(roster, shards)
    shares = {name: math.floor(share) for name, share in fair.items()}
    by_claim = sorted(roster, key=lambda name: (held.get(name, 0) <= shares[name], shares[name] - fair[name], name))
    for name in by_claim[: shards - sum(shares.values())]:
        shares[name] += 1
    return shares


def _give_out(free: Iterable[int], owners: list[str], room: dict[str, int], points: list[tuple[int, str]]) -> None:
    """Give each shard of `free` to the next replica along the ring that has room, and use that up."""
    for shard in free:
        at = bisect_left(points, _hash(f"shard {shard}"), key=itemgetter(0))
        while not room[points[at % len(points)][1]]:
            at += 1
        owners[shard] = points[at % len(points)][1]
        room[owners[shard]] -= 1


def _ring(roster: Mapping[str, float], room: Mapping[str, int]) -> list[tuple[int, str]]:
    """The virtual nodes of the replicas with room as (position, replica), in the order of the ring."""
    mean = math.fsum(roster.values()) / len(roster)
    nodes = {
        name: {"vnodes": max(1, round(VIRTUAL_NODES * roster[name] / mean))} for name in sorted(roster) if room[name]
    }
    points: list[tuple[int, str]] = HashRing(nodes, hash_fn=_hash).get_points()
    return points


def _hash(key: str) -> int:
    return int(xxh3_64_intdigest(key.encode()))
