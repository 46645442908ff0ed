"""Exactly one replica does a duty in an interval. Another takes over if it dies before it has reported."""

from __future__ import annotations

import asyncio

import pytest

from frontier.clock import ServerClock
from frontier.peers import CLAIM_MS, Duties
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime

EVERY_S = 3600.0


@pytest.fixture
def time() -> ManualTime:
    return ManualTime(ms=3_600_000 * 1000)


@pytest.fixture
async def replicas(store: RedisStore, crawl_name: str, time: ManualTime) -> list[Duties]:
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()
    return [Duties(store, f"{{{crawl_name}}}:duties", clock, f"r{number}") for number in range(5)]


async def test_one_of_many_that_ask_at_once_gets_it(replicas: list[Duties]) -> None:
    interval = replicas[0].interval_of(EVERY_S)
    claims = await asyncio.gather(*(replica.claim("seeds", interval) for replica in replicas))
    assert sum(claims) == 1


async def test_done_is_done_until_the_next_interval(replicas: list[Duties], time: ManualTime) -> None:
    one, two, *_ = replicas
    interval = one.interval_of(EVERY_S)
    assert await one.claim("seeds", interval)
    assert await one.report_done("seeds", interval)
    time.ms += CLAIM_MS * 10
    assert not await two.claim("seeds", interval)
    assert not await one.claim("seeds", interval)
    time.ms += int(EVERY_S * 1000)
    assert await two.claim("seeds", two.interval_of(EVERY_S))


async def test_a_dead_holder_is_replaced_and_its_late_report_counts_for_nothing(
    replicas: list[Duties], time: ManualTime
) -> None:
    one, two, *_ = replicas
    interval = one.interval_of(EVERY_S)
    assert await one.claim("seeds", interval)
    time.ms += CLAIM_MS - 1
    assert not await two.claim("seeds", interval)
    time.ms += 1
    assert await two.claim("seeds", interval)
    assert not await one.report_done("seeds", interval)
    assert await two.report_done("seeds", interval)


async def test_a_holder_that_keeps_its_claim_is_not_replaced(replicas: list[Duties], time: ManualTime) -> None:
    one, two, *_ = replicas
    interval = one.interval_of(EVERY_S)
    for _ in range(4):
        assert await one.claim("seeds", interval)
        time.ms += CLAIM_MS - 1
    assert not await two.claim("seeds", interval)


async def test_duties_do_not_stand_in_each_others_way(replicas: list[Duties]) -> None:
    one, two, *_ = replicas
    interval = one.interval_of(EVERY_S)
    assert await one.claim("seeds", interval)
    assert await two.claim("sitemap", interval)
