"""A failure of the DNS, of this machine or of the operator's proxy: the domain waits, its URL stays as it was, and the
failure is counted."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from crawler.errors import FailureKind, FetchFailed, is_machines_fault
from crawler.events import Event, GroupCommitted, OwnFailure
from crawler.observe.health import Troubles
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.own_failures import FIRST_PAUSE_S, JITTER, LONGEST_PAUSE_S
from crawler.worker.polite_fetch import PoliteFetch
from crawler.worker.url_handler import UrlHandler
from frontier.entries import Entry
from frontier.settle import Lease
from tests.worker.test_throttle import Stopped, robots, runtime, throttle_for

NO_FILES = OSError(errno.EMFILE, "Too many open files", "turbohtml/__init__.py")


def caused_by(cause: Exception) -> RuntimeError:
    error = RuntimeError("cannot extract")
    error.__cause__ = cause
    return error


class Requests:
    """Requests to the domain a.test, each under its own lease. `web` answers them and `builder` makes the pages."""

    def __init__(self) -> None:
        self.clock: Any = Stopped()
        self.shared = runtime(self.clock)
        self.events: list[Event] = []
        self.shared.events.subscribe(self.events.append)
        self.web: Any = SimpleNamespace(fetch=AsyncMock(), time_slice=AsyncMock())
        self.builder = Mock(recrawl_rules=(), build=AsyncMock())
        self.committer, self.allowance = AsyncMock(), Mock()
        self.fetch = PoliteFetch(self.shared, self.web, AsyncMock(), Mock(), throttle_for(self.clock, 1.0))
        handling: Any = Mock(builder=self.builder)
        self._handler = UrlHandler(self.shared, self.fetch, handling, self.committer, self.allowance)

    async def one(self) -> LeasedDomain:
        """Make one request. Check that its URL stays as it was, and that its domain waits."""
        entry = Entry("https://a.test/1", "a.test")
        leased = LeasedDomain(Lease("a.test", 0, 1, 0, 0, "", (entry,)), lease_end=2e6, now=self.clock.now)
        assert await self._handler.may_request(leased, entry)
        await self._handler.request(leased, entry, robots())
        assert list(leased.pending) == [entry]
        assert leased.closing
        assert leased.backoff.failures == 0
        assert leased.backoff.limited_until_ms > self.clock.now_ms()
        self.committer.add.assert_not_called()
        return leased

    async def pause_s(self) -> float:
        return (await self.one()).next_at - self.clock.now


@pytest.mark.parametrize("kind", [FailureKind.OUR_DNS, FailureKind.MACHINE, FailureKind.PROXY])
async def test_the_domain_waits_and_no_url_loses_a_try(kind: FailureKind) -> None:
    requests = Requests()
    requests.web.fetch.side_effect = FetchFailed(kind, "for the test")
    assert await requests.pause_s() == pytest.approx(FIRST_PAUSE_S, rel=JITTER)
    assert requests.events == [OwnFailure(kind, "for the test")]
    requests.allowance.give_back.assert_called_once()


async def test_the_pause_is_as_long_as_the_failures_have_lasted_within_bounds() -> None:
    requests = Requests()
    requests.web.fetch.side_effect = FetchFailed(FailureKind.OUR_DNS)
    await requests.one()
    for lasted_s in (100.0, 300.0, 3_000.0):
        requests.clock.now = 1_000_000.0 + lasted_s
        assert await requests.pause_s() == pytest.approx(min(lasted_s, LONGEST_PAUSE_S), rel=JITTER)
    requests.fetch.own_failures.end()
    assert await requests.pause_s() == pytest.approx(FIRST_PAUSE_S, rel=JITTER)


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
        requests.web.fetch.side_effect = error
    else:
        requests.web.fetch.return_value = Mock(status=200, body=b"", elapsed=0.1, phases=None)
        requests.builder.build.side_effect = error
    assert await requests.pause_s() >= 1.0, "the delay of the domain"
    assert [(type(event), event.kind) for event in requests.events if isinstance(event, OwnFailure)] == [
        (OwnFailure, FailureKind.MACHINE)
    ]
    requests.allowance.give_back.assert_called_once()


@pytest.mark.parametrize("error", [OSError(errno.ENOENT, "no such file"), RuntimeError("x"), ImportError("no module")])
def test_what_does_not_pass_is_not_the_fault_of_the_machine(error: Exception) -> None:
    assert not is_machines_fault(error)


async def test_the_pause_does_not_shorten_the_delay_of_a_domain() -> None:
    requests = Requests()
    leased = LeasedDomain(Lease("a.test", 0, 1, 0, 0, "", ()), lease_end=2e6, now=requests.clock.now)
    leased.wait_until(requests.clock.now + 3_600)
    requests.fetch.own_failures.pause(leased, FailureKind.PROXY, "")
    assert leased.next_at == requests.clock.now + 3_600


def test_the_health_record_says_what_is_awaited_until_a_result_is_written() -> None:
    troubles = Troubles()
    troubles.observe(OwnFailure(FailureKind.OUR_DNS, "a.test: no answer"))
    for results, said in ((0, "waits for the DNS: a.test: no answer"), (1, "")):
        troubles.observe(GroupCommitted(results, 0, 0.0, 0.0, 0.0, 0, 0.0))
        assert troubles.obstacle(waits_for_permits=False) == said
