"""What is stored and cached of robots.txt files: what decisions depend on, within limits, for as long as it is of use."""

from __future__ import annotations

import pytest

from frontier.queue import Frontier
from frontier.scripts import command
from frontier.store import RedisStore
from politeness.robots_cache import DOMAIN_BYTES, KEPT_STALE_MS, RECORD_BYTES, RULE_BYTES, OriginRobots, RobotsCache
from politeness.robots_fetch import RobotsFetchResult, RobotsRecord, next_record
from politeness.robots_match import finish
from politeness.robots_syntax import MAX_BODY, extract
from tests.frontier.helpers import ManualTime, make_frontier

ORIGIN = "https://a.test"
NOW, DAY, MINUTE = 1_700_000_000_000, 86_400_000, 60_000
MISSING = RobotsRecord("allow", "http_404", 404, NOW, NOW + DAY)
DOWN = RobotsFetchResult("disallow", "http_503", 503)


def record(body: bytes, fetched_at_ms: int = NOW) -> RobotsRecord:
    excerpt = finish(extract(body, "peercrawl")).pack()
    return RobotsRecord("rules", "ok", 200, fetched_at_ms, fetched_at_ms + DAY, excerpt)


async def save(cache: RobotsCache, origin: str, domain: str, kept: RobotsRecord, now_ms: int) -> OriginRobots:
    known = await cache.keep(origin, kept)
    await cache.save(origin, domain, kept, now_ms)
    return known


def hostile(seed: int) -> bytes:
    """A robots.txt of 512 KiB that compresses badly."""
    rules = (b"Disallow: /%x\n" % pow(3, 40 + seed * 20_000 + number, 2**127 - 1) for number in range(14_000))
    return (b"User-agent: *\n" + b"".join(rules))[: MAX_BODY - 1]


async def stored_bytes(store: RedisStore, key: str) -> int:
    (size,) = await store.send([command("MEMORY", "USAGE", key, "SAMPLES", 0)])
    return int(size or 0)


@pytest.fixture
async def frontier(store: RedisStore, crawl_name: str) -> Frontier:
    return await make_frontier(store, crawl_name, ManualTime())


@pytest.mark.parametrize("damage", [b"", b"\x02rest", b"\x01\xc0\xda", b"\x02" + b"\xff" * 40])
async def test_a_damaged_record_counts_as_none(store: RedisStore, frontier: Frontier, damage: bytes) -> None:
    cache = RobotsCache(store, frontier, "peercrawl")
    await save(cache, ORIGIN, "a.test", MISSING, NOW)
    assert await cache.load(ORIGIN, "a.test") is not None
    key = frontier.keys.shards[0].robots("a.test")
    for stored in (damage, b"%013d" % NOW + damage):
        await store.send([command("HSET", key, ORIGIN, stored)])
        assert await cache.load(ORIGIN, "a.test") is None


async def test_a_record_with_a_damaged_excerpt_counts_as_none(store: RedisStore, frontier: Frontier) -> None:
    """Without its rules, it must not allow the whole site."""
    cache = RobotsCache(store, frontier, "peercrawl")
    without = RobotsRecord("rules", "ok", 200, NOW, NOW + DAY)
    key = frontier.keys.shards[0].robots("a.test")
    await store.send([command("HSET", key, ORIGIN, b"%013d" % NOW + without.pack())])
    assert await cache.load(ORIGIN, "a.test") is None


async def test_another_replica_decides_as_the_one_that_fetched_the_file(store: RedisStore, frontier: Frontier) -> None:
    body = (
        b"User-agent: other\nDisallow: /\n\nUser-agent: *\nDisallow: /x\nAllow: /x/y\nCrawl-delay: 7\nSitemap: /map\n"
    )
    fetcher = RobotsCache(store, frontier, "peercrawl")
    result = await fetcher.condense(RobotsFetchResult("rules", "ok", 200, body))
    assert result.body == b""
    saved = await save(fetcher, ORIGIN, "a.test", next_record(None, result, NOW, 0.5), NOW)
    loaded = await RobotsCache(store, frontier, "peercrawl").load(ORIGIN, "a.test")
    assert loaded is not None
    assert loaded.rules is not None
    assert saved.rules is not None
    assert loaded.record == saved.record
    assert (loaded.rules.crawl_delay, loaded.rules.sitemaps) == (7.0, ("/map",))
    for path in ("/", "/x", "/x/y"):
        assert loaded.rules.decide(path) == saved.rules.decide(path)
    assert loaded.rules.decide("/x").line == 5


async def test_groups_of_other_crawlers_take_no_room(store: RedisStore, frontier: Frontier) -> None:
    others = b"".join(b"User-agent: bot%c%c\nDisallow: /%d\n" % (97 + n % 26, 97 + n // 26, n) for n in range(600))
    cache = RobotsCache(store, frontier, "peercrawl")
    await save(cache, ORIGIN, "a.test", record(others + b"# comment\nUser-agent: *\nDisallow: /x\n"), NOW)
    assert await stored_bytes(store, frontier.keys.shards[0].robots("a.test")) < 400


async def test_the_hosts_of_a_hostile_domain_share_a_limit(store: RedisStore, frontier: Frontier) -> None:
    """Given 60 hosts with 512 KiB each, the domain takes its limit and one compressed file."""
    cache = RobotsCache(store, frontier, "peercrawl", max_bytes=1)
    await save(cache, "https://www.a.test", "a.test", MISSING, NOW)
    down = next_record(None, DOWN, NOW, 0.5)
    await save(cache, "https://down.a.test", "a.test", down, NOW)
    bodies = [hostile(seed) for seed in range(3)]
    largest = max(len(record(body).excerpt) for body in bodies)
    for number in range(60):
        host = f"https://h{number}.a.test"
        await save(cache, host, "a.test", record(bodies[number % 3]), NOW)
        known = await cache.load(host, "a.test")  # so that its pages can be visited next
        assert known is not None
        assert known.rules is not None
    key = frontier.keys.shards[0].robots("a.test")
    assert await stored_bytes(store, key) < DOMAIN_BYTES + 1.3 * largest
    # What was removed counts as unknown and not as allowed, and small records stay.
    assert await cache.load("https://h0.a.test", "a.test") is None
    assert await cache.load("https://www.a.test", "a.test") is not None
    assert (await cache.load("https://down.a.test", "a.test")) is not None


async def test_a_domain_with_many_hosts_stays_within_the_limit(store: RedisStore, frontier: Frontier) -> None:
    cache = RobotsCache(store, frontier, "peercrawl")
    for number in range(1_000):
        await save(cache, f"https://h{number}.a.test", "a.test", record(b"User-agent: *\nDisallow: /%d" % number), NOW)
    (records,) = await store.send([command("HGETALL", frontier.keys.shards[0].robots("a.test"))])
    assert DOMAIN_BYTES / 2 < sum(map(len, records)) < DOMAIN_BYTES + 200


async def test_the_key_expires_with_its_last_record(store: RedisStore, frontier: Frontier) -> None:
    cache = RobotsCache(store, frontier, "peercrawl")
    key = frontier.keys.shards[0].robots("a.test")

    async def ttl_ms() -> int:
        (ttl,) = await store.send([command("PTTL", key)])
        return int(ttl)

    await save(cache, ORIGIN, "a.test", record(b"User-agent: *\nDisallow: /x"), NOW)
    assert DAY < await ttl_ms() <= DAY + KEPT_STALE_MS
    # A record that expires earlier does not shorten that,
    down = next_record(None, DOWN, NOW, 0.5)
    await save(cache, "https://b.a.test", "a.test", down, NOW)
    assert DAY < await ttl_ms() <= DAY + KEPT_STALE_MS
    # and goes itself as soon as the domain gets another record after its time.
    later = NOW + MINUTE + KEPT_STALE_MS
    await save(cache, "https://c.a.test", "a.test", record(b"", later), later)
    stored = await store.send([command("HEXISTS", key, origin) for origin in (ORIGIN, "https://b.a.test")])
    assert stored == [1, 0]


async def test_an_unreachable_file_is_still_known_when_it_is_to_be_fetched_again(
    store: RedisStore, frontier: Frontier
) -> None:
    """Otherwise its attempts would never become rarer, and rules from before would be forgotten when they are needed."""
    cache = RobotsCache(store, frontier, "peercrawl")
    for known in (next_record(None, DOWN, NOW, 0.5), record(b"User-agent: *\nDisallow: /x")):
        await save(cache, ORIGIN, "a.test", known, NOW)
        (ttl,) = await store.send([command("PTTL", frontier.keys.shards[0].robots("a.test"))])
        assert NOW + ttl > known.retry_at_ms + KEPT_STALE_MS - MINUTE


async def test_the_files_used_last_are_cached_within_the_limit(store: RedisStore, frontier: Frontier) -> None:
    known_record = record(b"User-agent: *\n" + b"".join(b"Disallow: /%d\n" % number for number in range(100)))
    size = RECORD_BYTES + len(known_record.excerpt) + 100 * RULE_BYTES
    cache = RobotsCache(store, frontier, "peercrawl", max_bytes=3 * size)
    for name in ("a", "b", "c"):
        await save(cache, f"https://{name}.test", f"{name}.test", known_record, NOW)
    assert cache.recall("https://a.test") is not None  # which is now the one used last
    await save(cache, "https://a.test", "a.test", known_record, NOW)  # replaces the cached one
    await save(cache, "https://d.test", "d.test", known_record, NOW)
    known = [name for name in "abcd" if cache.recall(f"https://{name}.test") is not None]
    assert known == ["a", "c", "d"]
    assert await cache.load("https://b.test", "b.test") is not None  # Redis has it still


async def test_a_file_larger_than_the_limit_is_cached_alone(store: RedisStore, frontier: Frontier) -> None:
    cache = RobotsCache(store, frontier, "peercrawl", max_bytes=100)
    for name in ("a", "b"):
        await save(cache, f"https://{name}.test", f"{name}.test", record(b"User-agent: *\nDisallow: /x\n" * 9), NOW)
    assert cache.recall("https://a.test") is None
    assert cache.recall("https://b.test") is not None


async def test_an_origin_is_cached_until_its_next_turn(store: RedisStore, frontier: Frontier) -> None:
    in_turn = [3]
    cache = RobotsCache(store, frontier, "peercrawl", capacity=2, in_turn=lambda: in_turn[0])

    async def known() -> list[str]:
        for name in "abcd":
            await save(cache, f"https://{name}.test", f"{name}.test", record(b""), NOW)
        return [name for name in "abcd" if cache.recall(f"https://{name}.test") is not None]

    assert await known() == ["b", "c", "d"]
    in_turn[0] = 0
    assert await known() == ["c", "d"]


async def test_forgotten_failures_make_other_replicas_ask_again(store: RedisStore, frontier: Frontier) -> None:
    """Rules stay, and so does the time since which a file is unreachable."""
    cache, other = RobotsCache(store, frontier, "peercrawl"), RobotsCache(store, frontier, "peercrawl")
    failed = next_record(next_record(None, DOWN, NOW, 0.5), DOWN, NOW + MINUTE, 0.5)
    good, www = record(b"User-agent: *\nDisallow: /\n"), "https://www.a.test"
    await save(cache, ORIGIN, "a.test", failed, NOW)
    await save(cache, www, "a.test", good, NOW)
    await other.forget_failures({ORIGIN: "a.test", www: "a.test", "https://b.test": "a.test"}, NOW + 2)
    after, rules = await cache.load(ORIGIN, "a.test"), await cache.load(www, "a.test")
    assert after is not None
    assert rules is not None
    assert (failed.failures, after.record.failures) == (2, 0)
    assert not after.record.is_fresh(NOW + 2)
    assert after.record.unreachable_since_ms == NOW
    assert rules.record == good
