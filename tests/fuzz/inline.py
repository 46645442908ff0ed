"""How long the event loop reads the largest documents that it reads itself.

    python -m tests.fuzz.inline

Prints what takes longest: the slots of `tests.fuzz.repeated_inputs`, and documents that become much more than they are,
because their links grow when they are joined to a long URL, or their bodies take the decoders long and yield nothing.
Ends with 1 if one takes more than `MOST_S`.
"""

from __future__ import annotations

import gzip
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import brotli  # type: ignore[import-untyped]

from crawler.parse.document import Document, ParseLimits, read_if_small
from crawler.parse.html import ExtractPolicy
from frontier.errors import BadUrl
from frontier.urls import canonicalize
from tests.fuzz.repeated_inputs import EMPTY_BLOCKS, RLE_BLOCKS, parts, zstd
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


LONGEST = 1_990
"""Characters of a path that leave room for a link in a URL."""

PATH_UNITS = parts(
    "a|a/|;|;s|;s;|;sid=a|;sid=0123456789abcde|;sid=0123456789abcdef|;aspsessionidX|^|/|./|../|%|%zz|%E9|%e9|%Ee|%41|%4a|%2e|"
    "%25|\xc3\xa9|\xe9|\xe2\x82\xac|&nGg;|\\|~|=|@|:| |%00|a;/|%41;|^;"
)
PATH_ENDS = parts("/|/?%zz|/..;sid=0123456789abcdef/|/page?a=1&b=2|%zz/")
JOINED = (
    b"%d",
    b"../%d",
    b"/%d",
    b"?%d",
    b"%d?a=%%41&b",
    b"%d;a=^%%e9",
    b"./././%d?",
    b"%d?%%zz&utm_a=%%zz",
    b"%d?&&&&&&&&&&&&&&&&",
    b"\xc3\xa9%d?\xc3\xa9",
)


class Growth(NamedTuple):
    """`make`: the document of about so many bytes (before compression)."""

    name: str
    make: Callable[[int], Document]


def joined() -> Iterator[Growth]:
    """Links that are joined to a long base, to the long URL of the page, and to that of a sitemap."""
    for unit in PATH_UNITS:
        for end in PATH_ENDS:
            path = b"/" + unit * ((LONGEST - len(end)) // len(unit)) + end
            for link in JOINED:
                yield Growth(f"base {path[:24]!r} {end!r} {link!r}", _based(path, link))
                if url := _url(path):
                    yield Growth(f"page {path[:24]!r} {end!r} {link!r}", _linking(url, link))
                    yield Growth(f"sitemap {path[:24]!r} {end!r} {link!r}", _sitemap(url, link))


def _url(path: bytes) -> str:
    """The canonical URL with `path`; empty if it is too long."""
    try:
        return canonicalize("https://a.test" + path.decode("utf-8", "replace")).href
    except BadUrl:
        return ""


def _repeated(written: bytes, link: bytes, size: int) -> bytes:
    return b"".join(written % (link % number) for number in range(size // len(written % link)))


def _based(path: bytes, link: bytes) -> Callable[[int], Document]:
    head = b"<base href='%b'>" % path
    return lambda size: Document(head + _repeated(b"<a href='%b'>", link, size), "https://a.test/", "", "text/html")


def _linking(url: str, link: bytes) -> Callable[[int], Document]:
    return lambda size: Document(_repeated(b"<a href='%b'>", link, size), url, "", "text/html")


def _sitemap(url: str, link: bytes) -> Callable[[int], Document]:
    head = b"https://a.test/\n"
    return lambda size: Document(head + _repeated(b"%b\n", link, size), url, "", "text/plain", (), True, True)


_NOTHING = {
    "deflate": (b"", (EMPTY_BLOCKS, b"\0\0\0\xff\xff")),
    "gzip": (zlib.compressobj(wbits=31).flush()[:10], (EMPTY_BLOCKS,)),
    "zstd": (b"\x28\xb5\x2f\xfd\0\x58", (RLE_BLOCKS, b"\0\0\0")),
    "br": (b"\x0b\x00\x80a", (b"\x06",)),
}
"""Coding -> how its data begin, and what decoders read for nothing."""

_OUTER: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": lambda data: gzip.compress(data, 1),
    "br": lambda data: bytes(brotli.compress(data, quality=1)),
    "zstd": zstd.compress,
    "gzip, gzip": lambda data: gzip.compress(gzip.compress(data, 1), 1),
}


def coded() -> Iterator[Growth]:
    """Bodies of blocks without content, sound and corrupt, in other codings."""
    for coding, (start, units) in _NOTHING.items():
        for outer, encode in _OUTER.items():
            for unit in units:
                for end in (b"", b"\x07\xff\xff\xff"):
                    codings = f"{coding}, {outer}".rstrip(", ")
                    yield Growth(f"{codings} {unit[:8]!r} {end!r}", _coded(start, unit, end, (codings, encode)))


def _coded(
    start: bytes, unit: bytes, end: bytes, coding: tuple[str, Callable[[bytes], bytes]]
) -> Callable[[int], Document]:
    codings, encode = coding

    def make(size: int) -> Document:
        return Document(encode(start + unit * (size // len(unit)) + end), "https://a.test/", codings, "text/html")

    return make


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
