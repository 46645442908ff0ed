"""Reads large documents one at a time in a separate process (`crawler.parse.subprocess_main`).

A page of ten megabytes or a compression bomb takes a quarter of a second of a core. In a thread it would hold the
interpreter lock, which the event loop needs for every request. The process starts with the first such document. Domains
have turns (`crawler.parse.fair_queue`).

A worker that waits for a document lends its slot to another worker, so a hundred large pages delay only each other.

If no process can be started, documents wait, because that is the fault of this machine: a page without its links would be
taken for one that has none. Texts that take long have a budget (`crawler.parse.text_budget`).
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TypeVar

from crawler.errors import FailureKind
from crawler.events import Events, OwnFailure
from crawler.logs import log
from crawler.page import Content
from crawler.parse.content import ContentJob
from crawler.parse.document import Document, ParsedDocument, ParseLimits, ReadJob
from crawler.parse.extraction import Extraction, ExtractionJob, unread
from crawler.parse.fair_queue import FairQueue
from crawler.parse.html import Extracted
from crawler.parse.subprocess_client import OffloadProcess, OffloadProcessEnded, ProcessNotStarted
from crawler.parse.text_budget import TextBudget
from crawler.parse.text_fingerprint import TextJob
from crawler.scope.link_filter import NO_HINTS
from frontier.domains import site_of
from frontier.urls import origin_of

MAX_WAITING_BYTES = 128 << 20
MAX_WAITING_DOCUMENTS = 1_000
"""The most that may wait while the workers lend their slots. Beyond that, they keep their slots, which slows fetching. On a
busy machine as much as that does wait, because the process has a low priority."""

RETRY_S = 5.0
"""Seconds until another process is started if none could be."""

TRIES = 2
_KILLED = -signal.SIGKILL
"""Exit code of a process that an operator, or the kernel for lack of memory, ended: worth a second try."""

UNREAD = Content(cut=("text",))
"""The content of a document that exceeded the time or memory limit."""

T = TypeVar("T")

StandIn = Callable[[], AbstractAsyncContextManager[None]]
"""While its block runs, another worker uses the slot of the one that waits in it."""


class DocumentOffloader:
    """Reads large documents. The caller waits in a block of `stand_in`, unless too much is waiting already."""

    def __init__(
        self,
        stand_in: StandIn = nullcontext,
        process: OffloadProcess | None = None,
        events: Events | None = None,
        retry_s: float = RETRY_S,
    ) -> None:
        self._stand_in = stand_in
        self._process = process or OffloadProcess()
        self._events = events or Events()
        self._retry_s = retry_s
        self._queue = FairQueue[asyncio.Future[None]]()
        self._text_budget = TextBudget()
        self._is_busy = False
        self._waiting_documents = self._waiting_bytes = 0  # with lent slots

    def __repr__(self) -> str:
        return f"<DocumentOffloader waiting={self._waiting_documents} bytes={self._waiting_bytes} {self._process!r}>"

    async def read(self, document: Document, limits: ParseLimits) -> ParsedDocument:
        """The contents of `document`: none if it exceeds the limits on time or memory, which is counted as `unread`."""
        job, body = ReadJob(document._replace(body=b""), limits), document.body
        found = await self._waited(document.url, body, lambda: self._process.read(job, body))
        return found or _unread(document)

    async def extract(self, job: ExtractionJob, body: bytes) -> Extraction:
        """What `job` extracts from `body`: nothing if it exceeds the limits on time or memory, which is reported as
        `unread`."""
        found = await self._waited(job.url, body, lambda: self._process.run(job, body, Extraction))
        return found or unread(job.rules)

    async def text_digest(self, job: TextJob, body: bytes) -> str:
        """The fingerprint of the text of `body`: empty if it exceeds the limits on time or memory."""
        return await self._waited(job.url, body, lambda: self._process.run(job, body, str)) or ""

    async def content(self, job: ContentJob, body: bytes) -> Content | None:
        """The content of the page with this `body`: with the cut "text" if it exceeds the limits on time or memory. None if
        its domain has used up its budget. The caller keeps its slot."""
        loop, domain = asyncio.get_running_loop(), _domain_of(job.url)
        async with self._turn(domain):
            if self._text_budget.is_spent(domain, loop.time()):
                return None
            found = await self._asked(job.url, lambda: self._process.run(job, body, Content))
            self._text_budget.spend(domain, self._process.cpu_s if found else job.CPU_S, loop.time())
        return found or UNREAD

    async def _waited(self, url: str, body: bytes, ask: Callable[[], Awaitable[T | None]]) -> T | None:
        """The answer of the process to `ask` about the page at `url`, None if there is none. The slot of the caller is lent
        meanwhile."""
        size = len(body)
        if self._waiting_documents >= MAX_WAITING_DOCUMENTS or self._waiting_bytes + size > MAX_WAITING_BYTES:
            return await self._asked_in_turn(url, ask)
        self._waiting_documents, self._waiting_bytes = self._waiting_documents + 1, self._waiting_bytes + size
        try:
            async with self._stand_in():
                return await self._asked_in_turn(url, ask)
        finally:
            self._waiting_documents, self._waiting_bytes = self._waiting_documents - 1, self._waiting_bytes - size

    async def _asked_in_turn(self, url: str, ask: Callable[[], Awaitable[T | None]]) -> T | None:
        async with self._turn(_domain_of(url)):
            return await self._asked(url, ask)

    @asynccontextmanager
    async def _turn(self, domain: str) -> AsyncIterator[None]:
        """A block that runs when `domain` has its turn, and no other at the same time."""
        loop = asyncio.get_running_loop()
        if self._is_busy:
            await self._wait_for_turn(domain, loop)
        self._is_busy = True
        began = loop.time()
        try:
            yield
        finally:
            self._queue.ended(domain, loop.time() - began)
            self._pass_on()

    async def _wait_for_turn(self, domain: str, loop: asyncio.AbstractEventLoop) -> None:
        call = loop.create_future()
        self._queue.add(domain, call)
        try:
            await call
        except asyncio.CancelledError:
            if call.cancelled():
                self._queue.remove(domain, call)
            else:  # called in the same moment
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Call the next document. The process stays busy until none waits."""
        call = self._queue.take()
        self._is_busy = call is not None
        if call is not None:
            call.set_result(None)

    async def _asked(self, url: str, ask: Callable[[], Awaitable[T | None]]) -> T | None:
        tries = 0
        while tries < TRIES:
            try:
                return await ask()
            except ProcessNotStarted as error:
                self._events.emit(OwnFailure(FailureKind.MACHINE, f"no process for large documents starts: {error}"))
                await asyncio.sleep(self._retry_s)
            except OffloadProcessEnded as error:
                log(logging.WARNING, "offloaded_document_unread", url=url, error=error)
                tries += 1 if error.code == _KILLED else TRIES
        return None

    async def stop(self) -> None:
        """End the process. The next document starts another."""
        await self._process.stop()


def _domain_of(url: str) -> str:
    site = site_of(origin_of(url))
    return site[0] if site else url


def _unread(document: Document) -> ParsedDocument:
    return ParsedDocument(Extracted(error="unread", dropped={"unread": 1}), NO_HINTS, len(document.body), ("unread",))
