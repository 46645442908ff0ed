"""How evenly the ring spreads shards and how little it moves, beside a plain bounded walk over uhashring.

Run: python -m tests.bench.ring [rosters per size, default 6] [changes per roster, default 8]

Columns: the largest and smallest load over the mean load; the shards moved by a leave (read backwards: a
join) over the leaver's fair share, mean and maximum; CPU milliseconds of one assignment, median.

Last result:
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
