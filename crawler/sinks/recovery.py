"""Finishing what dead writers left: each `.open` file is cut back to its last whole record and gets its plain name.

A WARC file is read from its start, because a compressed record does not tell its length: 1 GiB takes some seconds,
once. Each record is one gzip member or zstd frame, whose checksum tells that it is whole; of the JSON lines, a line is
whole when its line end is there. Nothing whole is ever removed, except a file that holds no record besides the warcinfo,
and the pages of the last group that turn out not to have been settled (`journal`): then their URLs are fetched again.

The lock on a volume's `.journal.open` file stands for all its files: without it nobody else finishes them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path

import msgspec

from crawler.sinks.compression import COMPRESSIONS, WARC_SUFFIXES, Compression
from crawler.sinks.external_sort import SortedLines
from crawler.sinks.index import read_index, write_index
from crawler.sinks.journal import JOURNAL, JournalEntry, JournalRewrite, decoded, encoded, without
from crawler.sinks.segment import LINES, OPEN_SUFFIX, is_same_file, try_lock

_STEP = 1 << 16  # bytes fed to the decompressor at once; what follows a member's end is copied, so not too many

Extent = tuple[int, bool]
"""How many bytes from the start are whole records, and whether that is worth keeping."""


class OrphanedVolume(msgspec.Struct, frozen=True):
    """A volume that a dead writer left: its name, and the file with its journal, whose lock is ours. `doubt`: the group of
    which it is not known whether it was settled."""

    name: str
    path: Path
    fd: int
    doubt: JournalEntry | None

    def take_back(self, unsettled: Container[int]) -> None:
        """Write down what the files shall be without the `unsettled` pages of the group, by their numbers, and make them
        so. Raises OSError."""
        assert self.doubt is not None
        records = self._whole_after(self.doubt.records_at, WARC_SUFFIXES)
        lines = self._whole_after(self.doubt.lines_at, (LINES,))
        rest = without(self.doubt, records, lines, unsettled)
        with os.fdopen(os.dup(self.fd), "ab") as file:
            file.write(encoded(rest))
            file.flush()
            os.fsync(file.fileno())
        self.rewrite(rest)

    def rewrite(self, rest: JournalRewrite) -> None:
        """Let the files that are still open end with `rest`. Raises OSError."""
        for suffixes, at, data in (
            (WARC_SUFFIXES, rest.records_at, rest.records),
            ((LINES,), rest.lines_at, rest.lines),
        ):
            for path in self._open_files(suffixes):
                with path.open("r+b") as file:
                    if os.fstat(file.fileno()).st_size >= at:
                        file.truncate(at)
                        file.seek(at)
                        file.write(data)
                        file.flush()
                        os.fsync(file.fileno())

    def _open_files(self, suffixes: tuple[str, ...]) -> list[Path]:
        paths = [self.path.with_name(self.name + suffix + OPEN_SUFFIX) for suffix in suffixes]
        return [path for path in paths if path.exists()]

    def _whole_after(self, start: int, suffixes: tuple[str, ...]) -> bytes:
        for path in self._open_files(suffixes):
            measure = _measure_of(path)
            assert measure is not None
            with path.open("rb") as file:
                size, _ = _measured(file.fileno(), measure)
                file.seek(start)
                return file.read(max(0, size - start))
        return b""

    def remove(self) -> None:
        """Remove the journal: the other files have their plain names."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give the lock back."""
        os.close(self.fd)


def find_orphans(folder: Path) -> list[OrphanedVolume]:
    """The volumes in `folder` whose writers are dead. Raises OSError."""
    found = []
    for path in sorted(folder.glob("*" + JOURNAL + OPEN_SUFFIX)):
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another replica was faster
        if not (try_lock(fd) and is_same_file(fd, path)):
            os.close(fd)
            continue
        data = os.pread(fd, os.fstat(fd).st_size, 0)
        os.ftruncate(fd, data.rfind(b"\n") + 1)
        last = decoded(data)
        orphan = OrphanedVolume(_volume_of(path), path, fd, last if isinstance(last, JournalEntry) else None)
        if isinstance(last, JournalRewrite):
            orphan.rewrite(last)  # somebody died while doing so
        found.append(orphan)
    return found


def recover(folder: Path, with_index: bool = False, ours: Container[str] = ()) -> list[Path]:
    """Finish the files in `folder` whose writers are dead, WARC files `with_index`; returns those that were kept.

    `ours`: the volumes whose journal is locked by us; those with another's journal are left alone. Raises OSError.
    """
    kept = []
    # First the tails: one that goes away meanwhile is taken for another's, and that volume is finished.
    others = {_volume_of(path) for path in folder.glob("*" + JOURNAL + OPEN_SUFFIX)}
    for path in sorted(folder.glob("*" + OPEN_SUFFIX)):
        if (volume := _volume_of(path)) in others and volume not in ours:
            continue
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


def _volume_of(path: Path) -> str:
    """The name of the volume that the open file `path` is part of."""
    name = path.name.removesuffix(OPEN_SUFFIX)
    suffix = next((suffix for suffix in (*WARC_SUFFIXES, LINES, JOURNAL) if name.endswith(suffix)), "")
    return name.removesuffix(suffix)


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
            with contextlib.closing(SortedLines(path.parent)) as lines:
                lines.add(read_index(path))
                write_index(path, lines.merged(), fsync=True)
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
