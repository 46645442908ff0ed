"""How long a crawl stands still while it gets another number of shards, as the command reports it."""

from __future__ import annotations

import pytest

from frontier.reshard import Reshard, open_with_new_shards
from frontier.settle import SettledUrl, Settlement
from frontier.store import RedisStore
from tests.frontier.crawled import Crawled, meta, silent


async def prepare(crawled: Crawled) -> Reshard:
    return Reshard(crawled.store, await meta(crawled), (crawled.time, crawled.clock), 16, 1)


async def test_a_standstill_lasts_from_the_last_settled_url_to_the_next_one(
    crawled: Crawled, store: RedisStore
) -> None:
    """It is longer than the command, because replicas take some time to notice that they may continue."""
    crawled.time.ms += 2_000
    settled_ms, work = crawled.time.ms - 2_000, await prepare(crawled)
    last_token = await open_with_new_shards(work, await meta(crawled), silent)
    crawled.time.ms = settled_ms + 100_000
    frontier = await crawled.open()
    leased, _ = await frontier.lease(range(16), 1, "r2", 100)
    first, *_, second = [lease for reply in leased for lease in reply.leases]
    assert first.shard != second.shard
    for lease in (first, second):
        urls = [SettledUrl(lease.entries[0], "done", "ok")]
        await frontier.settle([Settlement(lease, crawled.time.ms, urls=urls)])
        crawled.time.ms += 1_000
    assert await work.standstill_ms(last_token) == 100_000


@pytest.mark.parametrize("idle_s", [10, 70])
async def test_a_crawl_without_replicas_does_not_stand_still(crawled: Crawled, idle_s: int) -> None:
    crawled.time.ms += 1_000 * idle_s
    work = await prepare(crawled)
    last_token = await open_with_new_shards(work, await meta(crawled), silent)
    before = crawled.time.ms
    assert await work.standstill_ms(last_token) is None
    waited_s = (crawled.time.ms - before) / 1_000
    assert waited_s == (pytest.approx(30, abs=1) if idle_s == 10 else 0)


async def test_nobody_waits_for_a_crawl_that_has_ended(crawled: Crawled) -> None:
    await crawled.finish()
    work = await prepare(crawled)
    last_token = await open_with_new_shards(work, await meta(crawled), silent)
    before = crawled.time.ms
    assert await work.standstill_ms(last_token) is None
    assert crawled.time.ms == before
