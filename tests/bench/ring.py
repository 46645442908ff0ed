"""How evenly the ring spreads shards and how little it moves, beside a plain bounded walk over uhashring.

Run: python -m tests.bench.ring [rosters per size, default 6] [changes per roster, default 8]

Columns: the largest and smallest load over the mean load; the shards moved by a leave (read backwards: a
join) over the leaver's fair share, mean and maximum; CPU milliseconds of one assignment, median.

At 100, 126, 226 and 376 replicas of 1024 shards, 100, 251 and 501 of 4096, and 499 to 501 of 16384, replicas step
down one after another to the next lower limit. If all did so at one size, a leave from 501 of 4096 would move 20.6
times the ideal and one from 376 of 1024 46 times, but at the sizes before 1.2 times.

Last result (`3 8`, Python 3.11, one core of a shared machine):

replicas shards each | ring: max   min  mean   max     CPU | plain: max min  mean   max     CPU
       2     64   32 |  1.12  0.88  1.00  1.12     1.4 |  1.12  0.88  1.00  1.12     0.4
       3     64   21 |  1.12  0.89  1.00  1.12     1.3 |  1.12  0.94  1.02  1.12     0.5
       8     64    8 |  1.12  0.75  1.17  1.38     1.3 |  1.12  0.38  1.48  1.88     1.4
       4    128   32 |  1.12  0.84  1.03  1.16     2.6 |  1.12  0.88  1.03  1.12     0.7
       8    256   32 |  1.12  0.81  1.04  1.19     5.2 |  1.12  0.72  1.11  1.28     1.5
      16    512   32 |  1.12  0.75  1.05  1.25    11.0 |  1.12  0.62  1.17  1.50     3.0
       8   1024  128 |  1.07  0.93  1.00  1.07    23.2 |  1.10  0.82  1.08  1.31     2.2
      16   1024   64 |  1.11  0.81  1.02  1.12    23.6 |  1.11  0.80  1.11  1.38     6.1
      32   1024   32 |  1.12  0.78  1.08  1.25    22.8 |  1.12  0.69  1.29  1.50     6.4
      64   1024   16 |  1.12  0.62  1.28  1.50    23.4 |  1.12  0.25  1.43  2.12    12.2
     126   1024    8 |  1.11  0.49  1.71  2.21    23.2 |  1.11  0.12  8.39  8.74    23.4
     128   1024    8 |  1.12  0.38  1.40  2.00    22.6 |  1.12  0.25  1.88  2.88    24.0
     100   1024   10 |  1.17  0.49  2.13  2.64    22.5 |  1.17  0.20  1.56  2.44    18.5
     500   1024    2 |  1.46  0.00  1.28  2.93    24.2 |  1.46  0.00  1.40  2.44   109.0
      64   4096   64 |  1.11  0.73  1.07  1.19    96.2 |  1.11  0.64  1.24  1.59    15.2
     128   4096   32 |  1.12  0.66  1.21  1.50    93.9 |  1.12  0.56  1.52  1.91    26.8
     100   4096   41 |  1.12  0.73  1.32  1.49    92.0 |  1.12  0.56  1.44  1.81    22.3
      64   8192  128 |  1.10  0.85  1.04  1.12   204.0 |  1.10  0.75  1.24  1.41    19.3
     128  16384  128 |  1.10  0.81  1.06  1.16   467.1 |  1.10  0.69  1.24  1.45    41.2
     256  16384   64 |  1.11  0.75  1.12  1.30   473.4 |  1.11  0.61  1.31  1.70    66.0
     499  16384   33 |  1.13  0.61  2.24  2.68   463.6 |  1.13  0.46  1.48  1.98   128.8
     500  16384   33 |  1.13  0.55  2.43  2.69   453.5 |  1.13  0.37  1.36  1.65   126.7
     501  16384   33 |  1.10  0.61  2.09  2.60   523.4 |  1.10  0.46  7.04  7.34   133.1
     512  16384   32 |  1.12  0.66  1.19  1.50   467.7 |  1.12  0.38  1.51  1.81   122.9
     226   1024    5 |  1.10  0.22  2.55  3.31    24.0 |  1.10  0.00 28.64 30.02    43.0
     376   1024    3 |  1.10  0.00  2.78  4.04    23.9 |  1.10  0.00 80.49 83.35    72.7
     251   4096   16 |  1.10  0.43  1.53  2.02    95.8 |  1.10  0.31  8.55  9.38    51.3
     501   4096    8 |  1.10  0.24  2.41  3.30    96.0 |  1.10  0.24 34.65 36.57   130.0
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
    *((256, 16384), (499, 16384), (500, 16384), (501, 16384), (512, 16384)),
    *((226, 1024), (376, 1024), (251, 4096), (501, 4096)),
]
"""(replicas, shards). The load limit steps between 126 and 125, 501 and 500, and at each size of the last line."""

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
