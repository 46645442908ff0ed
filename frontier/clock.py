"""Time as an argument.

There are two clocks. `Clock` provides the monotonic time of this machine, and sleeping. `ServerClock` provides the wall
time of the Redis server, which the monotonic clock advances between refreshes. It is the only time that all replicas
share, so a replica's own wall clock may be wrong by hours. Redis and Lua use whole milliseconds, Python uses float
seconds. They are converted only here and at the script calls.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

_BOOT_TIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux 2.6.39; elsewhere CLOCK_MONOTONIC


class Clock(Protocol):
    """Monotonic time and sleeping. Tests replace it by a manual clock."""

    def monotonic(self) -> float:
        """Seconds since a fixed but unspecified time. Never decreases."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` have passed on this clock."""


class SystemClock:
    """The clock of the operating system. Where supported, it includes the time for which the machine was suspended, so
    that a laptop that wakes up knows that its leases have expired."""

    def monotonic(self) -> float:
        return time.clock_gettime(_BOOT_TIME)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ServerClock:
    """The Redis server's time in whole milliseconds since 1970, without a call to the server for each use.

    `read_server_ms` reads the server's clock once. The server reads it at an unknown time within the round trip, so a
    reading gives two bounds (F. Cristian 1989, "Probabilistic clock synchronization"): `now_ms` is never ahead of the
    server, and is behind it by at most `uncertainty_ms`, the duration of the round trip. Times that must not be too
    early, such as the end of a delay, add `uncertainty_ms`.

    The uncertainty of a reading grows with its age by `DRIFT`. A new reading replaces an older one that is less certain.
    """

    DRIFT = 1e-3
    """Assumed drift between two clocks, in seconds per second: ten times that of a bad quartz crystal."""

    def __init__(self, clock: Clock, read_server_ms: Callable[[], Awaitable[float]]) -> None:
        self._clock = clock
        self._read_server_ms = read_server_ms
        self._offset_ms: float | None = None
        self._round_trip_ms = 0.0
        self._read_at = 0.0

    async def refresh(self) -> None:
        """Read the server's clock once. Raises what `read_server_ms` raises; the old offset is then kept."""
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
        """Maximum number of milliseconds by which the server may be ahead of `now_ms`."""
        return math.ceil(self._round_trip_ms)

    def now_ms(self) -> int:
        """The server's current time, or slightly earlier. Raises RuntimeError before the first successful `refresh`."""
        if self._offset_ms is None:
            raise RuntimeError("ServerClock.refresh() has not succeeded yet")
        return int(self._clock.monotonic() * 1000 + self._offset_ms)
