"""Content codings undone, within bounds: a compressed body is the cheapest way to make a reader spend memory
and time.

`decode_body` is pure and does one C call for an ordinary page. What it gives back is what a browser would
have shown: of a body that breaks off or is corrupt, the part before the break. Bounds: the output at each
layer, the number of layers, the members of a gzip or zstd body (each may be empty, and costs time all the
same), and the window of a zstd frame, which is allocated before the first byte comes out (RFC 9659 3: 8 MB).

What is larger than `INLINE_INPUT`, or may become larger than `INLINE_OUTPUT`, takes too long for an event loop; the C
libraries hold the interpreter's lock for part of it, so a thread is no place for it either (`crawler.parse.offload`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol, cast

import brotli  # type: ignore[import-untyped]
import msgspec
from zlib_ng import zlib_ng

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DEFAULT_LIMIT = 16 * 1024 * 1024
"""Bytes of decoded body; 100 times the size of a large page, and 1.6 times that of a body as received."""

MAX_LAYERS = 3
MAX_MEMBERS = 16

_PADDING = b"\0\t\n\r "
"""What may stand behind the last member, where it is common and harmless."""

_STEP = 4096
"""Bytes fed at a time when a corrupt body is gone through for what can be saved."""

INLINE_INPUT = 256 * 1024
INLINE_OUTPUT = 512 * 1024
"""The largest bodies, compressed and decompressed, that are read in the event loop. Larger pages are rare, and the worst of
this size hold up the loop for a tenth of a second."""


class Decoded(msgspec.Struct, frozen=True):
    """`data`: the decoded bytes, at most the limit. `truncated`: the limit cut some off. `error`: None, or
    one of
    "incomplete" (the body ended before the coding did), "corrupt", "unknown_coding", "too_many_layers",
    "too_many_members"."""

    data: bytes
    truncated: bool = False
    error: str | None = None


class _Decoder(Protocol):
    """The interface of the standard library's decompressors, which zlib-ng and zstd share."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def decode_body(body: bytes, content_encoding: str, limit: int = DEFAULT_LIMIT) -> Decoded:
    """Undo the codings in the header value `content_encoding`, the last one first (RFC 9110 8.4)."""
    codings = [name for part in content_encoding.split(",") if (name := part.strip().lower())]
    codings = [name for name in codings if name != "identity"]
    if not codings:
        return Decoded(body[:limit], len(body) > limit)
    if len(codings) > MAX_LAYERS:
        return Decoded(b"", error="too_many_layers")
    decoded = Decoded(body)
    for coding in reversed(codings):
        if coding not in _DECODERS:
            return Decoded(b"", error="unknown_coding")
        layer = _undo(decoded.data, _DECODERS[coding], limit)
        decoded = Decoded(layer.data, decoded.truncated or layer.truncated, decoded.error or layer.error)
    return decoded


def _undo(body: bytes, new_decoder: Callable[[bytes], _Decoder], limit: int) -> Decoded:
    """One layer."""
    if not body:
        return Decoded(b"")  # RFC 9110 6.4.1: many servers name a coding on an empty body
    try:
        return _members(body, new_decoder, limit)
    except _CORRUPT:
        return Decoded(_salvage(new_decoder, body, limit), error="corrupt")


def _members(body: bytes, new_decoder: Callable[[bytes], _Decoder], limit: int) -> Decoded:
    """Members or frames in a row (RFC 1952 2.2, RFC 8878 3.1). Raises one of `_CORRUPT`."""
    parts: list[bytes] = []
    room = limit
    for _ in range(MAX_MEMBERS):
        decoder = new_decoder(body)
        try:
            data = decoder.decompress(body, room + 1)
        except _CORRUPT:
            if not parts:
                raise
            parts.append(_salvage(new_decoder, body, room))
            return Decoded(b"".join(parts), error="corrupt")
        parts.append(data)
        room -= len(data)
        if room < 0:
            return Decoded(b"".join(parts)[:limit], truncated=True)
        if not decoder.eof:
            return Decoded(b"".join(parts), error="incomplete")
        body = decoder.unused_data
        if not body.strip(_PADDING):
            break
    else:
        return Decoded(b"".join(parts), error="too_many_members")
    return Decoded(b"".join(parts))


def _salvage(new_decoder: Callable[[bytes], _Decoder], body: bytes, limit: int) -> bytes:
    """What comes out before the corrupt place, to the byte: a failing call yields nothing of its input."""
    coarse = [body[start : start + _STEP] for start in range(0, len(body), _STEP)]
    good, parts = _feed(new_decoder(body), coarse, limit)
    if good < len(coarse):
        fine = [bytes([byte]) for byte in coarse[good]]
        _, parts = _feed(new_decoder(body), [*coarse[:good], *fine], limit)
    return b"".join(parts)[:limit]


def _feed(decoder: _Decoder, pieces: list[bytes], limit: int) -> tuple[int, list[bytes]]:
    """How many of `pieces` went in without an error, and what came out."""
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
        # A call may stop at its inner buffer's size; an empty one asks for the rest.
        while room > 0 and not decompressor.is_finished():
            parts.append(decompressor.process(b"", output_buffer_limit=room))
            if not parts[-1]:
                break
            room -= len(parts[-1])
        return b"".join(parts)


def _gzip(_: bytes) -> Any:
    return zlib_ng.decompressobj(wbits=31)


def _deflate(body: bytes) -> Any:
    """zlib format as RFC 9110 8.4.1.2 has it, or the bare deflate data that some servers send instead."""
    has_zlib_header = len(body) >= 2 and body[0] & 15 == 8 and int.from_bytes(body[:2]) % 31 == 0
    return zlib_ng.decompressobj(wbits=15 if has_zlib_header else -15)


def _brotli(_: bytes) -> Any:
    return _Brotli()


def _zstd(_: bytes) -> Any:
    # RFC 9659 3: a window above 8 MB must not be used in HTTP, so it need not be granted.
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 23})


_DECODERS: dict[str, Callable[[bytes], _Decoder]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,  # RFC 9110 8.4.1.3
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}

# zlib-ng's stubs declare its exception class as an instance.
_CORRUPT: tuple[type[Exception], ...] = (cast(type[Exception], zlib_ng.error), brotli.error, zstd.ZstdError)
