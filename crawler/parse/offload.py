"""Heavy documents: read one at a time, in a process of its own, and not at the cost of the workers.

A page of ten megabytes or a compression bomb takes a quarter of a second of a core. In a thread it would take the
interpreter's lock, too, from the event loop, which every request passes through; so it goes to
`crawler.parse.subprocess_main`. The process is started for the first heavy document.

A worker that waits for a heavy document steps aside, and another takes its place meanwhile, so that a hundred such pages
delay each other and nobody else.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

from crawler.logs import tell
from crawler.parse.document import Document, Limits, Reading
from crawler.parse.html import Extracted
from crawler.parse.subprocess_client import ReaderEnded, ReaderProcess
from crawler.scope.link_filter import NO_HINTS

ASIDE_OCTETS = 384 << 20
ASIDE_DOCUMENTS = 1_000
"""What may wait here with stand-ins in the place of the workers that brought it: what they hold is not bounded by the
concurrency any more but by this. Beyond it they keep their place, which slows the fetching down."""

TRIES = 2
_OTHERS_DOING = (-signal.SIGKILL, -signal.SIGTERM)
"""How a process ends that somebody ended (an operator, or the kernel for want of memory): worth a second try."""


StandIn = Callable[[], AbstractAsyncContextManager[None]]
"""While its block runs, somebody else does the work of whoever waits within it."""


class HeavyLane:
    """Reads documents that take long. The caller waits in a block of `stand_in`, unless much waits already."""

    def __init__(self, stand_in: StandIn = nullcontext, process: ReaderProcess | None = None) -> None:
        self._stand_in = stand_in
        self._process = process or ReaderProcess()
        self._turn = asyncio.Lock()
        self._documents = self._octets = 0  # of those who stepped aside

    def __repr__(self) -> str:
        return f"<HeavyLane aside={self._documents} octets={self._octets} {self._process!r}>"

    async def read(self, document: Document, limits: Limits) -> Reading:
        """What `document` says. One that cannot be read within the limits on time and memory says nothing, and the drop is
        counted as `unread`."""
        octets = len(document.body)
        if self._documents >= ASIDE_DOCUMENTS or self._octets + octets > ASIDE_OCTETS:
            return await self._read_in_turn(document, limits)
        self._documents, self._octets = self._documents + 1, self._octets + octets
        try:
            async with self._stand_in():
                return await self._read_in_turn(document, limits)
        finally:
            self._documents, self._octets = self._documents - 1, self._octets - octets

    async def _read_in_turn(self, document: Document, limits: Limits) -> Reading:
        async with self._turn:
            return await self._read(document, limits) or _unread(document)

    async def _read(self, document: Document, limits: Limits) -> Reading | None:
        for _ in range(TRIES):
            try:
                return await self._process.read(document, limits)
            except ReaderEnded as error:
                tell(logging.WARNING, "heavy_document_unread", url=document.url, error=error)
                if error.code not in _OTHERS_DOING:
                    break
            except OSError as error:  # no process to be had
                tell(logging.WARNING, "heavy_document_unread", url=document.url, error=error)
                break
        return None

    async def stop(self) -> None:
        """End the process; the next document would start another."""
        await self._process.stop()


def _unread(document: Document) -> Reading:
    return Reading(Extracted(error="unread", dropped={"unread": 1}), NO_HINTS, len(document.body), ("unread",))
