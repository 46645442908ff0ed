"""The lane for heavy work: few at a time, and a stand-in for whoever waits there."""

from __future__ import annotations

import asyncio
import threading

import pytest

from crawler.heavy import AT_ONCE, MOST_ASIDE, HeavyLane


async def test_few_are_in_work_at_once_and_everybody_who_waits_has_stepped_aside() -> None:
    lane, aside, in_work, most = HeavyLane(), [0, 0], [0], [0]
    lock, go_on = threading.Lock(), threading.Event()
    enough = asyncio.Event()
    loop = asyncio.get_running_loop()

    def step_aside() -> None:
        aside[0] += 1
        if aside[0] == 10:
            enough.set()

    lane.step_aside = step_aside
    lane.step_back = lambda: aside.__setitem__(1, aside[1] + 1)

    def work(number: int) -> int:
        with lock:
            in_work[0] += 1
            most[0] = max(most[0], in_work[0])
        go_on.wait(20)
        with lock:
            in_work[0] -= 1
        return number

    tasks = [loop.create_task(lane.run(work, number)) for number in range(10)]
    await enough.wait()
    go_on.set()
    assert await asyncio.gather(*tasks) == list(range(10))
    assert most[0] <= AT_ONCE
    assert aside == [10, 10]


async def test_beyond_the_limit_nobody_steps_aside() -> None:
    lane, aside = HeavyLane(), [0]
    lane.step_aside = lambda: aside.__setitem__(0, aside[0] + 1)
    await asyncio.gather(*(lane.run(int, "1") for _ in range(MOST_ASIDE + 20)))
    assert aside[0] == MOST_ASIDE


async def test_an_error_in_the_thread_reaches_the_caller_and_frees_the_place() -> None:
    lane, back = HeavyLane(), [0]
    lane.step_back = lambda: back.__setitem__(0, back[0] + 1)
    for _ in range(AT_ONCE + 1):
        with pytest.raises(ValueError, match="x"):
            await lane.run(int, "x")
    assert back[0] == AT_ONCE + 1
