"""A server that has lost all data of a shard."""

from __future__ import annotations

import pytest

from frontier.counters import Counters
from frontier.crawls import create_crawl, open_crawl, verify_crawl
from frontier.errors import CrawlLost, ShardLost
from frontier.keys import CrawlKeys
from frontier.queue import Frontier
from frontier.scripts import command
from frontier.settle import Settlement
from frontier.shards import identify_shards, lost_shards
from frontier.store import RedisStore
from tests.frontier.helpers import entry, lease_one, settle_all
from tests.frontier.restarts.server import Server, home


class TestAShardWithoutData:
    @pytest.fixture
    async def one(self, server: Server) -> Frontier:
        """A replica that has leased a URL, and whose server is then cleared."""
        one = await server.replica()
        await one.push([entry()])
        self.lease = await lease_one(one, shard=home(one))
        return one

    async def clear(self, one: Frontier) -> None:
        await one._store.send([command("DEL", *map(str, await self.names(one)))])

    async def names(self, one: Frontier) -> list[str]:
        (found,) = await one._store.send([command("KEYS", f"{{news:{home(one)}}}:*")])
        return [name.decode() for name in found]

    async def test_no_call_takes_it_for_an_empty_one(self, one: Frontier) -> None:
        await self.clear(one)
        shard = home(one)
        for call in (
            one.push([entry()]),
            one.lease([shard], 1, "r1", 1),
            one.settle([settle_all(self.lease)]),
            one.release([Settlement(self.lease, 0)]),
            one.shards_with_work([0, 1]),
            Counters(one._store, one.keys).has_ended(),
            Counters(one._store, one.keys).open(),
        ):
            with pytest.raises(ShardLost) as lost:
                await call
            assert lost.value.shards == [shard]
        assert await self.names(one) == []
        assert await lost_shards(one._store, one.keys) == {shard: ""}

    async def test_a_shard_of_another_crawl_of_that_name_is_lost_too(self, one: Frontier) -> None:
        keys = CrawlKeys("news", 2, "another")
        with pytest.raises(CrawlLost):
            await identify_shards(one._store, keys, range(2))
        with pytest.raises(ShardLost):
            await Counters(one._store, keys).has_ended()


class TestCreation:
    async def test_all_shards_have_the_identity_before_the_crawl_exists(
        self, store: RedisStore, crawl_name: str
    ) -> None:
        """Two that create it at once agree, and one that died on its way is continued."""
        keys = CrawlKeys(crawl_name, 4)
        await store.send([command("SET", keys.draft, "ab" * 16)])
        await identify_shards(store, CrawlKeys(crawl_name, 4, "ab" * 16), range(2))
        made = await create_crawl(store, crawl_name, 4, b"{}")
        assert made.created
        assert made.fingerprint_key.hex() == "ab" * 16
        assert await lost_shards(store, made.keys) == {}
        assert not (await create_crawl(store, crawl_name, 8, b"other")).created
        assert (await open_crawl(store, crawl_name)).shards == 4
        await verify_crawl(store, made)
