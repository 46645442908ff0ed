"""What becomes of a URL: without a request, because of its domain or its robots.txt; after a response or a failed
request. Tables and pure functions.

The domain backs off when the server asks for it (429, 503) or appears overloaded (timeouts, refused or broken
connections, no way to the host). After other errors only the URL is retried later; the other URLs of the domain are not
delayed. `last_try` makes a retry dead after as many failed tries as `politeness.tries` says
(`crawler.settings.tables`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from http import HTTPStatus

import msgspec

from crawler.errors import FailureKind
from crawler.page import Outcome
from frontier.urls import origin_of
from politeness import tdmrep
from politeness.robots_cache import OriginRobots
from politeness.robots_fetch import RobotsRecord


class UrlResult(msgspec.Struct, frozen=True):
    """`outcome`: of the URL; `reason`: for counters and metrics; `backs_off`: whether the domain backs off."""

    outcome: Outcome
    reason: str
    backs_off: bool = False


_RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})
"""RFC 9110 15.5.9 (408), RFC 8470 5.2 (425), RFC 6585 4 (429), temporary server errors, and those of Cloudflare."""

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
    FailureKind.DROPPED: UrlResult(Outcome.DENIED, "dropped"),
    FailureKind.RESPONSE_DROPPED: UrlResult(Outcome.DENIED, "response_dropped"),
    FailureKind.NOT_ACCEPTED: UrlResult(Outcome.RETRY, "response_retry"),
    FailureKind.MIDDLEWARE: UrlResult(Outcome.RETRY, "middleware_failed"),
    FailureKind.FORBIDDEN_ADDRESS: UrlResult(Outcome.DENIED, "forbidden_address"),
    FailureKind.FORBIDDEN_PORT: UrlResult(Outcome.DENIED, "forbidden_port"),
}


DEFECT = UrlResult(Outcome.DEAD, "defect")
"""The result for a URL whose handling raised an unexpected exception. It is not retried, because it would raise
again."""

FORBIDDEN = frozenset({FailureKind.FORBIDDEN_ADDRESS, FailureKind.FORBIDDEN_PORT})
"""Failures because the settings do not allow the request. They do not go away by waiting."""

PAYMENT_REQUIRED = UrlResult(Outcome.DENIED, "payment_required")
"""RFC 9110 15.5.3 (402): the site offers the page for money, by whatever scheme. That is an answer and no error."""

LATER = UrlResult(Outcome.RETRY, "put_off")
"""The result for a URL whose shape brings nothing new (`crawler.scope.shapes`): it is queued again, and comes last."""

BEHIND_PAGES = UrlResult(Outcome.RETRY, "backoff")
"""The result for a requisite whose domain has backed off again and again: it is queued again, behind pages."""

LINKED = UrlResult(Outcome.DENIED, "linked")
"""The result for a requisite that a page has linked to since it was queued: it is fetched as a page."""

MAYBE_SENT = UrlResult(Outcome.DEAD, "maybe_sent")
"""The result for a request that must not be repeated, and was sent or about to be when its replica died."""

NOT_FETCHED = UrlResult(Outcome.DENIED, "put_off")
"""The result for such a URL when the share of pages that may be put off and fetched is used."""

REDIRECT_LOOP = UrlResult(Outcome.DEAD, "redirect_loop")
"""The result for a URL that redirects to itself more often than it is requested once more."""

NO_HTTPS = UrlResult(Outcome.DENIED, "no_https")
"""The result for a seed without a scheme whose host does not answer over https, and which is queued again with http."""

NO_SITEMAP = UrlResult(Outcome.DENIED, "no_sitemap")
"""The result for a sitemap that nothing names, and that does not exist. It is no page, and its absence is no error."""

NO_HTTPS_FAILURES = frozenset(
    {
        *(FailureKind.REFUSED, FailureKind.UNREACHABLE, FailureKind.CONNECT_TIMEOUT, FailureKind.TLS),
        *(FailureKind.DISCONNECTED, FailureKind.PROTOCOL),
    }
)
"""How the request for robots.txt fails then."""

DEAD_HTTPS_TRIES = 2
"""Requests for the robots.txt of an origin with https that fails like this while its host answers over http."""

REFUSED = UrlResult(Outcome.DENIED, "usage")
"""The result for a URL whose owner refuses the purpose of the crawl in a file of the site."""

ROBOTS_UNREACHABLE = UrlResult(Outcome.RETRY, "robots_unreachable")
"""The result for a URL whose robots.txt is unreachable, or cannot be applied to it because of a defect."""

USAGE_UNREACHABLE = "usage_unreachable"
"""The reason of a URL that waited for the tdmrep.json of its origin, or is dead because that stayed unreachable."""

NO_SUCH_HOST_TRIES = 2
"""Lookups of a host that does not exist according to the DNS. One retry is enough, for temporary DNS errors."""


@cache  # of a thousand statuses at most
def judge_status(status: int) -> UrlResult:
    """Return the result for a response's status code."""
    if status == HTTPStatus.PAYMENT_REQUIRED:
        return PAYMENT_REQUIRED
    if status in _RETRIED_STATUSES:
        return UrlResult(Outcome.RETRY, f"http_{status}", backs_off=status in _BACKOFF_STATUSES)
    if 300 <= status < 400 and status != 304:
        return UrlResult(Outcome.DONE, "redirect")
    if 200 <= status < 300 or status == 304:
        return UrlResult(Outcome.DONE, "ok")
    return UrlResult(Outcome.DONE, f"http_{status}")


def judge_failure(kind: FailureKind) -> UrlResult:
    """Return the result for a request that failed with `kind`. Raises KeyError for the kinds in `NOT_THE_URLS_FAULT`,
    which leave the URL unchanged."""
    return _FAILURES[kind]


def last_try(result: UrlResult, tries_before: int, allowed: int) -> UrlResult:
    """Return `result`, or a dead URL with the same reason if it asks for a retry and this was the last of `allowed`
    tries. `tries_before`: failed tries before this one."""
    if result.outcome is Outcome.RETRY and tries_before + 1 >= allowed:
        return UrlResult(Outcome.DEAD, result.reason, result.backs_off)
    return result


def verdict_by_robots(url: str, known: OriginRobots, tries: int, purpose: Collection[str] = ()) -> UrlResult | None:
    """What becomes of `url` because of the fresh robots.txt of its origin, `known`; None if it may be requested now.
    `tries`: how often the file is fetched before URLs of its origin are dead. `purpose`: that of the crawl. Raises what the
    matching of a defective file raises."""
    if known.record.access == "disallow":
        return _verdict_by_unreachable(known.record, tries)
    if known.rules is not None and not known.rules.decide(url).allowed:
        return UrlResult(Outcome.DENIED, "robots")
    if not purpose:
        return None
    if known.usage(url).combined().refusal(purpose):
        return REFUSED
    if known.record.is_tdm_unreachable and not tdmrep.CATEGORIES.isdisjoint(purpose):
        # What may be reserved is not taken for permitted, just as with robots.txt.
        return UrlResult(Outcome.DEAD if known.record.tdm_failures >= tries else Outcome.RETRY, USAGE_UNREACHABLE)
    return None


def lacks_https(url: str, known: OriginRobots, recall: Callable[[str], OriginRobots | None]) -> bool:
    """Whether the host of `url`, whose robots.txt is `known`, does not answer over https, but over http. `recall`: returns
    what is known of an origin."""
    if known.record.access != "disallow" or known.record.reason not in NO_HTTPS_FAILURES or url[:6] != "https:":
        return False
    plain = recall("http" + origin_of(url).removeprefix("https"))
    return plain is not None and plain.record.access != "disallow"


def _verdict_by_unreachable(record: RobotsRecord, tries: int) -> UrlResult:
    """RFC 9309 2.3.1.4: an unreachable robots.txt (a server error, a timeout) denies everything. The URL waits for the
    next attempt to fetch the file. As soon as the attempts in a row are as many as a page has tries, each URL of the
    origin that comes up, also a new one, is dead, until an attempt succeeds."""
    if record.reason in FORBIDDEN:
        return judge_failure(FailureKind(record.reason))
    is_gone = record.reason == "no_such_host"
    tries = min(tries, NO_SUCH_HOST_TRIES) if is_gone else tries
    outcome = Outcome.DEAD if record.failures >= tries else Outcome.RETRY
    return UrlResult(outcome, "no_such_host" if is_gone else ROBOTS_UNREACHABLE.reason)
