"""A sitemap that says which pages have changed is believed as far as it was right."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
import pytest

from crawler.events import PageSettled
from crawler.page import Link, LinkKind, Outcome, Page
from crawler.worker.sitemap_hints import EARNED, FIRST_CREDIT, MOST_CREDIT, Credits, SitemapHints, hinted
from frontier.clock import ServerClock
from frontier.entries import Entry
from frontier.queue import Frontier, FrontierSettings
from frontier.settle import SettledUrl, Settlement, with_next_visit
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, lease_one, make_frontier
from tests.worker.test_throttle import runtime

NOW = 1_700_000_000.0
BEFORE = NOW - 3_600


def sitemap(*listed: tuple[str, float]) -> Page:
    links = tuple(Link(url, LinkKind.LISTED, lastmod) for url, lastmod in listed)
    page = Page("https://a.test/sitemap.xml", "a.test", 0, Outcome.DONE, "ok", NOW, links=links)
    return msgspec.structs.replace(page, previous_at=BEFORE)


def test_what_has_changed_since_the_visit_before_is_due_the_latest_first() -> None:
    page = sitemap(
        ("https://a.test/old", BEFORE - 1),
        ("https://a.test/first", BEFORE + 1),
        ("https://www.a.test/second", BEFORE + 2),
        ("https://a.test/unknown", 0.0),
        ("https://a.test/future", NOW + 60),
        ("https://b.test/foreign", BEFORE + 1),
    )
    assert hinted(page) == ["https://www.a.test/second", "https://a.test/first"]


def test_links_of_pages_are_no_hints() -> None:
    page = msgspec.structs.replace(sitemap(), links=(Link("https://a.test/1"),))
    assert hinted(page) == [] and hinted(msgspec.structs.replace(page, links=())) == []


def test_one_that_is_right_may_cause_more_and_more_visits() -> None:
    credits = Credits()
    for round_ in range(200):
        left = credits.left("a.test")
        assert left == min(MOST_CREDIT, FIRST_CREDIT * EARNED**round_)
        urls = [f"https://a.test/{round_}/{number}" for number in range(left)]
        credits.use("a.test", urls)
        assert credits.left("a.test") == 0
        for url in urls:
            credits.visited("a.test", url, has_changed=True)


def test_only_visits_that_a_sitemap_has_caused_count() -> None:
    credits = Credits()
    credits.use("a.test", ["https://a.test/1", "https://a.test/2"])
    credits.visited("a.test", "https://a.test/3", has_changed=True)
    credits.visited("a.test", "https://a.test/1", has_changed=False)
    assert (credits.left("a.test"), credits.left("b.test")) == (FIRST_CREDIT - 2, FIRST_CREDIT)


class Crawl:
    """The domain a.test with some known pages, none of which is due, and a replica that reads its sitemaps."""

    def __init__(self, store: RedisStore, frontier: Frontier, time: ManualTime, clock: ServerClock) -> None:
        self.frontier = frontier
        self._time = time
        self._tasks: list[asyncio.Task[None]] = []
        self._hints = SitemapHints(runtime(time, clock), store, frontier, self._spawn)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._tasks.append(task := asyncio.create_task(work))
        return task

    async def know(self, pages: int) -> None:
        await self.frontier.push([Entry(f"https://a.test/{number}", "a.test") for number in range(pages)])
        await self.visit()

    async def visit(self, has_changed: bool | None = None) -> set[str]:
        """Visit all pages that are due. Returns their URLs. `has_changed`: None for first visits."""
        lease, due_ms = await lease_one(self.frontier), self._time.ms + 3_600_000
        done = [with_next_visit(SettledUrl(one, "done", "200"), "new", due_ms, "00") for one in lease.entries]
        await self.frontier.settle([Settlement(lease, 0, urls=done)])
        for one in lease.entries if has_changed is not None else ():
            page = msgspec.structs.replace(sitemap(), url=one.url, visit="changed" if has_changed else "unchanged")
            self._hints.observe(PageSettled(page))
        return {one.url for one in lease.entries}

    async def read(self, *sitemaps: Sequence[str]) -> None:
        """Visit sitemaps, each of which says that these URLs have changed, the last first."""
        for urls in sitemaps:
            self._hints.observe(PageSettled(sitemap(*((url, BEFORE + 1 + at) for at, url in enumerate(urls)))))
        await asyncio.gather(*self._tasks)


@pytest.fixture
async def crawl(store: RedisStore, crawl_name: str) -> Crawl:
    time = ManualTime()
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()
    settings = FrontierSettings(known_share=0.5, batch=500, delay_ms=0)
    return Crawl(store, await make_frontier(store, crawl_name, time, settings), time, clock)


async def test_new_pages_use_up_no_credit(crawl: Crawl) -> None:
    """Given a sitemap that lists many new articles before each page that has changed, then its hints go on counting."""
    await crawl.know(3)
    for number in range(3):
        new = [f"https://a.test/new/{number}/{article}" for article in range(4 * FIRST_CREDIT)]
        await crawl.read([f"https://a.test/{number}", *new])
        assert await crawl.visit(has_changed=False) == {f"https://a.test/{number}"}


async def test_a_sitemap_that_lies_costs_a_limited_number_of_visits(crawl: Crawl) -> None:
    await crawl.know(30)
    pages = [f"https://a.test/{number}" for number in range(30)]
    for visits in (30, 30, 30, 10):
        await crawl.read(pages)
        assert len(await crawl.visit(has_changed=False)) == visits
    await crawl.read(pages)
    with pytest.raises(IndexError):
        await crawl.visit(has_changed=False)


async def test_sitemaps_that_are_read_at_once_share_the_credit(crawl: Crawl) -> None:
    await crawl.know(3 * FIRST_CREDIT)
    urls = [f"https://a.test/{number}" for number in range(3 * FIRST_CREDIT)]
    await crawl.read(*(urls[at : at + FIRST_CREDIT // 2] for at in range(0, len(urls), FIRST_CREDIT // 2)))
    assert await crawl.visit(has_changed=False) == set(urls[:FIRST_CREDIT])


async def test_a_page_whose_visit_is_awaited_costs_no_more(crawl: Crawl) -> None:
    await crawl.know(FIRST_CREDIT)
    urls = [f"https://a.test/{number}" for number in range(FIRST_CREDIT)]
    for _ in range(3):
        await crawl.read(urls[1:])
    await crawl.read(urls[:1])
    assert await crawl.visit(has_changed=False) == set(urls)
