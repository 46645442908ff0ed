"""Content codings of bodies, and compression bombs."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import brotli  # type: ignore[import-untyped]

from crawler.simweb.features import Coding

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BOMB_BYTES = 128 << 20
_BLOCK = b"<p>Boom. " * 116_508  # a little less than 1 MiB


def encode(coding: Coding, body: bytes) -> bytes:
    """`body` in this coding, at the fastest level."""
    return _ENCODERS[coding](body)


def token(coding: Coding) -> str:
    """The name of the coding in Content-Encoding."""
    return "deflate" if coding is Coding.RAW_DEFLATE else coding.value


@lru_cache(maxsize=8)
def bomb(coding: Coding, opening: bytes = b"") -> bytes:
    """`opening` followed by more than `BOMB_BYTES` of text, in gzip, br or zstd. The first call takes up to a second."""
    compressor = _COMPRESSORS[coding]()
    # Brotli's compressor calls `process` what the others call `compress`.
    feed = compressor.process if coding is Coding.BROTLI else compressor.compress
    finish = compressor.finish if coding is Coding.BROTLI else compressor.flush
    blocks = [feed(opening), *(feed(_BLOCK) for _ in range(BOMB_BYTES // len(_BLOCK) + 1)), finish()]
    return b"".join(blocks)


_ENCODERS: dict[Coding, Callable[[bytes], bytes]] = {
    Coding.IDENTITY: lambda body: body,
    Coding.GZIP: lambda body: gzip.compress(body, 1, mtime=0),
    Coding.DEFLATE: lambda body: zlib.compress(body, 1),
    Coding.RAW_DEFLATE: lambda body: zlib.compress(body, 1, wbits=-zlib.MAX_WBITS),
    Coding.BROTLI: lambda body: bytes(brotli.compress(body, quality=1)),
    Coding.ZSTD: lambda body: zstd.compress(body, 1),
}

_COMPRESSORS: dict[Coding, Callable[[], Any]] = {
    Coding.GZIP: lambda: zlib.compressobj(1, wbits=16 + zlib.MAX_WBITS),
    Coding.BROTLI: lambda: brotli.Compressor(quality=1),
    Coding.ZSTD: lambda: zstd.ZstdCompressor(1),
}
