"""Finishing what dead writers left: each `.open` file is cut back to its last whole record and gets its plain name.

A WARC file is read from its start, because a compressed record does not tell its length: 1 GiB takes some seconds,
once. Each record is one gzip member or zstd frame, whose checksum tells that it is whole; of the JSON lines, a line is
whole when its line end is there. Nothing whole is ever removed, except a file that holds no record besides the warcinfo.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from crawler.sinks.compression import COMPRESSIONS, WARC_SUFFIXES, Compression
from crawler.sinks.index import read_index, write_index
from crawler.sinks.segment import OPEN_SUFFIX, is_same_file, try_lock

_STEP = 1 << 16  # octets fed to the decompressor at once; what follows a member's end is copied, so not too many

Extent = tuple[int, bool]
"""How many octets from the start are whole records, and whether that is worth keeping."""


def recover(folder: Path, with_index: bool = False) -> list[Path]:
    """Finish the files in `folder` whose writers are dead, WARC files `with_index`; returns those that were kept. Raises
    OSError."""
    kept = []
    for path in sorted(folder.glob("*" + OPEN_SUFFIX)):
        measure = _measure_of(path)
        if measure is not None and _finish(path, measure, with_index and _is_warc(path)):
            kept.append(path.with_name(path.name.removesuffix(OPEN_SUFFIX)))
    return kept


def _measure_of(path: Path) -> Callable[[mmap.mmap], Extent] | None:
    for compression in COMPRESSIONS.values():
        if path.name.endswith(compression.suffix + OPEN_SUFFIX):
            return partial(whole_records, compression=compression)
    if path.name.endswith(".jsonl" + OPEN_SUFFIX):
        return whole_lines
    return None


def _is_warc(path: Path) -> bool:
    return path.name.removesuffix(OPEN_SUFFIX).endswith(WARC_SUFFIXES)


def _finish(path: Path, measure: Callable[[mmap.mmap], Extent], with_index: bool) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False  # another replica was faster
    try:
        if not (try_lock(fd) and is_same_file(fd, path)):
            return False
        size, worth_keeping = _measured(fd, measure)
        if not worth_keeping:
            path.unlink()
            return False
        os.ftruncate(fd, size)
        os.fsync(fd)
        if with_index:
            write_index(path, read_index(path), fsync=True)
        path.rename(path.with_name(path.name.removesuffix(OPEN_SUFFIX)))
        return True
    finally:
        os.close(fd)


def _measured(fd: int, measure: Callable[[mmap.mmap], Extent]) -> Extent:
    if os.fstat(fd).st_size == 0:  # which mmap refuses
        return 0, False
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as data:
        return measure(data)


def whole_lines(data: mmap.mmap) -> Extent:
    """The extent of the whole lines of `data`."""
    size = data.rfind(b"\n") + 1
    return size, size > 0


def whole_records(data: mmap.mmap, compression: Compression) -> Extent:
    """The extent of the whole records of `data`. The first one is the warcinfo record, not worth a file alone."""
    size = records = 0
    while length := _record_length(data, size, compression):
        size += length
        records += 1
    return size, records > 1


def _record_length(data: mmap.mmap, start: int, compression: Compression) -> int:
    """The length of the compressed record at `start`; 0 when there is none, or none whole."""
    reader = compression.reader()
    at = start
    while not reader.eof:
        chunk = data[at : at + _STEP]
        if not chunk:
            return 0
        try:
            reader.decompress(chunk)
        except compression.error:
            return 0
        at += len(chunk)
    return at - len(reader.unused_data) - start
