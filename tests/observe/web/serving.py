"""A replica's HTTP server on loopback, and a crawl for it to show."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from crawler.observe import summary
from crawler.observe.health import Failure, HealthRecord, LatestItem
from crawler.observe.web import Live, ServerAddress, StatePages, StatusServer
from frontier.clock import SystemClock
from frontier.keys import CrawlKeys
from frontier.peers import Health
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, entry, make_frontier

HOSTILE = "http://evil.test/<img/src=x/onerror=document.title='owned'>"


@asynccontextmanager
async def serving(
    store: RedisStore,
    crawl: str,
    reason: str | None = None,
    listen: str = "127.0.0.1:0",
    items: Mapping[str, Collection[LatestItem]] | None = None,
) -> AsyncIterator[StatusServer]:
    live = Live(store, CrawlKeys(crawl, 4), "r1", SystemClock())
    server = StatusServer(
        ServerAddress(listen, hosts=("proxy.test",)),
        lambda: b"up 1\n",
        lambda: (reason is None, reason or "ready"),
        live,
        StatePages(store, crawl, items),
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def populate(store: RedisStore, crawl: str, address: str) -> None:
    """Write the health records of two replicas and a summary."""
    time = ManualTime()
    frontier = await make_frontier(store, crawl, time, shards=4)
    await frontier.push([entry(f"https://{name}.test/", f"{name}.test") for name in "abc"])
    await frontier.lease(range(4), 1, "r1", 1)
    taken = await summary.take(store, frontier.keys, time.ms, "r1", {"r1"})
    await summary.save(store, frontier.keys, taken, 60)
    health = Health(store, frontier.keys.peers, ttl_s=60)
    for index, name in enumerate(("r1", "r2"), start=1):
        failures = [Failure(1_000, HOSTILE, "retry", "timeout")]
        record = HealthRecord(name, address, 5, index, 2, 1, 10, 99, 2.5, 50.0, False, 1, 3, failures)
        await health.report(name, msgspec.json.encode(record))


async def get(address: str, path: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as response:
        return response.status, response.headers.get("Content-Type", ""), await response.text()
