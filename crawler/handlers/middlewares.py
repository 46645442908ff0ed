"""Runs the functions of a router that see each request, response and item (`Router.before_request` and its like), in the
order in which they were registered.

Plain functions run in the event loop, because they are called for each request; what takes long belongs into `async` ones,
which have the time of a handler. What a function raises never leads to a request without the changes that it should have
made: the request fails.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import coroutine
from typing import TYPE_CHECKING, Any

from crawler.arguments import check
from crawler.defects import in_words
from crawler.errors import FailureKind, UserError
from crawler.fetch.proxy import proxy_named
from crawler.handlers.parsed_page import Drop, Retry, encoded_item
from crawler.handlers.router import Context, Router, name_of
from crawler.handlers.values import SharedValues
from crawler.hooks import Handled, Intervened, OutgoingRequest
from crawler.page import MAX_ITEM_BYTES, Exchange, Item, RejectedItem

if TYPE_CHECKING:
    Function = Callable[..., Any]

FAILED, TOO_LONG, ASKED = "handler_failed", "handler_timeout", "handler_retry"
"""The reasons of pages whose handler failed."""

PATIENCE_S = 1.0
"""Seconds that a call has to end after it was cancelled."""

_GIVEN_UP = object()
"""The message of the cancellation that no function sees."""

ITEMS_AT_ONCE = 20
"""Items between which other tasks get their turn."""


class Middlewares:
    """The functions of `router` for requests, responses and items. An `async` one may take `timeout_s` seconds."""

    def __init__(self, router: Router, context: Context, timeout_s: float) -> None:
        self._router = router
        self._context = context
        self._timeout_s = timeout_s

    @property
    def sees_requests(self) -> bool:
        """Whether there are functions for requests or responses."""
        return bool(self._router.request_functions or self._router.response_functions)

    @property
    def changes_items(self) -> bool:
        """Whether there are functions for items."""
        return bool(self._router.item_functions)

    async def before(self, request: OutgoingRequest) -> None:
        """Have `request` changed. Raises Intervened if it is not to be sent now."""
        for function in self._router.request_functions:
            kinds = FailureKind.DELAYED, FailureKind.DROPPED
            await self._intervening(function, kinds, request, self._context)
        try:
            check("proxy", request.proxy, str)
            check("cookies", request.cookies, Mapping[str, str])
            _ = request.fields, proxy_named(request.proxy)
        except (AttributeError, TypeError, ValueError, UserError) as error:
            raise Intervened(FailureKind.MIDDLEWARE, str(error), function="before_request") from error

    async def after(self, request: OutgoingRequest, exchange: Exchange | None) -> None:
        """Show `exchange`, the response to `request`; None if it failed. Raises Intervened if the response does not
        count."""
        for function in self._router.response_functions:
            kinds = FailureKind.NOT_ACCEPTED, FailureKind.RESPONSE_DROPPED
            await self._intervening(function, kinds, request, exchange, self._context)

    async def _intervening(
        self, function: Function, kinds: tuple[FailureKind, FailureKind], request: OutgoingRequest, *more: object
    ) -> None:
        """Call `function`. Raises Intervened, of the first of `kinds` for Retry, and of the second for Drop."""
        try:
            returned = await self._run(function, request, *more)
            if returned is not None:
                raise TypeError(f"returned {type(returned).__name__}: change the request, or raise Drop or Retry")
        except Retry as wanted:
            raise Intervened(kinds[0], str(wanted), wanted.after) from wanted
        except Drop as drop:
            if request.kind != "robots":  # without it, nobody knows what else may be requested
                raise Intervened(kinds[1], str(drop)) from drop
        except Exception as error:
            raise Intervened(FailureKind.MIDDLEWARE, in_words(error), function=name_of(function)) from error

    async def changed(self, items: Sequence[Item]) -> Handled:
        """Return what becomes of `items`, or how a function for items failed."""
        kept: list[Item] = []
        rejected: list[RejectedItem] = []
        for number, item in enumerate(items):
            if number % ITEMS_AT_ONCE == ITEMS_AT_ONCE - 1:
                await asyncio.sleep(0)
            values: list[Any] = [item.fields]
            for function in self._router.item_functions:
                before, values = values, []
                for value in before:
                    try:
                        values += _values(value, await self._run(function, item.name, value, self._context))
                    except Drop as drop:
                        rejected.append(RejectedItem(item.name, "", "dropped", detail=str(drop)))
                    except Retry as wanted:
                        return failed(name_of(function), ASKED, str(wanted), wanted.after)
                    except Exception as error:
                        return failed(name_of(function), FAILED, in_words(error))
            try:
                kept += [encoded_item(item.name, value) for value in values]
            except Exception as error:  # a value that JSON does not have
                return failed("on_item", FAILED, in_words(error))
        if sum(len(one.json) for one in kept) > MAX_ITEM_BYTES:
            return failed("on_item", FAILED, f"the items of a page may have {MAX_ITEM_BYTES:,} bytes")
        return Handled(tuple(kept), rejected=tuple(rejected))

    async def _run(self, function: Function, *arguments: object) -> Any:
        """Return what `function` returns. Raises an Exception for whatever it raises."""
        try:
            returned = function(*arguments)
        except Exception:
            raise
        except BaseException as error:
            raise ordinary(error) from error
        if not inspect.isawaitable(returned):
            return returned
        call = asyncio.ensure_future(until_given_up(returned))
        del returned  # see `_steps`
        return await finished(call, self._timeout_s, self._context.store)


class TookTooLong(TimeoutError):
    """Raised for a call that has not ended in its time."""


async def finished(call: asyncio.Future[Any], timeout_s: float, store: SharedValues) -> Any:
    """Return what `call` returns, or raise what it raises, as `ordinary` changes it, if it ends within `timeout_s` seconds,
    besides those in which `store` waits for Redis. Otherwise give it up, and raise TookTooLong."""
    try:
        while (await asyncio.wait([call], timeout=timeout_s))[1] and store.is_waiting:
            pass
        if not call.done():
            raise TookTooLong(f"took longer than {timeout_s:g} s")
        if call.cancelled():
            raise RuntimeError("CancelledError")
        if (error := call.exception()) is not None:
            raise ordinary(error).with_traceback(error.__traceback__)
        return call.result()
    finally:
        give_up(call)


def failed(handler: str, reason: str, error: str, retry_after_s: float | None = None) -> Handled:
    """What becomes of a page whose `handler` has failed."""
    return Handled(handler=handler, reason=reason, error=error, retry_after_s=retry_after_s)


async def until_given_up(call: Awaitable[Any]) -> Any:
    """Return what `call` returns, or raise what it raises, as `ordinary` changes it. It ends also if `call` catches that
    it was cancelled, and goes on, once `give_up` has waited for it."""
    steps = _steps(_awaited(call))
    del call  # see `_steps`
    try:
        return await steps
    except (SystemExit, KeyboardInterrupt) as error:
        raise ordinary(error) from error  # the event loop would end


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call


@coroutine
def _steps(call: Coroutine[Any, None, Any]) -> Generator[Any, None, Any]:
    """What `await call` does, but a cancellation by `give_up` ends it without asking `call`.

    Python throws GeneratorExit into `call` when nobody has it any more. That has to happen while the event loop runs:
    without one, `call` might catch it for ever. So `_steps` alone keeps it, and lets go of it."""
    error: BaseException | None = None
    while True:
        try:
            step = call.send(None) if error is None else call.throw(error)
        except StopIteration as end:
            return end.value
        error = None
        try:
            yield step
        except BaseException as raised:
            if _GIVEN_UP in raised.args:
                with _without_complaints():
                    del call
                raise
            error = raised


@contextmanager
def _without_complaints() -> Iterator[None]:
    """A block in which Python writes nothing about coroutines that catch their end and go on: the log has said that they
    took too long."""
    hook = sys.unraisablehook

    def without_these(problem: sys.UnraisableHookArgs) -> None:
        if "ignored GeneratorExit" not in str(problem.exc_value):
            hook(problem)

    sys.unraisablehook = without_these
    try:
        yield
    finally:
        sys.unraisablehook = hook


def give_up(call: asyncio.Future[Any]) -> None:
    """Cancel `call`, and end it some time later if it goes on. Nobody reports what it raises then."""
    if call.cancel():
        call.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        asyncio.get_running_loop().call_later(PATIENCE_S, call.cancel, _GIVEN_UP)


def ordinary(error: BaseException) -> BaseException:
    """Return `error`, or one in its place that a future can have."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(in_words(error))


def _values(value: Any, returned: Any) -> list[Any]:
    """What takes the place of `value`. Raises TypeError."""
    if returned is None:
        return [value]
    values = returned if isinstance(returned, list) else [returned]
    for one in values:
        if not isinstance(one, dict):
            raise TypeError(f"returned {type(one).__name__}: return an item as a dict, a list of items, or None")
    return values
