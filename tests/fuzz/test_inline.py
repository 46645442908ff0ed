"""A document that is read in the event loop takes little time there, whatever it consists of. `python -m tests.fuzz.inline`
tries all slots."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.inline import (
    DOCUMENT_TYPES,
    LINKS,
    MOST_S,
    Growth,
    coded,
    document,
    joined,
    largest,
    read_grown,
    read_largest,
    seconds_of,
)
from tests.fuzz.scaling import slots

pytestmark = pytest.mark.timed

SLOTS = 25  # of a type


@pytest.mark.parametrize("name", DOCUMENT_TYPES)
def test_the_largest_document_that_is_read_in_the_event_loop_takes_little_time(name: str) -> None:
    every = list(slots(name))
    some = random.Random(name).sample(every, min(SLOTS, len(every)))
    assert {slot: seconds for slot in some if (seconds := read_largest(slot)) > MOST_S} == {}


@pytest.mark.parametrize("link", LINKS)
def test_a_page_of_different_links_takes_little_time(link: bytes) -> None:
    page = largest(lambda size: document(b"".join(link % number for number in range(size // len(link))), "text/html"))
    assert len(page.body) > 10_000
    assert seconds_of(page) < MOST_S


@pytest.mark.parametrize("tag", [b"<html a%d>", b"<body a%d>", b"<b a%d><p>", b"<body a%d b%d><p>"])
def test_a_page_of_different_tags_takes_little_time(tag: bytes) -> None:
    """With a NUL, only the tree tells the tags. The attributes of 190 KB of roots took 7 s."""
    places = tag.count(b"%")
    page = largest(
        lambda size: document(b"\0" + b"".join(tag % ((at,) * places) for at in range(size // len(tag))), "text/html")
    )
    assert len(page.body) > 10_000
    assert seconds_of(page) < MOST_S


def test_links_that_are_joined_to_a_long_url_take_little_time() -> None:
    some = random.Random(1).sample(list(joined()), SLOTS)
    assert {growth.name: seconds for growth in some if (seconds := read_grown(growth)) > MOST_S} == {}


@pytest.mark.parametrize("growth", list(coded()), ids=lambda growth: growth.name)
def test_a_body_that_decodes_to_nothing_takes_little_time(growth: Growth) -> None:
    assert read_grown(growth) < MOST_S


@pytest.mark.parametrize(("byte", "size"), [(b"<", 1 << 20), (b"a", 3 << 20)])
def test_a_document_is_as_large_as_it_may_be(byte: bytes, size: int) -> None:
    assert len(largest(lambda size: document(byte * size, "text/html")).body) == size
