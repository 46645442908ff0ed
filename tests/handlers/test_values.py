"""Values that handlers share: in Redis, and in the memory of a test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawler import Context, Handle, OutgoingRequest, ParsedPage, Router, SharedValues, UserError
from crawler.events import Events
from crawler.handlers import values
from crawler.handlers.middlewares import Middlewares
from crawler.handlers.runner import HandlerRunner, Lifecycle
from crawler.handlers.values import in_redis
from crawler.redis_retry import RedisRetry
from crawler.settings.tables import HandlersTable
from crawler.testing import page, run_handler
from frontier.clock import SystemClock
from frontier.crawls import crawl_clock, create_crawl, open_crawl
from frontier.keys import CrawlKeys
from frontier.reshard import Reshard
from frontier.scripts import command
from frontier.shard_contents import remove_crawl
from frontier.shards import Nodes
from frontier.store import RedisStore, connect
from tests.frontier.helpers import CountingStore, reshard_crawl
from tests.valkey import ValkeyProcess
from tests.valkey_cluster import ValkeyCluster

KEY = "{shop}:values"


def retry() -> RedisRetry:
    return RedisRetry(SystemClock(), Events(), random.Random(1))


@pytest.fixture(params=["redis", "memory"])
def shared(request: pytest.FixtureRequest, store: RedisStore, crawl_name: str) -> SharedValues:
    in_memory = request.param == "memory"
    return SharedValues(None if in_memory else in_redis(store, f"{{{crawl_name}}}:values", retry()))


@pytest.mark.parametrize("value", [None, 0, 1.5, "é", [1, {"a": None}], {"b": [True]}])
async def test_values_are_those_that_json_has(shared: SharedValues, value: Any) -> None:
    assert await shared.get("x", "none") == "none"
    await shared.set("x", value)
    assert await shared.get("x", "none") == value
    await shared.delete("x")
    await shared.delete("x")
    assert await shared.get("x") is None


async def test_a_counter_counts_each_call_once(shared: SharedValues) -> None:
    other = SharedValues(shared.ask)
    found = await asyncio.gather(*(each.increment("n") for each in [shared, other] * 50))
    assert sorted(found) == list(range(1, 101))
    assert await shared.increment("n", -40) == 60
    await other.set("n", 2**60 + 1)
    assert await shared.increment("n", 2) == 2**60 + 3
    assert await shared.get("n") == 2**60 + 3
    with pytest.raises(ValueError, match="cannot be incremented"):
        await shared.increment("n", 2**63 - 2**60)
    for value in ("5", 5.0, None, [1]):
        await shared.set("n", value)
        with pytest.raises(ValueError, match="cannot be incremented by 1"):
            await shared.increment("n")
    for wrong in (1.5, "1", True):
        with pytest.raises(TypeError, match="by has to be a whole number"):
            await shared.increment("m", wrong)  # type: ignore[arg-type]


async def test_what_is_too_much_is_refused(shared: SharedValues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_VALUES", 2)
    for name in ("", "é" * 101):
        with pytest.raises(ValueError, match="1 to 200 bytes"):
            await shared.get(name)
    with pytest.raises(ValueError, match="may have 8,192"):
        await shared.set("x", "y" * 8192)
    with pytest.raises(TypeError):
        await shared.set("x", object())
    await shared.set("a", 1)
    await shared.increment("b")
    for change in (shared.set("c", 1), shared.increment("c")):
        with pytest.raises(ValueError, match="one value more than"):
            await change
    await shared.set("a", 2)
    await shared.increment("b")
    await shared.delete("a")
    await shared.set("c", 1)


async def test_a_reshard_keeps_the_values_and_the_end_of_the_crawl_removes_them(
    store: RedisStore, crawl_name: str
) -> None:
    crawl = await create_crawl(store, crawl_name, 4, b"{}")
    shared = SharedValues(in_redis(store, crawl.keys.values, retry()))
    await shared.set("x", 1)
    clocks = (SystemClock(), await crawl_clock(store, crawl))
    await reshard_crawl(Reshard(store, crawl, clocks, 8, 1), crawl, lambda *_: None)
    crawl = await open_crawl(store, crawl_name)
    assert crawl.shards == 8
    assert await SharedValues(in_redis(store, crawl.keys.values, retry())).get("x") == 1
    await remove_crawl(store, crawl)
    assert await store.send([command("EXISTS", crawl.keys.values)]) == [0]


async def test_a_handler_waits_for_redis_beyond_its_own_time(tmp_path: Path) -> None:
    router = Router()

    @router.handler()
    async def count(page: ParsedPage, crawl: Handle) -> None:
        await crawl.push("counts", {"n": await crawl.store.increment("n")})

    with ValkeyProcess(tmp_path, persistent=True) as server:
        store, context = await connect(server.url), Context()
        context.store = SharedValues(in_redis(store, KEY, retry()))
        runner = HandlerRunner(router, HandlersTable(timeout=0.3), context)
        await context.store.set("n", 6)
        server.kill()
        handling = asyncio.ensure_future(runner.handle(page("https://shop.test/")))
        await asyncio.sleep(1)
        assert not handling.done()
        server.start()
        handled = await handling
        assert [item.fields for item in handled.items] == [{"n": 7}]
        await store.close()


async def test_a_function_for_requests_waits_for_redis_beyond_its_own_time(tmp_path: Path) -> None:
    router, request = Router(), OutgoingRequest("https://shop.test/")

    @router.before_request
    async def with_session(request: OutgoingRequest, crawl: Context) -> None:
        request.cookies["session"] = await crawl.store.get("session")

    with ValkeyProcess(tmp_path, persistent=True) as server:
        store, context = await connect(server.url), Context()
        context.store = SharedValues(in_redis(store, KEY, retry()))
        await context.store.set("session", "abc")
        server.kill()
        asking = asyncio.ensure_future(Middlewares(router, context, 0.3).before(request))
        await asyncio.sleep(1)
        assert not asking.done()
        server.start()
        await asking
        assert request.fields == (("Cookie", "session=abc"),)
        await store.close()


@pytest.mark.e2e
@pytest.mark.long
async def test_a_cluster_has_the_values_also_after_a_failover(crawl_name: str) -> None:
    with ValkeyCluster() as cluster:
        store, keys = await connect(cluster.url), CrawlKeys(crawl_name, 8)
        patient = RedisRetry(SystemClock(), Events(), random.Random(1), nodes=Nodes(store, keys))
        shared = SharedValues(in_redis(store, keys.values, patient))
        await asyncio.gather(*(SharedValues(shared.ask).increment("n") for _ in range(50)))
        await asyncio.sleep(1)  # its replica has the writes
        owner = cluster.owner(keys.values)
        assert owner is not None
        owner.kill()
        assert await shared.increment("n") == 51
        await store.close()


async def test_a_page_without_the_store_sends_nothing(store: RedisStore) -> None:
    router = Router()

    @router.handler()
    async def nothing(page: ParsedPage, crawl: Handle) -> None: ...

    counting, context = CountingStore(store), Context()
    context.store = SharedValues(in_redis(counting, KEY, retry()))
    await HandlerRunner(router, HandlersTable(), context).handle(page("https://shop.test/"))
    assert not counting.calls


def never_awaited(crawl: Handle) -> None:
    crawl.store.increment("n")


def in_another_loop(crawl: Handle) -> None:
    async def count() -> None:
        await crawl.store.increment("n")

    asyncio.run(count())


def request_in_another_loop(crawl: Handle) -> None:
    async def request() -> None:
        await crawl.fetch("/a")

    asyncio.run(request())


@pytest.mark.parametrize("use", [never_awaited, in_another_loop, request_in_another_loop])
def test_a_plain_handler_cannot_await_what_belongs_to_the_crawl(use: Callable[[Handle], None]) -> None:
    """Without an event loop the call would be lost, and in another one it would leave locks of the crawl locked."""
    router = Router()

    @router.handler()
    def plain(page: ParsedPage, crawl: Handle) -> None:
        use(crawl)

    assert "in a handler that is declared with `async def`" in run_handler(router, page("https://shop.test/")).error


async def test_a_plain_function_for_the_start_that_uses_the_store_fails() -> None:
    router = Router()

    @router.on_start
    def begin(crawl: Context) -> None:
        crawl.store.set("n", 1)

    with pytest.raises(UserError, match=r"begin.*declared with `async def`"):
        await Lifecycle(router, Context(), 1.0).start()


def test_handlers_in_tests_have_a_store() -> None:
    router, shared = Router(), SharedValues()

    @router.handler()
    async def count(page: ParsedPage, crawl: Handle) -> None:
        await crawl.push("counts", {"n": await crawl.store.increment("n", 2)})

    assert run_handler(router, page("https://shop.test/")).items == {"counts": [{"n": 2}]}
    asyncio.run(shared.set("n", 5))
    assert run_handler(router, page("https://shop.test/"), store=shared).items == {"counts": [{"n": 7}]}
