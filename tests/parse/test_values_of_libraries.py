"""Compares the values of `[[extract]]` with those of parsel, price-parser and dateparser on generated pages.

Each page has an amount or a time that is known, written in one of the ways of `AMOUNTS` or `TIMES`. A value of ours is
the right one, or refused. Where the libraries differ, a reason is given here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.parse.extraction import ExtractionJob
from crawler.scope.extract_rules import ExtractRule, FieldRule, FieldType

parsel = pytest.importorskip("parsel")
price_parser = pytest.importorskip("price_parser")
dateparser = pytest.importorskip("dateparser")


def ours(markup: str, kind: FieldType) -> Any:
    """The value of the element `.v` as `[[extract]]` reads it, None if it is refused."""
    rule = ExtractRule("x", (FieldRule("v", css=".v", type=kind),))
    job = ExtractionJob((rule,), "https://a.test/", "text/html", "utf-8", "", {}, 1 << 20)
    items = job.run(page(markup).encode()).items
    return items[0].fields["v"] if items else None


def page(markup: str) -> str:
    return f"<!doctype html><meta charset=utf-8><h1>A page</h1><div class=v>{markup}</div>"


def text_of_parsel(markup: str) -> str:
    """The text of the same element as users of Scrapy take it."""
    return "".join(parsel.Selector(page(markup)).css(".v ::text, .v::text").getall())


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

AMOUNTS: dict[str, tuple[FieldType, Written, str]] = {
    # name: type, how it is written, why price-parser differs ("" if it must not)
    "plain": ("decimal", lambda n, c: f"${n}.{c:02}", ""),
    "whole": ("decimal", lambda n, c: f"EUR {n}", ""),
    "grouped": ("decimal", lambda n, c: f"£{n:,}.{c:02}", ""),
    "german": ("decimal_comma", lambda n, c: f"{grouped(n, '.')},{c:02} €", ""),
    "french": ("decimal_comma", lambda n, c: f"{grouped(n, chr(0x202F))},{c:02} €", ""),
    "swiss": ("decimal", lambda n, c: f"CHF {grouped(n, '’')}.{c:02}", "does not know the mark ’ of groups"),
    "indian": ("decimal", lambda n, c: f"₹{indian(n)}.{c:02}", ""),
    "in a phrase": ("decimal", lambda n, c: f"In stock ({n} available)", ""),
    "spans": ("decimal", lambda n, c: f"<span>{n}</span><span>.</span><span>{c:02}</span>", ""),
    "comment": ("decimal", lambda n, c: f"{n}<!-- price -->.{c:02}", ""),
    "script": ("decimal", lambda n, c: f"{n}.{c:02}<script>var x = 1;</script>", "parsel takes the script for text"),
    "negative": ("decimal", lambda n, c: f"\u2212{n}.{c:02}", "does not know the minus sign"),
    "range": ("decimal", lambda n, c: f"${n}.{c:02} - ${n + 1}.{c:02}", "takes the first of two amounts"),
    "blocks": ("decimal", lambda n, c: f"<div>{n}</div><div>{n + 1}</div>", "parsel joins two amounts"),
    "lines": ("int", lambda n, c: f"{n}<br>10115 Berlin", "parsel joins two numbers"),
    "raised": ("decimal", lambda n, c: f"{n}<sup>{c:02}</sup> €", "parsel joins the cents"),
    "cents": ("decimal", lambda n, c: f"€{n}<span class=cents>{c:02}</span>", "parsel joins the cents"),
    "thousands": ("decimal", lambda n, c: f"{n}K reviews", "drops the K"),
    "millions": ("decimal_comma", lambda n, c: f"{n},{c:02} Mio. €", "drops the Mio."),
    "half": ("decimal", lambda n, c: f"{n}½", "drops the half"),
    "fraction": ("decimal", lambda n, c: f"{n} 1/2", "joins the digits of a fraction, or drops it"),
    "out of": ("decimal", lambda n, c: f"{n} out of 5", "takes the first of two numbers"),
    "phone": ("decimal", lambda n, c: f"+49 30 {n}", "joins the digits of a telephone number"),
    "sum": ("decimal", lambda n, c: f"{n} + {c}", "takes the first of two numbers"),
}

_RIGHT = {
    "plain",
    "whole",
    "grouped",
    "german",
    "french",
    "swiss",
    "indian",
    "in a phrase",
    "spans",
    "comment",
    "script",
    "negative",
}
"""Ways of which every amount is read. The others are refused."""

_WHOLE = {"whole", "in a phrase"}


@given(way=st.sampled_from(sorted(AMOUNTS)), number=st.integers(1, 9_999_999), cents=st.integers(0, 99))
@settings(max_examples=600, deadline=None)
def test_an_amount_is_right_or_refused_and_differs_for_a_reason(way: str, number: int, cents: int) -> None:
    kind, written, reason = AMOUNTS[way]
    markup = written(number, cents)
    amount = number if way in _WHOLE else float(f"{number}.{cents:02}")
    amount = -amount if way == "negative" else amount
    value = ours(markup, kind)
    assert value in ((amount,) if way in _RIGHT else (None,)), markup
    theirs = price_parser.Price.fromstring(text_of_parsel(markup)).amount_float
    assert theirs == value or reason, (markup, value, theirs)


Moment = Callable[[datetime], str]

TIMES: dict[str, tuple[Moment, str, str]] = {
    # name: how it is written, what is read of it (a format of strftime, "" if it is refused), why dateparser differs
    "iso date": (lambda t: f"{t:%Y-%m-%d}", "%Y-%m-%d", ""),
    "iso time": (lambda t: f"{t:%Y-%m-%dT%H:%M:%S}Z", "%Y-%m-%dT%H:%M:%S+00:00", ""),
    "mail": (lambda t: f"{t:%a, %d %b %Y %H:%M:%S} GMT", "%Y-%m-%dT%H:%M:%S+00:00", ""),
    "pacific": (lambda t: f"{t:%d %b %Y %H:%M} PST", "%Y-%m-%dT%H:%M:00-08:00", ""),
    "us": (lambda t: f"{t:%B %d, %Y}", "%Y-%m-%d", ""),
    "us time": (lambda t: f"{t:%B %d, %Y %I:%M %p}", "%Y-%m-%dT%H:%M:00", ""),
    "us at": (lambda t: f"{t:%b %d, %Y} at {t:%I:%M %p}", "%Y-%m-%dT%H:%M:00", ""),
    "weekday": (lambda t: f"{t:%A, %B %d, %Y}", "%Y-%m-%d", ""),
    "british": (lambda t: f"{t.day} {t:%B %Y}", "%Y-%m-%d", ""),
    "two blocks": (lambda t: f"<div>{t:%d %b %Y}</div><div>{t:%H:%M}</div>", "%Y-%m-%dT%H:%M:00", "parsel joins them"),
    "slashes": (lambda t: f"{t:%m/%d/%Y}", "", "takes the month for first"),
    "points": (lambda t: f"{t:%d.%m.%Y}", "%Y-%m-%d", "takes 04.03. for April"),
    "points time": (lambda t: f"{t.day}. {t.month}. {t:%Y, %H:%M}", "%Y-%m-%dT%H:%M:00", "takes 4. 3. for April"),
    "japanese": (
        lambda t: f"{t.year}年{t.month}月{t.day}日",
        "%Y-%m-%d",
        "takes the year only if the language is given",
    ),
    "korean": (
        lambda t: f"{t.year}년 {t.month}월 {t.day}일",
        "%Y-%m-%d",
        "takes the year only if the language is given",
    ),
    "zone name": (lambda t: f"{t:%d %b %Y %H:%M} CET", "", "knows names of zones that have several meanings"),
    "month": (lambda t: f"{t:%Y-%m}", "", "adds the day of today"),
    "year": (lambda t: f"{t:%Y}", "", "adds the day and month of today"),
    "wrong weekday": (lambda t: f"{t + timedelta(1):%A}, {t:%B %d, %Y}", "", "ignores the day of the week"),
    "german": (lambda t: f"{t.day}. Dezember {t.year}", "", "knows other languages"),
    "two digits": (lambda t: f"{t:%d %b %y %H:%M}", "", "guesses the century"),
    "phrase": (lambda t: f"{t:%d %b %Y} or {t:%d %b %Y}", "", "takes one of two"),
}


@given(
    way=st.sampled_from(sorted(TIMES)),
    at=st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1)).map(lambda at: at.replace(microsecond=0)),
)
@settings(max_examples=200, deadline=None)
def test_a_time_is_right_or_refused_and_differs_for_a_reason(way: str, at: datetime) -> None:
    written, form, reason = TIMES[way]
    markup = written(at)
    value = ours(markup, "date")
    assert value == (at.strftime(form) if form else None), markup
    theirs = dateparser.parse(text_of_parsel(markup), languages=["en", "de"], settings={"DATE_ORDER": "MDY"})
    same = theirs is not None and theirs.isoformat() in (value, f"{value}T00:00:00")
    assert same or reason, (markup, value, theirs)
