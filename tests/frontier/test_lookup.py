"""Looks up a URL in each state, and in each bucket of the seen-set."""

from __future__ import annotations

import pytest

from frontier.lookup import UrlLookup, UrlStatus
from frontier.queue import Frontier
from frontier.settle import Lease, SettledUrl, Settlement, retry
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, entry

URL = "https://a.test/[1]*?x=1"


@pytest.fixture
def lookup(store: RedisStore, frontier: Frontier) -> UrlLookup:
    return UrlLookup(store, frontier)


async def lease(frontier: Frontier) -> Lease:
    leased, _ = await frontier.lease([0], 1, "r1", 1)
    return leased[0].leases[0]


async def where(lookup: UrlLookup) -> UrlStatus:
    return await lookup.url(URL, "a.test")


@pytest.mark.parametrize("via", ["", "https://b.test/[2]?y"])
async def test_a_url_is_found_wherever_it_stands(
    frontier: Frontier, lookup: UrlLookup, time: ManualTime, via: str
) -> None:
    """The whole life of a URL: unseen, queued, leased, waiting, queued again, dead."""
    assert (await where(lookup)).where == "unseen"
    await frontier.push([entry(URL, via=via, depth=7, hops=2, priority=-7.0)])
    queued = await where(lookup)
    assert queued == UrlStatus("queued", entry(URL, via=via, depth=7, hops=2, priority=-7.0))
    held = await lease(frontier)
    assert await where(lookup) == UrlStatus("leased", queued.entry)
    again = retry(held.entries[0], "timeout", time.ms + 500, -8.0)
    await frontier.settle([Settlement(held, time.ms, urls=[again])])
    waiting = await where(lookup)
    assert (waiting.where, waiting.ready_ms, waiting.entry and waiting.entry.tries) == ("waiting", time.ms + 500, 1)
    time.ms += 1_000
    held = await lease(frontier)
    assert (await where(lookup)).where == "leased"
    await frontier.release([Settlement(held, time.ms)])
    assert await where(lookup) == UrlStatus("queued", entry(URL, via=via, depth=7, hops=2, tries=1, priority=-8.0))
    held = await lease(frontier)
    await frontier.settle([Settlement(held, time.ms, urls=[SettledUrl(held.entries[0], "dead", "timeout")])])
    dead = await where(lookup)
    assert (dead.where, dead.reason) == ("dead", "timeout")


async def test_a_settled_url_is_seen_and_nowhere_else(frontier: Frontier, lookup: UrlLookup, time: ManualTime) -> None:
    await frontier.push([entry(URL)])
    held = await lease(frontier)
    await frontier.settle([Settlement(held, time.ms, urls=[SettledUrl(held.entries[0], "done", "ok")])])
    assert await where(lookup) == UrlStatus("settled")


async def test_a_url_whose_text_resembles_another_is_not_taken_for_it(frontier: Frontier, lookup: UrlLookup) -> None:
    """Glob characters in a URL are literal, and http is not https."""
    await frontier.push([entry("https://a.test/abc1abc?x=1", tries=2), entry("http://a.test/[1]*?x=1", tries=3)])
    assert (await where(lookup)).where == "unseen"


async def test_every_url_is_found_in_a_seen_set_that_has_grown(frontier: Frontier) -> None:
    """Given enough URLs to split buckets unevenly, when each is looked up, then each is found as seen."""
    urls = [f"https://a.test/{number}" for number in range(1_500)]
    await frontier.push([entry(url) for url in urls])
    assert all([await frontier.is_seen(entry(url)) for url in urls])
    assert not any([await frontier.is_seen(entry(url + "/")) for url in urls[:200]])


async def test_a_domain_that_nobody_knows_has_nothing(lookup: UrlLookup) -> None:
    found = await lookup.domain("a.test")
    assert (found.last_holder, found.due_ms, found.next_ms, found.accepted, found.queued) == ("", None, None, 0, 0)


async def test_a_leased_domain_tells_its_holder_and_its_lease(
    frontier: Frontier, lookup: UrlLookup, time: ManualTime
) -> None:
    await frontier.push([entry(URL)])
    held = await lease(frontier)
    found = await lookup.domain("a.test")
    assert (found.last_holder, found.epoch, found.in_flight, found.due_ms) == ("r1", 1, 1, None)
    assert found.leased_until_ms == held.expires_ms


async def test_urls_that_begin_alike_are_told_apart(frontier: Frontier, lookup: UrlLookup) -> None:
    via = "https://b.test/"
    await frontier.push([entry(URL + "2", via=via), entry(URL + "%20", via=via), entry(URL, depth=3, via=via)])
    assert await where(lookup) == UrlStatus("queued", entry(URL, depth=3, via=via))
