"""Measures the CPU constants of `crawler plan`: those of replicas and of Redis.

    python -m tests.bench.plan_constants [--rounds 2]

Crawls of an endless web, each of which has much of one thing: new links, known links, bytes, domains, or new connections.
None of them is among those of `tests.bench.plan`. What a crawl uses, less that of a crawl of one page, is a sum of products
with the constants. So the constants follow by least squares of the relative errors. The archive's part of a page and of a
kilobyte keeps its ratio to the rest, and TLS is not measured.

Run it on an idle machine. Printed are the constants, and for each crawl what it used, divided by what they predict.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace

from crawler.plan.arithmetic import Usage, Workload, usage_of
from crawler.plan.constants import Constants
from tests.bench.measure import median
from tests.bench.plan import START, Site, crawl, endless_site

PAGES = 4_000

CRAWLS: dict[str, Callable[[], AbstractContextManager[Site]]] = {
    "few domains": lambda: endless_site(6, 2, 0, 6, PAGES),
    "few links": lambda: endless_site(40, 6, 0, 40, PAGES),
    "new links": lambda: endless_site(40, 46, 0, 40, PAGES),
    "known links": lambda: endless_site(40, 6, 0, 40, PAGES, known=40),
    "large pages": lambda: endless_site(40, 6, 0, 40, PAGES, kilobytes=40),
    "many domains": lambda: endless_site(PAGES, 6, 0, PAGES, PAGES),
    "many domains, new links": lambda: endless_site(PAGES, 46, 0, PAGES, PAGES),
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
    ("cpu_known_domain",),
)
"""Constants of a replica that are measured. Those of a group keep their ratio."""

REDIS = (
    ("redis_us_page",),
    ("redis_us_page_grouped",),
    ("redis_us_url",),
    ("redis_us_domain",),
    ("redis_us_known_domain",),
)
"""The same for Redis."""

Measured = Sequence[tuple[Workload, float]]
"""Crawls, and what each used of something."""


def fitted(constants: Constants, groups: Sequence[Sequence[str]], of: str, measured: Measured) -> Constants:
    """Return `constants` with those of `groups` replaced, so that the field `of` of their usage fits `measured` best."""
    rows = [
        [getattr(usage_of(work, _only(constants, group)), of) / used for group in groups] for work, used in measured
    ]
    factors = least_squares(rows)
    changed = {
        name: getattr(constants, name) * factor for group, factor in zip(groups, factors, strict=True) for name in group
    }
    return replace(constants, **changed)


def _only(constants: Constants, names: Sequence[str]) -> Constants:
    """`constants` without all costs but those of `names`."""
    costs = {one.name: 0.0 for one in fields(constants) if one.name.startswith(("cpu_", "redis_us_"))}
    return replace(constants, **costs | {name: getattr(constants, name) for name in names})


def least_squares(rows: Sequence[Sequence[float]]) -> list[float]:
    """The factors with which the sums of the products in `rows` come closest to 1."""
    width = range(len(rows[0]))
    table = [[sum(row[i] * row[j] for row in rows) for j in width] + [sum(row[i] for row in rows)] for i in width]
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
        cpu_s, redis_s = (median(getattr(run.used, of) for run in runs) for of in ("cpu_s", "redis_cpu_s"))
        found[name] = runs[-1].work, replace(runs[-1].used, cpu_s=cpu_s, redis_cpu_s=redis_s)
        print(f"{name:30} {runs[-1].work.pages:7,.0f} pages  {cpu_s:6.2f} s  {redis_s:6.2f} s of Redis", flush=True)
    constants = fitted(Constants(), CPU, "cpu_s", [(work, used.cpu_s) for work, used in found.values()])
    constants = fitted(constants, REDIS, "redis_cpu_s", [(work, used.redis_cpu_s) for work, used in found.values()])
    return constants, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    constants, found = measure(parser.parse_args().rounds)
    before = Constants()
    for name in (name for group in (*CPU, *REDIS) for name in group):
        print(f"{name:24} {getattr(constants, name):8.1f}   (was {getattr(before, name):g})")
    for kind, (work, used) in found.items():
        fit = usage_of(work, constants)
        print(f"{kind:30} {used.cpu_s / fit.cpu_s:5.2f} CPU  {used.redis_cpu_s / fit.redis_cpu_s:5.2f} Redis CPU")


if __name__ == "__main__":
    main()
