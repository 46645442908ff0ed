"""How the records of a WARC file are compressed: each alone, so that each can be read alone.

gzip is what every reader takes: a record is a member (WARC 1.1 annex D). zstd is the IIPC's proposal "Zstandard
Compression for WARC Files 1.0", which Archive Team's tools write: a record is a frame that tells its size and has a
checksum. Its dictionaries, which make the records of one site much smaller, are not used: a file's first pages would
have to wait until there are enough of them to learn from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import msgspec
from isal import isal_zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CompressionName = Literal["gzip", "zstd"]

_ZSTD_LEVEL = 3
_ZSTD_OPTIONS: Mapping[int, int] = {
    zstd.CompressionParameter.compression_level: _ZSTD_LEVEL,
    zstd.CompressionParameter.content_size_flag: 1,
    zstd.CompressionParameter.checksum_flag: 1,  # the proposal, section "Zstandard frames"; and recovery stands on it
}


class Decompressor(Protocol):
    """Decompresses one record."""

    def decompress(self, data: bytes, /) -> bytes:
        """What `data` holds of the record. Raises one of the compression's errors."""

    @property
    def eof(self) -> bool:
        """Whether the record's end was in the data, and its checksum right."""

    @property
    def unused_data(self) -> bytes:
        """The bytes that came after it."""


class Compression(msgspec.Struct, frozen=True):
    """`suffix`: how names of files end. `compress(record, level)`: the level counts for gzip alone, 0 to 3."""

    suffix: str
    compress: Callable[[bytes, int], bytes]
    reader: Callable[[], Decompressor]
    error: type[Exception]


def _gzip(record: bytes, level: int) -> bytes:
    return isal_zlib.compress(record, level, wbits=31)


def _zstd(record: bytes, level: int) -> bytes:
    return zstd.compress(record, options=_ZSTD_OPTIONS)


COMPRESSIONS: dict[CompressionName, Compression] = {
    "gzip": Compression(".warc.gz", _gzip, lambda: isal_zlib.decompressobj(wbits=31), isal_zlib.error),  # type: ignore[arg-type]
    "zstd": Compression(".warc.zst", _zstd, zstd.ZstdDecompressor, zstd.ZstdError),
}

WARC_SUFFIXES = tuple(compression.suffix for compression in COMPRESSIONS.values())
