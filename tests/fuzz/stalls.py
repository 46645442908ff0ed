"""Tells what the event loop was doing when it was late.

A thread looks at the loop's heartbeat. When the loop's thread has used much CPU time since the last one, its stack is
recorded. CPU time, because other processes may delay a heartbeat, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator

BEAT_S, LATE_S = 0.01, 0.06
"""Seconds between heartbeats, and CPU seconds after which the loop counts as late: early enough to see a stall of 0.1 s."""

KEPT = 5


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[list[tuple[float, str]]]:
    """Within the context, collect up to `KEPT` of the longest stalls: CPU seconds, and the stack during the stall."""
    longest: list[tuple[float, str]] = []
    watch = _Watch(threading.get_ident(), longest)
    beating = asyncio.create_task(watch.beat())
    thread = threading.Thread(target=watch.look, daemon=True)
    thread.start()
    try:
        yield longest
    finally:
        watch.over.set()
        thread.join()
        beating.cancel()


class _Watch:
    def __init__(self, thread: int, longest: list[tuple[float, str]]) -> None:
        self._thread = thread
        self._clock = time.pthread_getcpuclockid(thread)
        self._longest = longest
        self._last = self._now()
        self.over = threading.Event()

    def _now(self) -> float:
        return time.clock_gettime(self._clock)

    async def beat(self) -> None:
        """Keep the heartbeat going until cancelled."""
        while True:
            self._last = self._now()
            await asyncio.sleep(BEAT_S)

    def look(self) -> None:
        """Record stalls until `over` is set."""
        while not self.over.wait(BEAT_S):
            last = self._last
            if self._now() - last < LATE_S:
                continue
            stack = "".join(traceback.format_stack(sys._current_frames()[self._thread])[-12:])
            while self._last == last and not self.over.is_set():
                time.sleep(0.002)
            self._longest.append((self._last - last, stack))
            self._longest.sort(key=lambda stall: -stall[0])
            del self._longest[KEPT:]
