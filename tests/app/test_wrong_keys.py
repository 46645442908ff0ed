"""Somebody writes over keys of a running crawl, all there are of the crawl and of a shard in turn: that is reported with
the name of the key, costs at most its shard, and is over when the key is right again."""

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
from frontier.keys import prefix_of, types_of
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


@pytest.mark.parametrize("is_of_crawl", [True, False], ids=["of the crawl", "of a shard"])
async def test_each_key(
    is_of_crawl: bool, tmp_path: Path, valkey: ValkeyProcess, crawl_name: str, store: RedisStore
) -> None:
    async with crawling(tmp_path, valkey.url, crawl_name) as running:
        shards, keys = set(range(SHARDS)), running.keys
        await running.goes_on(shards)
        prefix = prefix_of(keys.meta) if is_of_crawl else keys.shards[0].base
        retry = running.replica.engine.runtime.retry
        for key, kind in types_of(prefix).items():
            # When a key is written over with another type, or with values that nobody understands,
            fields = (await store.send([command("HKEYS", key)]))[0] if kind == "hash" else []
            for are_values, calls in zip((False, True), writes_over(key, kind, fields), strict=True):
                if are_values and (key == keys.meta or not is_of_crawl):
                    continue  # the crawl counts as lost, and a shard rests for long
                copied, *_ = await store.send([command("COPY", key, "before", "REPLACE"), *calls])
                # then all other shards are crawled on, and the key is named.
                await running.goes_on(shards if is_of_crawl else shards - {0})
                if not is_of_crawl and key.removeprefix(prefix) in USED:
                    await running.until(lambda key=key: any(key in error for error in retry.errors))  # type: ignore[misc]
                await store.send([command("RENAME", "before", key) if copied else command("DEL", key)])
                await running.until(lambda: not retry.errors)
                if is_of_crawl:
                    await running.goes_on(shards)


@pytest.mark.parametrize("number", [0, 1], ids=["type", "values"])
async def test_before_a_start(
    number: int, tmp_path: Path, valkey: ValkeyProcess, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start says what is wrong, or the replica crawls or waits."""
    start = Replica.start
    for place, (tail, kind) in enumerate([*types_of("{x}:").items(), *types_of("{x:0}:").items()]):
        name = f"start{number}{place}"
        key = tail.replace("{x", f"{{{name}")

        async def starting(replica: Replica, until_empty: bool, key: str = key, kind: str = kind) -> None:
            fields = (await store.send([command("HKEYS", key)]))[0] if kind == "hash" else []
            await store.send(list(writes_over(key, kind, fields))[number])
            async with asyncio.timeout(2):
                await start(replica, until_empty)

        monkeypatch.setattr(Replica, "start", starting)
        try:
            async with crawling(tmp_path / name, valkey.url, name) as running:
                await asyncio.sleep(0.5)
                failure = running.replica.engine.tasks.failure
                assert failure is None or isinstance(failure, CrawlLost)
        except WrongType as error:
            assert key in str(error) or number == 1
        except TimeoutError:
            pass
