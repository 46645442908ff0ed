"""Reads WARC files, those of this crawler and others. FastWARC reads the records, and `crawler.http_head` the HTTP heads.

FastWARC's own parser raises an error for an HTTP head of more than 32,000 bytes and stops reading the file, but a site may
send a head of 64 KiB. Here, a record that cannot be parsed affects no other record. Only if the framing of the file is
broken does the reading stop, because nobody can tell where the next record begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import IO, TypeVar

from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from crawler.http_head import HEAD_END, Head, parse_head

T = TypeVar("T")

_STEP = 16_384  # bytes per read; nearly all heads are shorter
_LONGEST_HEAD = 1 << 20
"""Bytes. This crawler accepts 64 KiB (`max_header_bytes`), but others accept more."""

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?\r?\n")
"""RFC 9112 7.1."""


class BrokenFraming(Exception):
    """Raised when the next record of a file cannot be found because compression or framing is broken, or when a finished
    file ends in the middle of a record."""


def records_in(source: str | IO[bytes], types: WarcRecordType = WarcRecordType.any_type) -> Iterator[WarcRecord]:
    """The records of these `types` in the file or stream `source`. Raises BrokenFraming and OSError."""
    records = iter(ArchiveIterator(source, record_types=types, parse_http=False))
    while True:
        try:
            record = next(records)
        except StopIteration:
            return
        except OSError as error:
            if error.errno is not None:
                raise
            raise BrokenFraming(str(error)) from error
        yield record


def placed(
    records: Iterable[WarcRecord], size: int, read: Callable[[WarcRecord], T | None]
) -> Iterator[tuple[T, int, int]]:
    """The results of `read` for all `records` of a source of `size` bytes, each with the record's offset and length in
    compressed bytes. Records for which it returns None are left out. Raises BrokenFraming and OSError."""
    result, start = None, 0
    for record in records:
        # The length of a record is known only when the next one begins.
        if result is not None:
            yield result, start, record.stream_pos - start
        start, result = record.stream_pos, read(record)
    if result is not None:
        yield result, start, size - start


def target_of(record: WarcRecord, field: str = "WARC-Target-URI") -> str:
    """The URI in this field of `record`, "" if there is none. Wget writes it in angle brackets, as WARC 1.0 defines it."""
    return (record.headers.get(field) or "").strip().removeprefix("<").removesuffix(">")


def read_head(record: WarcRecord) -> tuple[Head, bytes] | None:
    """The HTTP head of `record`, and the bytes of the body that were read with it; `record.reader` has the rest. None if
    the record is not an HTTP message."""
    if not record.is_http:
        return None
    block = b""
    while True:
        step = record.reader.read(_STEP)
        searched, block = max(0, len(block) - 2), block + step
        end = HEAD_END.search(block, searched)
        if end is not None:
            return parse_head(block[: end.end()]), block[end.end() :]
        if not step or len(block) >= _LONGEST_HEAD:
            return parse_head(block), b""


def dechunked(body: bytes) -> tuple[bytes, bool]:
    """`body` without the chunked coding (RFC 9112 7.1), which other crawlers may store, and whether it is complete. A body
    that was stored without the coding that its head names is returned as it is."""
    stream = BytesIO(body)
    parts: list[bytes] = []
    while True:
        line = stream.readline()
        size = _CHUNK_SIZE.fullmatch(line)
        length = int(size[1], 16) if size else -1
        if length == 0 and (parts or line.endswith(b"\r\n") or stream.read(3) in (b"", b"\n", b"\r\n")):
            return b"".join(parts), True
        chunk = stream.read(min(length, len(body))) if length > 0 else b""
        is_cut = len(chunk) < length
        if length <= 0 or (not is_cut and stream.readline().strip()) or (is_cut and not line.endswith(b"\r\n")):
            return (b"".join(parts), False) if parts else (body, True)
        parts.append(chunk)
        if is_cut:
            return b"".join(parts), False
