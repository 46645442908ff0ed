"""The pool of workers: one task for each request that may be in flight, plus substitutes for workers that wait for other
work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Starts a task and reports its failure."""


class WorkerPool:
    """Runs `work` repeatedly in a number of tasks, from `start` until `stop`."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}  # a set that keeps its order, so that a run can be repeated
        self._surplus = 0
        self._begin: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<WorkerPool workers={len(self._tasks)}>"

    def start(self, work: Callable[[], Awaitable[None]], count: int, spawn: Spawn) -> None:
        """Start `count` workers, each of which awaits `work()` in a loop."""

        def begin() -> None:
            worker = spawn(self._run(work))
            self._tasks[worker] = None
            worker.add_done_callback(self._tasks.pop)

        self._begin = begin
        for _ in range(count):
            begin()

    async def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await work()
            if self._surplus:
                self._surplus -= 1
                return

    @asynccontextmanager
    async def stand_in(self) -> AsyncIterator[None]:
        """Run an additional worker while the calling worker waits in this block. After the block there is one worker
        too many, so the next one that finishes its work ends."""
        if self._begin is not None:
            self._begin()
        try:
            yield
        finally:
            self._surplus += self._begin is not None

    async def stop(self) -> None:
        """Cancel the workers, and wait until they have ended."""
        self._begin = None
        workers = list(self._tasks)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
