"""Time as an argument.

There are two clocks. `Clock` provides the monotonic time of this machine, and sleeping. `ServerClock` provides the wall
time of the Redis server, which the monotonic clock advances between refreshes. It is the only time that all replicas
share, so a replica's own wall clock may be wrong by hours. Redis and Lua use whole milliseconds, Python uses float
seconds. They are converted only here and at the script calls.

Crawl time: the clock that all replicas of a crawl share. It does not step when the server's clock does.

A server's clock may step: it is set by hand, a virtual machine resumes, or a failover brings another server. If leases and
delays followed such a step, they would end too early or an hour too late. So crawl time is the server's time plus a
correction, which is stored beside the roster. A replica compares each reading with its own monotonic clock. If they differ
by more than errors of measurement and drift explain, the server's clock has stepped, and the replica changes the
correction. The change names the version that it replaces (`lua/correct_time.lua`), so a step is corrected once. A
corrected clock is never ahead of what it was, and is behind it by at most the errors of the two readings. Their sum is
stored, too, so that other replicas do not take the difference for a step.

**A replica that cannot know the time asks.** A new replica has nothing to compare with, and one that was frozen for a
while has a clock that stood still. One that disagrees with another's correction cannot know whose clock is wrong. Such
a replica opens no epoch and takes no lease. It takes a number (`asked`) after reading the server's clock. A replica
that knows the time and reads it after that, with the same correction, and finds it right, stores the number as
`answered`. If nobody does for `PATIENCE` intervals, or the open epoch has no other member, no other replica runs: then
the replica trusts what it knows. Crawl time still never goes back behind the last claim.

One case remains: the server's clock steps forward while no replica that knows the time can reach the server for
`PATIENCE` intervals, and a new one starts meanwhile. The crawl then follows the step.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, Protocol

from frontier.errors import RedisAway
from frontier.scripts import CORRECT_TIME, command, script_call
from frontier.store import Store, count_in

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
        self.reading = reading

    def improve(self, reading: Reading) -> None:
        """Use `reading` unless the one in use is more certain."""
        if self.reading is None or reading.is_as_certain_as(self.reading):
            self.reading = reading

    async def refresh(self) -> None:
        """Read the server's clock once. Raises what `read_server_ms` raises; the old reading is then kept."""
        self.improve(await self.read())

    def was_put_back(self, ms: int, for_s: float) -> None:
        """Record that this clock was put back by `ms`, and that others may be ahead by so much for `for_s` seconds."""
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

    def time_s(self) -> float:
        """Seconds since 1970 by the server's clock, or by this machine's before the first reading."""
        return time.time() if self.reading is None else self.now_ms() / 1000

    def now_ms(self) -> int:
        """The server's current time, or slightly earlier. Raises RuntimeError before the first reading."""
        if self.reading is None:
            raise RuntimeError("the server's clock has not been read yet")
        return int(self._clock.monotonic() * 1000 + self.reading.offset_ms)


PATIENCE = 1.5
"""Intervals that a question waits. Each replica claims, and answers, once in an interval."""

ADOPTED_WITHIN = 3
"""Intervals after which all replicas that can reach the server use a correction: each reads it once in an interval, and a
call may have to be repeated."""

_FIELDS = ("version", "correction_ms", "errors_ms", "asked", "answered")


class _Stored(NamedTuple):
    """What Redis knows. `errors_ms`: by how much corrections may have put crawl time back; `claimed_ms`: the last
    claim."""

    version: int
    correction_ms: int
    errors_ms: int
    asked: int
    answered: int
    open_epoch: int
    claimed_ms: int


class _Question(NamedTuple):
    """A reading that somebody who knows the time should confirm."""

    number: int
    version: int
    reading: Reading

    def is_moot(self, known: _Stored, reading: Reading) -> bool:
        """Whether the correction has changed since, or the server's clock has stepped, by the later `reading`."""
        return self.version != known.version or self.reading.step_to(reading) != 0


class CrawlTime:
    """One replica's part in the clock of the peer loop `key`. `server_clock` shows crawl time after the first `check`."""

    def __init__(self, store: Store, key: str, clock: Clock, replica: str, interval_s: float) -> None:
        self.server_clock = ServerClock(clock, store.time_ms)
        self.is_known = False
        self.corrections = 0  # made by this replica
        self._store = store
        self._key = key
        self._clock = clock
        self._replica = replica
        self._interval_s = interval_s
        self._was_known = False
        self._question: _Question | None = None
        self._version = 0  # of the correction that this replica uses
        self._errors_ms = 0  # that its clock includes

    async def check(self, claimed_epoch: int) -> bool:
        """Read the server's clock, correct it if it has stepped, and return whether crawl time is known. `claimed_epoch`:
        in which this replica claimed last, 0 for none. Raises RedisAway."""
        try:
            known = await self._look()
            reading = (await self.server_clock.read()).shifted(known.correction_ms)
        except RedisAway:
            self._question = None  # those who know the time could perhaps not answer meanwhile
            raise
        if self.is_known and self._is_doubtful(known, claimed_epoch) and self._step_to(known, reading):
            self.is_known = False
        wanted_ms = 0.0
        if not self.is_known and not self._is_answered(known):
            if not await self._is_alone(known, reading):
                await self._ask(known, reading)
                return False
            wanted_ms = self._behind_ms(known, reading)
        self.is_known = await self._keep(known, reading, wanted_ms) or self.is_known
        self._was_known |= self.is_known
        self._question = None
        return self.is_known

    async def _look(self) -> _Stored:
        clock = command("HMGET", clock_key(self._key), *_FIELDS)
        calls = [clock, command("GET", self._key), command("HGET", f"{self._key}:running", "last_ms")]
        numbers, epoch, claimed_ms = await self._store.send(calls)
        return _Stored(*map(count_in, (*numbers, epoch, claimed_ms)))

    def _is_doubtful(self, known: _Stored, claimed_epoch: int) -> bool:
        """Whether this replica's clock may be the one that is wrong, if it differs from crawl time: others went on without
        this replica, so its clock may have stood still; or another replica has changed the correction, and two that are
        both sure would change it forever."""
        return known.open_epoch > claimed_epoch + 1 or known.version != self._version

    def _behind_ms(self, known: _Stored, reading: Reading) -> float:
        """By how many milliseconds this replica's clock is behind the last claim: 0 if errors of measurement explain it."""
        last = self._best(known, reading)
        behind_ms = known.claimed_ms - (self._clock.monotonic() * 1000 + last.offset_ms)
        return behind_ms if behind_ms > last.round_trip_ms + last.drifted_ms(reading.at) else 0.0

    def _best(self, known: _Stored, reading: Reading) -> Reading:
        """The more certain one of `reading` and that in use, or the latter if the server's clock has stepped since."""
        last = self.server_clock.reading or reading
        return reading if reading.is_as_certain_as(last) and not self._step_to(known, reading) else last

    def _step_to(self, known: _Stored, reading: Reading) -> float:
        """By how many milliseconds the server's clock has stepped, apart from errors of corrections (`Reading.step_to`)."""
        last = self.server_clock.reading or reading
        return last.step_to(reading, known.errors_ms - self._errors_ms)

    async def _keep(self, known: _Stored, reading: Reading, wanted_ms: float) -> bool:
        """Keep crawl time, `wanted_ms` later, though the clock says `reading`. False if another replica has corrected
        it."""
        last = self._best(known, reading)
        correction_ms, error_ms = known.correction_ms, 0
        if wanted_ms:
            correction_ms += math.ceil(last.offset_ms + wanted_ms - reading.offset_ms)
        elif self._step_to(known, reading):
            latest_ms = last.offset_ms - last.drifted_ms(reading.at)
            correction_ms += math.floor(latest_ms - reading.offset_ms - reading.round_trip_ms)
            error_ms = math.ceil(last.round_trip_ms + reading.round_trip_ms + 2 * last.drifted_ms(reading.at)) + 1
        if correction_ms != known.correction_ms or known.asked > known.answered:
            arguments = (known.version, correction_ms, error_ms, known.asked)
            ((word,),) = await self._store.send([script_call(CORRECT_TIME, [clock_key(self._key)], *arguments)])
            if word == b"outdated":
                return False
        if correction_ms != known.correction_ms or known.errors_ms != self._errors_ms:
            self.server_clock.use(reading.shifted(correction_ms - known.correction_ms))
        else:
            self.server_clock.improve(reading)
        self._version = known.version + (correction_ms != known.correction_ms)
        self.corrections += correction_ms != known.correction_ms
        self._include_errors(known.errors_ms + error_ms)
        return True

    def _include_errors(self, errors_ms: int) -> None:
        """Record that this clock includes all corrections up to the one that made `errors_ms` of their errors. The replicas
        that do not know the latest one yet are ahead of it by its error."""
        if errors_ms > self._errors_ms:
            self.server_clock.was_put_back(errors_ms - self._errors_ms, ADOPTED_WITHIN * self._interval_s)
        self._errors_ms = errors_ms

    # of a replica that does not know the time

    def _is_answered(self, known: _Stored) -> bool:
        asked = self._question
        if asked is None or asked.version != known.version or known.answered < asked.number:
            return False
        self.server_clock.use(asked.reading)
        self._include_errors(known.errors_ms)
        return True

    async def _is_alone(self, known: _Stored, reading: Reading) -> bool:
        asked = self._question
        if (
            asked is None
            or asked.is_moot(known, reading)
            or reading.at <= asked.reading.at + PATIENCE * self._interval_s
        ):
            claims = f"{self._key}:claims"
            calls = [command("HLEN", claims), command("HEXISTS", claims, self._replica), command("GET", self._key)]
            claimed, has_claimed, open_epoch = await self._store.send(calls)
            # An epoch that was opened meanwhile may have few claims yet.
            if count_in(open_epoch) != known.open_epoch or claimed > has_claimed:
                return False
        if not self._was_known:
            self.server_clock.use(reading)
        return True

    async def _ask(self, known: _Stored, reading: Reading) -> None:
        """Ask whether `reading` is right, unless an earlier one that it agrees with is still in question."""
        asked = self._question
        if asked is not None and not asked.is_moot(known, reading):
            return
        if not self._was_known:
            self.server_clock.use(reading)
        (number,) = await self._store.send([command("HINCRBY", clock_key(self._key), "asked", 1)])
        self._question = _Question(int(number), known.version, reading)


def clock_key(key: str) -> str:
    return f"{key}:clock"


def crawl_ms(store: Store, key: str) -> Callable[[], Awaitable[float]]:
    """A function that reads the crawl time of the peer loop `key` in milliseconds. It raises RedisAway."""

    async def read() -> float:
        (correction_ms,) = await store.send([command("HGET", clock_key(key), "correction_ms")])
        return count_in(correction_ms) + await store.time_ms()

    return read
