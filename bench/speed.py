"""How fast the machine is from moment to moment: virtual machines share their cores with strangers, and may not say so.

On each core a loop of a fixed number of additions is timed five times a second, by the CPU time of its thread, which grows
as well while the core is somebody else's, or its other hardware thread is busy. The least that the loop ever took is full
speed. A CPU second in which it took twice as long is half a second *at full speed*. It takes 1 to 2 % of a core.
"""

from __future__ import annotations

import os
import threading
import time
from functools import cache

PERIOD_S = 0.2
ADDITIONS = 20_000  # 1.5 ms of a core at 2.5 GHz


class Speedometer:
    """Times the loop from now to the end of the process."""

    def __init__(self) -> None:
        self._took: list[tuple[float, float]] = []  # when, CPU seconds
        for core in os.sched_getaffinity(0):
            threading.Thread(target=self._measure, args=(core,), daemon=True).start()

    def _measure(self, core: int) -> None:
        os.sched_setaffinity(0, {core})  # of this thread
        while True:
            before = time.thread_time()
            total = 0
            for number in range(ADDITIONS):
                total += number
            self._took.append((time.monotonic(), time.thread_time() - before))
            time.sleep(PERIOD_S)

    def mean(self, since: float, until: float) -> float:
        """The mean speed between two monotonic seconds; 1 is full speed."""
        took = list(self._took)
        full = min(seconds for _, seconds in took)
        lately = [full / seconds for at, seconds in took if since <= at <= until]
        return sum(lately) / len(lately) if lately else 1.0


@cache
def speedometer() -> Speedometer:
    """The one of this process, which begins with the first call."""
    return Speedometer()
