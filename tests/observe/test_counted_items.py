"""How many items each data set has, and how many were rejected, in words."""

from __future__ import annotations

import pytest

from crawler.observe.status import MOST_SETS, items_in_words, rejected_in_words
from crawler.page import Outcome, Page, RejectedItem, words_of
from crawler.worker.commit_group import MOST_WORDS, LeaseReport
from frontier.entries import Entry
from frontier.settle import SettledUrl
from tests.sinks.values import exchange, page


@pytest.mark.parametrize("field", ["price", "a b", "a:b", "é\n%", "", "x" * 60])
def test_a_word_has_no_spaces_and_can_be_read(field: str) -> None:
    word = RejectedItem("my.shop", field, "type").word
    assert word.isprintable()
    assert not set(" \n") & set(word)
    assert words_of(word) == ("my.shop", f"{field} type".lstrip())


def test_the_most_frequent_reason_of_each_data_set_is_shown() -> None:
    counted = {"shop:price:type": 3, "shop:price:missing": 2_000, "b::unread": 4}
    assert rejected_in_words(counted) == "shop 2,003 (mostly price missing), b 4 (unread)"
    many = {f"set{number:02}::size": 1 for number in range(MOST_SETS + 2)}
    assert rejected_in_words(many).endswith("set09 1 (size) and 2 more data sets")


def test_a_data_set_that_nothing_was_found_for_is_shown() -> None:
    assert items_in_words({"shop": 1_200, "news": 3}, ["prices", "news"], {}) == "shop 1,200, news 3, prices none"


def test_a_data_set_of_which_all_items_were_rejected_is_told_apart_from_one_without() -> None:
    rejected = {"shop:price:type": 1, "prices:price:type": 2_000, "prices:price:missing": 1, "b::unread": 4}
    said = items_in_words({"shop": 3}, ["prices", "news"], rejected)
    assert said == "shop 3, b none kept, 4 rejected, news none, prices none kept, 2,001 rejected"


def test_a_visit_counts_a_limited_number_of_words() -> None:
    """They are arguments of a script, and fields of a hash."""
    report, many = LeaseReport(), {f"shop:field{number}:type": 1 for number in range(MOST_WORDS + 5)}
    made: Page = page(exchange("a", b"x"), rejected_by=many)
    report.add(SettledUrl(Entry(made.url, made.domain), Outcome.DONE, "200"), made, is_duplicate=False)
    assert len(report.rejected) == MOST_WORDS + 1
    assert sum(report.rejected.values()) == MOST_WORDS + 5
    assert report.rejected["shop::other"] == 5
