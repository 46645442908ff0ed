"""Seed lists."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.scope.seeds import read_seeds
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
        ("https://localhost:8080/x", -1.0, 6),
        ("https://example.com/b", None, 7),
    ]


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
