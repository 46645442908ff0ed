"""Seed lists."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.scope.seeds import SeedList, read_seeds, table_of
from frontier.urls import UrlRules

SEEDS = Path(__file__).parents[2] / "seeds"


def test_a_list_is_read_line_by_line() -> None:
    lines = [
        "\ufeffhttps://Example.com/a#b\r\n",
        "# a comment\n",
        "\n",
        "  example.org   # another\n",
        "http://example.net/#top priority=2.5\n",
        "localhost:8080/x priority=-1\n",
        "//example.com/b\n",
    ]
    seeds, errors = read_seeds(lines)
    assert errors == []
    assert [(seed.url.href, seed.priority, seed.line) for seed in seeds] == [
        ("https://example.com/a", None, 1),
        ("https://example.org/", None, 4),
        ("http://example.net/", 2.5, 5),
        ("http://localhost:8080/x", -1.0, 6),
        ("https://example.com/b", None, 7),
    ]


@pytest.mark.parametrize(
    ("line", "url"),
    [
        ("a.test", "https://a.test/"),
        ("a.test:443/x", "https://a.test/x"),
        ("a.test:80", "http://a.test/"),
        ("//a.test:3000/x?y", "http://a.test:3000/x?y"),
        ("localhost", "http://localhost/"),
        ("app.localhost", "http://app.localhost/"),
        ("10.1.2.3/x", "http://10.1.2.3/x"),
        ("93.184.215.14", "http://93.184.215.14/"),
        ("[::1]:3000", "http://[::1]:3000/"),
        ("[::1]:443", "https://[::1]/"),
        ("HTTPS://localhost:3000", "https://localhost:3000/"),
    ],
)
def test_without_a_scheme_servers_of_ones_own_get_http(line: str, url: str) -> None:
    (seed,), errors = read_seeds([line])
    assert (seed.url.href, seed.has_scheme, errors) == (url, "://" in line, [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("mailto:a@example.com", "scheme"),
        ("ftp://example.com/", "scheme"),
        ("http://", "host"),
        ("a..b", "host"),
        ("http://example.com/" + "x" * 3000, "length"),
        ("example.com priority=high", "priority"),
        ("example.com priority=nan", "priority"),
        ("example.com priority=2e11", "priority"),
        ("1,example.com", "comma"),
        ("someone@example.com", "email"),
        ("http://example.com:99999/", "port"),
        ("http://example.com:80a/", "port"),
        ("https://[::1]:65536/", "port"),
        ("127.0.0.1:0", "port"),
        ("https://https://example.com", "host"),
        ("http://example.com/stra\ufffde", "encoding"),
        ("\u201c\u201d", "syntax"),
        ("\u200bhttps://example.com", "host"),
        ("a.com;b.com", "host"),
        ("*.example.com", "host"),
        ("https://exa mple.com:80/", "option"),
        ("https://-.example..com:80/", "host"),
        ("example.com weight=3", "option"),
        ("example.com example.org", "option"),
    ],
)
def test_a_broken_line_is_named_and_stops_nothing(line: str, reason: str) -> None:
    seeds, errors = read_seeds(["example.com", line, "example.org"])
    assert [seed.line for seed in seeds] == [1, 3]
    assert [(error.line, error.text, error.reason) for error in errors] == [(2, line, reason)]


def test_seeds_obey_the_rules_of_urls() -> None:
    seeds, _ = read_seeds(["example.com/?a=1&b=2"], UrlRules(strip_params=("a",)))
    assert seeds[0].url.href == "https://example.com/?b=2"


@given(st.lists(st.text(max_size=30), max_size=4))
def test_no_list_raises(lines: list[str]) -> None:
    seeds, errors = read_seeds(lines)
    assert len(seeds) + len(errors) <= len(lines)


@pytest.mark.parametrize("path", sorted(SEEDS.glob("*.txt")), ids=lambda path: path.name)
def test_the_examples_are_well_formed(path: Path) -> None:
    seeds, errors = read_seeds(path.read_text(encoding="utf-8").splitlines())
    assert seeds
    assert errors == []


@pytest.mark.parametrize("quotes", ['""', "\u201c\u201d", "\u2018\u2019", "\u00ab\u00bb", "<>", "''"])
def test_quotes_around_a_url_are_no_part_of_it(quotes: str) -> None:
    (seed,), errors = read_seeds([f"{quotes[0]}https://example.com/a{quotes[1]} priority=5"])
    assert (seed.url.href, seed.priority, errors) == ("https://example.com/a", 5.0, [])


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["1,google.com", "2,facebook.com"], (",", 1)),
        (["Rank;Domain", "1;a.example"], (";", 1)),
        (["id\tname\turl", "1\tA shop\thttps://a.example/"], ("\t", 2)),
        (["\ufeffurl,title", "https://a.example/,A"], (",", 0)),
        (['"https://a.example/","A, B"', '"https://b.example/","C"'], (",", 0)),
        (['"GlobalRank","TldRank","Domain"', '"1","1","google.com"'], (",", 2)),
        (["1,a.example,x", "# a comment", "", "2,b.example,y"], (",", 1)),
        (["https://a.example/a,1.html", "https://a.example/b,2.html"], None),
        (["https://a.example/,www.b.example", "https://a.example/x"], None),
        (["https://a.example/?a=1;b=2"], None),
        (["https://a.example/ priority=5", "b.example"], None),
        (["https://a.example/\tpriority=5", "b.example\t# x"], None),
        (["a.example", "b.example"], None),
        ([], None),
    ],
)
def test_a_table_is_recognised(lines: list[str], found: tuple[str, int] | None) -> None:
    assert table_of(lines) == found


def test_a_seed_list_keeps_what_it_is_given() -> None:
    lines = [f"https://example.com/{n} priority={n % 3}" for n in range(12_000)] + [
        "example.org",
        "http://a.test/  # x",
    ]
    seeds, _ = read_seeds(lines)
    kept = SeedList()
    for seed in seeds:
        kept.add(seed)
    assert len(kept) == len(seeds)
    assert list(kept) == seeds
    assert list(kept) == seeds
