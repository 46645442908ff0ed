"""Numbers are read as people write them, and written as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UserError
from crawler.plan.arithmetic import number, quantity, short, short_above


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9),
        ("5M", 5e6),
        ("10k", 10_000),
        ("1.5G", 1.5e9),
        ("2t", 2e12),
        (".5", 0.5),
        ("1,000,000", 1e6),
        ("1_000", 1_000),
        (" 7 ", 7),
        ("2.5e-1", 0.25),
        ("0", 0),
    ],
)
def test_numbers_are_read(text: str, value: float) -> None:
    assert number("--pages", text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "k", "1x", "-1", "1,00", "nan", "inf", "1e", "1 k", "1e999", "0x10", "1kk", "e9"])
def test_what_is_no_number_is_refused_with_the_option(text: str) -> None:
    with pytest.raises(UserError, match=r"^--pages: "):
        number("--pages", text)


def test_a_number_out_of_range_is_refused() -> None:
    assert number("--tls", "1", 0, 1) == 1
    for text in ("1.1", "0.4"):
        with pytest.raises(UserError, match=r"--tls: '.*' must be from 0.5 to 1$"):
            number("--tls", text, 0.5, 1)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1157.4, "pages/s", "1,160 pages/s"),
        (1024, "", "1,024"),
        (720_000, "pages", "720k pages"),
        (5e9, "URLs", "5G URLs"),
        (1.536e12, "B", "1.54 TB"),
        (117e6, "bit/s", "117 Mbit/s"),
        (700, "B", "700 B"),
        (999_999, "B", "1 MB"),
        (0, "B", "0 B"),
        (0.00481, "d", "0.00481 d"),
        (99.96, "us", "100 us"),
    ],
)
def test_quantities_have_three_digits_and_a_unit(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


@given(st.floats(0.001, 1e16))
def test_what_is_written_is_read_again(value: float) -> None:
    assert number("--pages", short(value)) == pytest.approx(value, rel=0.0051)


@pytest.mark.parametrize(
    ("value", "text"),
    [(24.02, "24.1"), (24, "24"), (12.14, "12.1"), (0.2171, "0.217"), (0.001, "0.001"), (123.4, "123")],
)
def test_a_number_that_is_rounded_up_to_a_whole_one_is_not_shown_as_a_smaller_whole_one(
    value: float, text: str
) -> None:
    assert short_above(value) == text
