"""A robots.txt record in Redis that cannot be read is as good as none: the origin is asked again."""

from __future__ import annotations

import pytest

from frontier.store import RedisStore, command
from politeness.robots_cache import RobotsCache
from politeness.robots_fetch import RobotsRecord
from tests.frontier.helpers import ManualTime, make_frontier

ORIGIN = "https://a.test"


@pytest.mark.parametrize("damage", [b"", b"\x02rest", b"\x01\xc0\xda", b"\x01" + b"\xff" * 40])
async def test_a_damaged_record_counts_as_none(store: RedisStore, crawl_name: str, damage: bytes) -> None:
    frontier = await make_frontier(store, crawl_name, ManualTime())
    cache = RobotsCache(store, frontier, "peercrawl")
    await cache.save(ORIGIN, "a.test", RobotsRecord("allow", "http_404", 404, 1, 2))
    assert await cache.load(ORIGIN, "a.test") is not None
    await store.send([command("HSET", frontier.keys.shards[0].robots, ORIGIN, damage)])
    assert await cache.load(ORIGIN, "a.test") is None
