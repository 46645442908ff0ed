"""A request under a lease: it leaves only while the lease holds, and is broken off when the lease ends under way.

A response that outlived its lease would overlap with the first request of the domain's next holder. As long as renewals
come through, the lease does not end: each one moves its end (`Visit.renewed`).
"""

from __future__ import annotations

import asyncio

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.client import HttpClient
from crawler.fetch.conditional import Validators
from crawler.page import Exchange
from crawler.worker.time_slice import TimeSlice
from crawler.worker.visit import Visit
from frontier.clock import Clock


class LeasedFetch:
    """Fetches for visits. `validators`: of pages that are asked for only if they have changed. Requests leave at the
    `time_slice`, which those who asked for them keep as well when they see to the answers."""

    def __init__(self, fetcher: HttpClient, clock: Clock, validators: Validators | None = None) -> None:
        self._fetcher = fetcher
        self._clock = clock
        self._validators = validators or Validators()
        self.time_slice = TimeSlice(clock)

    async def fetch(self, visit: Visit, url: str) -> Exchange:
        """GET `url` within the lease of `visit`. Raises FetchFailed; LEASE_EXPIRED when the lease ended before or under
        way."""
        task = await self.time_slice.wait()
        visit.lease_scope.enter(task, visit.deadline - self._clock.monotonic())
        try:
            exchange = await self._fetcher.fetch(
                url,
                deadline=lambda: not visit.holds(self._clock.monotonic()),
                extra_headers=self._validators.conditions(url),
            )
        except BaseException as error:
            if visit.lease_scope.leave(task) and isinstance(error, asyncio.CancelledError):
                raise FetchFailed(FailureKind.LEASE_EXPIRED, "the lease ended under way", request_sent=True) from error
            raise
        visit.lease_scope.leave(task)
        return exchange
