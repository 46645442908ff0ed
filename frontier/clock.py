"""Time as an argument.

Two clocks exist. `Clock` is this machine's monotonic time and its sleep: it orders what happens here. `ServerClock` is
the Redis server's wall time, carried forward between refreshes by the monotonic clock: it is the one time that all
replicas share, so a replica's own wall clock may be wrong by hours. Redis and Lua count whole milliseconds; Python
counts float seconds; the conversion happens here and at the script calls, nowhere else.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

_BOOT_TIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux 2.6.39; elsewhere CLOCK_MONOTONIC


class Clock(Protocol):
    """Monotonic time and waiting. The seam that tests replace by a manual clock."""

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes backwards."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` have passed on this clock."""


class SystemClock:
    """The true clock. Where the system can tell, it counts the time that the machine was suspended: a laptop that wakes
    up must not believe that its leases still hold."""

    def monotonic(self) -> float:
        return time.clock_gettime(_BOOT_TIME)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ServerClock:
    """The Redis server's time in whole milliseconds since 1970, without asking for it at each use.

    `read_server_ms` asks the server once. The server read its clock at some moment of the round trip, and nobody knows
    at which. So a reading gives two bounds (F. Cristian 1989, "Probabilistic clock synchronization"): `now_ms` is never
    ahead of the server and may be behind it by up to `uncertainty_ms`, the length of the round trip. What must not come
    too early, such as the end of a rest, adds that.

    A reading replaces an older one that is less sure than it by now, counting `DRIFT` for its age.
    """

    DRIFT = 1e-3
    """Seconds that two clocks may part in a second. Ten times what a bad crystal does."""

    def __init__(self, clock: Clock, read_server_ms: Callable[[], Awaitable[float]]) -> None:
        self._clock = clock
        self._read_server_ms = read_server_ms
        self._offset_ms: float | None = None
        self._round_trip_ms = 0.0
        self._read_at = 0.0

    async def refresh(self) -> None:
        """Read the server's clock once. Raises whatever `read_server_ms` raises; the old offset then stays."""
        before = self._clock.monotonic()
        server_ms = await self._read_server_ms()
        after = self._clock.monotonic()
        round_trip_ms = (after - before) * 1000
        drifted_ms = (after - self._read_at) * 1000 * self.DRIFT
        if self._offset_ms is None or round_trip_ms <= self._round_trip_ms + drifted_ms:
            self._offset_ms = server_ms - after * 1000
            self._round_trip_ms, self._read_at = round_trip_ms, after

    @property
    def uncertainty_ms(self) -> int:
        """By how much the server may be ahead of `now_ms`."""
        return math.ceil(self._round_trip_ms)

    def now_ms(self) -> int:
        """The server's time now, or a little earlier. Call `refresh` once before the first use."""
        if self._offset_ms is None:
            raise RuntimeError("ServerClock.refresh() has not succeeded yet")
        return int(self._clock.monotonic() * 1000 + self._offset_ms)
