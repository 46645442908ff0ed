"""The politeness policy of a crawl, as one value that is replaced as a whole."""

from __future__ import annotations

import msgspec

from politeness.delay import ThrottlePolicy
from politeness.rate_limit import RateLimitPolicy
from politeness.robots_fetch import RobotsPolicy
from politeness.usage import Category


class UsagePolicy(msgspec.Struct, frozen=True):
    """`purpose`: the uses for which the crawl is made. What an owner refuses for one of them is not fetched or not kept.
    `reads_tdmrep`: whether to fetch the /.well-known/tdmrep.json of each origin."""

    purpose: frozenset[Category] = frozenset()
    reads_tdmrep: bool = False


class PolitenessPolicy(msgspec.Struct, frozen=True):
    """`tries`: maximum number of requests for a URL, and for the robots.txt of an origin. `rate_limit`: the rate that all
    domains at a network address share; None for no limit. `shares_delays`: whether other crawls on the same Redis share the
    delay of each domain."""

    throttle: ThrottlePolicy
    robots: RobotsPolicy
    tries: int
    rate_limit: RateLimitPolicy | None = None
    usage: UsagePolicy = UsagePolicy()
    shares_delays: bool = False


class CurrentPolicy:
    """The policy in force. All parts of a replica read it here whenever they need it, so changed settings apply everywhere
    at once."""

    def __init__(self, policy: PolitenessPolicy) -> None:
        self.replace(policy)

    def __repr__(self) -> str:
        return f"<CurrentPolicy {self._policy}>"

    def replace(self, policy: PolitenessPolicy) -> None:
        """Use `policy` from now on. A delay that has begun is not changed."""
        self._policy = policy
        self.throttle, self.robots, self.usage = policy.throttle, policy.robots, policy.usage
        self.tries, self.rate_limit, self.shares_delays = policy.tries, policy.rate_limit, policy.shares_delays
