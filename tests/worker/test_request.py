"""Requests to leased domains: their delays and backoff, their end with the lease, and failures that are ours."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from email.utils import formatdate
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from crawler.errors import FailureKind, FetchFailed, is_machines_fault
from crawler.events import Event, OwnFailure
from crawler.hooks import HttpRequest
from crawler.observe.summary import LIMITS, limit_in_words
from crawler.page import Exchange, Outcome
from crawler.worker.leases import LeasedDomain
from crawler.worker.request import FIRST_PAUSE_S, LONGEST_PAUSE_S, MOST_MOVES, PAUSE_JITTER, PoliteFetch
from crawler.worker.verdict import UrlResult
from crawler.worker.visit import UrlVisits
from frontier.clock import SystemClock
from frontier.control import DomainRules
from frontier.entries import Entry
from politeness.backoff import BackoffState
from tests.worker.helpers import (
    Stopped,
    answer,
    leased_domain,
    robots,
    runtime,
    throttle_for,
    too_many_requests,
)

FINE = UrlResult(Outcome.DONE, "")
BUSY = UrlResult(Outcome.RETRY, "http_429", backs_off=True)
DELAY_OF_4_S = b"User-agent: *\nCrawl-delay: 4\n"


@pytest.mark.parametrize(
    ("concurrency", "delay_s", "parallel", "set_delays", "body", "state"),
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
    concurrency: int, delay_s: float, parallel: int, set_delays: dict[str, float], body: bytes, state: str
) -> None:
    throttle = throttle_for(Stopped(), delay_s, parallel, DomainRules(delays=set_delays))
    assert throttle.concurrency(leased_domain(state=state), robots(body)) == concurrency


def test_the_request_for_a_robots_txt_starts_the_delay_that_the_file_asks_for() -> None:
    """The lease may be released at once, and the next holder waits for the stored time."""
    clock, leased = Stopped(), leased_domain()
    throttle = throttle_for(clock, delay_s=1.0)
    throttle.start_delay(leased, 0.1, None)
    clock.now += 0.5  # the file is read and stored
    for body in (DELAY_OF_4_S, b""):
        throttle.prolong_delay(leased, robots(body))
        assert (leased.next_at, leased.delay_ms) == (1_000_004.0, 4_000)


def test_the_delay_after_a_robots_txt_that_another_replica_fetched_is_the_one_that_it_asks_for() -> None:
    """Given a replica that died after it fetched robots.txt, when the next holder of the lease has made no request yet,
    then it waits for the rest of the Crawl-delay."""
    clock, leased = Stopped(), leased_domain()
    throttle = throttle_for(clock, delay_s=1.0)
    known = robots(DELAY_OF_4_S, clock.now_ms())
    clock.now += 2.5
    assert throttle.put_off_if_early(leased, known)
    assert leased.next_at == pytest.approx(1_000_004.0)
    clock.now += 1.5
    assert not throttle.put_off_if_early(leased, known)


def test_requests_that_fail_together_are_one_failure() -> None:
    """Given four requests in flight, when they are answered 429, then the domain backs off as after one failure, for the
    longest time that a response asked for. A successful response among them does not shorten it."""
    clock, leased = Stopped(), leased_domain()
    throttle = throttle_for(clock)
    for retry_after in (b"5", b"20", b"10"):
        throttle.update_backoff(leased, BUSY, too_many_requests(retry_after))
        clock.now += 0.1
    throttle.update_backoff(leased, FINE, None)
    throttle.update_backoff(leased, FINE, None)
    assert leased.closing
    assert leased.backoff.failures == 1
    assert leased.next_at == pytest.approx(1_000_020.1)
    assert leased.backoff.until_ms == pytest.approx(1_000_020_100, abs=1)


def test_a_failure_after_the_rest_is_a_further_one() -> None:
    clock, first = Stopped(), leased_domain()
    throttle = throttle_for(clock)
    throttle.update_backoff(first, BUSY, too_many_requests(b"5"))
    clock.now += 6
    second = leased_domain(state=str(first.backoff))
    throttle.update_backoff(second, BUSY, None)
    assert second.backoff.failures == 2


def test_a_block_by_an_operator_comes_before_the_failures_of_the_domain() -> None:
    throttle, failed = throttle_for(Stopped()), leased_domain(state=str(BackoffState(10_000, 1, 2, "timeout")))
    assert throttle.verdict(leased_domain()) is None
    assert throttle.verdict(failed) == UrlResult(Outcome.DEAD, "given_up_timeout")
    blocking = throttle_for(Stopped(), rules=DomainRules(blocked=frozenset({"a.test"})))
    assert blocking.verdict(failed) == UrlResult(Outcome.DENIED, "blocked")


def test_a_date_of_retry_after_is_never_a_fraction_of_a_millisecond_early() -> None:
    clock, again_s = Stopped(), 1_000_129
    for milliseconds in range(1_000):
        clock.now = 1_000_000 + milliseconds / 1000
        leased = leased_domain()
        response = too_many_requests(formatdate(again_s, usegmt=True).encode())
        throttle_for(clock).update_backoff(leased, BUSY, response)
        assert 0 <= leased.backoff.until_ms - 1000 * again_s <= 1


# the end of the lease


LEASE_S = 0.3
"""Long enough to begin the request on a busy machine."""


class NeverEnds:
    """Requests to a site whose responses never end, and that notices when the client disconnects."""

    def __init__(self) -> None:
        self.clock, self.began, self.hung_up = SystemClock(), asyncio.Event(), False
        self._fetch = PoliteFetch(runtime(self.clock), self, throttle_for(Stopped()))  # type: ignore[arg-type]

    async def fetch(self, url: str, *, is_too_late: Callable[[], bool], **_: object) -> Exchange:
        if is_too_late():
            raise FetchFailed(FailureKind.LEASE_EXPIRED)
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.hung_up = True
            raise
        raise AssertionError

    def leased(self, lasts_s: float) -> LeasedDomain:
        now = self.clock.monotonic()
        return leased_domain(now=now, lease_end=now + lasts_s)

    def renew(self, leased: LeasedDomain, lasts_s: float) -> None:
        now = self.clock.monotonic()
        leased.renew(now + lasts_s, now)

    async def request(self, leased: LeasedDomain) -> asyncio.Task[Exchange]:
        """Begin a request, and return the task that waits for the response."""
        self.began.clear()
        task = asyncio.create_task(self.ended(leased))
        await self.began.wait()
        return task

    async def ended(self, leased: LeasedDomain) -> Exchange:
        return await self._fetch.fetch(leased, HttpRequest("https://a.test/"), None)


async def test_all_requests_of_a_lease_are_broken_off_when_it_ends() -> None:
    site = NeverEnds()
    leased = site.leased(LEASE_S)
    failures = await asyncio.gather(site.ended(leased), site.ended(leased), return_exceptions=True)
    assert [getattr(failure, "kind", None) for failure in failures] == [FailureKind.LEASE_EXPIRED] * 2
    assert site.hung_up


async def test_a_renewal_under_way_moves_the_limit() -> None:
    site = NeverEnds()
    leased = site.leased(LEASE_S)
    request = await site.request(leased)
    site.renew(leased, 60)
    _, pending = await asyncio.wait([request], timeout=1.5 * LEASE_S)
    assert pending
    site.renew(leased, float("-inf"))  # another replica holds the lease now
    with pytest.raises(FetchFailed):
        await request
    assert site.hung_up


async def test_nothing_leaves_when_the_lease_has_ended() -> None:
    site = NeverEnds()
    with pytest.raises(FetchFailed):
        await site.ended(site.leased(-1.0))
    assert not site.began.is_set()


@pytest.mark.parametrize("has_ended", [False, True])
async def test_a_worker_that_is_cancelled_stays_cancelled_also_when_its_lease_ends(has_ended: bool) -> None:
    site = NeverEnds()
    leased = site.leased(60)
    request = await site.request(leased)
    if has_ended:
        site.renew(leased, float("-inf"))
        await asyncio.sleep(0)  # the timer rings
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request


@pytest.mark.parametrize(("first_s", "then_s"), [(LEASE_S, 3 * LEASE_S), (60, LEASE_S)])
async def test_a_request_ends_with_the_lease_that_was_renewed_or_shortened_before(
    first_s: float, then_s: float
) -> None:
    site = NeverEnds()
    leased = site.leased(first_s)
    first = await site.request(leased)
    first.cancel()
    await asyncio.wait([first])
    site.renew(leased, then_s)
    async with asyncio.timeout(30):
        with pytest.raises(FetchFailed):
            await site.ended(leased)
    assert site.clock.monotonic() >= leased.lease_end


async def test_a_domain_knows_when_its_oldest_request_in_flight_began() -> None:
    """Not when the domain was due, and only until the response is complete."""
    loop, site = asyncio.get_running_loop(), NeverEnds()
    leased = site.leased(60)
    assert leased.oldest_request == float("inf")
    before = loop.time()
    first = await site.request(leased)
    between = loop.time()
    second = await site.request(leased)
    assert before <= leased.oldest_request <= between
    first.cancel()
    await asyncio.wait([first])
    assert between <= leased.oldest_request <= loop.time()
    second.cancel()
    await asyncio.wait([second])
    assert leased.oldest_request == float("inf")


# failures that are ours: the domain waits, its URL stays as it was, and the failure is counted


NO_FILES = OSError(errno.EMFILE, "Too many open files", "turbohtml/__init__.py")


def caused_by(cause: Exception) -> RuntimeError:
    error = RuntimeError("cannot extract")
    error.__cause__ = cause
    return error


class Requests:
    """Requests to the domain a.test, each under its own lease. `http` answers them and `builder` makes the pages."""

    def __init__(self) -> None:
        self.clock: Any = Stopped()
        self.events: list[Event] = []
        shared = runtime(self.clock)
        shared.events.subscribe(self.events.append)
        self.http, self.committer, self.permits = AsyncMock(), AsyncMock(), Mock()
        self.builder = Mock(settings=Mock(recrawl_rules=()), build=AsyncMock())
        throttle = throttle_for(self.clock, 1.0)
        self.fetch = PoliteFetch(shared, self.http, throttle)
        others: Any = (self.builder, Mock(), self.committer)
        self._visits = UrlVisits(shared, self.permits, self.fetch, throttle, *others)

    async def leased_after_one(self) -> LeasedDomain:
        """Make one request. Check that its URL stays as it was, and that its domain waits."""
        leased = leased_domain(now=self.clock.now)
        entry = Entry("https://a.test/1", "a.test")
        await self._visits.request(leased, entry, robots())
        assert list(leased.pending) == [entry]
        assert leased.closing
        assert leased.backoff.failures == 0
        assert leased.backoff.limited_until_ms > self.clock.now_ms()
        self.committer.add.assert_not_called()
        return leased

    async def pause_s(self) -> float:
        return (await self.leased_after_one()).next_at - self.clock.now


@pytest.mark.parametrize("kind", [FailureKind.OUR_DNS, FailureKind.MACHINE, FailureKind.PROXY])
async def test_the_domain_waits_and_no_url_loses_a_try(kind: FailureKind) -> None:
    requests = Requests()
    requests.http.fetch.side_effect = FetchFailed(kind, "for the test")
    leased = await requests.leased_after_one()
    assert leased.next_at - requests.clock.now == pytest.approx(FIRST_PAUSE_S, rel=PAUSE_JITTER)
    assert requests.events == [OwnFailure(kind, "for the test")]
    state = BackoffState.parse(str(leased.backoff))
    assert limit_in_words(state) == LIMITS[kind] != LIMITS["address"]
    requests.permits.give_back.assert_called_once()


async def test_the_pause_is_as_long_as_the_failures_have_lasted_within_bounds() -> None:
    requests = Requests()
    requests.http.fetch.side_effect = FetchFailed(FailureKind.OUR_DNS)
    await requests.leased_after_one()
    for lasted_s in (100.0, 300.0, 3_000.0):
        requests.clock.now = 1_000_000.0 + lasted_s
        assert await requests.pause_s() == pytest.approx(min(lasted_s, LONGEST_PAUSE_S), rel=PAUSE_JITTER)
    requests.http.fetch.side_effect = [Mock(elapsed=0.1), FetchFailed(FailureKind.OUR_DNS)]
    await requests.fetch.fetch(leased_domain(), HttpRequest("https://a.test/"), None)  # over a new connection
    assert await requests.pause_s() == pytest.approx(FIRST_PAUSE_S, rel=PAUSE_JITTER)


async def test_a_host_whose_connections_always_lead_elsewhere_is_unreachable() -> None:
    requests, leased, kinds = Requests(), leased_domain(), []
    requests.http.fetch.side_effect = FetchFailed(FailureKind.OTHER_ADDRESS)
    for _ in range(MOST_MOVES + 1):
        with pytest.raises(FetchFailed) as caught:
            await requests.fetch.fetch(leased, HttpRequest("https://a.test/"), None)
        kinds.append(caught.value.kind)
    assert kinds == [FailureKind.OTHER_ADDRESS] * MOST_MOVES + [FailureKind.UNREACHABLE]


@pytest.mark.parametrize("stage", ["fetch", "read"])
@pytest.mark.parametrize(
    "error",
    [NO_FILES, ImportError("libx.so: cannot open shared object file: Too many open files"), caused_by(NO_FILES)],
    ids=["open", "library", "cause"],
)
async def test_a_page_is_no_defect_because_this_machine_has_no_files_left(stage: str, error: Exception) -> None:
    """A library may be imported for the first page, or a process started."""
    requests = Requests()
    if stage == "fetch":
        requests.http.fetch.side_effect = error
    else:
        requests.http.fetch.return_value = answer()
        requests.builder.build.side_effect = error
    assert await requests.pause_s() >= 1.0, "the delay of the domain"
    failures = [event for event in requests.events if isinstance(event, OwnFailure)]
    assert [failure.kind for failure in failures] == [FailureKind.MACHINE]
    requests.permits.give_back.assert_called_once()


@pytest.mark.parametrize("error", [OSError(errno.ENOENT, "no such file"), RuntimeError("x"), ImportError("no module")])
def test_what_does_not_pass_is_not_the_fault_of_the_machine(error: Exception) -> None:
    assert not is_machines_fault(error)


async def test_the_pause_does_not_shorten_the_delay_of_a_domain() -> None:
    requests = Requests()
    leased = leased_domain(now=requests.clock.now + 3_600)
    requests.fetch.pause(leased, FailureKind.PROXY, "")
    assert leased.next_at == requests.clock.now + 3_600
