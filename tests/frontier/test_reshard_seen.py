"""The seen-set and queues of a crawl that gets another number of shards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from frontier.crawls import create_crawl, open_crawl
from frontier.domains import shard_of
from frontier.entries import Entry
from frontier.forget import Forgetting
from frontier.keys import shard_keys
from frontier.lookup import seen_bucket
from frontier.queue import Frontier, FrontierSettings
from frontier.reshard import LONGEST
from frontier.scripts import ADD_COPIED, COPY_KEYS, Call, Reply, command, script_call
from frontier.store import RedisStore, connect
from tests.frontier.crawled import Crawled
from tests.frontier.helpers import CountingStore, ManualTime, ask
from tests.valkey import ValkeyProcess

MANY = 3_000
"""URLs that fill several buckets of each shard."""


@pytest.fixture
async def filled(store: RedisStore, crawl_name: str, time: ManualTime) -> Crawled:
    """A crawl with two shards and `MANY` URLs."""
    return await fill(store, crawl_name, time)


async def fill(store: RedisStore, name: str, time: ManualTime) -> Crawled:
    crawled = Crawled(store, name, time)
    await crawled.clock.refresh()
    await create_crawl(store, name, 2, b"{}")
    frontier = await crawled.open()
    domains = [f"d{number}.test" for number in range(10)]
    for domain in domains:
        await frontier.push([Entry(f"https://{domain}/{page}", domain) for page in range(MANY // len(domains))])
    return crawled


async def test_the_server_copies_whole_buckets_if_a_crawl_gets_more_shards(filled: Crawled, store: RedisStore) -> None:
    """None of the fingerprints passes through the command, and each new shard has those of its old one."""
    before, counting = await seen(filled), CountingStore(store)
    assert await ask(store, "EXISTS", (await filled.open()).keys.shards[1].seen(3))
    await filled.reshard(8, counting)
    assert counting.calls["SMEMBERS"] == 0
    assert sorted(await seen(filled)) == sorted(4 * before)


async def test_buckets_that_have_become_emptier_stay_where_scripts_look_for_them(filled: Crawled) -> None:
    """A shard keeps its number of buckets when URLs are forgotten."""
    before, frontier = await seen(filled), await filled.open()
    crawl = await open_crawl(filled.store, filled.name)
    for number in range(5):
        await Forgetting(filled.store, crawl, frontier, f"d{number}.test").purge(durable_s=0.0)
    left = await seen(filled)
    assert 0 < len(left) < len(before)
    await filled.reshard(8)
    assert sorted(await seen(filled)) == sorted(4 * left)


@pytest.mark.parametrize("fewer", [2, 1])
async def test_the_seen_set_takes_as_much_memory_as_before_when_a_crawl_has_grown_and_shrunk(
    filled: Crawled, store: RedisStore, fewer: int
) -> None:
    """The shards of a growth have most fingerprints in common, and together need few buckets."""
    before = len(await ask(store, "KEYS", f"{{{filled.name}:*}}:seen:*"))
    for shards in (2, fewer):
        await filled.reshard(32)
        grown = len(await ask(store, "KEYS", f"{{{filled.name}:*}}:seen:*"))
        assert grown <= 1.3 * 32 / shards * before
        await filled.reshard(fewer)
        assert len(await ask(store, "KEYS", f"{{{filled.name}:*}}:seen:*")) <= 1.3 * before
    assert len(set(await seen(filled))) == MANY


async def test_shards_of_very_different_sizes_get_as_many_buckets_as_they_need(
    store: RedisStore, crawl_name: str, time: ManualTime
) -> None:
    """Though one of the shards has a single bucket."""
    crawled = Crawled(store, crawl_name, time)
    await crawled.clock.refresh()
    await create_crawl(store, crawl_name, 4, b"{}")
    frontier = await crawled.open()
    await frontier.push([Entry(f"https://large.test/{page}", "large.test") for page in range(4 * MANY)])
    await frontier.push([Entry("https://small.test/", "small.test")])
    await crawled.reshard(1)
    (only,) = (await crawled.open()).keys.shards
    needed = (4 * MANY + 1) / 208
    assert needed / 1.3 < int(await ask(store, "HGET", only.stats, "buckets")) < 1.3 * needed
    assert len(await seen(crawled)) == 4 * MANY + 1


async def test_a_user_that_may_not_copy_reshards_as_on_a_cluster(tmp_path: Path, time: ManualTime) -> None:
    with ValkeyProcess(tmp_path, persistent=False) as server:
        store = await connect(server.url)
        crawled = await fill(store, "crawl", time)
        before, counting = await seen(crawled), CountingStore(store)
        await ask(store, "ACL", "SETUSER", "default", "-copy")
        await crawled.reshard(8, counting)
        assert counting.calls["SMEMBERS"] > 0
        assert sorted(await seen(crawled)) == sorted(4 * before)
        await store.close()


async def test_a_command_that_goes_on_after_another_copies_nothing(filled: Crawled, store: RedisStore) -> None:
    """It may have been stopped for a while, and the other may have removed what it did."""
    old = (await filled.open()).keys.shards[0]
    new = shard_keys(filled.name, 0, 2)
    await ask(store, "HSET", new.stats, "crawl", "filling")
    call = script_call(COPY_KEYS, (new.stats, new.base, old.base), "filling", "seen:0")
    assert await store.send([call, call]) == [[b"arrived"], [b"arrived"]]
    assert await ask(store, "SCARD", new.seen(0)) == await ask(store, "SCARD", old.seen(0))
    await ask(store, "SADD", new.seen(0), 7)
    await ask(store, "DEL", new.seen(1))
    await store.send([call])
    assert await ask(store, "SISMEMBER", new.seen(0), 7)
    await ask(store, "HSET", new.stats, "crawl", "complete")
    late = script_call(COPY_KEYS, (new.stats, new.base, old.base), "filling", "seen:1")
    assert await store.send([late]) == [[b"lost"]]
    assert not await ask(store, "EXISTS", new.seen(1))


async def test_fingerprints_that_old_shards_have_in_common_are_written_once(
    store: RedisStore, crawl_name: str, time: ManualTime
) -> None:
    """After a growth, the shards that were one have the same ones, and most of the copy would be theirs."""
    crawled, written = Crawled(store, crawl_name, time), list[str]()
    await crawled.begin(4)

    class Records(CountingStore):
        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            for words in (call.arguments for call in calls if call.script is ADD_COPIED):
                at = 1
                while at < len(words):
                    last = at + 4 + int(words[at + 3])
                    written.extend(str(word) for word in words[at + 4 : last] if words[at + 1] == "SADD")
                    at = last
            return await super().send(calls)

    await crawled.reshard(16)
    before, records = await seen(crawled), Records(store)
    await crawled.reshard(4, records)
    after = await seen(crawled)
    assert set(after) == set(before)
    assert len(before) == 4 * len(set(before))
    assert len(written) == len(after) == len(set(after))


async def seen(crawled: Crawled) -> list[str]:
    """The fingerprints of all shards. Each is in the bucket in which scripts look for it."""
    found: list[str] = []
    for of in (await crawled.open()).keys.shards:
        buckets = int(await ask(crawled.store, "HGET", of.stats, "buckets") or 1)
        for bucket in range(buckets):
            members = await ask(crawled.store, "SMEMBERS", of.seen(bucket))
            assert all(seen_bucket(int(member), buckets) == bucket for member in members)
            found += map(str, members)
    return found


async def test_the_server_copies_queues_that_are_not_too_long(
    store: RedisStore, crawl_name: str, time: ManualTime
) -> None:
    crawled, copied = Crawled(store, crawl_name, time), set[str]()
    await crawled.clock.refresh()
    crawl = await create_crawl(store, crawl_name, 4, b"{}")
    frontier = Frontier(store, crawl.keys, crawled.clock, FrontierSettings(pack_above=0), crawl.fingerprint_key)
    sizes = {"short.test": 1, "longest.test": LONGEST, "huge.test": LONGEST + 1}
    await frontier.push(
        [Entry(f"https://{domain}/{page}", domain) for domain, size in sizes.items() for page in range(size)]
    )

    class Watched(CountingStore):
        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            names = (str(word) for call in calls if call.script is COPY_KEYS for word in call.arguments[-1:])
            copied.update(name for name in names if name.startswith("q:"))
            return await super().send(calls)

    for shards in (16, 2):
        copied.clear()
        await crawled.reshard(shards, Watched(store))
        assert copied == {"q:short.test", "q:longest.test"}
        keys = (await open_crawl(store, crawl_name)).keys
        of = {domain: keys.shards[shard_of(domain, shards)] for domain in sizes}
        queued = await store.send([command("ZRANGE", of[domain].queue(domain), 0, -1) for domain in sizes])
        assert [len(urls) for urls in queued] == list(sizes.values())
