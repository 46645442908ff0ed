"""Which URLs belong to a crawl, which are traps, and which links were pushed recently."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.page import LinkKind
from crawler.scope.scope import (
    MOST_NEW,
    REASONS,
    TRAP_REASONS,
    LinkFilter,
    RecentUrls,
    Scope,
    TrapPolicy,
    breadth_first,
    judge_trap,
)
from frontier.entries import Entry, PushMode
from frontier.errors import BadInput
from frontier.urls import canonicalize

HOME = "example.com"


def judge(scope: Scope, href: str, depth: int = 1, hops: int = 0, source: str = HOME) -> str | None:
    return scope.judge(canonicalize(href), depth, hops, source)


@pytest.mark.parametrize(
    ("scope", "inside", "outside"),
    [
        (Scope.of(), ["http://example.com/", "https://www.example.com:8443/"], ["http://example.org/"]),
        (Scope.of(kind="any"), ["http://example.org/", "http://[::1]/"], []),
        (
            Scope.of(kind="domains", names=["Example.org", "*.docs.example.net", "bücher.example"]),
            ["http://www.example.org/", "http://a.docs.example.net:81/", "http://xn--bcher-kva.example/"],
            ["http://example.com/", "http://example.net/", "http://notexample.org/"],
        ),
        (
            Scope.of(kind="hosts", names=["www.example.org", "[::1]", "192.0.2.1"]),
            ["http://www.example.org:8080/", "http://[::1]:80/", "http://[::1]:81/", "http://192.0.2.1/"],
            ["http://example.org/", "http://a.www.example.org/", "http://[::2]/"],
        ),
    ],
)
def test_kinds(scope: Scope, inside: list[str], outside: list[str]) -> None:
    assert [judge(scope, href) for href in inside] == [None] * len(inside)
    assert [judge(scope, href) for href in outside] == ["outside"] * len(outside)


def test_patterns_narrow_a_scope() -> None:
    scope = Scope.of(include=[r"/docs/", r"\.html$"], exclude=[r"/docs/old/"])
    assert judge(scope, "http://example.com/docs/a") is None
    assert judge(scope, "http://example.com/a.html") is None
    assert judge(scope, "http://example.com/docs/old/a.html") == "excluded"
    assert judge(scope, "http://example.com/a") == "not_included"


def test_depth_and_hops_have_limits() -> None:
    scope = Scope.of(max_depth=2, max_hops=1)
    assert [judge(scope, "http://example.com/", depth) for depth in (0, 2, 3)] == [None, None, "depth"]
    assert [judge(scope, "http://example.com/", 0, hops) for hops in (0, 1, 2)] == [None, None, "hops"]
    assert judge(Scope.of(), "http://example.com/", 10_000) is None


def judge_queued(scope: Scope, href: str, depth: int = 1) -> str | None:
    url = canonicalize(href)
    return scope.judge_queued(Entry(url.href, url.domain, depth=depth))


def test_what_is_queued_is_judged_again() -> None:
    """Seeds, which somebody has named, need only not be excluded."""
    scope = Scope.of(kind="domains", names=["example.com"], include=["/docs/"], exclude=["/old/"], max_depth=3)
    assert judge_queued(scope, "http://example.com/docs/") is None
    assert judge_queued(scope, "http://example.com/docs/old/") == "excluded"
    assert judge_queued(scope, "http://example.com/docs/old/", depth=0) == "excluded"
    assert judge_queued(scope, "http://example.com/news") == "not_included"
    assert judge_queued(scope, "http://example.com/docs/", depth=4) == "depth"
    assert judge_queued(scope, "http://www.example.com/docs/") is None
    assert judge_queued(scope, "http://example.org/docs/") == "outside"
    assert judge_queued(scope, "http://example.org/", depth=0) is None
    assert judge_queued(Scope.of(kind="hosts", names=["example.com"]), "http://www.example.com/") == "outside"
    assert judge_queued(Scope.of(), "http://example.org/") is None


def test_where_a_seed_redirects_to_is_as_good_as_the_seed() -> None:
    assert judge(Scope.of(), "http://example.org/", depth=0, hops=1) is None
    assert judge(Scope.of(), "http://example.org/", depth=1, hops=1) == "outside"


def test_every_reason_can_be_given() -> None:
    scope = Scope.of(include=["/x"], exclude=["/y"], max_depth=1, max_hops=1)
    given = (
        judge(scope, "http://example.com/", depth=2),
        judge(scope, "http://example.com/", hops=2),
        judge(scope, "http://example.com/y"),
        judge(scope, "http://example.com/z"),
        judge(scope, "http://example.org/x", depth=1),
    )
    assert given == REASONS


@pytest.mark.parametrize("arguments", [{"names": ["a b"]}, {"names": [""]}, {"include": ["("]}, {"exclude": ["*"]}])
def test_malformed_scopes_are_refused(arguments: dict[str, list[str]]) -> None:
    with pytest.raises(BadInput):
        Scope.of(kind="hosts", **arguments)  # type: ignore[arg-type]


SITE = "http://example.com"
DEFAULT = TrapPolicy()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/" + "x" * 1024, "length"),
        ("/" + "/".join(map(str, range(30))), "path_depth"),
        ("/docs/a/a/a/b", "repetition"),
        ("/a/b/a/b/a/b", "repetition"),
        ("/a/b/c/d/a/b/c/d/a/b/c/d", "repetition"),
        ("/x/a/y/a/z/a/w/a/v/a/u", "repetition"),
        ("/list?p=3&q&p=3&p=3", "repetition"),
        ("/?" + "&".join(f"a{number}=1" for number in range(25)), "params"),
        ("/login?next=%252Flogin%253Fnext%253D%25252F", "nesting"),
    ],
)
def test_traps_are_seen(path: str, reason: str) -> None:
    assert judge_trap(SITE + path, DEFAULT) == reason


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/1/1/1",
        "/2011/11/11/a-title/",
        "/doc/doc/html/html/index.html",
        "/a/b/a/b/c/d",
        "/com/example/app/com/example/app/Main.html",
        "//////",
        "////a////b////",
        "/a?next=%2Fa%3Fb%3D%252F",
        "/a?id[]=1&id[]=2&id[]=3&x=1&y=1&z=1",
        "/a?p=3&q=3&p=3&&&",
        "/?" + "&".join(f"a{number}=1" for number in range(12)),
        "/" + "%D0%B0" * 150,
    ],
)
def test_real_pages_are_left_alone(path: str) -> None:
    assert judge_trap(SITE + path, DEFAULT) is None


def test_limits_are_settings() -> None:
    policy = TrapPolicy(max_length=60, max_segments=5, max_repeats=1, max_params=1)
    given = ("/" + "x" * 60, "/1/2/3/4/5/6", "/1/2/1/2/5", "/?a&b")
    assert [judge_trap(SITE + path, policy) for path in given] == list(TRAP_REASONS[:4])


@given(st.text(st.sampled_from("/ab?&%25"), max_size=60))
def test_any_path_gets_an_answer(path: str) -> None:
    assert judge_trap(f"{SITE}/{path}", DEFAULT) in (None, *TRAP_REASONS)


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4), st.integers(5, 8))
def test_a_pile_of_the_same_is_a_trap(cycle: list[str], times: int) -> None:
    """A page with a relative link to `cycle/` eventually generates such URLs."""
    assert judge_trap(f"{SITE}/{'/'.join(cycle * times)}/", DEFAULT) is not None


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


def test_links_to_other_domains_are_told_apart_if_their_number_is_limited() -> None:
    """And one that was dropped for the cap is still followed from a page of its own domain."""
    recent = RecentUrls(100)
    links = LinkFilter(Scope.of(kind="any"), TrapPolicy(), breadth_first, recent, has_cap=True)
    target = canonicalize("https://b.test/x")
    ((foreign,), _) = links.select([(target, LinkKind.ANCHOR)], Entry("https://a.test/", "a.test"))
    assert foreign.mode == "foreign"
    recent.add(foreign)
    assert foreign in recent
    ((own,), _) = links.select([(target, LinkKind.ANCHOR)], Entry("https://b.test/", "b.test"))
    assert own.mode == "new"
    assert own not in recent


def test_of_a_page_with_many_new_links_only_some_tell_what_it_leads_to() -> None:
    """The patterns of an operator may take half a millisecond for each, in the event loop."""
    links = LinkFilter(Scope.of(kind="any"), TrapPolicy(), breadth_first, RecentUrls(0))
    many = [(canonicalize(f"https://a.test/{number}"), LinkKind.ANCHOR) for number in range(1_000)]
    assert list(links.new(many, Entry("https://a.test/", "a.test"))) == [url.href for url, _ in many[:MOST_NEW]]
