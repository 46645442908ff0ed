"""Good domains beside hostile ones: what the attacks cost the crawler, and what they cost the others.

    python -m tests.hostile                       100 good domains alone, then beside 100 hostile ones
    python -m tests.hostile --domains 500         the long form
    python -m tests.hostile --features all        the same with each of `FEATURES` on, one after the other

Each run is a process of its own: one replica, a polite delay, every kind of attack in turn. The good and the hostile web
are served by processes of their own, so that an attack costs the good web nothing but what the crawler makes of it.
Figures of the last run: docs/explanation/hostile-sites.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from crawler import Handle, ParsedPage, Router
from crawler.app.embedded_valkey import open_store
from crawler.app.engine import production_dependencies
from crawler.app.replica import Replica, paced_collection
from crawler.cli.seeds import gather_seeds, push_seeds
from crawler.events import Event, PageSettled
from crawler.settings.load import Settings, load
from frontier.crawls import create_crawl
from tests.simweb.features import Features, Hazard
from tests.simweb.judge import JudgeLimits, JudgeReport, Policy, expect, judge
from tests.simweb.server import RequestLog, SimWebServer, read_log
from tests.simweb.world import World

FEATURES: dict[str, dict[str, Any]] = {
    "none": {},
    "text": {"archive": {"text": "text"}},
    "near": {"archive": {"near_duplicates": "mark"}},
    "items": {"extract": [{"name": "links", "each": "a", "fields": {"href": {"css": "a", "attr": "href"}}}]},
    "handlers": {},
    "requisites": {"scope": {"links": ["canonical", "next", "prev", "alternate", "feed", "src", "srcset"]}},
    "patterns": {"scope": {"exclude": [r"/(\w+-?)+/$"]}},
    "render": {"render": {"mode": "auto"}},
}
"""What users turn on, and what a page costs more with it."""

LOADED = {"requisites": {"/decoy/logo.png"}, "render": {f"/decoy/{name}" for name in ("app.js", "site.css", "script")}}
"""What is no link for the judge, but requested with a feature."""

HEADINGS = Router()


@HEADINGS.handler(content_type="text/html")
async def headings(page: ParsedPage, crawl: Handle) -> None:
    """A handler as in the README."""
    await crawl.push("headings", {"url": page.url, "text": page.select_text("h1")})


PAGES_EACH = 12
TRIES = 2
TRAP_CAP = 40
"""URLs of a domain at most: what ends a trap. More than a good domain has."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many domains of each sort, and the seconds between two requests to one."""

    good: int
    hostile: int
    delay_s: float


def good_world(count: int) -> World:
    return World(11, count, count * PAGES_EACH, replace(Features.plain(), zipf=0.0))


def hostile_world(count: int) -> World:
    """As many attackers, all kinds in turn. A world needs a page of its own; its domain is not seeded."""
    hazards = tuple(itertools.islice(itertools.cycle(Hazard), count))
    return World(12, 1, 1, replace(Features.plain(), hazards=hazards))


def seeds(size: Size) -> list[str]:
    hostile = hostile_world(size.hostile).seeds()[1:] if size.hostile else []
    return [*good_world(size.good).seeds(), *hostile]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`good_s`: first request to the last answer at the good domains. `own_lag_s`: the longest that the event loop was
    late by its own doing. CPU seconds: `cpu_s` of the crawler, `servers_cpu_s` of the two webs, `reader_cpu_s`
    of the offload process. `reasons`: how the hostile domains' URLs ended, by hazard."""

    good_s: float
    good_requests: int
    all_s: float
    own_lag_s: float
    cpu_s: float
    servers_cpu_s: float
    reader_cpu_s: float
    peak_mb: float
    ok: bool
    reasons: dict[str, dict[str, int]]


@dataclass(slots=True)
class Served:
    """A web in a process of its own: its address and port, and afterwards what it took."""

    address: str
    cpu_s: float = 0.0


@contextlib.asynccontextmanager
async def served(sort: str, count: int, log: Path) -> AsyncIterator[Served]:
    """Serve a web in a process of its own."""
    command = [sys.executable, "-m", "tests.hostile", "serve", sort, str(count), str(log)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    web = Served((await process.stdout.readline()).decode().strip())
    try:
        yield web
    finally:
        process.terminate()
        web.cpu_s = float(await process.stdout.readline() or 0)
        await process.wait()


async def serve(sort: str, count: int, path: Path) -> None:
    world = good_world(count) if sort == "good" else hostile_world(count)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    log = RequestLog(path, keep=False)
    async with SimWebServer(world, log) as server:
        address, port = server.listening[0]
        print(f"{address}:{port}", flush=True)
        await stopping.wait()
    log.close()
    print(time.process_time(), flush=True)


def settings(folder: Path, host_map: list[str], delay_s: float, redis: str, feature: str = "none") -> Settings:
    polite = {"delay": delay_s, "backoff_base": 1.0, "response_share": 0, "tries": TRIES, "address_rate_limit": "off"}
    return load(
        None,
        {
            "politeness": polite,
            **FEATURES[feature],
            "scope": {"kind": "any", "guess_sitemaps": False, **FEATURES[feature].get("scope", {})},
            "limits": {"domain_cap": TRAP_CAP},
            "fetch": {"host_map": host_map, "connect_timeout": 5.0, "read_timeout": 5.0, "timeout": 10.0},
            "replica": {"redis": redis, "data_dir": folder / "data", "out": folder / "out", "interval": 1.0},
        },
    )


class Reasons:
    """How URLs ended: `count` of them in all, by `reasons`, and those of hostile domains also by hazard. `observe` is an
    event listener."""

    def __init__(self) -> None:
        self.count = 0
        self.reasons: Counter[str] = Counter()
        self.by_hazard: dict[str, Counter[str]] = {}

    def observe(self, event: Event) -> None:
        if not isinstance(event, PageSettled):
            return
        page = event.page
        self.count += 1
        self.reasons[page.reason] += 1
        if page.domain.startswith("h"):
            hazard = page.domain.removesuffix(".test").partition("-")[2]
            cut = f" cut:{page.exchange.truncated}" if page.exchange and page.exchange.truncated else ""
            self.by_hazard.setdefault(hazard, Counter())[f"{page.outcome}:{page.reason}{cut}"] += 1


async def crawl(folder: Path, size: Size, redis: str = "", feature: str = "none") -> tuple[Outcome, JudgeReport]:
    """Crawl both webs with one replica in this process, to the end. `redis`: URL of the store, "" for the embedded one.
    `feature`: one of `FEATURES`."""
    good_log, hostile_log = folder / "good.jsonl", folder / "hostile.jsonl"
    children_before_s = _children_cpu_s()
    async with (
        served("good", size.good, good_log) as good,
        served("hostile", size.hostile or 1, hostile_log) as hostile,
    ):
        chosen = settings(
            folder, [f"h*.test={hostile.address}", f"*.test={good.address}"], size.delay_s, redis, feature
        )
        started, cpu = time.monotonic(), time.process_time()
        replica, reasons = await crawl_to_the_end(chosen, seeds(size), HEADINGS if feature == "handlers" else None)
        all_s, cpu_s = time.monotonic() - started, time.process_time() - cpu
    records = [one for one in read_log(good_log) if one.path not in LOADED.get(feature, ())]
    world = good_world(size.good)
    result = judge(records, expect(world, world.seeds(), Policy(tries=TRIES)), JudgeLimits(delay=size.delay_s))
    outcome = Outcome(
        good_s=max(record.end for record in records) - min(record.start for record in records),
        good_requests=len(records),
        all_s=all_s,
        own_lag_s=replica.loop_lag.longest_own_s,
        cpu_s=cpu_s,
        servers_cpu_s=good.cpu_s + hostile.cpu_s,
        reader_cpu_s=_children_cpu_s() - children_before_s - good.cpu_s - hostile.cpu_s,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        ok=result.ok,
        reasons={hazard: dict(counts) for hazard, counts in sorted(reasons.by_hazard.items())},
    )
    return outcome, result


def _children_cpu_s() -> float:
    """CPU seconds of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def crawl_to_the_end(chosen: Settings, urls: list[str], router: Router | None = None) -> tuple[Replica, Reasons]:
    """Crawl from `urls` with one replica in this process, and the handlers of `router`."""
    async with open_store(chosen.replica) as store:
        opened = await create_crawl(store, "hostile", 64, chosen.crawl.to_json())
        await push_seeds(store, opened, gather_seeds(chosen.crawl, urls, ()), chosen)
        deps, reasons = production_dependencies(opened, store, chosen.crawl, chosen.replica, router=router), Reasons()
        replica = Replica(store, deps, chosen.crawl, chosen.replica)
        deps.events.subscribe(reasons.observe)
        async with paced_collection():
            await replica.start(until_empty=True)
            await replica.engine.ended.wait()
            await replica.stop()
        if (failure := replica.engine.tasks.failure) is not None:
            raise failure
    return replica, reasons


def measure(size: Size, feature: str = "none") -> Outcome:
    """One crawl in a process of its own, whose peak memory is the crawl's."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        words = ["crawl", str(size.good), str(size.hostile), str(size.delay_s), folder, feature]
        read, write = os.pipe()
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "tests.hostile", *words],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)],
        )
        os.close(write)
        with os.fdopen(read) as pipe:
            told = pipe.read()
        os.waitpid(pid, 0)
    return Outcome(**json.loads(told.splitlines()[-1]))


def main(words: list[str]) -> int:
    match words:
        case ["serve", sort, count, log]:
            asyncio.run(serve(sort, int(count), Path(log)))
            return 0
        case ["crawl", good, hostile, delay_s, folder, feature]:
            size = Size(int(good), int(hostile), float(delay_s))
            outcome, result = asyncio.run(crawl(Path(folder), size, feature=feature))
            print(result, file=sys.stderr)
            print(json.dumps(asdict(outcome)))
            return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", type=int, default=100, help="of each sort")
    parser.add_argument("--delay", type=float, default=2.0, help="seconds between two requests to a domain")
    parser.add_argument("--features", nargs="+", default=["none"], choices=["all", *FEATURES])
    options = parser.parse_args(words)
    code = 0
    for feature in FEATURES if "all" in options.features else options.features:
        if feature == "render" and shutil.which("chromium-headless-shell") is None:
            print("no chromium-headless-shell: left out with render")
            continue
        print(f"with {feature}:")
        alone = measure(Size(options.domains, 0, options.delay), feature)
        beside = measure(Size(options.domains, options.domains, options.delay), feature)
        code |= report(alone, beside)
    return code


def report(alone: Outcome, beside: Outcome) -> int:
    for name, found in (("alone", alone), ("beside", beside)):
        judged = f"{found.good_requests} requests, {'ok' if found.ok else 'NOT OK'}"
        print(
            f"{name:7} good domains {found.good_s:6.1f} s ({judged}), "
            f"all {found.all_s:6.1f} s, CPU {found.cpu_s:5.1f} s, reader {found.reader_cpu_s:5.1f} s, servers "
            f"{found.servers_cpu_s:5.1f} s, peak {found.peak_mb:4.0f} MB, "
            f"loop late {found.own_lag_s * 1000:4.0f} ms by itself"
        )
    ratio = beside.good_s / alone.good_s
    print(f"the good domains took {ratio:.3f} times as long beside the hostile ones")
    for hazard, reasons in beside.reasons.items():
        print(f"  {hazard:16}", ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items())))
    is_bounded = beside.peak_mb <= 500 and beside.own_lag_s <= 0.25
    is_fast = ratio <= 1.11  # nine tenths of the rate
    return 0 if alone.ok and beside.ok and is_fast and is_bounded else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
