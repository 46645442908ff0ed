"""Each generated page has an amount or a time that is known, written in one of the ways of `AMOUNTS` or `TIMES`. The value
that `[[extract]]` finds is the right one, or refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.parse.extraction import ExtractionJob
from crawler.scope.extract_rules import ExtractRule, FieldRule, FieldType


def ours(markup: str, kind: FieldType) -> Any:
    """The value of the element `.v` as `[[extract]]` reads it, None if it is refused."""
    rule = ExtractRule("x", (FieldRule("v", css=".v", type=kind),))
    job = ExtractionJob((rule,), "https://a.test/", "text/html", "utf-8", "", {}, 1 << 20)
    items = job.run(page(markup).encode()).items
    return items[0].fields["v"] if items else None


def page(markup: str) -> str:
    return f"<!doctype html><meta charset=utf-8><h1>A page</h1><div class=v>{markup}</div>"


def grouped(number: int, mark: str) -> str:
    return f"{number:,}".replace(",", mark)


def indian(number: int) -> str:
    head, tail = divmod(number, 1_000)
    pairs: list[str] = []
    while head > 99:
        head, pair = divmod(head, 100)
        pairs.insert(0, f"{pair:02}")
    return ",".join([*([str(head)] if head else []), *pairs, f"{tail:03}" if head or pairs else str(tail)])


Written = Callable[[int, int], str]
"""Writes a whole number and its cents."""

AMOUNTS: dict[str, tuple[FieldType, Written]] = {
    "plain": ("decimal", lambda n, c: f"${n}.{c:02}"),
    "whole": ("decimal", lambda n, c: f"EUR {n}"),
    "grouped": ("decimal", lambda n, c: f"£{n:,}.{c:02}"),
    "german": ("decimal_comma", lambda n, c: f"{grouped(n, '.')},{c:02} €"),
    "french": ("decimal_comma", lambda n, c: f"{grouped(n, chr(0x202F))},{c:02} €"),
    "swiss": ("decimal", lambda n, c: f"CHF {grouped(n, '’')}.{c:02}"),
    "indian": ("decimal", lambda n, c: f"₹{indian(n)}.{c:02}"),
    "in a phrase": ("decimal", lambda n, c: f"In stock ({n} available)"),
    "spans": ("decimal", lambda n, c: f"<span>{n}</span><span>.</span><span>{c:02}</span>"),
    "comment": ("decimal", lambda n, c: f"{n}<!-- price -->.{c:02}"),
    "script": ("decimal", lambda n, c: f"{n}.{c:02}<script>var x = 1;</script>"),
    "negative": ("decimal", lambda n, c: f"\u2212{n}.{c:02}"),
    "range": ("decimal", lambda n, c: f"${n}.{c:02} - ${n + 1}.{c:02}"),
    "blocks": ("decimal", lambda n, c: f"<div>{n}</div><div>{n + 1}</div>"),
    "lines": ("int", lambda n, c: f"{n}<br>10115 Berlin"),
    "raised": ("decimal", lambda n, c: f"{n}<sup>{c:02}</sup> €"),
    "cents": ("decimal", lambda n, c: f"€{n}<span class=cents>{c:02}</span>"),
    "thousands": ("decimal", lambda n, c: f"{n}K reviews"),
    "millions": ("decimal_comma", lambda n, c: f"{n},{c:02} Mio. €"),
    "half": ("decimal", lambda n, c: f"{n}½"),
    "fraction": ("decimal", lambda n, c: f"{n} 1/2"),
    "out of": ("decimal", lambda n, c: f"{n} out of 5"),
    "phone": ("decimal", lambda n, c: f"+49 30 {n}"),
    "sum": ("decimal", lambda n, c: f"{n} + {c}"),
}

_RIGHT = [*AMOUNTS][:12]
"""Ways of which every amount is read. The others are refused."""

_WHOLE = {"whole", "in a phrase"}


@given(way=st.sampled_from(sorted(AMOUNTS)), number=st.integers(1, 9_999_999), cents=st.integers(0, 99))
@settings(max_examples=600, deadline=None)
def test_an_amount_is_right_or_refused(way: str, number: int, cents: int) -> None:
    kind, written = AMOUNTS[way]
    markup = written(number, cents)
    amount = number if way in _WHOLE else float(f"{number}.{cents:02}")
    amount = -amount if way == "negative" else amount
    value = ours(markup, kind)
    assert value in ((amount,) if way in _RIGHT else (None,)), markup


Moment = Callable[[datetime], str]

TIMES: dict[str, tuple[Moment, str]] = {
    # name: how it is written, what is read of it (a format of strftime, "" if it is refused)
    "iso date": (lambda t: f"{t:%Y-%m-%d}", "%Y-%m-%d"),
    "iso time": (lambda t: f"{t:%Y-%m-%dT%H:%M:%S}Z", "%Y-%m-%dT%H:%M:%S+00:00"),
    "mail": (lambda t: f"{t:%a, %d %b %Y %H:%M:%S} GMT", "%Y-%m-%dT%H:%M:%S+00:00"),
    "pacific": (lambda t: f"{t:%d %b %Y %H:%M} PST", "%Y-%m-%dT%H:%M:00-08:00"),
    "us": (lambda t: f"{t:%B %d, %Y}", "%Y-%m-%d"),
    "us time": (lambda t: f"{t:%B %d, %Y %I:%M %p}", "%Y-%m-%dT%H:%M:00"),
    "us at": (lambda t: f"{t:%b %d, %Y} at {t:%I:%M %p}", "%Y-%m-%dT%H:%M:00"),
    "weekday": (lambda t: f"{t:%A, %B %d, %Y}", "%Y-%m-%d"),
    "british": (lambda t: f"{t.day} {t:%B %Y}", "%Y-%m-%d"),
    "two blocks": (lambda t: f"<div>{t:%d %b %Y}</div><div>{t:%H:%M}</div>", "%Y-%m-%dT%H:%M:00"),
    "slashes": (lambda t: f"{t:%m/%d/%Y}", ""),
    "points": (lambda t: f"{t:%d.%m.%Y}", "%Y-%m-%d"),
    "points time": (lambda t: f"{t.day}. {t.month}. {t:%Y, %H:%M}", "%Y-%m-%dT%H:%M:00"),
    "japanese": (lambda t: f"{t.year}年{t.month}月{t.day}日", "%Y-%m-%d"),
    "korean": (lambda t: f"{t.year}년 {t.month}월 {t.day}일", "%Y-%m-%d"),
    "zone name": (lambda t: f"{t:%d %b %Y %H:%M} CET", ""),
    "month": (lambda t: f"{t:%Y-%m}", ""),
    "year": (lambda t: f"{t:%Y}", ""),
    "wrong weekday": (lambda t: f"{t + timedelta(1):%A}, {t:%B %d, %Y}", ""),
    "german": (lambda t: f"{t.day}. Dezember {t.year}", ""),
    "two digits": (lambda t: f"{t:%d %b %y %H:%M}", ""),
    "phrase": (lambda t: f"{t:%d %b %Y} or {t:%d %b %Y}", ""),
}


@given(
    way=st.sampled_from(sorted(TIMES)),
    at=st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1)).map(lambda at: at.replace(microsecond=0)),
)
@settings(max_examples=200, deadline=None)
def test_a_time_is_right_or_refused(way: str, at: datetime) -> None:
    written, form = TIMES[way]
    markup = written(at)
    value = ours(markup, "date")
    assert value == (at.strftime(form) if form else None), markup
