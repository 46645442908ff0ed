"""What follows a turn of a visit: its next turn, or the end of its lease.

While the page of a turn waits for a handler of users, the next request to the domain need not wait, too. The visit then
returns to the queue as after a turn, and the domain's delay alone decides when it is due. The turn stays open until the
handler has ended, so that the lease does not end before. At most `HANDED_ON` pages of a domain wait at the same time
without holding up its next request, and `PageHandling` limits those of all domains and their bytes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from crawler.parse.offload import StandIn
from crawler.worker.allowance import Allowance
from crawler.worker.lease_manager import LeaseManager
from crawler.worker.runtime import Runtime
from crawler.worker.visit import Visit

HANDED_ON = 8
"""Pages of a domain that may wait for handlers while its next page is requested: with a delay of a second, enough for
handlers that take eight."""


class Turns:
    """Puts visits back into the queue, or ends them. `stand_in`: while its block runs, another worker has the slot of the
    one that waits in it."""

    def __init__(self, runtime: Runtime, leases: LeaseManager, allowance: Allowance, stand_in: StandIn) -> None:
        self.leases = leases
        self._runtime = runtime
        self._allowance = allowance
        self._stand_in = stand_in

    def ended(self, visit: Visit) -> None:
        """Go on after a turn of `visit`, or while its page waits for a handler."""
        if visit.is_queued:
            return
        over = visit.closing or not visit.holds(self._runtime.now())
        if visit.busy >= 1 if over else visit.requesting >= visit.concurrency:
            return  # continues when another of its requests ends
        if visit.closing:
            self.leases.finish(visit)
        elif over:
            self.leases.held.forget(visit)
        elif visit.pending:
            self.enqueue(visit)

    def enqueue(self, visit: Visit) -> None:
        """Let `visit` wait for its next turn, or for a permit."""
        visit.queued(True)
        if visit.wants_permit:
            self._allowance.wait(visit)
        else:
            self.leases.queue.put(visit, visit.next_at, visit.body_bytes)

    @asynccontextmanager
    async def handing_on(self, visit: Visit) -> AsyncIterator[None]:
        """A block in which the turn of `visit` only waits for a handler. Another worker has the slot meanwhile."""
        if visit.handling >= HANDED_ON:
            async with self._stand_in():
                yield
            return
        visit.handed_on(True)
        try:
            self.ended(visit)
            async with self._stand_in():
                yield
        finally:
            visit.handed_on(False)
