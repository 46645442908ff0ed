"""How long a domain rests after failures, when it is forgiven, when given up, and what Retry-After says."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from politeness.backoff import (
    HEALTHY,
    BackoffPolicy,
    BackoffState,
    after_failure,
    after_success,
    backoff_s,
    is_given_up,
    is_parked,
    parse_retry_after,
)

NOW = 1_800_000_000_000
MINUTE, DAY = 60_000, 86_400_000
POLICY = BackoffPolicy()


def failed(
    times: int, state: BackoffState = HEALTHY, now_ms: int = NOW, retry_after_ms: int | None = None
) -> BackoffState:
    for _ in range(times):
        state = after_failure(state, POLICY, now_ms, retry_after_ms, 0.5)
        now_ms = state.until_ms
    return state


def rest_ms(state: BackoffState, retry_after_ms: int | None) -> int:
    return after_failure(state, POLICY, NOW, retry_after_ms, 0.5).until_ms - NOW


def test_rests_double_from_a_minute_to_a_day() -> None:
    rests = [backoff_s(POLICY, failures, 0.5) / 60 for failures in range(14)]
    assert rests == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1440, 1440]


@pytest.mark.parametrize(
    ("failures", "retry_after_ms", "expected_ms"),
    [
        (0, 0, 0),
        (0, 5_000, 5_250),
        (0, 10 * MINUTE, 10.5 * MINUTE),
        (0, 2 * DAY, DAY),
        (1, 0, MINUTE),
        (1, 5_000, MINUTE),
        (3, 0, 4 * MINUTE),
        (3, 100 * MINUTE, 105 * MINUTE),
    ],
)
def test_retry_after_is_believed_once_and_then_no_shorter_than_the_schedule(
    failures: int, retry_after_ms: int, expected_ms: float
) -> None:
    assert rest_ms(failed(failures), retry_after_ms) == expected_ms


def test_a_site_is_forgiven_after_half_an_hour_of_good_answers() -> None:
    state = failed(3)
    state = after_success(state, POLICY, NOW)
    assert after_success(state, POLICY, NOW + 30 * MINUTE - 1) == state
    assert after_success(state, POLICY, NOW + 30 * MINUTE) == HEALTHY
    assert after_failure(state, POLICY, NOW + 30 * MINUTE, None, 0.5).failures == 1


def test_a_single_good_answer_does_not_end_the_growth() -> None:
    state = after_success(failed(3), POLICY, NOW)
    assert after_failure(state, POLICY, NOW + MINUTE, None, 0.5).failures == 4


def test_rests_grow_again_after_a_failure_that_was_forgiven() -> None:
    """A site that was well for half an hour, and then fails for good."""
    state, now_ms = after_success(failed(1), POLICY, NOW), NOW + 40 * MINUTE
    rests = []
    for _ in range(5):
        state = after_failure(state, POLICY, now_ms, None, 0.5)
        rests.append((state.until_ms - now_ms) // MINUTE)
        now_ms = state.until_ms
    assert rests == [1, 2, 4, 8, 16]


def test_time_alone_forgives_nothing() -> None:
    """A crawl that was stopped for a week has seen no good answer."""
    assert after_failure(failed(3), POLICY, NOW + 7 * DAY, None, 0.5).failures == 4


def test_a_good_answer_leaves_a_healthy_domain_as_it_is() -> None:
    assert after_success(HEALTHY, POLICY, NOW) is HEALTHY


def test_a_domain_is_parked_and_then_given_up_with_its_reason() -> None:
    state = after_failure(failed(4), POLICY, NOW, None, 0.5, "http_503")
    assert is_parked(state, POLICY)
    assert state.reason == "http_503"
    assert not is_parked(failed(4), POLICY)
    assert is_given_up(failed(16), POLICY)
    assert not is_given_up(failed(15), POLICY)
    assert not is_given_up(failed(99), BackoffPolicy(give_up_after=None))


def test_with_the_defaults_giving_up_takes_five_days() -> None:
    assert 5 * DAY < failed(15).until_ms - NOW < 6 * DAY


@given(st.integers(1, 2_000), st.floats(0, 1), st.floats(0.001, 1e6), st.floats(0, 1))
def test_a_rest_grows_stays_below_the_maximum_and_within_the_jitter(
    failures: int, rand: float, base_s: float, jitter: float
) -> None:
    policy = BackoffPolicy(base_s=base_s, jitter=jitter)
    rest, exact = backoff_s(policy, failures, rand), backoff_s(policy, failures, 0.5)
    assert 0 <= rest <= policy.max_s
    assert exact * (1 - jitter) - 1e-9 <= rest <= exact * (1 + jitter) + 1e-9
    assert rest <= backoff_s(policy, failures + 1, rand)


@given(st.integers(0, 40), st.none() | st.integers(0, 10**9), st.floats(0, 1))
@example(0, 128_843, 0.0)  # 128.843 s are a little less than that many milliseconds in floating point
def test_a_failure_never_rests_longer_than_the_maximum_nor_shorter_than_asked(
    failures: int, retry_after_ms: int | None, rand: float
) -> None:
    state = after_failure(BackoffState(failures), POLICY, NOW, retry_after_ms, rand)
    rest = state.until_ms - NOW
    assert state.failures == failures + 1
    assert min(retry_after_ms or 0, DAY) <= rest <= DAY


# the text that travels with the queue


def test_a_healthy_domain_costs_no_text() -> None:
    assert str(HEALTHY) == ""
    assert BackoffState.parse("") is HEALTHY


states = st.builds(
    BackoffState,
    st.integers(1, 10**6),
    st.integers(0, 10**15),
    st.integers(0, 10**15),
    st.from_regex(r"[a-z0-9_]{0,12}", fullmatch=True),
    st.integers(1, 10**15),
    st.sampled_from(["", "our_dns"]),
)


@given(states)
def test_a_state_survives_its_text(state: BackoffState) -> None:
    assert BackoffState.parse(str(state)) == state


def test_a_healthy_domain_that_waits_for_its_address_survives_its_text() -> None:
    state = BackoffState(limited_until_ms=NOW)
    assert BackoffState.parse(str(state)) == state


def test_a_reason_cannot_break_the_text() -> None:
    state = after_failure(HEALTHY, POLICY, NOW, None, 0.5, "two words\n1")
    assert BackoffState.parse(str(state)) == state


@given(st.text(max_size=30))
def test_any_text_gives_a_state(text: str) -> None:
    assert BackoffState.parse(text).failures >= 0


# Retry-After

EXAMPLE_S = 784111777.0  # the example of RFC 9110 5.6.7: 6 November 1994, 08:49:37 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"0", 0.0),
        (b"120", 120.0),
        (" 120\t", 120.0),
        (b"86401", 86_400.0),
        (b"9" * 5_000, 86_400.0),
        (b"Sun, 06 Nov 1994 08:49:37 GMT", 60.0),
        (b"Sunday, 06-Nov-94 08:49:37 GMT", 60.0),
        (b"Sun Nov  6 08:49:37 1994", 60.0),
        (b"Sun, 06 Nov 1994 08:48:00 GMT", 0.0),
        (b"Sun, 06 Nov 2094 08:49:37 GMT", 86_400.0),
        (b"", None),
        (b"-1", None),
        (b"1.5", None),
        (b"soon", None),
        ("١٢", None),
        (b"12 seconds", None),
        (b"Sun, 32 Nov 1994 08:49:37 GMT", None),
        (b"Sun, 06 Nov 1994 25:49:37 GMT", None),
        (b"Sun, 06 Nov 1994", None),
        (b"\xff\xfe", None),
    ],
)
def test_retry_after_has_two_forms_and_dates_three_formats(value: bytes | str, seconds: float | None) -> None:
    assert parse_retry_after(value, EXAMPLE_S - 60) == seconds


DATE_PIECES = ["Sun", ", ", " ", "06", "Nov", "-", "1994", "94", "08", ":", "GMT", "+", "99999999", "٣", "\x00"]
date_like = st.lists(st.sampled_from(DATE_PIECES), max_size=16).map("".join)


@given(st.text(max_size=50) | st.binary(max_size=50) | date_like, st.floats(-1e12, 1e12))
def test_any_value_gives_a_wait_of_a_day_at_most_or_none(value: bytes | str, now_s: float) -> None:
    wait = parse_retry_after(value, now_s)
    assert wait is None or 0 <= wait <= 86_400
