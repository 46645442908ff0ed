"""Leased domains without a permit wait outside the queue, and return to it as soon as there is a permit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from crawler.events import Events, ViewAdopted
from crawler.worker.allowance import GATHER_S, Allowance
from crawler.worker.delay_queue import DelayQueue
from crawler.worker.leased_domain import LeasedDomain
from frontier.budget import Budget, PageLimit
from frontier.clock import ServerClock, SystemClock
from frontier.keys import CrawlKeys
from frontier.peers import Member, View
from frontier.scripts import command
from frontier.store import RedisStore
from tests.several_servers import until
from tests.worker.test_throttle import runtime
from tests.worker.test_worker import leased_domain


@pytest.fixture
def queue() -> DelayQueue[LeasedDomain]:
    return DelayQueue(SystemClock())


async def made(
    store: RedisStore,
    crawl_name: str,
    queue: DelayQueue[LeasedDomain],
    name: str,
    limit: int,
    replicas: Callable[[], int] = lambda: 1,
) -> tuple[Allowance, Events]:
    clock = SystemClock()
    server_clock = ServerClock(clock, store.time_ms)
    await server_clock.refresh()
    budget = Budget(store, CrawlKeys(crawl_name, 1), server_clock, name, PageLimit(limit, 1))
    shared = runtime(clock, server_clock)
    return Allowance(shared, budget, queue, 4, replicas), shared.events


async def test_a_domain_that_found_no_permit_has_its_turn_when_one_is_given_back(
    store: RedisStore, crawl_name: str, queue: DelayQueue[LeasedDomain]
) -> None:
    allowance, _ = await made(store, crawl_name, queue, "one", limit=1)
    await allowance.budget.refresh(4, 1)
    assert allowance.take()
    closed, first, second = (leased_domain(0.0, "1") for _ in range(3))
    for one in (closed, first, second):
        assert not allowance.take()
        allowance.wait(one)
    assert allowance.is_awaited
    assert len(queue) == 0
    closed.close()
    allowance.give_back()  # goes to the leased domain that has waited the longest, although its lease was returned
    assert len(queue) == 0
    assert allowance.take()
    allowance.give_back()
    assert await queue.take() is first


async def test_permits_are_fetched_with_the_first_view_and_not_before(
    store: RedisStore, crawl_name: str, queue: DelayQueue[LeasedDomain]
) -> None:
    """Before it, a replica may not know the time, and would end the permits of others."""
    replicas = 0
    allowance, events = await made(store, crawl_name, queue, "one", limit=2, replicas=lambda: replicas)
    filling = asyncio.create_task(allowance.run(lambda: None))
    await asyncio.sleep(2 * GATHER_S)
    assert await store.send([command("EXISTS", CrawlKeys(crawl_name, 1).budget)]) == [0]
    replicas = 1
    events.emit(ViewAdopted(View(1, (Member("one", 1),), "one"), 1, 1, 0))
    await until(allowance.take)
    filling.cancel()


async def test_domains_have_their_turn_when_another_replica_returns_its_permits(
    store: RedisStore, crawl_name: str, queue: DelayQueue[LeasedDomain]
) -> None:
    """Waiting uses no turns."""
    other, _ = await made(store, crawl_name, queue, "other", limit=2)
    await other.budget.refresh(4, 1)
    allowance, _ = await made(store, crawl_name, queue, "one", limit=2)
    filling = asyncio.create_task(allowance.run(lambda: None))
    waiting = leased_domain(0.0, "1")
    assert not allowance.take()
    allowance.wait(waiting)
    await other.budget.leave()
    async with asyncio.timeout(60):
        assert await queue.take() is waiting
    assert allowance.take()
    assert not allowance.is_awaited
    filling.cancel()
