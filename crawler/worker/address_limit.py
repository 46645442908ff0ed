"""The address rate limiter in the turns of visits: a visit that has to wait for its slot goes back into the queue.

A slot is reserved for one request to one network. It is kept with the visit while the visit waits, so that the turn
that comes at that slot goes ahead without asking again.
"""

from __future__ import annotations

from collections.abc import Callable

from crawler.errors import FetchFailed
from crawler.fetch.client import HttpClient
from crawler.worker.runtime import Runtime
from crawler.worker.visit import Visit
from politeness.address_rate_limit import HORIZON_S, RateLimiter, RateLimitPolicy, network_of

KEPT_S = 5.0
"""A slot that was not used for so long after it came is given up: those after it would find it crowded."""


class AddressLimiter:
    """Asks the gate that `made` makes of the policy in force. Without a gate everybody is let through."""

    def __init__(self, runtime: Runtime, fetcher: HttpClient, made: Callable[[RateLimitPolicy], RateLimiter]) -> None:
        self._runtime = runtime
        self._fetcher = fetcher
        self._made = made
        self._limiter: RateLimiter | None = None
        self._policy: RateLimitPolicy | None = None

    def _current(self) -> RateLimiter | None:
        policy = self._runtime.policy.gate
        if policy != self._policy:
            self._policy, self._limiter = policy, None if policy is None else self._made(policy)
        return self._limiter

    async def may_request(self, visit: Visit, url: str) -> bool:
        """Whether `visit` may request `url` now. If not, the visit's next turn is set to when it may; a visit that would
        have to wait long gives its lease back."""
        limiter = self._current()
        if limiter is None:
            return True
        try:
            network = network_of(await self._fetcher.locate(url))
        except FetchFailed:
            return True  # the request itself will fail for this reason, without leaving this machine
        slot = visit.take_slot()
        if slot is not None and slot[0] == network and self._runtime.now() <= slot[1] + KEPT_S:
            return True
        wait_s = await self._runtime.retry.call(lambda: limiter.reserve(network))
        if wait_s is None:
            visit.wait_until(self._runtime.now() + HORIZON_S)
            visit.close()
            return False
        if wait_s <= 0:
            return True
        visit.reserve_slot(network, self._runtime.now() + wait_s)
        return False
