"""When each leased domain may have its next turn. A waiting domain costs a place in a heap: no worker, no connection."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from itertools import count
from typing import Generic, TypeVar

from frontier.clock import Clock

Item = TypeVar("Item")

WOKEN = 8
"""Takers on their way at a time. Each does up to a millisecond of work before it waits again, and a batch of leases would
wake all workers in one turn of the event loop."""


BEHIND_S = 0.1
"""When the item longest due has waited so long for a taker, there is more to do than can be done."""

BYTES_PER_S = 1 << 20
"""What a domain may then send: that of a body of 10 MiB, which takes a tenth of a CPU second to receive, read and archive,
gives way to the others for 10 seconds."""


class DelayQueue(Generic[Item]):
    """Items by the moment when they are due. `take` hands out the one longest due, and waits while none is.

    One timer serves all items: it is set for the earliest moment only, and only while somebody waits.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Item]] = []
        self._order = count()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._woken = 0  # takers that have been woken and did not look yet
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def idle_takers(self) -> int:
        """How many are waiting for something to be due."""
        return len(self._takers)

    def lateness(self) -> float:
        """Seconds for which the item longest due has been waiting for a taker; 0 or less if none is due."""
        return self._clock.monotonic() - self._heap[0][0] if self._heap else 0.0

    def put(self, item: Item, due: float, size: int = 0) -> None:
        """Hand `item` out at `due` (monotonic seconds) or soon after. `size`: how much came of it the last time; while
        there is more to do than can be done, items of which much comes give way to the others."""
        if self.lateness() > BEHIND_S:
            due += size / BYTES_PER_S
        heapq.heappush(self._heap, (due, next(self._order), item))
        if self._takers and due < self._timer_at:
            self._wake()

    async def take(self) -> Item:
        """The item longest due."""
        while not (self._heap and self._heap[0][0] <= self._clock.monotonic()):
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            self._wake()
            try:
                await taker
            except asyncio.CancelledError:
                if taker in self._takers:
                    self._takers.remove(taker)
                elif not taker.cancelled():
                    self._woken -= 1
                self._wake()  # it may have been woken for an item that now wants another taker
                raise
            self._woken -= 1
        item = heapq.heappop(self._heap)[2]
        if self._takers:
            self._wake()
        return item

    def remove(self, unwanted: set[Item]) -> None:
        """Take `unwanted` out."""
        self._heap = [place for place in self._heap if place[2] not in unwanted]
        heapq.heapify(self._heap)

    def _wake(self) -> None:
        """Have as many takers awake as items are due, and at most `WOKEN`: each wakes the next one. If none is awake, set
        the timer for the first item."""
        now = self._clock.monotonic()
        due = self._count_due(now, WOKEN)
        while self._takers and self._woken < due:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                self._woken += 1
        if self._takers and self._heap and not self._woken and self._heap[0][0] < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = self._heap[0][0]
            self._timer = asyncio.get_running_loop().call_later(max(0.0, self._timer_at - now), self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        self._wake()

    def _count_due(self, now: float, limit: int) -> int:
        """How many items are due, counted up to `limit`: a walk down the heap that stops at what is not due."""
        due, pending = 0, [0]
        while pending and due < limit:
            at = pending.pop()
            if at < len(self._heap) and self._heap[at][0] <= now:
                due += 1
                pending += (2 * at + 1, 2 * at + 2)
        return due
