"""Time slices: an iteration of the event loop ends in time, and waiting workers continue in order."""

from __future__ import annotations

import asyncio
import math

from crawler.worker.runtime import SLICE_S, WOKEN, TimeSlice
from tests.frontier.helpers import ManualTime

STEP_MS = 2
AT_ONCE = math.ceil(SLICE_S * 1000 / STEP_MS)


class Crowd:
    """Workers that each make one step, and share a time slice."""

    def __init__(self, count: int) -> None:
        self.time = ManualTime(ms=0)
        self.time_slice = TimeSlice(self.time)
        self.done: list[int] = []
        self.tasks = [asyncio.create_task(self.work(number)) for number in range(count)]

    async def work(self, number: int) -> None:
        await self.time_slice.end_if_over()
        self.time.ms += STEP_MS
        self.done.append(number)

    async def steps(self) -> list[int]:
        """Return how many steps were made in each iteration of the loop."""
        steps = []
        while not all(task.done() for task in self.tasks):
            before = len(self.done)
            await asyncio.sleep(0)
            steps.append(len(self.done) - before)
        return steps


async def test_steps_that_come_together_are_spread_over_iterations() -> None:
    crowd = Crowd(50)
    steps = await crowd.steps()
    assert sum(steps) == 50
    assert max(steps) <= AT_ONCE + WOKEN
    assert steps[0] == AT_ONCE
    assert crowd.done == list(range(50))
    assert repr(crowd.time_slice) == "<TimeSlice waiting=0>"


async def test_a_worker_that_comes_later_does_not_pass_those_who_wait() -> None:
    crowd = Crowd(AT_ONCE + 2 * WOKEN)
    await asyncio.sleep(0)
    late = asyncio.create_task(crowd.work(99))
    await crowd.steps()
    await late
    assert crowd.done[-1] == 99


async def test_workers_that_are_cancelled_while_they_wait_leave_no_one_waiting() -> None:
    crowd = Crowd(AT_ONCE + 3 * WOKEN)
    await asyncio.sleep(0)
    for task in crowd.tasks[AT_ONCE : AT_ONCE + 2 * WOKEN]:
        task.cancel()
    async with asyncio.timeout(60):
        await crowd.steps()
    assert crowd.done[-1] == len(crowd.tasks) - 1


async def test_a_single_task_lets_the_loop_go_on_after_each_slice() -> None:
    crowd = Crowd(0)
    worker = asyncio.create_task(crowd_of_one(crowd, 4 * AT_ONCE))
    iterations = 0
    while not worker.done():
        await asyncio.sleep(0)
        iterations += 1
    assert 4 <= iterations <= 12


async def crowd_of_one(crowd: Crowd, steps: int) -> None:
    for number in range(steps):
        await crowd.work(number)
