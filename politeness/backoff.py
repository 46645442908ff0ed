"""How long a domain rests after it failed: growing rests, forgiveness, giving up, and Retry-After. Pure.

The state travels with the domain's queue as a short text, so that all replicas share it and a restart keeps it.

Failure n in a row rests `base_s * 2**(n - 1)`, up to `max_s`. A Retry-After (RFC 9110 10.2.3) is believed at first, be
it shorter or longer than that; when the domain fails again after it was obeyed, the rest is never shorter than the
schedule of one failure fewer, so that a site which answers `Retry-After: 0` for ever is left alone all the same.
"""

from __future__ import annotations

from calendar import timegm
from datetime import UTC, datetime
from email.utils import parsedate_tz
from math import ceil
from typing import Final

import msgspec

MAX_RETRY_AFTER_S: Final = 86_400.0
"""A Retry-After beyond a day is taken as a day: a typing error must not bury a site."""


class BackoffPolicy(msgspec.Struct, frozen=True):
    """`base_s`: the rest after the first failure. `max_s`: the longest rest, Retry-After included. With the defaults the
    schedule reaches it by the twelfth failure in a row, after a day and a half.

    `jitter`: the share by which a rest varies up and down, so that domains which failed together do not return together.

    `forgive_after_s`: so long must a domain answer well before its next failure counts as the first again. Sites under
    load answer now and then; a single success is no proof of health.

    `park_after`: failures in a row from which the domain counts as parked; with the defaults it then rests 16 minutes
    or longer. `give_up_after`: failures in a row after which it is given up, with the defaults five days after the first;
    None never gives up.
    """

    base_s: float = 60.0
    max_s: float = 86_400.0
    jitter: float = 0.1
    forgive_after_s: float = 1_800.0
    park_after: int = 5
    give_up_after: int | None = 16


class BackoffState(msgspec.Struct, frozen=True):
    """A domain's record of failures.

    `failures`: in a row, 0 for a healthy domain. `until_ms`: when its rest ends. `well_since_ms`: the first good answer
    since the last failure, 0 if there was none. `reason`: one word, why it failed last. Times are milliseconds since 1970.
    """

    failures: int = 0
    until_ms: int = 0
    well_since_ms: int = 0
    reason: str = ""

    def __str__(self) -> str:
        """The text that `parse` reads; empty for a healthy domain, so that it costs no memory."""
        if not self.failures:
            return ""
        return f"{self.failures} {self.until_ms} {self.well_since_ms} {self.reason}".rstrip()

    @classmethod
    def parse(cls, text: str) -> BackoffState:
        """The state in `text`. A text that is none gives a healthy state: that costs a domain one failure, no more."""
        words = text.split()
        if len(words) not in (3, 4) or not all(word.isascii() and word.isdigit() for word in words[:3]):
            return HEALTHY
        if any(len(word) > 18 for word in words[:3]):
            return HEALTHY
        failures, until_ms, well_since_ms = map(int, words[:3])
        return cls(failures, until_ms, well_since_ms, *words[3:])


HEALTHY: Final = BackoffState()


def after_failure(
    state: BackoffState,
    policy: BackoffPolicy,
    now_ms: int,
    retry_after_ms: int | None,
    rand: float,
    reason: str = "",
) -> BackoffState:
    """The state after one more failure at `now_ms`.

    `retry_after_ms`: how long the server asked us to wait, or None. `rand`: from 0 to 1; 0.5 is the schedule itself.
    `reason`: one word, without spaces.
    """
    failures = 1 if _is_forgiven(state, policy, now_ms) else state.failures + 1
    if retry_after_ms is None:
        rest_ms = 1000 * rest_after(policy, failures, rand)
    else:
        # Never earlier than asked; later by the jitter, so that several crawlers do not return at once.
        rest_ms = max(retry_after_ms * (1 + policy.jitter * rand), 1000 * rest_after(policy, failures - 1, rand))
    until_ms = now_ms + ceil(min(rest_ms, 1000 * policy.max_s))
    return BackoffState(failures, until_ms, 0, "".join(reason.split()))


def after_success(state: BackoffState, policy: BackoffPolicy, now_ms: int) -> BackoffState:
    """The state after a good answer at `now_ms`."""
    if not state.failures:
        return state
    if not state.well_since_ms:
        return msgspec.structs.replace(state, well_since_ms=now_ms)
    return HEALTHY if _is_forgiven(state, policy, now_ms) else state


def rest_after(policy: BackoffPolicy, failures: int, rand: float) -> float:
    """Seconds to rest after `failures` in a row, at most `max_s`; 0 after none."""
    if failures < 1:
        return 0.0
    doublings = min(failures - 1, 63)  # beyond this every base in use has met its maximum, and floats stay finite
    return min(policy.max_s, policy.base_s * 2.0**doublings * (1 + policy.jitter * (2 * rand - 1)))


def is_parked(state: BackoffState, policy: BackoffPolicy) -> bool:
    """Whether the domain has failed so often that an operator should see it listed, with its reason."""
    return state.failures >= policy.park_after


def is_given_up(state: BackoffState, policy: BackoffPolicy) -> bool:
    """Whether the domain shall not be asked again in this crawl."""
    return policy.give_up_after is not None and state.failures >= policy.give_up_after


def _is_forgiven(state: BackoffState, policy: BackoffPolicy, now_ms: int) -> bool:
    return bool(state.well_since_ms) and now_ms - state.well_since_ms >= policy.forgive_after_s * 1000


def parse_retry_after(value: bytes | str, now_s: float) -> float | None:
    """Seconds to wait by a Retry-After header (RFC 9110 10.2.3), at most a day; None if it says nothing readable.

    Both forms: seconds, or a date in one of the three formats of RFC 9110 5.6.7. A date that has passed gives 0.
    `now_s`: seconds since 1970.
    """
    text = (value.decode("latin-1") if isinstance(value, bytes) else value).strip(" \t")
    if text.isascii() and text.isdigit():
        # More than nine digits are beyond the cap anyhow, and int() of very long ones is slow.
        return min(float(text), MAX_RETRY_AFTER_S) if len(text) < 10 else MAX_RETRY_AFTER_S
    date_s = _http_date(text)
    if date_s is None:
        return None
    return min(max(date_s - now_s, 0.0), MAX_RETRY_AFTER_S)


_DATE_LENGTH: Final = 40
"""The longest date, "Wednesday, 06-Nov-94 08:49:37 GMT", has 33 characters."""


def _http_date(text: str) -> float | None:
    """A date of RFC 9110 5.6.7 in seconds since 1970, or None. All three formats are in GMT, asctime's tacitly."""
    if len(text) > _DATE_LENGTH or text.count(":") != 2 or not text[:3].isalpha():
        return None
    try:
        parsed = parsedate_tz(text)
        if parsed is None:
            return None
        moment = datetime(*parsed[:6], tzinfo=UTC)
    except (ValueError, OverflowError, IndexError, TypeError):
        # The library promises None for what is no date, and raises for some of it.
        return None
    return timegm(moment.utctimetuple()) - float(parsed[9] or 0)
