"""The seen-set of a crawl that gets another number of shards."""

from __future__ import annotations

from collections.abc import Sequence

from frontier.lookup import seen_bucket
from frontier.scripts import ADD_COPIED
from frontier.store import Call, RedisStore, Reply
from tests.frontier.helpers import CountingStore, ManualTime, ask
from tests.frontier.test_reshard import Crawled


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
    before = await seen(crawled)
    await crawled.reshard(4, Records(store))
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
