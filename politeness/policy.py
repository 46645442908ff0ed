"""The politeness policy of a crawl: how sites are treated, as one value that is replaced as a whole."""

from __future__ import annotations

import msgspec

from politeness.address_rate_limit import RateLimitPolicy
from politeness.delay import ThrottlePolicy
from politeness.robots_fetch import RobotsPolicy


class PolitenessPolicy(msgspec.Struct, frozen=True):
    """How sites are treated. `tries`: requests for a URL, and for an origin's robots.txt, at most. `rate_limit`: the
    rate that the domains behind an address share; None: no limit."""

    throttle: ThrottlePolicy
    robots: RobotsPolicy
    tries: int
    rate_limit: RateLimitPolicy | None = None


class CurrentPolicy:
    """The policy in force. All parts of a replica read it here each time that they need it, so that changed settings count
    everywhere at once."""

    def __init__(self, policy: PolitenessPolicy) -> None:
        self._policy = policy

    def __repr__(self) -> str:
        return f"<CurrentPolicy {self._policy}>"

    def replace(self, policy: PolitenessPolicy) -> None:
        """From now on `policy` counts. A delay that has begun ends as it was."""
        self._policy = policy

    @property
    def throttle(self) -> ThrottlePolicy:
        return self._policy.throttle

    @property
    def robots(self) -> RobotsPolicy:
        return self._policy.robots

    @property
    def tries(self) -> int:
        return self._policy.tries

    @property
    def gate(self) -> RateLimitPolicy | None:
        return self._policy.rate_limit
