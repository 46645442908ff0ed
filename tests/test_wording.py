"""Messages count things in plain English: "1 page", and not "1 pages"."""

from __future__ import annotations

import pytest

from crawler.wording import count_of, with_place


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("page",), "0 pages"),
        (1, ("page",), "1 page"),
        (2, ("page",), "2 pages"),
        (1_234, ("more domain",), "1,234 more domains"),
        (1, ("try", "tries"), "1 try"),
        (2, ("try", "tries"), "2 tries"),
        (2, ("address",), "2 addresses"),
        (2, ("crash",), "2 crashes"),
    ],
)
def test_a_noun_agrees_with_its_number(number: int, words: tuple[str, ...], text: str) -> None:
    assert count_of(number, *words) == text


def test_commands_in_messages_get_the_options_that_select_the_crawl_once() -> None:
    message = "run `crawler reshard --crawl a --shards 8` again, or `crawler repair`"
    assert with_place([message], "--crawl a --redis r") == [
        "run `crawler reshard --shards 8 --crawl a --redis r` again, or `crawler repair --crawl a --redis r`"
    ]
