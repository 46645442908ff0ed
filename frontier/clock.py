"""Time as an argument.

Two clocks exist. `Clock` is this machine's monotonic time and its sleep: it orders what happens here. `ServerClock` is
the Redis server's wall time, carried forward between refreshes by the monotonic clock: it is the one time that all
replicas share, so a replica's own wall clock may be wrong by hours. Redis and Lua count whole milliseconds; Python
counts float seconds; the conversion happens here and at the script calls, nowhere else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol


class Clock(Protocol):
    """Monotonic time and waiting. The seam that tests replace by a manual clock."""

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes backwards."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` have passed on this clock."""


class SystemClock:
    """The true clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ServerClock:
    """The Redis server's time in whole milliseconds since 1970, without asking for it at each use.

    `read_server_ms` asks the server once. The offset is taken at the middle of the round trip, so its error is at most
    half of that; a reading slower than `TRUSTED_ROUND_TRIP_S` replaces an older one only if there is none.
    """

    TRUSTED_ROUND_TRIP_S = 0.5

    def __init__(self, clock: Clock, read_server_ms: Callable[[], Awaitable[float]]) -> None:
        self._clock = clock
        self._read_server_ms = read_server_ms
        self._offset_ms: float | None = None

    async def refresh(self) -> None:
        """Read the server's clock once. Raises whatever `read_server_ms` raises; the old offset then stays."""
        before = self._clock.monotonic()
        server_ms = await self._read_server_ms()
        after = self._clock.monotonic()
        if self._offset_ms is None or after - before <= self.TRUSTED_ROUND_TRIP_S:
            self._offset_ms = server_ms - (before + after) / 2 * 1000

    def now_ms(self) -> int:
        """The server's time now. Call `refresh` once before the first use."""
        if self._offset_ms is None:
            raise RuntimeError("ServerClock.refresh() has not succeeded yet")
        return int(self._clock.monotonic() * 1000 + self._offset_ms)
