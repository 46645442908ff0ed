"""A domain that waits because of its address: the lists and the explanation of its URL name that reason."""

from __future__ import annotations

from crawler.cli import screens
from crawler.observe import summary
from crawler.observe.explain import explanation, gather
from crawler.settings.load import CrawlSettings
from crawler.worker.leases import LeasedDomain
from crawler.worker.request import AddressLimiter
from frontier.clock import ServerClock
from frontier.crawls import create_crawl
from frontier.queue import Frontier, FrontierSettings
from frontier.settle import Settlement
from frontier.store import RedisStore
from politeness.backoff import BackoffState
from politeness.rate_limit import HORIZON_S, LocalRateLimiter, RateLimitPolicy
from tests.frontier.helpers import ManualTime, entry, lease_one
from tests.politeness.test_rate_limit import OneAddress, runtime_with


async def test_the_reason_is_the_rate_limit_until_it_has_passed(store: RedisStore, crawl_name: str) -> None:
    crawl = await create_crawl(store, crawl_name, 1, CrawlSettings().to_json())
    time, policy = ManualTime(int(await store.time_ms())), RateLimitPolicy(rate_per_s=0.01, burst=1)
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()
    frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
    await frontier.push([entry("https://a.test/", "a.test")])
    limiter = LocalRateLimiter(time, policy)
    assert await limiter.reserve("192.0.2.1") == 0.0  # given a slot that another domain at the address has used

    lease = await lease_one(frontier)
    leased = LeasedDomain(lease, 1e12, time.monotonic())
    addresses = AddressLimiter(runtime_with(time, policy), OneAddress(), lambda _: limiter)
    assert not await addresses.may_request(leased, "https://a.test/")  # when the domain has to wait for the next one
    until_ms = time.ms + int(1000 * HORIZON_S)
    await frontier.release([Settlement(lease, until_ms, 1_000, str(leased.backoff), [])])

    (line,) = (await summary.take(store, frontier.keys, time.ms + 1, "r1", ())).resting
    assert (line.limit, screens.why(line)) == (
        "the rate limit of its address",
        "waits for the rate limit of its address",
    )
    found = explanation(await gather(store, crawl, "https://a.test/", ()))
    assert found.waits_for == "the rate limit of its address"
    (line,) = (await summary.take(store, frontier.keys, until_ms, "r1", ())).overdue
    assert not line.limit
    time.ms = until_ms
    assert LeasedDomain(await lease_one(frontier), 1e12, time.monotonic()).backoff == BackoffState()
