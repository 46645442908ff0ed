"""Reading WARC files back, ours and others': the records by FastWARC, the HTTP heads in them by ourselves.

FastWARC's own parser of HTTP heads raises an error for a head of more than 32,000 bytes, which ends the reading of the
whole file, and a site may send one of 64 KiB. Nothing that a record holds may do that: a record that cannot be understood
is one record less. What remains is a file whose framing is broken, so that nobody knows where its next record begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from typing import IO, NamedTuple

from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

_STEP = 16_384  # bytes read at once: nearly all heads are shorter
_LONGEST_HEAD = 1 << 20
"""Bytes. The crawler itself takes 64 KiB (`max_header_bytes`), but others take more."""

_HEAD_END = re.compile(rb"\n\r?\n")
"""RFC 9112 2.2: a recipient may take a bare LF for a line end."""
_STATUS_LINE = re.compile(rb"HTTP/[0-9.]{1,8}[ \t]+([0-9]{3})(?![0-9])")


class BrokenFraming(Exception):
    """Raised when the next record of a file cannot be found: compression or framing is broken from there on."""


class Head(NamedTuple):
    """The head of an HTTP response. `status` 0: it has no status line. `fields`: names and values as sent."""

    status: int
    fields: tuple[tuple[bytes, bytes], ...]

    def get(self, name: bytes) -> str | None:
        """The first value of the field `name` (in lower case), or None."""
        return next((value.decode("latin-1") for key, value in self.fields if key.lower() == name), None)

    def get_list(self, name: bytes) -> str:
        """All values of the field `name` (in lower case) as one list (RFC 9110 5.3); empty if there is none."""
        return ", ".join(value.decode("latin-1") for key, value in self.fields if key.lower() == name)


def records_in(source: str | IO[bytes], types: WarcRecordType = WarcRecordType.any_type) -> Iterator[WarcRecord]:
    """The records in the file or stream `source`. Raises BrokenFraming, and OSError where the system says so."""
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


def read_head(record: WarcRecord) -> tuple[Head, bytes] | None:
    """The HTTP head of `record`, and what was read of the body behind it; the rest is still in `record.reader`. None if
    the record is none of HTTP."""
    if not record.is_http:
        return None
    block = b""
    while True:
        step = record.reader.read(_STEP)
        searched, block = max(0, len(block) - 2), block + step
        end = _HEAD_END.search(block, searched)
        if end is not None:
            return parse_head(block[: end.end()]), block[end.end() :]
        if not step or len(block) >= _LONGEST_HEAD:
            return parse_head(block), b""


def parse_head(data: bytes) -> Head:
    """The head in `data`, whatever they are; a line that is no field is passed over."""
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
    """`body` without the chunked coding (RFC 9112 7.1), for archives of others, which may store it. Raises ValueError if it
    has none, or a broken one."""
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
            raise ValueError("a chunk that breaks off")
        parts.append(chunk)
