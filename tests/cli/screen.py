"""A command in a pseudo-terminal, and what a user reads there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e.harness import ROOT

PATIENCE_S = 180.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """Runs `crawler words...` in `folder`, in a terminal of `columns` x `rows`."""

    def __init__(self, folder: Path, *words: str, columns: int = 80, rows: int = 24, path: str = "") -> None:
        self._output = b""
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests were started with nohup
            os.chdir(folder)
            for name in ("COLUMNS", "LINES", "NO_COLOR"):
                os.environ.pop(name, None)
            os.environ.update(TERM="xterm-256color", PYTHONPATH=f"{path}:{ROOT}")
            os.execv(sys.executable, [sys.executable, "-m", "crawler", *words])
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up: a command that ends by itself stops its embedded server, too."""
        self.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._ends_within(5.0):
                return
            os.kill(self.pid, number)
        os.waitpid(self.pid, 0)

    def _ends_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        with contextlib.suppress(ChildProcessError):  # raised if `wait` has seen the end
            while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.01)
        return True

    def close(self) -> None:
        """Close the terminal."""
        os.close(self._terminal)

    @property
    def text(self) -> str:
        """Everything that was shown since the last `forget`, without control sequences."""
        return _ESCAPES.sub("", self._output.decode(errors="replace")).replace("\r", "")

    @property
    def raw(self) -> bytes:
        return self._output

    @property
    def lines(self) -> list[str]:
        """What the terminal shows now, with the lines that were scrolled out of it. Lines are not wrapped."""
        lines, row, column = [""], 0, 0
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", self._output.decode(errors="replace")):
            if part == "\r":
                column = 0
            elif part == "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            elif part.endswith("A"):
                row = max(0, row - int(part[2:-1] or 1))
            elif part.endswith("K"):
                lines[row] = ""
            elif not part.startswith("\x1b"):
                lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part) :]
                column += len(part)
        return lines

    def forget(self) -> None:
        self._output = b""

    def wait_for(self, *texts: str) -> str:
        """Read until all `texts` were shown, and return the text."""
        self._read(lambda: all(text in self.text for text in texts))
        assert all(text in self.text for text in texts), f"not shown: {texts}\n{self.text[-3000:]}"
        return self.text

    def wait_for_updates(self, number: int, mark: str) -> None:
        """Read until `mark`, which each update shows, was shown `number` times more."""
        wanted = self.text.count(mark) + number
        self._read(lambda: self.text.count(mark) >= wanted)

    def wait_until_gone(self, text: str, mark: str) -> None:
        """Read until `text` was not shown between two of `mark`, which is shown with each update."""
        self.forget()
        self._read(lambda: any(text not in part for part in self.text.split(mark)[1:-1]))
        assert any(text not in part for part in self.text.split(mark)[1:-1]), f"still shown:\n{self.text[-3000:]}"

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def wait(self) -> int:
        """Wait for the end of the command, and return its exit code."""
        self._read(lambda: False)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def _read(self, is_enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_enough():
            assert time.monotonic() < deadline, f"still running:\n{self.text[-3000:]}"
            if not select.select([self._terminal], [], [], 0.2)[0]:
                continue
            try:
                chunk = os.read(self._terminal, 65_536)
            except OSError:  # the command has ended
                return
            if not chunk:
                return
            self._output += chunk
