"""How evenly the ring spreads shards and how little it moves, beside a plain bounded walk over uhashring.

Run: python -m tests.bench.ring [rosters per size, default 6] [changes per roster, default 8]

Columns: the largest and smallest load over the mean load; the shards moved by a leave (read backwards: a
join) over the leaver's fair share, mean and maximum; CPU milliseconds of one assignment, median.

Last result (`5 8`, Python 3.11, one core of a shared machine):

replicas shards each | ring: max   min  mean   max     CPU | plain: max min  mean   max     CPU
       2     64   32 |  1.12  0.88  1.00  1.12     1.3 |  1.12  0.88  1.00  1.12     0.4
       3     64   21 |  1.12  0.84  1.00  1.12     1.3 |  1.12  0.94  1.02  1.17     0.5
       8     64    8 |  1.12  0.75  1.18  1.62     1.3 |  1.12  0.38  1.42  1.88     1.3
       4    128   32 |  1.12  0.84  1.03  1.16     2.5 |  1.12  0.88  1.02  1.12     0.7
       8    256   32 |  1.12  0.78  1.05  1.22     5.2 |  1.12  0.72  1.12  1.38     1.5
      16    512   32 |  1.12  0.75  1.06  1.25    12.2 |  1.12  0.62  1.18  1.50     3.0
       8   1024  128 |  1.09  0.91  1.00  1.09    29.0 |  1.10  0.77  1.08  1.31     2.2
      16   1024   64 |  1.11  0.81  1.03  1.16    22.8 |  1.11  0.78  1.11  1.38     6.6
      32   1024   32 |  1.12  0.69  1.11  1.31    22.8 |  1.12  0.66  1.26  1.53     6.3
      64   1024   16 |  1.12  0.62  1.31  1.62    22.9 |  1.12  0.25  1.55  2.44    12.1
     126   1024    8 |  1.11  0.49  6.14  7.14    23.2 |  1.11  0.12  8.30  8.74    23.8
     128   1024    8 |  1.12  0.38  1.41  2.00    22.7 |  1.12  0.25  1.83  2.88    24.1
     100   1024   10 |  1.17  0.29  1.32  1.86    23.7 |  1.17  0.20  1.54  2.44    19.4
     500   1024    2 |  1.46  0.00  1.21  2.93    24.8 |  1.46  0.00  1.29  3.42   118.2
      64   4096   64 |  1.11  0.73  1.08  1.22   100.5 |  1.11  0.64  1.26  1.67    15.4
     128   4096   32 |  1.12  0.59  1.20  1.50    98.8 |  1.12  0.56  1.46  1.91    28.0
     100   4096   41 |  1.12  0.73  1.18  1.42   101.3 |  1.12  0.56  1.40  1.81    24.4
      64   8192  128 |  1.10  0.83  1.04  1.13   212.8 |  1.10  0.75  1.25  1.50    19.7
     128  16384  128 |  1.10  0.81  1.05  1.16   488.8 |  1.10  0.69  1.29  1.50    41.4
     256  16384   64 |  1.11  0.72  1.10  1.30   499.7 |  1.11  0.50  1.33  1.80    79.5
     500  16384   33 |  1.13  0.55  1.19  1.40   522.3 |  1.13  0.37  1.41  1.80   145.6
     501  16384   33 |  1.10  0.61  4.31  4.68   522.2 |  1.10  0.46  7.22  7.92   165.2
     512  16384   32 |  1.12  0.56  1.19  1.50   559.6 |  1.12  0.38  1.49  1.81   148.9
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from uhashring import HashRing
from xxhash import xxh3_64_intdigest

from frontier.ring import assign, load_limits, moved

SIZES = [
    *(
        (2, 64),
        (3, 64),
        (8, 64),
        (4, 128),
        (8, 256),
        (16, 512),
        (8, 1024),
        (16, 1024),
        (32, 1024),
        (64, 1024),
    ),
    *(
        (126, 1024),
        (128, 1024),
        (100, 1024),
        (500, 1024),
        (64, 4096),
        (128, 4096),
        (100, 4096),
        (64, 8192),
        (128, 16384),
    ),
    *((256, 16384), (500, 16384), (501, 16384), (512, 16384)),
]
"""(replicas, shards). Between 126 and 125, and between 501 and 500, the load limit steps."""

Assign = Callable[[Mapping[str, float], int], Sequence[str]]


def plain(roster: Mapping[str, float], shards: int) -> Sequence[str]:
    """Consistent hashing with bounded loads as commonly done: shard by shard, on along the ring past full
    replicas."""
    ring = HashRing({name: {"vnodes": 150} for name in sorted(roster)}, hash_fn=_hash)
    points = ring.get_points()
    keys = [position for position, _ in points]
    room = load_limits(roster, shards)
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


def measure(assign: Assign, replicas: int, shards: int, rosters: int, changes: int) -> str:
    """One size's figures as a line of text."""
    evenness, ratios, cpu = [], [], []
    for seed in range(rosters):
        chance = random.Random(f"{replicas} {shards} {seed}")
        roster = {f"replica-{chance.getrandbits(64):016x}": 1.0 for _ in range(replicas)}
        start = time.process_time()
        before = assign(roster, shards)
        cpu.append((time.process_time() - start) * 1000)
        loads = Counter(before)
        evenness.append([pick(loads[name] for name in roster) * replicas / shards for pick in (max, min)])
        for leaver in chance.sample(sorted(roster), min(changes, replicas)):
            after = assign({name: 1.0 for name in roster if name != leaver}, shards)
            ratios.append(moved(before, after) * replicas / shards)
    high, low = max(high for high, _ in evenness), min(low for _, low in evenness)
    ratio = f"{statistics.mean(ratios):5.2f} {max(ratios):5.2f}"
    return f"{high:5.2f} {low:5.2f} {ratio} {statistics.median(cpu):7.1f}"


def main() -> None:
    rosters, changes = (int(text) for text in (sys.argv[1:] + ["6", "8"][len(sys.argv) - 1 :]))
    print("replicas shards each | ring: max   min  mean   max     CPU | plain: max min  mean   max     CPU")
    for replicas, shards in SIZES:
        ours, theirs = (measure(way, replicas, shards, rosters, changes) for way in (assign, plain))
        print(f"{replicas:8} {shards:6} {shards / replicas:4.0f} | {ours} | {theirs}", flush=True)


if __name__ == "__main__":
    main()
