"""Limits the calls of handlers in number and time. What a handler raises becomes part of the result.

A call that takes too long is given up: an async one is cancelled, and a thread goes on without effect. Its slot is free for
another call, unless `MOST_THREADS` run already: then it keeps its slot until it ends.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import traceback
from pathlib import Path
from typing import Any

import msgspec

from crawler.defects import in_words
from crawler.handlers.async_or_thread import THREAD, begin
from crawler.handlers.handle import Handle
from crawler.handlers.lifecycle import Context
from crawler.handlers.parsed_page import ParsedPage
from crawler.handlers.router import Handler, Router, name_of
from crawler.hooks import NOTHING, Handled
from crawler.page import Page

FAILED, TOO_LONG = "handler_failed", "handler_timeout"
"""The reasons of pages whose handler failed."""

MOST_THREADS = 200
"""Threads of handlers, those that were given up included. One that waits for something takes some 100 kB."""

LARGE = 256 << 10
"""Bytes of a document that is parsed in a thread before an async handler gets it: it would hold up the event loop for
some milliseconds."""

LONGEST_ERROR = 500
"""Characters of an error that are kept."""


class RunnerSettings(msgspec.Struct, frozen=True):
    """`concurrency`: the most calls at the same time. `timeout_s`: seconds after which a call has failed."""

    concurrency: int = 16
    timeout_s: float = 30.0


class HandlerRunner:
    """Calls the handlers of one replica, with the `context` that they share."""

    def __init__(self, router: Router, settings: RunnerSettings, context: Context | None = None) -> None:
        self._router = router
        self._context = context or Context()
        self._timeout_s = settings.timeout_s
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._running: set[asyncio.Future[None]] = set()

    def wants(self, page: Page) -> bool:
        """Return whether a handler handles `page`."""
        return self._router.handler_of(page) is not None

    async def handle(self, page: Page) -> Handled:
        """Return what the handler of `page` asks for, or how it failed."""
        function = self._router.handler_of(page)
        if function is None:
            return NOTHING
        await self._slots.acquire()
        parsed, handle = ParsedPage.of(page), Handle(self._context.settings, self._context.state)
        slot = _Slot(self._slots)
        call = begin(_prepared(function, parsed), (parsed, handle), slot.release)
        self._running.add(call)
        call.add_done_callback(self._ended)
        try:
            await asyncio.wait([call], timeout=self._timeout_s)
        finally:
            is_done = call.done()
            call.cancel()
        if not is_done:
            if not inspect.iscoroutinefunction(function) and _threads() < MOST_THREADS:
                slot.release()
            return _failed(function, TOO_LONG, f"took longer than {self._timeout_s:g} s")
        if call.cancelled():
            return _failed(function, FAILED, "CancelledError")
        error = call.exception()
        if error is not None:
            return _failed(function, FAILED, f"{in_words(error)[:LONGEST_ERROR]}{_place(function, error)}")
        return handle.result()

    def _ended(self, call: asyncio.Future[None]) -> None:
        self._running.discard(call)
        if not call.cancelled():
            call.exception()  # so that nobody reports one that came too late


def _threads() -> int:
    return sum(thread.name == THREAD for thread in threading.enumerate())


class _Slot:
    """One of the `slots`, which was taken, and is released once."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._is_taken = True

    def release(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._slots.release()


def _prepared(function: Handler, parsed: ParsedPage) -> Handler:
    """`function`, which must return nothing; if it is async, after a large document was parsed in a thread."""
    if not inspect.iscoroutinefunction(function):

        def plain(page: ParsedPage, handle: Handle) -> Any:
            returned: Any = function(page, handle)
            return returned if inspect.isawaitable(returned) else _check_nothing(returned)

        return plain

    async def whole(page: ParsedPage, handle: Handle) -> None:
        if parsed.decoded_size > LARGE:
            await asyncio.to_thread(lambda: page.document)
        _check_nothing(await function(page, handle))

    return whole


def _check_nothing(returned: object) -> None:
    if returned is not None:
        raise TypeError(f"returned {type(returned).__name__}: put items into a data set with crawl.push(NAME, ITEM)")


def _place(function: Handler, error: BaseException) -> str:
    """The file and line of the user's code where `error` was raised, in brackets; "" if that is not known. It is the last
    one in the file of the handler, since a library that it calls says less."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if code and frame.filename == code.co_filename
    ]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def _failed(function: Handler, reason: str, error: str) -> Handled:
    return Handled(handler=name_of(function), reason=reason, error=error)
