"""A limit that is set or changed during a crawl, which replicas learn at different times."""

from __future__ import annotations

import pytest

from frontier.budget import AFTER_LEASE_MS, GRACE_MS, PageLimit
from frontier.keys import CrawlKeys
from frontier.scripts import RECOUNT, command, script_call
from frontier.store import RedisStore
from tests.frontier.budget.spending import AT_ONCE, LEASE_MS, MakeBudget, fetch, keep_asking, recount, settle
from tests.frontier.helpers import CountingStore, ManualTime


@pytest.mark.parametrize(
    ("state", "reply", "used"),
    [
        ({}, b"recounted", 8),
        ({"used": 11}, b"recounted", 9),  # somebody has reported a page, which may be one of those that were read
        ({"recounts": 3}, b"outdated", 10),  # somebody has recounted, or has fetched without a permit
    ],
)
async def test_the_counters_apply_only_if_all_needed_permits_since_they_were_read(
    store: RedisStore, keys: CrawlKeys, state: dict[str, int], reply: bytes, used: int
) -> None:
    found = {"used": 10, "held": 0, "recounts": 2, **state}
    await store.send([command("HSET", keys.budget, *[word for pair in found.items() for word in pair])])
    # In two calls: a server that does not know the script carries it out after the rest of its batch.
    assert await store.send([script_call(RECOUNT, [keys.budget], 10, 2, 8)]) == [[reply]]
    (found_used,) = await store.send([command("HGET", keys.budget, "used")])
    assert int(found_used) == used


async def test_a_limit_that_is_set_later_is_one_on_the_whole_crawl(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget
) -> None:
    """Given seven pages without a limit, four of them by a killed replica and one in flight, when the limit is set to ten,
    then three more are fetched."""
    one = budget("one", 0)
    await one.refresh(AT_ONCE, 0)
    await settle(store, keys, 4)
    assert await fetch(one, store, keys, 2) == 2
    assert one.take()
    one.apply(PageLimit(10, 2), LEASE_MS)
    assert one.is_low
    assert not one.take()
    await one.refresh(9, 0)
    await settle(store, keys, 1)
    one.used(1)
    assert await fetch(one, store, keys) == 3
    one.apply(PageLimit(0, 3), LEASE_MS)
    await one.refresh(9, 0)
    assert one.take()


async def test_pages_that_the_counters_lack_after_a_restart_count_if_a_limit_is_set_then(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, time: ManualTime
) -> None:
    """Given a replica that has reported five pages, two of which the server has lost and will be told again, when the limit
    is set to ten, then five more are fetched."""
    one = budget("one", 0)
    await one.refresh(AT_ONCE, 0)
    assert await fetch(one, store, keys, 5) == 5
    await one.refresh(AT_ONCE, 0)
    await settle(store, keys, -2)
    one.apply(PageLimit(10, 2), LEASE_MS)
    await one.refresh(AT_ONCE, 1)
    assert await fetch(one, store, keys) == 5
    await settle(store, keys, 2)
    await recount(one, time)
    assert not one.take()
    assert one.is_exhausted


class Cuttable(CountingStore):
    """A way to Redis that can be cut."""

    is_cut = False

    def is_away(self, node: str) -> bool:
        return self.is_cut


async def test_a_replica_that_was_cut_off_while_a_limit_was_set_reports_before_it_fetches(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, time: ManualTime
) -> None:
    # Given a replica without a limit that could not report for so long that a limit has taken effect without it,
    way = Cuttable(store)
    other, cut = budget("other", 0), budget("cut", 0, way)
    for one in (other, cut):
        await one.refresh(AT_ONCE, 0)
    way.is_cut = True
    other.apply(PageLimit(10, 2), LEASE_MS)
    await keep_asking(other, time, LEASE_MS + AFTER_LEASE_MS + GRACE_MS)
    assert await fetch(other, store, keys) == 10
    # when it is back, then it fetches nothing. If only the node of the budget is away, it goes on.
    assert cut.available
    way.is_cut = False
    assert not cut.take()
    await cut.refresh(AT_ONCE, 1)
    assert not cut.take()
    assert cut.limit == 10


async def test_a_limit_takes_effect_when_all_replicas_know_it(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget
) -> None:
    """Given two replicas without a limit, when one hears of it first, then it gets no permits until the other has heard of
    it, too. The pages that the other has in flight by then count."""
    first, late = budget("first", 0), budget("late", 0)
    for one in (first, late):
        await one.refresh(AT_ONCE, 0)
    first.apply(PageLimit(10, 2), LEASE_MS)
    await first.refresh(AT_ONCE, 1)
    assert first.available == 0
    assert first.is_short
    assert await fetch(late, store, keys, 5) == 5
    assert late.take()
    assert late.take()
    await late.refresh(AT_ONCE, 0)  # its report is answered with the limit
    assert late.limit == 10
    await first.refresh(AT_ONCE, 1)
    assert first.available + late.available <= 3
    pages = 5 + await fetch(first, store, keys)
    await settle(store, keys, 2)
    late.used(2)
    for _ in range(3):
        for one in (first, late):
            await one.refresh(AT_ONCE, 1)
            pages += await fetch(one, store, keys)
    assert pages + 2 == 10


async def test_a_replica_that_joins_with_old_settings_fetches_nothing_without_a_permit(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget
) -> None:
    """Given a replica that read its settings before the limit was set, then its first report tells it the limit."""
    one = budget("one", 10, revision=2)
    await one.refresh(AT_ONCE, 1)
    joining = budget("joining", 0)
    assert not joining.take()
    await joining.refresh(AT_ONCE, 1)
    assert joining.limit == 10
    assert one.available + joining.available <= 10


async def test_a_lower_limit_applies_to_replicas_that_have_not_heard_of_it(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget
) -> None:
    """Given two replicas that hold permits, when only one of them knows that the limit is lower now, then the other gets no
    more, and returns those that are too many."""
    one, other = budget("one", 1_000), budget("other", 1_000)
    for _ in range(2):
        for each in (one, other):
            await each.refresh(AT_ONCE, 1)
    pages = await fetch(one, store, keys, 5) + await fetch(other, store, keys, 5)
    one.apply(PageLimit(12, 2), LEASE_MS)
    await one.refresh(AT_ONCE, 1)
    await other.refresh(AT_ONCE, 1)
    for _ in range(3):
        for each in (one, other):
            pages += await fetch(each, store, keys)
            await each.refresh(AT_ONCE, 1)
    assert pages == 12


async def test_a_limit_waits_for_a_replica_that_was_killed_without_one(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, time: ManualTime
) -> None:
    """Given a replica that fetched without permits and died, then its pages count as soon as its leases have expired."""
    killed, other = budget("killed", 0), budget("other", 0)
    await keep_asking(other, time, GRACE_MS)
    await killed.refresh(AT_ONCE, 0)
    await fetch(killed, store, keys, 4)
    other.apply(PageLimit(10, 2), LEASE_MS)
    await keep_asking(other, time, LEASE_MS + AFTER_LEASE_MS - 500)
    assert not other.available
    await keep_asking(other, time, 1_000)
    assert await fetch(other, store, keys) == 6


async def test_pages_of_a_crawl_that_has_all_of_them_are_found_at_once(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget
) -> None:
    await settle(store, keys, 10)
    again = budget("again", 10)
    await again.refresh(AT_ONCE, 1)
    assert again.is_exhausted
    assert not again.take()
