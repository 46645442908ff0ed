"""The page budget: pages and permits of all replicas never exceed the limit, and the crawl reaches it exactly."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import pytest

from frontier.budget import (
    AFTER_LEASE_MS,
    GAP_MS,
    GRACE_MS,
    PERIOD_S,
    PERIODS_A_LAPSE,
    SURE_MS,
    Budget,
    PageLimit,
    leased_ms,
    permits_wanted,
)
from frontier.clock import ServerClock
from frontier.errors import RedisAway
from frontier.keys import CrawlKeys
from frontier.scripts import RECOUNT, Call, Reply, command, script_call
from frontier.store import RedisStore, Store
from tests.frontier.budget.spending import AT_ONCE, LEASE_MS, MakeBudget, fetch, keep_asking, recount, settle
from tests.frontier.helpers import CountingStore, ManualTime, ask


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


# A limit that is set or changed during a crawl, which replicas learn at different times.


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


# Reports that arrive late, and reports and permits that a server has forgotten.


LIMIT = 20
QUIET_MS = 3_000


class Restarted(CountingStore):
    """A server with a run ID that a test may change."""

    run = "before"

    def run_of(self, key: str) -> str:
        return self.run


class Recorder(CountingStore):
    """Keeps the last calls, so that they can arrive once more."""

    last: Sequence[Call] = ()

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        self.last = calls
        return await super().send(calls)


async def test_a_time_in_which_the_counters_could_not_be_read_does_not_make_them_sure(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, time: ManualTime
) -> None:
    """Given two pages of a limit of ten that a node has lost, when it hangs, then they count until it has answered for a
    while, in which it is told again of them."""
    one = budget("one", 10)
    await one.refresh(AT_ONCE, 1)
    while await fetch(one, store, keys):
        await one.refresh(AT_ONCE, 1)
    await settle(store, keys, -2)
    await one.recount()
    time.ms += 2 * SURE_MS  # without an answer
    await one.recount()
    await one.refresh(AT_ONCE, 1)
    assert not one.available
    await settle(store, keys, 2)
    await recount(one, time)
    assert not one.available
    assert one.is_exhausted


async def test_a_report_that_arrives_after_a_later_one_changes_nothing(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget
) -> None:
    """Given a call whose sender gave up on it and asked again, when it arrives at last, then no permit is lost or won."""
    server = Recorder(store)
    one = budget("one", LIMIT, server)
    await one.refresh(AT_ONCE, AT_ONCE)
    late = server.last
    await fetch(one, store, keys, 3)
    await one.refresh(AT_ONCE, AT_ONCE)
    known = await ask(store, "HGETALL", keys.budget)
    await store.send(late)
    assert await ask(store, "HGETALL", keys.budget) == known


@pytest.mark.parametrize("is_known", [False, True])
async def test_nobody_gets_permits_until_all_had_time_to_report(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, time: ManualTime, is_known: bool
) -> None:
    server = Restarted(store)
    one, other = budget("one", LIMIT, server), budget("other", LIMIT, server)
    # Given a replica that holds permits and has used some, all of which the server has forgotten,
    await other.refresh(0, 0)
    if is_known:
        await one.refresh(AT_ONCE, 0)
    kept = await ask(store, "DUMP", keys.budget), await ask(store, "DUMP", keys.takers)
    await one.refresh(AT_ONCE, AT_ONCE)
    pages = await fetch(one, store, keys, 3)
    await one.refresh(AT_ONCE, AT_ONCE)
    assert one.take()
    for key, dump in zip((keys.budget, keys.takers), kept, strict=True):
        await ask(store, "DEL", key)
        if dump is not None:
            await ask(store, "RESTORE", key, 0, dump)
    server.run = "after"
    # when others ask first, then they get nothing, and it keeps the permit of its page in progress.
    late = budget("late", LIMIT, server)
    await keep_asking(late, time, QUIET_MS // 2)
    assert late.available == 0
    await one.refresh(AT_ONCE, 0)
    await settle(store, keys, 1)
    one.used(1)
    # Later there are permits again, and as many pages as the limit says.
    await keep_asking(late, time, QUIET_MS)
    pages += 1
    for _ in range(20):
        for replica in (one, late):
            pages += await fetch(replica, store, keys)
            await keep_asking(replica, time, 500)
    assert pages == LIMIT


# How often replicas report: seldom where nothing depends on it, and less often where there are many.


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


# Replies that are lost, and random courses of events with replicas that are killed.


async def test_a_lost_reply_loses_no_permit(store: RedisStore, keys: CrawlKeys, budget: MakeBudget) -> None:
    """A report that is repeated counts once."""

    class Deaf(CountingStore):
        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            replies = await super().send(calls)
            if self.calls["reserve_budget"] == 3:
                raise RedisAway("lost on the way back")
            return replies

    one = budget("one", 10, Deaf(store))
    await one.refresh(AT_ONCE, 1)
    assert await fetch(one, store, keys, 4) == 4
    with pytest.raises(RedisAway):
        await one.refresh(AT_ONCE, 0)
    await one.refresh(AT_ONCE, 0)
    assert repr(one) == "<Budget used=4/10 permits=6>"


class Unreliable(CountingStore):
    """Loses calls and replies of `reserve_budget` and `recount`, which may arrive `late`. Calls `meanwhile` before and
    after an exchange."""

    def __init__(self, store: Store, rng: random.Random, meanwhile: Callable[[], Awaitable[None]]) -> None:
        super().__init__(store)
        self._rng = rng
        self._meanwhile = meanwhile
        self.late: list[Sequence[Call]] = []

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        await self._meanwhile()
        chance = self._rng.random() if calls[0].script else 1.0
        if chance < 0.1:
            self.late.append(calls)
            raise RedisAway("lost on the way")
        replies = await super().send(calls)
        await self._meanwhile()
        if chance < 0.2:
            raise RedisAway("lost on the way back")
        if chance < 0.3:
            self.late.append(calls)
        return replies

    async def echo(self) -> None:
        """Deliver a call that was lost or already executed."""
        if self.late:
            await super().send(self.late.pop(self._rng.randrange(len(self.late))))


class Course:
    """A crawl of random steps: replicas take, settle, refresh, die and join, and calls to Redis are lost or delayed. The
    limit changes, and replicas learn of it by and by. `most`: how many pages there may be in the end. It is more than the
    limit if as many were requested before all replicas had heard of it."""

    def __init__(self, rng: random.Random, store: RedisStore, keys: CrawlKeys, budget: MakeBudget, limit: int) -> None:
        self._rng = rng
        self._store = store
        self._keys = keys
        self._budget = budget
        self.limit = self.most = limit
        self.pages = 0
        self._limits = [PageLimit(limit, 1)]
        self._born = 0
        self._in_flight: dict[Budget, int] = {}
        self._stores: dict[Budget, Unreliable] = {}
        self._asking: set[Budget] = set()
        self.join()

    def join(self) -> None:
        self._born += 1
        through = Unreliable(self._store, self._rng, self._meanwhile)
        limit = self._rng.choice(self._limits[-2:])  # it may have read its settings some time ago
        one = self._budget(f"r{self._born}", limit.pages, through, limit.revision)
        self._in_flight[one], self._stores[one] = 0, through

    async def _meanwhile(self) -> None:
        if len(self._asking) < 3:
            for _ in range(self._rng.choice((0, 0, 1, 5, 10))):
                await self.step()

    async def step(self) -> None:
        """Do one random step with a random replica."""
        rng = self._rng
        one = rng.choice(list(self._in_flight))
        steps = {"take": 40, "settle": 8, "fail": 4, "refresh": 20, "echo": 5, "learn": 3, "die": 0.2, "join": 0.5}
        match rng.choices(list(steps), list(steps.values()))[0]:
            case "learn":
                one.apply(self._limits[-1], LEASE_MS)
            case "take":
                self._in_flight[one] += one.take()
                if not one.limit:  # it has not heard of one
                    self.most = max(self.most, self.pages + self.in_flight)
            case "settle" if self._in_flight[one]:
                await self._settle(one, rng.randint(1, self._in_flight[one]))
            case "fail" if self._in_flight[one]:
                self._in_flight[one] -= 1
                one.give_back()
            case "refresh":
                await self._refresh(one)
            case "echo":
                await rng.choice(list(self._stores.values())).echo()
            case "die" if one not in self._asking:
                del self._in_flight[one]
                self.join()
            case "join" if len(self._in_flight) < 5:
                self.join()

    async def _settle(self, one: Budget, pages: int) -> None:
        self._in_flight[one] -= pages
        self.pages += pages
        await settle(self._store, self._keys, pages)
        if self._rng.random() < 0.01 and one not in self._asking:
            del self._in_flight[one]  # killed before it could count them
            self.join()
        else:
            one.used(pages)

    async def _refresh(self, one: Budget) -> None:
        if one in self._asking:
            return
        self._asking.add(one)
        try:
            await one.refresh(AT_ONCE, self._rng.randint(0, 2))
            if one.is_used_up:
                await one.recount()
        except RedisAway:
            pass
        self._asking.remove(one)

    async def end(self) -> None:
        """Let the live replicas settle their pages in flight and report them."""
        for one in list(self._in_flight):
            if pages := self._in_flight.get(one, 0):
                await self._settle(one, pages)
            await self._refresh(one)

    @property
    def in_flight(self) -> int:
        return sum(self._in_flight.values())

    def set_limit(self, pages: int) -> None:
        """Set the limit. Replicas learn of it by and by."""
        self.limit = self.most = pages
        self._limits.append(PageLimit(pages, len(self._limits) + 1))

    @property
    def is_over(self) -> bool:
        return self.limit > 0 and all(one.limit == self.limit and one.is_exhausted for one in self._in_flight)


STEPS = 1_500


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_happens_there_are_exactly_as_many_pages(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, time: ManualTime, seed: int
) -> None:
    """Most errors would occur near the limit, so it is raised slightly each time it is reached, or removed for a time."""
    rng = random.Random(seed)
    course = Course(rng, store, keys, budget, limit=5)
    met = 0
    for number in range(20 * STEPS):
        time.ms += rng.choice((0, 5, 20))
        await course.step()
        assert not course.limit or course.pages <= course.most
        if rng.random() < 0.01:
            await course.end()
        if course.is_over:
            assert course.limit <= course.pages
            met += course.pages == course.limit
            if number > STEPS:
                break
            course.set_limit(rng.choice((0, *(course.pages + by for by in (1, 3, 8, 40)))))
        if not course.limit and rng.random() < 0.02:
            course.set_limit(course.pages + course.in_flight + 60)
    assert course.is_over
    assert met
