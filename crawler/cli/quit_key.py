"""Reads single keys from the terminal while a command shows a live screen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Iterator


@contextlib.contextmanager
def quit_key(ended: asyncio.Event) -> Iterator[None]:
    """Set `ended` when the user presses q. If standard input is not a terminal, nothing is read from it."""
    if not sys.stdin.isatty():
        yield
        return
    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(terminal)

    def read() -> None:
        pressed = os.read(terminal, 64)
        if not pressed or b"q" in pressed.lower():  # nothing: the terminal was closed
            ended.set()

    try:
        tty.setcbreak(terminal)  # keys arrive at once and are not shown; Ctrl-C still interrupts
        loop.add_reader(terminal, read)
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
