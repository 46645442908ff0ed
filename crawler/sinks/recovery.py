"""Finishes the files of dead writers: each `.open` file is cut after its last complete record and gets its plain name.

A WARC file is read from the start, because the length of a compressed record is not known in advance. This takes some
seconds per GiB, once. A record is a gzip member or zstd frame, and complete if its checksum is right. A JSON line is
complete if its newline is there. Complete records and lines are kept, with two exceptions: a file with nothing but the
warcinfo record, and the pages of the last group that were not settled (`journal`). Those are fetched again.

The lock on a volume's `.journal.open` file covers all files of the volume. Only its holder finishes them.
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

_STEP = 1 << 16  # bytes per call of the decompressor; it copies those after the end of a member, so not too many

Extent = tuple[int, bool]
"""The number of bytes of complete records at the start of a file, and whether they are worth keeping."""


class OrphanedVolume(msgspec.Struct, frozen=True):
    """A volume of a dead writer. `path` and `fd`: the journal, whose lock we hold. `doubt`: the group that may not be
    settled."""

    name: str
    path: Path
    fd: int
    doubt: JournalEntry | None

    def take_back(self, unsettled: Container[int]) -> None:
        """Rewrite the group without the pages with the indexes `unsettled`, and note that in the journal first. Raises
        OSError."""
        assert self.doubt is not None
        records = self._complete_after(self.doubt.records_at, WARC_SUFFIXES)
        lines = self._complete_after(self.doubt.lines_at, (LINES,))
        rest = without(self.doubt, records, lines, unsettled)
        with os.fdopen(os.dup(self.fd), "ab") as file:
            file.write(encoded(rest))
            file.flush()
            os.fsync(file.fileno())
        self.rewrite(rest)

    def rewrite(self, rest: JournalRewrite) -> None:
        """Replace the ends of the files that are still open with `rest`. Raises OSError."""
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

    def _complete_after(self, start: int, suffixes: tuple[str, ...]) -> bytes:
        for path in self._open_files(suffixes):
            measure = _measure_of(path)
            assert measure is not None
            with path.open("rb") as file:
                size, _ = _measured(file.fileno(), measure)
                file.seek(start)
                return file.read(max(0, size - start))
        return b""

    def remove(self) -> None:
        """Remove the journal. The other files must have their plain names."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock."""
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
            orphan.rewrite(last)  # a process died during this rewrite
        found.append(orphan)
    return found


def recover(folder: Path, with_index: bool = False, ours: Container[str] = ()) -> list[Path]:
    """Finish the files of dead writers in `folder`, and write the indexes of WARC files if `with_index`. Returns the files
    that were kept.

    `ours`: the volumes whose journals we have locked. Volumes with other journals are left alone. Raises OSError.
    """
    kept = []
    # List the journals first: if one is removed meanwhile, its volume counts as another's, which is true: it was finished.
    others = {_volume_of(path) for path in folder.glob("*" + JOURNAL + OPEN_SUFFIX)}
    for path in sorted(folder.glob("*" + OPEN_SUFFIX)):
        if (volume := _volume_of(path)) in others and volume not in ours:
            continue
        measure = _measure_of(path)
        if measure is not None and _finish(path, measure, with_index and _plain(path).name.endswith(WARC_SUFFIXES)):
            kept.append(_plain(path))
    return kept


def _measure_of(path: Path) -> Callable[[mmap.mmap], Extent] | None:
    for compression in COMPRESSIONS.values():
        if path.name.endswith(compression.suffix + OPEN_SUFFIX):
            return partial(whole_records, compression=compression)
    return whole_lines if path.name.endswith(".jsonl" + OPEN_SUFFIX) else None


def _plain(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(OPEN_SUFFIX))


def _volume_of(path: Path) -> str:
    """The name of the volume to which the open file `path` belongs."""
    name = _plain(path).name
    suffix = next((suffix for suffix in (*WARC_SUFFIXES, LINES, JOURNAL) if name.endswith(suffix)), "")
    return name.removesuffix(suffix)


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
        path.rename(_plain(path))
        return True
    finally:
        os.close(fd)


def _measured(fd: int, measure: Callable[[mmap.mmap], Extent]) -> Extent:
    if os.fstat(fd).st_size == 0:  # mmap rejects empty files
        return 0, False
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as data:
        return measure(data)


def whole_lines(data: mmap.mmap) -> Extent:
    """The extent of the complete lines of `data`."""
    size = data.rfind(b"\n") + 1
    return size, size > 0


def whole_records(data: mmap.mmap, compression: Compression) -> Extent:
    """The extent of the complete records of `data`. A file with only the warcinfo record is not worth keeping."""
    size = records = 0
    while length := _record_length(data, size, compression):
        size += length
        records += 1
    return size, records > 1


def _record_length(data: mmap.mmap, start: int, compression: Compression) -> int:
    """The length of the compressed record at `start`; 0 if there is no complete record."""
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
