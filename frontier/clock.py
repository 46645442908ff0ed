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
from functools import partial
from typing import NamedTuple, Protocol

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

    monotonic = staticmethod(partial(time.clock_gettime, _BOOT_TIME))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


DRIFT = 1e-3
"""Assumed drift between two clocks, in seconds per second: ten times that of a bad quartz crystal."""


LONGEST_READING_S = 20.0
"""A reading that took longer is repeated. Calls have shorter time limits, so the process was suspended meanwhile, and the
reading says little."""


class Reading(NamedTuple):
    """One reading of a server's clock: at `at` (monotonic seconds) it was ahead of the monotonic clock by at least
    `offset_ms`, and by at most `round_trip_ms` more, because the server reads its clock at an unknown time within the round
    trip (F. Cristian 1989, "Probabilistic clock synchronization")."""

    offset_ms: float
    round_trip_ms: float
    at: float

    def shifted(self, ms: float) -> Reading:
        """The reading of a clock that is `ms` ahead of this one."""
        return self._replace(offset_ms=self.offset_ms + ms)

    def drifted_ms(self, at: float) -> float:
        """By how many milliseconds the clocks may have drifted apart from this reading until `at`."""
        return (at - self.at) * 1000 * DRIFT

    def is_as_certain_as(self, earlier: Reading) -> bool:
        """Whether this reading is at least as certain as an `earlier` one, whose uncertainty has grown since."""
        return self.round_trip_ms <= earlier.round_trip_ms + earlier.drifted_ms(self.at)

    def step_to(self, later: Reading, put_back_ms: float = 0) -> float:
        """By how many milliseconds the server's clock stepped between this reading and `later`, at least: negative if it
        stepped back, 0 if errors of measurement and drift explain the difference, or that it was put back by up to
        `put_back_ms`."""
        drifted_ms = self.drifted_ms(later.at) + 1  # scripts count whole milliseconds
        ahead_ms = later.offset_ms - (self.offset_ms + self.round_trip_ms) - drifted_ms
        behind_ms = self.offset_ms - (later.offset_ms + later.round_trip_ms) - drifted_ms - put_back_ms
        return ahead_ms if ahead_ms > 0 else -behind_ms if behind_ms > 0 else 0.0


class ServerClock:
    """The Redis server's time in whole milliseconds since 1970, without a call to the server for each use.

    `read_server_ms` reads the server's clock once. `now_ms` is never ahead of the server, and is behind it by at most
    `uncertainty_ms`, the duration of the round trip. Times that must not be too early, such as the end of a delay, add
    `uncertainty_ms`.

    The uncertainty of a reading grows with its age. A new reading replaces an older one that is less certain.
    """

    def __init__(self, clock: Clock, read_server_ms: Callable[[], Awaitable[float]]) -> None:
        self._clock = clock
        self._read_server_ms = read_server_ms
        self.reading: Reading | None = None
        """The one in use; None before the first."""
        self._others_ahead_ms = 0
        self._others_ahead_until = float("-inf")

    async def read(self) -> Reading:
        """Read the server's clock once, without using the result. Raises what `read_server_ms` raises."""
        while True:
            before = self._clock.monotonic()
            server_ms = await self._read_server_ms()
            after = self._clock.monotonic()
            if after - before <= LONGEST_READING_S:
                return Reading(server_ms - after * 1000, (after - before) * 1000, after)

    def use(self, reading: Reading) -> None:
        """Use `reading` from now on, whatever was read before."""
        self.reading = reading

    def improve(self, reading: Reading) -> None:
        """Use `reading` unless the one in use is more certain."""
        if self.reading is None or reading.is_as_certain_as(self.reading):
            self.reading = reading

    async def refresh(self) -> None:
        """Read the server's clock once. Raises what `read_server_ms` raises; the old reading is then kept."""
        self.improve(await self.read())

    def was_put_back(self, ms: int, for_s: float) -> None:
        """Record that this clock was put back by `ms`, and that those of others may be ahead by so much for `for_s`
        seconds, until they are put back, too."""
        now = self._clock.monotonic()
        self._others_ahead_ms = ms + (self._others_ahead_ms if now < self._others_ahead_until else 0)
        self._others_ahead_until = now + for_s

    @property
    def uncertainty_ms(self) -> int:
        """Maximum number of milliseconds by which the server, or the clock of another replica, may be ahead of `now_ms`."""
        if self.reading is None:
            return 0
        ahead_ms = self._others_ahead_ms
        if ahead_ms and self._clock.monotonic() >= self._others_ahead_until:
            ahead_ms = self._others_ahead_ms = 0
        return math.ceil(self.reading.round_trip_ms) + ahead_ms

    def now_ms(self) -> int:
        """The server's current time, or slightly earlier. Raises RuntimeError before the first reading."""
        if self.reading is None:
            raise RuntimeError("the server's clock has not been read yet")
        return int(self._clock.monotonic() * 1000 + self.reading.offset_ms)
