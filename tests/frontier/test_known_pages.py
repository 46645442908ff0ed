"""Known pages are stored in buckets, whose number grows with that of the pages, and are found by their URL."""

from __future__ import annotations

import random

import pytest

from frontier.counters import Counters
from frontier.crawls import Crawl
from frontier.entries import Entry, tag_of
from frontier.forget import Forgetting
from frontier.known_pages import (
    domains_with_known_pages,
    find_page,
    page_of,
    pages_in,
    refresh_matching,
    refresh_page,
    rest_of_record,
    without_via,
)
from frontier.lookup import UrlLookup
from frontier.queue import Frontier, FrontierSettings
from frontier.settle import SettledUrl, Settlement, with_next_visit
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, ask, lease_one, make_frontier

LATER_MS = 60_000
DOMAIN = "a.test"
ODD = (
    Entry("https://www.a.test/x", DOMAIN, -2.5, depth=255, hops=15, via="https://b.test/,,%20?a=b,c"),
    Entry("http://a.test/", DOMAIN, 1e300, depth=16),
    Entry("http://www.a.test/?q=/page", DOMAIN, float("-inf")),
    Entry("https://sub.a.test:8443/x", DOMAIN, 0.1),
    Entry("https://a.test/x", DOMAIN),
    Entry("https://a.test/x/x", DOMAIN),
    Entry("https://a.test/" + "y" * 2_000, DOMAIN),
    Entry("https://a.test/tag", DOMAIN, tag=tag_of("p", {"a, b": "x"})),
    Entry("https://a.test/both", DOMAIN, via="https://b.test/,", tag="p"),
)
STATES = ("00", "20", "0a20732f7820", "ff" * 300)


@pytest.fixture
async def frontier(store: RedisStore, crawl_name: str, time: ManualTime) -> Frontier:
    settings = FrontierSettings(known_share=0.5, batch=500, delay_ms=0)
    return await make_frontier(store, crawl_name, time, settings)


async def know(frontier: Frontier, time: ManualTime, pages: list[Entry]) -> dict[str, str]:
    """Make `pages` known, and return the state of each URL."""
    await frontier.push(pages)
    states = {}
    while len(states) < len(pages):
        lease = await lease_one(frontier)
        urls = []
        for one in lease.entries:
            state = states[one.url] = STATES[len(states) % len(STATES)]
            urls.append(with_next_visit(SettledUrl(one, "done", "200"), "new", time.ms + LATER_MS, state))
        await frontier.settle([Settlement(lease, 0, urls=urls)])
    return states


async def buckets(store: RedisStore, frontier: Frontier) -> list[bytes]:
    key = frontier.keys.shards[0].known(DOMAIN)
    return [await ask(store, "HGET", key, bucket) for bucket in range(await ask(store, "HLEN", key))]


async def test_odd_pages_come_back_as_they_were(frontier: Frontier, time: ManualTime) -> None:
    states = await know(frontier, time, list(ODD))
    time.ms += LATER_MS
    entries = {one.url: one for one in (await lease_one(frontier)).entries}
    for one in ODD:
        again = entries[one.url]
        assert (again.visit, again.via, again.depth, again.hops) == (states[one.url], one.via, one.depth, one.hops)


async def test_the_buckets_grow_and_every_page_is_in_its_own(
    store: RedisStore, frontier: Frontier, time: ManualTime
) -> None:
    pages = [Entry(f"https://a.test/page-{number}", DOMAIN) for number in range(1_000)]
    await know(frontier, time, pages)
    found = await buckets(store, frontier)
    sizes = [sum(1 for _ in pages_in(records, DOMAIN)) for records in found]
    assert len(sizes) == 16 and sum(sizes) == 1_000 and max(sizes) < 200
    of = frontier.keys.shards[0]
    for one in pages:
        known = await find_page(store, frontier.keys, of, Entry(one.url, DOMAIN))
        assert known is not None and known.entry.url == one.url
    assert await find_page(store, frontier.keys, of, Entry("https://a.test/page-1000", DOMAIN)) is None
    assert await ask(store, "ZCARD", of.visits(DOMAIN)) == 16
    assert await ask(store, "HGET", of.domain(DOMAIN), "known") == b"1000"


async def test_all_of_many_are_visited_at_their_time(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    """Nothing is left of the keys when all are queued."""
    states = await know(frontier, time, [Entry(f"https://a.test/{number}", DOMAIN) for number in range(700)])
    time.ms += LATER_MS
    seen: dict[str, str] = {}
    while len(seen) < 700:
        lease = await lease_one(frontier)
        seen |= {one.url: one.visit for one in lease.entries}
        await frontier.settle([Settlement(lease, 0, urls=[SettledUrl(one, "done", "200") for one in lease.entries])])
    assert seen == states
    of = frontier.keys.shards[0]
    assert await ask(store, "EXISTS", of.known(DOMAIN), of.visits(DOMAIN), of.revisits) == 0
    assert (await Counters(store, frontier.keys).counts()).known == 0


async def test_each_of_many_is_visited_when_it_is_due(frontier: Frontier, time: ManualTime) -> None:
    """The buckets are divided while pages with different times are in them."""
    rng, due_s = random.Random(1), {}
    await frontier.push([Entry(f"https://a.test/{number}", DOMAIN) for number in range(700)])
    while len(due_s) < 700:
        lease = await lease_one(frontier)
        due_s |= {one.url: time.ms // 1000 + 10 * rng.randint(1, 20) for one in lease.entries}
        urls = [
            with_next_visit(SettledUrl(one, "done", "200"), "new", due_s[one.url] * 1000, "00") for one in lease.entries
        ]
        await frontier.settle([Settlement(lease, 0, urls=urls)])
    for second in sorted(set(due_s.values())):
        time.ms = second * 1000
        lease = await lease_one(frontier)
        assert {one.url for one in lease.entries} == {url for url, at in due_s.items() if at == second}
        await frontier.settle([Settlement(lease, 0, urls=[SettledUrl(one, "done", "200") for one in lease.entries])])


async def test_a_page_is_refreshed_and_looked_up_among_many(
    store: RedisStore, frontier: Frontier, time: ManualTime
) -> None:
    await know(frontier, time, [Entry(f"https://a.test/{number}", DOMAIN) for number in range(700)])
    assert await refresh_page(store, frontier.keys, "https://a.test/345", DOMAIN, time.ms) == 1
    found = await UrlLookup(store, frontier).url("https://a.test/345", DOMAIN)
    assert found.next_ms == time.ms // 1000 * 1000
    assert [one.url for one in (await lease_one(frontier)).entries] == ["https://a.test/345"]
    found = await UrlLookup(store, frontier).url("https://a.test/346", DOMAIN)
    assert (found.where, found.next_ms) == ("settled", time.ms + LATER_MS)


async def test_pages_that_match_are_refreshed(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    await know(frontier, time, [Entry(f"https://a.test/{number}", DOMAIN) for number in range(700)])
    wanted = lambda url: url.endswith("7")  # noqa: E731
    assert await refresh_matching(store, frontier.keys, DOMAIN, wanted, time.ms) == 70
    assert await refresh_matching(store, frontier.keys, DOMAIN, wanted, time.ms) == 0
    assert await refresh_matching(store, frontier.keys, "b.test", wanted, time.ms) == 0
    assert [domain async for domain in domains_with_known_pages(store, frontier.keys)] == [DOMAIN]
    assert {one.url[-1] for one in (await lease_one(frontier)).entries} == {"7"}


async def test_a_domain_with_many_is_forgotten(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    await know(frontier, time, [Entry(f"https://a.test/{number}", DOMAIN) for number in range(700)])
    crawl = Crawl(frontier.keys.crawl, 1, b"key", b"{}", 1, created=False)
    forgetting = Forgetting(store, crawl, frontier, DOMAIN)
    await forgetting.purge(durable_s=0.0)
    assert (forgetting.removed.known, forgetting.removed.seen) == (700, 700)
    assert (await Counters(store, frontier.keys).counts()).known == 0
    assert [key for key in await ask(store, "KEYS", f"{frontier.keys.shards[0].base}*") if DOMAIN.encode() in key] == []


def test_a_page_where_urls_were_found_is_removed_from_records() -> None:
    entries = [Entry(one.url, DOMAIN, one.priority, one.depth, via=one.via, visit="2c20", tag=one.tag) for one in ODD]
    rests = [rest_of_record(one) for one in entries]
    records = b"".join((len(rest) + 4).to_bytes(2) + (7).to_bytes(4) + rest for rest in rests)
    assert [page.entry for page in pages_in(records, DOMAIN)] == entries
    after, changed = without_via(records, lambda via: via.startswith("https://b.test/"))
    assert changed == 2
    assert {page.entry.via for page in pages_in(after, DOMAIN)} == {""}
    assert [page.entry.tag for page in pages_in(after, DOMAIN)] == [one.tag for one in ODD]
    assert [page_of(page.entry.raw) for page in pages_in(after, DOMAIN)] == [page_of(one.raw) for one in entries]
