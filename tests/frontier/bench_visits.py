"""Measures the memory of Redis for each known page beyond its URL: `python -m tests.frontier.bench_visits [PAGES]`.

The last result, with 50,000 pages whose URLs are stored in 30 bytes and whose state has 87: 263 bytes a page of one domain,
and 207 of 1,000 domains, beyond what a settled page takes.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from crawler.scope.revisits import Visits
from frontier.entries import Entry
from frontier.queue import Frontier, FrontierSettings, SettledUrl, Settlement
from frontier.settlements import revisit
from frontier.store import RedisStore, connect
from tests.frontier.helpers import ManualTime, make_frontier
from tests.valkey import ValkeyProcess

DAY = 86_400
STATE = str(
    Visits(1.7e9 + 0.123456, 1.69e9 + 0.654321, 3 * DAY, 1, 20, 5, 20 * DAY, 60 * DAY, 0, "5f" * 6, 'e"5f3c2b1a-1a2b"')
)


async def used(store: RedisStore) -> int:
    return int((await store.info("memory"))["used_memory"])


async def know(frontier: Frontier, time: ManualTime, shards: int) -> None:
    while True:
        leased, _ = await frontier.lease(range(shards), 1, "r1", 64)
        leases = [lease for reply in leased for lease in reply.leases]
        if not leases:
            return
        settlements = [
            Settlement(
                lease,
                0,
                urls=[revisit(SettledUrl(one, "done", "200"), "new", time.ms + 10**9, STATE) for one in lease.entries],
            )
            for lease in leases
        ]
        await frontier.settle(settlements)


async def measure(url: str, pages: int, domains: int) -> None:
    store, time = await connect(url), ManualTime()
    settings = FrontierSettings(batch=1_000, delay_ms=0, pack_above=0)
    plain, known = [await make_frontier(store, f"{name}{domains}", time, settings) for name in ("plain", "known")]
    names = [f"d{number}.test" for number in range(domains)]
    entries = [
        Entry(f"https://www.{names[number % domains]}/docs/section/page-{number:06d}.html", names[number % domains])
        for number in range(pages)
    ]
    before = await used(store)
    for frontier, is_known in ((plain, False), (known, True)):
        for at in range(0, pages, 5_000):
            await frontier.push(entries[at : at + 5_000])
            if is_known:
                await know(frontier, time, 1)
            else:
                await leave(frontier)
        after = await used(store)
        print(f"{domains} domains, {'known' if is_known else 'plain'}: {(after - before) / pages:.0f} bytes a page")
        before = after
    path = sum(len(entry.raw) - 6 for entry in entries) / pages
    print(f"stored of each URL: {path:.0f} bytes; state: {len(STATE)} bytes")
    await store.close()


async def leave(frontier: Frontier) -> None:
    while True:
        leased, _ = await frontier.lease([0], 1, "r1", 64)
        if not leased[0].leases:
            return
        await frontier.settle(
            [
                Settlement(lease, 0, urls=[SettledUrl(one, "done", "200") for one in lease.entries])
                for lease in leased[0].leases
            ]
        )


def main() -> None:
    pages = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    for domains in (1, 1_000):
        with tempfile.TemporaryDirectory() as folder, ValkeyProcess(Path(folder), persistent=False) as server:
            asyncio.run(measure(server.url, pages, domains))


if __name__ == "__main__":
    main()
