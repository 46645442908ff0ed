"""What `crawler plan` predicts with its built-in constants, and what a crawl then uses.

    python -m bench.plan [KIND...] [--rounds 1]

Crawls of these kinds, each with one replica on a real Valkey without persistence:

| kind | pages |
|---|---|
| small | 4,000 of 2 KB with 20 new links each, on 50 domains without a delay |
| docs | Debian's documentation of Python, PostgreSQL and Django (`bench.docweb`), two copies, without a delay |
| domains | 4,000 of 4 KB with 50 new links each, on 20,000 domains with a delay: most are the first of their domain |
| long | 2,000 of 7 KB with 100 new links each, on 500 domains without a delay: long queues |
| packed | 2,000 of 7 KB with 100 new links each, on 20 domains without a delay: queues so long that they are packed |
| slow | 3,000 of 1 KB with 10 new links each, on 5,000 domains with a delay of half a second |

The constants come from other crawls (`bench.plan_constants`). The pages, URLs, domains and connections, and the mean
size, links and linked domains of a page, are those of the crawl: the plan adds its constants. CPU is at full speed
(`bench.speed`), less that of a crawl of one page; on a busy machine it says little. Memory and files do not depend on
it. A ratio is what was used, divided by what was predicted; aim: within 20 %. docs/explanation/capacity.md has the last
results.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bench import docweb, endless
from bench.crawl import Tables, fill
from bench.measure import Figure, cpu_s, median, show, used_by
from bench.speed import speedometer
from bench.usage import CrawlFigures, own_workload, read_crawl, read_files
from crawler.plan.arithmetic import Constants, Estimate, Usage, Workload
from crawler.sinks.lines import line_files, lines_in
from frontier.crawls import open_crawl
from frontier.domains import domain_of, host_of
from frontier.entries import Entry
from frontier.store import connect
from tests.valkey import ValkeyProcess

AIM = 0.2
SHARDS = 64

CONSTANTS = replace(Constants(), memory_robots=50)
"""The robots.txt of these sites has one rule, less than the usual."""


@dataclass(frozen=True, slots=True)
class Site:
    """A web that is served: the entries that a crawl starts from, its settings, and how many connections it has had, or
    None if it does not count them."""

    seeds: Sequence[Entry]
    settings: Tables
    connections: Callable[[], int | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Ratios:
    """What a crawl with the workload `work` used, divided by what was predicted, and both."""

    work: Workload
    used: Usage
    predicted: Usage

    def of(self, name: str) -> float:
        return float(getattr(self.used, name) / getattr(self.predicted, name))


MEASURED = {"cpu_s": "CPU", "redis_cpu_s": "Redis CPU", "redis_bytes": "Redis memory", "disk_bytes": "disk"}


@contextmanager
def endless_site(
    domains: int, links: int, delay_s: float, seeds: int, pages: int, known: int = 0, closes: bool = False
) -> Iterator[Site]:
    """An endless web, of which `pages` are to be crawled."""
    with endless.serve(domains, links, known, closes) as host_map:
        settings: Tables = {
            "politeness": {"delay": delay_s, "address_rate_limit": "off"},
            "fetch": {"host_map": host_map},
            "scope": {"kind": "any"},
            "limits": {"max_pages": pages},
        }
        yield Site(list(endless.seeds(seeds)), settings, lambda: endless.connections(host_map))


@contextmanager
def documentation(copies: int, packages: Mapping[str, Path], pages: int = 0) -> Iterator[Site]:
    """Sites of Debian's `packages`, of which `pages` are to be crawled, or all."""
    with docweb.serve(copies, wanted=packages) as web:
        settings: Tables = {
            "politeness": {"delay": 0, "address_rate_limit": "off"},
            "fetch": {"ports": [web.port], "allow_private": True},
            "archive": {"revisits": 0},
            "limits": {"max_pages": pages},
        }
        seeds = [Entry(url, address) for url, address in zip(web.address_seeds, web.addresses, strict=True)]
        yield Site(seeds, settings)


KINDS: dict[str, Callable[[], AbstractContextManager[Site]]] = {
    "small": lambda: endless_site(50, 20, 0, 50, 4_000),
    "docs": lambda: documentation(2, docweb.PACKAGES),
    "domains": lambda: endless_site(20_000, 50, 1.0, 4_000, 4_000),
    "long": lambda: endless_site(500, 100, 0, 500, 2_000),
    "packed": lambda: endless_site(20, 100, 0, 20, 2_000),
    "slow": lambda: endless_site(5_000, 10, 0.5, 1_500, 3_000),
}
START = lambda: endless_site(1, 1, 0, 1, 1)  # noqa: E731 - like the kinds


def crawl(kind: Callable[[], AbstractContextManager[Site]], started: Usage | None = None) -> Ratios:
    """Crawl a web of this kind once. `started`: what a crawl of one page uses."""
    speedometer()
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, kind() as site:
        folder = Path(scratch)
        with ValkeyProcess(folder, persistent=False, options=("--zset-max-listpack-value", "512")) as valkey:
            fill(valkey.url, site.settings, site.seeds, SHARDS)
            before, since = cpu_s(valkey.pid), time.monotonic()
            words = [sys.executable, "-m", "crawler", "run", "--redis", valkey.url, "--out", str(folder / "out")]
            accept = '["fetch.host_map", "fetch.ports", "fetch.allow_private"]'
            used = used_by(
                [*words, "--until-empty", "--interval", "1"],
                env={"CRAWLER_REPLICA__LOG_LEVEL": "error", "CRAWLER_REPLICA__ACCEPT": accept},
            )
            speed = speedometer().mean(since, time.monotonic())
            redis_cpu_s = cpu_s(valkey.pid) - before
            found = asyncio.run(_figures(valkey.url))
        files = read_files([folder / "out"], "crawl")
        assert files is not None
        base = started or Usage(0, 0, 0, 0, 0)
        work = own_workload(found, files, float(site.settings["politeness"]["delay"]))
        opened = site.connections()
        opened_per_page = None if opened is None else opened / work.pages
        work = replace(work, fetched=_fetched_domains(folder / "out"), connections=opened_per_page)
        return Ratios(
            work,
            Usage(
                used.cpu_s * speed - base.cpu_s,
                redis_cpu_s * speed - base.redis_cpu_s,
                found.redis_bytes,
                files.received_bytes * files.pages,
                files.disk_bytes,
            ),
            Estimate(work, CONSTANTS).usage,
        )


def _fetched_domains(folder: Path) -> int:
    """Return of how many domains the output files in `folder` have a page."""
    lines = (msgspec.json.decode(text) for path in line_files(folder) for text in lines_in(path))
    return len({domain_of(host_of(line["url"])) for line in lines if line.get("outcome") == "done"})


async def _figures(url: str) -> CrawlFigures:
    store = await connect(url)
    try:
        return await read_crawl(store, await open_crawl(store, "crawl"))
    finally:
        await store.close()


def measure(kinds: Sequence[str], rounds: int) -> list[Figure]:
    """The ratios of each kind, medians of the rounds."""
    figures = []
    started = crawl(START).used
    for name in kinds:
        ratios = [crawl(KINDS[name], started) for _ in range(rounds)]
        for field, meaning in MEASURED.items():
            ratio = median(one.of(field) for one in ratios)
            figures.append(Figure("plan", f"{name}: {meaning}", ratio, "x predicted", "0.8-1.2", abs(ratio - 1) <= AIM))
            print(name, meaning, *(getattr(ratios[-1].used, field), getattr(ratios[-1].predicted, field)), sep="\t")
    return figures


def short() -> list[Figure]:
    """For the table of all benchmarks."""
    return measure(["docs"], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"no kind named {min(unknown)}")
    show(measure(options.kinds or list(KINDS), options.rounds))


if __name__ == "__main__":
    main()
