"""Reads WARC files, those of this crawler and others. FastWARC reads the records; the HTTP heads are parsed here.

FastWARC's own parser raises an error for an HTTP head of more than 32,000 bytes and stops reading the file, but a site may
send a head of 64 KiB. Here, a record that cannot be parsed affects no other record. Only if the framing of the file is
broken does the reading stop, because nobody can tell where the next record begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import IO, NamedTuple, TypeVar

from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

T = TypeVar("T")

_STEP = 16_384  # bytes per read; nearly all heads are shorter
_LONGEST_HEAD = 1 << 20
"""Bytes. This crawler accepts 64 KiB (`max_header_bytes`), but others accept more."""

HEAD_END = re.compile(rb"\n\r?\n")
"""RFC 9112 2.2: a recipient may accept a bare LF as a line end."""
_STATUS_LINE = re.compile(rb"HTTP/[0-9.]{1,8}[ \t]+([0-9]{3})(?![0-9])")


class BrokenFraming(Exception):
    """Raised when the next record of a file cannot be found because compression or framing is broken."""


class Head(NamedTuple):
    """The head of an HTTP response. `status`: 0 without a status line. `fields`: names and values as sent."""

    status: int
    fields: tuple[tuple[bytes, bytes], ...]

    def get(self, name: bytes) -> str | None:
        """The first value of the field `name` (in lower case), or None."""
        return next((value.decode("latin-1") for key, value in self.fields if key.lower() == name), None)

    def get_list(self, name: bytes) -> str:
        """All values of the field `name` (in lower case) as one list (RFC 9110 5.3); empty if there is none."""
        return ", ".join(value.decode("latin-1") for key, value in self.fields if key.lower() == name)


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


def parse_head(data: bytes) -> Head:
    """Parse any `data` as an HTTP head. Lines that are not fields are skipped."""
    first, *lines = data.split(b"\n")
    status = _STATUS_LINE.match(first)
    fields: list[tuple[bytes, bytes]] = []
    for line in lines:
        if fields and line[:1] in (b" ", b"\t"):  # obsolete line folding (RFC 9112 5.2)
            name, value = fields[-1]
            fields[-1] = name, value + b" " + line.strip()
            continue
        name, colon, value = line.partition(b":")
        if colon:
            fields.append((name.strip(), value.strip()))
    return Head(int(status[1]) if status else 0, tuple(fields))


def dechunked(body: bytes) -> bytes:
    """Remove the chunked coding from `body` (RFC 9112 7.1), which other crawlers may store. Raises ValueError if it is not
    chunked, or incomplete."""
    stream = BytesIO(body)
    parts: list[bytes] = []
    while True:
        size = stream.readline().partition(b";")[0].strip()
        if not size.isalnum():
            raise ValueError("no chunk size")
        length = int(size, 16)
        if not length:
            return b"".join(parts)
        chunk = stream.read(length)
        if len(chunk) < length or stream.readline().strip():
            raise ValueError("an incomplete chunk")
        parts.append(chunk)
