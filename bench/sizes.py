"""What a page costs in small and large crawls, and with each setting that does something for every page.

    python -m bench.sizes [CASE...] [--settings limit recrawl ...] [--rounds 2]

All crawls have the default delay of a second. nginx answers under all names with a page of 2 KB without links and with 404
for robots.txt, which the replica fetches once a site (as in `bench.politeness`, but connections are kept). The cases:

- *one*: one site. The replica waits nearly all of the time: a page costs what a second of waiting costs, too.
- *thousand*: 1,000 sites, which take about a third of a core. Pages count in the midst of the crawl.
- *ten thousand*: 10,000 sites of one page, so nearly each request for a page needs a connection, a lease and a robots.txt
  of its own. All pages count: a replica is a second ahead with these files, so the midst of the crawl is no fair share.

The settings: a *limit* on pages that is never reached (`limits.max_pages`); a *handler* that finds an item on each page;
`[[extract]]` with the same item; the main *text* in the line of a page (`archive.text`); *signed* requests (`[identity]`);
*recrawl*, which plans a visit to each page in 30 days. Each crawl with a setting has one without it right before or after
it, in turns. CPU is of the whole replica, without nginx and Valkey, at full speed (`bench.speed`). The ratio is the median
of the pairs. More than 1.5 has to be explained: docs/explanation/speed.md has the last result.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from bench.crawl import Replica, Tables, fill, running
from bench.measure import Figure, cpu_s, median
from bench.politeness import web
from bench.speed import speedometer
from crawler.identity.keys import make_key
from frontier.entries import Entry
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
    "ten thousand": Case(10_000, 1, 0, 120),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """Tables of the settings, and whether requests are signed."""

    tables: Mapping[str, Any] = field(default_factory=dict)
    is_signed: bool = False


PLAIN = "plain"
ITEM = {"name": "pages", "fields": {"title": {"css": "title"}, "first": {"css": "p"}}}

SETTINGS: Mapping[str, Setting] = {
    PLAIN: Setting(),
    "limit": Setting({"limits": {"max_pages": 1_000_000}}),
    "handler": Setting({"handlers": {"app": "bench.router:router"}}),
    "extract": Setting({"extract": [ITEM]}),
    "text": Setting({"archive": {"text": "text"}}),
    "signed": Setting(is_signed=True),
    "recrawl": Setting({"recrawl": {"rules": ["every=30d"]}}),
}

MEASURED = tuple(name for name in SETTINGS if name != PLAIN)


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of CPU a page, of the replica and of Valkey, at full speed; and pages a second."""

    us: float
    redis_us: float
    pages_per_s: float


@dataclass(frozen=True, slots=True)
class Pair:
    """The same crawl with a setting and without it."""

    on: Cost
    off: Cost

    @property
    def ratio(self) -> float:
        return self.on.us / self.off.us


def cost(case: Case, name: str) -> Cost:
    """That of a page in a crawl of `case` with the setting called `name`."""
    setting = SETTINGS[name]
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder, sites = Path(scratch), [f"d{number:06}.test" for number in range(case.sites)]
        with web(folder, keeps_connections=True) as port, ValkeyProcess(folder, persistent=False) as valkey:
            entries = (Entry(f"http://{site}/{page}", site) for page in range(case.pages) for site in sites)
            fill(valkey.url, _tables(port, setting), entries)
            with running(valkey.url, folder, _identity(folder) if setting.is_signed else {}) as replica:
                return _measured(case, folder / "access.log", replica, valkey.pid)


def _measured(case: Case, log: Path, replica: Replica, valkey: int) -> Cost:
    pids = replica.pid, valkey
    time.sleep(case.warm_s)
    since, before = time.monotonic(), list(map(cpu_s, pids))
    pages = _served(log) if case.warm_s else 0
    while time.monotonic() < since + case.seconds and _served(log) < case.sites * case.pages:
        time.sleep(0.5)
    until, fetched, after = time.monotonic(), _served(log) - pages, list(map(cpu_s, pids))
    if not fetched:
        raise SystemExit("no page was fetched")
    speed = speedometer().mean(since, until)
    ours, redis = ((end - start) * speed / fetched * 1e6 for start, end in zip(before, after, strict=True))
    return Cost(ours, redis, fetched / (until - since))


def _served(log: Path) -> int:
    """The pages that nginx has logged so far: all but those of the last 200 ms."""
    text = log.read_bytes()
    return text.count(b"\n") - text.count(b" /robots.txt\n")


def _tables(port: int, setting: Setting) -> Tables:
    always: Tables = {
        "politeness": {"address_rate_limit": "off"},
        "scope": {"kind": "any"},
        "fetch": {"host_map": [f"*.test=127.0.0.1:{port}"]},
        "archive": {"revisits": 0},  # all bodies are equal
    }
    archive = {**always["archive"], **setting.tables.get("archive", {})}
    return {**always, **setting.tables, "archive": archive}


def _identity(folder: Path) -> dict[str, str]:
    key = folder / "key.pem"
    make_key(key)
    return {
        "CRAWLER_IDENTITY__KEYS": msgspec.json.encode([str(key)]).decode(),
        "CRAWLER_IDENTITY__DIRECTORY": "https://crawler.example.com/.well-known/http-message-signatures-directory",
    }


def compare(case: Case, settings: Sequence[str], rounds: int) -> dict[str, list[Pair]]:
    """Crawls with each of `settings` and without it, `rounds` times. The first of a pair has the setting in every other
    one. Crawls that only wait run side by side."""
    speedometer()
    pairs: dict[str, list[Pair]] = {name: [] for name in settings}
    with ThreadPoolExecutor(2 * len(settings) if case.sites == 1 else 1) as threads:
        for number in range(rounds):
            crawls = {}
            for at, name in enumerate(settings):
                order = (PLAIN, name) if (number + at) % 2 else (name, PLAIN)
                crawls[name] = {one: threads.submit(cost, case, one) for one in order}
            for name, pair in crawls.items():
                pairs[name].append(Pair(pair[name].result(), pair[PLAIN].result()))
    return pairs


def show(case: str, pairs: Mapping[str, Sequence[Pair]]) -> None:
    """The lines of a case."""
    print(_line(case, PLAIN, [pair.off for of_one in pairs.values() for pair in of_one]), flush=True)
    for name, of_one in pairs.items():
        ratios = [pair.ratio for pair in of_one]
        more = median(pair.on.us - pair.off.us for pair in of_one)
        line = _line(case, name, [pair.on for pair in of_one])
        print(f"{line} {more:+8,.0f} {median(ratios):6.2f}  {min(ratios):.2f} to {max(ratios):.2f}", flush=True)


def _line(case: str, name: str, costs: Sequence[Cost]) -> str:
    figures = ("pages_per_s", "us", "redis_us")
    rate, us, redis_us = (median(getattr(cost, figure) for cost in costs) for figure in figures)
    return f"{case:13} {name:9} {rate:8,.1f} {us:8,.0f} {redis_us:8.1f}"


SHORT: Mapping[str, tuple[Case, str]] = {
    "one": (Case(1, 30, 2, 10), "recrawl"),
    "thousand": (Case(1_000, 15, 3, 4), "handler"),
    "five thousand": (Case(5_000, 1, 0, 60), "recrawl"),
}
"""For the table of all benchmarks: cases, and a dear setting of each."""


def short() -> list[Figure]:
    """For the table of all benchmarks. The crawls of one site, which wait, run beside the others."""
    figures = []
    with ThreadPoolExecutor(1) as waiting, ThreadPoolExecutor(1) as working:
        crawls = {}
        for name, (case, setting) in SHORT.items():
            threads = waiting if case.sites == 1 else working
            crawls[name] = threads.submit(compare, case, [setting], 1)
        for name, (_, setting) in SHORT.items():
            (pair,) = crawls[name].result()[setting]
            figures.append(Figure("sizes", f"{name}: a page", pair.off.us, "us"))
            is_met = pair.ratio <= MOST
            figures.append(Figure("sizes", f"{name}: with {setting}", pair.ratio, "times", f"<= {MOST}", is_met))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=["one", "thousand", "ten thousand"], choices=[*CASES])
    parser.add_argument("--settings", nargs="+", default=MEASURED, choices=MEASURED)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    print(f"{'':13} {'':9} {'pages/s':>8} {'us/page':>8} {'of Redis':>8} ", end="")
    print(f"{'more us':>8} {'ratio':>6}  lowest to highest")
    for name in options.cases:
        show(name, compare(CASES[name], options.settings, options.rounds))


if __name__ == "__main__":
    main()
