"""How often replicas report: seldom where nothing depends on it, and less often where there are many."""

from __future__ import annotations

from collections import Counter

import pytest

from frontier.budget import AFTER_LEASE_MS, PERIODS_A_LAPSE, Budget, PageLimit
from frontier.clock import ServerClock
from frontier.keys import CrawlKeys
from frontier.store import RedisStore
from tests.frontier.budget.spending import AT_ONCE
from tests.frontier.helpers import CountingStore, ManualTime

LONG_LEASE_MS = 30_000


class Restarts(CountingStore):
    """A store whose server can be another run."""

    run = ""

    def run_of(self, key: str) -> str:
        return self.run or super().run_of(key)


@pytest.fixture
def counting(store: RedisStore) -> Restarts:
    return Restarts(store)


async def reports(one: Budget, counting: Restarts, time: ManualTime, replicas: int, waiting: int = 0) -> int:
    """The reports of `one` in ten seconds, if it is asked each tenth of a second."""
    counting.calls = Counter()
    for _ in range(100):
        if one.is_due(replicas, waiting):
            await one.refresh(AT_ONCE, waiting)
        time.ms += 100
    return counting.calls["reserve_budget"]


@pytest.mark.parametrize(
    ("limit", "replicas", "waiting", "expected"),
    [(0, 1, 0, 2), (1_000_000, 1, 0, 10), (1_000_000, 1_000, 0, 5), (1_000_000, 1, 1, 50), (1_000_000, 1_000, 1, 5)],
)
async def test_all_replicas_together_report_a_limited_number_of_times(
    counting: Restarts,
    keys: CrawlKeys,
    clock: ServerClock,
    time: ManualTime,
    limit: int,
    replicas: int,
    waiting: int,
    expected: int,
) -> None:
    one = Budget(counting, keys, clock, "one", PageLimit(limit, 1), LONG_LEASE_MS)
    await one.refresh(AT_ONCE, 0)
    time.ms += 10_000
    assert abs(await reports(one, counting, time, replicas, waiting) - expected) <= 1


async def test_a_replica_reports_often_in_the_time_in_which_its_permits_expire(
    counting: Restarts, keys: CrawlKeys, clock: ServerClock, time: ManualTime
) -> None:
    one = Budget(counting, keys, clock, "one", PageLimit(1_000_000, 1), lease_ms=4_000)
    await one.refresh(AT_ONCE, 0)
    lapse_s = 4 + AFTER_LEASE_MS / 1000
    assert await reports(one, counting, time, replicas=100_000) >= PERIODS_A_LAPSE * 10 / lapse_s - 2


async def test_a_replica_reports_to_another_run_of_the_server_at_once(
    counting: Restarts, keys: CrawlKeys, clock: ServerClock, time: ManualTime
) -> None:
    """It may have forgotten the last reports, and gives permits again as soon as all replicas can have reported."""
    one = Budget(counting, keys, clock, "one", PageLimit(0, 1), LONG_LEASE_MS)
    await one.refresh(AT_ONCE, 0)
    assert not one.is_due(1, 0)
    counting.run = "another"
    assert one.is_due(1, 0)
    await one.refresh(AT_ONCE, 0)
    assert not one.is_due(1, 0)
