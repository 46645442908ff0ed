"""Which URLs belong to a crawl."""

from __future__ import annotations

import pytest

from crawler.scope.scope import REASONS, Scope
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
