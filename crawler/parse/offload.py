"""Documents that take long: read one at a time, in a process of its own, and not at the cost of the workers.

A page of ten megabytes or a compression bomb takes a quarter of a second of a core. In a thread it would take the
interpreter's lock, too, from the event loop, which every request passes through; so it goes to
`crawler.parse.subprocess_main`. The process is started for the first offloaded document.

A worker that waits for an offloaded document lends its slot to another meanwhile, so that a hundred such pages
delay each other and nobody else.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

from crawler.logs import log
from crawler.parse.document import Document, ParsedDocument, ParseLimits
from crawler.parse.html import Extracted
from crawler.parse.subprocess_client import OffloadProcess, OffloadProcessEnded
from crawler.scope.link_filter import NO_HINTS

MAX_WAITING_BYTES = 384 << 20
MAX_WAITING_DOCUMENTS = 1_000
"""What may wait here with stand-ins in the place of the workers that brought it: what they hold is not bounded by the
concurrency any more but by this. Beyond it they keep their place, which slows the fetching down."""

TRIES = 2
_OTHERS_DOING = (-signal.SIGKILL, -signal.SIGTERM)
"""How a process ends that somebody ended (an operator, or the kernel for want of memory): worth a second try."""


StandIn = Callable[[], AbstractAsyncContextManager[None]]
"""While its block runs, somebody else does the work of whoever waits within it."""


class DocumentOffloader:
    """Reads documents that take long. The caller waits in a block of `stand_in`, unless much waits already."""

    def __init__(self, stand_in: StandIn = nullcontext, process: OffloadProcess | None = None) -> None:
        self._stand_in = stand_in
        self._process = process or OffloadProcess()
        self._turn = asyncio.Lock()
        self._waiting_documents = self._waiting_bytes = 0  # of those who lent their slots

    def __repr__(self) -> str:
        return f"<DocumentOffloader waiting={self._waiting_documents} bytes={self._waiting_bytes} {self._process!r}>"

    async def read(self, document: Document, limits: ParseLimits) -> ParsedDocument:
        """What `document` says. One that cannot be read within the limits on time and memory says nothing, and the drop is
        counted as `unread`."""
        size = len(document.body)
        if self._waiting_documents >= MAX_WAITING_DOCUMENTS or self._waiting_bytes + size > MAX_WAITING_BYTES:
            return await self._read_in_turn(document, limits)
        self._waiting_documents, self._waiting_bytes = self._waiting_documents + 1, self._waiting_bytes + size
        try:
            async with self._stand_in():
                return await self._read_in_turn(document, limits)
        finally:
            self._waiting_documents, self._waiting_bytes = self._waiting_documents - 1, self._waiting_bytes - size

    async def _read_in_turn(self, document: Document, limits: ParseLimits) -> ParsedDocument:
        async with self._turn:
            return await self._read(document, limits) or _unread(document)

    async def _read(self, document: Document, limits: ParseLimits) -> ParsedDocument | None:
        for _ in range(TRIES):
            try:
                return await self._process.read(document, limits)
            except OffloadProcessEnded as error:
                log(logging.WARNING, "offloaded_document_unread", url=document.url, error=error)
                if error.code not in _OTHERS_DOING:
                    break
            except OSError as error:  # no process to be had
                log(logging.WARNING, "offloaded_document_unread", url=document.url, error=error)
                break
        return None

    async def stop(self) -> None:
        """End the process; the next document would start another."""
        await self._process.stop()


def _unread(document: Document) -> ParsedDocument:
    return ParsedDocument(Extracted(error="unread", dropped={"unread": 1}), NO_HINTS, len(document.body), ("unread",))
