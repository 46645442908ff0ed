"""Requests to a domain that the visit holds no lease on: the hops of a robots.txt that lead abroad.

The domain abroad may be leased by another replica, so each such hop needs a reservation (`frontier.reservations`). While
a visit waits for one it is in the queue and holds no worker.
"""

from __future__ import annotations

import math

from crawler.fetch.client import host_of
from crawler.page import Exchange
from crawler.worker.outcomes import judge_status
from crawler.worker.runtime import Runtime
from crawler.worker.visit import Visit
from frontier.reservations import ReservationRefused, Reservations
from frontier.urls import domain_of
from politeness.backoff import HEALTHY, after_failure, parse_retry_after

MAX_WAIT_MS = 30_000
"""A domain that rests longer than this is looked at again when it has rested, without a reservation until then."""

KEPT_MS = 5_000
"""How late after its slot a reserved request may begin; it must have been answered before the reservation ends."""

MOST_REFUSALS = 4
"""Each refusal lengthens the wait, up to this many times, so that many who wait for one domain do not crowd Redis."""


class ForeignDomainAccess:
    """Lets visits pass by domains that are not theirs."""

    def __init__(self, runtime: Runtime, reservations: Reservations) -> None:
        self._runtime = runtime
        self._reservations = reservations

    async def may_request(self, visit: Visit, url: str) -> bool:
        """Whether `visit` may request `url` now. If not, its next turn is set to when that makes sense."""
        domain = domain_of(host_of(url))
        if domain == visit.domain:
            return True
        held, now_ms = visit.reservation, self._runtime.server_clock.now_ms()
        if held is not None and held.domain == domain and held.slot_ms <= now_ms <= held.slot_ms + KEPT_MS:
            return True
        answer = await self._runtime.retry.call(lambda: self._reservations.reserve(domain, MAX_WAIT_MS))
        now_ms = self._runtime.server_clock.now_ms()
        if isinstance(answer, ReservationRefused):
            refusals = visit.refused(MOST_REFUSALS)
            self._wait(visit, int((answer.again_ms - now_ms) * refusals * self._runtime.rng.uniform(0.5, 1.0)))
            return False
        visit.reserve(answer)
        if answer.slot_ms > now_ms:
            self._wait(visit, answer.slot_ms - now_ms)
            return False
        return True

    def _wait(self, visit: Visit, wait_ms: int) -> None:
        visit.wait_at_least_until(self._runtime.now() + wait_ms / 1000)

    async def end_request(self, visit: Visit, exchange: Exchange | None, delay_ms: int) -> bool:
        """The request that `may_request` allowed has ended, without an answer if `exchange` is None. The domain
        abroad, if it was one, rests; returns whether it was one."""
        held = visit.take_reservation()
        if held is None:
            return False
        now_ms = self._runtime.server_clock.now_ms()
        next_ms = max(now_ms + max(delay_ms, held.delay_ms), self._backed_off_until(exchange, now_ms))
        await self._runtime.retry.call(lambda: self._reservations.end(held, next_ms))
        return True

    def _backed_off_until(self, exchange: Exchange | None, now_ms: int) -> int:
        """When the domain abroad may be asked again after an answer such as 429. Its own backoff is its holder's affair."""
        if exchange is None or not (result := judge_status(exchange.status)).backs_off:
            return 0
        header = exchange.header(b"retry-after")
        wait_s = parse_retry_after(header, now_ms / 1000) if header else None
        retry_after_ms = None if wait_s is None else math.ceil(wait_s * 1000)
        state = after_failure(
            HEALTHY,
            self._runtime.policy.throttle.backoff,
            now_ms,
            retry_after_ms,
            self._runtime.rng.random(),
            result.reason,
        )
        return state.until_ms
