"""A shard that packs queues of more than a few URLs."""

from __future__ import annotations

import pytest

from frontier.queue import Frontier
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, make_frontier
from tests.frontier.packing.queued_domain import SETTINGS, Held


@pytest.fixture
async def frontier(store: RedisStore, crawl_name: str, time: ManualTime) -> Frontier:
    return await make_frontier(store, crawl_name, time, SETTINGS)


@pytest.fixture
def held(store: RedisStore, frontier: Frontier) -> Held:
    return Held(store, frontier)
