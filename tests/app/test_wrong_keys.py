"""Somebody writes over a key of a crawl, any of the whole crawl or of a shard: that is reported with the name of the key,
costs at most its shard, and is over when the key is right again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crawler.app.engine import production_dependencies
from crawler.app.replica import Replica
from crawler.cli.seeds import gather_seeds, push_seeds
from crawler.events import Event, PageSettled
from crawler.settings.load import load
from frontier.crawls import create_crawl
from frontier.errors import CrawlLost, WrongType
from frontier.keys import types_of
from frontier.scripts import command
from frontier.store import RedisStore, connect
from tests.frontier.helpers import writes_over
from tests.site import Request, Site
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.long

USED = {"owner", "stats", "due", "leases", "waiting"}
"""The keys of a shard that every lease needs. A wrong type of others is found when they are needed."""

SHARDS, HOSTS = 4, [f"h{number}.test" for number in range(24)]


def respond(request: Request) -> str | None:
    """Pages without end, each of which links to the next one and to another host."""
    if request.path == "/robots.txt":
        return None
    number = int(request.path[1:] or 0)
    others = f"http://{HOSTS[number % len(HOSTS)]}/"
    return f"<title>{number}</title><a href=/{number + 1}>next</a><a href={others}>other</a>"


class Crawling:
    """A replica that crawls."""

    def __init__(self, replica: Replica) -> None:
        self.replica, self.done = replica, Counter[int]()
        self.keys = replica.crawl.keys
        replica.engine.runtime.events.subscribe(self._observe)

    def _observe(self, event: Event) -> None:
        if isinstance(event, PageSettled):
            self.done[self.keys.shard_of(event.page.domain)] += 1

    async def goes_on(self, shards: set[int]) -> None:
        """Wait until some more pages of each of `shards` are settled."""
        before = self.done.copy()
        await self.until(lambda: all(self.done[shard] > before[shard] + 3 for shard in shards))

    async def until(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not is_true():
                assert self.replica.engine.tasks.failure is None
                await asyncio.sleep(0.05)


@asynccontextmanager
async def crawling(folder: Path, redis: str, name: str) -> AsyncIterator[Crawling]:
    with Site(respond) as site:
        chosen = load(
            None,
            {
                "politeness": {"delay": 0.1, "response_share": 0, "address_rate": 1000.0},
                "scope": {"kind": "seeds", "guess_sitemaps": False},
                "fetch": {"host_map": site.host_map(*HOSTS)},
                "frontier": {"shards": SHARDS, "lease": 3.0},
                "replica": {"redis": redis, "data_dir": folder / "data", "out": folder / "out", "interval": 1.0},
            },
        )
        store = await connect(redis)
        try:
            opened = await create_crawl(store, name, SHARDS, chosen.crawl.to_json())
            seeds = gather_seeds(chosen.crawl, [f"http://{host}/" for host in HOSTS], ())
            await push_seeds(store, opened, seeds, chosen)
            deps = production_dependencies(opened, store, chosen.crawl, chosen.replica)
            replica = Replica(store, deps, chosen.crawl, chosen.replica)
            running = Crawling(replica)
            await replica.start(until_empty=False)
            try:
                yield running
            finally:
                await replica.stop()
        finally:
            await store.close()


KEYS = {**types_of("{x}:"), **types_of("{x:0}:")}


@pytest.mark.parametrize("key", KEYS)
async def test_of_a_running_crawl(
    key: str, tmp_path: Path, valkey: ValkeyProcess, crawl_name: str, store: RedisStore
) -> None:
    kind, is_of_crawl = KEYS[key], key.startswith("{x}")
    key = key.replace("{x", f"{{{crawl_name}")
    async with crawling(tmp_path, valkey.url, crawl_name) as running:
        shards, retry = set(range(SHARDS)), running.replica.engine.runtime.retry
        await running.goes_on(shards)
        # When the key is written over with another type, or with values that nobody understands,
        fields = (await store.send([command("HKEYS", key)]))[0] if kind == "hash" else []
        for are_values, calls in zip((False, True), writes_over(key, kind, fields), strict=True):
            if are_values and (key == running.keys.meta or not is_of_crawl):
                continue  # the crawl counts as lost, and a shard rests for long
            copied, *_ = await store.send([command("COPY", key, "before", "REPLACE"), *calls])
            # then all other shards are crawled on, and the key is named.
            await running.goes_on(shards if is_of_crawl else shards - {0})
            if not is_of_crawl and key.rpartition(":")[2] in USED:
                await running.until(lambda: any(key in error for error in retry.errors))
            await store.send([command("RENAME", "before", key) if copied else command("DEL", key)])
            await running.until(lambda: not retry.errors)
            if is_of_crawl:
                await running.goes_on(shards)


@pytest.mark.parametrize("are_values", [False, True], ids=["type", "values"])
@pytest.mark.parametrize("key", KEYS)
async def test_before_a_start(
    key: str,
    are_values: bool,
    tmp_path: Path,
    valkey: ValkeyProcess,
    crawl_name: str,
    store: RedisStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The start says what is wrong, or the replica crawls or waits."""
    start, kind = Replica.start, KEYS[key]
    key = key.replace("{x", f"{{{crawl_name}")

    async def starting(replica: Replica, until_empty: bool) -> None:
        fields = (await store.send([command("HKEYS", key)]))[0] if kind == "hash" else []
        await store.send(list(writes_over(key, kind, fields))[are_values])
        async with asyncio.timeout(2):
            await start(replica, until_empty)

    monkeypatch.setattr(Replica, "start", starting)
    try:
        async with crawling(tmp_path, valkey.url, crawl_name) as running:
            await asyncio.sleep(0.5)
            failure = running.replica.engine.tasks.failure
            assert failure is None or isinstance(failure, CrawlLost)
    except WrongType as error:
        assert key in str(error) or are_values
    except TimeoutError:
        pass
