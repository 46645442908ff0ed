"""Measures the lag of the event loop, which delays every request of a replica.

Nothing should block the loop: parsing is bounded or done in a separate process, whatever a site sends. A timer that fires
50 times a second checks this.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from frontier.clock import Clock

PERIOD_S = 0.02
"""Seconds between two measurements."""


class LoopLag:
    """Measures the lag of the event loop and calls `observe` with each value, in seconds.

    `longest_s`: the longest lag so far. `longest_own_s`: the same, but with each lag limited to the CPU time that this
    process used during it, since the rest was caused by other processes. The CPU time of all threads is included, because
    each may hold the interpreter's lock or the core. The value may be too high if a thread ran in parallel with the loop,
    or if the loop ran before the lag began.
    """

    def __init__(
        self, clock: Clock, observe: Callable[[float], None], cpu: Callable[[], float] = time.process_time
    ) -> None:
        self._clock = clock
        self._observe = observe
        self._cpu = cpu
        self.longest_s = 0.0
        self.longest_own_s = 0.0

    def __repr__(self) -> str:
        return f"<LoopLag longest={self.longest_s:.3f}s own={self.longest_own_s:.3f}s>"

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            at, used = self._clock.monotonic(), self._cpu()
            await self._clock.sleep(PERIOD_S)
            lag_s = max(0.0, self._clock.monotonic() - at - PERIOD_S)
            self._observe(lag_s)
            self.longest_s = max(self.longest_s, lag_s)
            self.longest_own_s = max(self.longest_own_s, min(lag_s, self._cpu() - used))
