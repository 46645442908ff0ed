"""Cooperative yielding: limits how much work is done in one iteration of the event loop.

Fifty responses may end at the same time, and each causes a millisecond or two of work, such as parsing a page or sending
a request. Done in one iteration, this would block the event loop for a tenth of a second. Before each such step a worker
therefore waits for the time slice. If the current iteration has lasted too long, the worker continues in a later one,
after the workers that began to wait earlier.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import cached_property

from frontier.clock import Clock

SPAN_S = 0.005
"""Seconds from the first step of an iteration during which further steps may begin."""

WOKEN = 3
"""At most how many waiting workers continue in one iteration."""


class TimeSlice:
    """Allows steps to begin for `SPAN_S` in an iteration of the event loop; later steps wait for the next iteration. The
    task that made the last step need not wait, because it requests the next page right after processing one.

    New iterations are noticed only while a task waits: a callback for each iteration would cost 20 us per step. A step
    may therefore wait although its iteration has just begun.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began: float | None = None  # when the first step of this iteration began
        self._last: asyncio.Task[object] | None = None  # the task that made the last step
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._returned = 0  # workers at the head of `_waiting` whom this iteration woke and had no time for
        self._is_scheduled = False  # whether `_wake` will be called

    def __repr__(self) -> str:
        return f"<TimeSlice waiting={len(self._waiting)}>"

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """Asked for once: before Python 3.12, asking is a system call."""
        return asyncio.get_running_loop()

    async def wait(self) -> None:
        """Wait until a step may begin: at once, or in a later iteration of the event loop."""
        me = asyncio.current_task(self._loop)
        if me is not self._last and (self._waiting or not self._has_time()):
            await self._wait_behind(len(self._waiting))
            while not self._has_time():  # those who were woken before this worker have used up the iteration
                self._returned += 1
                await self._wait_behind(self._returned - 1)
        self._last = me

    async def _wait_behind(self, others: int) -> None:
        """Wait to be woken, after so many of those who wait."""
        waiter = self._loop.create_future()
        self._waiting.insert(others, waiter)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._wake)
        await waiter

    def _has_time(self) -> bool:
        now = self._clock.monotonic()
        if self._began is None:
            self._began = now
        return now - self._began < SPAN_S

    def _wake(self) -> None:
        """Let workers continue in the next iteration: between its beginning and the next call of this method."""
        self._loop.call_soon(self._begin)
        woken = min(WOKEN, len(self._waiting))
        for _ in range(woken):
            waiter = self._waiting.popleft()
            if not waiter.done():  # its worker was cancelled
                waiter.set_result(None)
        self._is_scheduled = woken > 0
        if self._is_scheduled:
            self._loop.call_soon(self._wake)

    def _begin(self) -> None:
        self._began, self._returned = None, 0
