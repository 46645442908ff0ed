"""Reads files of a crawl that may still be open: those of a running replica, and those of a killed one.

A WARC file may end in the middle of a record: an open one, and one of which a copy was cut. How much of it is complete is
measured first, because a reader would take half a record for a short one. The file may be finished while it is read, or
before: then it is found under its plain name. Nothing here waits for the writer or holds it up.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable
from pathlib import Path

from crawler.sinks.compression import COMPRESSIONS, Compression, CompressionName
from crawler.sinks.segment import OPEN_SUFFIX
from crawler.sinks.warc_reader import BrokenFraming

_STEP = 1 << 16  # bytes per call of the decompressor; it copies those after the end of a member, so not too many

Extent = tuple[int, bool]
"""The number of bytes of complete records at the start of a file, and whether they are worth keeping."""


_MAGIC: dict[bytes, CompressionName] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_HEAD = re.compile(rb"[\r\n]*WARC/.*?\r?\n\r?\n", re.DOTALL)
_LENGTH = re.compile(rb"^content-length:[ \t]*([0-9]{1,15})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_LONGEST_HEAD = 1 << 20


class Part(io.FileIO):
    """The first `size` bytes of a file, for readers that read to the end. `total`: the bytes that should be complete
    records."""

    def __init__(self, fd: int, size: int, total: int) -> None:
        super().__init__(fd)
        self.size = size
        self._total = total

    def check_end(self) -> None:
        """Raises BrokenFraming if the file ends in the middle of a record, or is damaged there."""
        if self.size < self._total:
            raise BrokenFraming(f"cut off or damaged: no complete record from byte {self.size:,} of {self._total:,} on")

    def read(self, size: int | None = -1) -> bytes:
        """Read at most `size` bytes, or all that are left."""
        left = max(0, self.size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left)) or b""


def complete_part(path: Path) -> Part:
    """The complete records of the WARC file at `path`. Of a finished file, these should be all of it. Raises OSError."""
    fd = open_either(path)
    try:
        magic = os.pread(fd, 4, 0)
        name = next((name for start, name in _MAGIC.items() if magic.startswith(start)), None)
        size = whole_records(fd, COMPRESSIONS[name])[0] if name else _whole_plain_records(fd)
        return Part(fd, size, size if is_open(path) else os.fstat(fd).st_size)
    except BaseException:
        os.close(fd)
        raise


def open_either(path: Path) -> int:
    """A file descriptor to read the file at `path`. If it was open and has been finished since, it has its plain name.
    Raises OSError."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if not is_open(path):
            raise
        return os.open(finished_path(path), os.O_RDONLY | os.O_CLOEXEC)


def open_and_finished(folder: Path, suffixes: Iterable[str]) -> list[Path]:
    """The files in `folder` with these `suffixes`, sorted, open ones included. Raises OSError."""
    endings = tuple(suffix + end for suffix in suffixes for end in ("", OPEN_SUFFIX))
    # A file that is finished during the listing may be in it under both names.
    found = (path for path in folder.iterdir() if path.name.endswith(endings) and not path.is_dir())
    return sorted({finished_path(path): path for path in found}.values())


def is_open(path: Path) -> bool:
    """Whether `path` is the name of a file that has not been finished."""
    return path.name.endswith(OPEN_SUFFIX)


def finished_path(path: Path) -> Path:
    """The name of `path` once it is finished."""
    return path.with_name(path.name.removesuffix(OPEN_SUFFIX))


def compression_of(path: Path) -> Compression | None:
    """The compression of the WARC file at `path`, open or not. None if it is not a compressed WARC file."""
    name = finished_path(path).name
    return next((one for one in COMPRESSIONS.values() if name.endswith(one.suffix)), None)


def whole_records(fd: int, compression: Compression) -> Extent:
    """The extent of the complete records of the file behind `fd`. With only the warcinfo record, it is not worth keeping.
    Raises OSError."""
    size = records = 0
    while length := _record_length(fd, size, compression):
        size += length
        records += 1
    return size, records > 1


def _record_length(fd: int, start: int, compression: Compression) -> int:
    """The length of the compressed record at `start`; 0 if there is no complete record."""
    reader = compression.reader()
    at = start
    while not reader.eof:
        chunk = os.pread(fd, _STEP, at)  # not mmap: a running replica may make the file shorter
        if not chunk:
            return 0
        try:
            reader.decompress(chunk)
        except compression.error:
            return 0
        at += len(chunk)
    return at - len(reader.unused_data) - start


def _whole_plain_records(fd: int) -> int:
    """The extent of the complete records of the file behind `fd`, which is not compressed. Raises OSError."""
    total, size = os.fstat(fd).st_size, 0
    while size < total and (length := _plain_length(fd, size)) and size + length <= total:
        size += length
        line_ends = os.pread(fd, 4, size)
        size += len(line_ends) - len(line_ends.lstrip(b"\r\n"))
    return size


def _plain_length(fd: int, start: int) -> int:
    """The length of the record at `start`, without the line ends after it, if it is complete; 0 if there is none."""
    head = b""
    while len(head) < _LONGEST_HEAD and (step := os.pread(fd, _STEP, start + len(head))):
        head += step
        if end := _HEAD.match(head):
            length = _LENGTH.search(end[0])
            return end.end() + int(length[1]) if length else 0
    return 0
