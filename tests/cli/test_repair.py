"""`crawler repair`, on a crawl whose server has lost a shard."""

from __future__ import annotations

from frontier.crawls import Crawl
from frontier.domains import shard_of
from frontier.store import RedisStore, command
from tests.cli.conftest import Hand

STEP_MS = 3_600_000


def test_what_is_restored_is_due_by_crawl_time(hand: Hand) -> None:
    # Given a crawl during which the server's clock stepped forward by an hour, and a lost shard,
    async def lose_shard(store: RedisStore, crawl: Crawl) -> None:
        keys = crawl.keys.shards[shard_of("a.test", crawl.shards)]
        step = command("HSET", f"{crawl.keys.peers}:clock", "correction_ms", -STEP_MS, "version", 1)
        lost = [keys.due, keys.stats, keys.owner, keys.queue("a.test"), keys.domain("a.test"), keys.seen(0)]
        await store.send([step, *(command("DEL", key) for key in lost)])

    async def due_in_ms(store: RedisStore, crawl: Crawl) -> float:
        keys = crawl.keys.shards[shard_of("a.test", crawl.shards)]
        (due_ms,) = await store.send([command("ZSCORE", keys.due, "a.test")])
        return float(due_ms) - (await store.time_ms() - STEP_MS)

    hand.with_store(lose_shard)

    # when it is repaired from a seed, this can be leased at once and not in an hour.
    assert hand.json("repair", "https://a.test/1", "--accept-loss")["queued"] == 1
    assert hand.with_store(due_in_ms) <= 0
