"""Redis away: pause, say so once, and go on when it is back.

All calls of a replica to Redis that must succeed in the end go through one `RedisRetry`, so that the replica has one
opinion on whether Redis is there, tells it once when it changes, and does not knock on a restarting server from many
sides. A refusal (a password that was changed under way) is waited out like an absence: an operator can mend both.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from crawler.events import Events, RedisFound, RedisLost
from frontier.clock import Clock
from frontier.errors import RedisAway, RedisMisused

T = TypeVar("T")

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0
"""A restarted server is found within a tenth of a second; an hour's absence costs twelve knocks a minute."""


class RedisRetry:
    """Retries calls until Redis serves them. `is_away` says what the last call found."""

    def __init__(
        self, clock: Clock, events: Events, rng: random.Random, verify: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """`verify` is awaited before the first call after an absence. What it raises besides RedisAway ends the call."""
        self._clock = clock
        self._events = events
        self._rng = rng
        self._away_since: float | None = None
        self.absences = 0  # how often Redis went away
        self._verify = verify

    @property
    def is_away(self) -> bool:
        return self._away_since is not None

    async def call(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of `call`, however often it has to be made. `call` must be harmless when made twice."""
        wait_s = FIRST_WAIT_S
        while True:
            try:
                if self.is_away and self._verify is not None:
                    await self._verify()
                result = await call()
            except (RedisAway, RedisMisused) as error:
                self.lost(error)
                await self._clock.sleep(wait_s * self._rng.uniform(0.5, 1.5))
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)
            else:
                self.found()
                return result

    def lost(self, error: Exception) -> None:
        """A call failed."""
        if self._away_since is None:
            self._away_since = self._clock.monotonic()
            self.absences += 1
            self._events.emit(RedisLost(str(error)))

    def found(self) -> None:
        """A call succeeded."""
        if self._away_since is not None:
            away_s = self._clock.monotonic() - self._away_since
            self._away_since = None
            self._events.emit(RedisFound(away_s))
