"""The workers' pace: how much of their work is done in one turn of the event loop.

Fifty responses may come to an end in one moment, and each of them is a millisecond or two of work: a page to read, a
request to send. Done in one turn of the loop that is a tenth of a second, in which nothing else happens. So a worker asks
before each such step, and when the turn has lasted long enough it waits for the next one, behind those who asked before.
"""

from __future__ import annotations

import asyncio
from collections import deque

from frontier.clock import Clock

SPAN_S = 0.005
"""From a first step to the last that may begin before the loop has had its turn."""

WOKEN = 3
"""How many of those who wait go on in a turn."""


class TimeSlice:
    """Lets steps begin for `SPAN_S`, and then not before the next turn of the event loop. Who made the last step may make
    another: it asks for the next page when it has seen to one.

    It learns of a new turn only when somebody waits for one: to be told of each would cost as many more turns, and 20 us
    for each step. So a step may wait though its turn has just begun.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began: float | None = None  # when the first step did
        self._last: asyncio.Task[object] | None = None  # whose step was the last
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False  # whether it will be told of the next turn

    def __repr__(self) -> str:
        return f"<Pace waiting={len(self._waiting)}>"

    async def wait(self) -> asyncio.Task[object]:
        """Return when a step may begin: at once, or in a later turn of the loop. Returns the current task."""
        me = asyncio.current_task()
        assert me is not None
        if me is not self._last and (self._waiting or not self._has_time()):
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            if not self._is_scheduled:
                self._schedule_turn()
            await waiter
            self._has_time()  # may be the first step of its turn
        self._last = me
        return me

    def _has_time(self) -> bool:
        now = self._clock.monotonic()
        if self._began is None:
            self._began = now
        return now - self._began < SPAN_S

    def _schedule_turn(self) -> None:
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self._on_next_turn)

    def _on_next_turn(self) -> None:
        self._began, self._is_scheduled = None, False
        if self._waiting:
            self._schedule_turn()  # before those who go on now, so that their time counts in the turn in which they do
        for _ in range(min(WOKEN, len(self._waiting))):
            waiter = self._waiting.popleft()
            if not waiter.done():  # its worker was cancelled
                waiter.set_result(None)
