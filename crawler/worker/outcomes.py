"""What an answer, or the lack of one, means for a URL and for its domain. Pure: a table and its reading.

The domain backs off when the server says so (429, 503) or shows it (time-outs, refused connections). Other errors are
the URL's own: it is tried again later, while the rest of the domain goes on.
"""

from __future__ import annotations

import msgspec

from crawler.errors import FailureKind
from crawler.page import Outcome


class UrlResult(msgspec.Struct, frozen=True):
    """`outcome` for the URL, `reason` for counters and metrics, `backs_off`: whether the domain must rest."""

    outcome: Outcome
    reason: str
    backs_off: bool = False


_RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})
"""RFC 9110 15.5.9 (408), RFC 8470 5.2 (425), RFC 6585 4 (429), server errors that pass, and Cloudflare's own."""

_BACKOFF_STATUSES = frozenset({429, 503})

_FAILURES = {
    FailureKind.BAD_URL: UrlResult(Outcome.DEAD, "bad_url"),
    FailureKind.NO_SUCH_HOST: UrlResult(Outcome.RETRY, "no_such_host"),
    FailureKind.DNS: UrlResult(Outcome.RETRY, "dns"),
    FailureKind.UNREACHABLE: UrlResult(Outcome.RETRY, "unreachable", backs_off=True),
    FailureKind.REFUSED: UrlResult(Outcome.RETRY, "refused", backs_off=True),
    FailureKind.CONNECT_TIMEOUT: UrlResult(Outcome.RETRY, "connect_timeout", backs_off=True),
    FailureKind.TIMEOUT: UrlResult(Outcome.RETRY, "timeout", backs_off=True),
    FailureKind.DISCONNECTED: UrlResult(Outcome.RETRY, "disconnected", backs_off=True),
    FailureKind.PROTOCOL: UrlResult(Outcome.RETRY, "protocol"),
    FailureKind.TLS: UrlResult(Outcome.RETRY, "tls"),
    FailureKind.HEADER_TOO_LARGE: UrlResult(Outcome.DEAD, "header_too_large"),
    FailureKind.FORBIDDEN_ADDRESS: UrlResult(Outcome.DENIED, "forbidden_address"),
    FailureKind.FORBIDDEN_PORT: UrlResult(Outcome.DENIED, "forbidden_port"),
}


DEFECT = UrlResult(Outcome.DEAD, "defect")
"""On a URL whose handling raised what it should not have. To try again would raise it again."""

NOBODYS_FAULT = frozenset({FailureKind.LEASE_EXPIRED, FailureKind.STOPPED, FailureKind.STALE_CONNECTION})
"""Kinds that say nothing about the URL: our lease or our process ended, or a kept-alive connection was closed."""


def judge_status(status: int) -> UrlResult:
    """The verdict on a response's status code."""
    if status in _RETRIED_STATUSES:
        return UrlResult(Outcome.RETRY, f"http_{status}", backs_off=status in _BACKOFF_STATUSES)
    if 300 <= status < 400 and status != 304:
        return UrlResult(Outcome.DONE, "redirect")
    if 200 <= status < 300 or status == 304:
        return UrlResult(Outcome.DONE, "ok")
    return UrlResult(Outcome.DONE, f"http_{status}")


def judge_failure(kind: FailureKind) -> UrlResult:
    """The verdict on a request that brought no response. `NOBODYS_FAULT` has none: the URL is as it was."""
    return _FAILURES[kind]


def last_try(result: UrlResult, tries_before: int, allowed: int) -> UrlResult:
    """`result`, or death for the same reason when there have been `allowed` tries with this one."""
    if result.outcome is Outcome.RETRY and tries_before + 1 >= allowed:
        return UrlResult(Outcome.DEAD, result.reason, result.backs_off)
    return result
