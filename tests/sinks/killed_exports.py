"""Runs an export command again and again, each time in a new folder, and kills it before another of the changes that it
makes there, of many only before some. Then the same command runs to its end.

python -m tests.sinks.killed_exports FOLDER WHO WORDS...

FOLDER has what is exported; the command runs in FOLDER/N, with `../out` as its input. WHO is `all`, to kill the command
with the processes that it has started, or `command`, to kill only the command itself. Python reports each change, and each
call that writes, before it is made. Each folder has a copy of what was there after the kill, in N/killed. The last one was
not killed.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

# What an export would import first in each of the processes, which takes half a second.
import pandas  # type: ignore[import-untyped]  # noqa: F401
import pyarrow.parquet  # type: ignore[import-untyped]  # noqa: F401

from crawler.__main__ import main as command
from crawler.cli import export  # noqa: F401

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "tempfile.mkdtemp"}
CALLS = {"write", "writelines", "writerow", "write_table", "write_text", "write_bytes", "close"}
"""Calls that write, or after which something was written."""

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
PATIENCE_S = 30.0


def run(folder: Path, words: list[str], number: int | None, kills_all: bool) -> int:
    """The exit code of the command in `folder`, negative after a signal. It is killed before its change `number`."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.chdir(folder)
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if number is not None:
            kill_at(folder / "export", number, kills_all)
        sys.argv = ["crawler", *words]
        command()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    wait_for_others(child)
    return os.waitstatus_to_exitcode(status)


def kill_at(folder: Path, number: int, kills_all: bool) -> None:
    left, me = multiprocessing.Value("i", number), os.getpid()
    has_begun = multiprocessing.Value("b", False)

    def step() -> None:
        if not (kills_all or os.getpid() == me):
            return
        with left.get_lock():
            left.value -= 1
            if left.value < 0:
                os.kill(0 if kills_all else me, signal.SIGKILL)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES
        if (event in CHANGES or writes) and str(Path(os.fsdecode(arguments[0])).absolute()).startswith(str(folder)):
            has_begun.value = True
            step()

    def profile(frame: Any, event: str, called: Any) -> None:
        name = called.__name__ if event == "c_call" else frame.f_code.co_name if event == "call" else ""
        if name in CALLS and has_begun.value:
            step()

    sys.addaudithook(watch)
    sys.setprofile(profile)


def wait_for_others(group: int) -> None:
    """Wait until the processes that the command has started have ended."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    os.killpg(group, signal.SIGKILL)
    sys.exit("processes of a killed command go on")


def main(folder: Path, who: str, words: list[str]) -> None:
    number = 0
    while True:
        here = folder / str(number)
        here.mkdir()
        code = run(here, words, number, who == "all")
        if (here / "export").exists():
            shutil.copytree(here / "export", here / "killed")
        if code != -signal.SIGKILL:
            sys.exit(code)
        if (code := run(here, words, None, False)) not in (0, 2):
            sys.exit(f"{here}: the second command ended with {code}: {(here / 'log').read_text()}")
        number += 1 + number * 2 // 3


if __name__ == "__main__":
    multiprocessing.set_start_method(
        "fork"
    )  # in later versions of Python, others would inherit neither hook nor profile
    main(Path(sys.argv[1]).absolute(), sys.argv[2], sys.argv[3:])
