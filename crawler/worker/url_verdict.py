"""Whether a URL is settled or retried later without a request: the verdict by its domain, then by its robots.txt.

Pure functions. They return None if nothing speaks against requesting the URL now.
"""

from __future__ import annotations

from collections.abc import Collection

from crawler.errors import FailureKind
from crawler.page import Outcome
from crawler.worker.outcomes import FORBIDDEN, UrlResult, judge_failure
from politeness import tdmrep
from politeness.robots_cache import OriginRobots
from politeness.robots_fetch import RobotsRecord

NO_SUCH_HOST_TRIES = 2
"""Lookups of a host that does not exist according to the DNS. One retry is enough, for temporary DNS errors."""


def verdict_by_domain(is_blocked: bool, given_up_reason: str | None) -> UrlResult | None:
    """`is_blocked`: an operator has blocked the domain. `given_up_reason`: the last failure of a domain that failed so
    often that the crawl has given it up, None for any other."""
    if is_blocked:
        return UrlResult(Outcome.DENIED, "blocked")
    if given_up_reason is not None:
        return UrlResult(Outcome.DEAD, f"given_up_{given_up_reason}")
    return None


REFUSED = UrlResult(Outcome.DENIED, "usage")
"""The result for a URL whose owner refuses the purpose of the crawl in a file of the site."""


ROBOTS_UNREACHABLE = UrlResult(Outcome.RETRY, "robots_unreachable")
"""The result for a URL whose robots.txt is unreachable, or cannot be applied to it because of a defect."""

USAGE_UNREACHABLE = "usage_unreachable"
"""The reason of a URL that waited for the tdmrep.json of its origin, or is dead because that stayed unreachable."""


def verdict_by_robots(
    url: str, known: OriginRobots, tries: int, exceeds_cap: bool, purpose: Collection[str] = ()
) -> UrlResult | None:
    """`known`: the fresh robots.txt of the origin of `url`. `tries`: how often it is fetched before URLs of its origin are
    dead. `exceeds_cap`: it asks for a delay above the crawl's cap. `purpose`: that of the crawl. Raises what the matching
    of a defective file raises."""
    if known.record.access == "disallow":
        return _verdict_by_unreachable(known.record, tries)
    if known.rules is not None and not known.rules.decide(url).allowed:
        return UrlResult(Outcome.DENIED, "robots")
    if exceeds_cap:
        return UrlResult(Outcome.DENIED, "crawl_delay")
    if not purpose:
        return None
    if known.usage(url).combined().refusal(purpose):
        return REFUSED
    if known.record.is_tdm_unreachable and not tdmrep.CATEGORIES.isdisjoint(purpose):
        # What may be reserved is not taken for permitted, just as with robots.txt.
        return UrlResult(Outcome.DEAD if known.record.tdm_failures >= tries else Outcome.RETRY, USAGE_UNREACHABLE)
    return None


def _verdict_by_unreachable(record: RobotsRecord, tries: int) -> UrlResult:
    """RFC 9309 2.3.1.4: an unreachable robots.txt (a server error, a timeout) denies everything. The URL waits for the next
    attempt to fetch the file. As soon as the attempts in a row are as many as a page has tries, each URL of the origin that
    comes up, also a new one, is dead, until an attempt succeeds."""
    if record.reason in FORBIDDEN:
        return judge_failure(FailureKind(record.reason))
    is_gone = record.reason == "no_such_host"
    tries = min(tries, NO_SUCH_HOST_TRIES) if is_gone else tries
    outcome = Outcome.DEAD if record.failures >= tries else Outcome.RETRY
    return UrlResult(outcome, "no_such_host" if is_gone else ROBOTS_UNREACHABLE.reason)
