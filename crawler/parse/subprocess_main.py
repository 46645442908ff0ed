"""The process that reads documents that take long: `python -m crawler.parse.subprocess_main`, started by
`crawler.parse.offload`.

Jobs come on standard input, answers go to standard output, each as frames of four bytes of length and so many of
content; it ends when its input does. It is nice to the crawler, whose event loop comes first, and lives under the
kernel's limits on memory and, a document at a time, on CPU time, which also end a loop in C.

A job is two frames: a pickle, because it comes from the crawler, and the document's body, which needs no copy. What goes
back was made from what strangers sent, by parsers in C, so it is MessagePack, read into given types. Links follow the rest
in parts, so that a sitemap's 50,000 do not hold up the event loop that receives them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import sys
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import msgspec

from crawler.page import Cut, LinkKind
from crawler.parse.confinement import renounce_privileges
from crawler.parse.document import ParsedDocument, read
from crawler.parse.html import Extracted

NICENESS = 10
"""A tenth of the weight of the crawler: it gets what the crawler leaves, and does not starve where that is nothing."""

MEMORY = 1 << 30
"""Bytes of address space. 2 MB of the worst markup take 300 MB, a bomb in three layers 100 MB, the process itself 200."""

CPU_S = 10.0
"""CPU seconds a document: 40 times what the worst known takes."""

PART = 1_000
"""Links of a part: 2 ms of the event loop."""

FRAME = 4
"""Bytes of a frame's length."""


class Ref(NamedTuple):
    """A link on its way between the processes: its URL's parts, where it stood, and the hint for its score."""

    href: str
    domain: str
    origin: str
    kind: LinkKind
    hint: float | None


class OffloadReply(NamedTuple):
    """A reading without its links. `parts`: so many frames with lists of them follow. None: there was no memory."""

    found: Extracted | None
    decoded_size: int
    cut: tuple[Cut, ...]
    parts: int


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(FRAME) + content


def answer(reading: ParsedDocument) -> Iterator[bytes]:
    """The contents of the frames that tell of `reading`."""
    found = reading.found
    pairs = zip(found.urls, found.links, strict=True)
    refs = [Ref(url.href, url.domain, url.origin, link.kind, reading.hints.get(url.href)) for url, link in pairs]
    parts = [refs[at : at + PART] for at in range(0, len(refs), PART)]
    bare = msgspec.structs.replace(found, links=(), urls=())
    yield msgspec.msgpack.encode(OffloadReply(bare, reading.decoded_size, reading.cut, len(parts)))
    for part in parts:
        yield msgspec.msgpack.encode(part)


def serve(jobs: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the jobs end."""
    while len(size := jobs.read(FRAME)) == FRAME:
        job = jobs.read(int.from_bytes(size))
        body = jobs.read(int.from_bytes(jobs.read(FRAME)))
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # SIGPROF ends the process
        try:
            document, limits = pickle.loads(job)
            contents = list(answer(read(document._replace(body=body), limits)))
        except MemoryError:
            contents = [msgspec.msgpack.encode(OffloadReply(None, 0, (), 0))]
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        for content in contents:
            answers.write(frame(content))
        answers.flush()


def main() -> None:
    renounce_privileges()
    # A terminal and a service manager signal the whole group. The crawler decides when this ends, with its last breath too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    with contextlib.suppress(OSError, ValueError):  # not every system has it
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints shall not print into the answers
    with contextlib.suppress(BrokenPipeError):  # the crawler is gone
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
