"""A worker's turn, with a real queue and real delays, and fakes for the web, the frontier and the archive."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from crawler.page import Exchange, Outcome, Page
from crawler.scope.shapes import Shapes
from crawler.worker.leases import BYTES_PER_S, DelayQueue
from crawler.worker.request import PoliteFetch
from crawler.worker.visit import UrlVisits
from crawler.worker.worker import Turns, Worker
from tests.worker.helpers import Stopped, answer, leased_domain, robots, runtime, throttle_for

DELAY_S = 1.0


@pytest.mark.parametrize("late_s", [0.0, 5.0])
async def test_the_domain_of_a_large_body_gives_way_in_a_replica_that_is_late(late_s: float) -> None:
    clock: Any = Stopped()
    queue, other = DelayQueue(clock), leased_domain(now=clock.now - late_s)

    async def fetch(url: str, **_: object) -> Exchange:
        queue.put(other)  # another domain waits
        return answer(200, bytes(3 * BYTES_PER_S))

    page = Page("https://a.test/1", "a.test", 0, Outcome.DONE, "ok", clock.now)
    builder: Any = AsyncMock(settings=Mock(recrawl_rules=()), out_of_scope=Mock(return_value=None), shapes=Shapes())
    builder.build.return_value = (page, ())
    handling: Any = AsyncMock()
    handling.handle.return_value, handling.with_content.return_value = (page, ()), page
    nobody: Any = Mock()
    nobody.conditions.return_value = ()
    shared, throttle = runtime(clock), throttle_for(clock, DELAY_S)
    http: Any = Mock(fetch=fetch)
    polite_fetch = PoliteFetch(shared, http, throttle)
    visits = UrlVisits(shared, nobody, polite_fetch, throttle, builder, handling, AsyncMock(), nobody)
    turns = Turns(shared, nobody, nobody, queue, nobody, nobody)
    at_hand: Any = Mock(at_hand=lambda _: robots())
    committer: Any = Mock(holds_up=lambda _: False)
    worker = Worker(shared, queue, nobody, turns, committer, at_hand, nobody, throttle, AsyncMock(), visits)
    first = leased_domain("1", "2", now=clock.now)
    queue.put(first)
    await worker.run()
    assert len(queue) == 2
    assert await queue.take() is other
    assert queue.lateness() == pytest.approx(-DELAY_S - (3.0 if late_s else 0.0))
