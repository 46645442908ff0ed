"""The politeness policy of a crawl, as one value that is replaced as a whole."""

from __future__ import annotations

import msgspec

from politeness.delay import ThrottlePolicy
from politeness.rate_limit import RateLimitPolicy
from politeness.robots_fetch import RobotsPolicy
from politeness.usage import Category


class UsagePolicy(msgspec.Struct, frozen=True):
    """`purpose`: of the crawl; what owners refuse is not fetched or kept. `reads_tdmrep`: fetch tdmrep.json."""

    purpose: frozenset[Category] = frozenset()
    reads_tdmrep: bool = False


class PolitenessPolicy(msgspec.Struct, frozen=True):
    """`tries`: requests for a URL or robots.txt; `rate_limit`: of an address, None for none; `shares_delays`: with
    other crawls on the server."""

    throttle: ThrottlePolicy
    robots: RobotsPolicy
    tries: int
    rate_limit: RateLimitPolicy | None = None
    usage: UsagePolicy = UsagePolicy()
    shares_delays: bool = False


class CurrentPolicy:
    """The policy in force, which all parts of a replica read here, so that changes apply everywhere at once."""

    def __init__(self, policy: PolitenessPolicy) -> None:
        self.replace(policy)

    def __repr__(self) -> str:
        return f"<CurrentPolicy {self._policy}>"

    def replace(self, policy: PolitenessPolicy) -> None:
        """Use `policy` from now on. A delay that has begun is not changed."""
        self._policy = policy
        self.throttle, self.robots, self.usage = policy.throttle, policy.robots, policy.usage
        self.tries, self.rate_limit, self.shares_delays = policy.tries, policy.rate_limit, policy.shares_delays
