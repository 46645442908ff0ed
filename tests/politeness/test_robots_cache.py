"""What a replica remembers of robots.txt files: no more than it has room for, and nothing that cannot be read."""

from __future__ import annotations

import pytest

from frontier.store import RedisStore, command
from politeness.robots_cache import RECORD_BYTES, RULE_BYTES, RobotsCache
from politeness.robots_fetch import RobotsRecord
from tests.frontier.helpers import ManualTime, make_frontier

ORIGIN = "https://a.test"


def record(body: bytes) -> RobotsRecord:
    return RobotsRecord("rules", "ok", 200, 1, 2, body=body)


@pytest.mark.parametrize("damage", [b"", b"\x02rest", b"\x01\xc0\xda", b"\x01" + b"\xff" * 40])
async def test_a_damaged_record_counts_as_none(store: RedisStore, crawl_name: str, damage: bytes) -> None:
    frontier = await make_frontier(store, crawl_name, ManualTime())
    cache = RobotsCache(store, frontier, "peercrawl")
    await cache.save(ORIGIN, "a.test", RobotsRecord("allow", "http_404", 404, 1, 2))
    assert await cache.load(ORIGIN, "a.test") is not None
    await store.send([command("HSET", frontier.keys.shards[0].robots, ORIGIN, damage)])
    assert await cache.load(ORIGIN, "a.test") is None


async def test_the_files_used_last_are_remembered_within_the_room(store: RedisStore, crawl_name: str) -> None:
    frontier = await make_frontier(store, crawl_name, ManualTime())
    body = b"User-agent: *\n" + b"".join(b"Disallow: /%d\n" % number for number in range(100))
    size = RECORD_BYTES + len(body) + 100 * RULE_BYTES
    cache = RobotsCache(store, frontier, "peercrawl", max_bytes=3 * size)
    for name in ("a", "b", "c"):
        await cache.save(f"https://{name}.test", f"{name}.test", record(body))
    assert cache.recall("https://a.test") is not None  # and was used last by that
    await cache.save("https://a.test", "a.test", record(body))  # takes the place of what was known
    await cache.save("https://d.test", "d.test", record(body))
    known = [name for name in "abcd" if cache.recall(f"https://{name}.test") is not None]
    assert known == ["a", "c", "d"]
    assert await cache.load("https://b.test", "b.test") is not None  # Redis has it still


async def test_a_file_larger_than_the_room_is_remembered_alone(store: RedisStore, crawl_name: str) -> None:
    frontier = await make_frontier(store, crawl_name, ManualTime())
    cache = RobotsCache(store, frontier, "peercrawl", max_bytes=100)
    for name in ("a", "b"):
        await cache.save(f"https://{name}.test", f"{name}.test", record(b"User-agent: *\nDisallow: /x\n" * 9))
    assert cache.recall("https://a.test") is None
    assert cache.recall("https://b.test") is not None


async def test_what_takes_turns_is_remembered_till_its_next_turn(store: RedisStore, crawl_name: str) -> None:
    frontier = await make_frontier(store, crawl_name, ManualTime())
    in_turn = [3]
    cache = RobotsCache(store, frontier, "peercrawl", capacity=2, in_turn=lambda: in_turn[0])

    async def known() -> list[str]:
        for name in "abcd":
            await cache.save(f"https://{name}.test", f"{name}.test", record(b""))
        return [name for name in "abcd" if cache.recall(f"https://{name}.test") is not None]

    assert await known() == ["b", "c", "d"]
    in_turn[0] = 0
    assert await known() == ["c", "d"]
