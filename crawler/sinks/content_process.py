"""A process that extracts the text of expensive documents: `python -m crawler.sinks.content_process FD`.

Extracting the text of megabytes of hostile markup takes seconds and holds the interpreter's lock, so in the archive's
thread it would block the event loop. Documents that may take more than some tens of milliseconds are therefore parsed here,
with limits on CPU time and memory, while the thread waits without the lock. Other pages stay in the thread.

Process and crawler share a socket. Jobs are pickled, because they come from the crawler. Answers are MessagePack, decoded
into fixed types, because they contain what sites sent. The process ends when the crawler closes the socket.
"""

from __future__ import annotations

import contextlib
import pickle
import resource
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from crawler.child_processes import environment, python_command, renounce_privileges
from crawler.page import Page
from crawler.parse import text_fingerprint
from crawler.sinks.content import Content, TextForm, content_of, has_content
from crawler.sinks.page_lines import plain

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

CPU_S = 1.0
"""CPU seconds per document, several times what ordinary markup of the largest size takes. The archive waits, so the process
keeps its priority."""

LONGEST_S = 60.0
"""Seconds until a process that does not answer is replaced: it may have been stopped (SIGSTOP)."""

DATA_BYTES = 262_144
"""Maximum size of a page's encoded JSON-LD. Each empty list takes two bytes, but is an object in the receiving process."""

MEMORY = 1 << 30
"""Bytes of address space. The tree of 4 MB of the worst markup takes 600 MB, the process itself 200 MB."""

UNREAD = Content(cut=("text",))
"""The content of a document that exceeded the time or memory limit, or whose process was ended otherwise."""


class Job(NamedTuple):
    """The arguments of `content_of`."""

    page: Page
    text: TextForm
    structured: bool
    judged: bool = False
    error_pages: bool = False


class _Answer(NamedTuple):
    """`content`: None if memory ran out, or if `error` was raised."""

    content: Content | None
    error: str | None = None


def is_light(page: Page) -> bool:
    """Whether extracting the content of `page` is quick enough for the thread, whatever a site sent."""
    if page.exchange is None or not has_content(page, error_pages=True):
        return True
    coding = (page.exchange.header_list(b"content-encoding") or b"").decode("latin-1")
    return text_fingerprint.is_light(page.exchange.body, coding, page.charset)


class TextProcess:
    """Extracts the content of expensive documents, one at a time. The process is started for the first one."""

    def __init__(self) -> None:
        self._running: tuple[subprocess.Popen[bytes], Connection[bytes, bytes]] | None = None

    def content_of(self, job: Job) -> Content:
        """Like `crawler.sinks.content.content_of`. Raises RuntimeError with the error that it raised, and OSError if no
        process can be started."""
        _, connection = self._running = self._running or _started()
        without_links = job._replace(page=msgspec.structs.replace(job.page, links=()))
        try:
            connection.send_bytes(pickle.dumps(without_links, pickle.HIGHEST_PROTOCOL))
            if not connection.poll(LONGEST_S):
                self.stop()
                return UNREAD
            content, error = msgspec.msgpack.decode(connection.recv_bytes(), type=_Answer)
        except (EOFError, ConnectionError):  # the process has ended
            self.stop()
            return UNREAD
        if error is not None:
            raise RuntimeError(error)
        return content or UNREAD

    def stop(self) -> None:
        """End the process. The next document starts another one."""
        running, self._running = self._running, None
        if running is not None:
            process, connection = running
            connection.close()
            process.kill()
            process.wait()


def _started() -> tuple[subprocess.Popen[bytes], Connection[bytes, bytes]]:
    from multiprocessing import Pipe  # noqa: PLC0415 - few crawls extract text

    ours, theirs = Pipe()
    with theirs:
        command = python_command("crawler.sinks.content_process", str(theirs.fileno()))
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=environment()), ours


def serve(connection: Connection[bytes, bytes]) -> None:
    """Answer jobs until the crawler closes the connection, which raises EOFError or ConnectionError."""
    while True:
        job = connection.recv_bytes()
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # SIGPROF ends the process
        try:
            answer = _encoded(content_of(*pickle.loads(job)))
        except MemoryError:
            answer = msgspec.msgpack.encode(_Answer(None))
        except Exception as error:
            answer = msgspec.msgpack.encode(_Answer(None, ascii(f"{type(error).__name__}: {error}"[:200])))
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        connection.send_bytes(answer)


def _encoded(content: Content) -> bytes:
    try:
        if content.json_ld is not None and len(msgspec.msgpack.encode(content.json_ld)) > DATA_BYTES:
            content = msgspec.structs.replace(content, json_ld=None, cut=("text",))
        return msgspec.msgpack.encode(_Answer(content))
    except (UnicodeEncodeError, OverflowError, RecursionError):  # values that JSON has and MessagePack does not
        fields = {name: plain(value) for name, value in msgspec.structs.asdict(content).items()}
        return _encoded(Content(**fields))


def main() -> None:
    from multiprocessing.connection import Connection  # noqa: PLC0415

    renounce_privileges()
    # Terminals and service managers send signals to the whole process group, but only the crawler ends this process.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError, ValueError):  # not available on every system
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with contextlib.suppress(EOFError, ConnectionError):
        serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
