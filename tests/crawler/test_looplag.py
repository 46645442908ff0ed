"""The lag of the event loop, measured on a clock and a CPU that the test turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from crawler.looplag import PERIOD_S, LoopLag


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
