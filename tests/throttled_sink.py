"""A sink that keeps nothing and is as slow as it is told: `write` takes so many seconds a page as the file says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from crawler.page import Exchange, Page
from crawler.sinks import SinkContext

THROTTLE = "throttle"
"""A file in the output folder; it holds a number. If there is none, the sink is quick."""


class ThrottledSink:
    """Named in `archive.sinks`."""

    def __init__(self, context: SinkContext) -> None:
        self._file = context.folder / THROTTLE
        self.written_bytes = 0

    async def start(self) -> None:
        """Nothing to make ready."""

    async def write(self, pages: Sequence[Page], exchanges: Sequence[Exchange] = ()) -> frozenset[str]:
        if self._file.exists():
            await asyncio.sleep(float(self._file.read_text() or 0) * len(pages))
        return frozenset()

    async def stop(self) -> None:
        """Nothing to close."""


def throttle(folder: Path, seconds_a_page: float) -> None:
    """Tell the sink that writes to `folder` how slow to be."""
    new = folder / f"{THROTTLE}.new"
    new.write_text(str(seconds_a_page))
    new.rename(folder / THROTTLE)
