"""Pages per CPU second: the whole product against a bare aiohttp fetch loop and other crawlers, on the same real pages.

    python -m tests.bench.throughput [--copies 4] [--runs 3] [--tls] [--against all] [--slow-copies 1] [--slow-runs 1]

A page is an HTML document that nginx says it served with status 200; each counts once. One process each, 64 requests in
flight, no delay, robots.txt obeyed, links extracted and followed. The product writes WARC, JSON lines and CDXJ, and keeps
its frontier in a Valkey; the others write JSON lines (wget2: the files). The bare loop gets the list of URLs, and only
fetches. Crawlers below a hundred pages a second crawl `--slow-copies` of the same sites, `--slow-runs` times. CPU
is of the process and its children, without nginx and without Redis, which has a column of its own.

Last results, two cores of a virtual AMD EPYC, nothing else running, Debian's CPython 3.11.2 for all; `--copies 4 --runs 5
--against wget2 crawlee scrapy scrapy-redis` (docs/speed.md tells more):

                       pages  again  pages/CPU s  we: x  wall s  peak MB  Redis us/page
bare aiohttp           9,544      0        3,919   0.17     2.4       56            0.0
peercrawl              9,544      0          676   1.00    14.9      140           40.9
wget2 1.99.1           9,544      0          913   0.74     7.9       75            0.0
crawlee 1.11.0         2,386      0           75   8.97    29.6      326            0.0
scrapy 2.19.0          2,386      0           52  13.01    46.0      259            0.0
scrapy-redis 0.9.1     2,386      0           29  23.12    92.8      247         3214.6
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.bench.contenders import CONTENDERS, Contender
from tests.bench.docweb import DocWeb, serve
from tests.bench.measure import Figure, Usage, cpu_s, median, used_by
from tests.valkey import ValkeyProcess

FAST = ("wget2",)
"""Contenders that crawl as many copies as the product does."""

BARE = """
import asyncio, sys, aiohttp
async def main():
    urls = sys.stdin.read().split()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64, ssl=False)) as session:
        pending = iter(urls)
        async def work():
            for url in pending:
                async with session.get(url) as response:
                    await response.read()
        await asyncio.gather(*(work() for _ in range(64)))
asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one crawler. `redis_cpu_s` is of the server that it used, if any."""

    pages: int
    repeats: int
    usage: Usage
    redis_cpu_s: float = 0.0

    @property
    def pages_per_cpu_s(self) -> float:
        return self.pages / self.usage.cpu_s

    @property
    def redis_us(self) -> float:
        """Microseconds of the server's CPU a page."""
        return self.redis_cpu_s / self.pages * 1e6


def run_product(web: DocWeb, scratch: Path) -> tuple[Run, list[str]]:
    """One replica of the product; returns the URLs that it fetched, too."""
    out, seeds, settings = scratch / "out", scratch / "seeds.txt", scratch / "settings.toml"
    seeds.write_text("\n".join(web.address_seeds))
    settings.write_text(
        f"[politeness]\ndelay = 0\n[frontier]\nshards = 64\n"
        f"[fetch]\nports = [{web.port}]\nallow_private = true\nverify_tls = false\n[archive]\nlinks = true\n"
    )
    with ValkeyProcess(scratch, persistent=False) as valkey:
        crawler = [sys.executable, "-m", "crawler"]
        where = ["--redis", valkey.url, "--settings", str(settings)]
        subprocess.run([*crawler, "seed", "-f", str(seeds), *where], check=True, stdout=subprocess.DEVNULL)
        before = cpu_s(valkey.pid)
        run = [*crawler, "run", *where, "--out", str(out), "--until-empty", "--interval", "1"]
        usage = used_by(run, env={"CRAWLER_REPLICA__LOG_LEVEL": "warning"})
        redis_cpu_s = cpu_s(valkey.pid) - before
    lines = (msgspec.json.decode(line) for path in out.glob("*.jsonl") for line in path.open("rb"))
    urls = [line["url"] for line in lines if line["status"]]
    return counted(web, usage, redis_cpu_s), urls


def run_bare(web: DocWeb, urls: Iterable[str]) -> Run:
    """A loop that fetches `urls` and does nothing else."""
    return counted(web, used_by([sys.executable, "-c", BARE], "\n".join(urls).encode()))


def run_contender(contender: Contender, web: DocWeb, scratch: Path) -> Run:
    """Another crawler, from the same seeds."""

    def usage(redis_url: str) -> Usage:
        words = contender.words(contender.python(), scratch, redis_url, web.address_seeds)
        return used_by(words, cwd=scratch, good_codes=contender.good_codes)

    if not contender.redis:
        return counted(web, usage(""))
    with ValkeyProcess(scratch, persistent=False) as valkey:
        return counted(web, usage(valkey.url), cpu_s(valkey.pid))


def counted(web: DocWeb, usage: Usage, redis_cpu_s: float = 0.0) -> Run:
    """The run that has just ended, with the pages that the web server counted."""
    fetched = web.fetched()
    if not fetched.pages:
        raise SystemExit("a crawler fetched no page")
    return Run(fetched.pages, fetched.repeats, usage, redis_cpu_s)


def repeated(runs: int, one: Callable[[Path], Run]) -> list[Run]:
    """`runs` runs of `one`, each in an empty folder."""
    results = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
            results.append(one(Path(scratch)))
    return results


def compare(copies: int, runs: int, tls: bool) -> dict[str, list[Run]]:
    """The product and the bare loop, turn by turn."""
    results: dict[str, list[Run]] = {"bare aiohttp": [], "peercrawl": []}
    with serve(copies, tls) as web:
        for _ in range(runs):
            with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
                run, urls = run_product(web, Path(scratch))
            results["peercrawl"].append(run)
            results["bare aiohttp"].append(run_bare(web, urls))
    return results


def contend(names: Sequence[str], sizes: tuple[int, int], slow: tuple[int, int], tls: bool) -> dict[str, list[Run]]:
    """The contenders called `names`. `sizes` and `slow`: copies and runs, of fast ones and of the others."""
    results = {}
    for name in names:
        contender = CONTENDERS[name]
        if not contender.is_available:
            print(f"{name} is not installed: left out", file=sys.stderr)
            continue
        copies, runs = sizes if name in FAST else slow
        with serve(copies, tls) as web:
            call = f"{name} {contender.version()}"
            results[call] = repeated(runs, lambda scratch: run_contender(contender, web, scratch))  # noqa: B023
    return results


def show(results: dict[str, list[Run]]) -> None:
    """The table: medians, and how many times the product's pages per CPU second are those of each."""
    ours = median(run.pages_per_cpu_s for run in results["peercrawl"])
    heading = ("pages", "again", "pages/CPU s", "we: x", "wall s", "peak MB", "Redis us/page")
    print(f"{'':20} {heading[0]:>7} {heading[1]:>6} {heading[2]:>12} {heading[3]:>6} ", end="")
    print(f"{heading[4]:>7} {heading[5]:>8} {heading[6]:>14}")
    for name, runs in results.items():
        rate = median(run.pages_per_cpu_s for run in runs)
        pages, again = (median(getattr(run, field) for run in runs) for field in ("pages", "repeats"))
        wall, peak = median(run.usage.wall_s for run in runs), median(run.usage.peak_mb for run in runs)
        redis_us = median(run.redis_us for run in runs)
        print(f"{name:20} {pages:7,.0f} {again:6,.0f} {rate:12,.0f} {ours / rate:6.2f} ", end="")
        print(f"{wall:7.1f} {peak:8.0f} {redis_us:14.1f}")


def short() -> list[Figure]:
    """For the table of all benchmarks: the product and the floor."""
    results = compare(copies=2, runs=1, tls=False)
    bare, ours = results["bare aiohttp"][0], results["peercrawl"][0]
    share = ours.pages_per_cpu_s / bare.pages_per_cpu_s
    return [
        Figure("throughput", "pages per CPU second", ours.pages_per_cpu_s, "pages/CPU s"),
        Figure("throughput", "... of those of bare fetching", 100 * share, "%"),
        Figure("throughput", "peak memory", ours.usage.peak_mb, "MB", "< 250", ours.usage.peak_mb < 250),
        Figure("throughput", "Valkey's CPU a page", ours.redis_us, "us", "<= 30", ours.redis_us <= 30),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=4, help="sites of each documentation package")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tls", action="store_true", help="over HTTPS")
    parser.add_argument("--against", nargs="*", default=[], choices=[*CONTENDERS, "all"])
    parser.add_argument("--slow-copies", type=int, default=1)
    parser.add_argument("--slow-runs", type=int, default=1)
    options = parser.parse_args()
    names = list(CONTENDERS) if "all" in options.against else options.against
    results = compare(options.copies, options.runs, options.tls)
    slow = (options.slow_copies, options.slow_runs)
    results |= contend(names, (options.copies, options.runs), slow, options.tls)
    show(results)


if __name__ == "__main__":
    main()
