"""Fixtures of the frontier tests: one shard on a real server, with a manual clock."""

from __future__ import annotations

import pytest

from frontier.counters import Counters
from frontier.dead_letters import DeadLetters
from frontier.queue import Frontier
from frontier.store import RedisStore
from tests.frontier.crawled import Crawled
from tests.frontier.helpers import ManualTime, make_frontier


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


@pytest.fixture
async def crawled(store: RedisStore, crawl_name: str, time: ManualTime) -> Crawled:
    """A crawl with four shards and URLs in every state."""
    made = Crawled(store, crawl_name, time)
    await made.begin(4)
    return made


@pytest.fixture
async def frontier(store: RedisStore, crawl_name: str, time: ManualTime) -> Frontier:
    return await make_frontier(store, crawl_name, time)


@pytest.fixture
def counters(store: RedisStore, frontier: Frontier) -> Counters:
    return Counters(store, frontier.keys)


@pytest.fixture
def letters(store: RedisStore, frontier: Frontier) -> DeadLetters:
    return DeadLetters(store, frontier.keys)
