"""Parts of a replica for tests: clocks, policies, and leased domains."""

from __future__ import annotations

import random
from typing import Any, cast

from crawler.events import Events
from crawler.page import Exchange
from crawler.redis_retry import RedisRetry
from crawler.worker.leases import LeasedDomain
from crawler.worker.request import Throttle
from crawler.worker.runtime import Runtime
from frontier.clock import ServerClock
from frontier.control import Control, DomainRules
from frontier.entries import Entry
from frontier.keys import CrawlKeys
from frontier.settle import Lease
from frontier.store import Store
from politeness.backoff import BackoffPolicy
from politeness.delay import DelayPolicy, ThrottlePolicy
from politeness.policy import CurrentPolicy, PolitenessPolicy
from politeness.robots_cache import OriginRobots
from politeness.robots_fetch import RobotsPolicy, RobotsRecord
from politeness.robots_match import Rules
from tests.frontier.helpers import ManualTime

NOBODY: Any = None


class Stopped:
    """A clock that the test sets, in seconds. It is also the server's clock."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000)


def runtime(
    clock: Any, server_clock: Any = None, throttle: ThrottlePolicy | None = None, retry: RedisRetry | None = None
) -> Runtime:
    """Return a runtime with the given clocks. `server_clock`: `clock` by default."""
    policy = PolitenessPolicy(throttle or ThrottlePolicy(DelayPolicy(), BackoffPolicy()), RobotsPolicy(), tries=3)
    events, rng = Events(), random.Random(1)
    retry = retry or RedisRetry(clock, events, rng)
    return Runtime("me", clock, server_clock or clock, retry, events, rng, CurrentPolicy(policy))


async def server_clock_of(time: ManualTime) -> ServerClock:
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()
    return clock


async def on_a_clock(time: ManualTime) -> Runtime:
    return runtime(time, await server_clock_of(time))


def control(rules: DomainRules | None = None) -> Control:
    """Return a control with these rules of an operator."""
    control = Control(cast(Store, None), CrawlKeys("t", 1))
    control.rules = rules or DomainRules()
    return control


def throttle_for(clock: Stopped, delay_s: float = 0.0, parallel: int = 4, rules: DomainRules | None = None) -> Throttle:
    policy = ThrottlePolicy(DelayPolicy(delay_s, response_share=0.0), BackoffPolicy(jitter=0.0), parallel)
    return Throttle(runtime(clock, throttle=policy), control(rules))


def leased_domain(*names: str, state: str = "", now: float = 1e6, lease_end: float = 2e6) -> LeasedDomain:
    """Return the domain a.test, leased with the URLs with these names."""
    entries = tuple(Entry(f"https://a.test/{name}", "a.test") for name in names)
    return LeasedDomain(Lease("a.test", 0, 1, 0, 1_000, state, entries), lease_end, now)


def robots(body: bytes = b"", fetched_at_ms: int = 0) -> OriginRobots:
    return OriginRobots(RobotsRecord("rules", "", 200, fetched_at_ms, 0, body), Rules.parse(body, "peercrawl"))


def answer(status: int = 200, body: bytes = b"", *headers: tuple[bytes, bytes]) -> Exchange:
    return Exchange("https://a.test/", status, "", headers, b"", b"", body, "", 0.0, 0.1, 0.1)


def too_many_requests(retry_after: bytes) -> Exchange:
    return answer(429, b"", (b"Retry-After", retry_after))
