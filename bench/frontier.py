"""What the frontier costs: URLs a second, microseconds of the server a URL, and bytes of its memory a URL, as it grows.

    python -m bench.frontier [--urls 100000 1000000 3000000 10000000] [--urls-a-domain 100] [--drain 200000]
        [--server FILE]

For each size a new server gets so many URLs, `--urls-a-domain` of each domain on average, pushed as pages do (a page links
to 20 new URLs of its domain), in four calls at a time as several replicas would; then `--drain` of them are leased, 32 of a
domain, and settled one by one, as the crawler does. URLs are 76 bytes long on average (34 to 150), as on the Web, of
which 31 are scheme and host. "push again" offers URLs that are known. Server time is CPU of the server's process; memory is
its `used_memory` without clients, told apart by deleting the keys of each kind in turn. The longest script of each step is
from the server's slow log, which has the time that it took. All is measured twice: with the server's default limits, and
with the one that our deployments set. `--server` names another server's binary; `--set` gives the server a further setting.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import string
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from bench.measure import Figure, cpu_s
from frontier.clock import ServerClock, SystemClock
from frontier.crawls import create_crawl
from frontier.entries import Entry
from frontier.keys import CrawlKeys
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import command
from frontier.settle import Lease, SettledUrl, Settlement
from frontier.store import RedisStore, connect
from tests.valkey import ValkeyProcess

SHARDS = 1_024
URLS_A_DOMAIN = 100
LINKS_A_PAGE = 20
PUSHED_AT_ONCE = 1_000
CALLS_AT_ONCE = 4
LEASED_SHARDS = 64

AS_DEPLOYED = ("--zset-max-listpack-value", "512")
"""What the embedded server, compose and Kubernetes set, and docs/how-to/configure-redis.md advises."""

SETTLED_AT_ONCE = 64
SLOW_US = 500
"""Calls that take longer are in the server's slow log."""


@dataclass(frozen=True, slots=True)
class Server:
    """Which server is measured: its binary (None: the one that the product embeds), and settings for it."""

    binary: Path | None = None
    options: tuple[str, ...] = ()


@dataclass(slots=True)
class Costs:
    """Of one size: seconds and server CPU seconds of each step by its number of URLs, and size by what they hold."""

    urls: int
    url_length: float = 0.0
    steps: dict[str, Step] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    longest_ms: dict[str, float] = field(default_factory=dict)  # of each step, the longest call

    @property
    def over(self) -> float:
        """Bytes a queued URL, beyond its length."""
        return self.memory["queued"] - self.url_length


@dataclass(frozen=True, slots=True)
class Step:
    """One kind of call, made for `urls` URLs."""

    urls: int
    wall_s: float
    server_s: float

    @property
    def per_s(self) -> float:
        return self.urls / self.wall_s

    @property
    def server_us(self) -> float:
        return self.server_s / self.urls * 1e6


def entries(count: int, of_domain: int = URLS_A_DOMAIN) -> Iterator[Entry]:
    """`count` new URLs: pages of random domains link to LINKS_A_PAGE pages of their own each. With one URL `of_domain`,
    each is of a domain of its own."""
    rng = random.Random(1)
    domains = max(1, count // of_domain)
    text = "".join(rng.choices(string.ascii_lowercase + "-/", k=10_000))
    for number in range(count):
        if of_domain == 1:
            domain = f"site-{number:07}.example"
        elif number % LINKS_A_PAGE == 0:
            domain = f"site-{rng.randrange(domains):07}.example"
        tail = min(110, int(rng.expovariate(1 / 42)))  # lengths of URLs have a long end
        at = rng.randrange(9_900)
        url = f"https://www.{domain}/{number:x}/{text[at : at + tail]}"
        yield Entry(url, domain, priority=-1.0, depth=1)


@asynccontextmanager
async def empty_frontier(folder: Path, server: Server) -> AsyncIterator[tuple[Frontier, RedisStore, int]]:
    """A frontier on a server of its own, its store, and the server's process id."""
    with ValkeyProcess(folder, persistent=False, binary=server.binary, options=server.options) as valkey:
        store = await connect(valkey.url, timeout_s=60)
        crawl = await create_crawl(store, "bench", SHARDS, b"{}")
        clock = ServerClock(SystemClock(), store.time_ms)
        await clock.refresh()
        settings = FrontierSettings(lease_ms=600_000)
        try:
            yield Frontier(store, crawl.keys, clock, settings, crawl.fingerprint_key), store, valkey.pid
        finally:
            await store.close()


async def measure(count: int, drain: int, server: Server = Server(), of_domain: int = URLS_A_DOMAIN) -> Costs:
    """Fill, drain and weigh a frontier of `count` URLs."""
    costs = Costs(count)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with empty_frontier(Path(folder), server) as (frontier, store, pid):
            costs.url_length = sum(len(entry.url) for entry in entries(10_000)) / 10_000
            await store.send([command("CONFIG", "SET", "slowlog-log-slower-than", SLOW_US, "slowlog-max-len", 100_000)])
            leases: list[Lease] = []
            works: dict[str, Callable[[], AsyncIterator[int]]] = {
                "push": lambda: _push_all(frontier, entries(count, of_domain)),
                "push again": lambda: _push_all(frontier, islice(entries(count, of_domain), drain)),
                "lease": lambda: _lease(frontier, min(drain, count // 2), leases),
                "settle": lambda: _settle(frontier, leases),
            }
            at_rest = await used_memory(store)
            for name, work in works.items():
                costs.steps[name] = await step(pid, work())
                costs.longest_ms[name] = await _longest_ms(store)
                if name == "push":
                    costs.memory["all"] = (await used_memory(store) - at_rest) / count
            queued = count - sum(len(lease.entries) for lease in leases)
            domains = await _weigh_queue(store, frontier.keys, costs, queued, of_domain)
            costs.memory["domain"] = await freed(store, frontier.keys, "d:*") / domains
            costs.memory["seen"] = await freed(store, frontier.keys, "seen:*") / count
    return costs


async def _longest_ms(store: RedisStore) -> float:
    """The longest call since this was asked last, in milliseconds; 0 if none took more than `SLOW_US`."""
    entries, _ = await store.send([command("SLOWLOG", "GET", -1), command("SLOWLOG", "RESET")])
    return max((took_us / 1000 for _, _, took_us, (name, *_), *_ in entries if name == b"EVALSHA"), default=0.0)


async def _weigh_queue(store: RedisStore, keys: CrawlKeys, costs: Costs, queued: int, of_domain: int) -> int:
    queues = await freed(store, keys, "q:*")
    domains = sum(await store.send([command("ZCARD", shard.due) for shard in keys.shards]))
    queues += await freed(store, keys, "due")
    costs.memory["queued"] = queues / queued
    return max(1, costs.urls // of_domain, domains)


async def step(pid: int, work: AsyncIterator[int]) -> Step:
    """Do `work`, which tells how many URLs it has seen to each time; the seconds it took."""
    started, before, urls = time.monotonic(), cpu_s(pid), 0
    async for done in work:
        urls += done
    return Step(urls, time.monotonic() - started, cpu_s(pid) - before)


async def _push_all(frontier: Frontier, new: Iterator[Entry]) -> AsyncIterator[int]:
    while True:
        batches = [batch for _ in range(CALLS_AT_ONCE) if (batch := list(islice(new, PUSHED_AT_ONCE)))]
        if not batches:
            return
        await asyncio.gather(*(frontier.push(batch) for batch in batches))
        yield sum(map(len, batches))


async def _lease(frontier: Frontier, wanted: int, leases: list[Lease]) -> AsyncIterator[int]:
    """Lease until `wanted` URLs are leased, or nothing is due."""
    taken, before = 0, -1
    while taken < wanted and taken != before:
        before = taken
        for at in range(0, SHARDS, LEASED_SHARDS):
            shards = range(at, min(SHARDS, at + LEASED_SHARDS))
            answers, _ = await frontier.lease(shards, epoch=1, replica="bench", max_domains=2)
            found = [lease for answer in answers for lease in answer.leases]
            leases += found
            urls = sum(len(lease.entries) for lease in found)
            taken += urls
            yield urls
            if taken >= wanted:
                return


async def _settle(frontier: Frontier, leases: Sequence[Lease]) -> AsyncIterator[int]:
    """Settle the URLs of `leases`, the first ones of all first: one URL a call, as pages come in."""
    longest = max((len(lease.entries) for lease in leases), default=0)
    for at in range(longest):
        ready = [lease for lease in leases if at < len(lease.entries)]
        for first in range(0, len(ready), SETTLED_AT_ONCE):
            group = ready[first : first + SETTLED_AT_ONCE]
            settled = [
                Settlement(
                    lease, next_ms=0, delay_ms=1_000, state="", urls=[SettledUrl(lease.entries[at], "done", "200")]
                )
                for lease in group
            ]
            await frontier.settle(settled)
            yield len(group)


async def used_memory(store: RedisStore) -> int:
    """Bytes in use, buffers of connections excepted, once everything deleted has been freed."""
    while int((found := await store.info("memory"))["lazyfree_pending_objects"]):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return int(found["used_memory"]) - int(found["mem_clients_normal"])


async def freed(store: RedisStore, keys: CrawlKeys, kind: str) -> int:
    """Bytes that deleting all keys of a kind gives back. `kind`: what follows the shard's prefix, `*` for any end."""
    before = await used_memory(store)
    cursor, end = b"0", kind.removesuffix("*")
    while True:
        (reply,) = await store.send([command("SCAN", cursor, "MATCH", f"*}}:{end}*", "COUNT", 10_000)])
        cursor, found = reply
        if found:
            await store.send([command("DEL", *found)])
        if cursor == b"0":
            return before - await used_memory(store)


def show(costs: Costs, heading: bool) -> None:
    steps = ("push", "push again", "lease", "settle")
    if heading:
        print(f"{'':>10}  {'URLs a second':^35}  {'server us a URL':^29}  {'bytes':^37}  longest script, ms")
        print(f"{'URLs':>10}  " + " ".join(f"{name:>8.8}" for name in steps), end="  ")
        print(" ".join(f"{name:>6.6}" for name in steps), end="  ")
        print(f"{'a seen':>8} {'a queued':>9} {'a domain':>9} {'all/URL':>8}", end="  ")
        print(" ".join(f"{name:>6.6}" for name in steps))
    print(f"{costs.urls:10,}  " + " ".join(f"{costs.steps[name].per_s:8,.0f}" for name in steps), end="  ")
    print(" ".join(f"{costs.steps[name].server_us:6.1f}" for name in steps), end="  ")
    size = costs.memory
    queued = f"{size['queued']:5.0f} ({costs.url_length:.0f}{costs.over:+.0f})"
    print(f"{size['seen']:8.2f} {queued:>9} {size['domain']:9.0f} {size['all']:8.0f}", end="  ")
    print(" ".join(f"{costs.longest_ms[name]:6.1f}" for name in steps), flush=True)


def short() -> list[Figure]:
    """For the table of all benchmarks: 100,000 URLs."""
    costs = asyncio.run(measure(100_000, 20_000, Server(options=AS_DEPLOYED)))
    by_default = asyncio.run(measure(100_000, 20_000))
    size, over, default_over = costs.memory, costs.over, by_default.over
    figures = [
        Figure("frontier", f"{name}: server's CPU a URL", one.server_us, "us") for name, one in costs.steps.items()
    ]
    figures.append(Figure("frontier", "memory a seen URL", size["seen"], "bytes", "<= 10", size["seen"] <= 10))
    figures.append(Figure("frontier", "memory a queued URL, above its length", over, "bytes", "<= 40", over <= 40))
    figures.append(Figure("frontier", "... with the server's default limits", default_over, "bytes"))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, nargs="+", default=[100_000, 1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--urls-a-domain", type=int, default=URLS_A_DOMAIN)
    parser.add_argument("--drain", type=int, default=200_000)
    parser.add_argument("--server", type=Path)
    parser.add_argument("--set", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    options = parser.parse_args()
    more = tuple(word for name, value in options.set for word in (f"--{name}", value))
    for limits, settings in (("default", ()), ("as deployed", AS_DEPLOYED)):
        print(f"limits: {limits} {' '.join(settings)}")
        for number, count in enumerate(options.urls):
            server = Server(options.server, (*settings, *more))
            costs = asyncio.run(measure(count, options.drain, server, options.urls_a_domain))
            show(costs, heading=number == 0)


if __name__ == "__main__":
    main()
