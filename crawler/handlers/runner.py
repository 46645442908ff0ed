"""Calls the handlers of pages, within limits on number and time. What a handler raises becomes part of the result.

A plain function runs in a thread of its own, because a thread that never returns would block a pool, and the end of the
process. A call that takes too long is given up: an async one is cancelled, and a thread goes on without effect. It keeps
its slot until it ends, so the number of calls never exceeds `concurrency`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable
from threading import Thread

import msgspec

from crawler.handlers.handle import Handle
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
    """Calls the handlers of one replica."""

    def __init__(self, router: Router, settings: RunnerSettings) -> None:
        self._router = router
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
        parsed, handle = ParsedPage.of(page), Handle()
        if inspect.iscoroutinefunction(function):
            call: asyncio.Future[None] = asyncio.ensure_future(_awaited(function, parsed, handle))
            call.add_done_callback(lambda _: self._slots.release())
        else:
            call = self._in_thread(function, parsed, handle)
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

    def _in_thread(self, function: Handler, parsed: ParsedPage, handle: Handle) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def finish(error: BaseException | None) -> None:
            self._slots.release()
            if ended.done():
                return
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(_ordinary(error))

        def run() -> None:
            failure: BaseException | None = None
            try:
                if inspect.isawaitable(returned := function(parsed, handle)):
                    _drop(returned)
                    raise TypeError("returned something to await: declare it with `async def`")
            except BaseException as error:  # a user's function may raise anything
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish, failure)

        Thread(target=run, name="handler", daemon=True).start()
        return ended


def _drop(returned: object) -> None:
    """Drop a coroutine that will not be awaited, without a warning about it."""
    if inspect.iscoroutine(returned):
        returned.close()


async def _awaited(function: Handler, parsed: ParsedPage, handle: Handle) -> None:
    if parsed.decoded_size > LARGE:
        await asyncio.to_thread(lambda: parsed.document)
    try:
        call = function(parsed, handle)
        assert isinstance(call, Awaitable)
        await call
    except (SystemExit, KeyboardInterrupt) as error:
        raise _ordinary(error) from error  # the event loop would end


def _ordinary(error: BaseException) -> BaseException:
    """Return `error`, or one in its place that a future can have."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")


def _failed(function: Handler, reason: str, error: str) -> Handled:
    return Handled(handler=name_of(function), reason=reason, error=error[:LONGEST_ERROR])
