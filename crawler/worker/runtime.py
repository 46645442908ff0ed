"""Objects that all parts of a replica share."""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from typing import Protocol

import msgspec

from crawler.events import Events
from crawler.hooks import Visit
from crawler.redis_retry import RedisRetry
from frontier.clock import Clock, ServerClock
from politeness.policy import CurrentPolicy

SLICE_S = 0.005
"""Seconds of work after which the event loop has to go on."""

WOKEN = 3
"""How many of those that wait for a time slice go on in one iteration of the event loop."""


class Runtime(msgspec.Struct, frozen=True):
    """A replica's name, clocks, Redis retries, events, random numbers, and current politeness policy."""

    replica: str
    clock: Clock
    server_clock: ServerClock
    retry: RedisRetry
    events: Events
    rng: random.Random
    policy: CurrentPolicy

    def now(self) -> float:
        """Return the time in monotonic seconds."""
        return self.clock.monotonic()

    def server_ms(self, at: float) -> int:
        """Convert `at` (monotonic seconds) to server time in milliseconds, rounded up."""
        return self.server_clock.now_ms() + math.ceil((at - self.now()) * 1000)

    def monotonic(self, server_ms: int) -> float:
        """Convert `server_ms` (server time in milliseconds) to monotonic seconds."""
        return self.now() + (server_ms - self.server_clock.now_ms()) / 1000


class VisitInterrupted(Exception):
    """Raised if an extra request failed for a reason that is ours, so that the page has to be fetched again."""


class OpenVisit(Visit, Protocol):
    """A visit that ends when the page is handled, or rendered. `may_pass`: a request failed for a reason that may pass."""

    may_pass: bool

    def end(self) -> None: ...

    def check_interrupted(self) -> None:
        """Raise VisitInterrupted if the page has to be fetched again."""


class TimeSlice:
    """Lets the event loop go on between steps of work: those of one task, or those of many tasks that share the slice.

    Fifty responses may end at the same time, and each causes a millisecond or two of work. Done in one iteration of the
    event loop, this would block it for a tenth of a second. So after `SLICE_S`, steps wait for a later iteration, in
    the order in which they came.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        return f"<TimeSlice waiting={len(self._waiting)}>"

    async def end_if_over(self) -> None:
        """Wait for another iteration of the event loop if the slice is over. Call this between two steps."""
        if not self._waiting and self._clock.monotonic() < self._began + SLICE_S:
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._go_on, loop)
        self._waiting.append(waiter)
        await waiter

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._began = self._clock.monotonic()
        for _ in range(min(WOKEN, len(self._waiting))):
            waiter = self._waiting.popleft()
            if not waiter.done():  # its task was cancelled
                waiter.set_result(None)
        if self._waiting:
            loop.call_soon(self._go_on, loop)
