"""Which replica owns which shard: consistent hashing with bounded load, as a pure function of the roster.

The ring is uhashring's, with a placement of our own. It has one sector for each shard, and the shard's key
stands at the start of its sector. A replica's virtual nodes are bids: number k lies in a pseudo-random
sector, at a distance proportional to (k + jitter) / capacity from the sector's start. Walking the ring from a
shard thus meets the replicas in the order of their bids for it, and a bid does not depend on who else is
there: a leaver's shards go to their next bidders, and a joiner takes the shards for which its bid is the
nearest.

Why this placement: at random positions a replica's load has the variance of a binomial draw (a standard
deviation of 18 % at 32 shards a replica), so a third of the replicas stand at their limit, and a change of
the roster sends shards from one full replica to the next. Here each replica bids once for each distance,
which halves the variance.

Bounded load (after Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2018): no
replica gets more than `LOAD_LIMIT` times its fair share, rounded up. Bids are taken nearest first over the
whole ring, and a full replica takes no more. That is the one stable matching of shards and replicas when both
prefer the nearer bid, so it depends on the roster alone, and a change moves short chains of shards, each to a
farther bid.

What it costs: a shard that goes to a full replica drives another one out, and when the limit, a whole number,
steps, each full replica gives up or takes back a shard. If all took the step at the same size of the roster,
that one change would move up to 60 times the ideal, so they take it one after another, see `_rooms`.

How little can move: no function of the ids promises a maximum for every roster. Among enough possible ids
there are, by Ramsey's theorem, rosters of which it sees only the order, and with even loads a leave from such a
roster moves more than a fifth of all shards on average. What follows is about random ids, as ours are.
A function that never moves a shard of a staying replica ranks all replicas for each shard once and for all.
With many more replicas than shards a replica, whether one of its bids wins is then nearly independent of the
others, and the variance of a load is at least half that of a binomial draw, which these bids attain. At 32
shards a replica the limit is thus one standard deviation away, and a fifth of the replicas are full: a change
moves 1.2 times the ideal, 2.4 times where the limit steps, and the leave of a full replica at least 1.1 times.
None of these moved less: an assignment of least total distance, driving out the shard with the nearest next
bid, replaying joins in the order of hashed ids, two classes of replicas with bids of their own. Distinct sectors
for the bids of one replica save 1 %. Spreading the steps lowers the peaks but saves nothing: averaged over all
sizes of the roster, a tenth more moves below 32 shards a replica. tests/bench/ring.py has the table.

For editors: replicas of two versions must agree on the owners while a deployment is rolled out. A change of a
result here is a change of the protocol, and the golden test says so.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import itemgetter

from uhashring import HashRing
from xxhash import xxh3_64_intdigest

from frontier.errors import BadInput

LOAD_LIMIT = 1.1
"""No replica owns more than ceil(LOAD_LIMIT x its fair share). Nearer to 1 is more even, and moves more."""

BIDS_PER_SHARD = 8
"""Mean number of bids that a shard gets. A shard that gets none (chance e^-8) or only ones of full replicas
walks on along the ring, which moves more at a change: with 6 bids a leave among 512 replicas moves 1.7 times
the ideal, with 10 hardly less than with 8. Time grows in proportion."""

_SECTOR = 1 << 48
"""Width of a shard's sector on the ring. The shard's key stands at its start, the farthest bids near its
middle."""

_CAPACITIES = (1e-9, 1e9)
"""The least and the greatest capacity: far from where sums and quotients of floats overflow."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """What a replica takes up and lets go at a change of view."""

    take: frozenset[int]
    drop: frozenset[int]


def assign(roster: Mapping[str, float], shards: int) -> tuple[str, ...]:
    """The owner of each shard: item `i` of the result is the replica id that owns shard `i`.

    `roster` maps replica ids to capacities from 1e-9 to 1e9; only their ratios count. The result depends on
    the set of (id, capacity) and on `shards` alone, on every machine. Recent results are kept, so an
    unchanged roster costs nothing. Raises `BadInput` for an empty roster or id, a capacity out of range, or no
    shards.
    """
    if shards < 1:
        raise BadInput(f"shards must be at least 1, not {shards}")
    if not roster or "" in roster:
        raise BadInput("shards need replicas, and replicas need ids; wait for a view that has them")
    for replica, capacity in roster.items():
        if not _CAPACITIES[0] <= capacity <= _CAPACITIES[1]:
            raise BadInput(f"capacity of {replica} must be between 1e-9 and 1e9, not {capacity}")
    return _assign(tuple(sorted((replica, float(capacity)) for replica, capacity in roster.items())), shards)


def plan_handoff(owned: frozenset[int], assignment: Sequence[str], me: str) -> Handoff:
    """What replica `me` takes up and lets go when `assignment` replaces the one that `owned` came from."""
    mine = frozenset(shard for shard, owner in enumerate(assignment) if owner == me)
    return Handoff(take=mine - owned, drop=owned - mine)


def moved(before: Sequence[str], after: Sequence[str]) -> int:
    """How many shards have another owner in `after` than in `before`; both of the same length."""
    return sum(old != new for old, new in zip(before, after, strict=True))


def load_limits(roster: Mapping[str, float], shards: int) -> dict[str, int]:
    """The most shards that each replica may own."""
    total = math.fsum(roster.values())
    # The small term undoes the rounding of 1.1 x 10 to 11.000000000000002, which would grant a shard too many.
    return {name: math.ceil(LOAD_LIMIT * shards * weight / total - 1e-9) for name, weight in roster.items()}


@lru_cache(maxsize=16)
def _assign(members: tuple[tuple[str, float], ...], shards: int) -> tuple[str, ...]:
    roster = dict(members)
    points = _ring(roster, shards)
    room = _rooms(roster, shards)
    owners = [""] * shards
    for point, replica in sorted(points, key=_distance):
        shard = point // _SECTOR
        if room[replica] and not owners[shard]:
            owners[shard] = replica
            room[replica] -= 1
    for shard in [shard for shard, owner in enumerate(owners) if not owner]:
        replica = _walk_on(shard, points, room)
        owners[shard] = replica
        room[replica] -= 1
    return tuple(owners)


def _rooms(roster: Mapping[str, float], shards: int) -> dict[str, int]:
    """How many shards each replica takes: its load limit, or one less when a step down of the limit is near.

    Fair shares fall as a roster grows. Once `LOAD_LIMIT` times the fair share has come within a window above a
    whole number, replicas step down one after another, in the order of a hash of their ids, and all have when it
    gets there. A wider window lowers the peak, but more sizes of the roster pay. A third of a shard levels
    them roughly. The window is narrower
    - with few shards: nobody steps below its fair share, so the rooms always hold all shards. Where hardly a
      place is free, any change goes through many replicas;
    - with 20 shards or more, where the peak is low: 32 shards each, a likely ratio, lies before it.
    """
    rooms = load_limits(roster, shards)
    total = math.fsum(roster.values())
    for name, weight in roster.items():
        fair = shards * weight / total
        above = LOAD_LIMIT * fair - (rooms[name] - 1)
        window = min(1 / 3, fair / 10, 6.4 / fair)
        if above < window * xxh3_64_intdigest(f"step {name}".encode()) / 2**64:
            rooms[name] -= 1
    return rooms


def _ring(roster: Mapping[str, float], shards: int) -> list[tuple[int, str]]:
    """All virtual nodes as (position, replica), in the order of the ring."""
    bids = BIDS_PER_SHARD * shards / math.fsum(roster.values())

    def place(vnode: str) -> int:
        name, _, number = vnode.rpartition("-")  # uhashring names its virtual nodes "<node>-<number>"
        bits = xxh3_64_intdigest(vnode.encode())
        distance = (int(number) + (bits & 0xFFFFFFFF) / 2**32) / (bids * roster[name])
        # Only a replica that is due less than one bid can bid from beyond its sector's end.
        return (bits >> 32) % shards * _SECTOR + min(int(distance * (_SECTOR // 2)), _SECTOR - 1)

    nodes = {name: {"vnodes": math.ceil(bids * weight)} for name, weight in roster.items()}
    points: list[tuple[int, str]] = HashRing(nodes, hash_fn=place).get_points()
    return points


def _distance(point: tuple[int, str]) -> int:
    return point[0] % _SECTOR


def _walk_on(shard: int, points: list[tuple[int, str]], room: Mapping[str, int]) -> str:
    """The next replica along the ring with room, for a shard whose bidders are all full."""
    start = bisect_left(points, (shard + 1) * _SECTOR, key=itemgetter(0))
    return next(replica for _, replica in chain(points[start:], points[:start]) if room[replica])
