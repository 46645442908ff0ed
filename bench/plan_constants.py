"""Measures the constants of `crawler plan`: CPU of replicas and of Redis, its memory, and output.

    python -m bench.plan_constants [--rounds 2]

Crawls, each of which has much of one thing: new links, known links, connections, domains, or bytes of real pages, those of
documentation that the crawls of `bench.plan` do not have. None of the crawls is among those. What a crawl uses, less
the CPU of a crawl of one page, is a sum of products with the constants. So the constants follow by least squares of the
relative errors. The archive's part of a page and of a kilobyte keeps its ratio to the rest. TLS, robots.txt, packed queues
and compression are not measured.

Run it on an idle machine: CPU depends on it, memory and output do not. Printed are the constants, and for each crawl what
it used, divided by what they predict.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from bench import docweb
from bench.measure import median
from bench.plan import CONSTANTS, MEASURED, START, Site, crawl, documentation, endless_site
from crawler.plan.arithmetic import Constants, Estimate, Usage, Workload

PAGES = 4_000

CRAWLS: dict[str, Callable[[], AbstractContextManager[Site]]] = {
    "few domains": lambda: endless_site(6, 2, 0, 6, PAGES),
    "few links": lambda: endless_site(40, 6, 0, 40, PAGES),
    "new links": lambda: endless_site(40, 46, 0, 40, PAGES),
    "known links": lambda: endless_site(40, 6, 0, 40, PAGES, known=40),
    "connections": lambda: endless_site(40, 6, 0, 40, PAGES, closes=True),
    "references": lambda: documentation(1, docweb.API_PACKAGES, PAGES),
    "manuals": lambda: documentation(2, docweb.MANUAL_PACKAGES, PAGES),
    "many domains": lambda: endless_site(PAGES, 6, 0, PAGES, PAGES),
    "many domains, new links": lambda: endless_site(PAGES, 46, 0, PAGES, PAGES),
    "linked domains": lambda: endless_site(10_000, 60, 0, 1_000, 3_000),
    "delay": lambda: endless_site(1_000, 6, 0.3, 1_000, PAGES),
    "delay, new links": lambda: endless_site(1_000, 46, 0.3, 1_000, PAGES),
    "delay, many domains": lambda: endless_site(8_000, 6, 0.3, PAGES, PAGES),
    "delay, domains without a page": lambda: endless_site(12_000, 24, 0.3, 2_000, 2_000),
}

CPU = (
    ("cpu_page", "cpu_archive_page"),
    ("cpu_kilobyte", "cpu_archive_kilobyte"),
    ("cpu_link",),
    ("cpu_new_url",),
    ("cpu_connection",),
    ("cpu_domain",),
)
"""Constants of a replica that are measured. Those of a group keep their ratio."""

REDIS = (
    ("redis_us_page",),
    ("redis_us_page_grouped",),
    ("redis_us_url",),
    ("redis_us_domain",),
    ("redis_us_push",),
)
"""The same for Redis."""

MEMORY = (("memory_server",), ("memory_domain",), ("memory_queued",), ("memory_queued_compact",))
"""The same for its memory. What a packed URL takes depends on the URLs, and these are all alike."""

DISK = (("disk_page",), ("disk_link",), ("disk_domain",))
"""The same for the output files."""

GROUPS = {"cpu_s": CPU, "redis_cpu_s": REDIS, "redis_bytes": MEMORY, "disk_bytes": DISK}
"""By the fields of `Usage`."""

Measured = Sequence[tuple[Workload, float]]
"""Crawls, and what each used of something."""


def fitted(constants: Constants, groups: Sequence[Sequence[str]], of: str, measured: Measured) -> Constants:
    """Return `constants` with those of `groups` replaced, so that the field `of` of their usage fits `measured` best."""
    without = replace(constants, **{name: 0.0 for group in groups for name in group})
    rows, rest = [], []
    for work, used in measured:
        fixed = getattr(Estimate(work, without).usage, of)
        alone = [replace(without, **{name: getattr(constants, name) for name in group}) for group in groups]
        rows.append([(getattr(Estimate(work, one).usage, of) - fixed) / used for one in alone])
        rest.append(1 - fixed / used)
    changed = {
        name: getattr(constants, name) * factor
        for group, factor in zip(groups, least_squares(rows, rest), strict=True)
        for name in group
    }
    return replace(constants, **changed)


def least_squares(rows: Sequence[Sequence[float]], sums: Sequence[float]) -> list[float]:
    """The factors with which the sums of the products in `rows` come closest to `sums`."""
    width = range(len(rows[0]))
    table = [
        [sum(row[i] * row[j] for row in rows) for j in width]
        + [sum(row[i] * one for row, one in zip(rows, sums, strict=True))]
        for i in width
    ]
    for i in width:  # Gauss and Jordan: the matrix is symmetric and positive definite
        table[i] = [value / table[i][i] for value in table[i]]
        for j in width:
            if j != i:
                table[j] = [value - table[j][i] * other for value, other in zip(table[j], table[i], strict=True)]
    return [row[-1] for row in table]


def measure(rounds: int) -> tuple[Constants, Mapping[str, tuple[Workload, Usage]]]:
    """Return the constants, and what was measured."""
    started = crawl(START).used
    found: dict[str, tuple[Workload, Usage]] = {}
    for name, kind in CRAWLS.items():
        runs = [crawl(kind, started) for _ in range(rounds)]
        used = {of: median(getattr(run.used, of) for run in runs) for of in GROUPS}
        found[name] = runs[-1].work, replace(runs[-1].used, **used)
        print(name, *(f"{value:.4g}" for value in used.values()), sep="\t", flush=True)
    constants = CONSTANTS
    for of, groups in GROUPS.items():
        measured = [(work, getattr(used, of)) for work, used in found.values()]
        constants = fitted(constants, groups, of, measured)
    return constants, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    constants, found = measure(parser.parse_args().rounds)
    for name in (name for groups in GROUPS.values() for group in groups for name in group):
        print(f"{name:24} {getattr(constants, name):8.1f}   (was {getattr(CONSTANTS, name):g})")
    print(f"{'':30}", *(f"{MEASURED[of]:>12}" for of in GROUPS))
    for kind, (work, used) in found.items():
        fit = Estimate(work, constants).usage
        print(f"{kind:30}", *(f"{getattr(used, of) / getattr(fit, of):12.2f}" for of in GROUPS))


if __name__ == "__main__":
    main()
