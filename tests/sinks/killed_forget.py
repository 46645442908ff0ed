"""Rewrites copies of a folder without gone.test, and dies before another of the changes to its files in each.

python -m tests.sinks.killed_forget FOLDER COPIES

Python reports each change before it is made. In the copy called N, a process of its own ends with SIGKILL right before the
change with this number. The last copy is the one that was rewritten to the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

# What a rewrite would import first in each of the processes, which takes half a second.
import pandas  # type: ignore[import-untyped]  # noqa: F401
import pyarrow.parquet  # type: ignore[import-untyped]  # noqa: F401

from crawler.sinks.forget import DomainRewriter

CHANGES = {"os.rename", "os.remove", "os.truncate", "os.link"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def rewrite(folder: Path, number: int) -> None:
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


def main(folder: Path, copies: Path) -> None:
    for number in count():
        copy = copies / str(number)
        shutil.copytree(folder, copy)
        child = os.fork()
        if not child:
            rewrite(copy, number)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
