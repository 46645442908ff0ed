"""Servers that lose the last writes of a reshard leave it whole, and so do repairs beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from frontier.crawls import open_crawl
from frontier.entries import Entry
from frontier.errors import CrawlLost, CrawlResharded, RedisAway, RedisMisused
from frontier.repair import Repair
from frontier.reshard import Reshard
from frontier.scripts import END_RESHARD, IDENTIFY_SHARD, REMOVE_COPIED, Call, Reply, command
from frontier.settle import LeasedUrl
from frontier.shards import DURABLE_S, lost_shards
from frontier.store import RedisStore, connect
from tests.frontier.crawled import DOMAINS, PAGES, Crawled, meta, silent
from tests.frontier.helpers import CountingStore, ManualTime, ask
from tests.frontier.test_reshard_fences import Meanwhile, contents
from tests.valkey import ValkeyProcess


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
        if await ask(store, "COMMAND", "INFO", "WAITAOF") == [None]:
            pytest.skip("before Redis 7.2, a server cannot say it")
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


@pytest.mark.parametrize("step", ["begins", "copies"])
async def test_a_command_whose_claim_was_lost_and_given_to_another_removes_nothing(
    crawled: Crawled, store: RedisStore, step: str
) -> None:
    """The server of the key `meta` was replaced by one that lacked the claim. Both have the same number then."""
    opened, before = await open_crawl(store, crawled.name), dict[str, object]()

    async def lose_the_claim() -> None:
        fields = ("resharding", "reshard_may_switch", "reshard_claims", "reshard_progress")
        await store.send([command("HDEL", opened.keys.meta, *fields)])
        await crawled.reshard(16)
        before.update(await contents(crawled))

    def is_due(call: Call) -> bool:
        return call.arguments[0] == "SET" if step == "begins" else call.script is IDENTIFY_SHARD

    slow = Meanwhile(store, is_due, lose_the_claim)
    first = Reshard(slow, opened, (crawled.time, crawled.clock), 16, 1)
    with pytest.raises(CrawlLost):
        await first.begin(silent)
        await first.copy(silent)
    assert before
    assert await contents(crawled) == before
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched)) == len(DOMAINS) * PAGES - 30 - 20 + 1


async def test_shards_whose_reshard_was_lost_are_not_taken_for_lost_ones(crawled: Crawled, store: RedisStore) -> None:
    """Nor for those of another crawl, whose keys the user would remove."""
    opened = await open_crawl(store, crawled.name)
    await Reshard(store, opened, (crawled.time, crawled.clock), 16, 1).begin(silent)
    fields = ("resharding", "reshard_may_switch", "reshard_claims", "reshard_progress")
    await store.send([command("HDEL", opened.keys.meta, *fields)])

    with pytest.raises(CrawlResharded, match=r"has frozen 4 of its 4 shards.*`crawler reshard --shards N` again"):
        await Repair(store, opened, crawled.clock, 0).begin()
    await crawled.reshard(16)
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched)) == len(DOMAINS) * PAGES - 30 - 20 + 1


async def test_a_repair_restores_lost_shards_beside_frozen_ones(crawled: Crawled, store: RedisStore) -> None:
    opened = await open_crawl(store, crawled.name)
    await Reshard(store, opened, (crawled.time, crawled.clock), 16, 1).begin(silent)
    base = opened.keys.shards[2].base
    await store.send([command("DEL", key) for key in await ask(store, "KEYS", f"{base}*")])
    repair = Repair(store, opened, crawled.clock, 0)
    assert await repair.begin() == [2]
    await repair.finish()
    assert set(await lost_shards(store, opened.keys)) == {0, 1, 3}


async def test_shards_of_a_command_whose_claim_was_lost_are_not_called_those_of_another_crawl(
    crawled: Crawled, store: RedisStore
) -> None:
    """The command after that gets its number, but not its shards. The next one has another number."""
    work = await crawled.freeze(16)
    await work.copy(silent)
    opened = await meta(crawled)
    await store.send([command("HSET", opened.keys.meta, "reshard_claims", 0)])
    with pytest.raises(CrawlResharded, match=r"belong to another command.*again"):
        await crawled.reshard(16)
    await crawled.reshard(16)
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched)) == len(DOMAINS) * PAGES - 30 - 20 + 1


class Watched(CountingStore):
    """`sent`: the scripts and commands, in order."""

    def __init__(self, store: RedisStore) -> None:
        super().__init__(store)
        self.sent: list[object] = []

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        self.sent += [call.script or call.arguments[0] for call in calls]
        return await super().send(calls)


async def test_what_a_server_has_to_keep_is_synced_after_a_reshard_was_undone(
    crawled: Crawled, store: RedisStore
) -> None:
    """Otherwise the reshard could be back when the command has said that it is undone."""
    await crawled.freeze(16)
    watched = Watched(store)
    await Reshard(watched, await meta(crawled), (crawled.time, crawled.clock), 16, 1).cancel(silent)
    assert "WAITAOF" in watched.sent[watched.sent.index(END_RESHARD) :]


async def test_a_copy_is_synced_before_the_switch(crawled: Crawled, store: RedisStore) -> None:
    """Otherwise one server could keep the switch, and another lose a part of the copy."""
    watched = Watched(store)
    work = Reshard(watched, await open_crawl(store, crawled.name), (crawled.time, crawled.clock), 16, 1)
    await work.begin(silent)
    await work.copy(silent)
    last = max(at for at, one in enumerate(watched.sent) if one is IDENTIFY_SHARD)
    assert "WAITAOF" in watched.sent[last:]


async def test_old_keys_on_a_server_that_is_replaced_meanwhile_are_looked_for_again(
    crawled: Crawled, store: RedisStore
) -> None:
    class Replaced(CountingStore):
        run = "before"

        def run_of(self, key: str) -> str:
            return self.run

        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            if calls[0].script is REMOVE_COPIED:
                self.run = "after"
            return await super().send(calls)

    with pytest.raises(RedisAway, match="was restarted or replaced meanwhile; run the command again"):
        await crawled.reshard(16, Replaced(store))
    assert (await open_crawl(store, crawled.name)).former == 4
    await crawled.reshard(16)
    assert (await open_crawl(store, crawled.name)).former == 0


async def test_a_shard_that_was_repaired_after_a_reshard_gives_out_tokens_of_its_layout(
    crawled: Crawled, store: RedisStore
) -> None:
    """Otherwise nobody could tell what was settled under its leases."""
    await crawled.reshard(16)
    crawl, frontier = await open_crawl(store, crawled.name), await crawled.open()
    shard = frontier.shard_of(DOMAINS[0])
    base = crawl.keys.shards[shard].base
    await store.send([command("DEL", key) for key in await ask(store, "KEYS", f"{base}*")])
    repair = Repair(store, crawl, crawled.clock, 0)
    assert await repair.begin() == [shard]
    entry = Entry(f"https://{DOMAINS[0]}/", DOMAINS[0])
    await repair.push([entry])
    await repair.finish()
    leased, _ = await frontier.lease([shard], 2, "r2", 100)
    lease = leased[0].leases[0]
    assert lease.token > crawl.last_tokens[-1]
    url = LeasedUrl(lease.shard, lease.domain, lease.token, lease.entries[0])
    assert await frontier.revoke([url]) == [True]
