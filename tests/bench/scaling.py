"""How work splits over 1, 2 and 4 replicas on one machine, and what the peer loop costs in Redis calls.

    python -m tests.bench.scaling [--seconds 120] [--replicas 1 2 4]

A synthetic web of equal domains on loopback, 0.05 s delay, on two cores that replicas, web and
Valkey share: the rate hardly grows, and the share of each replica shrinks. The idle cost is
read from a crawl without URLs: commands a replica and interval. docs/explanation/speed.md has the last result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from crawler.observe.snapshot import Status, status
from frontier.crawls import open_crawl
from frontier.store import command, connect
from tests.valkey import ValkeyProcess

CRAWLER = [sys.executable, "-m", "crawler"]
INTERVAL_S = 1.0


@contextmanager
def simweb(domains: int, pages: int) -> Iterator[list[str]]:
    """A synthetic web in a process of its own; yields its host map."""
    words = [sys.executable, "-m", "tests.simweb", "--domains", str(domains), "--pages", str(pages)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["host_map"]
    finally:
        process.terminate()
        process.wait()


@contextmanager
def replicas(count: int, redis_url: str, out: Path) -> Iterator[None]:
    """`count` replicas that run until the block ends."""
    words = [*CRAWLER, "run", "--redis", redis_url, "--interval", str(INTERVAL_S)]
    accept = {"CRAWLER_REPLICA__ACCEPT": '["fetch.host_map"]'}
    quiet = {**os.environ, **accept, "CRAWLER_REPLICA__LOG_LEVEL": "warning"}
    running = [subprocess.Popen([*words, "--out", str(out / str(number))], env=quiet) for number in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait()


async def look(redis_url: str) -> tuple[Status, dict[str, Any]]:
    """The crawl's status, and the server's calls by command."""
    store = await connect(redis_url)
    try:
        (info,) = await store.send([command("INFO", "commandstats")])
        text = info.decode() if isinstance(info, bytes) else str(info)
        calls = {
            line.split(":")[0].removeprefix("cmdstat_"): int(line.split("calls=")[1].split(",")[0])
            for line in text.splitlines()
            if line.startswith("cmdstat_")
        }
        return await status(store, await open_crawl(store, "crawl")), calls
    finally:
        await store.close()


def measure(count: int, seconds: float, seeds: list[str], host_map: list[str]) -> tuple[Status, dict[str, int]]:
    """A crawl of `seconds` with `count` replicas: its last status, and the server's calls in the second half."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        valkey = stack.enter_context(ValkeyProcess(folder, persistent=False))
        settings = folder / "settings.toml"
        settings.write_text(
            f'[politeness]\ndelay = 0.05\naddress_rate_limit = "off"\n[fetch]\nhost_map = {host_map!r}\n'
            '[frontier]\nshards = 64\n[scope]\nkind = "any"\n'
        )
        seed = [*CRAWLER, "seed", *seeds, "--redis", valkey.url, "--settings", str(settings)]
        subprocess.run(seed, check=True, stdout=subprocess.DEVNULL)
        with replicas(count, valkey.url, folder):
            time.sleep(seconds / 2)
            _, before = asyncio.run(look(valkey.url))
            time.sleep(seconds / 2)
            found, after = asyncio.run(look(valkey.url))
    return found, {name: calls - before.get(name, 0) for name, calls in after.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    with simweb(domains=40, pages=200_000) as host_map:
        seeds = [f"http://d{number:05}.test/" for number in range(40)]
        print("replicas  pages/s  shards of each      pages of each")
        for count in options.replicas:
            found, _ = measure(count, options.seconds, seeds, host_map)
            shards = "/".join(str(record.shards) for record in found.replicas)
            pages = "/".join(f"{record.pages:,}" for record in found.replicas)
            print(f"{count:8}  {found.pages_per_s:7.1f}  {shards:18}  {pages}")
        print("\nidle crawl: calls a replica and interval")
        for count in options.replicas:
            _, calls = measure(count, 20, ["http://nobody.invalid/"], ["nobody.invalid=127.0.0.1:9"])
            each = {name: number / count / (10 / INTERVAL_S) for name, number in calls.items()}
            told = ", ".join(f"{name} {number:.1f}" for name, number in sorted(each.items()) if number >= 0.5)
            print(f"{count:8}  {told}")


if __name__ == "__main__":
    main()
