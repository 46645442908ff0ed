"""A worker's turn, between a schedule and rests that are real and a web, a frontier and an archive that are not."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from msgspec.structs import replace

from crawler.events import Events
from crawler.page import Exchange, Outcome, Page
from crawler.worker.delay_queue import OCTETS_PER_S, Schedule
from crawler.worker.visit import Visit
from crawler.worker.worker import Turns
from frontier.entries import Entry
from frontier.queue import Lease
from tests.worker.test_throttle import Stopped, answer, rests, robots

DELAY_S = 1.0


def visit(now: float, *names: str) -> Visit:
    entries = tuple(Entry(f"https://a.test/{name}", "a.test") for name in names)
    return Visit(Lease("a.test", 0, 1, 0, 0, "", entries), deadline=2e6, now=now)


@pytest.mark.parametrize("late_s", [0.0, 5.0])
async def test_the_domain_of_a_large_body_gives_way_in_a_replica_that_is_late(late_s: float) -> None:
    clock: Any = Stopped()
    schedule: Schedule[Visit] = Schedule(clock)
    large = replace(answer(b""), status=200, headers=(), body=bytes(3 * OCTETS_PER_S))

    async def fetch(visit_: Visit, url: str) -> Exchange:
        schedule.put(visit(clock.now), clock.now - late_s)  # another domain waits
        return large

    page = Page("https://a.test/1", "a.test", 0, Outcome.DONE, "ok", clock.now)
    ways: Any = (SimpleNamespace(fetch=fetch, pace=AsyncMock()), AsyncMock())
    desk, builder = AsyncMock(), AsyncMock()
    desk.known_for.return_value, builder.build.return_value = robots(), (page, ())
    control: Any = SimpleNamespace(rules=SimpleNamespace(blocked=()))
    politely = rests(clock, DELAY_S)
    turns = Turns(
        schedule, Mock(), AsyncMock(), ways, desk, politely, builder, Mock(), control, Events(), (clock, clock), 3
    )
    schedule.put(visit(clock.now, "1", "2"), clock.now)
    worker = asyncio.create_task(turns.work())
    for _ in range(20):
        await asyncio.sleep(0)
    worker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await worker
    assert len(schedule) == 1
    assert schedule.lateness() == pytest.approx(-DELAY_S - (3.0 if late_s else 0.0))
