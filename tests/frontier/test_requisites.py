"""Page requisites in the frontier: each is queued once, brings no domain into the crawl, and is counted by itself."""

from __future__ import annotations

from frontier.counters import Counters
from frontier.dead_letters import DeadLetters
from frontier.entries import Entry, parse_entry
from frontier.lookup import UrlLookup
from frontier.queue import Frontier, FrontierSettings
from frontier.settle import SettledUrl, Settlement
from frontier.store import RedisStore
from tests.frontier.crawled import Crawled
from tests.frontier.helpers import ManualTime, entry, lease_one, make_frontier


def requisite(path: str = "image.png", domain: str = "a.test", **more: object) -> Entry:
    return entry(f"https://{domain}/{path}", domain, mode="requisite", **more)


def test_a_requisite_is_told_apart_in_its_text() -> None:
    for one in (requisite(depth=3, hops=1, via="https://b.test/"), entry("http://127.0.0.1:8080/", mode="requisite")):
        assert parse_entry(one.raw, one.domain, 0.0) == one
    assert requisite().raw.lower() == entry(requisite().url).raw


async def test_a_url_is_queued_once_as_a_requisite_and_once_as_a_page(frontier: Frontier) -> None:
    assert (await frontier.push([requisite(), requisite("other.png")])).accepted == 2
    assert (await frontier.push([requisite()])).seen == 1
    page = entry(requisite().url)
    assert (await frontier.push([page])).accepted == 1
    assert await frontier.is_seen(page)
    assert not await frontier.is_seen(entry(requisite("other.png").url))
    assert (await frontier.push([requisite()])).seen == 1


async def test_what_is_a_page_is_no_requisite(frontier: Frontier) -> None:
    await frontier.push([entry(requisite("page").url)])
    assert (await frontier.push([requisite("page")])).seen == 1
    lease = await lease_one(frontier)
    assert [one.url for one in lease.entries] == [requisite("page").url]


async def test_a_requisite_does_not_bring_its_domain_into_the_crawl(frontier: Frontier, store: RedisStore) -> None:
    await frontier.push([entry(), requisite(domain="cdn.test")])
    link = entry("https://cdn.test/page", "cdn.test", mode="known")
    assert (await frontier.push([link])).outside == 1
    assert (await Counters(store, frontier.keys).counts()).domains == 1


async def test_requisites_leave_the_room_for_pages(store: RedisStore, crawl_name: str, time: ManualTime) -> None:
    frontier = await make_frontier(store, crawl_name, time, FrontierSettings(domain_cap=2))
    pushed = await frontier.push([requisite(f"{number}.png") for number in range(5)])
    assert (pushed.accepted, pushed.capped) == (2, 3)
    assert (await frontier.push([entry(), entry("https://a.test/2")])).accepted == 2


async def test_requisites_are_counted_by_their_reasons(frontier: Frontier, store: RedisStore, time: ManualTime) -> None:
    await frontier.push([requisite("good.png"), requisite("bad.png"), requisite("denied.png"), entry()])
    lease = await lease_one(frontier)
    outcomes = {"good.png": ("done", "200"), "bad.png": ("dead", "http_404"), "denied.png": ("denied", "robots")}
    outcomes["1"] = "done", "200"
    urls = [SettledUrl(one, *outcomes[one.url.rpartition("/")[2]]) for one in lease.entries]
    await frontier.settle([Settlement(lease, 0, urls=urls)])

    counters, letters = Counters(store, frontier.keys), DeadLetters(store, frontier.keys)
    counts = await counters.counts()
    assert counts.requisites == {"200": 1, "http_404": 1, "robots": 1}
    assert (counts.done, counts.dead, counts.denied, counts.open, counts.requisites_found) == (1, 0, 0, 0, 3)
    assert await counters.has_ended()
    (letter,) = [letter async for letter in letters.find()]
    assert letter.is_requisite
    assert (letter.url, letter.reason) == (requisite("bad.png").url, "http_404")

    assert await letters.requeue([letter], time.ms) == 1
    counts = await counters.counts()
    assert counts.requisites == {"200": 1, "robots": 1}
    assert (counts.open, counts.dead) == (1, 0)
    assert not await counters.has_ended()
    status = await UrlLookup(store, frontier).url(letter.url, "a.test")
    assert status.where == "queued"
    assert status.entry is not None
    assert status.entry.is_requisite


async def test_a_reshard_keeps_requisites(store: RedisStore, crawl_name: str, time: ManualTime) -> None:
    crawled = Crawled(store, crawl_name, time)
    await crawled.begin(4)
    frontier = await crawled.open()
    images = [requisite(domain=f"d{number}.test") for number in range(10)]
    await frontier.push([*images, *(requisite(f"{number}.png", "many.test") for number in range(600))])
    before = await Counters(store, frontier.keys).counts()
    await crawled.reshard(16)
    await crawled.reshard(2)
    frontier = await crawled.open()
    assert (await Counters(store, frontier.keys).counts()).requisites_found == before.requisites_found == 610
    assert all([await frontier.is_seen(image) for image in images])
    assert (await frontier.push(images)).seen == 10
