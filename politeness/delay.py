"""The delay between two requests to a domain: the longest of the delay that its robots.txt asks for, a share of its
response time, and the crawl's minimum. Pure."""

from __future__ import annotations

from math import ceil
from typing import Final, Literal

import msgspec

from politeness.backoff import BackoffPolicy

MAX_DELAY_S: Final = 86_400.0
"""The longest delay, a day, even if robots.txt asks for more and `above_cap` is "keep"."""


class DelayPolicy(msgspec.Struct, frozen=True):
    """All times are in seconds, from the end of a response to the start of the next request.

    `min_delay_s`: the delay of a domain that asks for none.

    `crawl_delay_cap_s`: the longest Crawl-delay or Request-rate that is followed as it is; 0 ignores both. 300 s is the
    cap of Heritrix: 288 pages a day are enough to crawl a site. `above_cap`: what to do above it. "cap" waits
    `crawl_delay_cap_s`; "keep" waits as long as asked, up to a day; "skip" ignores the value, and the crawl has to leave
    out the domain, as Nutch and StormCrawler do (`is_above_cap`).

    `response_share`: the delay is at least this many times the duration of the last response, up to
    `response_share_cap_s`, so that a server that gets slower gets fewer requests. Heritrix uses 5 with a cap of 30 s,
    Mercator used 10. With 1, a server works for us at most half of the time. 0 disables it.
    """

    min_delay_s: float = 1.0
    crawl_delay_cap_s: float = 300.0
    above_cap: Literal["cap", "keep", "skip"] = "cap"
    response_share: float = 1.0
    response_share_cap_s: float = 30.0


class ThrottlePolicy(msgspec.Struct, frozen=True):
    """Delays after responses and failures. `parallel`: requests in flight to a domain while no delay applies."""

    delay: DelayPolicy
    backoff: BackoffPolicy
    parallel: int = 1


def delay_ms(policy: DelayPolicy, crawl_delay: float | None, request_rate: float | None, response_s: float) -> int:
    """Milliseconds from a response to the next request, rounded up. Rates in seconds per request, or None."""
    delay_s = policy.min_delay_s
    if response_s and policy.response_share:
        delay_s = max(delay_s, min(policy.response_share * response_s, policy.response_share_cap_s))
    if crawl_delay or request_rate:
        asked = _asked(crawl_delay, request_rate)
        if policy.crawl_delay_cap_s == 0:
            asked = 0.0
        elif asked > policy.crawl_delay_cap_s:
            asked = {"cap": policy.crawl_delay_cap_s, "keep": min(asked, MAX_DELAY_S), "skip": 0.0}[policy.above_cap]
        delay_s = max(delay_s, asked)
    # Rounded to microseconds first, because 1000 * 1.1 is a little more than 1100.
    return ceil(round(1_000_000 * delay_s) / 1000) if delay_s else 0


def with_set_delay(policy: DelayPolicy, set_delay_s: float | None) -> DelayPolicy:
    """`policy` for a domain whose delay an operator has set to `set_delay_s` seconds. None: no operator has."""
    if set_delay_s is None:
        return policy
    share = policy.response_share if set_delay_s else 0.0  # 0 is for the operator's own sites
    return msgspec.structs.replace(policy, min_delay_s=set_delay_s, response_share=share)


def is_above_cap(policy: DelayPolicy, crawl_delay: float | None, request_rate: float | None) -> bool:
    """Whether the crawl has to leave out the domain, because the delay that it asks for is too long."""
    return (
        policy.above_cap == "skip"
        and policy.crawl_delay_cap_s > 0
        and _asked(crawl_delay, request_rate) > policy.crawl_delay_cap_s
    )


def _asked(crawl_delay: float | None, request_rate: float | None) -> float:
    return max(crawl_delay or 0.0, request_rate or 0.0)
