"""The lag of the event loop, measured on a clock and a CPU that the test turns."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from crawler.observe.loop_lag import PERIOD_S, LoopLag
from frontier.clock import SystemClock


class Rounds:
    """A clock whose sleeps take as long as the list says, and a CPU meter beside it; ends the measuring after the last."""

    def __init__(self, rounds: list[tuple[float, float]]) -> None:
        self._rounds = rounds
        self.now = self.used = 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        if not self._rounds:
            raise asyncio.CancelledError
        took, used = self._rounds.pop(0)
        self.now += took
        self.used += used


def measure(rounds: list[tuple[float, float]], observe: Callable[[float], None]) -> LoopLag:
    clock = Rounds(rounds)
    lag = LoopLag(clock, observe, lambda: clock.used)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(lag.run())
    return lag


def test_what_others_took_is_told_apart_from_what_we_took() -> None:
    """Given a lag that another process caused and one of our own, then both are seen and only ours counts as ours."""
    seen: list[float] = []
    lag = measure([(PERIOD_S, 0.001), (PERIOD_S + 0.5, 0.004), (PERIOD_S + 0.08, 0.09)], seen.append)
    assert seen == pytest.approx([0, 0.5, 0.08])
    assert lag.longest_s == pytest.approx(0.5)
    assert lag.longest_own_s == pytest.approx(0.08)


def hold_the_lock(seconds: float) -> None:
    """Hold the interpreter's lock for so many seconds of CPU, in one call of C."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(100_000))


def wait_for(thread: threading.Thread) -> None:
    """Let the lock go again and again until `thread` has ended, as one system call after another does."""
    while thread.is_alive():
        time.sleep(0)


async def test_a_thread_that_holds_the_interpreters_lock_is_our_own_doing() -> None:
    """Given a thread that computes while the loop makes one system call after another, each of which gives the lock away,
    then the lag is our own, though the loop itself has hardly run."""
    lag = LoopLag(SystemClock(), lambda lag_s: None)
    measuring = asyncio.create_task(lag.run())
    await asyncio.sleep(0)
    thread = threading.Thread(target=hold_the_lock, args=(0.3,))
    thread.start()
    wait_for(thread)
    measured = asyncio.Event()
    asyncio.get_running_loop().call_later(2 * PERIOD_S, measured.set)
    await measured.wait()
    measuring.cancel()
    assert lag.longest_own_s > 0.2
