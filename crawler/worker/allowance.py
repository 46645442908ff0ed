"""The page permits that this replica holds (`limits.max_pages`): it asks `frontier.budget` for more in time, and keeps the
domains that wait for a permit.

A domain without a permit waits here and not in the delay queue, so it costs nothing until there are permits. Permits are
fetched ahead of need. Domains have to wait only near the page limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from crawler.events import Event, GroupCommitted, ViewAdopted
from crawler.worker.delay_queue import DelayQueue
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.runtime import Runtime
from frontier.budget import PERIOD_S, SHORT_PERIOD_S, Budget, PageLimit

GATHER_S = 0.01
"""Shortest time between two calls, so that one call reports everything that happened in between."""


class Allowance:
    """Manages the permits of `budget` for up to `at_once` requests in flight. `replicas`: how many the view has. Without
    any, this replica may not know the time, and a call with a time that is ahead would end the permits of others."""

    def __init__(
        self,
        runtime: Runtime,
        budget: Budget,
        queue: DelayQueue[LeasedDomain],
        at_once: int,
        replicas: Callable[[], int] = lambda: 1,
    ) -> None:
        self._runtime = runtime
        self.budget = budget
        self.queue = queue
        self._at_once = at_once
        self._replicas = replicas
        runtime.events.subscribe(self._observe, GroupCommitted, ViewAdopted)
        self._waiting: deque[LeasedDomain] = deque()
        self._is_due = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Allowance {self.budget!r} waiting={len(self._waiting)}>"

    @property
    def is_awaited(self) -> bool:
        """Whether a leased domain waits for a permit. If so, it is useless to lease others."""
        return bool(self._waiting)

    def apply(self, limit: PageLimit, lease_ms: int) -> None:
        """Use these values from now on: see `Budget.apply`."""
        self.budget.apply(limit, lease_ms)
        self._note()

    def take(self) -> bool:
        """Take a permit for one page. Returns False if there is none."""
        taken = self.budget.take()
        self._note()
        return taken

    def give_back(self) -> None:
        """Return a permit that was taken and brought no page."""
        self.budget.give_back()
        self._wake()

    def _observe(self, event: Event) -> None:
        """Count the permits that settled pages have used, and fetch some as soon as there are replicas."""
        if isinstance(event, GroupCommitted):
            self.budget.used(event.done)
            self._note()
        elif isinstance(event, ViewAdopted):
            self._is_due.set()

    def wait(self, leased: LeasedDomain) -> None:
        """Put `leased` into the queue as soon as there is a permit for it."""
        leased.want_permit(False)
        self._waiting.append(leased)
        self._wake()

    def _note(self) -> None:
        if self.budget.is_low:
            self._is_due.set()

    def _wake(self) -> None:
        """Put as many waiting domains into the queue as there are free permits."""
        now = self._runtime.now()
        for _ in range(min(len(self._waiting), self.budget.available)):
            leased = self._waiting.popleft()
            if not leased.closing:  # otherwise its lease was returned in the meantime
                leased.wait_at_least_until(now)
                self.queue.put(leased, leased.next_at)

    async def run(self, on_spent: Callable[[], None]) -> None:
        """Keep permits in stock until cancelled. Calls `on_spent` repeatedly once the crawl has reached its page limit."""
        while True:
            replicas = self._replicas()
            if replicas and self.budget.is_due(replicas, len(self._waiting)):
                await self._runtime.retry.call(self._refresh)
            self._is_due.clear()  # it may have been set during the call, for permits that the call has brought
            if replicas:  # otherwise the next view is awaited
                self._note()
            self._wake()
            if self.budget.is_exhausted:
                on_spent()
            await self._pause()

    async def _refresh(self) -> None:
        self._wake()  # without a limit, permits are free while the node of the budget is away
        await self.budget.refresh(self._at_once, len(self._waiting))
        if self.budget.is_used_up and not self.budget.is_exhausted:
            await self.budget.recount()
            await self.budget.refresh(self._at_once, len(self._waiting))

    async def _pause(self) -> None:
        """Wait until permits run low, or for as long as a report may be late."""
        await self._runtime.clock.sleep(GATHER_S)
        period_s = SHORT_PERIOD_S if self.budget.is_short or self._waiting else PERIOD_S
        timer = asyncio.get_running_loop().call_later(period_s, self._is_due.set)
        await self._is_due.wait()
        timer.cancel()
