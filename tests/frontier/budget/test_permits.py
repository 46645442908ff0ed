"""The page budget: pages and permits of all replicas never exceed the limit, and the crawl reaches it exactly."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from frontier.budget import AFTER_LEASE_MS, GAP_MS, GRACE_MS, PERIOD_S, SURE_MS, leased_ms, permits_wanted
from frontier.keys import CrawlKeys
from frontier.scripts import Call, Reply
from frontier.store import RedisStore
from tests.frontier.budget.spending import AT_ONCE, LEASE_MS, MakeBudget, fetch, keep_asking, recount, settle
from tests.frontier.helpers import CountingStore, ManualTime


@pytest.mark.parametrize(
    ("in_use", "drawn", "elapsed_s", "wanted"),
    [
        (0, 0, 1.0, 0),
        (5, 0, 1.0, 5),  # nothing was asked for: the surplus goes back
        (0, 1, 0.001, 64 + 10),
        (7, 500, 1.0, 7 + 64 + 1_000),
        (7, 250, 0.5, 7 + 64 + 1_000),
    ],
)
def test_permits_are_held_for_two_periods_at_the_latest_rate(
    in_use: int, drawn: int, elapsed_s: float, wanted: int
) -> None:
    assert permits_wanted(in_use, drawn, elapsed_s, 64) == wanted


@pytest.mark.parametrize(("lease_ms", "expected"), [(1_000, 15_000), (30_000, 30_000)])
def test_domains_stay_leased_to_a_dead_replica_until_others_own_its_shards(lease_ms: int, expected: int) -> None:
    assert leased_ms(lease_ms, interval_s=5.0) == expected


async def test_a_limit_that_is_far_away_refuses_nobody_and_costs_a_call_a_period(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, time: ManualTime
) -> None:
    """Given continuous page requests, when the budget is refreshed whenever it is low, then no page has to wait, at any
    rate."""
    counting = CountingStore(store)
    one = budget("one", 1_000_000, counting)
    await one.refresh(AT_ONCE, 1)
    pages = 0
    for pages_a_ms in (1, 3):
        for _ in range(10_000):
            for _ in range(pages_a_ms):
                assert one.take()
                one.used(1)
                pages += 1
            time.ms += 1
            if one.is_low:
                await one.refresh(AT_ONCE, 0)
    assert pages == 40_000
    assert counting.calls["reserve_budget"] < 2 * 20 / PERIOD_S + 10


async def test_far_from_the_limit_an_idle_replica_has_permits_for_its_first_pages(
    store: RedisStore, budget: MakeBudget, time: ManualTime
) -> None:
    """Given a replica that has requested nothing for some periods, when it leases domains, then all its requests can start
    at once, and as many again until more permits arrive. It asks for those as soon as its requests have started."""
    one = budget("one", 1_000_000)
    for _ in range(3):
        await one.refresh(AT_ONCE, 0)
        assert not one.is_low
        time.ms += 1_000
    for _ in range(AT_ONCE):
        assert one.take()
    assert one.is_low
    for _ in range(AT_ONCE):
        assert one.take()


async def test_without_a_limit_no_page_waits_after_the_first_report(store: RedisStore, budget: MakeBudget) -> None:
    """Before it, a limit may have been set of which this replica has not heard."""
    counting = CountingStore(store)
    one = budget("one", 0, counting)
    assert one.is_low
    assert not one.take()
    await one.refresh(AT_ONCE, 0)
    for _ in range(1_000):
        assert one.take()
        one.used(1)
        assert not one.is_low
    assert not one.is_exhausted
    assert counting.calls == {"reserve_budget": 1}


async def test_a_permit_that_brought_no_page_comes_back(store: RedisStore, keys: CrawlKeys, budget: MakeBudget) -> None:
    one = budget("one", 1)
    await one.refresh(AT_ONCE, 1)
    assert one.take()
    assert not one.take()
    one.give_back()
    assert await fetch(one, store, keys) == 1
    assert not one.take()
    await one.refresh(AT_ONCE, 0)
    assert one.is_used_up
    await one.recount()
    assert one.is_exhausted


@pytest.mark.parametrize("replicas", [2, 3, 8])
async def test_what_is_left_near_the_limit_is_shared(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, replicas: int
) -> None:
    """Given a replica that holds all permits, when others want some, then it keeps its share, and all get permits."""
    first, *others = [budget(str(number), 800) for number in range(replicas)]
    for _ in range(2):
        await first.refresh(800, 1)
    assert first.available == 800
    for one in others:
        await one.refresh(800, 1)
        assert one.available == 0
        assert one.is_short
    for _ in range(3):
        for one in (first, *others):
            await one.refresh(800, 1)
    free = [one.available for one in (first, *others)]
    assert min(free) >= 800 // replicas - replicas
    assert sum(free) <= 800


async def test_an_idle_replica_gives_its_permits_back_and_does_not_count(budget: MakeBudget, time: ManualTime) -> None:
    idle, busy = budget("idle", 100), budget("busy", 100)
    await idle.refresh(40, 1)
    assert idle.available > 0
    time.ms += 1_000
    await idle.refresh(40, 0)
    assert idle.available == 0
    await busy.refresh(100, 1)
    assert busy.available == 100


async def test_a_replica_keeps_its_permits_while_it_waits_for_an_answer(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget
) -> None:
    """Pages that start and end during a call use permits that no other replica gets."""

    class Meanwhile(CountingStore):
        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            replies = await super().send(calls)
            taken = 0
            while one.take():
                taken += 1
            one.used(taken)
            self.calls["page"] += taken
            return replies

    slow = Meanwhile(store)
    one, other = budget("one", 30, slow), budget("other", 30)
    pages = 0
    for _ in range(20):
        await one.refresh(AT_ONCE, 1)
        await other.refresh(AT_ONCE, 1)
        pages += await fetch(other, store, keys, 1)
    assert pages + slow.calls["page"] <= 30


async def test_the_permits_of_a_lost_replica_come_back_with_its_leases(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, time: ManualTime
) -> None:
    """Given a replica that died with five permits, two of them used for unreported pages, when its leases have expired,
    then the others can fetch three more pages, by the crawl's counters."""
    lost, other = budget("lost", 5), budget("other", 5)
    await keep_asking(other, time, GRACE_MS)
    await fetch(other, store, keys, 0)
    await other.leave()
    await lost.refresh(AT_ONCE, 1)
    assert await fetch(lost, store, keys, 2) == 2
    await keep_asking(other, time, LEASE_MS + AFTER_LEASE_MS - 500)
    assert not other.available
    assert not other.is_used_up
    await keep_asking(other, time, 1_000)
    assert other.is_used_up
    await recount(other, time)
    await other.refresh(AT_ONCE, 1)
    assert await fetch(other, store, keys) == 3
    await other.refresh(AT_ONCE, 1)
    await other.recount()
    assert other.is_exhausted


async def test_counters_that_lack_pages_for_a_moment_do_not_correct_the_count(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, time: ManualTime
) -> None:
    """Given a crawl at its limit, when the server is restarted and lacks a page until its replica settles it again, then
    nobody gets a permit for another one."""
    one = budget("one", 5)
    await one.refresh(AT_ONCE, 1)
    assert await fetch(one, store, keys) == 5
    await settle(store, keys, -1)  # as after a restart
    await one.refresh(AT_ONCE, 1)
    for _ in range(4):
        assert one.is_used_up
        await one.recount()
        time.ms += SURE_MS // 4 - 1
        await one.refresh(AT_ONCE, 1)
    assert not one.available
    await settle(store, keys, 1)
    await recount(one, time)
    await one.refresh(AT_ONCE, 1)
    assert not one.available
    assert one.is_exhausted


async def test_a_replica_that_slept_has_no_permits_when_it_wakes_up(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, time: ManualTime
) -> None:
    """Given one that was taken for dead, and whose permits others have used since, when it reports again, then it has none
    left, and a request that was under way all the time brings none back when it fails."""
    slept, other = budget("slept", 5), budget("other", 5)
    await keep_asking(other, time, GRACE_MS)
    await other.leave()
    await slept.refresh(AT_ONCE, 1)
    assert slept.available == 5
    assert slept.take()
    await keep_asking(other, time, LEASE_MS + AFTER_LEASE_MS + 500)
    await recount(other, time)
    await other.refresh(AT_ONCE, 1)
    assert await fetch(other, store, keys) == 5
    await other.refresh(AT_ONCE, 1)
    await slept.refresh(AT_ONCE, 1)
    slept.give_back()
    assert not slept.available
    await slept.refresh(AT_ONCE, 1)
    assert not slept.available


async def test_nobody_is_taken_for_dead_when_redis_was_away(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, time: ManualTime
) -> None:
    """The first replica to reconnect does not expire the permits of the others until they could reconnect, too."""
    one, other = budget("one", 20), budget("other", 20)
    await keep_asking(one, time, GRACE_MS)
    await one.refresh(AT_ONCE, 0)
    await other.refresh(AT_ONCE, 1)
    held = other.available
    time.ms += GAP_MS + LEASE_MS + AFTER_LEASE_MS
    assert other.available == 0  # until it has been answered again: it may be taken for dead
    for _ in range(3):
        await one.refresh(AT_ONCE, 1)
        assert "used=0/20" in repr(one)
        time.ms += 1_000
    await other.refresh(AT_ONCE, 1)
    assert 0 < other.available <= held
    assert one.available + other.available <= 20
