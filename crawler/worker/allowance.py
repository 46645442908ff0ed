"""The permits of this replica for the workers: how `frontier.budget` is filled up in time, and who waits when it is empty.

A visit that found no permit waits here, not on the schedule: it costs nothing until permits come. Permits are fetched
ahead of need, so that with a limit far away no visit ever waits; only near the limit, or after a rest, there may be none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from crawler.events import Event, GroupCommitted
from crawler.worker.delay_queue import DelayQueue
from crawler.worker.runtime import Runtime
from crawler.worker.visit import Visit
from frontier.budget import PERIOD_S, SHORT_PERIOD_S, Budget

GATHER_S = 0.01
"""Between two calls, at least, so that what happens meanwhile is told in one."""


class Allowance:
    """The permits of `budget` for up to `at_once` requests in flight. `refusals`: how often a visit found no permit."""

    def __init__(self, runtime: Runtime, budget: Budget, queue: DelayQueue[Visit], at_once: int) -> None:
        self._runtime = runtime
        self.budget = budget
        self.queue = queue
        self._at_once = at_once
        runtime.events.subscribe(self._observe, GroupCommitted)
        self._waiting: deque[Visit] = deque()
        self._is_due = asyncio.Event()
        self.refusals = 0

    def __repr__(self) -> str:
        return f"<Allowance {self.budget!r} waiting={len(self._waiting)}>"

    @property
    def is_awaited(self) -> bool:
        """Whether a visit waits for a permit: then there is no use in further ones."""
        return bool(self._waiting)

    def take(self) -> bool:
        """Take a permit for one page, if there is one."""
        taken = self.budget.take()
        self.refusals += not taken
        self._note()
        return taken

    def give_back(self) -> None:
        """A taken permit brought no page."""
        self.budget.give_back()
        self._wake()

    def _observe(self, event: Event) -> None:
        """Pages with a permit were settled."""
        if isinstance(event, GroupCommitted):
            self.budget.used(event.done)
            self._note()

    def wait(self, visit: Visit) -> None:
        """Queue `visit` when there is a permit for it."""
        visit.want_permit(False)
        self._waiting.append(visit)
        self._wake()

    def _note(self) -> None:
        if self.budget.is_low:
            self._is_due.set()

    def _wake(self) -> None:
        """As many visits as there are free permits have their turn now."""
        now = self._runtime.now()
        for _ in range(min(len(self._waiting), self.budget.free)):
            visit = self._waiting.popleft()
            if not visit.closing:  # else it was given back meanwhile
                visit.wait_at_least_until(now)
                self.queue.put(visit, visit.next_at)

    async def run(self, on_spent: Callable[[], None]) -> None:
        """Keep permits in hand, until cancelled. `on_spent` is called again and again once the crawl has all the pages that
        it may have."""
        while True:
            await self._runtime.retry.call(self._look)
            self._is_due.clear()  # what it was set for meanwhile, the answer may have brought
            self._note()
            self._wake()
            if self.budget.is_exhausted:
                on_spent()
            await self._pause()

    async def _look(self) -> None:
        await self.budget.refresh(self._at_once, len(self._waiting))
        if self.budget.is_used_up and not self.budget.is_exhausted:
            await self.budget.recount()
            await self.budget.refresh(self._at_once, len(self._waiting))

    async def _pause(self) -> None:
        """Until permits run low, or the next report is due."""
        await self._runtime.clock.sleep(GATHER_S)
        period_s = SHORT_PERIOD_S if self.budget.is_short or self._waiting else PERIOD_S
        timer = asyncio.get_running_loop().call_later(period_s, self._is_due.set)
        await self._is_due.wait()
        timer.cancel()
