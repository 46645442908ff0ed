"""The background tasks of a replica. If one fails, the replica ends with an error and others take over its leases."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


class Tasks:
    """Starts tasks. `failed` is set when one has failed, and `failure` is the exception of the first one that did."""

    def __init__(self) -> None:
        self.failed = asyncio.Event()
        self.failure: BaseException | None = None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start `work` as a task and watch it for failure."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.failure = self.failure or task.exception()
            self.failed.set()

    @staticmethod
    async def cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
        """Cancel `tasks`, and wait until they have ended."""
        cancelled = list(tasks)
        for task in cancelled:
            task.cancel()
        await asyncio.gather(*cancelled, return_exceptions=True)
