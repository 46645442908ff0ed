"""A worker's turn, with a real queue and real delays, and fakes for the web, the frontier and the archive."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from msgspec.structs import replace

from crawler.page import Exchange, Outcome, Page
from crawler.worker.delay_queue import BYTES_PER_S, DelayQueue
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.next_turn import Turns
from crawler.worker.page_handling import PageHandling
from crawler.worker.polite_fetch import PoliteFetch
from crawler.worker.url_handler import UrlHandler
from crawler.worker.worker import Worker
from frontier.entries import Entry
from frontier.settle import Lease
from politeness.backoff import BackoffPolicy
from politeness.delay import DelayPolicy, ThrottlePolicy
from tests.worker.test_throttle import Stopped, answer, robots, runtime, throttle_for

DELAY_S = 1.0


def leased_domain(now: float, *names: str) -> LeasedDomain:
    entries = tuple(Entry(f"https://a.test/{name}", "a.test") for name in names)
    return LeasedDomain(Lease("a.test", 0, 1, 0, 0, "", entries), lease_end=2e6, now=now)


@pytest.mark.parametrize("late_s", [0.0, 5.0])
async def test_the_domain_of_a_large_body_gives_way_in_a_replica_that_is_late(late_s: float) -> None:
    clock: Any = Stopped()
    queue: DelayQueue[LeasedDomain] = DelayQueue(clock)
    large = replace(answer(b""), status=200, headers=(), body=bytes(3 * BYTES_PER_S))

    async def fetch(_domain: LeasedDomain, url: str, *_: object) -> Exchange:
        queue.put(leased_domain(clock.now), clock.now - late_s)  # another domain waits
        return large

    page = Page("https://a.test/1", "a.test", 0, Outcome.DONE, "ok", clock.now)
    robots_lookup, builder, nobody = AsyncMock(), AsyncMock(recrawl_rules=()), Mock()
    robots_lookup.at_hand, builder.build.return_value = lambda _: robots(), (page, ())
    shared = runtime(clock, throttle=ThrottlePolicy(DelayPolicy(DELAY_S, response_share=0.0), BackoffPolicy()))
    delays, web = throttle_for(clock, DELAY_S), SimpleNamespace(fetch=fetch, time_slice=AsyncMock())
    polite_fetch = PoliteFetch(shared, web, AsyncMock(), nobody, delays)  # type: ignore[arg-type]
    items = Mock(extracted=AsyncMock(return_value=page), checked=AsyncMock(return_value=page))
    handling = PageHandling(builder, items, Mock(takes_long=lambda _: False), None, nullcontext, nobody)
    pages = UrlHandler(shared, polite_fetch, handling, AsyncMock(), nobody)
    turns = Turns(shared, Mock(queue=queue, is_held_up=lambda _: False), nobody, nullcontext)
    worker = Worker(shared, turns, robots_lookup, delays, pages)
    first = leased_domain(clock.now, "1", "2")
    queue.put(first, clock.now)
    await worker.run()
    assert len(queue) == 2
    assert await queue.take() is not first
    assert queue.lateness() == pytest.approx(-DELAY_S - (3.0 if late_s else 0.0))
