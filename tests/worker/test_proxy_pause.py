"""A failure of the operator's proxy: the domain waits, its URL stays as it was, and the failure is counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

from crawler.errors import FailureKind, FetchFailed
from crawler.events import Event, ProxyFailed
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.polite_fetch import PROXY_PAUSE_S, PoliteFetch
from crawler.worker.url_handler import UrlHandler
from frontier.entries import Entry
from frontier.settle import Lease
from tests.worker.test_throttle import Stopped, robots, runtime, throttle_for


async def test_the_domain_waits_and_no_url_loses_a_try() -> None:
    clock: Any = Stopped()
    shared = runtime(clock)
    events: list[Event] = []
    shared.events.subscribe(events.append)
    failing = AsyncMock(side_effect=FetchFailed(FailureKind.PROXY, "the proxy http://p:1 is away"))
    web: Any = SimpleNamespace(fetch=failing, time_slice=AsyncMock())
    entry, committer, allowance = Entry("https://a.test/1", "a.test"), AsyncMock(), Mock()
    leased = LeasedDomain(Lease("a.test", 0, 1, 0, 0, "", (entry,)), lease_end=2e6, now=clock.now)
    fetch = PoliteFetch(shared, web, AsyncMock(), Mock(), throttle_for(clock, 1.0))
    handler = UrlHandler(shared, fetch, Mock(builder=Mock(recrawl_rules=())), committer, allowance)
    assert await handler.may_request(leased, entry)
    await handler.request(leased, entry, robots())
    assert list(leased.pending) == [entry]
    assert (leased.closing, leased.next_at) == (True, clock.now + PROXY_PAUSE_S)
    assert leased.backoff.limited_until_ms > shared.server_clock.now_ms()
    assert leased.backoff.failures == 0
    assert events == [ProxyFailed("the proxy http://p:1 is away")]
    committer.add.assert_not_called()
    allowance.give_back.assert_called_once()
