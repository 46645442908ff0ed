"""A request under a lease is sent only while the lease is valid, and is cancelled when the lease ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.client import Fetcher
from crawler.fetch.request_rules import Headers
from crawler.page import Exchange
from crawler.worker.lease_timer import LeaseTimer
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.leased_fetch import LeasedFetch
from frontier.clock import SystemClock
from frontier.settle import Lease

URL = "https://a.test/"


class NeverEnds:
    """A site whose response never ends, and that notices when the client disconnects."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.hung_up = False

    async def fetch(self, url: str, *, is_too_late: Callable[[], bool], extra_headers: Headers) -> Exchange:
        if is_too_late():
            raise FetchFailed(FailureKind.LEASE_EXPIRED)
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.hung_up = True
            raise
        raise AssertionError


LEASE_S = 0.3
"""Long enough to begin the request on a busy machine."""


def a_leased_domain(lasts_s: float) -> LeasedDomain:
    now = SystemClock().monotonic()
    return LeasedDomain(Lease("a.test", 0, 1, 0, 0, "", ()), lease_end=now + lasts_s, now=now)


async def test_a_response_that_outlives_its_lease_is_broken_off() -> None:
    site = NeverEnds()
    fetch = LeasedFetch(cast(Fetcher, site), SystemClock())
    with pytest.raises(FetchFailed) as caught:
        await fetch.fetch(a_leased_domain(LEASE_S), URL)
    assert caught.value.kind is FailureKind.LEASE_EXPIRED
    assert site.hung_up


async def test_a_renewal_under_way_moves_the_limit() -> None:
    site, leased, clock = NeverEnds(), a_leased_domain(LEASE_S), SystemClock()
    request = asyncio.create_task(LeasedFetch(cast(Fetcher, site), clock).fetch(leased, URL))
    await site.begun.wait()
    now = clock.monotonic()
    leased.renewed(now + 60, now)
    _, pending = await asyncio.wait([request], timeout=1.5 * LEASE_S)
    assert pending
    leased.renewed(float("-inf"), clock.monotonic())  # another replica holds the lease now
    with pytest.raises(FetchFailed):
        await request
    assert site.hung_up


async def test_nothing_leaves_when_the_lease_has_ended() -> None:
    site = NeverEnds()
    with pytest.raises(FetchFailed):
        await LeasedFetch(cast(Fetcher, site), SystemClock()).fetch(a_leased_domain(-1.0), URL)
    assert not site.begun.is_set()


async def test_all_requests_of_a_lease_end_with_it() -> None:
    site, leased = NeverEnds(), a_leased_domain(LEASE_S)
    fetch = LeasedFetch(cast(Fetcher, site), SystemClock())
    ended = await asyncio.gather(fetch.fetch(leased, URL), fetch.fetch(leased, URL), return_exceptions=True)
    assert [cast(FetchFailed, one).kind for one in ended] == [FailureKind.LEASE_EXPIRED] * 2


async def test_a_worker_that_is_cancelled_is_not_told_that_its_lease_ended() -> None:
    site = NeverEnds()
    request = asyncio.create_task(LeasedFetch(cast(Fetcher, site), SystemClock()).fetch(a_leased_domain(60), URL))
    await site.begun.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request


async def test_a_worker_that_is_cancelled_when_its_lease_ends_stays_cancelled() -> None:
    site, leased = NeverEnds(), a_leased_domain(60)
    request = asyncio.create_task(LeasedFetch(cast(Fetcher, site), SystemClock()).fetch(leased, URL))
    await site.begun.wait()
    leased.renewed(float("-inf"), SystemClock().monotonic())
    await asyncio.sleep(0)  # the timer rings
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request


async def test_a_request_after_the_renewal_ends_with_the_new_lease() -> None:
    """No request was in flight when the lease was renewed. The timer of the first one rings at the old end."""
    site, leased, clock = NeverEnds(), a_leased_domain(LEASE_S), SystemClock()
    fetch = LeasedFetch(cast(Fetcher, site), clock)
    first = asyncio.create_task(fetch.fetch(leased, URL))
    await site.begun.wait()
    first.cancel()
    await asyncio.wait([first])
    now = clock.monotonic()
    leased.renewed(now + 3 * LEASE_S, now)
    with pytest.raises(FetchFailed):
        await fetch.fetch(leased, URL)
    assert clock.monotonic() >= now + 3 * LEASE_S


async def test_a_request_after_the_lease_was_shortened_ends_with_it() -> None:
    """No request was in flight when the lease was shortened, and the timer of the first one is set for the old end."""
    site, leased, clock = NeverEnds(), a_leased_domain(60), SystemClock()
    fetch = LeasedFetch(cast(Fetcher, site), clock)
    first = asyncio.create_task(fetch.fetch(leased, URL))
    await site.begun.wait()
    first.cancel()
    await asyncio.wait([first])
    now = clock.monotonic()
    leased.renewed(now + LEASE_S, now)
    async with asyncio.timeout(30):
        with pytest.raises(FetchFailed):
            await fetch.fetch(leased, URL)


async def test_a_lease_that_is_over_keeps_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timer, request = asyncio.get_running_loop(), LeaseTimer(), asyncio.current_task()
    assert request is not None
    set_timers = []
    call_at = loop.call_at
    monkeypatch.setattr(loop, "call_at", lambda *args: set_timers.append(call_at(*args)) or set_timers[-1])
    for ends_in_s in (60, 61):
        timer.begin(request, loop.time(), loop.time() + ends_in_s, loop)
        timer.stop()  # a request is in flight
        timer.end(request)
    assert [handle.cancelled() for handle in set_timers] == [False]
    timer.stop()
    assert [handle.cancelled() for handle in set_timers] == [True]


async def test_a_domain_knows_when_its_oldest_request_in_flight_began() -> None:
    """Not when the domain was due, and only until the response is complete."""
    loop, site, leased = asyncio.get_running_loop(), NeverEnds(), a_leased_domain(60)
    leased.wait_until(float("-inf"))
    assert leased.timer.oldest == float("inf")
    fetch = LeasedFetch(cast(Fetcher, site), SystemClock())
    before = loop.time()
    first = asyncio.create_task(fetch.fetch(leased, URL))
    await site.begun.wait()
    between = loop.time()
    site.begun.clear()
    second = asyncio.create_task(fetch.fetch(leased, URL))
    await site.begun.wait()
    assert before <= leased.timer.oldest <= between
    first.cancel()
    await asyncio.wait([first])
    assert between <= leased.timer.oldest <= loop.time()
    second.cancel()
    await asyncio.wait([second])
    assert leased.timer.oldest == float("inf")
