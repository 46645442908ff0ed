"""A crawl with a page limit, and replicas that share it."""

from __future__ import annotations

import pytest

from frontier.budget import Budget, PageLimit
from frontier.clock import ServerClock
from frontier.keys import CrawlKeys
from frontier.store import RedisStore, Store
from tests.frontier.budget.spending import LEASE_MS, MakeBudget
from tests.frontier.helpers import ManualTime


@pytest.fixture
async def clock(time: ManualTime) -> ServerClock:
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()
    return clock


@pytest.fixture
def keys(crawl_name: str) -> CrawlKeys:
    return CrawlKeys(crawl_name, shards=2)


@pytest.fixture
def budget(store: RedisStore, keys: CrawlKeys, clock: ServerClock) -> MakeBudget:
    def make(replica: str, limit: int, through: Store = store, revision: int = 1) -> Budget:
        return Budget(through, keys, clock, replica, PageLimit(limit, revision), LEASE_MS)

    return make
