"""The budget: used and held permits of all replicas together never pass the limit."""

from __future__ import annotations

import pytest

from frontier.budget import PERMIT_TTL_MS, REPORTED_AT_ONCE, Budget
from frontier.clock import ServerClock
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime


@pytest.fixture
async def clock(time: ManualTime) -> ServerClock:
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()
    return clock


async def test_two_replicas_share_one_limit(store: RedisStore, crawl_name: str, clock: ServerClock) -> None:
    one, two = (Budget(store, f"{{{crawl_name}}}:budget", clock, name, 10) for name in ("one", "two"))
    fetched = 0
    for _ in range(20):
        for budget in (one, two):
            await budget.refresh(4)
            while budget.take():
                budget.used()
                fetched += 1
    assert fetched == 10
    await one.refresh(4)
    assert one.is_spent


async def test_a_permit_that_brought_no_page_comes_back(store: RedisStore, crawl_name: str, clock: ServerClock) -> None:
    budget = Budget(store, f"{{{crawl_name}}}:budget", clock, "one", 1)
    await budget.refresh(1)
    assert budget.take()
    assert not budget.take()
    budget.give_back()
    assert budget.take()
    budget.used()
    await budget.refresh(1)
    assert budget.is_spent
    assert not budget.take()


async def test_the_permits_of_a_lost_replica_lapse(
    store: RedisStore, crawl_name: str, clock: ServerClock, time: ManualTime
) -> None:
    key = f"{{{crawl_name}}}:budget"
    lost, other = Budget(store, key, clock, "lost", 5), Budget(store, key, clock, "other", 5)
    await lost.refresh(5)
    await other.refresh(5)
    assert not other.take()
    time.ms += PERMIT_TTL_MS + 1
    await other.refresh(5)
    assert other.take()


async def test_without_a_limit_redis_is_hardly_asked(store: RedisStore, crawl_name: str, clock: ServerClock) -> None:
    budget = Budget(store, f"{{{crawl_name}}}:budget", clock, "one", 0)
    before = store.round_trips
    for _ in range(REPORTED_AT_ONCE):
        await budget.refresh(5)
        assert budget.take()
        budget.used()
    assert not budget.is_spent
    assert store.round_trips == before
    await budget.refresh(5)
    assert store.round_trips - before in (1, 2)  # one more where the server has to be told the script


async def test_a_limit_that_is_set_later_is_one_on_the_whole_crawl(
    store: RedisStore, crawl_name: str, clock: ServerClock
) -> None:
    """Given seven pages without a limit, four of them by a replica that has left and one in flight, when the limit becomes
    ten, then there are three more."""
    gone, budget = (Budget(store, f"{{{crawl_name}}}:budget", clock, name, 0) for name in ("gone", "one"))
    for one, pages in ((gone, 4), (budget, 2)):
        for _ in range(pages):
            assert one.take()
            one.used()
    await gone.leave()
    assert budget.take()
    budget.limit = 10
    assert not budget.take()
    await budget.refresh(9)
    budget.used()
    assert [budget.take() for _ in range(4)] == [True, True, True, False]
    budget.limit = 0
    assert budget.take()
