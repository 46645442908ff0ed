"""Limits the calls of handlers in number and time. What a handler raises becomes part of the result.

Domains have turns (`crawler.parse.turns`). The trees of large pages are parsed one at a time, in a thread, before the
handler is called. While a handler waits for an answer, another call may have its slot, unless its page is large: those
have half of the slots, and keep them. Waiting to have a slot again counts as time of the handler. Its other tasks, if it
has any, go on without a slot meanwhile.

A call that takes too long is given up: an async one is cancelled, ends a second later even if it catches that, and keeps
its slot until then. A thread goes on without effect, and its slot is free for another call, unless `MOST_THREADS` run
already: then it keeps its slot until it ends.

Each plain function runs in a thread of its own: one that never returns would block a pool, and the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import re
import threading
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec

from crawler.defects import in_words
from crawler.errors import UserError
from crawler.handlers.middlewares import (
    ASKED,
    FAILED,
    TOO_LONG,
    Middlewares,
    TookTooLong,
    failed,
    finished,
    ordinary,
    until_given_up,
)
from crawler.handlers.parsed_page import Handle, ParsedPage, Retry
from crawler.handlers.requests import VisitRequests
from crawler.handlers.router import OK, Context, Handler, Hook, Router, name_of
from crawler.handlers.values import SharedValues
from crawler.hooks import NOTHING, Handled, Visit
from crawler.logs import log
from crawler.page import Outcome, Page
from crawler.parse.turns import FairTurns
from crawler.settings.tables import HandlersTable

MOST_THREADS = 200
"""Threads of handlers, those that were given up included. One that waits for something takes some 100 kB."""

LARGE = 256 << 10
LARGE_TAGS = 8_000
"""Bytes and tags of a document from which on it is large: to parse it, or to find something in its tree, may hold up the
event loop for more than ten milliseconds."""

MOST_TOLD = 100
"""Labels without a handler that are logged."""

LONGEST_ERROR = 500
"""Characters of an error that are kept."""


class HandlerRunner(Middlewares):
    """Calls the handlers of one replica, and its functions for items, with the `context` that they share."""

    def __init__(self, router: Router, settings: HandlersTable, context: Context | None = None) -> None:
        super().__init__(router, context or Context(), settings.timeout)
        self._slots = FairTurns([None] * settings.concurrency)
        self._are_lent = settings.concurrency > 1
        self._trees, self._trees_of_answers = FairTurns([None], rest=1.0), FairTurns([None], rest=1.0)
        self._told = set[str]()  # labels of which the log says that they have no handler

    def wants(self, page: Page) -> bool:
        """Return whether a handler handles `page`."""
        if self._router.route_of(page) is not None:
            return True
        is_ok = page.outcome is Outcome.DONE and page.exchange is not None and page.exchange.status in OK
        if page.label and is_ok and page.label not in self._told | self._router.labels and len(self._told) < MOST_TOLD:
            self._told.add(page.label)
            log(logging.WARNING, "label_without_handler", label=page.label, first=page.url)  # perhaps a typing error
        return False

    async def handle(self, page: Page, visit: Visit | None = None) -> Handled:
        """Return what the handler of `page` asks for, or how it failed. It may make requests during `visit`."""
        route = self._router.route_of(page)
        if route is None:
            return NOTHING
        handled = await self._call(route.function, page, visit)
        if handled.items and self.changes_items:
            changed = await self.changed(handled.items)
            fields = {"items": changed.items, "rejected": changed.rejected}
            handled = changed if changed.reason else msgspec.structs.replace(handled, **fields)
        return handled if route.failure is None else msgspec.structs.replace(handled, is_of_failure=True)

    async def _call(self, function: Handler, page: Page, visit: Visit | None) -> Handled:
        parsed, context = ParsedPage.of(page), self._context
        is_large = _is_large(parsed)
        slot = _Slot(self._slots, page.domain, is_large, is_lent=not is_large and self._are_lent)
        requests = VisitRequests(parsed, visit, context.files, slot.wait_for, self._prepare_answer)
        handle = Handle(context.settings, context.state, requests, SharedValues(context.store.ask))
        async with self._trees.turn(page.domain, is_heavy=True) if is_large else contextlib.nullcontext():
            if is_large:
                await asyncio.to_thread(_parse, parsed)
            await slot.take()
            if visit is not None:
                visit.ends_in(self._timeout_s)
            call = begin(function, (parsed, handle), slot.close)
            if is_large:
                await asyncio.sleep(0)  # what it does at once belongs to the turn
        name = name_of(function)
        try:
            returned = await finished(call, self._timeout_s, handle.store)
            if returned is not None:
                problem = f"returned {type(returned).__name__}: put items into a data set with crawl.push(NAME, ITEM)"
                raise TypeError(problem)
        except TookTooLong as error:
            if not inspect.iscoroutinefunction(function) and _threads() < MOST_THREADS:
                slot.close()
            return failed(name, TOO_LONG, str(error))
        except Retry as wanted:
            wanted.__traceback__ = None  # see below
            return failed(name, ASKED, str(wanted), wanted.after)
        except Exception as error:
            words = in_words(error)[:LONGEST_ERROR]
            words += f"{_hint(words)}{_place(function, error)}"
            # It leads to this call, and so to the page, which would stay in memory until the next full collection.
            error.__traceback__ = None
            return failed(name, FAILED, words)
        finally:
            slot.is_final = True
        result = handle.result(name)
        return msgspec.structs.replace(result, base=await _base(parsed)) if result.added else result

    async def _prepare_answer(self, answer: ParsedPage) -> None:
        if _is_large(answer):
            async with self._trees_of_answers.turn(answer.domain, is_heavy=True):
                await asyncio.to_thread(_parse, answer)


class _Slot:
    """The slot of a call for a page of `domain`. `is_lent`: others may have it while the call waits. `is_final`: once it
    is returned, it is not taken again, because the call has ended or was given up."""

    def __init__(self, slots: FairTurns[None], domain: str, is_heavy: bool, is_lent: bool) -> None:
        self._slots, self._domain, self._is_heavy, self._is_lent = slots, domain, is_heavy, is_lent
        self._end: Callable[[], None] | None = None
        self._waiting = 0
        self.is_final = False

    async def take(self) -> None:
        """Wait for a slot."""
        _, end = await self._slots.take(self._domain, self._is_heavy)
        if self.is_final or self._waiting or self._end is not None:  # as several tasks of a call may take it
            end()
        else:
            self._end = end

    def close(self) -> None:
        """Return the slot finally, if that has not been done."""
        self.is_final = True
        self._return()

    def _return(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end()

    async def wait_for(self, work: Awaitable[Any]) -> Any:
        """What `work` returns."""
        if not self._is_lent:
            return await work
        self._waiting += 1
        self._return()
        try:
            return await work
        finally:
            self._waiting -= 1
            if not (self._waiting or self.is_final):
                # Also if only the work or this wait is cancelled, as by a timeout in the handler.
                await asyncio.shield(asyncio.ensure_future(self.take()))


async def _base(page: ParsedPage) -> str:
    """`page.base`, found in a thread if that may take long."""
    return await asyncio.to_thread(lambda: page.base) if page.decoded_size > LARGE else page.base


def _threads() -> int:
    return sum(thread.name == THREAD for thread in threading.enumerate())


def _is_large(page: ParsedPage) -> bool:
    return page.decoded_size > LARGE or "unread" in page.cut or page.body.count(b"<") > LARGE_TAGS


def _parse(page: ParsedPage) -> None:
    """Parse the tree of `page`. If that raises, it does again in the handler."""
    with contextlib.suppress(Exception):
        _ = page.document


def _hint(error: str) -> str:
    """What to write instead of what users of Scrapy write; "" after any other error."""
    if error == "AttributeError: 'ParsedPage' object has no attribute 'css'":
        return f"; use {_SELECT}"
    if "invalid CSS selector" in error and _OF_SCRAPY.search(error):
        return f"; leave out ::text and ::attr, and use {_SELECT}"
    return ""


_SELECT = "page.select(CSS), page.select_text(CSS) or page.select_attr(CSS, NAME)"
_OF_SCRAPY = re.compile("::(text|attr)")


def _place(function: Handler, error: BaseException) -> str:
    """The file and line of the user's code where `error` was raised, in brackets; "" if that is not known. It is the
    last one in the file of the handler, since a library that it calls says less."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if code and frame.filename == code.co_filename
    ]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


THREAD = "handler"
"""The name of the threads of plain functions."""


def begin(function: Callable[..., Any], arguments: tuple[Any, ...], over: Callable[[], None]) -> asyncio.Future[Any]:
    """Call `function`. The future ends with the call, or if it is cancelled. `over` is called when the function has
    really ended, which for a thread may be later."""
    if inspect.iscoroutinefunction(function):
        call = asyncio.ensure_future(until_given_up(function(*arguments)))
        call.add_done_callback(lambda _: over())
        return call
    return _in_thread(lambda: function(*arguments), over)


def _in_thread(call: Callable[[], Any], over: Callable[[], None]) -> asyncio.Future[Any]:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def finish(returned: object, error: BaseException | None) -> None:
        over()
        if ended.done():
            return
        if error is None:
            ended.set_result(returned)
        else:
            ended.set_exception(ordinary(error))

    def run() -> None:
        returned, failure = None, None
        try:
            if inspect.isawaitable(returned := call()):
                if inspect.iscoroutine(returned):
                    returned.close()  # without a warning that nobody has awaited it
                raise TypeError("returned something to await: declare it with `async def`")
        except BaseException as error:  # a user's function may raise anything
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, returned, failure)

    Thread(target=run, name=THREAD, daemon=True).start()
    return ended


class Lifecycle:
    """Starts and ends the functions of `router`; None if there is none. A call may take `timeout_s` seconds."""

    def __init__(self, router: Router | None, context: Context, timeout_s: float) -> None:
        self._router = router
        self._context = context
        self._timeout_s = timeout_s
        self._has_started = False

    async def start(self) -> None:
        """Call the functions for the start in their order. Raises UserError if one raises, or takes too long."""
        if self._router is None:
            return
        self._has_started = True
        for hook in self._router.start_hooks:
            if problem := await self._problem(hook):
                raise UserError(f"{name_of(hook)}, which runs at the start (on_start), failed: {problem}")

    async def stop(self) -> None:
        """Call the functions for the end in reverse order, also those whose start has failed. Failures are logged."""
        if self._router is None or not self._has_started:
            return
        self._has_started = False
        for hook in reversed(self._router.end_hooks):
            if problem := await self._problem(hook):
                log(
                    logging.WARNING, "end_hook_failed", replica=self._context.replica, hook=name_of(hook), error=problem
                )

    async def _problem(self, hook: Hook) -> str:
        call = begin(hook, (self._context,), lambda: None)
        try:
            await finished(call, self._timeout_s, self._context.store)
        except Exception as error:
            return in_words(error)
        return ""
