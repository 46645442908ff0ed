"""Documents that become much more than they are: links that grow when they are joined to a long URL, and bodies that take
the decoders long and yield nothing."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import brotli  # type: ignore[import-untyped]

from crawler.parse.document import Document
from frontier.errors import BadUrl
from frontier.urls import canonicalize
from tests.fuzz.repeated_inputs import EMPTY_BLOCKS, RLE_BLOCKS, parts, zstd

LONGEST = 1_990
"""Characters of a path that leave room for a link in a URL."""

PATH_UNITS = parts(
    "a|a/|;|;s|;s;|;sid=a|;sid=0123456789abcde|;sid=0123456789abcdef|;aspsessionidX|^|/|./|../|%|%zz|%E9|%e9|%Ee|%41|%4a|%2e|"
    "%25|\xc3\xa9|\xe9|\xe2\x82\xac|&nGg;|\\|~|=|@|:| |%00|a;/|%41;|^;"
)
PATH_ENDS = parts("/|/?%zz|/..;sid=0123456789abcdef/|/page?a=1&b=2|%zz/")
LINKS = (
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
            for link in LINKS:
                yield Growth(f"base {path[:24]!r} {end!r} {link!r}", _based(path, link))
                if url := _url(path):
                    yield Growth(f"page {path[:24]!r} {end!r} {link!r}", _page(url, link))
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


def _page(url: str, link: bytes) -> Callable[[int], Document]:
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
