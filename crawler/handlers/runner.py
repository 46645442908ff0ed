"""Calls the handlers of pages, within limits on number and time. What a handler raises becomes part of the result.

A call that takes too long is given up: an async one is cancelled, and a thread goes on without effect. It keeps
its slot until it ends, so the number of calls never exceeds `concurrency`.
"""

from __future__ import annotations

import asyncio
import inspect

import msgspec

from crawler.handlers.calls import begin
from crawler.handlers.handle import Handle
from crawler.handlers.lifecycle import Context
from crawler.handlers.parsed_page import ParsedPage
from crawler.handlers.router import Handler, Router, name_of
from crawler.hooks import NOTHING, Handled
from crawler.page import Page

FAILED, TOO_LONG = "handler_failed", "handler_timeout"
"""The reasons of pages whose handler failed."""

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
        call = begin(_prepared(function, parsed), (parsed, handle), self._slots.release)
        self._running.add(call)
        call.add_done_callback(self._ended)
        try:
            await asyncio.wait([call], timeout=self._timeout_s)
        finally:
            is_done = call.done()
            call.cancel()
        if not is_done:
            return _failed(function, TOO_LONG, f"took longer than {self._timeout_s:g} s")
        if call.cancelled():
            return _failed(function, FAILED, "CancelledError")
        error = call.exception()
        if error is not None:
            return _failed(function, FAILED, f"{type(error).__name__}: {error}")
        return handle.result()

    def _ended(self, call: asyncio.Future[None]) -> None:
        self._running.discard(call)
        if not call.cancelled():
            call.exception()  # so that nobody reports one that came too late


def _prepared(function: Handler, parsed: ParsedPage) -> Handler:
    """`function`; if it is async and the document is large, after this was parsed in a thread."""
    if parsed.decoded_size <= LARGE or not inspect.iscoroutinefunction(function):
        return function

    async def whole(page: ParsedPage, handle: Handle) -> None:
        await asyncio.to_thread(lambda: page.document)
        await function(page, handle)

    return whole


def _failed(function: Handler, reason: str, error: str) -> Handled:
    return Handled(handler=name_of(function), reason=reason, error=error[:LONGEST_ERROR])
