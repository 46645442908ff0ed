"""Tells what the event loop was doing when it was late.

A thread looks at the loop's heartbeat. When the process has used much CPU time since the last one, the stacks of its
threads are recorded: any of them may hold the interpreter's lock. CPU time, because other processes may delay a heartbeat,
too.
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
        self._began = time.monotonic()
        self._longest = longest
        self._last = time.process_time()
        self.over = threading.Event()

    async def beat(self) -> None:
        """Keep the heartbeat going until cancelled."""
        while True:
            self._last = time.process_time()
            await asyncio.sleep(BEAT_S)

    def look(self) -> None:
        """Record stalls until `over` is set."""
        while not self.over.wait(BEAT_S):
            last = self._last
            if time.process_time() - last < LATE_S:
                continue
            stack = self._stacks()
            while self._last == last and not self.over.is_set():
                time.sleep(0.002)
            self._longest.append((self._last - last, stack))
            self._longest.sort(key=lambda stall: -stall[0])
            del self._longest[KEPT:]

    def _stacks(self) -> str:
        """The stack of the loop's thread, and those of the other threads but this one."""
        mine, frames = threading.get_ident(), sys._current_frames()
        order = sorted(frames.keys() - {mine}, key=lambda thread: thread != self._thread)
        stacks = ("".join(traceback.format_stack(frames[thread])[-12:]) for thread in order)
        return f"{time.monotonic() - self._began:.1f} s after the start\n" + "another thread:\n".join(stacks)
