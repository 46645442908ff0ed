"""What an answer, or the lack of one, means for a URL and for its domain. Pure: a table and its reading.

The domain backs off when the server says so (429, 503) or shows it (time-outs, refused connections). Other errors are
the URL's own: it is tried again later, while the rest of the domain goes on.
"""

from __future__ import annotations

import msgspec

from crawler.errors import FailureKind
from crawler.page import Outcome


class Verdict(msgspec.Struct, frozen=True):
    """`outcome` for the URL, `reason` for books and counters, `backs_off`: whether the domain must rest."""

    outcome: Outcome
    reason: str
    backs_off: bool = False


_RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})
"""RFC 9110 15.5.9 (408), RFC 8470 5.2 (425), RFC 6585 4 (429), server errors that pass, and Cloudflare's own."""

_BACKOFF_STATUSES = frozenset({429, 503})

_FAILURES = {
    FailureKind.BAD_URL: Verdict(Outcome.DEAD, "bad_url"),
    FailureKind.NO_SUCH_HOST: Verdict(Outcome.RETRY, "no_such_host"),
    FailureKind.DNS: Verdict(Outcome.RETRY, "dns"),
    FailureKind.UNREACHABLE: Verdict(Outcome.RETRY, "unreachable", backs_off=True),
    FailureKind.REFUSED: Verdict(Outcome.RETRY, "refused", backs_off=True),
    FailureKind.CONNECT_TIMEOUT: Verdict(Outcome.RETRY, "connect_timeout", backs_off=True),
    FailureKind.TIMEOUT: Verdict(Outcome.RETRY, "timeout", backs_off=True),
    FailureKind.DISCONNECTED: Verdict(Outcome.RETRY, "disconnected", backs_off=True),
    FailureKind.PROTOCOL: Verdict(Outcome.RETRY, "protocol"),
    FailureKind.TLS: Verdict(Outcome.RETRY, "tls"),
    FailureKind.HEADER_TOO_LARGE: Verdict(Outcome.DEAD, "header_too_large"),
    FailureKind.FORBIDDEN_ADDRESS: Verdict(Outcome.DENIED, "forbidden_address"),
    FailureKind.FORBIDDEN_PORT: Verdict(Outcome.DENIED, "forbidden_port"),
}


DEFECT = Verdict(Outcome.DEAD, "defect")
"""On a URL whose handling raised what it should not have. To try again would raise it again."""

NOBODYS_FAULT = frozenset({FailureKind.LEASE_EXPIRED, FailureKind.STOPPED, FailureKind.STALE_CONNECTION})
"""Kinds that say nothing about the URL: our lease or our process ended, or a kept-alive connection was closed."""


def judge_status(status: int) -> Verdict:
    """The verdict on a response's status code."""
    if status in _RETRIED_STATUSES:
        return Verdict(Outcome.RETRY, f"http_{status}", backs_off=status in _BACKOFF_STATUSES)
    if 300 <= status < 400 and status != 304:
        return Verdict(Outcome.DONE, "redirect")
    if 200 <= status < 300 or status == 304:
        return Verdict(Outcome.DONE, "ok")
    return Verdict(Outcome.DONE, f"http_{status}")


def judge_failure(kind: FailureKind) -> Verdict:
    """The verdict on a request that brought no response. `NOBODYS_FAULT` has none: the URL is as it was."""
    return _FAILURES[kind]


def last_try(verdict: Verdict, tries_before: int, allowed: int) -> Verdict:
    """`verdict`, or death for the same reason when there have been `allowed` tries with this one."""
    if verdict.outcome is Outcome.RETRY and tries_before + 1 >= allowed:
        return Verdict(Outcome.DEAD, verdict.reason, verdict.backs_off)
    return verdict
