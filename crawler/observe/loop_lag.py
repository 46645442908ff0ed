"""How late the event loop is: the one thing that every request of a replica feels at once.

Nothing may hold the loop: whatever a site sends, its parsing is bounded or done in a process of its own. A timer that rings
50 times a second tells whether that is true.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from frontier.clock import Clock

PERIOD_S = 0.02


class LoopLag:
    """Measures until cancelled. `observe` is told each lag in seconds.

    `longest_s`: the longest so far. `longest_own_s`: the same, counting no more of a lag than the CPU time that this
    process used meanwhile; the rest is other processes' doing. All threads count: each of them may hold the interpreter's
    lock, or the core. So it is too long rather than too short where a thread ran beside the loop, or the loop before its
    lag began.
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
