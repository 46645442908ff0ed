"""Until when a held lease may be used, and which shards are asked."""

from __future__ import annotations

import pytest

from crawler.worker.held_leases import HeldLeases
from frontier.budget import Budget, PageLimit
from frontier.clock import ServerClock
from frontier.keys import CrawlKeys
from frontier.settle import LeaseReply
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime
from tests.worker.test_throttle import runtime

LEASE_MS = 10_000
MARGIN_S = 0.5  # a twentieth of the lease


@pytest.mark.parametrize("limit", [0, 100])
async def test_a_lease_ends_with_the_permits_of_its_pages(store: RedisStore, crawl_name: str, limit: int) -> None:
    """Reports of this replica are lost for eight seconds while its leases could be renewed."""
    time = ManualTime()
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()
    budget = Budget(store, CrawlKeys(crawl_name, 1), clock, "me", PageLimit(limit, 1), LEASE_MS)
    held = HeldLeases(runtime(time, clock), budget)
    await budget.refresh(at_once=4, waiting=0)
    asked_at = time.monotonic()
    assert held.lease_end(asked_at, LEASE_MS) == pytest.approx(asked_at + 10 - MARGIN_S)
    time.ms += 8_000
    renewed_at = time.monotonic()
    expected = renewed_at + 10 - MARGIN_S if limit == 0 else asked_at + 10
    assert held.lease_end(renewed_at, LEASE_MS) == pytest.approx(expected)


@pytest.mark.parametrize("are_empty", [False, True])
def test_none_of_many_shards_waits_for_ever(are_empty: bool) -> None:
    """Though those that were asked are due again before all others had their turn."""
    time = ManualTime()
    held = HeldLeases(runtime(time, ServerClock(time, time.read_ms)))
    held.add_shards(range(1_000))
    if are_empty:
        for shard in range(1_000):
            held.take(LeaseReply(shard, (), None), time.monotonic() + 1, time.monotonic() - 1, 0.5)
    asked: list[int] = []
    for _ in range(16):
        first = held.longest_due(held.due(), calls=64, checks=100)
        asked += first
        now = time.monotonic()
        held.ask_later(first, now, now + 0.5)
        time.ms += 1_000
    assert len(set(asked[:1_000])) == 1_000
