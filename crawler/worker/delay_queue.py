"""The queue of leased domains, ordered by the time of their next turn. A waiting domain occupies an entry in a heap, but
no worker and no connection."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from itertools import count
from typing import Generic, TypeVar

from frontier.clock import Clock

Item = TypeVar("Item")

WOKEN = 8
"""How many takers may be awake at a time. Each works for up to a millisecond before it waits again; without this limit, a
batch of leases would wake all workers in one iteration of the event loop."""


BEHIND_S = 0.1
"""The queue is overloaded when the item that has been due the longest has waited for a taker longer than this."""

BYTES_PER_S = 1 << 20
"""Under overload, a domain is delayed by one second for this many bytes of its last body. A body of 10 MiB takes a tenth
of a CPU second to receive, parse and archive; its domain then waits 10 seconds longer."""


class DelayQueue(Generic[Item]):
    """Items ordered by the time when they are due. `take` returns the one that has been due the longest, and waits while
    none is due.

    One timer serves all items. It is set for the earliest item, and only while a taker waits.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Item]] = []
        self._order = count()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._woken = 0  # takers that were woken but have not run yet
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def idle_takers(self) -> int:
        """The number of takers that wait for an item."""
        return len(self._takers)

    def lateness(self) -> float:
        """Return for how many seconds the first item has been due; 0 or less if none is due."""
        return self._clock.monotonic() - self._heap[0][0] if self._heap else 0.0

    def put(self, item: Item, due: float, size: int = 0) -> None:
        """Add `item`, to be taken at `due` (monotonic seconds) or later. `size`: bytes of its last response body; under
        overload (`BEHIND_S`), items with large responses are due later."""
        if self.lateness() > BEHIND_S:
            due += size / BYTES_PER_S
        heapq.heappush(self._heap, (due, next(self._order), item))
        if self._takers and due < self._timer_at:
            self._wake()

    async def take(self) -> Item:
        """Return the item that has been due the longest. Waits until one is due."""
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
                self._wake()  # the item that it was woken for needs another taker
                raise
            self._woken -= 1
        item = heapq.heappop(self._heap)[2]
        if self._takers:
            self._wake()
        return item

    def remove(self, unwanted: set[Item]) -> None:
        """Remove the items `unwanted`."""
        self._heap = [entry for entry in self._heap if entry[2] not in unwanted]
        heapq.heapify(self._heap)

    def _wake(self) -> None:
        """Wake as many takers as items are due, at most `WOKEN`; each of them wakes the next one. If none is awake, set the
        timer for the first item."""
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
        """Count the items that are due, up to `limit`, by descending the heap until items are not due."""
        due, pending = 0, [0]
        while pending and due < limit:
            at = pending.pop()
            if at < len(self._heap) and self._heap[at][0] <= now:
                due += 1
                pending += (2 * at + 1, 2 * at + 2)
        return due
