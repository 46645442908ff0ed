"""A sitemap that says which pages have changed is believed as far as it was right."""

from __future__ import annotations

import msgspec

from crawler.page import Link, LinkKind, Outcome, Page
from crawler.worker.sitemap_hints import EARNED, FIRST_CREDIT, MOST_CREDIT, Credits, hinted

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


def test_a_sitemap_that_lies_costs_a_limited_number_of_visits() -> None:
    credits, pages, visits = Credits(), [f"https://a.test/{number}" for number in range(30)], 0
    for _ in range(1_000):
        for url in credits.use("a.test", pages):
            visits += 1
            credits.visited("a.test", url, has_changed=False)
    assert visits == FIRST_CREDIT
    assert len(credits.use("b.test", pages)) == 30


def test_one_that_is_right_may_cause_more_and_more_visits() -> None:
    credits = Credits()
    for round_ in range(200):
        urls = [f"https://a.test/{round_}/{number}" for number in range(MOST_CREDIT)]
        chosen = credits.use("a.test", urls)
        assert len(chosen) == min(MOST_CREDIT, FIRST_CREDIT * EARNED**round_)
        for url in chosen:
            credits.visited("a.test", url, has_changed=True)


def test_a_page_whose_visit_is_awaited_is_not_asked_for_again() -> None:
    credits = Credits()
    assert credits.use("a.test", ["https://a.test/1"]) == ["https://a.test/1"]
    assert credits.use("a.test", ["https://a.test/1", "https://a.test/2"]) == ["https://a.test/2"]
    credits.visited("a.test", "https://a.test/3", has_changed=True)  # which nobody has asked for
    credits.visited("a.test", "https://a.test/1", has_changed=False)
    assert len(credits.use("a.test", [str(n) for n in range(1_000)])) == FIRST_CREDIT - 2
