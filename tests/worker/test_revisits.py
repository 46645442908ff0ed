"""Later visits: when they are planned at domains that do not allow all of them, conditional requests, and how far the hints
of sitemaps are believed."""

from __future__ import annotations

import asyncio
import heapq
import math
import random
import re
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
import pytest

from crawler.events import PageSettled
from crawler.page import Exchange, Link, LinkKind, Outcome, Page
from crawler.scope.freshness import Observed, interval_s
from crawler.scope.next_visit import parse_rules, visit_priority
from crawler.worker.revisits import (
    EARNED,
    FIRST_CREDIT,
    MOST_CREDIT,
    MOST_SITES,
    LastmodTrust,
    SiteGains,
    SitemapHints,
    hinted,
    planned,
)
from frontier.clock import ServerClock
from frontier.entries import Entry
from frontier.known_pages import rest_of_record
from frontier.queue import Frontier, FrontierSettings
from frontier.settle import SettledUrl, Settlement, with_next_visit
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, lease_one, make_frontier
from tests.worker.helpers import runtime, server_clock_of

HOUR, DAY = 3_600.0, 86_400.0
AT = 1.7e9
GAIN = HOUR / 2


def run(pages: int, turn_s: float, days: int) -> tuple[float, float, SiteGains]:
    """Visit pages of one domain that change at known rates, one in `turn_s` seconds, in the order in which they are due.
    Returns the mean lateness in the last third, relative to the interval, and the gain of the visits then."""
    rng, gains = random.Random(3), SiteGains()
    rates = [math.exp(rng.gauss(math.log(1 / DAY), 1.5)) for _ in range(pages)]
    seen = [Observed(30, 15, 15 * math.log(2) / rate, 15 * math.log(2) / rate) for rate in rates]
    due = [(rng.uniform(0, DAY), number, 0.0) for number in range(pages)]
    heapq.heapify(due)
    at, late, gained = 0.0, [0.0], [0.0]
    while at < days * DAY:
        due_at, number, last_at = heapq.heappop(due)
        at = max(at + turn_s, due_at)
        rate = Observed(*seen[number])
        gain_s = _gain_s(rates[number], at - last_at)
        if HOUR < due_at - last_at < 30 * DAY and last_at:
            gains.note("a.test", gain_s, GAIN)
        if at > days * DAY * 2 / 3:
            late.append((at - due_at) / max(HOUR, due_at - last_at))
            gained += [gain_s] if due_at - last_at > HOUR else []
        wait_s = interval_s(rate, max(GAIN, gains.least("a.test")), HOUR, 30 * DAY)
        heapq.heappush(due, (at + wait_s, number, at))
    return sum(late) / len(late), sum(gained) / len(gained), gains


def _gain_s(rate: float, after_s: float) -> float:
    return (1 - (1 + rate * after_s) * math.exp(-rate * after_s)) / rate


def test_visits_are_planned_for_what_the_delay_allows() -> None:
    late, _, gains = run(pages=300, turn_s=900.0, days=60)
    assert gains.least("a.test") > 4 * GAIN
    assert late < 0.1


def test_a_domain_with_room_is_asked_for_no_more_than_its_rule() -> None:
    late, gained, gains = run(pages=300, turn_s=1.0, days=10)
    assert gains.least("a.test") < 1.1 * GAIN and gained < 1.2 * GAIN and late < 0.01


def test_what_is_known_fades_when_there_is_room_again() -> None:
    gains = SiteGains()
    for _ in range(200):
        gains.note("a.test", 10 * GAIN, GAIN)
    for _ in range(10_000):
        gains.note("a.test", gains.least("a.test"), GAIN)
    assert gains.least("a.test") <= GAIN


def test_visits_that_wait_are_made_in_the_order_in_which_they_were_due() -> None:
    rules, due = parse_rules(["match=1$ every=2h", "every=1h"]), []
    for number in range(4):
        entry = Entry(f"https://a.test/{number}", "a.test", priority=-float(number))
        page = Page(
            entry.url, "a.test", 0, Outcome.DONE, "ok", 1.7e9, exchange=exchange_at(entry.url, 1.7e9 + 60 * number)
        )
        settled, _ = planned(rules, SettledUrl(entry, "done", "200"), page, SiteGains())
        priority = re.search(rb" \w{3}(-\d+) ", bytes(settled.follow_up))  # of the record of the page
        assert priority is not None
        due.append((-int(priority[1]), number))
    assert [number for _, number in sorted(due)] == [0, 2, 3, 1]


def test_a_page_says_what_is_stored_of_its_visits() -> None:
    """Also at the second visit, which may be the last one; without rules, it is the last."""
    rules, entry = parse_rules(["every=1h"]), Entry("https://a.test/", "a.test", depth=2)
    page = Page(entry.url, "a.test", 2, Outcome.DONE, "ok", AT, exchange=exchange_at(entry.url, AT + 0.3))
    settled, first = planned(rules, SettledUrl(entry, "done", "200"), page, SiteGains())
    assert (first.next_at, first.previous_at) == (AT + HOUR + 1, 0.0)  # whole seconds, and not too early
    due_s, stored = bytes(settled.follow_up).removeprefix(b"visit\nnew\n").split(b"\n", 1)
    assert int(due_s) == first.next_at
    again = msgspec.structs.replace(entry, priority=visit_priority(int(due_s)), visit=first.visit_state)
    assert stored == rest_of_record(again)
    for without in (parse_rules(["never"]), ()):
        _, last = planned(without, SettledUrl(again, "done", "200"), page, SiteGains())
        assert (last.next_at, last.visit_state, last.previous_at) == (0.0, "", AT + 0.3)
    failed = planned(rules, SettledUrl(again, "done", "200"), page, SiteGains())[1].failed()
    assert (failed.next_at, failed.visit_state, failed.previous_at) == (0.0, "", 0.0)


def exchange_at(url: str, at: float) -> Exchange:
    return Exchange(url, 200, "OK", (), b"", b"", b"body", "", at, 0.1, 0.1)


def test_a_replica_remembers_a_limited_number_of_domains() -> None:
    gains = SiteGains()
    for number in range(MOST_SITES + 5):
        gains.note(f"d{number}.test", 10 * GAIN, GAIN)
    assert gains.least("d4.test") == 0 and gains.least("d5.test") > 0


# hints of sitemaps


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
    trust = LastmodTrust()
    for round_ in range(200):
        left = trust.left("a.test")
        assert left == min(MOST_CREDIT, FIRST_CREDIT * EARNED**round_)
        urls = [f"https://a.test/{round_}/{number}" for number in range(left)]
        trust.use("a.test", urls)
        assert trust.left("a.test") == 0
        for url in urls:
            trust.visited("a.test", url, has_changed=True)


def test_only_visits_that_a_sitemap_has_caused_count() -> None:
    trust = LastmodTrust()
    trust.use("a.test", ["https://a.test/1", "https://a.test/2"])
    trust.visited("a.test", "https://a.test/3", has_changed=True)
    trust.visited("a.test", "https://a.test/1", has_changed=False)
    assert (trust.left("a.test"), trust.left("b.test")) == (FIRST_CREDIT - 2, FIRST_CREDIT)


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
    clock = await server_clock_of(time)
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
