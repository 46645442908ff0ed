"""How long a domain rests between two requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politeness.delay import MAX_DELAY_S, DelayPolicy, delay_ms

DEFAULT = DelayPolicy()


@pytest.mark.parametrize(
    ("crawl_delay", "request_rate", "response_s", "expected_ms"),
    [
        (None, None, 0.0, 1_000),
        (None, None, 0.3, 1_000),
        (None, None, 2.5, 2_500),
        (None, None, 90.0, 30_000),
        (0.0, None, 0.0, 1_000),
        (0.2, None, 0.0, 1_000),
        (10.0, None, 0.0, 10_000),
        (10.0, 15.0, 12.0, 15_000),
        (10.0, 5.0, 12.0, 12_000),
        (300.0, None, 0.0, 300_000),
        (9_999.0, None, 0.0, 300_000),
        (None, 9_999.0, 0.0, 300_000),
        (1.1, None, 0.0, 1_100),
        (1.0001, None, 0.0, 1_001),
    ],
)
def test_the_longest_of_the_asked_the_shown_and_the_minimum_counts(
    crawl_delay: float | None, request_rate: float | None, response_s: float, expected_ms: int
) -> None:
    assert delay_ms(DEFAULT, crawl_delay, request_rate, response_s) == expected_ms


def test_above_the_cap_the_cap_counts() -> None:
    assert delay_ms(DelayPolicy(), 900.0, None, 0.0) == 300_000
    assert delay_ms(DelayPolicy(crawl_delay_cap_s=1e9), 1e300, None, 0.0) == MAX_DELAY_S * 1000


def test_a_cap_of_0_ignores_what_robots_txt_asks() -> None:
    policy = DelayPolicy(min_delay_s=0.5, crawl_delay_cap_s=0)
    assert delay_ms(policy, 60.0, 60.0, 0.0) == 500


def test_a_share_of_0_ignores_the_response_time() -> None:
    assert delay_ms(DelayPolicy(response_share=0), None, None, 20.0) == 1_000


delays = st.none() | st.floats(0, 1e9)


@given(delays, delays, st.floats(0, 1e6), st.floats(0, 60), st.sampled_from([0, 300, 1e9]))
def test_a_delay_is_never_below_the_minimum_nor_above_a_day(
    crawl_delay: float | None,
    request_rate: float | None,
    response_s: float,
    minimum: float,
    cap: float,
) -> None:
    policy = DelayPolicy(min_delay_s=minimum, crawl_delay_cap_s=cap)
    assert minimum * 1000 - 0.001 <= delay_ms(policy, crawl_delay, request_rate, response_s) <= MAX_DELAY_S * 1000
