"""How long a domain rests between two requests: the longest of what it asks for, what it shows, and what we keep. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

import msgspec

from politeness.backoff import BackoffPolicy

MAX_DELAY_S: Final = 86_400.0
"""No rest between two requests is longer than a day, whatever robots.txt says under `above_cap="keep"`."""


class DelayPolicy(msgspec.Struct, frozen=True, cache_hash=True):
    """What a domain is granted. All in seconds, measured from the end of a response to the start of the next request.

    `min_delay_s`: the rest of a domain that asks for nothing.

    `crawl_delay_cap_s`: above this, Crawl-delay and Request-rate are not taken at their word; 0 ignores both. 300 s is
    Heritrix's cap: at 288 pages a day a site can still be visited. `above_cap` says what then happens: "cap" waits
    `crawl_delay_cap_s`; "keep" waits what was asked, up to a day; "skip" leaves the rest as it is, and the crawl is
    expected to leave out the domain, as Nutch and StormCrawler do (`is_above_cap`).

    `response_share`: the domain also rests this many times as long as its last response took, up to
    `response_share_cap_s`. A server that gets slower is asked more seldom, before it has to say so. Heritrix takes 5
    with a cap of 30 s, Mercator took 10. With 1, we keep a server busy for at most half of the time; with the minimum of
    1 s above it, that share only counts where responses take longer than a second. 0 turns it off.
    """

    min_delay_s: float = 1.0
    crawl_delay_cap_s: float = 300.0
    above_cap: Literal["cap", "keep", "skip"] = "cap"
    response_share: float = 1.0
    response_share_cap_s: float = 30.0


class ThrottlePolicy(msgspec.Struct, frozen=True):
    """What a domain is granted after an answer, and after a failure. `parallel`: requests in flight at once at most, where
    nobody asks for a rest between two."""

    delay: DelayPolicy
    backoff: BackoffPolicy
    parallel: int = 1


def delay_ms(policy: DelayPolicy, crawl_delay: float | None, request_rate: float | None, response_s: float) -> int:
    """Milliseconds from the end of a response to the next request, rounded up.

    `crawl_delay` and `request_rate` are those of `Rules`, in seconds per request; None where robots.txt is silent.
    `response_s`: how long the last response took.
    """
    shown = min(policy.response_share * response_s, policy.response_share_cap_s)
    return max(_least_ms(policy, crawl_delay, request_rate), _in_ms(shown))


@lru_cache(maxsize=256)  # asked twice a page, and most sites ask for nothing
def _least_ms(policy: DelayPolicy, crawl_delay: float | None, request_rate: float | None) -> int:
    """Milliseconds of rest after a response that took no time."""
    asked = _asked(crawl_delay, request_rate)
    if policy.crawl_delay_cap_s == 0:
        asked = 0.0
    elif asked > policy.crawl_delay_cap_s:
        asked = {"cap": policy.crawl_delay_cap_s, "keep": min(asked, MAX_DELAY_S), "skip": 0.0}[policy.above_cap]
    return _in_ms(max(policy.min_delay_s, asked))


def _in_ms(seconds: float) -> int:
    # Rounded to microseconds first: 1.1 s are 1100 ms, though 1000 * 1.1 is a little more.
    return -(-round(1_000_000 * seconds) // 1000)


def is_above_cap(policy: DelayPolicy, crawl_delay: float | None, request_rate: float | None) -> bool:
    """Whether the domain shall be left out, because it asks for more patience than the crawl has."""
    return (
        policy.above_cap == "skip"
        and policy.crawl_delay_cap_s > 0
        and _asked(crawl_delay, request_rate) > policy.crawl_delay_cap_s
    )


def _asked(crawl_delay: float | None, request_rate: float | None) -> float:
    return max(crawl_delay or 0.0, request_rate or 0.0)
