"""How many requests to a domain may be in flight at once, and how simultaneous failures are counted."""

from __future__ import annotations

import random
from email.utils import formatdate
from typing import Any, cast

import pytest

from crawler.events import Events
from crawler.page import Exchange, Outcome
from crawler.redis_retry import RedisRetry
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.outcomes import UrlResult
from crawler.worker.runtime import Runtime
from crawler.worker.throttle import Throttle
from frontier.control import Control, DomainRules
from frontier.keys import CrawlKeys
from frontier.settle import Lease
from frontier.store import Store
from politeness.backoff import BackoffPolicy
from politeness.delay import DelayPolicy, ThrottlePolicy
from politeness.policy import CurrentPolicy, PolitenessPolicy
from politeness.robots_cache import OriginRobots
from politeness.robots_fetch import RobotsPolicy, RobotsRecord
from politeness.robots_match import Rules

FINE = UrlResult(Outcome.DONE, "")
BUSY = UrlResult(Outcome.RETRY, "http_429", backs_off=True)


class Stopped:
    """A clock that the test sets, in seconds. It is also the server's clock."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000)


def runtime(clock: Any, server_clock: Any = None, throttle: ThrottlePolicy | None = None) -> Runtime:
    """Return a runtime with the given clocks. `server_clock`: `clock` by default."""
    policy = PolitenessPolicy(throttle or ThrottlePolicy(DelayPolicy(), BackoffPolicy()), RobotsPolicy(), tries=3)
    events, rng = Events(), random.Random(1)
    retry = RedisRetry(clock, events, rng)
    return Runtime("me", clock, server_clock or clock, retry, events, rng, CurrentPolicy(policy))


def throttle_for(
    clock: Stopped, delay_s: float = 0.0, parallel: int = 4, told: dict[str, float] | None = None
) -> Throttle:
    policy = ThrottlePolicy(DelayPolicy(delay_s, response_share=0.0), BackoffPolicy(jitter=0.0), parallel)
    control = Control(cast(Store, None), CrawlKeys("t", 1))
    control.rules = DomainRules(delays=told or {})
    return Throttle(runtime(clock, throttle=policy), control)


def leased_domain(state: str = "") -> LeasedDomain:
    return LeasedDomain(Lease("a.test", 0, 1, 0, 0, state, ()), lease_end=2e6, now=1e6)


def robots(body: bytes = b"", fetched_at_ms: int = 0) -> OriginRobots:
    return OriginRobots(RobotsRecord("rules", "", 200, fetched_at_ms, 0, body), Rules.parse(body, "peercrawl"))


def answer(retry_after: bytes) -> Exchange:
    return Exchange("https://a.test/", 429, "", ((b"Retry-After", retry_after),), b"", b"", b"", "", 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("concurrency", "delay_s", "parallel", "told", "body", "state"),
    [
        (4, 0.0, 4, {}, b"", ""),
        (1, 0.0, 1, {}, b"", ""),
        (1, 0.5, 4, {}, b"", ""),
        (4, 0.5, 4, {"a.test": 0.0}, b"", ""),
        (1, 0.0, 4, {"a.test": 2.0}, b"", ""),
        (4, 0.0, 4, {"b.test": 2.0}, b"", ""),
        (1, 0.0, 4, {}, b"User-agent: *\nCrawl-delay: 1\n", ""),
        (4, 0.0, 4, {}, b"User-agent: other\nCrawl-delay: 1\n", ""),
        (1, 0.0, 4, {}, b"User-agent: *\nRequest-rate: 1/5\n", ""),
        (1, 0.0, 4, {}, b"", "1 999000000 999500000 http_503"),  # it has recovered, but only recently
    ],
)
def test_concurrency_is_for_domains_without_a_delay(
    concurrency: int, delay_s: float, parallel: int, told: dict[str, float], body: bytes, state: str
) -> None:
    assert (
        throttle_for(Stopped(), delay_s, parallel, told).concurrency(leased_domain(state), robots(body)) == concurrency
    )


def test_the_request_for_a_robots_txt_starts_the_delay_that_the_file_asks_for() -> None:
    """The lease may be released at once, and the next holder waits for the stored time."""
    clock, leased = Stopped(), leased_domain()
    judge = throttle_for(clock, delay_s=1.0)
    judge.start_delay(leased, 0.1, None)
    clock.now += 0.5  # the file is read and stored
    judge.prolong_delay(leased, robots(b"User-agent: *\nCrawl-delay: 4\n"))
    assert (leased.next_at, leased.delay_ms) == (1_000_004.0, 4_000)
    judge.prolong_delay(leased, robots())
    assert (leased.next_at, leased.delay_ms) == (1_000_004.0, 4_000)


def test_the_delay_after_a_robots_txt_that_another_replica_fetched_is_the_one_that_it_asks_for() -> None:
    """Given a replica that died after it fetched robots.txt, when the next holder of the lease has made no request yet,
    then it waits for the rest of the Crawl-delay."""
    clock, leased = Stopped(), leased_domain()
    judge = throttle_for(clock, delay_s=1.0)
    known = robots(b"User-agent: *\nCrawl-delay: 4\n", clock.now_ms())
    clock.now += 2.5
    assert judge.put_off_if_early(leased, known)
    assert leased.next_at == pytest.approx(1_000_004.0)
    clock.now += 1.5
    assert not judge.put_off_if_early(leased, known)


def test_requests_that_fail_together_are_one_failure() -> None:
    """Given four requests in flight, when they are answered 429, then the domain backs off as after one failure, for the
    longest time that a response asked for. A successful response among them does not shorten it."""
    clock, leased = Stopped(), leased_domain()
    judge = throttle_for(clock)
    for header in (b"5", b"20", b"10"):
        judge.update_backoff(leased, BUSY, answer(header))
        clock.now += 0.1
    judge.update_backoff(leased, FINE, None)
    judge.update_backoff(leased, FINE, None)
    assert leased.closing
    assert leased.backoff.failures == 1
    assert leased.next_at == pytest.approx(1_000_020.1)
    assert leased.backoff.until_ms == pytest.approx(1_000_020_100, abs=1)


def test_a_failure_after_the_rest_is_a_further_one() -> None:
    clock, first = Stopped(), leased_domain()
    judge = throttle_for(clock)
    judge.update_backoff(first, BUSY, answer(b"5"))
    clock.now += 6
    second = leased_domain(str(first.backoff))
    judge.update_backoff(second, BUSY, None)
    assert second.backoff.failures == 2


def test_a_date_of_retry_after_is_never_a_fraction_of_a_millisecond_early() -> None:
    clock, again_s = Stopped(), 1_000_129
    for milliseconds in range(1_000):
        clock.now = 1_000_000 + milliseconds / 1000
        asked = leased_domain()
        throttle_for(clock).update_backoff(asked, BUSY, answer(formatdate(again_s, usegmt=True).encode()))
        assert 0 <= asked.backoff.until_ms - 1000 * again_s <= 1
