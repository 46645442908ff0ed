"""How long a crawl stands still while it is given another number of shards.

    python -m tests.bench.reshard [--urls 100000] [--changes 64:1024 1024:64] [--running [--links 5]]

A server gets so many queued URLs, of one domain a hundred, and a robots.txt for each domain. Then the crawl is resharded.
CPU is that of the command and that of the server, which work side by side. Replicas wait from the freeze until the
crawl is opened. The server has no log, so nothing waits for it.

Results, CPU seconds of a copy, on two cores that were busy with other work, before a single server copied whole buckets:

    queued URLs   shards            command   server
        100,000     64 -> 1024          1.4      2.7
        100,000   1024 ->   64          0.7      0.6
      1,000,000   1024 -> 2048          6.8      8.7
      1,000,000   2048 -> 1024          6.5      7.8
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from frontier.clock import ServerClock, SystemClock
from frontier.crawls import create_crawl, open_crawl
from frontier.domains import shard_of
from frontier.entries import Entry
from frontier.queue import Frontier, FrontierSettings
from frontier.reshard import Reshard, Wanted
from frontier.store import RedisStore, command, connect
from tests.bench.measure import cpu_s
from tests.bench.reshard_running import measure_running
from tests.valkey import ValkeyProcess

URLS_A_DOMAIN = 100
PUSHED_AT_ONCE = 1_000
RULES = b"x" * 600


def _entries(urls: int) -> Iterator[Entry]:
    for number in range(urls):
        domain = f"domain-{number // URLS_A_DOMAIN}.example"
        yield Entry(f"https://www.{domain}/path/to/a/page-{number}?of=some&length=typical", domain)


async def fill(store: RedisStore, shards: int, urls: int) -> None:
    """Queue `urls` URLs, and store a robots.txt for each domain."""
    crawl = await create_crawl(store, "crawl", shards, b"{}")
    clock = ServerClock(SystemClock(), store.time_ms)
    await clock.refresh()
    frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
    entries = list(_entries(urls))
    for at in range(0, urls, PUSHED_AT_ONCE):
        part = entries[at : at + PUSHED_AT_ONCE]
        await frontier.push(part)
        calls = []
        for domain in {entry.domain for entry in part}:
            key = crawl.keys.shards[shard_of(domain, shards)].robots(domain)
            calls += [command("HSET", key, f"https://www.{domain}", RULES), command("PEXPIRE", key, 86_400_000)]
        await store.send(calls)


async def measure(store: RedisStore, server: int, shards: int) -> str:
    """Reshard the crawl to `shards`, and return a line of results."""
    crawl = await open_crawl(store, "crawl")
    clock = ServerClock(SystemClock(), store.time_ms)
    await clock.refresh()
    work = Reshard(store, crawl, (SystemClock(), clock), Wanted(shards, 1_000))
    keys = 0

    def tell(step: str, done: int, total: int) -> None:
        nonlocal keys
        keys = total if step == "copied" else keys

    marks = [(time.monotonic(), time.process_time(), cpu_s(server))]

    def mark() -> None:
        marks.append((time.monotonic(), time.process_time(), cpu_s(server)))

    await work.begin(tell)
    mark()
    last_token = await work.copy(tell)
    mark()
    await work.switch(last_token)
    await work.open(last_token)
    mark()
    await work.clean(last_token, tell)
    mark()
    spent = [[after - before for before, after in zip(*pair, strict=True)] for pair in pairwise(marks)]
    steps = [
        f"{name} {seconds:5.2f} s ({own:.2f} + {of_server:.2f} CPU)"
        for name, (seconds, own, of_server) in zip(("freeze", "copy", "open", "clean"), spent, strict=True)
    ]
    return f"{crawl.shards:>6} -> {shards:>6} shards  {keys:,} keys  {'  '.join(steps)}"


async def run(urls: int, changes: list[tuple[int, int]]) -> None:
    """Measure all `changes`, each with a new server."""
    for before, after in changes:
        with tempfile.TemporaryDirectory() as folder, ValkeyProcess(Path(folder), persistent=False) as valkey:
            store = await connect(valkey.url)
            await fill(store, before, urls)
            print(f"{urls:,} URLs {await measure(store, valkey.pid, after)}", flush=True)
            await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--urls", type=int, default=100_000)
    parser.add_argument("--changes", nargs="+", default=["64:1024", "1024:64"])
    parser.add_argument("--running", action="store_true", help="reshard a crawl that runs, and measure its rate")
    parser.add_argument("--links", type=int, default=5, help="new links of each page of the crawl that runs")
    given = parser.parse_args()
    pairs = [tuple(map(int, change.split(":"))) for change in given.changes]
    changes = [(before, after) for before, after in pairs]
    if given.running:
        sys.exit(not measure_running(changes, given.links))
    asyncio.run(run(given.urls, changes))


if __name__ == "__main__":
    main()
