"""The robots.txt records in Redis are read for many leased domains at once, and used when a leased domain has its turn."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, Mock

from crawler.page import Exchange
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.robots_lookup import RobotsLookup
from frontier.clock import ServerClock
from frontier.store import RedisStore
from politeness.robots_cache import RobotsCache
from politeness.robots_excerpt import extract
from politeness.robots_fetch import RobotsRecord
from politeness.robots_rules import finish
from tests.frontier.helpers import CountingStore, ManualTime, entry, lease_one, make_frontier
from tests.worker.test_throttle import Stopped, leased_domain, runtime, throttle_for

SLOW = b"User-agent: *\nCrawl-delay: 4\n"
EXCERPT = finish(extract(b"User-agent: *\nDisallow: /private/\n", "peercrawl")).pack()
RULES = RobotsRecord("rules", "ok", 200, 1, 2**40, EXCERPT)
NOBODY: Any = None


async def test_what_redis_has_is_read_in_one_round_trip_and_looked_at_once(store: RedisStore, crawl_name: str) -> None:
    # Given three domains under lease, and what is known of some of their origins,
    time = ManualTime()
    server_clock = ServerClock(time, time.read_ms)
    await server_clock.refresh()
    frontier = await make_frontier(store, crawl_name, time, shards=64)
    before = RobotsCache(store, frontier, "peercrawl")
    for origin, domain in (
        ("https://a.test", "a.test"),
        ("https://b.test", "b.test"),
        ("https://www.c.test", "c.test"),
    ):
        await before.save(origin, domain, RULES, 1)
    names = ("a.test", "b.test", "c.test")
    await frontier.push([entry(f"https://{domain}/", domain) for domain in names])
    domains = {
        domain: LeasedDomain(await lease_one(frontier, shard=frontier.shard_of(domain)), float("inf"), 0.0)
        for domain in names
    }
    counting = CountingStore(store)
    cache = RobotsCache(counting, frontier, "peercrawl")
    robots_lookup = RobotsLookup(runtime(time, server_clock), cache, NOBODY, NOBODY, NOBODY)
    # When they are prefetched, except for one that is cached,
    await cache.load("https://b.test", "b.test")
    counting.calls.clear()
    await robots_lookup.prefetch(list(domains.values()))
    # Then each of the others has what Redis had,
    assert counting.calls == {"HGET": 2}
    assert domains["b.test"].take_stored_robots("https://b.test") == (False, None)
    assert domains["c.test"].take_stored_robots("https://c.test") == (True, None)
    # and it is looked at without asking again,
    known = await robots_lookup.robots_for(domains["a.test"], "https://a.test/private/x")
    assert known is not None
    assert known.rules is not None
    assert not known.rules.decide("https://a.test/private/x").allowed
    assert counting.calls == {"HGET": 2}
    # once; and it counts for that origin alone.
    assert domains["a.test"].take_stored_robots("https://a.test") == (False, None)
    assert await robots_lookup.robots_for(domains["c.test"], "https://www.c.test/") is not None
    assert counting.calls == {"HGET": 3}


async def test_the_delay_that_a_robots_txt_asks_for_begins_with_the_request_for_it(
    store: RedisStore, crawl_name: str
) -> None:
    """The lease may be given back before the next turn, and the next holder waits for as long as is stored."""
    clock, leased, throttle = Stopped(), leased_domain(), throttle_for(Stopped(), delay_s=1.0)
    cache = RobotsCache(store, await make_frontier(store, crawl_name, ManualTime()), "peercrawl")

    async def fetch(leased: LeasedDomain, url: str, known: object) -> Exchange:
        throttle.start_delay(leased, 0.1, None)
        return Exchange(url, 200, "OK", (), b"", b"", SLOW, "192.0.2.1", 0.0, 0.1, 0.1)

    foreign = {
        "may_request_any_domain": AsyncMock(return_value=True),
        "end_foreign_request": AsyncMock(return_value=False),
    }
    polite: Any = Mock(throttle=throttle, fetch=fetch, **foreign)
    committer: Any = AsyncMock()
    robots_lookup = RobotsLookup(runtime(clock), cache, polite, NOBODY, committer)
    assert await robots_lookup.robots_for(leased, "https://a.test/x") is None, "the turn was used for the file"
    assert (leased.next_at, leased.delay_ms) == (clock.now + 4.0, 4_000)
