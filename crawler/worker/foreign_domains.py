"""Requests to a domain that is not the leased one: a robots.txt may redirect to another domain.

Another replica may hold the lease on that domain, so each such request needs a reservation (`frontier.reservations`).
While a leased domain waits for its reservation it is in the queue and occupies no worker.
"""

from __future__ import annotations

import asyncio

from crawler.page import Exchange
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.outcomes import judge_status
from crawler.worker.runtime import Runtime
from crawler.worker.throttle import backoff_after
from frontier.domains import domain_of, host_of
from frontier.errors import RedisAway
from frontier.reservations import Reservation, ReservationRefused, Reservations
from politeness.backoff import HEALTHY

MAX_WAIT_MS = 30_000
"""If the other domain is not available within this time, no reservation is made; the replica asks again at the end of the
domain's delay."""

KEPT_MS = 5_000
"""How long after its slot a reserved request may still begin. The response has to end before the reservation does."""

MOST_REFUSALS = 4
"""Each refusal in a row lengthens the wait by its base value, up to this factor, so that many that wait for the same
domain do not overload Redis."""


class ForeignDomainAccess:
    """Reserves requests to domains other than the leased one."""

    def __init__(self, runtime: Runtime, reservations: Reservations) -> None:
        self._runtime = runtime
        self._reservations = reservations
        self._ending: set[asyncio.Task[None]] = set()  # of reservations on nodes that are away; at most one a request

    async def may_request(self, leased: LeasedDomain, url: str) -> bool:
        """Return whether `leased` may request `url` now. If not, its next turn is set to the slot, or to when it should ask
        again. Raises RedisAway if the other domain's node of a cluster is away."""
        domain = domain_of(host_of(url))
        if domain == leased.domain:
            return True
        held, now_ms = leased.reservation, self._runtime.server_clock.now_ms()
        if held is not None and held.domain == domain and held.slot_ms <= now_ms <= held.slot_ms + KEPT_MS:
            return True
        retry = self._runtime.retry
        node = retry.node_of(self._reservations.shard_of(domain))
        answer = await retry.soon(lambda: self._reservations.reserve(domain, MAX_WAIT_MS), node)
        now_ms = self._runtime.server_clock.now_ms()
        if isinstance(answer, ReservationRefused):
            refusals = leased.refused(MOST_REFUSALS)
            self._wait(leased, int((answer.retry_ms - now_ms) * refusals * self._runtime.rng.uniform(0.5, 1.0)))
            return False
        leased.reserve(answer)
        if answer.slot_ms > now_ms:
            self._wait(leased, answer.slot_ms - now_ms)
            return False
        return True

    def _wait(self, leased: LeasedDomain, wait_ms: int) -> None:
        leased.wait_at_least_until(self._runtime.now() + wait_ms / 1000)

    async def end_request(self, leased: LeasedDomain, exchange: Exchange | None, delay_ms: int) -> bool:
        """End the request that `may_request` allowed. `exchange`: the response, None without one; `delay_ms`: the delay of
        the leased domain. If the request went to another domain, starts that domain's delay and returns True."""
        held = leased.take_reservation()
        if held is None:
            return False
        now_ms = self._runtime.server_clock.now_ms()
        next_ms = now_ms + max(delay_ms, held.delay_ms)
        if exchange is not None and (result := judge_status(exchange.status)).backs_off:
            # The other domain's stored backoff is not changed, because that belongs to its lease.
            next_ms = max(next_ms, backoff_after(self._runtime, HEALTHY, result, exchange).until_ms)
        await self._end(held, next_ms)
        return True

    async def _end(self, held: Reservation, next_ms: int) -> None:
        """End `held`. If the other domain's node is away, this happens when it is back. Nobody can lease the domain before,
        and its worker need not wait."""
        retry = self._runtime.retry
        node = retry.node_of(self._reservations.shard_of(held.domain))
        try:
            await retry.soon(lambda: self._reservations.end(held, next_ms), node)
        except RedisAway:
            ending = asyncio.create_task(retry.call(lambda: self._reservations.end(held, next_ms), node))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
