"""The delay queue: order by due time, no early or lost items, one timer, and later turns for large responses under load."""

from __future__ import annotations

import asyncio

import pytest

from crawler.worker.delay_queue import BEHIND_S, BYTES_PER_S, WOKEN, DelayQueue
from frontier.clock import SystemClock
from tests.frontier.helpers import ManualTime


async def test_hands_out_the_item_longest_due() -> None:
    queue: DelayQueue[str] = DelayQueue(ManualTime(ms=10_000))
    queue.put("late", 9.0)
    queue.put("latest", 8.0)
    assert [await queue.take(), await queue.take()] == ["latest", "late"]


async def test_waits_for_what_is_not_due_yet() -> None:
    clock = SystemClock()
    queue: DelayQueue[str] = DelayQueue(clock)
    due = clock.monotonic() + 0.05
    queue.put("x", due)
    assert await queue.take() == "x"
    assert clock.monotonic() >= due


async def test_every_waiting_taker_gets_one_of_the_items() -> None:
    queue: DelayQueue[int] = DelayQueue(SystemClock())
    takers = [asyncio.create_task(queue.take()) for _ in range(20)]
    await asyncio.sleep(0)
    assert queue.idle_takers == 20
    now = SystemClock().monotonic()
    for number in range(20):
        queue.put(number, now + (number % 4) * 0.01)
    assert sorted(await asyncio.gather(*takers)) == list(range(20))


async def test_a_batch_of_items_wakes_its_takers_a_few_in_each_turn_of_the_loop() -> None:
    queue: DelayQueue[int] = DelayQueue(SystemClock())
    takers = [asyncio.create_task(queue.take()) for _ in range(5 * WOKEN)]
    await asyncio.sleep(0)
    for number in range(5 * WOKEN):
        queue.put(number, 0.0)
    served = [0]
    while served[-1] < len(takers):
        await asyncio.sleep(0)
        served.append(sum(taker.done() for taker in takers))
        assert served[-1] - served[-2] <= WOKEN


async def test_a_taker_that_was_woken_and_cancelled_wakes_another() -> None:
    queue: DelayQueue[int] = DelayQueue(SystemClock())
    takers = [asyncio.create_task(queue.take()) for _ in range(2 * WOKEN)]
    await asyncio.sleep(0)
    for number in range(WOKEN):
        queue.put(number, 0.0)
    for taker in takers[:WOKEN]:
        taker.cancel()
    async with asyncio.timeout(40):
        assert sorted(await asyncio.gather(*takers[WOKEN:])) == list(range(WOKEN))


async def test_an_item_put_before_the_timer_wakes_earlier() -> None:
    clock = SystemClock()
    queue: DelayQueue[str] = DelayQueue(clock)
    queue.put("far", clock.monotonic() + 60)
    taker = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.put("near", clock.monotonic() + 0.01)
    async with asyncio.timeout(40):
        assert await taker == "near"


async def test_a_cancelled_taker_loses_nothing() -> None:
    queue: DelayQueue[str] = DelayQueue(SystemClock())
    first, second = asyncio.create_task(queue.take()), asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.put("x", 0.0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    async with asyncio.timeout(40):
        assert await second == "x"


async def test_removes_what_is_no_longer_wanted() -> None:
    queue: DelayQueue[str] = DelayQueue(ManualTime())
    for name in ("a", "b", "c"):
        queue.put(name, 0.0)
    queue.remove({"b"})
    assert [await queue.take() for _ in range(len(queue))] == ["a", "c"]


def test_lateness_is_that_of_the_item_longest_due() -> None:
    queue: DelayQueue[str] = DelayQueue(ManualTime(ms=10_000))
    assert queue.lateness() == 0
    queue.put("x", 7.5)
    queue.put("y", 9.5)
    assert queue.lateness() == 2.5


async def test_who_sends_much_gives_way_while_there_is_more_to_do_than_can_be_done() -> None:
    clock = ManualTime(ms=10_000)
    queue: DelayQueue[str] = DelayQueue(clock)
    queue.put("longest due", 10.0 - 2 * BEHIND_S)
    queue.put("large", 10.0, size=3 * BYTES_PER_S)
    queue.put("small", 10.0, size=BYTES_PER_S // 1000)
    clock.ms += 1_000
    assert [await queue.take(), await queue.take()] == ["longest due", "small"]
    clock.ms += 1_000
    assert queue.lateness() == pytest.approx(-1.0)
    clock.ms += 1_000
    assert await queue.take() == "large"


async def test_who_sends_much_waits_no_longer_while_all_get_their_turn() -> None:
    queue: DelayQueue[str] = DelayQueue(ManualTime(ms=10_000))
    queue.put("due", 10.0 - BEHIND_S / 2)
    queue.put("large", 10.0, size=100 * BYTES_PER_S)
    assert [await queue.take(), await queue.take()] == ["due", "large"]
