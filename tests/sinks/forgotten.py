"""Rewrites a folder without gone.test, and dies before one of the changes to its files."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from crawler.sinks.forget import DomainRewriter

CHANGES = {"os.rename", "os.remove", "os.truncate", "os.link"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def rewrite(folder: Path, number: int) -> None:
    """For a process of its own: Python reports each change before it is made, and the process ends with SIGKILL right
    before the change with this number."""
    rewriter = DomainRewriter(folder, "gone.test")
    left = number

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES
        if event in CHANGES or writes:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    rewriter.rewrite()
