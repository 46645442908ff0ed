"""The links that a replica remembers as recently pushed."""

from __future__ import annotations

from crawler.page import LinkKind
from crawler.scope.scope import RecentUrls
from frontier.entries import Entry, PushMode
from frontier.urls import canonicalize

URL = canonicalize("http://a.test/x")


def link(mode: PushMode) -> Entry:
    return Entry(URL.href, URL.domain, mode=mode)


def test_a_link_that_may_have_been_dropped_stands_for_itself_alone() -> None:
    recent = RecentUrls(10)
    recent.add(link("known"))
    assert link("known") in recent
    assert link("new") not in recent
    assert recent.not_recent([(URL, LinkKind.ANCHOR)]) == [(URL, LinkKind.ANCHOR)]


def test_a_link_that_counts_stands_for_both() -> None:
    recent = RecentUrls(10)
    recent.add(link("new"))
    assert link("new") in recent
    assert link("known") in recent
    assert recent.not_recent([(URL, LinkKind.ANCHOR)]) == []
    recent.clear()
    assert link("new") not in recent


def test_where_a_page_has_moved_is_asked_for_each_time() -> None:
    recent = RecentUrls(10)
    recent.add(link("new"))
    recent.add(link("moved"))
    assert link("moved") not in recent
    assert link("new") in recent


def test_what_it_holds_is_bounded() -> None:
    recent = RecentUrls(10)
    for number in range(100):
        recent.add(Entry(f"http://a.test/{number}", "a.test"))
        assert len(recent) <= 10
    assert Entry("http://a.test/99", "a.test") in recent
    assert Entry("http://a.test/89", "a.test") not in recent
