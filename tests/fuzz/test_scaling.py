"""Time and memory grow linearly with what a site sends, in a sample of all slots. `python -m tests.fuzz` tries them all."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.fuzz import scaling
from tests.fuzz.repeated_inputs import FORMATS, Format
from tests.fuzz.scaling import Slot, hungry, slots, wrong_with

SIZE = 8_192
SLOTS = 60  # of a format
HUNGRY = 10


def sample(name: str, count: int) -> list[Slot]:
    """The same slots in each run."""
    every = list(slots(name))
    return random.Random(name).sample(every, min(count, len(every)))


@pytest.mark.parametrize("name", FORMATS)
def test_time_grows_linearly(name: str) -> None:
    assert {slot: wrong for slot in sample(name, SLOTS) if (wrong := wrong_with(slot, SIZE))} == {}


@pytest.mark.parametrize("name", FORMATS)
def test_memory_grows_linearly(name: str) -> None:
    assert {slot: wrong for slot in sample(name, HUNGRY) if (wrong := hungry(slot, SIZE))} == {}


@pytest.mark.parametrize(
    "slot",
    [
        Slot("style sheet", b'"', b'\\"', b""),
        Slot("style sheet", b'image-set((")', b'(\\")', b")"),
        Slot("compared pages", b"<img src=", b" ", b">"),
        Slot("compared pages", b"<img alt=", b" ", b">"),
        Slot("compared pages", b"", b"1.", b"1abc"),
        Slot("compared pages", b"", b"<script ", b""),
    ],
)
def test_what_was_quadratic_is_linear(slot: Slot) -> None:
    assert wrong_with(slot, SIZE) is None


def slow(data: bytes) -> None:
    """Cubic. With a quadratic one, a busy machine could hide the growth."""
    for _ in range(len(data) ** 2 // (64 * SIZE)):
        data.count(b"ab")


def hoarding(data: bytes) -> None:
    kept = [data[at:] for at in range(0, len(data), 64)]
    kept.clear()


def steady(data: bytes) -> None:
    for _ in range(20):
        sorted(data)


@pytest.mark.parametrize(
    ("feed", "is_slow", "is_hungry"), [(slow, True, False), (hoarding, False, True), (steady, False, False)]
)
def test_what_grows_faster_is_noticed(
    monkeypatch: pytest.MonkeyPatch, feed: Callable[[bytes], object], is_slow: bool, is_hungry: bool
) -> None:
    monkeypatch.setitem(FORMATS, "probe", Format(feed, (b"",), (b"a",)))
    monkeypatch.setattr(scaling, "CONFIRMATIONS", 1)
    (slot,) = slots("probe")
    assert (wrong_with(slot, SIZE) is not None, hungry(slot, SIZE) is not None) == (is_slow, is_hungry)
