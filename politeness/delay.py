"""The delay between two requests to a domain: the longest of the delay that its robots.txt asks for, a share of its
response time, and the crawl's minimum. Pure."""

from __future__ import annotations

from math import ceil
from typing import Final

import msgspec

from politeness.backoff import BackoffPolicy

MAX_DELAY_S: Final = 86_400.0
"""The longest delay that a robots.txt can cause: a day."""


class DelayPolicy(msgspec.Struct, frozen=True):
    """All times are in seconds, from the end of a response to the start of the next request.

    `min_delay_s`: the delay of a domain that asks for none. `crawl_delay_cap_s`: the longest Crawl-delay or
    Request-rate that is followed as it is (300 s as in Heritrix); 0 ignores both. `response_share`: the delay is at
    least this many times the duration of the last response, up to `response_share_cap_s`, so that a server that gets
    slower gets fewer requests. Heritrix uses 5 with a cap of 30 s, Mercator used 10. 0 disables it.
    """

    min_delay_s: float = 1.0
    crawl_delay_cap_s: float = 300.0
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
        asked = max(crawl_delay or 0.0, request_rate or 0.0)
        delay_s = max(delay_s, min(asked, policy.crawl_delay_cap_s, MAX_DELAY_S))
    # Rounded to microseconds first, because 1000 * 1.1 is a little more than 1100.
    return ceil(round(1_000_000 * delay_s) / 1000) if delay_s else 0


def with_set_delay(policy: DelayPolicy, set_delay_s: float | None) -> DelayPolicy:
    """`policy` for a domain whose delay an operator has set to `set_delay_s` seconds. None: no operator has."""
    if set_delay_s is None:
        return policy
    share = policy.response_share if set_delay_s else 0.0  # 0 is for the operator's own sites
    return msgspec.structs.replace(policy, min_delay_s=set_delay_s, response_share=share)
