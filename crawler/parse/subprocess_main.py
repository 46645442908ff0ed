"""The program that reads large documents: `python -m crawler.parse.subprocess_main`, started by `crawler.parse.offload`.

Jobs arrive on standard input, and answers go to standard output, as frames: four bytes of length, then the content. The
process ends when its input does. It has a low priority, and the kernel limits its memory and its CPU time for each
document, which also ends a loop in C.

The first answer is empty: the process has started. A job is two frames: a pickle, because it comes from the crawler, and
the document's body, which needs no copy. It asks for the contents of the document (`crawler.parse.document`), for the
items in it (`crawler.parse.extraction`), for its text and data (`crawler.parse.content`), or for the fingerprint of its
text (`crawler.parse.text_fingerprint`). An answer was made by C parsers from untrusted data, so it is MessagePack, decoded
into fixed types: a `Head`, and the parts that it counts. Links come in several parts, so that the 50,000 of a sitemap do
not hold up the event loop that receives them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any, BinaryIO, ClassVar, NamedTuple, Protocol

import msgspec

from crawler.child_processes import renounce_privileges
from crawler.page import Cut, Link
from crawler.parse.document import ParsedDocument
from crawler.parse.html import Extracted
from frontier.urls import Url

NICENESS = 10
"""A tenth of the weight of the crawler: it gets the CPU time that the crawler leaves, and always a little."""

MEMORY = 1 << 30
"""Bytes of address space. The worst markup takes 150 times its size, and the process itself 200 MB."""

PART = 1_000
"""Links of a part, which take about 2 ms of the event loop."""

FRAME = 4
"""Bytes of the length of a frame."""


class OffloadPart(NamedTuple):
    """Some of the links of a document, and the hints for their scores."""

    links: tuple[Link, ...]
    urls: tuple[Url, ...]
    hints: dict[str, float]


class OffloadReply(NamedTuple):
    """The contents of a document without its links. `OffloadPart`s follow."""

    found: Extracted
    decoded_size: int
    cut: tuple[Cut, ...]


class Head(NamedTuple):
    """Begins an answer. `parts`: the number of frames that follow: none if there was not enough memory, or if `error` was
    raised. `cpu_s`: CPU seconds that the job took."""

    parts: int
    cpu_s: float
    error: str = ""


class Job(Protocol):
    """What to do with the body of a document, in at most `CPU_S` CPU seconds."""

    CPU_S: ClassVar[float]

    def run(self, body: bytes) -> Any:
        """The result. Raises MemoryError if there is not enough memory."""


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(FRAME) + content


def answer(reading: ParsedDocument) -> Iterator[bytes]:
    """The contents of the frames that carry `reading`."""
    found, hints = reading.found, reading.hints
    bare = msgspec.structs.replace(found, links=(), urls=())
    yield msgspec.msgpack.encode(OffloadReply(bare, reading.decoded_size, reading.cut))
    for at in range(0, len(found.links), PART):
        urls = found.urls[at : at + PART]
        hinted = {url.href: hints[url.href] for url in urls if url.href in hints}
        yield msgspec.msgpack.encode(OffloadPart(found.links[at : at + PART], urls, hinted))


def _answered(job: Job, body: bytes) -> list[bytes]:
    """The contents of the frames that answer `job`."""
    parts, error = [], ""
    began = time.process_time()
    try:
        result = job.run(body)
        parts = list(answer(result)) if isinstance(result, ParsedDocument) else [msgspec.msgpack.encode(result)]
    except MemoryError:
        pass
    except Exception as raised:
        error = ascii(f"{type(raised).__name__}: {raised}"[:200])
    return [msgspec.msgpack.encode(Head(len(parts), time.process_time() - began, error)), *parts]


def serve(jobs: BinaryIO, answers: BinaryIO) -> None:
    """Answer jobs until they end."""
    answers.write(frame(b""))
    answers.flush()
    while len(size := jobs.read(FRAME)) == FRAME:
        asked = jobs.read(int.from_bytes(size))
        body = jobs.read(int.from_bytes(jobs.read(FRAME)))
        job: Job = pickle.loads(asked)
        signal.setitimer(signal.ITIMER_PROF, job.CPU_S)  # SIGPROF ends the process
        contents = _answered(job, body)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        for content in contents:
            answers.write(frame(content))
        answers.flush()


def main() -> None:
    renounce_privileges()
    # A terminal and a service manager signal the whole group, but the crawler decides when this process ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    with contextlib.suppress(OSError, ValueError):  # not supported by every system
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing may print into the answers
    with contextlib.suppress(BrokenPipeError):  # the crawler has ended
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
