"""Registers what is called when a process of a crawl is asked to stop: by a signal, or by the end of the process that
started it. `crawler.app.engine` does the stopping."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable

_CHUNK = 4096


def on_stop_signal(stop: Callable[[], None]) -> None:
    """Call `stop` at each SIGINT, SIGTERM and SIGHUP, which a terminal sends when it is closed. SIGHUP stays ignored if it
    was when the process started: so nohup works."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop)


def on_end_of_supervisor(stop: Callable[[], None]) -> None:
    """Call `stop` once when the supervisor, which holds the other end of this process's standard input, has ended."""
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()

    def read() -> None:
        if not os.read(descriptor, _CHUNK):
            loop.remove_reader(descriptor)
            stop()

    loop.add_reader(descriptor, read)
