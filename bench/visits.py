"""Measures known pages: `python -m bench.visits [--pages N] [--domains N] [--timed]`.

First, the memory of Redis for each known page beyond what a settled page takes; then, with `--timed`, the time of the
server's scripts, and of lease calls and surveys by this process's clock, with one domain whose pages are all due at once.

The last results: docs/how-to/visit-pages-again.md. With a million pages of one domain, and nothing else on the machine, 55
bytes a page; the longest scripts while these were made known took 9.6 ms (settle; 8.1 ms for pages that are not visited
again), then 5.3 ms (lease) and 1.1 ms (settle).
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import perf_counter

from crawler.scope.next_visit import Visits
from frontier.counters import survey
from frontier.entries import Entry
from frontier.known_pages import refresh_domain
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import ALL
from frontier.settle import Lease, SettledUrl, Settlement, with_next_visit
from frontier.store import RedisStore, connect
from tests.frontier.helpers import ManualTime, ask, make_frontier
from tests.valkey import ValkeyProcess

DAY = 86_400
LATER_MS = 10**9
AT_ONCE = 5_000
ETAG = 'e"5f3c2b1a-1a2b"'
STATE = str(Visits(1.7e9 + 0.123456, 1.69e9 + 0.654321, 3 * DAY, 1, 20, 5, 20 * DAY, 60 * DAY, 0, "5f" * 6, ETAG))
LEASES = 1_000
SLOW_US = 1_000
SURVEYS = 200
NAMES = 20  # of domains that a survey lists at each end


def pages_of(names: list[str], first: int, last: int) -> list[Entry]:
    count = len(names)
    return [
        Entry(f"https://www.{names[number % count]}/docs/section/page-{number:06d}.html", names[number % count])
        for number in range(first, last)
    ]


async def settle(frontier: Frontier, leases: Sequence[Lease], due_ms: int | None, found: str) -> int:
    """Settle `leases` as done, and known until `due_ms`. Returns how many pages that were."""
    settlements = []
    for lease in leases:
        urls = [SettledUrl(one, "done", "200") for one in lease.entries]
        if due_ms is not None:
            urls = [with_next_visit(url, found, due_ms, STATE) for url in urls]
        settlements.append(Settlement(lease, 0, urls=urls))
    await frontier.settle(settlements)
    return sum(len(settlement.urls) for settlement in settlements)


async def lease(frontier: Frontier) -> Sequence[Lease]:
    leased, _ = await frontier.lease([0], 1, "r1", 64)
    return leased[0].leases


async def fill(frontier: Frontier, names: list[str], pages: int, due_ms: int | None) -> None:
    for at in range(0, pages, AT_ONCE):
        await frontier.push(pages_of(names, at, min(at + AT_ONCE, pages)))
        while await settle(frontier, await lease(frontier), due_ms, "new"):
            pass


async def used(store: RedisStore) -> int:
    return int((await store.info("memory"))["used_memory"])


async def measure_memory(store: RedisStore, time: ManualTime, pages: int, domains: int) -> Frontier:
    settings = FrontierSettings(batch=32, delay_ms=0, pack_above=0, known_share=0.5)
    names = [f"d{number}.test" for number in range(domains)]
    before, taken = await used(store), []
    for name, due_ms in (("plain", None), ("known", time.ms + LATER_MS)):
        frontier = await make_frontier(store, f"{name}{domains}", time, settings)
        await fill(frontier, names, pages, due_ms)
        await show_longest(store, name)  # it takes the log from memory, too
        after = await used(store)
        taken.append((after - before) / pages)
        before = after
    url = sum(len(entry.raw) - 6 for entry in pages_of(names, 0, pages)) / pages
    print(
        f"{pages:,} pages, {domains} domains: {taken[1] - taken[0] - url:.0f} bytes a page beyond {url:.0f} of its URL"
    )
    return frontier


async def show_longest(store: RedisStore, what: str) -> None:
    """Print how long each kind of script took at most since the last call, if it took more than 1 ms."""
    names = {script.sha: script.name for script in ALL}
    longest: dict[str, float] = {}
    for one in await ask(store, "SLOWLOG", "GET", -1):
        if one[3][0] == b"EVALSHA":
            name = names[one[3][1]]
            longest[name] = max(longest.get(name, 0.0), int(one[2]) / 1000)
    print(f"{what}: longest scripts in ms: {longest or 'below 1'}")
    await ask(store, "SLOWLOG", "RESET")


async def measure_times(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    async def look() -> None:
        await survey(store, frontier.keys, [0], time.ms, NAMES)

    show_times("survey of a shard with no page due", [await timed(look) for _ in range(SURVEYS)])
    began = perf_counter()
    refreshed = await refresh_domain(store, frontier.keys, "d0.test", time.ms)
    print(f"refresh {refreshed:,} pages: {perf_counter() - began:.1f} s")
    await show_longest(store, "refresh")
    took = []
    for _ in range(LEASES):
        began = perf_counter()
        leases = await lease(frontier)
        took.append(perf_counter() - began)
        await settle(frontier, leases, time.ms + LATER_MS, "unchanged")
        time.ms += 1
    show_times(f"lease 32 of {refreshed:,} due", took)
    await show_longest(store, "lease and settle")
    show_times(f"survey of a shard with {refreshed:,} due", [await timed(look) for _ in range(SURVEYS)])


async def timed(action: Callable[[], Awaitable[None]]) -> float:
    began = perf_counter()
    await action()
    return perf_counter() - began


def show_times(what: str, took: list[float]) -> None:
    took.sort()
    middle, most, longest = (took[at] * 1000 for at in (len(took) // 2, -(-len(took) * 99 // 100) - 1, -1))
    print(f"{what}: median {middle:.2f} ms, 99 % within {most:.2f} ms, longest {longest:.1f} ms")


async def run(url: str, pages: int, domains: int, is_timed: bool) -> None:
    store, time = await connect(url), ManualTime()
    await ask(store, "CONFIG", "SET", "slowlog-log-slower-than", SLOW_US)
    await ask(store, "CONFIG", "SET", "slowlog-max-len", 10_000)
    frontier = await measure_memory(store, time, pages, domains)
    if is_timed:
        await measure_times(store, frontier, time)
    await store.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pages", type=int, default=200_000)
    parser.add_argument("--timed", action="store_true")
    parser.add_argument("--domains", type=int, help="1 with --timed, and otherwise 1 and then 1,000")
    words = parser.parse_args()
    for domains in (words.domains,) if words.domains else (1,) if words.timed else (1, 1_000):
        with tempfile.TemporaryDirectory() as folder, ValkeyProcess(Path(folder), persistent=False) as server:
            asyncio.run(run(server.url, words.pages, domains, words.timed))


if __name__ == "__main__":
    main()
