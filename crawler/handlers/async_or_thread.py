"""Calls one function of a user: an async one in the event loop, a plain one in a thread of its own.

A thread that never returns would block a pool, and the end of the process, so each call has its own. What a function raises
becomes the exception of a future that anybody may await.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from threading import Thread
from typing import Any

from crawler.defects import in_words

THREAD = "handler"
"""The name of the threads of plain functions."""


def begin(function: Callable[..., Any], arguments: tuple[Any, ...], over: Callable[[], None]) -> asyncio.Future[None]:
    """Call `function`. The future ends with the call, or if it is cancelled. `over` is called when the function has really
    ended, which for a thread may be later."""
    if inspect.iscoroutinefunction(function):
        call: asyncio.Future[None] = asyncio.ensure_future(_awaited(function(*arguments)))
        call.add_done_callback(lambda _: over())
        return call
    return _in_thread(lambda: function(*arguments), over)


async def _awaited(call: Awaitable[Any]) -> None:
    try:
        await call
    except (SystemExit, KeyboardInterrupt) as error:
        raise _ordinary(error) from error  # the event loop would end


def _in_thread(call: Callable[[], Any], over: Callable[[], None]) -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def finish(error: BaseException | None) -> None:
        over()
        if ended.done():
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(_ordinary(error))

    def run() -> None:
        failure: BaseException | None = None
        try:
            if inspect.isawaitable(returned := call()):
                _drop(returned)
                raise TypeError("returned something to await: declare it with `async def`")
        except BaseException as error:  # a user's function may raise anything
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, failure)

    Thread(target=run, name=THREAD, daemon=True).start()
    return ended


def _drop(returned: object) -> None:
    """Drop a coroutine that will not be awaited, without a warning about it."""
    if inspect.iscoroutine(returned):
        returned.close()


def _ordinary(error: BaseException) -> BaseException:
    """Return `error`, or one in its place that a future can have."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(in_words(error))
