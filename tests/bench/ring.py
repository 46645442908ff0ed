"""How evenly the ring spreads shards and how little it moves, beside a plain bounded walk over uhashring.

Run: python -m tests.bench.ring [changes per size, default 40]

Each size is a random sequence of joins, leaves and replacements (a leave and a join at once) around it, with equal
capacities and with capacities of 0.5, 1 and 2. Columns: the largest load over the fair share, or over 1 if that is
more; the shards moved over the fair share of who came or went, in the larger roster, mean and maximum, and the maximum
in shards beyond that share rounded up; CPU milliseconds of the first assignment and of a change, median.

Below one shard a replica a change moves one shard or none, which is more than a fair share of a fraction of one; the
mean tells. The plain walk gives each replica at most 1.1 times its fair share; it moves most where that, a whole number,
steps: at 125, 226 and 376 replicas of 1024 shards, 501 of 4096 and of 16384.

Last result (`24`, Python 3.11, one core of a shared machine):

                        | ring: most  moved           CPU ms        | plain: most moved           CPU ms
replicas shards         | load   mean   most beyond  first change | load   mean   most beyond  first change
       2     64 equal   |  1.03  1.00   1.03     0    0.5    0.2 |  1.17  1.28   1.64    15    0.4    0.4
       2     64 unequal |  1.12  0.99   1.03     0    0.4    0.3 |  1.31  1.07   1.78     8    0.5    0.7
       8     64 equal   |  1.12  0.99   1.09     0    1.5    0.3 |  1.25  1.36   2.38    11    1.3    1.1
       8     64 unequal |  1.17  0.97   1.09     0    1.3    0.6 |  1.44  1.28   1.93    12    2.0    1.6
      64     64 equal   |  1.97  0.69   1.06     0   21.8    0.4 |  2.00  2.45   7.00     6   19.1   11.8
      64     64 unequal |  1.18  0.90   1.94     0    9.6    0.2 |  2.00  2.02   8.26    13   14.9   14.6
     512     64 equal   |  1.00  0.66   8.00     0   11.6    0.5 |  1.00  2.33  15.94     1  116.1  114.0
     512     64 unequal |  1.00  0.35   4.56     0   21.4    0.5 |  1.00  1.05   9.09     0  132.1  144.0
      16    512 equal   |  1.03  1.00   1.03     0    3.5    0.3 |  1.13  1.71   2.62    48    3.1    3.1
      16    512 unequal |  1.05  0.99   1.02     0    3.1    0.4 |  1.20  1.36   1.97    38    4.0    4.4
       8   1024 equal   |  1.01  1.00   1.01     0    2.5    0.8 |  1.11  1.20   1.97   142    2.1    2.1
       8   1024 unequal |  1.01  1.00   1.00     0    2.6    0.7 |  1.11  1.23   1.80   201    2.9    2.3
      32   1024 equal   |  1.03  1.00   1.03     0    9.8    0.6 |  1.13  1.49   2.46    45    8.0   10.6
      32   1024 unequal |  1.04  1.00   1.01     0   10.9    0.5 |  1.16  1.67   2.63    72    7.3    7.0
      64   1024 equal   |  1.05  0.99   1.03     0   12.6    2.7 |  1.16  1.86   3.24    35   13.6   13.0
      64   1024 unequal |  1.09  0.99   1.06     0   20.0    0.7 |  1.23  1.81   3.77    29   15.4   13.6
     125   1024 equal   |  1.12  0.96   1.03     0   23.1    0.5 |  1.22  2.57   9.72    70   24.1   25.7
     125   1024 unequal |  1.16  0.98   1.14     0   24.2    0.6 |  1.37  2.72   5.18    60   29.4   30.5
     128   1024 equal   |  1.12  0.98   1.12     0   31.6    0.6 |  1.22  2.93   9.35    67   27.2   25.1
     128   1024 unequal |  1.15  0.99   1.14     0   29.8    0.6 |  1.15  1.85   4.55    20   31.8   31.3
     226   1024 equal   |  1.12  0.96   1.12     0   49.3    0.7 |  1.12  2.84   4.43    15   67.3   51.5
     226   1024 unequal |  1.09  0.94   1.07     0   73.6    0.8 |  1.64  1.73   3.34    17   74.7   61.5
     376   1024 equal   |  1.11  0.94   1.11     0   82.8    0.9 |  1.46 10.16  79.68   214   74.8   73.4
     376   1024 unequal |  1.11  0.91   1.10     0   77.1    0.9 |  1.77  6.36  75.75    87   95.6   95.3
     500   1024 equal   |  1.47  1.03   1.47     0   96.4    1.1 |  1.47  2.11   4.38     6  101.1  111.1
     500   1024 unequal |  1.16  0.87   1.16     0  143.9    1.1 |  1.16  2.51   4.34    11  137.8  147.7
      64   4096 equal   |  1.02  1.00   1.01     0   19.5    1.5 |  1.11  1.64   2.61   107   15.4   15.9
      64   4096 unequal |  1.03  1.00   1.00     0   17.8    1.4 |  1.14  1.48   2.25   111   21.4   20.5
     128   4096 equal   |  1.03  1.00   1.02     0   59.0    2.1 |  1.13  2.14   3.00    66   60.5   54.4
     128   4096 unequal |  1.04  0.99   1.01     0   32.4    2.1 |  1.17  1.71   3.03    59   33.3   36.7
     501   4096 equal   |  1.10  0.99   1.09     0  141.8    2.7 |  1.22  3.52  35.72   283  144.0  122.7
     501   4096 unequal |  1.13  0.99   1.13     0  167.1    1.7 |  1.13  2.16   4.05    35  155.5  166.2
      64   8192 equal   |  1.01  1.00   1.01     0   40.4    3.6 |  1.11  1.62   2.48   206   36.5   35.1
      64   8192 unequal |  1.01  1.00   1.01     0   44.3   13.6 |  1.12  1.43   2.44   170   57.9   27.1
     128  16384 equal   |  1.01  1.00   1.00     0   86.9    4.4 |  1.11  1.77   2.65   209   46.9   48.1
     128  16384 unequal |  1.01  1.00   1.00     0   82.3   11.3 |  1.12  1.49   2.05   207   50.8   78.7
     256  16384 equal   |  1.02  1.00   1.01     0  110.7    4.5 |  1.11  1.86   3.04   129  153.8  147.6
     256  16384 unequal |  1.02  1.00   1.01     0  162.8    6.6 |  1.13  1.73   2.65   174  163.9  130.4
     501  16384 equal   |  1.01  0.99   1.01     0  336.6    7.5 |  1.13  2.44   7.46   211  190.2  244.8
     501  16384 unequal |  1.02  0.99   1.01     0  230.1    5.6 |  1.16  1.71   3.15   103  244.9  327.0
     512  16384 equal   |  1.03  1.00   1.00     0  351.1    7.2 |  1.12  2.39   3.44    78  299.5  232.1
     512  16384 unequal |  1.02  0.99   1.01     0  288.3    8.7 |  1.15  1.86   3.42   135  291.5  263.9
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from uhashring import HashRing
from xxhash import xxh3_64_intdigest

from frontier.ring import assign, fair_shares, moved

SIZES = [
    *((2, 64), (8, 64), (64, 64), (512, 64), (16, 512), (8, 1024), (32, 1024), (64, 1024), (125, 1024), (128, 1024)),
    *((226, 1024), (376, 1024), (500, 1024), (64, 4096), (128, 4096), (501, 4096), (64, 8192), (128, 16_384)),
    *((256, 16_384), (501, 16_384), (512, 16_384)),
]
"""(replicas, shards)."""

MOST = 512
CAPACITIES = {"equal": (1.0,), "unequal": (0.5, 1.0, 2.0)}

Roster = dict[str, float]
Assign = Callable[[Mapping[str, float], int, Sequence[str]], Sequence[str]]


def plain(roster: Mapping[str, float], shards: int, _: Sequence[str]) -> Sequence[str]:
    """Consistent hashing with bounded loads as commonly done: shard by shard, on along the ring past full replicas."""
    ring = HashRing({name: {"vnodes": round(150 * roster[name])} for name in sorted(roster)}, hash_fn=_hash)
    points = ring.get_points()
    keys = [position for position, _ in points]
    room = {name: math.ceil(1.1 * share - 1e-9) for name, share in fair_shares(roster, shards).items()}
    owners = []
    for shard in range(shards):
        at = bisect_left(keys, _hash(f"shard {shard}"))
        while not room[points[at % len(points)][1]]:
            at += 1
        owners.append(points[at % len(points)][1])
        room[owners[-1]] -= 1
    return owners


def _hash(key: str) -> int:
    return int(xxh3_64_intdigest(key.encode()))


@dataclass(slots=True)
class Figures:
    """What one sequence of changes measured."""

    highest: float = 0.0
    moves: list[tuple[int, float]] = field(default_factory=list)  # moved, the fair share
    cpu_ms: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        mean = sum(count for count, _ in self.moves) / sum(fair for _, fair in self.moves)
        most = max(count / fair for count, fair in self.moves)
        beyond = max(count - math.ceil(fair) for count, fair in self.moves)
        first, *changes = self.cpu_ms
        return f"{self.highest:5.2f} {mean:5.2f} {most:6.2f} {beyond:5} {first:6.1f} {statistics.median(changes):6.1f}"


def measure(assign: Assign, replicas: int, shards: int, capacities: Sequence[float], changes: int) -> Figures:
    """Replay the one random sequence of changes that belongs to a size."""
    figures, chance = Figures(), random.Random(f"{replicas} {shards} {capacities}")
    roster: Roster = {}
    for _ in range(replicas):
        roster |= _newcomer(chance, capacities)
    owners = _timed(assign, figures, roster, shards, ())
    for _ in range(changes):
        before, (roster, fair) = owners, _changed(roster, shards, chance, capacities)
        owners = _timed(assign, figures, roster, shards, before)
        figures.moves.append((moved(before, owners), fair))
    return figures


def _newcomer(chance: random.Random, capacities: Sequence[float]) -> Roster:
    return {f"replica-{chance.getrandbits(64):016x}": chance.choice(capacities)}


def _changed(roster: Roster, shards: int, chance: random.Random, capacities: Sequence[float]) -> tuple[Roster, float]:
    """The roster after a join, a leave or both, and the fair share of who came or went (of both: what must move)."""
    kind = chance.choice(["join", "leave", "replace"])
    if (kind == "join" and len(roster) == MOST) or (kind == "leave" and len(roster) == 2):
        kind = "replace"
    joiner = {} if kind == "leave" else _newcomer(chance, capacities)
    leaver = "" if kind == "join" else chance.choice(sorted(roster))
    after = {name: capacity for name, capacity in roster.items() if name != leaver} | joiner
    shares = [fair_shares(roster, shards).get(leaver, 0.0), *(fair_shares(after, shards)[name] for name in joiner)]
    return after, max(shares)


def _timed(assign: Assign, figures: Figures, roster: Roster, shards: int, before: Sequence[str]) -> Sequence[str]:
    started = time.process_time()
    owners = assign(roster, shards, before)
    figures.cpu_ms.append((time.process_time() - started) * 1000)
    loads = Counter(owners)
    fair = fair_shares(roster, shards)
    figures.highest = max(figures.highest, *(loads[name] / max(1.0, fair[name]) for name in roster))
    return owners


def main() -> None:
    changes = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    print("                        | ring: most  moved           CPU ms        | plain: most moved           CPU ms")
    print("replicas shards         | load   mean   most beyond  first change | load   mean   most beyond  first change")
    for replicas, shards in SIZES:
        for name, capacities in CAPACITIES.items():
            ours, theirs = (measure(way, replicas, shards, capacities, changes) for way in (assign, plain))
            print(f"{replicas:8} {shards:6} {name:7} | {ours} | {theirs}", flush=True)


if __name__ == "__main__":
    main()
