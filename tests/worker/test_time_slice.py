"""Time slices: an iteration of the event loop ends in time, and waiting workers continue in order."""

from __future__ import annotations

import asyncio
import math

from crawler.worker.time_slice import SPAN_S, WOKEN, TimeSlice
from tests.frontier.helpers import ManualTime

STEP_MS = 2
AT_ONCE = math.ceil(SPAN_S * 1000 / STEP_MS)


class Crowd:
    """Workers that each make one step of `step_ms`."""

    def __init__(self, count: int, step_ms: int = STEP_MS) -> None:
        self.step_ms = step_ms
        self.time = ManualTime(ms=0)
        self.time_slice = TimeSlice(self.time)
        self.done: list[int] = []
        self.tasks = [asyncio.create_task(self.work(number)) for number in range(count)]

    async def work(self, number: int) -> None:
        await self.time_slice.wait()
        self.time.ms += self.step_ms
        self.done.append(number)

    async def turns(self) -> list[int]:
        """Return how many steps were made in each iteration of the loop."""
        steps = []
        while not all(task.done() for task in self.tasks):
            before = len(self.done)
            await asyncio.sleep(0)
            steps.append(len(self.done) - before)
        return steps


async def test_steps_that_come_together_are_spread_over_turns() -> None:
    crowd = Crowd(50)
    steps = await crowd.turns()
    assert sum(steps) == 50
    assert max(steps) <= AT_ONCE + WOKEN
    assert steps[0] == AT_ONCE
    assert crowd.done == list(range(50))


async def test_one_long_step_ends_an_iteration() -> None:
    crowd = Crowd(20, step_ms=2 * math.ceil(SPAN_S * 1000))
    assert set(await crowd.turns()) == {0, 1}  # 0: the others are woken
    assert crowd.done == list(range(20))


async def test_who_comes_later_does_not_pass_those_who_wait() -> None:
    crowd = Crowd(AT_ONCE + 2 * WOKEN)
    await asyncio.sleep(0)
    late = asyncio.create_task(crowd.work(99))
    await crowd.turns()
    await late
    assert crowd.done[-1] == 99


async def test_workers_that_are_cancelled_while_they_wait_leave_no_one_waiting() -> None:
    crowd = Crowd(AT_ONCE + 3 * WOKEN)
    await asyncio.sleep(0)
    for task in crowd.tasks[AT_ONCE : AT_ONCE + 2 * WOKEN]:
        task.cancel()
    async with asyncio.timeout(60):
        await crowd.turns()
    assert crowd.done[-1] == len(crowd.tasks) - 1


async def test_later_turns_have_their_own_time() -> None:
    crowd = Crowd(AT_ONCE)
    await crowd.turns()
    for _ in range(3):
        crowd.tasks = [asyncio.create_task(crowd.work(1)) for _ in range(AT_ONCE)]
        assert len(await crowd.turns()) <= 4
    assert repr(crowd.time_slice) == "<TimeSlice waiting=0>"


async def test_who_made_the_last_step_may_make_another() -> None:
    """Given waiting tasks, then the task that made the last step can make its next one without waiting."""
    crowd = Crowd(0)
    for _ in range(3 * AT_ONCE):
        await crowd.work(0)
    others = [asyncio.create_task(crowd.work(number)) for number in (1, 2)]
    await asyncio.sleep(0)
    await crowd.work(0)
    assert crowd.done == [0] * (3 * AT_ONCE + 1)
    await asyncio.gather(*others)
    assert crowd.done[-2:] == [1, 2]
