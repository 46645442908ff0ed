"""From a resource to octets: status line, header fields, content and transfer coding, and what goes wrong
on the way.

An `Answer` is a list of steps for the server: octets to send, or seconds to wait. Nothing here does I/O.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus

import brotli  # type: ignore[import-untyped]

from crawler.simweb import pages
from crawler.simweb.features import Coding
from crawler.simweb.resource import Fault, Resource, Trouble

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Step = bytes | float

_CHUNK_BYTES = 1500
_REASONS = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True, slots=True)
class Answer:
    """Steps to take in order. `closes`: the connection ends with them; `hangs`: it stays open and nothing
    follows.
    """

    status: int
    steps: Iterable[Step]
    retry_after: float | None = None  # seconds from the end of the answer, as far as it asked for some
    closes: bool = False
    hangs: bool = False


def answer(resource: Resource | None, attempt: int, accepted: str, now: float) -> Answer:
    """What to send to the request for `resource` with this ordinal, 1 for the first.

    `accepted` is the Accept-Encoding field, `now` seconds since 1970. None as a resource is a 404.
    """
    if resource is None:
        return Answer(404, (_whole(404, ["Content-Type: text/html"], b"<h1>Not found</h1>"),))
    if resource.trouble is not None and resource.trouble.strikes(attempt):
        return _troubled(resource.trouble, now)
    if resource.fault is not None:
        return _FAULTY[resource.fault](resource)
    return _sound(resource, accepted)


def _sound(resource: Resource, accepted: str) -> Answer:
    body = resource.body if resource.body is not None else pages.html(resource)
    fields = _fields(resource)
    if resource.coding is not Coding.IDENTITY and _token(resource.coding) in accepted:
        body = _ENCODERS[resource.coding](body)
        fields.append(f"Content-Encoding: {_token(resource.coding)}")
    data = (
        _chunked(resource.status, fields, body) if resource.chunked else _whole(resource.status, fields, body)
    )
    return Answer(resource.status, (resource.delay, data) if resource.delay else (data,))


def _fields(resource: Resource) -> list[str]:
    media = resource.media
    if resource.charset.value.endswith("/header") and media == "text/html":
        media = f"{media}; charset={resource.charset.encoding}"
    fields = [f"Content-Type: {media}"]
    if resource.location:
        fields.append(f"Location: {resource.location}")
    if resource.x_robots:
        fields.append(f"X-Robots-Tag: {resource.x_robots}")
    return fields


def _troubled(trouble: Trouble, now: float) -> Answer:
    """An HTTP-date has whole seconds, so the wait that it asks for is up to one second longer than that of
    the other form.
    """
    fields = ["Content-Type: text/html"]
    retry_after: float | None = None
    if trouble.retry_after_s:
        date = int(now) + 1 + trouble.retry_after_s
        retry_after = date - now if trouble.as_date else float(trouble.retry_after_s)
        written = formatdate(date, usegmt=True) if trouble.as_date else str(trouble.retry_after_s)
        fields.append(f"Retry-After: {written}")
    return Answer(trouble.status, (_whole(trouble.status, fields, b"<h1>Not now</h1>"),), retry_after)


# -- faults


def _cut(resource: Resource) -> Answer:
    """Content-Length promises twice of what comes."""
    body = pages.html(resource)
    head, _, rest = _whole(200, _fields(resource), body).partition(b"\r\n\r\n")
    return Answer(200, (head + b"\r\n\r\n" + rest[: len(rest) // 2],), closes=True)


def _bad_chunks(resource: Resource) -> Answer:
    data = _chunked(200, _fields(resource), pages.html(resource))
    return Answer(200, (data[: -len(b"0\r\n\r\n")] + b"zz\r\nno chunk size\r\n",), closes=True)


def _garbage(resource: Resource) -> Answer:
    return Answer(0, (b"\x16\x03\x01 this is no HTTP\r\n\r\n",), closes=True)


def _hang_up(resource: Resource) -> Answer:
    return Answer(0, (), closes=True)


def _silent(resource: Resource) -> Answer:
    return Answer(0, (), hangs=True)


_FAULTY: dict[Fault, Callable[[Resource], Answer]] = {
    Fault.CUT: _cut,
    Fault.BAD_CHUNKS: _bad_chunks,
    Fault.GARBAGE: _garbage,
    Fault.HANG_UP: _hang_up,
    Fault.SILENT: _silent,
}


# -- framing and coding


def _whole(status: int, fields: list[str], body: bytes) -> bytes:
    return _head(status, [*fields, f"Content-Length: {len(body)}"]) + body


def _chunked(status: int, fields: list[str], body: bytes) -> bytes:
    """RFC 9112 section 7.1"""
    chunks = (body[start : start + _CHUNK_BYTES] for start in range(0, len(body), _CHUNK_BYTES))
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return _head(status, [*fields, "Transfer-Encoding: chunked"]) + framed + b"0\r\n\r\n"


def _head(status: int, fields: list[str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, '')}", *fields, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _token(coding: Coding) -> str:
    return "deflate" if coding is Coding.RAW_DEFLATE else coding.value


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, 1, mtime=0)


def _deflate(body: bytes) -> bytes:
    return zlib.compress(body, 1)


def _raw_deflate(body: bytes) -> bytes:
    return zlib.compress(body, 1, wbits=-zlib.MAX_WBITS)


def _brotli(body: bytes) -> bytes:
    return bytes(brotli.compress(body, quality=1))


def _zstd(body: bytes) -> bytes:
    return zstd.compress(body, 1)


_ENCODERS: dict[Coding, Callable[[bytes], bytes]] = {
    Coding.GZIP: _gzip,
    Coding.DEFLATE: _deflate,
    Coding.RAW_DEFLATE: _raw_deflate,
    Coding.BROTLI: _brotli,
    Coding.ZSTD: _zstd,
}
