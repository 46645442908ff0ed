"""Turns of domains: who waits for whom, whatever some domains send."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise

from crawler.parse.child import DocumentOffloader
from crawler.parse.turns import FairTurns


async def hold(turns: FairTurns[int], domain: str, is_heavy: bool, order: list[str], until: asyncio.Event) -> None:
    async with turns.turn(domain, is_heavy):
        order.append(domain)
        await until.wait()


async def test_heavy_work_never_has_the_last_resource() -> None:
    turns, order, release = FairTurns([1, 2]), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(hold(turns, f"heavy{number}", True, order, release)) for number in range(3)]
    await asyncio.sleep(0)
    assert order == ["heavy0"]
    async with turns.turn("light"):
        order.append("light")
    release.set()
    await asyncio.gather(*tasks)
    assert order == ["heavy0", "light", "heavy1", "heavy2"]


async def test_light_and_heavy_work_share_a_single_resource() -> None:
    turns, order = FairTurns([None]), list[str]()

    async def work(domain: str, is_heavy: bool, took_s: float, pieces: int) -> None:
        for _ in range(pieces):
            async with turns.turn(domain, is_heavy):
                order.append(domain)
                await asyncio.sleep(took_s)

    await asyncio.gather(work("heavy", True, 0.05, 4), work("a", False, 0.01, 12), work("b", False, 0.01, 12))
    assert 4 <= order.index("heavy", order.index("heavy") + 1) - order.index("heavy") <= 8  # 0.05 s of light work
    assert (order.count("a"), order.count("b"), order.count("heavy")) == (12, 12, 4)


async def test_heavy_work_rests_while_light_work_needs_the_machine() -> None:
    turns, spans, is_over = FairTurns([1, 2], shares_cores=True), list[tuple[float, float]](), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def light() -> None:
        while not is_over.is_set():
            async with turns.turn("light"):
                await asyncio.sleep(0.005)

    async def heavy() -> None:
        for _ in range(3):
            async with turns.turn("heavy", is_heavy=True):
                began = loop.time()
                await asyncio.sleep(0.1)
            spans.append((began, loop.time()))

    lighter = asyncio.create_task(light())
    await heavy()
    is_over.set()
    await lighter
    for (began, ended), (begins, _) in pairwise(spans):
        assert begins - ended > (ended - began) / 2
    await heavy()  # alone
    (began, ended), (begins, _) = spans[-2:]
    assert begins - ended < (ended - began) / 2


async def test_who_is_cancelled_while_waiting_takes_no_turn() -> None:
    turns, order, release = FairTurns([None]), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(hold(turns, domain, True, order, release)) for domain in ("a", "b", "c")]
    await asyncio.sleep(0)
    tasks[1].cancel()
    release.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["a", "c"]
    async with asyncio.timeout(1), turns.turn("d"):
        pass


def busy(pieces: int, took_s: float) -> Iterator[None]:
    for _ in range(pieces):
        until = time.thread_time() + took_s
        while time.thread_time() < until:
            pass
        yield


async def test_steps_of_many_domains_leave_half_of_the_event_loop_to_others() -> None:
    offload, turns = DocumentOffloader(), 0
    began = time.thread_time()
    tasks = [asyncio.create_task(offload.in_steps(f"{number}.test", busy(40, 0.001))) for number in range(20)]
    while not all(task.done() for task in tasks):
        turns += 1
        before = time.thread_time()
        await asyncio.sleep(0)
        if turns > 1:  # each begins at once
            assert time.thread_time() - before < 0.05
    assert all(task.result() for task in tasks)
    assert turns > 20 * (time.thread_time() - began) / 0.02


async def test_steps_that_take_too_long_are_given_up() -> None:
    offload = DocumentOffloader()
    steps = busy(10_000, 0.001)
    assert not await offload.in_steps("slow.test", steps)
    assert len(list(zip(range(3), steps, strict=False))) == 3
    assert await offload.in_steps("slow.test", busy(3, 0.0001))
