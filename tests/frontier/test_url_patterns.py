"""Patterns for URLs find what Python's `re` finds, and end soon for hostile URLs."""

from __future__ import annotations

import re
import time

import pytest

from frontier.errors import BadInput
from frontier.urls import UrlPattern, is_in_url

SEARCHED = (
    "https://example.com/shop/1",
    "https://example.com/Shop/ab-c/",
    "http://a.test/login?next=/",
    "http://a.test/x.PDF",
)
PATTERNS = (
    "",
    "/shop/",
    r"^https://example\.com/",
    r"(?i)\.pdf$",
    r"(?x) /shop/ \d+ $  # a product",
    r"/shop/(\w+-?)+/$",
    r"\d+$",
    "a|b",
    r"/(?P<n>\w+)\b",
    "/login\\b",
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_finds_what_re_finds(pattern: str) -> None:
    for url in SEARCHED:
        expected = re.search(pattern, url) is not None
        assert (UrlPattern(pattern).is_in(url), is_in_url(pattern, url)) == (expected, expected), url


@pytest.mark.parametrize("pattern", ["[[a]bout", "[a&&b]#+"])
def test_an_expression_that_python_may_change_gives_no_warning(pattern: str) -> None:
    """Warnings are errors in tests."""
    re.purge()
    assert not is_in_url(pattern, "https://example.com/")


@pytest.mark.parametrize("pattern", [r"/shop/(\w+-?)+/$", r"((a|aa)+)+!$", r"(\w+\s?)*!!", r"(?:a+){2,}b"])
@pytest.mark.parametrize("length", [40, 2_000])
def test_a_hostile_url_takes_no_time(pattern: str, length: int) -> None:
    url = "http://a.test/shop/" + "a" * length + "%!"
    found = UrlPattern(pattern)
    began = time.thread_time()
    assert not found.is_in(url)
    assert time.thread_time() - began < 0.01  # with the limit of PCRE2 0.02 s and more, with `re` hours


def test_a_search_that_ends_early_counts_as_said() -> None:
    url = "http://a.test/" + "a" * 2_000 + "%!"
    slow = r"((a|aa)+)+!$"
    assert [UrlPattern(slow, if_unknown=said).is_in(url) for said in (True, False)] == [True, False]


@pytest.mark.parametrize("pattern", ["(", "a)(b", "[", "*a", "[["])
def test_what_is_no_expression_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput, match="not a regular expression"):
        UrlPattern(pattern)
