"""A crawl under a benchmark's eye: settings, a frontier filled beforehand, one replica as a process, and its metrics."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bench.measure import cpu_s, rss_mb
from crawler.settings.load import CrawlSettings
from crawler.settings.tables import GUARDED
from frontier.clock import ServerClock, SystemClock
from frontier.crawls import create_crawl
from frontier.entries import Entry
from frontier.queue import Frontier, FrontierSettings
from frontier.store import connect
from politeness.robots_cache import RobotsCache
from politeness.robots_fetch import RobotsRecord
from tests.ports import free_port

PUSHED_AT_ONCE = 5_000

A_DAY_MS = 86_400_000

Tables = Mapping[str, Mapping[str, Any]]
"""Settings of a crawl by table, as in its TOML file."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica that runs, and its status server's port."""

    pid: int
    port: int

    def look(self) -> Look:
        """Its state now."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as response:
            text = response.read().decode()
        values: dict[str, float] = defaultdict(float)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if "le" not in sample.labels:
                    values[sample.name.removeprefix("peercrawl_")] += sample.value
                    for label in sample.labels.values():
                        values[f"{sample.name.removeprefix('peercrawl_')} {label}"] += sample.value
        return Look(time.monotonic(), cpu_s(self.pid), rss_mb(self.pid), values)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a replica. `values`: metrics without their prefix, summed over labels, and "name value-of-label"."""

    at: float
    cpu_s: float
    rss_mb: float
    values: Mapping[str, float]

    def since(self, before: Look, name: str) -> float:
        """How much the counter `name` grew a second since the look `before`."""
        return (self.values.get(name, 0) - before.values.get(name, 0)) / (self.at - before.at)

    def cpu_since(self, before: Look) -> float:
        """Cores kept busy since the look `before`."""
        return (self.cpu_s - before.cpu_s) / (self.at - before.at)

    @property
    def pages(self) -> float:
        return self.values.get("pages_total done", 0)


def fill(
    redis_url: str, tables: Tables, entries: Iterable[Entry], shards: int = 64, without_robots: Iterable[str] = ()
) -> None:
    """Create the crawl "crawl" with these settings, and queue `entries`. `without_robots`: domains whose origin, over
    http, is known to have no robots.txt."""
    asyncio.run(_fill(redis_url, CrawlSettings.of(tables), entries, shards, without_robots))


async def _fill(
    redis_url: str, settings: CrawlSettings, entries: Iterable[Entry], shards: int, without_robots: Iterable[str]
) -> None:
    store = await connect(redis_url, timeout_s=60)
    try:
        crawl = await create_crawl(store, "crawl", shards, settings.to_json())
        clock = ServerClock(SystemClock(), store.time_ms)
        await clock.refresh()
        frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
        rest = iter(entries)
        while batch := list(islice(rest, PUSHED_AT_ONCE)):
            await frontier.push(batch)
        robots, now_ms = RobotsCache(store, frontier, "bench"), clock.now_ms()
        record = RobotsRecord("allow", "none", 404, now_ms, now_ms + A_DAY_MS)
        for domain in without_robots:
            await robots.save(f"http://{domain}", domain, record, now_ms)
    finally:
        await store.close()


@contextmanager
def running(redis_url: str, folder: Path, environment: Mapping[str, str] = {}) -> Iterator[Replica]:
    """One replica of the crawl "crawl" that runs until the block ends, then is killed: its leases are of no more use. It
    accepts all settings of the crawl. `environment`: more variables."""
    port = free_port()
    words = [sys.executable, "-m", "crawler", "run", "--redis", redis_url, "--out", str(folder / "out")]
    words += ["--interval", "1", "--listen", f"127.0.0.1:{port}"]
    accept = {"CRAWLER_REPLICA__ACCEPT": ",".join(GUARDED), "CRAWLER_REPLICA__LOG_LEVEL": "error"}
    process = subprocess.Popen(words, env={**os.environ, **accept, **environment})
    replica = Replica(process.pid, port)
    try:
        _wait_until_it_answers(replica, process)
        yield replica
    except OSError as error:
        raise SystemExit(f"the replica cannot be asked: {error}, exit code {process.poll()}") from error
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _wait_until_it_answers(replica: Replica, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            replica.look()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the replica did not start")


def watch(replica: Replica, seconds: float, every: float = 1.0) -> Iterator[Look]:
    """Looks at `replica`, every `every` seconds, for `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(max(0.0, min(every, end - time.monotonic())))
        yield replica.look()
