"""Hostile HTTP replies: what a server sends after a request, from the first byte to how the connection ends.

A reply is drawn from a random generator, layer by layer: blank lines and interim responses, status line, header fields,
content coding, framing, ending, and how the bytes are split. Each layer is sound most of the time. Otherwise the first
defect would hide the layers behind it.
"""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache

import brotli  # type: ignore[import-untyped]

from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS


class End(Enum):
    """How the connection goes on after a reply."""

    KEEP = "keep"  # wait for the next request
    CLOSE = "close"
    RESET = "reset"
    STALL = "stall"  # send nothing more, and wait for the client to close


Step = bytes | float | End
"""Bytes to send, seconds to wait, or the end."""

Rng = random.Random

MUCH = 4 << 20
"""Bytes of an "endless" part. The limit for a head is 64 KiB, so this is far beyond it."""

_BY_NAME = {target.name: target for target in TARGETS}
_TYPES = (
    *("text/html", "text/html; charset=utf-8", "text/html;charset=utf-16", 'TEXT/HTML ; charset="shift_jis"'),
    *("application/xhtml+xml", "application/xml", "text/plain", "image/png", "text/html, text/plain", "", "\xff/\x80"),
)
_STATUSES = (
    200,
    200,
    200,
    204,
    206,
    299,
    301,
    302,
    303,
    304,
    307,
    308,
    400,
    401,
    403,
    404,
    407,
    410,
    418,
    451,
    500,
    502,
)
_PLACES = (
    *("/", "/1", "http://h0.test/2", "//h1.test/3", "https://h2.test/", "http://127.0.0.1:1/", "javascript:alert(1)"),
    *("http://[::1]/", "?x", "#y", "", " /z", "/\x00", "file:///etc/passwd", "http://h3.test:99999/", "\\\\h4.test\\a"),
)


def reply(rng: Rng, path: str) -> Iterator[Step]:
    """The reply to a request for `path`. It depends only on `rng` and `path`."""
    if path == "/robots.txt":
        status, kind, document = rng.choices((200, 404, 301, 403), (90, 5, 3, 2))[0], "text/plain", _robots(rng)
    else:
        status, kind, document = rng.choice(_STATUSES), rng.choice(_TYPES), _document(rng)
    coding, body = _coded(rng, document)
    fields, framed = _framed(rng, body)
    head = _head(rng, status, [("Content-Type", kind), ("Content-Encoding", coding), *fields, *_more_fields(rng)])
    data = _before(rng) + head + framed
    yield from _sent(rng, data)
    yield _end(rng)


def _document(rng: Rng) -> bytes:
    name = rng.choices(("html", "sitemap", "url", "robots"), (80, 10, 5, 5))[0]
    document = _mutant(rng, name)
    if rng.random() < 0.02:
        block = rng.choice(
            (b"<a ", b"<p>", b"<svg>", b"&#", b"<!--", b"a " * 8, b"<a href=/", b"]]>", b"<table>", b"\0", b"<a b=c ")
        )
        document += block * (rng.choice((1_000, 100_000, 1 << 20)) // len(block))
    return document


def _robots(rng: Rng) -> bytes:
    return b"User-agent: *\nAllow: /\n" if rng.random() < 0.7 else _mutant(rng, "robots")


def _mutant(rng: Rng, name: str) -> bytes:
    target = _BY_NAME[name]
    return rng.choice(target.seeds) if rng.random() < 0.2 else mutated(target.seeds, target.tokens, rng)


@cache
def _bomb(coding: str) -> bytes:
    zeros = bytes(48 << 20)
    return {"gzip": lambda: gzip.compress(zeros, 9), "br": lambda: brotli.compress(zeros, quality=5)}[coding]()


def _coded(rng: Rng, document: bytes) -> tuple[str, bytes]:
    """The value of Content-Encoding, and the coded document."""
    draw = rng.random()
    if draw < 0.6:
        return "", document
    if draw < 0.602:
        coding = rng.choice(("gzip", "br"))
        return coding, _bomb(coding)
    coding, body = rng.choice(
        (
            ("gzip", gzip.compress(document, 1)),
            ("deflate", zlib.compress(document, 1)),
            ("br", brotli.compress(document, quality=1)),
        )
    )
    match rng.randrange(8):
        case 0:
            return coding, body[: rng.randint(0, len(body))]
        case 1:
            return rng.choice(
                ("gzip", "br", "zstd", "deflate", "x-unknown", "gzip, br, gzip", "identity", "\xff")
            ), body
        case 2:
            return coding, body + rng.randbytes(rng.choice((1, 100)))
        case 3:
            return f"{coding}, gzip", gzip.compress(body, 1)
    return coding, body


def _framed(rng: Rng, body: bytes) -> tuple[list[tuple[str, str]], bytes]:
    """The fields that frame the body, and the framed body."""
    match rng.choices(("length", "chunked", "close", "wrong", "both"), (50, 30, 8, 7, 5))[0]:
        case "length":
            return [("Content-Length", str(len(body)))], body
        case "chunked":
            return [("Transfer-Encoding", "chunked")], _chunks(rng, body)
        case "close":
            return [("Connection", "close")], body
        case "wrong":
            near = str(len(body) + rng.choice((-1, 1, 1_000)))
            value = rng.choice(
                (near, "-1", "0x10", "9" * 30, "", "1, 1", "1,2", "+5", "\u0661".encode().decode("latin-1"))
            )
            return [("Content-Length", value)], body
        case _:
            coding = rng.choice(("chunked", "xchunked", "chunked, chunked", "gzip, chunked", "identity", "chunked;a=b"))
            return [("Transfer-Encoding", coding), ("Content-Length", str(len(body)))], _chunks(rng, body)


def _chunks(rng: Rng, body: bytes) -> bytes:
    parts, at = [], 0
    while at < len(body):
        size = rng.choice((1, 7, 1_000, 65_536)) if len(parts) < 500 else len(body)
        parts.append(_chunk(rng, body[at : at + size]))
        at += size
    last = rng.choices(
        (b"0\r\n\r\n", b"0" * 20 + b"\r\n\r\n", b"", b"0\r\n" + _trailers(rng) + b"\r\n"), (80, 4, 6, 10)
    )[0]
    return b"".join(parts) + last


def _chunk(rng: Rng, data: bytes) -> bytes:
    size = b"%x" % len(data)
    if rng.random() < 0.003:
        broken = (b"-1", b"", b"g", b"0x5", b"f" * 20, b" " * 1_000 + size, b"1" * 100_000, b"\xff")
        size = rng.choice(broken)
    if rng.random() < 0.01:
        size += b";" + rng.choice((b"a=b", b'a="b;c"', b"x" * 300_000, b";" * 1_000))
    return size + rng.choices((b"\r\n", b"\n"), (98, 2))[0] + data + b"\r\n"


def _trailers(rng: Rng) -> bytes:
    return rng.choice((b"X-A: b\r\n", b"X-A: b\r\n" * 20_000, b"X" * MUCH, b"Content-Length: 5\r\n", b"\0\xff\r\n"))


def _head(rng: Rng, status: int, fields: list[tuple[str, str]]) -> bytes:
    line = b"HTTP/1.1 %d %b" % (status, rng.choice((b"OK", b"", b"Non \xe9", b"\0")) if rng.random() < 0.1 else b"OK")
    if rng.random() < 0.03:
        line = rng.choice(
            (b"HTTP/1.0 200 OK", b"HTTP/2 200", b"http/1.1 200 OK", b"HTTP/1.1 099 x", b"HTTP/1.1 999", b"HTTP/1.1 2000 OK",
             b"HTTP/1.1  200 OK", b"ICY 200 OK", b"", b"<html>", b"HTTP/1.1 200" + b"x" * 100_000, b"\x16\x03\x01\x02")
        )  # fmt: skip
    end = rng.choices((b"\r\n", b"\n", b"\r"), (97, 2, 1))[0]
    lines = [line, *(f"{name}: {value}".encode("latin-1", "replace") for name, value in fields if value)]
    rng.shuffle(rest := lines[1:])
    return end.join([line, *rest, b"", b""])


def _more_fields(rng: Rng) -> list[tuple[str, str]]:
    if rng.random() < 0.7:
        return []
    makers: tuple[Callable[[], tuple[str, str]], ...] = (
        lambda: ("Location", rng.choice(_PLACES)),
        lambda: ("Location", _text(rng, "url")),
        lambda: ("Retry-After", "0"),
        lambda: ("X-Robots-Tag", _text(rng, "headers")),
        lambda: ("Content-Type", _text(rng, "headers")),
        lambda: ("Link", f"<{rng.choice(_PLACES)}>; rel=canonical"),
        lambda: ("Refresh", f"0; url={rng.choice(_PLACES)}"),
        lambda: ("Set-Cookie", "a=b; Domain=.test"),
        lambda: ("Connection", rng.choice(("close", "keep-alive", "upgrade", "\xff"))),
        lambda: ("ETag", '"' + "x" * rng.choice((3, 3_000))),
        lambda: ("Last-Modified", _text(rng, "retry_after")),
        lambda: ("Cache-Control", f"max-age={rng.choice(('60', '-1', '9' * 40))}"),
        lambda: ("Content-Range", "bytes 0-0/1"),
        lambda: ("X" * rng.choice((1, 70_000)), "y"),
        lambda: ("X", "y" * rng.choice((1, 9_000, 70_000, MUCH))),
        lambda: ("A: b\r\n" * rng.choice((2, 100, 20_000)) + "C", "d"),
        lambda: ("X", "folded\r\n\t" * rng.choice((1, 10_000))),
        lambda: ("", "no name"),
        lambda: ("No colon\r\nX", "\0"),
    )
    return [rng.choice(makers)() for _ in range(rng.choice((1, 1, 2, 5)))]


def _text(rng: Rng, name: str) -> str:
    return _mutant(rng, name)[:5_000].decode("latin-1").replace("\n", " ").replace("\r", " ")


def _before(rng: Rng) -> bytes:
    """What comes before the status line."""
    if rng.random() < 0.94:
        return b""
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"
    return rng.choice(
        (b"\r\n", b"\n\r\n", b"\r\n" * 5_000, b"\n\r\n" + b"x" * 100_000, b"\0", b" ", b"HTTP/1.1 100 Continue\r\n\r\n",
         interim, interim * 3, interim * 50_000, b"HTTP/1.1 100\r\n\r\n" * 100_000, b"HTTP/1.1 101 Switching\r\n\r\n",
         b"HTTP/1.1 100 C\r\nContent-Length: 5\r\n\r\nabcde", b"HTTP/1.1 102 P\r\nX: " + b"y" * MUCH)
    )  # fmt: skip


def _sent(rng: Rng, data: bytes) -> Iterator[Step]:
    """`data` as a server sends it: at once, in pieces, slowly, or cut off."""
    match rng.choices(("whole", "pieces", "bytes", "cut", "drip"), (82, 10, 3, 4.6, 0.4))[0]:
        case "whole":
            yield data
        case "pieces":
            at = 0
            while at < len(data):
                size = rng.choice((1, 100, 5_000, 1 << 20))
                yield data[at : at + size]
                yield 0.001
                at += size
        case "bytes":
            for at in range(min(len(data), 200)):
                yield data[at : at + 1]
                yield 0.0
            yield data[200:]
        case "cut":
            yield data[: rng.randint(0, len(data))]
            yield rng.choice((End.CLOSE, End.RESET))
        case "drip":
            for at in range(60):
                yield data[at : at + 1]
                yield 0.1


def _end(rng: Rng) -> Step:
    return rng.choices((End.KEEP, End.CLOSE, End.RESET, End.STALL), (85, 10, 4, 1))[0]


def unrequested(rng: Rng) -> bytes:
    """What a server sends on an open connection although nothing was requested. Mostly nothing."""
    if rng.random() < 0.95:
        return b""
    smuggled = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 26\r\n\r\n<a href=/smuggled>here</a>"
    return rng.choice(
        (b"x", b"\r\n", smuggled, b"y" * MUCH, b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n")
    )
