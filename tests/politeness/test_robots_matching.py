"""Which rule decides on a URL (RFC 9309 2.2.2 and 2.2.3)."""

from __future__ import annotations

import pytest

from politeness.robots_match import Decision, Rules
from tests.politeness.rules import allowed, group

# 2.2.2: matching


@pytest.mark.parametrize(
    ("rules", "path", "line"),
    [
        (("Allow: /a/", "Disallow: /"), "/a/x", 2),
        (("Disallow: /", "Allow: /a/"), "/a/x", 3),
        (("Disallow: /a", "Allow: /a/", "Disallow: /a/b"), "/a/b", 4),
        (("Disallow: /a/b", "Allow: /a/b"), "/a/b", 3),
        (("Allow: /a/b", "Disallow: /a/b"), "/a/b", 2),
        (("Disallow: /a*", "Allow: /a/b"), "/a/b", 3),
        (("Disallow: /a/*b", "Allow: /a/b"), "/a/b", 2),
        (("Allow: /*.html", "Disallow: /a.html$"), "/a.html", 3),
        (("Allow: /$", "Disallow: /"), "/", 2),
        (("Allow: /$", "Disallow: /"), "/a", 3),
        (("Disallow: /a?b", "Allow: /*?"), "/a?bc", 2),
        (("Disallow: /x", "Disallow: /x"), "/x", 2),
    ],
)
def test_the_rule_with_the_most_bytes_decides_and_allow_wins_ties(rules: tuple[str, ...], path: str, line: int) -> None:
    decision = Rules.parse(group(*rules).encode(), "ourbot").decide(path)
    assert (decision.line, decision.rule) == (line, rules[line - 2])
    assert decision.allowed is rules[line - 2].startswith("Allow")


def test_bytes_are_counted_after_encoding() -> None:
    assert not allowed(group("Allow: /*aaaa", "Disallow: /ツ"), "/ツaaaa")


def test_matching_heeds_case() -> None:
    assert allowed(group("Disallow: /Private"), "/private")


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz"),
        ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar"),
        ("/foo/bar?baz=https%3A%2F%2Ffoo.bar", "/foo/bar?baz=https://foo.bar"),
        ("/foo/bar/ツ", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%E3%83%84", "/foo/bar/ツ"),
        ("/foo/bar/%e3%83%84", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz"),
        ("/foo/bar/baz", "/foo/bar/%62%61%7a"),
        ("/~joe", "/%7Ejoe"),
        ("/a:b", "/a%3ab"),
        ("/a b", "/a%20b"),
        ("/a{b}", "/a%7Bb%7D"),
        ("/100%", "/100%"),
    ],
)
def test_both_sides_are_brought_into_one_percent_encoding(rule: str, path: str) -> None:
    """The table of RFC 9309 2.2.2, in both directions, and what follows from its text."""
    assert not allowed(group(f"Disallow: {rule}$"), path)


@pytest.mark.parametrize(
    ("rule", "path"),
    [("/a/b", "/a%2Fb"), ("/a%2Fb", "/a/b"), ("/a?b", "/a%3Fb"), ("/?a=b", "/?a%3Db"), ("/?a&b", "/?a%26b")],
)
def test_a_character_that_divides_a_url_is_not_its_escape(rule: str, path: str) -> None:
    assert allowed(group(f"Disallow: {rule}"), path)


def test_bytes_that_are_not_utf_8_match_their_escapes() -> None:
    assert not allowed(b"User-agent: *\nDisallow: /caf\xe9\n", "/caf%E9")


@pytest.mark.parametrize(
    "url",
    [
        "http://h/x/y",
        "https://h:8443/x/y?q#f",
        "HTTP://h/x/y",
        "http://user@h/x/y",
        "/x/y",
        "x/y",
        "/x/y#f",
        "/x/y?u=http://h/",
    ],
)
def test_a_url_is_judged_by_its_path_and_query(url: str) -> None:
    assert not allowed(group("Disallow: /x/y"), url)


@pytest.mark.parametrize("url", ["http://h", "http://h/", "http://h#f", "", "/"])
def test_an_empty_path_is_the_root(url: str) -> None:
    assert not allowed(group("Disallow: /$"), url)


def test_a_query_without_a_path_belongs_to_the_root() -> None:
    assert not allowed(group("Disallow: /?q"), "http://h?q")


@pytest.mark.parametrize("url", ["/robots.txt", "http://h/robots.txt", "http://h/robots%2etxt"])
def test_robots_txt_itself_is_always_allowed(url: str) -> None:
    assert allowed(group("Disallow: /", "Disallow: /robots.txt$"), url)


@pytest.mark.parametrize("url", ["/robots.txt.bak", "/a/robots.txt", "/robots.txt?x"])
def test_only_that_url_is_implicitly_allowed(url: str) -> None:
    assert not allowed(group("Disallow: /"), url)


def test_a_file_without_a_match_allows() -> None:
    rules = Rules.parse(group("Disallow: /x").encode(), "ourbot")
    assert rules.decide("/y") == Decision(True, None, None, "*")


def test_a_rule_that_does_not_begin_with_a_slash_matches_nothing() -> None:
    assert allowed(group("Disallow: x"), "/x")


def test_index_html_has_no_meaning_of_its_own() -> None:
    assert not allowed(group("Allow: /a/index.html", "Disallow: /"), "/a/")


# 2.2.3: special characters


@pytest.mark.parametrize(
    ("rule", "path", "matches"),
    [
        ("/a*c", "/abc", True),
        ("/a*c", "/ac", True),
        ("/a*c", "/ab", False),
        ("/a**c", "/abbbcd", True),
        ("*c", "/abc", True),
        ("*", "/", True),
        ("/a*b*c", "/a-c-b", False),
        ("/a*b*c", "/a-b-c-d", True),
        ("/a*b$", "/a-b", True),
        ("/a*b$", "/a-b-c", False),
        ("/a*b$", "/a-b-b", True),
        ("/a*ab$", "/ab", False),
        ("/ab*b$", "/ab", False),
        ("/a*$", "/abc", True),
        ("/a$", "/a", True),
        ("/a$", "/a$b", False),
        ("/a$", "/ab", False),
        ("/a$b", "/a$b", True),
        ("/a$b", "/a", False),
        ("/a%24", "/a$", True),
        ("/a%24", "/a$b", True),
        ("/a%24", "/a", False),
        ("/a%2A", "/a*", True),
        ("/a%2A", "/a%2a", True),
        ("/a%2A", "/ab", False),
        ("/a*", "/a*", True),
        ("/a%23b", "/a%23b", True),
    ],
)
def test_star_is_any_run_dollar_the_end_and_their_escapes_are_plain(rule: str, path: str, matches: bool) -> None:
    assert allowed(group(f"Disallow: {rule}"), path) is not matches
