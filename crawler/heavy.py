"""Heavy work on what sites sent: a few documents at a time, in threads, and not at the cost of the workers.

A page of ten megabytes or a compression bomb takes a quarter of a second of a core. A worker that waits for it steps aside,
and another takes its place meanwhile, so that a hundred such pages delay each other and nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 2
"""Documents in work: each may take 32 MB decoded and four times that as a tree."""

MOST_ASIDE = 32
"""Workers that may wait here with a stand-in in their place. What they hold, 10 MB of body each at most, is not bounded by
the concurrency any more but by this."""


class HeavyLane:
    """Runs functions in threads. `step_aside` and `step_back` are called around the waiting, unless many wait already."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(AT_ONCE)
        self._aside = 0
        self.step_aside: Callable[[], None] = lambda: None
        self.step_back: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<HeavyLane aside={self._aside}>"

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, done in a thread."""
        aside = self._aside < MOST_ASIDE
        if aside:
            self._aside += 1
            self.step_aside()
        try:
            async with self._room:
                return await asyncio.to_thread(work, *args, **kwargs)
        finally:
            if aside:
                self._aside -= 1
                self.step_back()
