"""The domains behind one address share a rate: the arithmetic, and both rate limiters that do it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from crawler.events import Events
from crawler.fetch.client import HttpClient
from crawler.redis_retry import RedisRetry
from crawler.worker.leases import LeasedDomain
from crawler.worker.request import AddressLimiter, DividedRateLimiter, SharedTurns
from crawler.worker.runtime import Runtime
from frontier.clock import ServerClock
from frontier.errors import RedisAway
from frontier.keys import CrawlKeys, turn_keys
from frontier.scripts import Call, Reply, command
from frontier.settle import Lease
from frontier.shards import Nodes
from frontier.store import RedisStore, Store
from politeness.backoff import BackoffPolicy
from politeness.delay import DelayPolicy, ThrottlePolicy
from politeness.policy import PolitenessPolicy
from politeness.rate_limit import (
    ON_TIME_S,
    LocalRateLimiter,
    RateLimitPolicy,
    SharedRateLimiter,
    network_of,
    slots,
)
from politeness.robots_fetch import RobotsPolicy
from tests.frontier.helpers import CountingStore, ManualTime
from tests.worker.helpers import runtime

POLICY = RateLimitPolicy(rate_per_s=10, burst=3, horizon_s=1.0)


async def shared_limiter(
    store: Store, crawl: str, time: ManualTime, policy: RateLimitPolicy = POLICY, replicas: int = 1
) -> SharedRateLimiter:
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()
    return SharedRateLimiter(store, CrawlKeys(crawl, 1), Still(time), clock, policy, lambda: replicas)


class Still:
    """A clock on which gathering takes no time."""

    def __init__(self, time: ManualTime) -> None:
        self._time = time

    def monotonic(self) -> float:
        return self._time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class TestArithmetic:
    def test_a_burst_goes_at_once_and_the_rest_at_the_rate(self) -> None:
        given_, arrival = slots(0, 1_000, 6, POLICY)
        assert given_ == [1_000, 1_000, 1_000, 1_100, 1_200, 1_300]
        assert arrival == 1_600

    def test_nothing_beyond_the_horizon_is_given(self) -> None:
        given_, arrival = slots(0, 1_000, 100, POLICY)
        assert len(given_) == 3 + 10
        assert slots(arrival, 1_000, 1, POLICY) == ([], arrival)

    def test_a_pause_gives_the_burst_back_and_no_more(self) -> None:
        _, arrival = slots(0, 0, 3, POLICY)
        given_, _ = slots(arrival, 10_000, 4, POLICY)
        assert given_ == [10_000, 10_000, 10_000, 10_100]

    @given(
        st.lists(st.integers(0, 500), max_size=60),
        st.floats(0.5, 500),
        st.integers(1, 20),
    )
    def test_no_window_holds_more_than_burst_and_rate_allow(self, gaps: list[int], rate: float, burst: int) -> None:
        """Given requests that come as they like, any window of t seconds holds at most burst + rate * t of the slots."""
        policy = RateLimitPolicy(rate, burst, horizon_s=1e6)
        now, arrival, taken = 0.0, 0.0, []
        for gap in gaps:
            now += gap
            given_, arrival = slots(arrival, now, 1, policy)
            taken += given_
        for first in range(len(taken)):
            for last in range(first, len(taken)):
                window_s = (taken[last] - taken[first]) / 1000
                assert last - first + 1 <= burst + rate * window_s + 1e-6

    @pytest.mark.parametrize(
        ("address", "network"),
        [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
            ("fe80::1%eth0", "fe80::/64"),
        ],
    )
    def test_an_ipv6_address_stands_for_its_network(self, address: str, network: str) -> None:
        assert network_of(address) == network


class TestLocalGate:
    async def test_it_decides_as_the_arithmetic(self) -> None:
        time = ManualTime(0)
        limiter = LocalRateLimiter(time, POLICY)
        assert [await limiter.reserve("a") for _ in range(5)] == [0, 0, 0, 0.1, 0.2]
        assert await limiter.reserve("b") == 0
        time.ms += 100
        assert await limiter.reserve("a") == pytest.approx(0.2)

    async def test_beyond_the_horizon_nothing_is_reserved(self) -> None:
        limiter = LocalRateLimiter(ManualTime(0), POLICY)
        waits = [await limiter.reserve("a") for _ in range(20)]
        assert waits[13:] == [None] * 7


class TestAddressGate:
    async def test_two_replicas_share_one_line(self, store: RedisStore, crawl_name: str) -> None:
        """Given two replicas that ask in turn, when both ask for one address, then no slot is given twice."""
        time = ManualTime()
        one, two = await shared_limiter(store, crawl_name, time), await shared_limiter(store, crawl_name, time)
        waits = [await limiter.reserve("192.0.2.1") for limiter in (one, two, one, two, one, two)]
        assert waits == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])
        assert await two.reserve("192.0.2.2") == 0

    async def test_the_script_decides_as_the_arithmetic(self, store: RedisStore, crawl_name: str) -> None:
        time, arrival = ManualTime(), 0.0
        policy = RateLimitPolicy(rate_per_s=7.3, burst=4, horizon_s=0.9)
        limiter = await shared_limiter(store, crawl_name, time, policy)
        for step in (0, 5, 50, 500, 0, 0, 0, 0, 0, 0, 90, 2_000, 1, 1, 1):
            time.ms += step
            expected, arrival = slots(arrival, time.ms, 1, policy)
            wait_s = await limiter.reserve("x")
            if not expected:
                assert wait_s is None
            else:
                assert wait_s == pytest.approx((expected[0] - time.ms) / 1000, abs=0.002)

    async def test_those_who_ask_together_go_in_one_round_trip(self, store: RedisStore, crawl_name: str) -> None:
        limiter = await shared_limiter(store, crawl_name, ManualTime())
        await limiter.reserve("warm")
        before = store.round_trips
        waits = await asyncio.gather(*(limiter.reserve(name) for name in ("a", "b", "a", "a", "a", "b")))
        assert store.round_trips == before + 1
        assert waits == pytest.approx([0, 0, 0, 0, 0.1, 0])

    async def test_the_key_goes_by_itself(self, store: RedisStore, crawl_name: str) -> None:
        limiter = await shared_limiter(store, crawl_name, ManualTime())
        await limiter.reserve("a")
        (ttl_ms,) = await store.send([command("PTTL", CrawlKeys(crawl_name, 1).rate_limit("a"))])
        assert 0 < ttl_ms <= POLICY.interval_ms

    async def test_a_caller_that_left_does_not_disturb_the_others(self, store: RedisStore, crawl_name: str) -> None:
        limiter = await shared_limiter(store, crawl_name, ManualTime())
        leaving = asyncio.create_task(limiter.reserve("a"))
        staying = asyncio.create_task(limiter.reserve("a"))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await staying == 0

    async def test_a_server_that_is_away_is_reported_to_each(self, crawl_name: str) -> None:
        limiter = await shared_limiter(NeverServes(), crawl_name, ManualTime())
        answers = await asyncio.gather(limiter.reserve("a"), limiter.reserve("b"), return_exceptions=True)
        assert [type(answer) for answer in answers] == [RedisAway, RedisAway]


def assert_spaced(requests: Sequence[float], policy: RateLimitPolicy) -> None:
    """Any window of t seconds has at most burst + rate * t requests, and those that are late but count as on time."""
    late = policy.rate_per_s * ON_TIME_S + 1
    for at, first in enumerate(requests):
        for number, last in enumerate(requests[at:], 1):
            assert number <= policy.burst + policy.rate_per_s * (last - first) + late


class TestOutage:
    """A server that stops and comes back: the address must not get the requests of the outage all at once."""

    async def test_slots_missed_in_an_outage_are_not_used_all_at_once(self, store: RedisStore, crawl_name: str) -> None:
        # Given 200 domains behind one address, which all have their slots or are told to wait,
        time, requests = ManualTime(), []
        policy = RateLimitPolicy(rate_per_s=10)
        limiter = await shared_limiter(store, crawl_name, time, policy)
        address_limiter = AddressLimiter(runtime_with(time, policy), OneAddress(), lambda _: limiter)
        domains = [leased() for _ in range(200)]

        async def turns() -> None:
            for each in [each for each in domains if each.next_at <= time.monotonic()]:
                if await address_limiter.may_request(each, "https://a.test/"):
                    requests.append(time.monotonic())
                    domains.remove(each)

        await turns()
        # when no domain has a turn for 8 seconds,
        for ms in (1_000, 8_000, *[31] * 300):
            time.ms += ms
            await turns()
        # then the requests keep to the rate all the same, and go on.
        assert_spaced(requests, policy)
        assert len(requests) > 5 + 10 * 8

    async def test_replicas_together_keep_to_the_rate_after_an_outage(self, store: RedisStore, crawl_name: str) -> None:
        """Each has missed slots, and its turns take some time."""
        time, requests = ManualTime(), []
        policy = RateLimitPolicy(rate_per_s=10)
        limiters = [await shared_limiter(store, crawl_name, time, policy, replicas=4) for _ in range(4)]
        addresses = [
            AddressLimiter(runtime_with(time, policy), OneAddress(), lambda _, one=one: one) for one in limiters
        ]
        waiting = [(addresses[number % 4], leased()) for number in range(200)]

        async def turns(turn_ms: int) -> None:
            for replica, domain in [one for one in waiting if one[1].next_at <= time.monotonic()]:
                time.ms += turn_ms
                if await replica.may_request(domain, "https://a.test/"):
                    requests.append(time.monotonic())
                    waiting.remove((replica, domain))

        await turns(0)
        for ms, turn_ms in ((1_000, 0), (8_000, 20), *[(31, 0)] * 600):
            time.ms += ms
            await turns(turn_ms)
        assert_spaced(requests, policy)
        assert len(requests) == 200

    async def test_slots_that_began_before_their_reply_came_are_not_used_all_at_once(
        self, store: RedisStore, crawl_name: str
    ) -> None:
        time, requests = ManualTime(), []
        policy = RateLimitPolicy(rate_per_s=10)
        delayed = await shared_limiter(RepliesLate(store, time), crawl_name, time, policy)
        prompt = await shared_limiter(store, crawl_name, time, policy)
        for limiter in (delayed, prompt):
            for wait_s in await asyncio.gather(*(limiter.reserve("a") for _ in range(80))):
                if wait_s is not None:
                    requests.append(time.monotonic() + wait_s)
        assert len(requests) > 100
        assert_spaced(sorted(requests), policy)

    async def test_each_replica_uses_missed_slots_at_the_rate(self) -> None:
        time = ManualTime()
        limiter = LocalRateLimiter(time, POLICY)
        missed = time.monotonic() - 9.0
        assert [limiter.may_use("a", missed), limiter.may_use("a", missed), limiter.may_use("b", missed)] == [1, 0, 1]
        time.ms += 100
        assert limiter.may_use("a", missed)


def leased() -> LeasedDomain:
    return LeasedDomain(Lease("a.test", 0, 1, 0, 0, "", ()), lease_end=2e9, next_at=0.0)


def runtime_with(time: ManualTime, policy: RateLimitPolicy) -> Runtime:
    made = runtime(time)
    throttle = ThrottlePolicy(DelayPolicy(), BackoffPolicy())
    made.policy.replace(PolitenessPolicy(throttle, RobotsPolicy(), tries=3, rate_limit=policy))
    return made


class OneAddress(HttpClient):
    """All domains are at one address."""

    def __init__(self) -> None: ...

    async def locate(self, url: str) -> str:
        return "192.0.2.1"


class RepliesLate(CountingStore):
    """A store whose first reply comes 8 seconds after the call was executed."""

    def __init__(self, store: Store, time: ManualTime) -> None:
        super().__init__(store)
        self._time, self._late_ms = time, 8_000

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        replies = await super().send(calls)
        self._time.ms += self._late_ms
        self._late_ms = 0
        return replies


class NeverServes(CountingStore):
    """A store whose server is away."""

    def __init__(self) -> None: ...

    def node_of(self, key: str) -> str:
        return "away"

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        raise RedisAway("away")


class OnTwoNodes(NeverServes):
    """A store with two nodes, of which the one with the rate limits does not answer."""

    def node_of(self, key: str) -> str:
        return "limits" if "rate_limit" in key or "meta" in key else "shards"

    def runs(self) -> Hashable:
        return None


async def test_a_replica_keeps_to_its_share_while_the_node_of_the_limit_is_away(crawl_name: str) -> None:
    time, store, replicas = ManualTime(), OnTwoNodes(), 4
    keys = CrawlKeys(crawl_name, 1)
    retry = RedisRetry(time, Events(), random.Random(1), nodes=Nodes(store, keys))
    shared = await shared_limiter(store, crawl_name, time)
    limiter = DividedRateLimiter(replace(runtime(time), retry=retry), shared, POLICY, lambda: replicas)
    slots_ms = []
    for _ in range(40):
        time.ms += 100
        wait_s = await limiter.reserve("192.0.2.1")
        if wait_s is not None:
            slots_ms.append(time.ms + wait_s * 1000)
    pauses = [after - before for before, after in pairwise(slots_ms)]
    assert min(pauses) >= replicas * POLICY.interval_ms - 1
    assert len(slots_ms) >= 9


def sharing(time: ManualTime) -> Runtime:
    made, throttle = runtime(time), ThrottlePolicy(DelayPolicy(), BackoffPolicy())
    made.policy.replace(PolitenessPolicy(throttle, RobotsPolicy(), 3, POLICY, shares_delays=True))
    return made


class TestSharedDelays:
    """Two crawls on one Redis that share the delays of domains."""

    async def test_crawls_take_turns_at_a_domain(self, store: RedisStore, crawl_name: str) -> None:
        url, domain = f"https://{crawl_name}.test/", f"{crawl_name}.test"
        key, _ = turn_keys(domain)
        one, two = (SharedTurns(sharing(ManualTime()), store, name, hold_ms=60_000) for name in ("one", "two"))
        waits = leased()
        # While one makes a request, the other has to wait, and looks again soon.
        assert await one.take(leased(), url)
        assert not await two.take(waits, url)
        assert 0 < waits.next_at - runtime(ManualTime()).now() <= 0.25
        # It comes next, when the delay has ended, and not the first one again.
        await one.end(url, 5_000)
        assert not await two.take(waits, url)
        assert 4 < waits.next_at - runtime(ManualTime()).now() <= 5
        assert not await one.take(leased(), url)
        await store.send([command("DEL", key)])  # as the end of the delay does
        assert not await one.take(leased(), url)
        assert await two.take(waits, url)
        # Alone, a crawl goes on: its lease has its own delay.
        await two.end(url, 5_000)
        assert await two.take(waits, url)

    async def test_a_domain_that_rests_for_long_is_returned(self, store: RedisStore, crawl_name: str) -> None:
        url = f"https://{crawl_name}.test/"
        one, two = (SharedTurns(sharing(ManualTime()), store, name, hold_ms=60_000) for name in ("one", "two"))
        await one.take(leased(), url)
        await one.end(url, 300_000)
        waits = leased()
        assert not await two.take(waits, url)
        assert waits.closing
        # So it does not come next, and holds up nobody.
        assert await one.take(leased(), url)

    async def test_a_turn_ends_if_the_address_has_no_slot(self, store: RedisStore, crawl_name: str) -> None:
        time = ManualTime()
        shared = sharing(time)
        turns = SharedTurns(shared, store, crawl_name, hold_ms=60_000)
        limiter = LocalRateLimiter(time, POLICY)
        addresses = AddressLimiter(shared, OneAddress(), lambda _: limiter, turns)
        key, _ = turn_keys("a.test")
        allowed = [await addresses.may_request(leased(), "https://a.test/") for _ in range(POLICY.burst + 1)]
        assert allowed == [True] * POLICY.burst + [False]
        assert await store.send([command("GET", key)]) == [None]
