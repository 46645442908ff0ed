"""Replicas whose crawl gets other shards before they have started, and the schedule of the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from crawler.app.engine import Engine, production_dependencies
from crawler.app.replica import Replica, Run, paced_collection
from crawler.errors import UserError
from crawler.events import GroupCommitted, SinkBlocked
from crawler.fetch.client import Fetcher
from crawler.observe.health import Troubles
from crawler.settings.load import CrawlSettings
from crawler.settings.tables import ReplicaTable
from frontier.clock import ServerClock
from frontier.crawls import Crawl, create_crawl, evicted_keys, open_crawl, verify_crawl
from frontier.errors import CrawlLost, RedisAway, ShardLost
from frontier.reshard import Reshard
from frontier.scripts import command
from frontier.store import RedisStore, connect
from tests.frontier.helpers import CountingStore, ManualTime, reshard_crawl
from tests.several_servers import until
from tests.valkey import ValkeyProcess


class Starting:
    """As much of a replica as `Run` needs: it verifies its crawl when it starts, as the engine does, and ends at once."""

    def __init__(self, store: RedisStore, crawl: Crawl, name: str) -> None:
        self.store, self.crawl, self.id, self.clock = store, crawl, name, ManualTime()
        ended, tasks, follower = asyncio.Event(), SimpleNamespace(failure=None), SimpleNamespace(revision=7)
        self.engine = cast(
            Any, SimpleNamespace(ended=ended, tasks=tasks, follower=follower, has_other_shards=False, uploads_left=0)
        )
        self.local = ReplicaTable()
        self.following: Starting | None = None
        self.clocks: tuple[ManualTime, ServerClock]

    async def start(self, until_empty: bool) -> None:
        await verify_crawl(self.store, self.crawl)
        self.engine.ended.set()

    async def stop(self) -> None: ...

    def next_id(self) -> str:
        return "second"

    def successor(self, name: str, crawl: Crawl) -> Starting:
        self.following = Starting(self.store, crawl, name)
        return self.following


async def _opened_before_a_reshard(store: RedisStore, name: str) -> tuple[Starting, Reshard]:
    """A replica that has opened a crawl with two shards, and a reshard to four, which has begun."""
    time = ManualTime()
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()
    replica = Starting(store, await create_crawl(store, name, 2, b"{}"), "first")
    replica.clocks = (time, clock)
    work = Reshard(store, await open_crawl(store, name), (time, clock), 4, 1)
    await work.begin(lambda step, done, total: None)
    return replica, work


async def test_it_waits_and_continues_with_the_new_shards(store: RedisStore, crawl_name: str) -> None:
    replica, work = await _opened_before_a_reshard(store, crawl_name)
    running = asyncio.create_task(Run(cast(Replica, replica), True).until_ended())
    await asyncio.sleep(0.05)
    assert not running.done()
    await reshard_crawl(work, await open_crawl(store, crawl_name, for_reshard=True), lambda step, done, total: None)
    assert await running == 0
    following = replica.following
    assert following is not None
    assert following.engine.ended.is_set()
    assert (following.id, following.crawl.shards, following.crawl.revision) == ("second", 4, 7)


async def test_it_ends_when_it_is_told_to_stop_meanwhile(store: RedisStore, crawl_name: str) -> None:
    replica, _ = await _opened_before_a_reshard(store, crawl_name)
    run = Run(cast(Replica, replica), True)
    running = asyncio.create_task(run.until_ended())
    await asyncio.sleep(0.05)
    run.stop()
    assert await running == 0
    assert replica.following is None


async def test_a_replica_that_was_refused_by_a_reshard_that_is_undone_continues(
    store: RedisStore, crawl_name: str
) -> None:
    """It reads the refusal when its shards are whole again. If they are not, it ends."""
    replica, _ = await _opened_before_a_reshard(store, crawl_name)
    run, refusal = Run(cast(Replica, replica), True), ShardLost(crawl_name, [0, 1])
    undoing = Reshard(store, await open_crawl(store, crawl_name, for_reshard=True), replica.clocks, 4, 1)
    assert await run._was_frozen(refusal, waits=True)
    await undoing.cancel(lambda step, done, total: None)
    assert await run._was_frozen(refusal, waits=True)
    await store.send([command("DEL", replica.crawl.keys.shards[1].stats)])
    assert not await run._was_frozen(refusal, waits=True)


class Ending(Starting):
    """Its crawl has ended, and while it stops, all its shards refuse it."""

    async def start(self, until_empty: bool) -> None:
        self.engine.ended.set()

    async def stop(self) -> None:
        self.engine.tasks.failure = ShardLost(self.crawl.name, [0, 1])


async def test_a_reshard_that_begins_when_the_crawl_has_ended_is_no_failure(store: RedisStore, crawl_name: str) -> None:
    replica, work = await _opened_before_a_reshard(store, crawl_name)
    frozen, resharded = (cast(Replica, Ending(store, replica.crawl, name)) for name in ("first", "second"))
    assert await Run(frozen, True).until_ended() == 0
    await reshard_crawl(work, await open_crawl(store, crawl_name, for_reshard=True), lambda step, done, total: None)
    assert await Run(resharded, True).until_ended() == 0


async def test_shards_that_are_lost_when_the_crawl_has_ended_are_a_failure(store: RedisStore, crawl_name: str) -> None:
    crawl = await create_crawl(store, crawl_name, 2, b"{}")
    await store.send([command("DEL", of.stats) for of in crawl.keys.shards])
    with pytest.raises(ShardLost):
        await Run(cast(Replica, Ending(store, crawl, "first")), True).until_ended()


class Node:
    """An object with a reference to itself."""

    def __init__(self) -> None:
        self.itself = self


async def test_cycles_are_collected_only_on_schedule() -> None:
    """Given a young garbage cycle, then it is kept while the event loop is busy, however many objects are created, and
    collected when the loop is idle."""
    gone = asyncio.Event()
    async with paced_collection():
        weakref.finalize(Node(), gone.set)
        kept = [[number] for number in range(50_000)]
        assert not gone.is_set()
        async with asyncio.timeout(60):
            await gone.wait()
        assert len(kept) == 50_000


async def test_older_garbage_is_collected() -> None:
    """Given an object that survived the youngest generation, when it becomes garbage, then the middle one is collected."""
    gone = asyncio.Event()
    async with paced_collection():
        node = Node()
        gc.collect(0)
        weakref.finalize(node, gone.set)
        del node
        async with asyncio.timeout(60):
            await gone.wait()


async def test_the_setting_of_the_interpreter_is_restored() -> None:
    async with paced_collection():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


class Far(CountingStore):
    """A way to Redis that takes `seconds` for each round trip."""

    seconds = 0.4

    async def time_ms(self) -> float:
        await asyncio.sleep(self.seconds)
        return await self._store.time_ms()


async def test_an_interval_that_is_too_short_for_the_way_to_redis_is_refused(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    """The replica would be in no view, and would never fetch anything."""
    crawl = await create_crawl(store, crawl_name, 2, b"{}")
    far, settings = Far(store), CrawlSettings()
    for interval, is_refused in ((1.0, True), (5.0, False)):
        local = ReplicaTable(out=tmp_path, interval=interval, listen="127.0.0.1:0")
        deps = production_dependencies(crawl, far, settings, local)
        replica = Replica(store, deps, settings, local)
        if is_refused:
            with pytest.raises(
                UserError, match=r"interval is 1 s, but a round trip to Redis takes 0.4\d s.*set it to 3"
            ):
                await replica._check_interval()
        else:
            await replica._check_interval()
        assert deps.time is not None
        assert deps.time is replica.engine.peers.time


async def test_settings_that_could_not_be_kept_are_kept_when_pages_are_written_again(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    crawl, settings = await create_crawl(store, crawl_name, 2, b"{}"), CrawlSettings()
    local = ReplicaTable(out=tmp_path)
    deps = production_dependencies(crawl, store, settings, local)
    replica = Replica(store, deps, settings, local)
    kept = tmp_path / f"{crawl_name}.settings.toml"
    kept.mkdir()  # so that it cannot be written
    replica._keep_settings()
    kept.rmdir()
    for pages, is_kept in ((0, False), (1, True)):  # none if leases were only returned
        deps.events.emit(GroupCommitted(pages, pages, 0, 0, 0, 0, 0))
        assert kept.exists() == is_kept


async def test_pages_are_dated_by_the_clock_of_the_crawl(store: RedisStore, crawl_name: str, tmp_path: Path) -> None:
    """The clock of a machine may be wrong by hours."""
    crawl = await create_crawl(store, crawl_name, 2, b"{}")
    await store.send([command("HSET", f"{crawl.keys.peers}:clock", "correction_ms", 3_600_000)])
    deps = production_dependencies(crawl, store, CrawlSettings(), ReplicaTable(out=tmp_path))
    assert deps.time is not None
    wall = cast(Fetcher, deps.http)._wall
    assert abs(wall() - time.time()) < 60  # not known yet
    await deps.time.check(0)
    assert 3_590 < wall() - time.time() < 3_610


async def test_readiness_says_what_redis_has_answered(crawl_name: str, tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path, persistent=False) as server:
        store = await connect(server.url)
        crawl = await create_crawl(store, crawl_name, 2, b"{}")
        settings, local = CrawlSettings(), ReplicaTable(out=tmp_path)
        engine = Engine(production_dependencies(crawl, store, settings, local), settings, local)
        await store.send([command("CONFIG", "SET", "maxmemory", 1)])
        writing = asyncio.create_task(engine.runtime.retry.call(lambda: store.send([command("SET", "x", "y")])))
        await until(lambda: engine.runtime.retry.is_away)
        ready, said = engine.readiness()
        assert not ready
        assert "OOM" in said
        assert "maxmemory" in said
        await store.send([command("CONFIG", "SET", "maxmemory", 0)])
        await writing
        assert "OOM" not in engine.readiness()[1]
        await store.close()


def test_a_replica_that_cannot_write_its_output_is_not_ready() -> None:
    troubles = Troubles()
    engine = SimpleNamespace(readiness=lambda: (True, "ready"))
    replica = cast(Any, SimpleNamespace(_troubles=troubles, engine=engine))
    assert Replica._readiness(replica) == (True, "ready")
    troubles.observe(SinkBlocked("no space left"))
    ready, said = Replica._readiness(replica)
    assert not ready
    assert "cannot write output: no space left" in said


async def test_a_loss_by_eviction_is_named(crawl_name: str, tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path, persistent=False) as server:
        store = await connect(server.url)
        crawl = await create_crawl(store, crawl_name, 2, b"{}")
        await store.send([command("CONFIG", "SET", "maxmemory-policy", "allkeys-random")])
        await store.close()
        store = await connect(server.url)
        await store.send([command("CONFIG", "SET", "maxmemory", 1)])
        with pytest.raises(RedisAway, match="OOM"):
            await store.send([command("SET", "x", "y")])  # after all keys were evicted
        await store.send([command("CONFIG", "SET", "maxmemory", 0)])
        with pytest.raises(CrawlLost, match=r"Redis has evicted .*maxmemory-policy allkeys-random.*repair --evicted"):
            await Run(cast(Replica, Ending(store, crawl, "first")), True).until_ended()
        await store.close()


async def test_a_new_crawl_is_not_blamed_for_evictions_before_it(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path, persistent=False) as server:
        store = await connect(server.url)
        await store.send(
            [command("SET", "x", "y", "EX", 1_000), command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")]
        )
        await store.send([command("CONFIG", "SET", "maxmemory", 1)])
        with suppress(RedisAway):
            await store.send([command("SET", "z", "y")])
        await store.send([command("CONFIG", "SET", "maxmemory", 0)])
        await store.close()
        store = await connect(server.url)  # which learns the policy
        assert int((await store.info("stats"))["evicted_keys"]) > 0
        crawl = await create_crawl(store, "new", 2, b"{}")
        assert await evicted_keys(store, crawl.keys) == 0
        await store.close()
