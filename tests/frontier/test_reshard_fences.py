"""Commands that come late, and servers that lose the last step, leave a reshard whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from frontier.crawls import open_crawl
from frontier.errors import CrawlResharded, RedisAway, RedisMisused
from frontier.reshard import DURABLE_S, Reshard, Wanted
from frontier.scripts import FREEZE_SHARD
from frontier.shard_identity import lost_shards
from frontier.store import Call, RedisStore, Reply, connect
from tests.frontier.helpers import CountingStore, ManualTime, ask
from tests.frontier.test_reshard import Crawled, meta, silent
from tests.valkey import ValkeyProcess


@pytest.fixture
async def crawled(store: RedisStore, crawl_name: str) -> Crawled:
    made = Crawled(store, crawl_name, ManualTime())
    await made.begin(4)
    return made


async def test_a_command_that_was_suspended_until_it_was_undone_freezes_nothing(
    crawled: Crawled, store: RedisStore
) -> None:
    opened = await open_crawl(store, crawled.name)

    class UndoneBefore(CountingStore):
        """Another command undoes the reshard before the first shards are frozen."""

        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            if calls[0].script is FREEZE_SHARD and not self.calls["freeze_shard"]:
                await Reshard(store, await meta(crawled), (crawled.time, crawled.clock), Wanted(16, 1)).cancel(silent)
            return await super().send(calls)

    first = Reshard(UndoneBefore(store), opened, (crawled.time, crawled.clock), Wanted(16, 1))
    with pytest.raises(CrawlResharded, match="was undone"):
        await first.begin(silent)
    await crawled.open()
    assert not await lost_shards(store, opened.keys)
    await crawled.reshard(16)
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched))


async def test_nothing_is_leased_from_new_shards_before_the_servers_keep_the_switch(
    crawled: Crawled, store: RedisStore
) -> None:
    """A server that is restarted without the switch has lost nothing but the switch."""
    before = await open_crawl(store, crawled.name)
    work = await crawled.freeze(16)
    last_token = await work.copy(silent)
    kept = await ask(store, "HGETALL", before.keys.meta)
    await work.switch(last_token)
    await ask(store, "DEL", before.keys.meta)
    await ask(store, "HSET", before.keys.meta, *kept)
    with pytest.raises(RedisAway, match="has lost the last step"):
        await work.open(last_token)
    crawled.time.ms += 10_000  # its report is old by then
    await crawled.reshard(16)
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched))


@pytest.mark.parametrize("log", ["always", "everysec", "none"])
async def test_a_server_with_a_log_says_when_it_has_synced_the_copy(tmp_path: Path, log: str) -> None:
    """One without a log keeps nothing, however long one waits."""
    options = ("--appendonly", "yes", "--appendfsync", "everysec") if log == "everysec" else ()
    time = ManualTime()
    with ValkeyProcess(tmp_path, persistent=log == "always", options=options) as valkey:
        store = await connect(valkey.url)
        crawled = Crawled(store, "crawl", time)
        await crawled.begin(4)
        work = await crawled.freeze(8)
        began_ms = time.ms
        last_token = await work.copy(silent)
        await work.switch(last_token)
        await work.open(last_token)
        assert time.ms == began_ms  # nobody has slept
        found = await store.info("persistence")
        assert log == "none" or int(found["aof_pending_bio_fsync"]) == 0
        await store.close()


async def test_a_server_that_cannot_say_it_is_given_the_time(crawled: Crawled, store: RedisStore) -> None:
    class Older(CountingStore):
        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            if any(call.arguments[0] == "WAITAOF" for call in calls):
                raise RedisMisused("ERR unknown command 'WAITAOF'")
            return await super().send(calls)

    began_ms = crawled.time.ms
    await crawled.reshard(16, Older(store))
    assert crawled.time.ms >= began_ms + 2 * 1000 * DURABLE_S
