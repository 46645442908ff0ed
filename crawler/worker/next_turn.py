"""What follows a turn of a leased domain: its next turn, or the end of its lease.

While the page of a turn waits for a handler of users, the next request to the domain need not wait, too. The domain then
returns to the queue as after a turn, and the domain's delay alone decides when it is due. The turn stays open until the
handler has ended, so that the lease does not end before. At most `HANDED_ON` pages of a domain wait at the same time
without holding up its next request, and `PageHandling` limits those of all domains and their bytes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from crawler.parse.child import StandIn
from crawler.worker.allowance import Allowance
from crawler.worker.lease_manager import LeaseManager
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.runtime import Runtime

HANDED_ON = 8
"""Pages of a domain that may wait for handlers while its next page is requested: with a delay of a second, enough for
handlers that take eight."""


class Turns:
    """Puts leased domains back into the queue, or ends them. `stand_in`: while its block runs, another worker has the
    slot of the one that waits in it."""

    def __init__(self, runtime: Runtime, leases: LeaseManager, allowance: Allowance, stand_in: StandIn) -> None:
        self.leases = leases
        self._runtime = runtime
        self._allowance = allowance
        self._stand_in = stand_in

    def go_on(self, leased: LeasedDomain) -> None:
        """Decide what follows after a turn of `leased`, or while its page waits for a handler."""
        if leased.is_queued:
            return
        over = leased.closing or not leased.holds(self._runtime.now())
        if leased.busy >= 1 if over else leased.requesting >= leased.concurrency:
            return  # continues when another of its requests ends
        if leased.closing:
            self.leases.finish(leased)
        elif over:
            self.leases.held.forget(leased)
        elif leased.pending:
            self.enqueue(leased)

    def enqueue(self, leased: LeasedDomain) -> None:
        """Let `leased` wait for its next turn, or for a permit."""
        leased.queued(True)
        if leased.wants_permit:
            self._allowance.wait(leased)
        else:
            self.leases.queue.put(leased, leased.next_at, leased.body_bytes)

    @asynccontextmanager
    async def handing_on(self, leased: LeasedDomain) -> AsyncIterator[None]:
        """A block in which the turn of `leased` only waits for a handler. Another worker has the slot meanwhile."""
        if leased.handling >= HANDED_ON:
            async with self._stand_in():
                yield
            return
        leased.handed_on(True)
        try:
            self.go_on(leased)
            async with self._stand_in():
                yield
        finally:
            leased.handed_on(False)
