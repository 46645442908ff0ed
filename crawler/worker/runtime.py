"""What all parts of a replica share."""

from __future__ import annotations

import math
import random

import msgspec

from crawler.events import Events
from crawler.redis_retry import RedisRetry
from frontier.clock import Clock, ServerClock
from politeness.policy import CurrentPolicy


class Runtime(msgspec.Struct, frozen=True):
    """A replica's name, its clocks, its way to Redis, its events, its random numbers, and the policy that it goes by."""

    replica: str
    clock: Clock
    server_clock: ServerClock
    retry: RedisRetry
    events: Events
    rng: random.Random
    policy: CurrentPolicy

    def now(self) -> float:
        """Monotonic seconds."""
        return self.clock.monotonic()

    def server_ms(self, at: float) -> int:
        """The moment `at` (monotonic seconds) in server time, rounded up to milliseconds."""
        return self.server_clock.now_ms() + math.ceil((at - self.now()) * 1000)

    def monotonic(self, server_ms: int) -> float:
        """The moment `server_ms` (server time) in monotonic seconds."""
        return self.now() + (server_ms - self.server_clock.now_ms()) / 1000
