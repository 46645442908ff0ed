"""Retries for calls to Redis: pause while Redis is unavailable, report this once, and continue when it is back.

All calls of a replica that must eventually succeed go through one `RedisRetry`. The replica therefore has a single
outage state and reports each change of it once. A refused call (for example after the password was changed) is retried
like an outage, because an operator can fix both.
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
"""The first delay between attempts, and the longest. A restarted server is noticed within a tenth of a second; during a
long outage each call is attempted about twelve times a minute."""


class RedisRetry:
    """Retries calls until Redis answers them. `is_away` is the state after the last call."""

    def __init__(
        self, clock: Clock, events: Events, rng: random.Random, verify: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """`verify` is awaited before the first call after an outage. Its exceptions propagate to the caller, except
        RedisAway and RedisMisused, which are retried."""
        self._clock = clock
        self._events = events
        self._rng = rng
        self._away_since: float | None = None
        self._verify = verify

    @property
    def is_away(self) -> bool:
        return self._away_since is not None

    async def call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat `call` until it succeeds, and return its result. `call` must be safe to repeat. Raises what `verify` and
        `call` raise, except RedisAway and RedisMisused."""
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
        """Record that a call failed. Emits RedisLost if it is the first one."""
        if self._away_since is None:
            self._away_since = self._clock.monotonic()
            self._events.emit(RedisLost(str(error)))

    def found(self) -> None:
        """Record that a call succeeded. Emits RedisFound if it ends an outage."""
        if self._away_since is not None:
            away_s = self._clock.monotonic() - self._away_since
            self._away_since = None
            self._events.emit(RedisFound(away_s))
