"""A process for the text of documents that take long: `python -m crawler.sinks.content_process`, started by `TextProcess`.

To find the main text of 4 MB of hostile markup takes 6 s, to read its JSON-LD 1 s, and both hold the interpreter's lock: in
the archive's thread they hold up the event loop. Documents that may take more than 50 ms are therefore read here, under
limits on CPU time and memory; the thread waits for them without the lock. Ordinary pages stay in the thread.

Jobs and answers are frames of four bytes of length and so many of content. A job is a pickle, because it comes from the
crawler; an answer was made from what strangers sent, so it is MessagePack, read into given types. The process ends when
its input does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import subprocess
import sys
from typing import IO, NamedTuple

import msgspec

from crawler.page import Page
from crawler.parse.confinement import environment, renounce_privileges
from crawler.sinks.content import Content, TextForm, content_of, decoded, has_content
from crawler.sinks.pages import plain

LIGHT_BYTES = 32_768
"""Of a decoded body: whatever they hold, 50 ms."""

LIGHT_TAGS = 4_000
LIGHT_TAGGED_BYTES = 131_072
"""The same for longer bodies of so few tags: the worst tag takes 12 us, the worst byte of JSON-LD 0.4."""

CPU_S = 1.0
"""CPU seconds a document. 4 MB of ordinary markup take 0.2. The archive waits meanwhile, so the process is not nice."""

DATA_BYTES = 262_144
"""Of a page's JSON-LD, encoded: more is left out, as each list of two bytes is an object to whoever receives it."""

MEMORY = 1 << 30
"""Bytes of address space. The tree of 4 MB of the worst markup takes 600 MB, the process itself 200."""

_FRAME = 4  # bytes of a frame's length

UNREAD = Content(cut=("text",))
"""Of a document that took more time or memory than it may take."""


class Job(NamedTuple):
    """The arguments of `content_of`."""

    page: Page
    text: TextForm
    structured: bool
    judged: bool = False
    error_pages: bool = False


class _Answer(NamedTuple):
    """`content` None: there was no memory, or `error` was raised."""

    content: Content | None
    error: str | None = None


def is_light(page: Page) -> bool:
    """Whether the content of `page` is found within 50 ms, whatever a site sent."""
    if page.exchange is None or page.decoded_size <= LIGHT_BYTES or not has_content(page, error_pages=True):
        return True
    return page.decoded_size <= LIGHT_TAGGED_BYTES and decoded(page.exchange).count(b"<") <= LIGHT_TAGS


class TextProcess:
    """Finds the content of documents that take long, one at a time. The process is started for the first one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def content_of(self, job: Job) -> Content:
        """As `crawler.sinks.content.content_of`. Raises RuntimeError for what that raised, and OSError where no process is
        to be had."""
        process = self._process = self._process or _started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            without_links = job._replace(page=msgspec.structs.replace(job.page, links=()))
            _send(process.stdin, pickle.dumps(without_links, pickle.HIGHEST_PROTOCOL))
            answer = _received(process.stdout)
        except BrokenPipeError:
            answer = None
        if answer is None:
            self.stop()
            return UNREAD
        content, error = msgspec.msgpack.decode(answer, type=_Answer)
        if error is not None:
            raise RuntimeError(error)
        return content or UNREAD

    def stop(self) -> None:
        """End the process; the next document would start another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with process:  # closes its pipes and waits for it
                pass


def _started() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "crawler.sinks.content_process"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())


def _send(stream: IO[bytes], content: bytes) -> None:
    stream.write(len(content).to_bytes(_FRAME))
    stream.write(content)
    stream.flush()


def _received(stream: IO[bytes]) -> bytes | None:
    """The content of the next frame; None if the stream ends before."""
    size = stream.read(_FRAME)
    content = stream.read(int.from_bytes(size)) if len(size) == _FRAME else b""
    return content if len(size) == _FRAME and len(content) == int.from_bytes(size) else None


def serve(jobs: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until the jobs end."""
    while (job := _received(jobs)) is not None:
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # SIGPROF ends the process
        try:
            content = content_of(*pickle.loads(job))
            answer = _encoded(content)
        except MemoryError:
            answer = msgspec.msgpack.encode(_Answer(None))
        except Exception as error:
            answer = msgspec.msgpack.encode(_Answer(None, ascii(f"{type(error).__name__}: {error}"[:200])))
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        _send(answers, answer)


def _encoded(content: Content) -> bytes:
    try:
        if content.json_ld is not None and len(msgspec.msgpack.encode(content.json_ld)) > DATA_BYTES:
            content = msgspec.structs.replace(content, json_ld=None, cut=("text",))
        return msgspec.msgpack.encode(_Answer(content))
    except (UnicodeEncodeError, OverflowError, RecursionError):  # what JSON can say and MessagePack cannot
        fields = {name: plain(value) for name, value in msgspec.structs.asdict(content).items()}
        return _encoded(Content(**fields))


def main() -> None:
    renounce_privileges()
    # A terminal and a service manager signal the whole group. The crawler decides when this ends, with its last breath too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError, ValueError):  # not every system has it
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints shall not print into the answers
    with contextlib.suppress(BrokenPipeError):  # the crawler is gone
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
