"""Pages per CPU second: the whole product against a bare aiohttp fetch loop and other crawlers, on the same real pages.

    python -m bench.throughput [--copies 4] [--runs 3] [--tls] [--against all] [--slow-copies 1]
    python -m bench.throughput --signed [--copies 4] [--runs 3] [--tls]

With `--signed`, the product against itself, with an identity and without one.

A page is an HTML document that nginx says it served with status 200; each counts once. One process each, 64 requests in
flight, no delay, robots.txt obeyed, links extracted, kept and followed. The product writes WARC (the links, too), JSON
lines and CDXJ, and keeps its frontier in a Valkey; the others write JSON lines (wget2: the files). The bare loop gets the
list of URLs, and only fetches. Crawlers below a hundred pages a second crawl `--slow-copies` of the same sites. The
product runs right before each or, in every other round, right after it. *We: x* is the median of the ratios of such pairs,
followed by the lowest and the highest. CPU is of the process and its children, without nginx and without Redis, which has a
column of its own, and *at full speed*: `bench.speed` tells how fast the machine was.
docs/explanation/speed.md has the last results.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from bench.contenders import CONTENDERS, Contender
from bench.docweb import DocWeb, serve
from bench.measure import Figure, Usage, cpu_s, median, used_by
from bench.speed import speedometer
from crawler.identity.keys import make_key
from tests.valkey import ValkeyProcess

T = TypeVar("T")

FAST = ("wget2",)
"""Contenders that crawl as many copies as the product does."""

BARE = "bare aiohttp"

BARE_LOOP = """
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
    """One run of one crawler, from the monotonic second `since` to `until`. `redis_cpu_s` is of the server that it used, if
    any."""

    pages: int
    repeats: int
    usage: Usage
    since: float
    redis_cpu_s: float = 0.0
    until: float = field(default_factory=time.monotonic)

    @property
    def speed(self) -> float:
        """Of the machine meanwhile."""
        return speedometer().mean(self.since, self.until)

    @property
    def pages_per_cpu_s(self) -> float:
        """At full speed."""
        return self.pages / (self.usage.cpu_s * self.speed)

    @property
    def redis_us(self) -> float:
        """Microseconds of the server's CPU a page, at full speed."""
        return self.redis_cpu_s * self.speed / self.pages * 1e6


Servers = Callable[[Path], AbstractContextManager[tuple[str, Sequence[int]]]]
"""Starts Valkey with its files in a folder, for a block. Gives its URL and the process ids of its servers."""


@contextmanager
def by_socket(scratch: Path) -> Iterator[tuple[str, Sequence[int]]]:
    with ValkeyProcess(scratch, persistent=False) as valkey:
        yield valkey.url, [valkey.pid]


def run_product(
    web: DocWeb, servers: Servers, scratch: Path, is_signed: bool = False, replicas: int = 1
) -> tuple[Run, list[str]]:
    """So many replicas of the product, which sign their requests if `is_signed`; returns the URLs
    that they fetched, too."""
    out, seeds, settings = scratch / "out", scratch / "seeds.txt", scratch / "settings.toml"
    seeds.write_text("\n".join(web.address_seeds))
    settings.write_text(settings_of(web) + (identity(scratch / "key.pem") if is_signed else ""))
    with servers(scratch) as (url, pids):
        crawler = [sys.executable, "-m", "crawler"]
        where = ["--redis", url, "--settings", str(settings)]
        subprocess.run([*crawler, "seed", "-f", str(seeds), *where], check=True, stdout=subprocess.DEVNULL)
        before, since = sum(map(cpu_s, pids)), time.monotonic()
        run = [*crawler, "run", *where, "--out", str(out), "--until-empty", "--interval", "1"]
        run += ["--replicas", str(replicas)] if replicas > 1 else []
        usage = used_by(run, env={"CRAWLER_REPLICA__LOG_LEVEL": "warning"})
        redis_cpu_s = sum(map(cpu_s, pids)) - before
    lines = (msgspec.json.decode(line) for path in out.glob("*.jsonl") for line in path.open("rb"))
    urls = [line["url"] for line in lines if line["status"]]
    return counted(web, usage, since, redis_cpu_s), urls


def settings_of(web: DocWeb) -> str:
    """The settings of a crawl of `web`."""
    return (
        f"[politeness]\ndelay = 0\n[frontier]\nshards = 64\n"
        f"[fetch]\nports = [{web.port}]\nallow_private = true\nverify_tls = false\n"
        # Copies have equal bodies, of which an archive keeps one: not to be had in a web of people's own pages.
        "[archive]\nrevisits = 0\n"
    )


def identity(key: Path) -> str:
    """Settings with which requests are signed, with a new key in the file `key`."""
    make_key(key)
    directory = "https://crawler.example.com/.well-known/http-message-signatures-directory"
    return f'[identity]\nkeys = ["{key}"]\ndirectory = "{directory}"\n'


def run_bare(web: DocWeb, urls: Iterable[str]) -> Run:
    """A loop that fetches `urls` and does nothing else."""
    since = time.monotonic()
    return counted(web, used_by([sys.executable, "-c", BARE_LOOP], "\n".join(urls).encode()), since)


def run_contender(contender: Contender, web: DocWeb, scratch: Path) -> Run:
    """Another crawler, from the same seeds."""

    def usage(redis_url: str) -> Usage:
        words = contender.words(contender.python(), scratch, redis_url, web.address_seeds)
        return used_by(words, cwd=scratch, good_codes=contender.good_codes)

    if not contender.redis:
        since = time.monotonic()
        return counted(web, usage(""), since)
    with ValkeyProcess(scratch, persistent=False) as valkey:
        since = time.monotonic()
        return counted(web, usage(valkey.url), since, cpu_s(valkey.pid))


def counted(web: DocWeb, usage: Usage, since: float, redis_cpu_s: float = 0.0) -> Run:
    """The run that has just ended, with the pages that the web server counted."""
    fetched = web.fetched()
    if not fetched.pages:
        raise SystemExit("a crawler fetched no page")
    return Run(fetched.pages, fetched.repeats, usage, since, redis_cpu_s)


@dataclass(frozen=True, slots=True)
class Pair:
    """A run of another crawler, and the product's run next to it: a machine's speed changes within minutes."""

    ours: Run
    theirs: Run

    @property
    def ratio(self) -> float:
        """How many times as many pages the product does with a second of CPU."""
        return self.ours.pages_per_cpu_s / self.theirs.pages_per_cpu_s


def compare(
    names: Sequence[str], runs: int, copies: int, slow_copies: int = 1, tls: bool = False
) -> dict[str, list[Pair]]:
    """The product against the bare loop and the contenders called `names`, turn by turn, `runs` times."""
    speedometer()  # which gets to know full speed meanwhile
    for name in names:
        if not CONTENDERS[name].is_available:
            print(f"{name} is not installed: left out", file=sys.stderr)
    rivals = [CONTENDERS[name] for name in names if CONTENDERS[name].is_available]
    pairs: dict[str, list[Pair]] = defaultdict(list)
    urls: list[str] = []
    with serve(copies, tls) as web, serve(slow_copies, tls) as small_web:

        def ours() -> Run:
            run, urls[:] = in_scratch(partial(run_product, web, by_socket))
            return run

        def of(rival: Contender) -> Run:
            return in_scratch(partial(run_contender, rival, web if rival.name in FAST else small_web))

        for number in range(runs):
            is_first = number % 2 == 0
            pairs[BARE].append(in_turn(ours, lambda: run_bare(web, urls), is_first))
            for rival in rivals:
                pairs[f"{rival.name} {rival.version()}"].append(in_turn(ours, partial(of, rival), is_first))
    return pairs


def in_turn(ours: Callable[[], Run], theirs: Callable[[], Run], is_first: bool) -> Pair:
    """A run of each, one right after the other; `is_first`: ours before theirs."""
    if is_first:
        return Pair(ours(), theirs())
    second = theirs()
    return Pair(ours(), second)


def compare_signed(runs: int, copies: int, tls: bool = False) -> list[Pair]:
    """The product with an identity and without one, in turns, `runs` times."""
    speedometer()
    with serve(copies, tls) as web:
        signed, unsigned = (partial(product, web, by_socket, is_signed=is_signed) for is_signed in (True, False))
        return [in_turn(signed, unsigned, number % 2 == 1) for number in range(runs)]


def product(web: DocWeb, servers: Servers, is_signed: bool = False) -> Run:
    """One run of the product, as in `run_product`."""
    return in_scratch(partial(run_product, web, servers, is_signed=is_signed))[0]


def show_signed(pairs: Sequence[Pair]) -> None:
    """A table like that of `show`, and what the signature of a request costs."""
    show({"unsigned": list(pairs)}, "signed")
    us = median(1e6 / pair.ours.pages_per_cpu_s - 1e6 / pair.theirs.pages_per_cpu_s for pair in pairs)
    ratio = median(pair.ratio for pair in pairs)
    print(f"signed, {ratio:.3f} of the pages per CPU second: {us:.0f} us more CPU a page, at full speed")


def in_scratch(one: Callable[[Path], T]) -> T:
    """The result of `one` in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        return one(Path(scratch))


def show(pairs: dict[str, list[Pair]], we: str = "peercrawl") -> None:
    """The table: medians, and the median of how many times the product's pages per CPU second are those of each."""
    heading = ("pages", "again", "pages/CPU s", "we: x", "from to", "wall s", "peak MB", "Redis us/page", "speed")
    print(f"{'':20} {heading[0]:>7} {heading[1]:>6} {heading[2]:>12} {heading[3]:>6}  {heading[4]:14} ", end="")
    print(f"{heading[5]:>7} {heading[6]:>8} {heading[7]:>14} {heading[8]:>6}")
    ours = {id(pair.ours): pair.ours for of_one in pairs.values() for pair in of_one}
    _show(we, list(ours.values()), [1.0])
    for name, of_one in pairs.items():
        _show(name, [pair.theirs for pair in of_one], [pair.ratio for pair in of_one])


def _show(name: str, runs: Sequence[Run], ratios: Sequence[float]) -> None:
    rate = median(run.pages_per_cpu_s for run in runs)
    pages, again = (median(getattr(run, field) for run in runs) for field in ("pages", "repeats"))
    wall, peak = median(run.usage.wall_s for run in runs), median(run.usage.peak_mb for run in runs)
    redis_us = median(run.redis_us for run in runs)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"{name:20} {pages:7,.0f} {again:6,.0f} {rate:12,.0f} {median(ratios):6.2f}  {spread:14} ", end="")
    print(f"{wall:7.1f} {peak:8.0f} {redis_us:14.1f} {median(run.speed for run in runs):6.2f}")


def short() -> list[Figure]:
    """For the table of all benchmarks: the product and the floor."""
    (pair,) = compare([], runs=1, copies=2)[BARE]
    ours = pair.ours
    return [
        Figure("throughput", "pages per CPU second", ours.pages_per_cpu_s, "pages/CPU s"),
        Figure("throughput", "... of those of bare fetching", 100 * pair.ratio, "%"),
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
    parser.add_argument("--signed", action="store_true", help="with an identity, against itself without one")
    options = parser.parse_args()
    if options.signed:
        show_signed(compare_signed(options.runs, options.copies, options.tls))
        return
    names = list(CONTENDERS) if "all" in options.against else options.against
    show(compare(names, options.runs, options.copies, options.slow_copies, options.tls))


if __name__ == "__main__":
    main()
