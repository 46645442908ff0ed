"""The schedule: the one longest due first, nobody early, nobody forgotten, one timer for all, large ones last when late."""

from __future__ import annotations

import asyncio

import pytest

from crawler.worker.delay_queue import BEHIND_S, OCTETS_PER_S, WOKEN, Schedule
from frontier.clock import SystemClock
from tests.frontier.helpers import ManualTime


async def test_hands_out_the_item_longest_due() -> None:
    schedule: Schedule[str] = Schedule(ManualTime(ms=10_000))
    schedule.put("late", 9.0)
    schedule.put("latest", 8.0)
    assert [await schedule.take(), await schedule.take()] == ["latest", "late"]


async def test_waits_for_what_is_not_due_yet() -> None:
    clock = SystemClock()
    schedule: Schedule[str] = Schedule(clock)
    due = clock.monotonic() + 0.05
    schedule.put("x", due)
    assert await schedule.take() == "x"
    assert clock.monotonic() >= due


async def test_every_waiting_taker_gets_one_of_the_items() -> None:
    schedule: Schedule[int] = Schedule(SystemClock())
    takers = [asyncio.create_task(schedule.take()) for _ in range(20)]
    await asyncio.sleep(0)
    assert schedule.idle_takers == 20
    now = SystemClock().monotonic()
    for number in range(20):
        schedule.put(number, now + (number % 4) * 0.01)
    assert sorted(await asyncio.gather(*takers)) == list(range(20))


async def test_a_batch_of_items_wakes_its_takers_a_few_in_each_turn_of_the_loop() -> None:
    schedule: Schedule[int] = Schedule(SystemClock())
    takers = [asyncio.create_task(schedule.take()) for _ in range(5 * WOKEN)]
    await asyncio.sleep(0)
    for number in range(5 * WOKEN):
        schedule.put(number, 0.0)
    served = [0]
    while served[-1] < len(takers):
        await asyncio.sleep(0)
        served.append(sum(taker.done() for taker in takers))
        assert served[-1] - served[-2] <= WOKEN


async def test_a_taker_that_was_woken_and_cancelled_wakes_another() -> None:
    schedule: Schedule[int] = Schedule(SystemClock())
    takers = [asyncio.create_task(schedule.take()) for _ in range(2 * WOKEN)]
    await asyncio.sleep(0)
    for number in range(WOKEN):
        schedule.put(number, 0.0)
    for taker in takers[:WOKEN]:
        taker.cancel()
    async with asyncio.timeout(2):
        assert sorted(await asyncio.gather(*takers[WOKEN:])) == list(range(WOKEN))


async def test_an_item_put_before_the_timer_wakes_earlier() -> None:
    clock = SystemClock()
    schedule: Schedule[str] = Schedule(clock)
    schedule.put("far", clock.monotonic() + 60)
    taker = asyncio.create_task(schedule.take())
    await asyncio.sleep(0)
    schedule.put("near", clock.monotonic() + 0.01)
    async with asyncio.timeout(2):
        assert await taker == "near"


async def test_a_cancelled_taker_loses_nothing() -> None:
    schedule: Schedule[str] = Schedule(SystemClock())
    first, second = asyncio.create_task(schedule.take()), asyncio.create_task(schedule.take())
    await asyncio.sleep(0)
    schedule.put("x", 0.0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    async with asyncio.timeout(2):
        assert await second == "x"


async def test_removes_what_is_no_longer_wanted() -> None:
    schedule: Schedule[str] = Schedule(ManualTime())
    for name in ("a", "b", "c"):
        schedule.put(name, 0.0)
    schedule.remove({"b"})
    assert [await schedule.take() for _ in range(len(schedule))] == ["a", "c"]


def test_lateness_is_that_of_the_item_longest_due() -> None:
    schedule: Schedule[str] = Schedule(ManualTime(ms=10_000))
    assert schedule.lateness() == 0
    schedule.put("x", 7.5)
    schedule.put("y", 9.5)
    assert schedule.lateness() == 2.5


async def test_who_sends_much_gives_way_while_there_is_more_to_do_than_can_be_done() -> None:
    clock = ManualTime(ms=10_000)
    schedule: Schedule[str] = Schedule(clock)
    schedule.put("longest due", 10.0 - 2 * BEHIND_S)
    schedule.put("large", 10.0, octets=3 * OCTETS_PER_S)
    schedule.put("small", 10.0, octets=OCTETS_PER_S // 1000)
    clock.ms += 1_000
    assert [await schedule.take(), await schedule.take()] == ["longest due", "small"]
    clock.ms += 1_000
    assert schedule.lateness() == pytest.approx(-1.0)
    clock.ms += 1_000
    assert await schedule.take() == "large"


async def test_who_sends_much_waits_no_longer_while_all_get_their_turn() -> None:
    schedule: Schedule[str] = Schedule(ManualTime(ms=10_000))
    schedule.put("due", 10.0 - BEHIND_S / 2)
    schedule.put("large", 10.0, octets=100 * OCTETS_PER_S)
    assert [await schedule.take(), await schedule.take()] == ["due", "large"]
