"""Compression of WARC files. Each record is compressed separately, so that it can be read separately.

With gzip, which every reader understands, a record is a member (WARC 1.1 annex D). With zstd, a record is a frame with its
content size and a checksum, as in the IIPC proposal "Zstandard Compression for WARC Files 1.0", which Archive Team's tools
write. Dictionaries are not used, although they make the records of one site much smaller: the first pages of a file would
have to wait until there are enough pages to train a dictionary.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
from isal import isal_zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CompressionName = Literal["gzip", "zstd"]

_GZIP_LEVEL = 2

_ZSTD_OPTIONS: Mapping[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.content_size_flag: 1,
    zstd.CompressionParameter.checksum_flag: 1,  # section "Zstandard frames" of the proposal; recovery relies on it
}


class Compression(msgspec.Struct, frozen=True):
    """`suffix`: of file names. `compress` takes a record, `reader` makes a decompressor for one, which raises `error`."""

    suffix: str
    compress: Callable[[bytes], bytes]
    reader: Callable[[], zstd.ZstdDecompressor]
    error: type[Exception]


COMPRESSIONS: dict[CompressionName, Compression] = {
    "gzip": Compression(
        ".warc.gz",
        lambda record: isal_zlib.compress(record, _GZIP_LEVEL, wbits=31),
        lambda: isal_zlib.decompressobj(wbits=31),  # type: ignore[arg-type, return-value]
        isal_zlib.error,  # type: ignore[arg-type]
    ),
    "zstd": Compression(
        ".warc.zst",
        lambda record: zstd.compress(record, options=_ZSTD_OPTIONS),
        zstd.ZstdDecompressor,
        zstd.ZstdError,
    ),
}

WARC_SUFFIXES = tuple(compression.suffix for compression in COMPRESSIONS.values())
READ_SUFFIXES = (*WARC_SUFFIXES, ".warc")
"""Those of WARC files that are read. This crawler writes none without compression."""
