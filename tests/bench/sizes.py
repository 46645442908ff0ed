"""What a page costs in small and large crawls, and with each setting that does something for every page.

    python -m tests.bench.sizes [CASE...] [--settings plain recrawl ...] [--rounds 3]

All crawls have the default delay of a second. nginx answers under all names with a page of 2 KB without links and with 404
for robots.txt, which the replica fetches once a site. The cases:

- *one*: one site. The replica waits nearly all of the time: a page costs what a second of waiting costs, too.
- *thousand*: 1,000 sites, more than a core can serve.
- *many*: 100,000 sites of one page, so nearly each request for a page needs a connection, a lease and a robots.txt of its
  own. With `--rounds 1` and all settings it takes about fifteen minutes; *ten thousand* is a tenth of it.

The settings: *plain*; a *limit* on pages that is never reached (`limits.max_pages`); a *handler* that finds an item on each
page; *signed* requests (`[identity]`); *recrawl*, which plans a visit to each page in 30 days. CPU is of the whole replica
in the midst of the crawl, without nginx and Valkey, at full speed (`tests.bench.speed`). The ratio is to the plain crawl of
the same round, the median of the rounds. More than 1.5 would have to be explained: docs/explanation/speed.md has the last
result.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from crawler.identity.signing_keys import make_key
from frontier.entries import Entry
from tests.bench.crawl import Tables, fill, running
from tests.bench.measure import Figure, cpu_s, median
from tests.bench.page_limit import serve
from tests.bench.speed import speedometer
from tests.valkey import ValkeyProcess

MOST = 1.5
"""How many times as much CPU a page may cost with a setting as without it."""


@dataclass(frozen=True, slots=True)
class Case:
    """Sites with so many pages each. Pages count from `warm_s` after the start, for `seconds` or until all are fetched."""

    sites: int
    pages: int
    warm_s: float
    seconds: float


CASES = {
    "one": Case(1, 60, 3, 40),
    "thousand": Case(1_000, 25, 4, 10),
    "ten thousand": Case(10_000, 1, 3, 60),
    "many": Case(100_000, 1, 5, 250),
}

SETTINGS: Mapping[str, Tables] = {
    "plain": {},
    "limit": {"limits": {"max_pages": 1_000_000}},
    "handler": {"handlers": {"app": "tests.bench.router:router"}},
    "signed": {},
    "recrawl": {"recrawl": {"rules": ["every=30d"]}},
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of CPU a page, of the replica and of Valkey, at full speed; and pages a second."""

    us: float
    redis_us: float
    pages_per_s: float


def cost(case: Case, setting: str) -> Cost:
    """That of a page in a crawl of `case`."""
    with serve() as (port, log), tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder, served = Path(scratch), _Served(log)
        with ValkeyProcess(folder, persistent=False) as valkey:
            names = [f"site{number}.test" for number in range(case.sites)]
            entries = (Entry(f"http://{name}/{page}", name) for page in range(case.pages) for name in names)
            fill(valkey.url, _tables(port, setting), entries)
            with running(valkey.url, folder, _identity(folder) if setting == "signed" else {}) as replica:
                time.sleep(case.warm_s)
                since, pages, before = (
                    time.monotonic(),
                    served.pages(),
                    [cpu_s(pid) for pid in (replica.pid, valkey.pid)],
                )
                while time.monotonic() < since + case.seconds and served.pages() < case.sites * case.pages:
                    time.sleep(0.5)
                until, fetched = time.monotonic(), served.pages() - pages
                used = [cpu_s(pid) - start for pid, start in zip((replica.pid, valkey.pid), before, strict=True)]
    if not fetched:
        raise SystemExit(f"no page was fetched with the setting {setting}")
    speed = speedometer().mean(since, until)
    ours, redis = (seconds * speed / fetched * 1e6 for seconds in used)
    return Cost(ours, redis, fetched / (until - since))


class _Served:
    """Counts the pages in nginx's log."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._at = self._pages = 0

    def pages(self) -> int:
        """Those that nginx has logged so far: all but those of the last 200 ms."""
        with self._log.open("rb") as log:
            log.seek(self._at)
            lines = log.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._at += sum(map(len, whole))
        self._pages += sum(not line.endswith(b"/robots.txt\n") for line in whole)
        return self._pages


def _tables(port: int, setting: str) -> Tables:
    return {
        "politeness": {"address_rate_limit": "off"},
        "scope": {"kind": "any"},
        "fetch": {"host_map": [f"*.test=127.0.0.1:{port}"]},
        "archive": {"revisits": 0},  # all bodies are equal
        **SETTINGS[setting],
    }


def _identity(folder: Path) -> dict[str, str]:
    key = folder / "key.pem"
    make_key(key)
    return {
        "CRAWLER_IDENTITY__KEYS": msgspec.json.encode([str(key)]).decode(),
        "CRAWLER_IDENTITY__DIRECTORY": "https://crawler.example.com/.well-known/http-message-signatures-directory",
    }


def in_round(case: Case, settings: Sequence[str]) -> dict[str, Cost]:
    """The cost of a page with each of `settings`. Crawls that only wait run side by side."""
    speedometer()
    with ThreadPoolExecutor(len(settings) if case.sites == 1 else 1) as threads:
        return dict(zip(settings, threads.map(lambda setting: cost(case, setting), settings), strict=True))


def show(name: str, rounds: Sequence[Mapping[str, Cost]]) -> None:
    """The lines of a case."""
    for setting in rounds[0]:
        ratios = [costs[setting].us / costs["plain"].us for costs in rounds]
        us, redis_us, rate = (
            median(getattr(costs[setting], figure) for costs in rounds) for figure in ("us", "redis_us", "pages_per_s")
        )
        print(f"{name:13} {setting:8} {rate:8,.1f} {us:8,.0f} {redis_us:8.1f} {median(ratios):6.2f}  ", end="")
        print(f"{min(ratios):.2f} to {max(ratios):.2f}", flush=True)


def short() -> list[Figure]:
    """For the table of all benchmarks: the dearest setting of each case, and at most ten thousand sites."""
    cases = (
        ("one", Case(1, 30, 2, 10), tuple(SETTINGS)),
        ("thousand", Case(1_000, 15, 3, 4), ("plain", "handler", "recrawl")),
        ("ten thousand", CASES["ten thousand"], ("plain", "recrawl")),
    )
    figures = []
    for name, case, settings in cases:
        costs = in_round(case, settings)
        worst = max(settings, key=lambda setting: costs[setting].us)
        most = costs[worst].us / costs["plain"].us
        what = f"{name}: with the dearest setting, {worst}"
        figures.append(Figure("sizes", f"{name}: a page", costs["plain"].us, "us"))
        figures.append(Figure("sizes", what, most, "times", f"<= {MOST}", most <= MOST))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=["one", "thousand", "ten thousand"], choices=[*CASES])
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{'':13} {'':8} {'pages/s':>8} {'us/page':>8} {'of Redis':>8} {'ratio':>6}  lowest to highest")
    settings = list(dict.fromkeys(["plain", *options.settings]))
    for name in options.cases:
        show(name, [in_round(CASES[name], settings) for _ in range(options.rounds)])


if __name__ == "__main__":
    main()
