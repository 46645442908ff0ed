"""Assigns shards to replicas: consistent hashing with the previous assignment as input. A pure function.

`assign` takes the roster and the previous owners of the shards. Each replica gets its fair share, rounded down or up. A
shard stays with its owner unless the owner is gone or has more than its share. The free shards are then assigned along
uhashring's ring, each to the next replica that has less than its share (after Mirrokni, Thorup, Zadimoghaddam,
"Consistent Hashing with Bounded Loads", 2018, with the bound at the share itself).

When a replica leaves, only its shards move. When a replica joins, only its share moves. No method that keeps all loads
within one shard of the fair shares moves fewer, for any number of shards and any capacities. The protocol relies on two
properties:

- The result depends neither on the order of the roster nor on the machine.
- Assigning again changes nothing: `assign(roster, shards, assign(roster, shards, before))` equals the inner result. So a
  replica may start from the table before a change, or from the table that another replica computed from it
  (`frontier/owners.py`).

Why the previous assignment is needed: with even loads, no function of the roster alone moves few shards. By Ramsey's
theorem, among enough possible ids there are rosters of which the function sees only the order, and a leave from such a
roster moves more than a fifth of all shards on average. Random ids are less bad. But with 32 shards per replica and a
limit of 1.1 times the share, a function that ranks the replicas for each shard and takes the first leaves a fifth of the
replicas at the limit, and all of them where the limit, a whole number, steps. The best function that we found moved 1.2
times the ideal there, and 2 to 4 times near a step.

For editors: during a rolling deployment, replicas of two versions must agree on the owners. Both start from the same
table, so they can differ only in where free shards go. The golden test checks this.
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
"""Virtual nodes of a replica of mean capacity. They only spread the shards of a leaving replica over the others. The
shares are even with any number of them."""

_CAPACITIES = (1e-9, 1e9)
"""The minimum and maximum capacity. Sums and quotients of floats in this range do not overflow."""


class Handoff(msgspec.Struct, frozen=True):
    """The shards that a replica gains (`take`) and loses (`drop`) when the view changes."""

    take: frozenset[int]
    drop: frozenset[int]


def assign(roster: Mapping[str, float], shards: int, before: Sequence[str] = ()) -> tuple[str, ...]:
    """The owner of each shard: item `i` of the result is the replica id that owns shard `i`.

    `roster` maps replica ids to capacities from 1e-9 to 1e9; only their ratios count. `before` is an earlier result.
    Its replicas need not be in the roster any more. If it is empty, all shards are free. Raises `BadInput` for an empty
    roster or id, a capacity out of range, no shards, or a `before` of another length.
    """
    if shards < 1:
        raise BadInput(f"shards must be at least 1, not {shards}")
    if not roster or "" in roster:
        raise BadInput("the roster must not be empty, and its ids must not be empty; wait for a view that has replicas")
    for replica, capacity in roster.items():
        if not _CAPACITIES[0] <= capacity <= _CAPACITIES[1]:
            raise BadInput(f"capacity of {replica} must be between 1e-9 and 1e9, not {capacity}")
    if len(before) not in (0, shards):
        raise BadInput(f"`before` has {len(before)} shards, but there are {shards} now; the number of shards is fixed")
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
    """The shards that replica `me` gains and loses when `assignment` replaces the one that `owned` came from."""
    mine = frozenset(shard for shard, owner in enumerate(assignment) if owner == me)
    return Handoff(take=mine - owned, drop=owned - mine)


def moved(before: Sequence[str], after: Sequence[str]) -> int:
    """How many shards have a different owner in `after` than in `before`. Both must have the same length."""
    return sum(old != new for old, new in zip(before, after, strict=True))


def fair_shares(roster: Mapping[str, float], shards: int) -> dict[str, float]:
    """How many shards each replica would own if fractions of a shard were possible."""
    total = math.fsum(roster.values())
    return {name: shards * capacity / total for name, capacity in roster.items()}


def _shares(roster: Mapping[str, float], shards: int, held: Mapping[str, int]) -> dict[str, int]:
    """How many shards each replica is to own. The sum is `shards`.

    Fair shares are rounded down. The remaining shards go, one each, first to replicas that already hold more than that, so
    that no shard moves unnecessarily, and then to those that lost most by rounding.
    """
    fair = fair_shares(roster, shards)
    shares = {name: math.floor(share) for name, share in fair.items()}
    by_claim = sorted(roster, key=lambda name: (held.get(name, 0) <= shares[name], shares[name] - fair[name], name))
    for name in by_claim[: shards - sum(shares.values())]:
        shares[name] += 1
    return shares


def _give_out(free: Iterable[int], owners: list[str], room: dict[str, int], points: list[tuple[int, str]]) -> None:
    """Assign each shard of `free` to the next replica along the ring that has room, and reduce its room."""
    for shard in free:
        at = bisect_left(points, _hash(f"shard {shard}"), key=itemgetter(0))
        while not room[points[at % len(points)][1]]:
            at += 1
        owners[shard] = points[at % len(points)][1]
        room[owners[shard]] -= 1


def _ring(roster: Mapping[str, float], room: Mapping[str, int]) -> list[tuple[int, str]]:
    """The virtual nodes of the replicas that have room, as (position, replica) in ring order."""
    mean = math.fsum(roster.values()) / len(roster)
    nodes = {
        name: {"vnodes": max(1, round(VIRTUAL_NODES * roster[name] / mean))} for name in sorted(roster) if room[name]
    }
    points: list[tuple[int, str]] = HashRing(nodes, hash_fn=_hash).get_points()
    return points


def _hash(key: str) -> int:
    return int(xxh3_64_intdigest(key.encode()))
