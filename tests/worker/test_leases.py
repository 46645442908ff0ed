"""Leased domains: until when they may be used, which shards are asked, and in which order domains have their turns."""

from __future__ import annotations

import asyncio

import pytest

from crawler.worker.commit import LeaseReport, settlement
from crawler.worker.leases import BEHIND_S, BYTES_PER_S, DelayQueue, HeldLeases, LeasedDomain
from frontier.budget import Budget, PageLimit
from frontier.clock import ServerClock, SystemClock
from frontier.keys import CrawlKeys
from frontier.settle import Lease, LeaseReply
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, entry
from tests.worker.helpers import Stopped, leased_domain, runtime, server_clock_of

LEASE_MS = 10_000
MARGIN_S = 0.5  # a twentieth of the lease


@pytest.mark.parametrize("limit", [0, 100])
async def test_a_lease_ends_with_the_permits_of_its_pages(store: RedisStore, crawl_name: str, limit: int) -> None:
    """Reports of this replica are lost for eight seconds while its leases could be renewed."""
    time = ManualTime()
    clock = await server_clock_of(time)
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


def test_the_delay_is_reported_only_after_a_response() -> None:
    """Before, the stored one is newer: an operator may have changed it since the lease."""
    clock, leased = Stopped(), leased_domain()
    assert settlement(runtime(clock), leased, LeaseReport()).delay_ms is None
    leased.start_delay(1_000, clock.monotonic())
    assert settlement(runtime(clock), leased, LeaseReport()).delay_ms == 1_000


# the queue


def domain(due: float, body_bytes: int = 0) -> LeasedDomain:
    leased = leased_domain(now=due)
    leased.body_bytes = body_bytes
    return leased


def queue_of(clock: ManualTime, *domains: LeasedDomain) -> DelayQueue:
    queue = DelayQueue(clock)
    for leased in domains:
        queue.put(leased)
    return queue


async def test_an_urgent_domain_is_taken_before_those_that_are_due_longer() -> None:
    clock = ManualTime()
    now = clock.monotonic()
    urgent = leased_domain(now=now)
    urgent.pending.append(entry(priority=1.0))
    late, later = domain(now - 9), domain(now + 1)
    queue = queue_of(clock, late, later, urgent)
    assert [await queue.take() for _ in range(2)] == [urgent, late]
    urgent.next_at = now + 2
    queue.put(urgent)
    clock.ms += 1_000
    assert await queue.take() is later


async def waiting_takers(queue: DelayQueue, count: int) -> list[asyncio.Task[LeasedDomain]]:
    takers = [asyncio.create_task(queue.take()) for _ in range(count)]
    await asyncio.sleep(0)
    assert queue.idle_workers == count
    return takers


async def test_hands_out_the_domain_longest_due_without_those_that_were_removed() -> None:
    first, second, removed = domain(8.0), domain(9.0), domain(7.5)
    queue = queue_of(ManualTime(ms=10_000), second, removed, first)
    assert queue.lateness() == 2.5
    queue.remove({removed})
    assert [await queue.take(), await queue.take()] == [first, second]
    assert len(queue) == queue.lateness() == 0


async def test_waits_until_a_domain_is_due_also_if_it_comes_before_the_timer() -> None:
    clock = SystemClock()
    queue, near = DelayQueue(clock), domain(clock.monotonic() + 0.05)
    queue.put(domain(clock.monotonic() + 60))
    (taker,) = await waiting_takers(queue, 1)
    queue.put(near)
    async with asyncio.timeout(40):
        assert await taker is near
    assert clock.monotonic() >= near.next_at


async def test_every_waiting_worker_gets_one_of_the_domains() -> None:
    queue, now = DelayQueue(SystemClock()), SystemClock().monotonic()
    takers = await waiting_takers(queue, 20)
    domains = [domain(now + (number % 4) * 0.01) for number in range(20)]
    for leased in domains:
        queue.put(leased)
    async with asyncio.timeout(40):
        assert set(await asyncio.gather(*takers)) == set(domains)


@pytest.mark.parametrize("are_woken", [False, True])
async def test_workers_that_are_cancelled_lose_nothing(are_woken: bool) -> None:
    queue, domains = DelayQueue(SystemClock()), [domain(0.0) for _ in range(5)]
    takers = await waiting_takers(queue, 10)
    if not are_woken:
        takers[0].cancel()
        await asyncio.wait(takers[:1])
    for leased in domains:
        queue.put(leased)
    for taker in takers[:5]:
        taker.cancel()
    async with asyncio.timeout(40):
        assert set(await asyncio.gather(*takers[5:])) == set(domains)


async def test_domains_that_are_not_quick_leave_workers_for_the_others() -> None:
    clock = ManualTime(ms=10_000)
    slow, quick, held_up = [domain(8.0), domain(8.1)], domain(9.5), domain(8.2)
    quick.is_quick = True
    queue = DelayQueue(clock, most_trials=2)
    for leased in (*slow, held_up, quick):
        queue.put(leased)
    assert [await queue.take() for _ in range(3)] == [*slow, quick]
    assert (len(queue), queue.lateness()) == (1, 0.0)
    (taker,) = await waiting_takers(queue, 1)
    queue.end_trial(quick)  # it was quick when it was taken, so its turn counts as none
    await asyncio.sleep(0)
    assert not taker.done()
    queue.end_trial(slow[1])
    async with asyncio.timeout(40):
        assert await taker is held_up


async def test_a_domain_stays_quick_until_a_request_takes_long() -> None:
    time = ManualTime()
    held = HeldLeases(runtime(time, ServerClock(time, time.read_ms)))
    leases = tuple(Lease(f"{name}.test", 0, 1, 1_000, 0, "", ()) for name in "ab")

    def take() -> list[LeasedDomain]:
        return held.take(LeaseReply(0, leases, None), 1.0, 0.0, 1.0)[0]

    quick, slow = take()
    assert not quick.is_quick
    quick.is_quick = True
    held.forget(quick)
    held.forget(slow)
    assert [leased.is_quick for leased in take()] == [True, False]


async def test_domains_with_large_responses_give_way_while_there_is_more_to_do_than_can_be_done() -> None:
    clock = ManualTime(ms=10_000)
    longest_due, large = domain(10.0 - 2 * BEHIND_S), domain(10.0, 3 * BYTES_PER_S)
    small = domain(10.0, BYTES_PER_S // 1000)
    queue = queue_of(clock, longest_due, large, small)
    clock.ms += 1_000
    assert [await queue.take(), await queue.take()] == [longest_due, small]
    clock.ms += 1_000
    assert queue.lateness() == pytest.approx(-1.0)
    clock.ms += 1_000
    assert await queue.take() is large


async def test_domains_with_large_responses_wait_no_longer_while_all_get_their_turn() -> None:
    due, large = domain(10.0 - BEHIND_S / 2), domain(10.0, 100 * BYTES_PER_S)
    queue = queue_of(ManualTime(ms=10_000), due, large)
    assert [await queue.take(), await queue.take()] == [due, large]
