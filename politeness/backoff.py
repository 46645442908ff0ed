"""Backoff: how long a domain is not requested after failures, and when it is given up. Pure.

The state is a short text that Redis keeps with the domain's queue, so all replicas share it and a restart keeps it.

The backoff after the n-th failure in a row is `base_s * 2**(n - 1)`, up to `max_s`. After the first failure, a
Retry-After (RFC 9110 10.2.3) replaces it, whether shorter or longer. After later ones, a Retry-After may shorten the
backoff only to that of one failure fewer, so that a site that always answers `Retry-After: 0` still gets fewer requests.
"""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import ceil
from typing import Final

import msgspec

MAX_RETRY_AFTER_S: Final = 86_400.0
"""The longest Retry-After that is respected, a day, because a typing error must not exclude a site for good."""


class BackoffPolicy(msgspec.Struct, frozen=True):
    """`base_s`: backoff after the first failure. `max_s`: the longest backoff, also with Retry-After. With the defaults
    it is reached with the twelfth failure in a row, after a day and a half. `jitter`: the fraction by which a backoff
    varies randomly, so that domains that failed together do not return together. `forgive_after_s`: how long a domain
    must respond well until its next failure counts as the first again. A site under load may respond now and then, so a
    single success does not suffice. `park_after`: failures in a row from which the domain counts as parked.
    `give_up_after`: those after which it is given up, with the defaults five days after the first; None for never."""

    base_s: float = 60.0
    max_s: float = 86_400.0
    jitter: float = 0.1
    forgive_after_s: float = 1_800.0
    park_after: int = 5
    give_up_after: int | None = 16


NO_REASON: Final = "-"
"""In the text of a state: there is no reason, but another word follows."""


class BackoffState(msgspec.Struct, frozen=True):
    """The failures of a domain. Times are milliseconds since 1970.

    `failures`: number of failures in a row, 0 for a healthy domain. `until_ms`: when its backoff ends. `well_since_ms`:
    time of the first good response since the last failure, 0 if there was none. `reason`: one word for the last failure.
    `limited_until_ms`: until when the domain waits because of the rate limit of its address, or a failure that is not the
    domain's, 0 if it never did; `limited_by`: `address` for that rate limit, `our_dns`, `machine` or `proxy` for the
    failure, `function`, `crawl` or `permits` for what else it waits for. Only status pages read both.
    """

    failures: int = 0
    until_ms: int = 0
    well_since_ms: int = 0
    reason: str = ""
    limited_until_ms: int = 0
    limited_by: str = ""

    def __str__(self) -> str:
        """The text that `parse` reads. It is empty for a healthy domain, to save memory."""
        if self.limited_until_ms:
            times = f"{self.failures} {self.until_ms} {self.well_since_ms}"
            return f"{times} {self.reason or NO_REASON} {self.limited_until_ms} {self.limited_by}".rstrip()
        if not self.failures:
            return ""
        return f"{self.failures} {self.until_ms} {self.well_since_ms} {self.reason}".rstrip()

    @classmethod
    def parse(cls, text: str) -> BackoffState:
        """The state in the first line of `text`. An invalid one gives a healthy state."""
        number = r"(\d{1,18})"
        times, limit = rf"{number}\s+{number}\s+{number}", rf"{number}(?:\s+(\S+))?"
        found = re.fullmatch(rf"{times}(?:\s+(\S+)(?:\s+{limit})?)?", text.partition("\n")[0].strip(), re.ASCII)
        if not found:
            return HEALTHY
        reason = "" if found[5] and found[4] == NO_REASON else found[4] or ""
        return cls(int(found[1]), int(found[2]), int(found[3]), reason, int(found[5] or 0), found[6] or "")


HEALTHY: Final = BackoffState()


def after_failure(
    state: BackoffState,
    policy: BackoffPolicy,
    now_ms: int,
    retry_after_ms: int | None,
    rand: float,
    reason: str = "",
) -> BackoffState:
    """The state after one more failure. `retry_after_ms`: Retry-After or None; `rand`: 0 to 1, 0.5 for no jitter."""
    failures = 1 if _is_forgiven(state, policy, now_ms) else state.failures + 1
    if retry_after_ms is None:
        rest_ms = 1000 * backoff_s(policy, failures, rand)
    else:
        # Not earlier than the server asked, up to `max_s`. The jitter keeps several crawlers from returning at once.
        rest_ms = max(retry_after_ms * (1 + policy.jitter * rand), 1000 * backoff_s(policy, failures - 1, rand))
    until_ms = now_ms + ceil(min(rest_ms, 1000 * policy.max_s))
    return BackoffState(failures, until_ms, 0, "".join(reason.split()))


def after_success(state: BackoffState, policy: BackoffPolicy, now_ms: int) -> BackoffState:
    if not state.failures:
        return state
    if not state.well_since_ms:
        return msgspec.structs.replace(state, well_since_ms=now_ms)
    return HEALTHY if _is_forgiven(state, policy, now_ms) else state


def backoff_s(policy: BackoffPolicy, failures: int, rand: float) -> float:
    """The backoff in seconds after `failures` in a row, at most `max_s`; 0 after none."""
    if failures < 1:
        return 0.0
    doublings = min(failures - 1, 63)  # more would overflow floats, and reach `max_s` with any base in use
    return min(policy.max_s, policy.base_s * 2.0**doublings * (1 + policy.jitter * (2 * rand - 1)))


def is_parked(state: BackoffState, policy: BackoffPolicy) -> bool:
    """Whether the domain has failed so often that it is listed for the operator."""
    return state.failures >= policy.park_after


def is_given_up(state: BackoffState, policy: BackoffPolicy) -> bool:
    """Whether the domain is not requested again in this crawl."""
    return policy.give_up_after is not None and state.failures >= policy.give_up_after


def _is_forgiven(state: BackoffState, policy: BackoffPolicy, now_ms: int) -> bool:
    return bool(state.well_since_ms) and now_ms - state.well_since_ms >= policy.forgive_after_s * 1000


def parse_retry_after(value: bytes | str, now_s: float) -> float | None:
    """Seconds to wait according to a Retry-After header (RFC 9110 10.2.3), at most a day; None if it is invalid.

    `value`: a number of seconds, or a date in one of the three formats of RFC 9110 5.6.7. A past date gives 0. `now_s`:
    seconds since 1970.
    """
    text = (value.decode("latin-1") if isinstance(value, bytes) else value).strip(" \t")
    if text.isascii() and text.isdigit():
        # More than nine digits exceed the maximum, and very long ones are slow to convert.
        return min(float(text), MAX_RETRY_AFTER_S) if len(text) < 10 else MAX_RETRY_AFTER_S
    date_s = _http_date(text)
    if date_s is None:
        return None
    return min(max(date_s - now_s, 0.0), MAX_RETRY_AFTER_S)


_DATE_LENGTH: Final = 40
"""Characters. The longest valid date, "Wednesday, 06-Nov-94 08:49:37 GMT", has 33."""


def _http_date(text: str) -> float | None:
    """A date of RFC 9110 5.6.7 in seconds since 1970, or None. All are in GMT; asctime's does not say so."""
    if len(text) > _DATE_LENGTH or text.count(":") != 2 or not text[:3].isalpha():
        return None
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, IndexError, TypeError):  # the library raises any of these for what is not a date
        return None
