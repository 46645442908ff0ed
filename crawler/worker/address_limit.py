"""Applies the address rate limit to visits: a visit that has to wait for its slot returns to the queue.

A slot is a reservation for one request to one network. The visit keeps it while it waits, so its next turn can send the
request without another reservation.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from crawler.errors import FetchFailed
from crawler.fetch.client import HttpClient
from crawler.worker.runtime import Runtime
from crawler.worker.visit import Visit
from politeness.address_rate_limit import HORIZON_S, RateLimiter, RateLimitPolicy, network_of


class AddressLimiter:
    """Reserves slots at a rate limiter, which `made` creates from the current policy. Without a rate limit in the policy,
    every request is allowed."""

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
        """Return whether `visit` may request `url` now. If not, its next turn is set to the start of the slot; a visit that
        would have to wait longer than `HORIZON_S` is closed."""
        limiter = self._current()
        if limiter is None:
            return True
        try:
            network = network_of(await self._fetcher.locate(url))
        except FetchFailed:
            return True  # the request will fail for the same reason before anything is sent
        slot = visit.take_slot()
        if slot is not None and slot[0] == network and limiter.may_use(*slot):
            return True
        wait_s = await self._runtime.retry.call(lambda: limiter.reserve(network))
        if wait_s is None:
            at = self._runtime.now() + HORIZON_S
            visit.wait_until(at)
            visit.back_off(replace(visit.backoff, limited_until_ms=self._runtime.server_ms(at)))
            visit.close()
            return False
        if wait_s <= 0:
            return True
        visit.reserve_slot(network, self._runtime.now() + wait_s)
        return False
