"""Most benchmarks in their short forms, and one table of what they found.

    python -m bench [NAME...]

About three minutes. The figures are of a single run beside whatever else the machine does: they show that the programs work
and where things stand, not more. Each program by itself has options for runs that mean something;
docs/explanation/speed.md has their results. `operator`, `reshard`, `sinks` and `plan_constants` have no
short form.
"""

from __future__ import annotations

import sys
import time

from bench import (
    backpressure,
    broad,
    frontier,
    long_queue,
    measure,
    memory,
    plan,
    politeness,
    replicas,
    signing,
    sizes,
    start,
    throughput,
)

SHORT = {
    "throughput": throughput.short,
    "sizes": sizes.short,
    "broad": broad.short,
    "replicas": replicas.short,
    "frontier": frontier.short,
    "long_queue": long_queue.short,
    "politeness": politeness.short,
    "memory": memory.short,
    "backpressure": backpressure.short,
    "signing": signing.short,
    "start": start.short,
    "plan": plan.short,
}


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(SHORT))
    if unknown:
        raise SystemExit(f"no benchmark named {unknown[0]}; there are {', '.join(SHORT)}")
    figures = []
    for name in names or SHORT:
        started = time.monotonic()
        figures += SHORT[name]()
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    measure.show(figures)


if __name__ == "__main__":
    main(sys.argv[1:])
