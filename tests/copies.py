"""Starts programs as copies of a process that has made the imports, which spares each of them half a second.

    python -m tests.copies DESCRIPTOR

is that process. It has one thread, and forks for each request at the socket DESCRIPTOR. A copy is a process like any other,
with its own id, session, folder, environment, streams and signals; only its command line in `ps` is that of the process it
is a copy of. Tests of the start, or of what the command line shows, start an interpreter of their own.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import NoReturn

import msgspec

ROOT = Path(__file__).parent.parent
STREAMS = 3
NUMBER = 4  # bytes
STEP_S = 0.02

PREPARED = (
    "crawler.__main__",  # the first, because what it does at the exit has to come last
    "crawler.app.replica",
    "crawler.cli.crawl",
    "crawler.cli.export",
    "crawler.cli.seeds",
    "tests.simweb.__main__",
)
"""What nearly every process imports."""


class Call(msgspec.Struct):
    """What `python -m` does with a module that has a function `main`, which returns the exit code."""

    module: str
    words: list[str]
    folder: str
    environment: dict[str, str]


class Copy:
    """A process that was started, with the methods of `subprocess.Popen`. `streams`: the descriptors of its standard input,
    output and error."""

    def __init__(
        self, words: list[str], folder: Path, environment: Mapping[str, str], streams: tuple[int, int, int]
    ) -> None:
        module, *rest = words
        self._report, theirs = socket.socketpair()
        with theirs:
            _source().ask(Call(module, rest, str(folder), dict(environment)), [*streams, theirs.fileno()])
        try:
            self.pid = _read_number(self._report)
        except BaseException:
            self._report.close()
            raise
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative after a signal, or None while the process runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. Raises TimeoutExpired after `timeout` seconds."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    async def ended(self) -> int:
        """Wait for the exit code."""
        while (code := self.poll()) is None:  # noqa: ASYNC110 - several may wait, and a descriptor has one reader
            await asyncio.sleep(STEP_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, limit_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], limit_s)[0]:
            self.returncode = _read_number(self._report)
            self._report.close()
        return self.returncode


class _Source:
    """The process that is copied. It ends when this process does."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair()
        self._lock = Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.copies", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the tests
            )
        atexit.register(self._stop)

    def ask(self, call: Call, descriptors: list[int]) -> None:
        asked = msgspec.json.encode(call)
        with self._lock:
            socket.send_fds(self._requests, [len(asked).to_bytes(NUMBER)], descriptors)
            self._requests.sendall(asked)

    def _stop(self) -> None:
        self._requests.close()
        self._process.wait()


@cache
def _source() -> _Source:
    return _Source()


def _read_number(report: socket.socket) -> int:
    read = report.recv(NUMBER, socket.MSG_WAITALL)
    assert len(read) == NUMBER, "the process that is copied has ended"
    return int.from_bytes(read, signed=True)


def _write_number(report: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody waits for it
        report.sendall(number.to_bytes(NUMBER, signed=True))


class _Forks:
    """Makes copies of this process, and reports their ends."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._reports: dict[int, socket.socket] = {}
        self._woken, self._waking = socket.socketpair()
        self._waking.setblocking(False)
        signal.set_wakeup_fd(self._waking.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> Call:
        """Returns only in the copies."""
        while True:
            ready = select.select([self._requests, self._woken], [], [])[0]
            if self._woken in ready:
                self._woken.recv(1 << 12)
                self._report_ends()
            if self._requests in ready and (call := self._copied()) is not None:
                return call

    def _report_ends(self) -> None:
        while self._reports and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with self._reports.pop(ended[0]) as report:
                _write_number(report, os.waitstatus_to_exitcode(ended[1]))

    def _copied(self) -> Call | None:
        """The call, in the copy that was made for it; None in this process."""
        head, descriptors, _, _ = socket.recv_fds(self._requests, NUMBER, STREAMS + 1)
        if not head:
            sys.exit()
        call = msgspec.json.decode(self._requests.recv(int.from_bytes(head), socket.MSG_WAITALL), type=Call)
        *streams, report = descriptors
        if pid := os.fork():
            self._reports[pid] = socket.socket(fileno=report)
            for stream in streams:
                os.close(stream)
            return None
        self._forget()
        _become(call, streams)
        with socket.socket(fileno=report) as told:
            _write_number(told, os.getpid())
        return call

    def _forget(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in (self._requests, self._woken, self._waking, *self._reports.values()):
            one.close()


def _become(call: Call, streams: list[int]) -> None:
    """Take on all that distinguishes a new process from the one that it is a copy of."""
    os.setsid()
    os.chdir(call.folder)
    os.environ.clear()
    os.environ.update(call.environment)
    time.tzset()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv[1:] = call.words
    sys.path[:1] = [call.folder, *filter(None, call.environment.get("PYTHONPATH", "").split(os.pathsep))]


def main() -> NoReturn:
    for module in PREPARED:
        import_module(module)
    gc.freeze()  # no copy looks through these objects, which would copy their memory
    call = _Forks(socket.socket(fileno=int(sys.argv[1]))).serve()
    program = import_module(call.module)
    sys.modules["__main__"] = program
    sys.argv[0] = str(program.__file__)
    code = program.main()
    sys.stdout.flush()
    os._exit(code or 0)  # freeing all objects would take a tenth of a second


if __name__ == "__main__":
    main()
