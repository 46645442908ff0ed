"""`crawler run --replicas N` on one machine: pages a second and CPU.

    python -m bench.replicas [--copies 8] [--runs 3] [--replicas 1 2 4]

The crawl is that of `bench.throughput`: real pages without a delay, on one Valkey. CPU is of all replicas and the process
that starts them, from start to end, at full speed (`bench.speed`), without nginx and Valkey. The machine should have a core
for each replica, one for nginx and one for Valkey: with fewer, pages a second only show how the cores are shared.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from bench.docweb import DocWeb, serve
from bench.measure import Figure, median
from bench.speed import speedometer
from bench.throughput import Run, by_socket, in_scratch, run_product


def crawl(web: DocWeb, replicas: int) -> Run:
    """Crawl `web` with so many replicas."""
    return in_scratch(partial(run_product, web, by_socket, replicas=replicas))[0]


def show(replicas: int, runs: Sequence[Run]) -> None:
    """A line of the table."""
    us = [1e6 / run.pages_per_cpu_s for run in runs]
    rate = median(run.pages / run.usage.wall_s for run in runs)
    print(f"{replicas:8} {rate:8,.0f} {median(us):8,.0f}  {min(us):5,.0f} to {max(us):5,.0f} ", end="")
    print(f"{median(run.redis_us for run in runs):9.1f}", flush=True)


def short() -> list[Figure]:
    """For the table of all benchmarks: two replicas against one."""
    speedometer()
    with serve(2) as web:
        one, two = crawl(web, 1), crawl(web, 2)
    return [Figure("replicas", "CPU a page of two replicas", one.pages_per_cpu_s / two.pages_per_cpu_s, "times of one")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=8, help="sites of each documentation package")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    speedometer()
    with serve(options.copies) as web:
        print(f"{'replicas':>8} {'pages/s':>8} {'us/page':>8}  {'from to':14} {'of Redis':>9}")
        runs = [[crawl(web, count) for count in options.replicas] for _ in range(options.runs)]
        for number, count in enumerate(options.replicas):
            show(count, [one[number] for one in runs])


if __name__ == "__main__":
    main()
