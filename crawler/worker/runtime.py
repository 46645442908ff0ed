"""Objects that all parts of a replica share."""

from __future__ import annotations

import math
import random

import msgspec

from crawler.events import Events
from crawler.redis_retry import RedisRetry
from frontier.clock import Clock, ServerClock
from politeness.policy import CurrentPolicy


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
