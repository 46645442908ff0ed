"""What a limit on pages costs that is never reached: crawls with `limits.max_pages` = 1,000,000 and without it, in pairs.

    python -m tests.bench.page_limit [--runs 5] [--sites 1 10 1000] [--delays 0 0.1]

All URLs are queued beforehand; nginx answers under all names with one page of 2 KB without links. A crawl is one replica
in a process of its own, until nothing is left. Pages a second are those between the first and the last request in nginx's
log; CPU is of the whole process, without nginx and Valkey. The two crawls of a pair run side by side, each with its own
nginx and Valkey, because the speed of a virtual machine changes by a tenth within a minute. The one with a limit starts
first in every other pair. A ratio is the median of those of the pairs, 1 if the limit costs nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from frontier.entries import Entry
from tests.bench.crawl import Tables, fill
from tests.bench.docweb import FLUSH_S, free_port, nginx
from tests.bench.measure import Figure, median, used_by
from tests.bench.politeness import CONFIGURATION, PAGE
from tests.valkey import ValkeyProcess

LIMIT = 1_000_000

PAGES_OF_ONE, PAGES, SECONDS = 6_000, 24_000, 6.0
"""Pages of a crawl of one site and of several, if all can be fetched at once, so that it lasts about ten seconds; and how
long a crawl with a delay takes at least."""


@dataclass(frozen=True, slots=True)
class Case:
    """Sites of equal size, and the delay between two requests to one of them."""

    sites: int
    delay_s: float

    @property
    def pages(self) -> int:
        """Of all sites together."""
        most = PAGES_OF_ONE if self.sites == 1 else PAGES
        return min(most, self.sites * round(SECONDS / self.delay_s)) if self.delay_s else most


@dataclass(frozen=True, slots=True)
class Crawled:
    """What a crawl did a second, and a second of CPU."""

    pages_per_s: float
    pages_per_cpu_s: float


@dataclass(frozen=True, slots=True)
class Pair:
    """The same crawl with a limit and without."""

    limited: Crawled
    unlimited: Crawled

    @property
    def speed(self) -> float:
        return self.limited.pages_per_s / self.unlimited.pages_per_s

    @property
    def thrift(self) -> float:
        return self.limited.pages_per_cpu_s / self.unlimited.pages_per_cpu_s


@contextmanager
def serve() -> Iterator[tuple[int, Path]]:
    """The web; yields its port, and the log of its requests: "seconds since 1970, duration, host, path" a line."""
    with tempfile.TemporaryDirectory(prefix="page-limit-") as scratch:
        folder, port = Path(scratch), free_port()
        (folder / "page.html").write_text(PAGE)
        kept_alive = CONFIGURATION.replace("keepalive_timeout 0;", "keepalive_timeout 600; keepalive_requests 1000000;")
        with nginx(folder, kept_alive.format(folder=folder, port=port), port):
            yield port, folder / "access.log"


def crawl(case: Case, port: int, log: Path, limit: int) -> Crawled:
    """Crawl all pages of `case`, of the web at `port`, with so high a `limit`; 0: none."""
    names = [f"site{number}.test" for number in range(case.sites)]
    entries = (Entry(f"http://{names[n % case.sites]}/{n}", names[n % case.sites]) for n in range(case.pages))
    tables: Tables = {
        "politeness": {"delay": case.delay_s, "response_share": 0, "address_rate_limit": "off"},
        "scope": {"kind": "any"},
        "fetch": {"host_map": [f"*.test=127.0.0.1:{port}"]},
        "limits": {"max_pages": limit},
        "archive": {"revisits": 0},  # all bodies are equal
    }
    log.write_text("")
    with tempfile.TemporaryDirectory(prefix="page-limit-") as scratch:
        folder = Path(scratch)
        with ValkeyProcess(folder, persistent=False) as valkey:
            fill(valkey.url, tables, entries, without_robots=names)
            words = [sys.executable, "-m", "crawler", "run", "--redis", valkey.url, "--out", str(folder / "out")]
            env = {"CRAWLER_REPLICA__LOG_LEVEL": "warning", "CRAWLER_REPLICA__ACCEPT": '["fetch.host_map"]'}
            usage = used_by([*words, "--until-empty", "--interval", "1"], env=env)
    moments = _moments(log)
    if len(moments) != case.pages:
        raise SystemExit(f"{len(moments)} requests for {case.pages} pages")
    return Crawled(case.pages / (max(moments) - min(moments)), case.pages / usage.cpu_s)


def _moments(log: Path) -> list[float]:
    """When each response for a page ended."""
    time.sleep(FLUSH_S)
    return [float(line.split()[0]) for line in log.read_text().splitlines() if not line.endswith("/robots.txt")]


def compare(case: Case, runs: int) -> list[Pair]:
    """`runs` pairs of crawls."""
    pairs = []
    with serve() as one, serve() as other, ThreadPoolExecutor(2) as threads:
        for number in range(runs):
            limits = (LIMIT, 0) if number % 2 else (0, LIMIT)
            crawls = {
                limit: threads.submit(crawl, case, *web, limit) for limit, web in zip(limits, (one, other), strict=True)
            }
            pairs.append(Pair(crawls[LIMIT].result(), crawls[0].result()))
    return pairs


def show(case: Case, pairs: Sequence[Pair]) -> None:
    """A line of the table."""
    limited, unlimited = [pair.limited for pair in pairs], [pair.unlimited for pair in pairs]
    print(f"{case.sites:6,} {case.delay_s:6.1f} {case.pages:6,} ", end="")
    for figure in ("pages_per_s", "pages_per_cpu_s"):
        for runs in (unlimited, limited):
            print(f"{median(getattr(run, figure) for run in runs):9,.0f} ", end="")
    print(f"{median(pair.speed for pair in pairs):8.3f} {median(pair.thrift for pair in pairs):8.3f}", flush=True)


def short() -> list[Figure]:
    """For the table of all benchmarks: one site without a delay, where a late permit would hold up every page."""
    (pair,) = compare(Case(1, 0.0), runs=1)
    return [
        Figure(
            "page_limit", "pages a second with a limit", 100 * pair.speed, "% of without", ">= 95", pair.speed >= 0.95
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sites", type=int, nargs="*", default=[1, 10, 1000])
    parser.add_argument("--delays", type=float, nargs="*", default=[0.0, 0.1])
    options = parser.parse_args()
    print("                        pages/s          pages/CPU s      limited/without")
    print(" sites  delay  pages   without   limited   without   limited  pages/s pages/CPU s")
    for delay_s in options.delays:
        for sites in options.sites:
            case = Case(sites, delay_s)
            show(case, compare(case, options.runs))


if __name__ == "__main__":
    main()
