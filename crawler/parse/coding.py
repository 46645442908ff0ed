"""Undoes content codings within limits, because compressed bodies are a cheap way to make a reader spend memory and time.
Pure.

Sites often name codings that they have not used, so a coding counts only if the body begins as it does; otherwise the one
that the bytes show is taken. Names of no coding, such as `none` or `utf-8`, mean nothing.

From a body that breaks off or is corrupt, `decode_body` returns the part before the break, as a browser would show it.
There are limits on the output of each layer, the number of layers, the members of a gzip or zstd body (each costs time,
even an empty one), and the window of a zstd frame, which is allocated before the first byte comes out.

A layer may also take time and yield nothing: an empty block of deflate has 12 bytes, and takes 0.7 us to read. Hence the
limit on work: the bytes that decoders read, in all layers and attempts together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol, cast

import brotli  # type: ignore[import-untyped]
import msgspec
from isal import isal_zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd
from crawler.page import GZIP, MAYBE_GZIP, Exchange, Page
from crawler.parse.encoding import is_html, is_read_by_bytes

DEFAULT_LIMIT = 16 * 1024 * 1024
"""Bytes of a decoded body: 100 times the size of a large page."""

MAX_LAYERS = 3
MAX_MEMBERS = 16

EXTRA_WORK = 8 * 1024 * 1024
"""Bytes that decoders may read beyond those of the body: the inner layers of nested codings, and what is read again of a
corrupt body. The worst take 60 ns each."""

_PADDING = b"\0\t\n\r "
"""Bytes that often follow the last member, and are harmless."""

_STEP = 4096
"""Bytes fed at a time when a corrupt body is searched for its readable part."""

_CALL_WORK = 16
"""A call of a decoder takes as long as reading so many bytes."""


class Decoded(msgspec.Struct, frozen=True):
    """`data`: the decoded bytes, at most the limit. `truncated`: whether the limit cut some off. `error`: None,
    "incomplete" (the body ended before the coding did), "corrupt", "unknown_coding", "too_many_layers", "too_many_members"
    or "too_much_work". `is_repaired`: its codings are not those that were named."""

    data: bytes
    truncated: bool = False
    error: str | None = None
    is_repaired: bool = False


class _Decoder(Protocol):
    """The interface of the standard library's decompressors, which isal and zstd share."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Work:
    """The bytes that decoders may still read. `has_ended`: whether they needed more."""

    def __init__(self, left: int) -> None:
        self._left = left
        self.has_ended = False

    def take(self, data: bytes) -> bytes:
        """As much of `data` as may be read, which then counts as read."""
        taken = data[: self._left]
        self._left -= len(taken)
        self.has_ended |= len(taken) < len(data)
        return taken

    def allows(self, count: int) -> bool:
        """Whether `count` more bytes may be read, which then count as read."""
        self.has_ended |= count > self._left
        if not self.has_ended:
            self._left -= count
        return not self.has_ended


def decode_body(body: bytes, content_encoding: str, limit: int = DEFAULT_LIMIT, max_work: int | None = None) -> Decoded:
    """Undo the codings in `content_encoding`, the last one first (RFC 9110 8.4): those in a header value, or those that
    `crawler.page.content_coding` has made of it. `limit`: the most bytes of the result. `max_work`: the most bytes that
    decoders read, or None for the size of `body` and `EXTRA_WORK`. If they needed more, the error is "too_much_work", and
    the result is what they yielded before."""
    names = content_encoding.split(",") if content_encoding else ()
    named = [name for part in names if (name := part.strip().lower()) not in ("", "identity")]
    if not named:
        return Decoded(body[:limit], len(body) > limit)
    codings = [name for name in named if name in _DECODERS]
    decoded = Decoded(body, is_repaired=len(codings) < len(named))
    if len(codings) > MAX_LAYERS + (MAYBE_GZIP in codings):
        return Decoded(b"", error="too_many_layers")
    work = _Work(len(body) + EXTRA_WORK if max_work is None else max_work)
    for coding in reversed(codings):
        decoded = _without(coding, decoded, limit, work)
    data = decoded.data
    if data.startswith(_COMPRESS) and len(codings) < len(named):
        return Decoded(b"", error="unknown_coding")
    return msgspec.structs.replace(decoded, data=data[:limit], truncated=True) if len(data) > limit else decoded


def _without(coding: str, decoded: Decoded, limit: int, work: _Work) -> Decoded:
    """`decoded` without the layer `coding`, or as it is if it does not begin with one."""
    data, begins = decoded.data, _BEGINS.get(coding)
    if begins is not None and data and not data.startswith(begins):
        return decoded if coding == MAYBE_GZIP else _by_bytes(decoded, limit, work)
    layer = _undo(work.take(data), _DECODERS[coding], limit, work)
    # Nothing marks the beginning of the other codings, but they hardly ever look like text.
    if begins is None and layer.error and not work.has_ended:
        if _is_text(data[:_LOOK]):
            return msgspec.structs.replace(decoded, is_repaired=True)
        if layer.error == "corrupt" and not _is_text(layer.data[:_LOOK] or b"\0"):
            return _by_bytes(decoded, limit, work)
    error = "too_much_work" if work.has_ended else decoded.error or layer.error
    is_repaired = decoded.is_repaired or coding == MAYBE_GZIP
    return Decoded(layer.data, decoded.truncated or layer.truncated, error, is_repaired)


def _by_bytes(decoded: Decoded, limit: int, work: _Work) -> Decoded:
    """`decoded` without the coding that its bytes show, if what comes out is text, or as it is. Another one was named."""
    data = decoded.data
    for coding, begins in () if _is_text(data[:_LOOK]) else _SHOWN.items():
        if data.startswith(begins):
            layer = _undo(work.take(data), _DECODERS[coding], limit, work)
            if layer.data and _is_text(layer.data[:_LOOK]) and (begins or not layer.error):
                error = "too_much_work" if work.has_ended else layer.error
                return Decoded(layer.data, decoded.truncated or layer.truncated, error, is_repaired=True)
    return msgspec.structs.replace(decoded, is_repaired=True)


def _is_text(data: bytes) -> bool:
    return not data.translate(None, _TEXT)


def decoded_start(exchange: Exchange, size: int) -> bytes | None:
    """Return the first `size` bytes of the decoded body, or None if it has no content coding or cannot be decoded."""
    if not exchange.content_coding:
        return None
    # So many bytes of input suffice for the output that is used, and bound the time for input that decodes to nothing.
    decoded = decode_body(exchange.body[:size], exchange.content_coding, size, max_work=size)
    return None if decoded.error else decoded.data


def is_html_page(page: Page) -> bool:
    """Whether the body of `page` is parsed as HTML."""
    if (shown := page.shown) is None:
        return False
    body, coding = shown.body, ""
    if is_read_by_bytes(page.content_type) and (coding := shown.content_coding):
        body = decode_body(body[:_LOOK_FOR_TAG], coding, _LOOK_FOR_TAG, max_work=_LOOK_FOR_TAG * MAX_LAYERS).data
    return is_html(page.content_type, body)


def _undo(body: bytes, new_decoder: Callable[[bytes], _Decoder], limit: int, work: _Work) -> Decoded:
    """Undo one layer, which may consist of several members or frames (RFC 1952 2.2, RFC 8878 3.1)."""
    if not body:
        return Decoded(b"")  # RFC 9110 6.4.1: many servers name a coding on an empty body
    parts: list[bytes] = []
    room = limit
    for _ in range(MAX_MEMBERS):
        decoder = new_decoder(body)
        try:
            parts.append(decoder.decompress(body, room + 1))
        except _CORRUPT:
            return Decoded(b"".join([*parts, _salvage(new_decoder, body, room, work)]), error="corrupt")
        room -= len(parts[-1])
        if room < 0:
            return Decoded(b"".join(parts)[:limit], truncated=True)
        if not decoder.eof:
            return Decoded(b"".join(parts), error="incomplete")
        body = decoder.unused_data
        if not body.strip(_PADDING):
            return Decoded(b"".join(parts))
    return Decoded(b"".join(parts), error="too_many_members")


def _salvage(new_decoder: Callable[[bytes], _Decoder], body: bytes, limit: int, work: _Work) -> bytes:
    """The output before the corrupt place, to the byte: a call that fails returns nothing. Less if the work ends."""
    body = work.take(body)
    coarse = [body[start : start + _STEP] for start in range(0, len(body), _STEP)]
    good, parts = _feed(new_decoder(body), coarse, limit)
    if good < len(coarse) and work.allows(good * _STEP + _CALL_WORK * len(coarse[good])):
        fine = [bytes([byte]) for byte in coarse[good]]
        _, parts = _feed(new_decoder(body), [*coarse[:good], *fine], limit)
    return b"".join(parts)[:limit]


def _feed(decoder: _Decoder, pieces: list[bytes], limit: int) -> tuple[int, list[bytes]]:
    """The number of `pieces` that were read without an error, and their output."""
    parts: list[bytes] = []
    room = limit
    for number, piece in enumerate(pieces):
        if room <= 0 or decoder.eof:
            break
        try:
            data = decoder.decompress(piece, room)
        except _CORRUPT:
            return number, parts
        parts.append(data)
        room -= len(data)
    return len(pieces), parts


class _Brotli:
    """brotli's decompressor with the standard library's interface."""

    def __init__(self) -> None:
        self._decompressor = brotli.Decompressor()
        self.unused_data = b""

    @property
    def eof(self) -> bool:
        return bool(self._decompressor.is_finished())

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        decompressor = self._decompressor
        parts = [decompressor.process(data, output_buffer_limit=max_length)]
        room = max_length - len(parts[0])
        # A call may stop at the size of an internal buffer; an empty call returns the rest.
        while room > 0 and not decompressor.is_finished():
            parts.append(decompressor.process(b"", output_buffer_limit=room))
            if not parts[-1]:
                break
            room -= len(parts[-1])
        return b"".join(parts)


_LOOK_FOR_TAG = 2_048
_LOOK = 128
_TEXT = bytes({*range(0x20, 0x100), *b"\t\n\f\r"} - {0x7F})
"""Bytes of text. So many at random are text with a probability of one in a million."""

_COMPRESS = b"\x1f\x9d"
"""How a body with the coding `compress` begins (RFC 9110 8.4.1.1), which browsers no longer read."""


def _deflate(body: bytes) -> Any:
    """A decoder of the zlib format (RFC 9110 8.4.1.2), or of the bare deflate data that some servers send instead."""
    has_zlib_header = len(body) >= 2 and body[0] & 15 == 8 and int.from_bytes(body[:2]) % 31 == 0
    return isal_zlib.decompressobj(wbits=15 if has_zlib_header else -15)


_LARGEST_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}
"""RFC 9659 3: a window above 8 MB must not be used in HTTP."""

_DECODERS: dict[str, Callable[[bytes], Any]] = {
    MAYBE_GZIP: lambda _: isal_zlib.decompressobj(wbits=31),
    "gzip": lambda _: isal_zlib.decompressobj(wbits=31),
    "x-gzip": lambda _: isal_zlib.decompressobj(wbits=31),  # RFC 9110 8.4.1.3
    "deflate": _deflate,
    "br": lambda _: _Brotli(),
    "zstd": lambda _: zstd.ZstdDecompressor(options=_LARGEST_WINDOW),
}

_BEGINS: dict[str, bytes | tuple[bytes, ...]] = {
    **dict.fromkeys((MAYBE_GZIP, "gzip", "x-gzip"), GZIP),
    "zstd": (b"\x28\xb5\x2f\xfd", *(bytes((number, 0x2A, 0x4D, 0x18)) for number in range(0x50, 0x60))),
}
"""How the codings begin (RFC 1952 2.3.1; RFC 8878 3.1.1 and 3.1.2). Others have no mark."""

_SHOWN: dict[str, bytes | tuple[bytes, ...]] = {
    "gzip": GZIP,
    "zstd": _BEGINS["zstd"],
    "deflate": (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"),  # RFC 1950 2.2
    "br": b"",
}
"""How the codings begin that are tried on a body which is not in the one that it names. brotli has no mark."""

# isal's stubs declare its exception class as an instance.
_CORRUPT: tuple[type[Exception], ...] = (cast(type[Exception], isal_zlib.error), brotli.error, zstd.ZstdError)
