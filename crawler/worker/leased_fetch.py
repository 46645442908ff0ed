"""A request under a lease: it is sent only while the lease is valid, and cancelled when the lease ends.

A response that continued after the lease would overlap with the first request of the domain's next holder. Each renewal
moves the end of the lease (`LeasedDomain.renewed`), so a lease does not end while renewals succeed.
"""

from __future__ import annotations

import asyncio
from functools import cached_property

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.client import HttpClient
from crawler.fetch.request_rules import Headers, Validators
from crawler.page import Exchange
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.time_slice import TimeSlice
from frontier.clock import Clock


class LeasedFetch:
    """Fetches URLs for leased domains. `validators` add the headers of conditional requests. Each request waits for the
    `time_slice` first; callers wait for it again before they process the response."""

    def __init__(self, fetcher: HttpClient, clock: Clock, validators: Validators | None = None) -> None:
        self._fetcher = fetcher
        self._clock = clock
        self._validators = validators or Validators()
        self.time_slice = TimeSlice(clock)

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """Asked for once: before Python 3.12, asking is a system call."""
        return asyncio.get_running_loop()

    async def fetch(self, leased: LeasedDomain, url: str, conditions: Headers = ()) -> Exchange:
        """GET `url` within the lease of `leased`. `conditions`: header fields instead of those of `validators`. Raises
        FetchFailed, with LEASE_EXPIRED if the lease ended before or during the request."""
        await self.time_slice.wait()
        loop = self._loop
        me = asyncio.current_task(loop)
        assert me is not None
        cancelled_before = me.cancelling()
        now = loop.time()
        leased.timer.begin(me, now, now + leased.lease_end - self._clock.monotonic(), loop)
        try:
            return await self._fetcher.fetch(
                url,
                is_too_late=lambda: not leased.holds(self._clock.monotonic()),
                extra_headers=conditions or self._validators.conditions(url),
            )
        except asyncio.CancelledError as error:
            if not leased.timer.has_cancelled(me) or me.cancelling() > cancelled_before + 1:
                raise  # somebody else has cancelled it, too
            message = "the lease ended during the request"
            raise FetchFailed(FailureKind.LEASE_EXPIRED, message, request_sent=True) from error
        finally:
            if leased.timer.end(me):
                me.uncancel()
