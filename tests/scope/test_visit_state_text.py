"""The state of a page's visits is written in few hexadecimal digits, and read as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.scope.next_visit import LARGEST, parsed_state, state_text

NUMBERS = st.lists(st.integers(0, LARGEST), max_size=12)
TAGS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters='"'), max_size=40)
HEX_TAGS = st.text("0123456789abcdef-", max_size=40)
VALIDATORS = st.one_of(
    st.just(""),
    st.builds(lambda quote, tag: f'e{quote}"{tag}"', st.sampled_from(("", "W/")), st.one_of(TAGS, HEX_TAGS)),
    st.integers(0, 2**40).map(lambda seconds: f"m{seconds}"),
)


@given(NUMBERS, st.text("0123456789abcdef", max_size=15), VALIDATORS)
def test_it_is_read_as_it_was_written(numbers: list[int], digest: str, validator: str) -> None:
    text = state_text(numbers, digest, validator)
    assert bytes.fromhex(text).hex() == text
    assert parsed_state(text, len(numbers)) == (numbers, digest, validator)


@pytest.mark.parametrize(
    ("validator", "size"),
    [
        ('e"5f3c2b1a-1a2b"', 8),
        ('eW/"5f3c2b1a-1a2b"', 8),
        ('e"d41d8cd98f00b204e9800998ecf8427e"', 17),
        ("m784111777", 5),
        ('e"a_b"', 6),
    ],
)
def test_validators_take_few_bytes(validator: str, size: int) -> None:
    assert len(state_text([], "", validator)) / 2 <= size + 1


def test_numbers_are_cut() -> None:
    assert parsed_state(state_text([-5, LARGEST + 1], "", ""), 2)[0] == [0, LARGEST]


@pytest.mark.parametrize("text", ["", "f1", "00x", "zz"])
def test_what_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parsed_state(text, 3)
