"""Another number of shards on a real cluster, while slots move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from frontier.cluster import slot_of
from frontier.crawls import open_crawl
from frontier.errors import RedisAway
from frontier.scripts import ADD_COPIED, Call, Reply
from frontier.store import RedisStore, connect
from tests.frontier.crawled import DOMAINS, PAGES, Crawled
from tests.frontier.helpers import CountingStore, ManualTime
from tests.valkey_cluster import ValkeyCluster

pytestmark = pytest.mark.e2e


@pytest.fixture
def cluster() -> Iterator[ValkeyCluster]:
    with ValkeyCluster() as running:
        yield running


@pytest.fixture
async def clustered(cluster: ValkeyCluster) -> AsyncIterator[RedisStore]:
    store = await connect(cluster.url)
    yield store
    await store.close()


async def test_a_shard_that_has_the_slot_of_its_new_one_by_chance_is_copied_like_the_others(
    clustered: RedisStore,
) -> None:
    """The node of that shard could copy its queues by itself, and the nodes of the others could not."""
    old, new = "{%s:0}:", "{%s:0@2}:"
    name = next(
        name for name in (f"c{number}" for number in range(10**6)) if slot_of(old % name) == slot_of(new % name)
    )
    crawled = Crawled(clustered, name, ManualTime())
    await crawled.begin(8)
    await crawled.reshard(4)
    keys = (await crawled.open()).keys
    assert keys.shards[0].base == new % name
    assert len(await crawled.finish()) == len(DOMAINS) * PAGES - 30 - 20 + 1


async def test_a_slot_that_moves_during_the_copy_costs_a_second_attempt_and_nothing_else(
    cluster: ValkeyCluster, clustered: RedisStore
) -> None:
    crawled = Crawled(clustered, "crawl", ManualTime())
    await crawled.begin(8)
    frontier = await crawled.open()
    nodes = {clustered.node_of(of.base) for of in frontier.keys.shards}
    assert len(nodes) == 3
    slot = slot_of(frontier.keys.shards[3].base)
    source = next(node for node in cluster.masters if node.name == clustered.node_of(frontier.keys.shards[3].base))
    target = next(node for node in cluster.masters if node is not source)

    class Moves(CountingStore):
        """Moves a slot of the old shards before anything is copied."""

        has_moved = False

        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            if calls[0].script is ADD_COPIED and not self.has_moved:
                self.has_moved = True
                await asyncio.to_thread(cluster.move_slots, [slot], source, target)
            return await super().send(calls)

    with pytest.raises(RedisAway, match="run the command again"):
        await crawled.reshard(32, Moves(clustered))
    await crawled.reshard(32)
    assert (await open_crawl(clustered, "crawl")).shards == 32
    assert len(await crawled.letters()) == 20
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched)) == len(DOMAINS) * PAGES - 30 - 20 + 1
