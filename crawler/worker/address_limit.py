"""Applies the address rate limit to leased domains: one that has to wait for its slot returns to the queue.

A slot is a reservation for one request to one network. The domain keeps it while it waits, so its next turn can send the
request without another reservation.

On a cluster, the rate limit of an address lives on any node. While that node is away, each replica limits itself to its
share of the rate (`DividedRateLimiter`), so requests to domains on healthy nodes go on.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from crawler.errors import FetchFailed
from crawler.fetch.client import HttpClient
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.runtime import Runtime
from frontier.errors import RedisAway
from politeness.rate_limit import (
    HORIZON_S,
    SWEEP_SIZE,
    RateLimiter,
    RateLimitPolicy,
    SharedRateLimiter,
    network_of,
    slots,
)

DIVIDED_HORIZON_S = 5.0
"""How far ahead a replica reserves slots by itself. The node may come back before they are used, and does not know them."""


class DividedRateLimiter:
    """The rate limiter that all replicas share. While a node of a cluster is away, the rate of its addresses is divided by
    the number of `replicas`. The first slot of each replica is at a random time, so that they do not all begin at once."""

    def __init__(
        self, runtime: Runtime, shared: SharedRateLimiter, policy: RateLimitPolicy, replicas: Callable[[], int]
    ) -> None:
        self._runtime = runtime
        self._shared = shared
        self._policy = policy
        self._replicas = replicas
        self._latest: dict[str, float] = {}  # network -> its latest slot here that has not begun, monotonic ms
        self._arrivals: dict[str, float] = {}  # network -> earliest next slot while its node is away, monotonic ms

    def __repr__(self) -> str:
        return f"<DividedRateLimiter {self._shared!r} alone={len(self._arrivals)}>"

    async def reserve(self, network: str) -> float | None:
        """See `RateLimiter.reserve`."""
        retry = self._runtime.retry
        try:
            wait_s = await retry.soon(lambda: self._shared.reserve(network), self._shared.node_of(network))
        except RedisAway:
            return self._reserve_alone(network)
        if wait_s and retry.has_many_nodes:
            self._latest[network] = (self._runtime.now() + wait_s) * 1000
            self._latest = self._swept(self._latest)
        self._arrivals.pop(network, None)
        return wait_s

    def _reserve_alone(self, network: str) -> float | None:
        now_ms, rate_per_s = self._runtime.now() * 1000, self._policy.rate_per_s / max(1, self._replicas())
        policy = replace(
            self._policy, rate_per_s=rate_per_s, burst=1, horizon_s=min(DIVIDED_HORIZON_S, self._policy.horizon_s)
        )
        if network not in self._arrivals:
            since_ms = max(now_ms, self._latest.get(network, 0.0))
            self._arrivals[network] = since_ms + policy.interval_ms * self._runtime.rng.random()
        given, arrival_ms = slots(self._arrivals[network], now_ms, 1, policy)
        if not given:
            return None
        self._arrivals[network] = arrival_ms
        self._arrivals = self._swept(self._arrivals)
        return (given[0] - now_ms) / 1000

    def _swept(self, times: dict[str, float]) -> dict[str, float]:
        if len(times) <= SWEEP_SIZE:
            return times
        now_ms = self._runtime.now() * 1000
        return {network: at for network, at in times.items() if at > now_ms}

    def may_use(self, network: str, slot: float) -> bool:
        """See `RateLimiter.may_use`."""
        return self._shared.may_use(network, slot)


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
        policy = self._runtime.policy.rate_limit
        if policy != self._policy:
            self._policy, self._limiter = policy, None if policy is None else self._made(policy)
        return self._limiter

    async def may_request(self, leased: LeasedDomain, url: str) -> bool:
        """Return whether `leased` may request `url` now. If not, its next turn is set to the start of the slot; if that
        is later than `HORIZON_S`, the lease is returned."""
        limiter = self._current()
        if limiter is None:
            return True
        try:
            address = await self._fetcher.locate(url)
        except FetchFailed:
            return True  # the request will fail for the same reason before anything is sent
        if address is None:
            return True
        network = network_of(address)
        slot = leased.take_slot()
        if slot is not None and slot[0] == network and limiter.may_use(*slot):
            return True
        wait_s = await self._runtime.retry.call(lambda: limiter.reserve(network))
        if wait_s is None:
            return_until(leased, self._runtime, self._runtime.now() + HORIZON_S)
            return False
        if wait_s <= 0:
            return True
        leased.reserve_slot(network, self._runtime.now() + wait_s)
        return False


def return_until(leased: LeasedDomain, runtime: Runtime, at: float) -> None:
    """Return the lease of `leased`, and do not lease its domain before `at` (monotonic seconds). This is not a failure
    of the domain."""
    leased.wait_until(at)
    leased.set_backoff(replace(leased.backoff, limited_until_ms=runtime.server_ms(at)))
    leased.close()
