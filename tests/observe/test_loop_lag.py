"""The lag of the event loop, measured with a clock and a CPU meter that the test sets."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from crawler.observe.metrics import PERIOD_S, LoopLag
from frontier.clock import SystemClock


class Rounds:
    """A clock and a CPU meter whose sleeps take the times in a list. The measurement is cancelled after the last one."""

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


def test_lag_of_other_processes_is_separated_from_our_own() -> None:
    """Given a lag caused by another process and one caused by this one, then both are measured, and only the latter counts
    as own."""
    seen: list[float] = []
    lag = measure([(PERIOD_S, 0.001), (PERIOD_S + 0.5, 0.004), (PERIOD_S + 0.08, 0.09)], seen.append)
    assert seen == pytest.approx([0, 0.5, 0.08])
    assert lag.longest_own_s == pytest.approx(0.08)


def hold_the_lock(seconds: float) -> None:
    """Hold the interpreter's lock in calls into C, for so many seconds of CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(100_000))


def wait_for(thread: threading.Thread) -> None:
    """Release the lock repeatedly until `thread` has ended, as a series of system calls does."""
    while thread.is_alive():
        time.sleep(0)


async def test_lag_from_a_thread_that_holds_the_interpreter_lock_is_our_own() -> None:
    """Given a thread that computes while the loop makes system calls, each of which releases the lock, then the lag counts
    as own, although the loop itself has hardly run."""
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
