"""Ends the work of a command at a signal, and registers what is called when a process of a crawl is asked to stop: by a
signal, or by the end of the process that started it. What a replica does at its first and second signal is in
`crawler.app.replica` (`run_until_stopped`)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_CHUNK = 4096

INTERRUPTED = 130
"""Exit code after a second signal, as shells report SIGINT (128 + 2)."""

T = TypeVar("T")


def run_until_signal(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` and return its result. Until it handles them itself, SIGTERM and SIGHUP interrupt it as Ctrl-C does,
    so that it leaves no embedded server running. Raises SystemExit after such a signal. SIGHUP stays ignored if it was.
    While `work` ends, further ones have no effect, unlike a second Ctrl-C, which ends it at once. Only the main thread
    can handle signals."""
    received: list[int] = []

    async def cancellable() -> T:
        loop, me = asyncio.get_running_loop(), asyncio.current_task()
        assert me is not None

        def end(number: int) -> None:
            if not received:
                received.append(number)
                me.cancel()

        is_main = threading.current_thread() is threading.main_thread()
        for number in (signal.SIGTERM, signal.SIGHUP) if is_main else ():
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, end, number)
        return await work

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        if not received:
            raise
        sys.exit(128 + received[0])


def on_stop_signal(stop: Callable[[], None]) -> None:
    """Call `stop` at each SIGINT, SIGTERM and SIGHUP (a closed terminal). SIGHUP stays ignored if it was, as with
    nohup."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop)


def on_fatal_signal(stop: Callable[[int], None]) -> None:
    """Call `stop` at each SIGTERM and SIGHUP that would end the process, while the loop runs. Only the main thread can
    handle signals."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                asyncio.get_running_loop().add_signal_handler(number, stop, number)


def on_end_of_supervisor(stop: Callable[[], None]) -> None:
    """Call `stop` once when the supervisor, which holds the other end of this process's standard input, has ended."""
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()

    def read() -> None:
        if not os.read(descriptor, _CHUNK):
            loop.remove_reader(descriptor)
            stop()

    loop.add_reader(descriptor, read)
