"""What a visit counts: rejected items by a limited number of words, which screens can read, requests and items."""

from __future__ import annotations

import pytest

from crawler.page import Extra, Item, Outcome, Page, RejectedItem, rejection_of
from crawler.worker.commit import MOST_WORDS, LeaseReport
from frontier.entries import Entry
from frontier.settle import SettledUrl
from tests.sinks.values import exchange, page


@pytest.mark.parametrize("field", ["price", "a b", "a:b", "é\n%", "", "x" * 60])
def test_a_word_has_no_spaces_and_can_be_read(field: str) -> None:
    word = RejectedItem("my.shop", field, "type").word
    assert word.isprintable()
    assert not set(" \n") & set(word)
    assert rejection_of(word) == ("my.shop", f"{field} type".lstrip())


def test_a_visit_counts_a_limited_number_of_words() -> None:
    """They are arguments of a script, and fields of a hash."""
    report, many = LeaseReport(), {f"shop:field{number}:type": 1 for number in range(MOST_WORDS + 5)}
    made: Page = page(exchange("a", b"x"), rejected_by=many)
    report.add(SettledUrl(Entry(made.url, made.domain), Outcome.DONE, "200"), made, is_duplicate=False)
    assert len(report.rejected) == MOST_WORDS + 1
    assert sum(report.rejected.values()) == MOST_WORDS + 5
    assert report.rejected["shop::other"] == 5


def test_a_report_counts_requests_and_items_also_of_pages_without_a_response() -> None:
    """What was not requested, such as a URL that robots.txt denies, is no request."""
    report, got = LeaseReport(), exchange("a", b"")
    pages = [
        page(got),
        page(got, extras=(Extra(got, "fetch"), Extra(got, "fetch"))),
        page(None, "b", outcome=Outcome.DEAD, reason="timeout", items=(Item("failures", b"{}"),)),
        page(None, "c", outcome=Outcome.DENIED, reason="response_dropped"),
        page(None, "d", outcome=Outcome.DENIED, reason="dropped"),
        page(None, "e", outcome=Outcome.DENIED, reason="robots"),
        page(None, "f", outcome=Outcome.DEAD, reason="given_up_timeout"),
    ]
    for made in pages:
        report.add(SettledUrl(Entry(made.url, made.domain), made.outcome, made.reason), made, is_duplicate=False)
    assert report.requests == 6
    assert report.items == {"failures": 1}
