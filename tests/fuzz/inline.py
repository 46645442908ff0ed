"""How long the event loop reads the largest documents that it reads itself.

    python -m tests.fuzz.inline

Prints the slots of `tests.fuzz.repeated_inputs`, and the documents of `tests.fuzz.growing_documents`, that take
longest. Ends with 1 if one takes more than `MOST_S`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from crawler.parse.document import Document, ParseLimits, read_if_small
from crawler.parse.html import ExtractPolicy
from tests.fuzz.growing_documents import Growth, coded, joined
from tests.fuzz.scaling import Slot, slots

LIMITS = ParseLimits(ExtractPolicy(), 1 << 26)
LARGEST = 1 << 22

MOST_S = 0.2
"""CPU seconds. The documents promise a twentieth of a second; slow machines get four times as much."""

DOCUMENT_TYPES = {
    "html": "text/html",
    "windows-1252": "text/html; charset=windows-1252",
    "iso-2022-jp": "text/html; charset=iso-2022-jp",
    "gbk": "text/html; charset=gbk",
    "utf-16": "text/html; charset=utf-16",
    "xhtml": "application/xhtml+xml",
    "with NUL": "text/html",
    "sitemap": "application/xml",
}
"""Format -> content type."""

LINKS = (
    b"<a href=%d>",
    b"<a href=//h%d.test>",
    b"<A HREF=//xn--%d>",
    b"<link rel=next href=%d>",
    b"<iframe src=%d></iframe>",
    b"<meta http-equiv=refresh content=0;%d>",
    b"<a href='?a=%d&amp;b=&#233;&c'>",
)


def seconds_of(document: Document) -> float:
    """CPU seconds for which the event loop reads `document`, or decides not to: the least of four, if they are many."""
    seconds = _seconds(document)
    return seconds if seconds < MOST_S / 4 else min(seconds, *(_seconds(document) for _ in range(3)))


def largest(make: Callable[[int], Document], precision: int = 1) -> Document:
    """The largest of the documents that `make` makes, given a size in bytes, that is read in the event loop. `precision`:
    bytes that do not matter."""
    below, above = 0, LARGEST
    while below + precision <= above:
        size = (below + above + 1) // 2
        if read_if_small(make(size), LIMITS) is not None:
            below = size
        else:
            above = size - 1
    return make(below)


def read_largest(slot: Slot) -> float:
    """Seconds for which the event loop reads the largest input of `slot`."""
    content_type = DOCUMENT_TYPES[slot.format]
    return seconds_of(largest(lambda size: document(slot.input(size), content_type), precision=256))


def read_grown(growth: Growth) -> float:
    """Seconds for which the event loop reads the largest document of `growth` that it reads, or decides not to read one
    that is a little larger, or much larger."""
    read = largest(growth.make, precision=256)
    size = len(read.body) if not read.coding else 1 << 18
    return max(map(seconds_of, (read, growth.make(2 * size), growth.make(LARGEST))))


def document(body: bytes, content_type: str) -> Document:
    return Document(body, "https://a.test/dir/page", "", content_type, (), True, True)


def _seconds(document: Document) -> float:
    started = time.process_time()
    read_if_small(document, LIMITS)
    return time.process_time() - started


def main() -> int:
    every = [
        (read_largest(slot), f"{slot.format} {slot.start!r} {slot.unit!r} {slot.end!r}")
        for name in DOCUMENT_TYPES
        for slot in slots(name)
    ]
    every += [(read_grown(growth), growth.name) for growth in (*joined(), *coded())]
    slowest = sorted(every, reverse=True)[:20]
    for seconds, name in slowest:
        print(f"{seconds * 1000:6.0f} ms  {name}")
    return int(slowest[0][0] > MOST_S)


if __name__ == "__main__":
    sys.exit(main())
