"""Which pages' records are made in the event loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.hooks import PageHooks
from crawler.page import Link, Page
from crawler.sinks.archive import LARGE_BODY, GroupEncoder
from tests.sinks.values import exchange, page, settings


def linking(count: int, length: int) -> Page:
    """A page with `count` links of `length` characters."""
    return page(exchange("a", b"a"), links=tuple(Link(f"https://a.test/{n}".ljust(length, "b")) for n in range(count)))


@pytest.mark.parametrize(
    ("made", "is_ordinary"),
    [
        (linking(20_000, 40), True),
        (linking(512, 2_048), True),
        (linking(3_000, 2_000), False),  # records of 6 MB
        (linking(50_000, 40), False),
        (page(exchange("a", bytes(LARGE_BODY))), True),
        (page(exchange("a", bytes(LARGE_BODY + 1))), False),
    ],
)
def test_a_page_is_judged_by_the_size_of_its_records(tmp_path: Path, made: Page, is_ordinary: bool) -> None:
    assert GroupEncoder(settings(tmp_path), PageHooks()).is_expensive(made) == (not is_ordinary)
