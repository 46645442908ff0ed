"""The robots.txt records in Redis are read for many leased domains at once, and used when a leased domain has its turn.
A file that the crawler cannot process counts as unreachable."""

from __future__ import annotations

import errno
from collections.abc import Generator
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from msgspec.structs import replace

from crawler.errors import OURS, FetchFailed
from crawler.events import DefectFound
from crawler.page import Outcome
from crawler.worker.leases import LeasedDomain
from crawler.worker.request import PoliteFetch, Throttle
from crawler.worker.robots import RobotsLookup
from crawler.worker.runtime import Runtime
from crawler.worker.verdict import UrlResult, verdict_by_robots
from frontier.queue import Frontier
from frontier.store import RedisStore
from politeness.robots_cache import RobotsCache
from politeness.robots_fetch import RobotsRecord
from politeness.robots_match import Rules, finish
from politeness.robots_syntax import extract
from tests.frontier.helpers import CountingStore, ManualTime, entry, lease_one, make_frontier
from tests.worker.helpers import NOBODY, Stopped, answer, leased_domain, runtime, server_clock_of, throttle_for

SLOW = b"User-agent: *\nCrawl-delay: 4\n"
EXCERPT = finish(extract(b"User-agent: *\nDisallow: /private/\n", "peercrawl")).pack()
RULES = RobotsRecord("rules", "ok", 200, 1, 2**40, EXCERPT)


async def test_what_redis_has_is_read_in_one_round_trip_and_looked_at_once(store: RedisStore, crawl_name: str) -> None:
    # Given three domains under lease, and what is known of some of their origins,
    time = ManualTime()
    server_clock = await server_clock_of(time)
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
    robots_lookup = RobotsLookup(runtime(time, server_clock), cache, Mock(), *[NOBODY] * 5)
    # When they are prefetched, except for one that is cached,
    await cache.load("https://b.test", "b.test")
    counting.calls.clear()
    await robots_lookup.prefetch(list(domains.values()))
    # Then each of the others has what Redis had,
    assert counting.calls == {"HGET": 2}
    assert domains["b.test"].stored_robots is None
    assert domains["c.test"].stored_robots == ("https://c.test", None)
    # and it is looked at without asking again,
    known = await robots_lookup.robots_for(domains["a.test"], "https://a.test/private/x")
    assert known is not None
    assert known.rules is not None
    assert not known.rules.decide("https://a.test/private/x").allowed
    assert counting.calls == {"HGET": 2}
    # once; and it counts for that origin alone.
    assert domains["a.test"].stored_robots is None
    assert await robots_lookup.robots_for(domains["c.test"], "https://www.c.test/") is not None
    assert counting.calls == {"HGET": 3}


URL, ORIGIN = "https://a.test/x", "https://a.test"
FILE = answer(200, b"User-agent: *\nDisallow: /private/\n")
WAITS = UrlResult(Outcome.RETRY, "robots_unreachable")


def lookup_of(shared: Runtime, cache: RobotsCache, http: Any, throttle: Throttle) -> RobotsLookup:
    fetch, free = PoliteFetch(shared, http, throttle), AsyncMock()
    free.may_request.return_value, free.end_request.return_value = True, False
    builder: Any = Mock(sitemaps=Mock(return_value=()))
    return RobotsLookup(shared, cache, fetch, throttle, free, free, builder, AsyncMock())


class Visit:
    """The domain a.test under lease, and the robots.txt of its origin, which the site answers with `FILE`."""

    def __init__(self, store: RedisStore, frontier: Frontier, leased: LeasedDomain) -> None:
        self.clock: Any = Stopped()
        self.http = AsyncMock(remember=Mock())
        self.http.fetch.return_value = FILE
        self.defects: list[DefectFound] = []
        shared, throttle = runtime(self.clock), throttle_for(self.clock)
        shared.events.subscribe(self.defects.append, DefectFound)  # type: ignore[arg-type]
        self.cache = RobotsCache(store, frontier, "peercrawl")
        self._lookup = lookup_of(shared, self.cache, self.http, throttle)
        self._leased = leased

    async def is_known(self) -> bool:
        """Return whether the robots.txt of `URL` is known, or request it."""
        return await self._lookup.robots_for(self._leased, URL) is not None

    async def turn(self) -> UrlResult | None:
        """Return what becomes of `URL` after one turn that may fetch robots.txt. None: it is requested."""
        known = await self._lookup.robots_for(self._leased, URL)
        if known is None:
            known = await self._lookup.robots_for(self._leased, URL)
        assert known is not None
        return verdict_by_robots(URL, known, tries=2)


@pytest.fixture
async def visit(store: RedisStore, crawl_name: str) -> Visit:
    frontier = await make_frontier(store, crawl_name, ManualTime())
    await frontier.push([entry(URL, "a.test")])
    return Visit(store, frontier, LeasedDomain(await lease_one(frontier), float("inf"), 0.0))


def raises_while_built(_excerpt: object) -> Generator[None, None, Rules]:
    raise RuntimeError("for the test")
    yield


async def test_a_file_whose_rules_cannot_be_built_counts_as_unreachable(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given such a file, then its URLs wait, it is fetched again a minute later, and they are dead after the last try."""
    with monkeypatch.context() as patched:
        patched.setattr(Rules, "build", raises_while_built)
        assert await visit.turn() == WAITS
        stored = await visit.cache.load(ORIGIN, "a.test")
        assert stored is not None
        assert (stored.record.access, stored.record.reason, stored.record.failures) == ("disallow", "defect", 1)
        visit.clock.now += 70
        assert await visit.turn() == UrlResult(Outcome.DEAD, "robots_unreachable")
    assert visit.http.fetch.await_count == 2
    assert [found.stage for found in visit.defects] == ["robots", "robots"]
    # As soon as it can be processed, it is obeyed.
    visit.clock.now += 140
    assert await visit.turn() is None


@pytest.mark.parametrize(
    "error", [*(FetchFailed(kind) for kind in sorted(OURS)), OSError(errno.EMFILE, "Too many open files")], ids=str
)
@pytest.mark.parametrize("is_condensed", [False, True])
async def test_a_file_that_could_not_be_fetched_because_of_us_does_not_count_as_unreachable(
    visit: Visit, monkeypatch: pytest.MonkeyPatch, error: Exception, is_condensed: bool
) -> None:
    if is_condensed and isinstance(error, FetchFailed):
        pytest.skip("raised by requests")
    with monkeypatch.context() as patched:
        if is_condensed:
            patched.setattr(visit.cache, "condense", AsyncMock(side_effect=error))
        else:
            visit.http.fetch.side_effect = error
        for _ in range(5):
            assert not await visit.is_known()
    assert await visit.cache.load(ORIGIN, "a.test") is None
    assert visit.defects == []
    visit.http.fetch.side_effect = None
    assert await visit.turn() is None


async def test_a_stored_file_whose_rules_cannot_be_built_is_fetched_again(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version of the crawler may have stored it."""
    stored = finish(extract(b"User-agent: *\nDisallow: /\n", "peercrawl"))
    await visit.cache.save(ORIGIN, "a.test", replace(RULES, excerpt=stored.pack()), 1)
    build = Rules.build
    monkeypatch.setattr(Rules, "build", lambda file: (raises_while_built if file == stored else build)(file))
    assert await visit.turn() is None
    assert visit.http.fetch.await_count == 1
    assert [found.stage for found in visit.defects] == ["robots"]


async def test_rules_from_before_stay_in_force_while_those_of_a_new_file_cannot_be_built(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC 9309 2.4, as for any file that is unreachable."""
    assert await visit.turn() is None
    visit.clock.now += 90_000
    with monkeypatch.context() as patched:
        patched.setattr("politeness.robots_cache.extract", raises_while_built)
        assert await visit.turn() is None
    assert visit.http.fetch.await_count == 2
    known = visit.cache.recall(ORIGIN)
    assert known is not None
    assert (known.record.access, known.record.reason, known.record.failures) == ("rules", "defect", 1)


async def test_the_delay_that_a_robots_txt_asks_for_begins_with_the_request_for_it(
    store: RedisStore, crawl_name: str
) -> None:
    """The lease may be given back before the next turn, and the next holder waits for as long as is stored."""
    clock, leased = Stopped(), leased_domain()
    cache = RobotsCache(store, await make_frontier(store, crawl_name, ManualTime()), "peercrawl")
    http = AsyncMock(fetch=AsyncMock(return_value=answer(200, SLOW)))
    lookup = lookup_of(runtime(clock), cache, http, throttle_for(clock, delay_s=1.0))
    assert await lookup.robots_for(leased, URL) is None, "the turn was used for the file"
    assert (leased.next_at, leased.delay_ms) == (clock.now + 4.0, 4_000)
