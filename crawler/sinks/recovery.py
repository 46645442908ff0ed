"""Finishes the files of dead writers: each `.open` file is cut after its last complete record and gets its plain name.

A WARC file is read from the start, because the length of a compressed record is not known in advance. This takes some
seconds per GiB, once. A record is a gzip member or zstd frame, and complete if its checksum is right. A JSON line is
complete if its newline is there. Complete records and lines are kept, with two exceptions: a file with nothing but the
warcinfo record, and the pages of the last group that were not settled (`journal`). Those are fetched again.

The lock on a volume's `.journal.open` file covers all files of the volume. Only its holder finishes them.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
from collections.abc import Collection, Container, Sequence
from pathlib import Path

from crawler.logs import log
from crawler.sinks.cdxj import read_index, write_index
from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.files import LINES, OPEN_SUFFIX, Segment, finished_path, is_open, open_and_finished, open_path
from crawler.sinks.journal import JOURNAL, JournalEntry, JournalRewrite, decoded, written_before_last_group
from crawler.sinks.lines import lost_records
from crawler.sinks.reader import Extent, compression_of, whole_records
from crawler.sinks.sink import Revoke
from crawler.sinks.volume import Volume
from crawler.wording import count_of


def find_orphans(folder: Path) -> list[Volume]:
    """The volumes in `folder` whose writers are dead. Raises OSError."""
    found = (adopt_orphan(path) for path in sorted(folder.glob("*" + JOURNAL + OPEN_SUFFIX)))
    return [orphan for orphan in found if orphan is not None]


def adopt_orphan(path: Path) -> Volume | None:
    """The volume of the open journal `path`, which has the lock. None if another process has it. Raises OSError."""
    journal = Segment.adopt(path)
    if journal is None:
        return None
    data = journal.read(0)
    journal.cut(data.rfind(b"\n") + 1)
    last = decoded(data)
    orphan = Volume(0.0, True, journal, doubt=last if isinstance(last, JournalEntry) else None)
    if last is not None:
        orphan.warc, orphan.pages = (_adopted(orphan, suffixes) for suffixes in (WARC_SUFFIXES, (LINES,)))
    if isinstance(last, JournalRewrite):
        orphan.rewrite(last)  # a process died during this rewrite
    return orphan


def _adopted(orphan: Volume, suffixes: tuple[str, ...]) -> Segment | None:
    paths = (open_path(orphan.journal.path.with_name(orphan.name + suffix)) for suffix in suffixes)
    return next((segment for segment in map(Segment.adopt, paths) if segment is not None), None)


async def unsettled_in(orphan: Volume, revoke: Revoke | None) -> Collection[int]:
    """The indexes of the pages of `orphan.doubt` that were not settled; without `revoke`, none. Pages of which this is
    unknown are kept, and logged. Raises what `revoke` raises."""
    if not orphan.doubt or revoke is None:
        return ()
    answers = await revoke(orphan.doubt.leased, orphan.doubt.crawl)
    if unknown := sum(answer is None for answer in answers):
        log(logging.WARNING, "pages_in_doubt_kept", volume=orphan.name, pages=unknown)
    return {number for number, unsettled in enumerate(answers) if unsettled}


def finish_orphans(
    folder: Path, judged: Sequence[tuple[Volume, Collection[int]]], with_index: bool
) -> tuple[list[Path], dict[str, int]]:
    """Finish the volumes in `judged`, without the pages with these indexes, and open files without a journal. Returns the
    files that were kept, and how many records of each volume are lost. Raises OSError."""
    lost = {orphan.name: _lost_without_lines(orphan, unsettled) for orphan, unsettled in judged}
    for orphan, unsettled in judged:
        if unsettled:
            for segment in filter(None, (orphan.warc, orphan.pages)):
                segment.cut(_measured(segment)[0])
            orphan.take_back(unsettled)
            log(logging.INFO, "pages_taken_back", volume=orphan.name, pages=len(unsettled))
        orphan.close_files()
    warcs = [path for path in open_and_finished(folder, WARC_SUFFIXES) if is_open(path)]
    kept = recover(folder, with_index, ours={orphan.name for orphan, _ in judged})
    for orphan, _ in judged:
        orphan.journal.remove()
    for path in warcs:
        warc, volume = finished_path(path), _volume_of(path)
        lines = path.with_name(volume + LINES)
        if lines.exists() and not path.exists():
            size = warc.stat().st_size if warc.exists() else 0
            lost[volume] = lost.get(volume, 0) + lost_records(lines, warc, size)
    lost = {volume: records for volume, records in lost.items() if records}
    for volume, records in lost.items():
        log(logging.ERROR, "records_lost", volume=volume, problem=lost_records_in_words(volume, records))
    return kept, lost


def _lost_without_lines(orphan: Volume, unsettled: Container[int]) -> int:
    """How many records of settled pages are missing at the end of the WARC file, of those in the journal whose lines are
    missing, too, or that have none. The last group may not have been written."""
    if orphan.doubt is None:
        return 0
    written_to = written_before_last_group(orphan.journal.read(0))
    size = _measured(orphan.warc)[0] if orphan.warc else 0
    lines = 0
    if orphan.pages and (complete := _measured(orphan.pages)[0]) > orphan.doubt.lines_at:
        lines = orphan.pages.read(orphan.doubt.lines_at)[: complete - orphan.doubt.lines_at].count(b"\n")
    return sum(
        size < share.end <= written_to and share.start < share.end and not 0 <= share.line < lines
        for number, share in enumerate(orphan.doubt.shares)
        if number not in unsettled
    )


def lost_records_in_words(volume: str, records: int) -> str:
    """That so many records of `volume` are lost, in a sentence."""
    verb = "is" if records == 1 else "are"
    return f"{count_of(records, 'record')} of {volume} {verb} lost: the end of the file was cut off"


def open_volumes(folder: Path) -> set[str]:
    """The names of the volumes in `folder` with open files. Raises OSError."""
    return {_volume_of(path) for path in open_and_finished(folder, (*WARC_SUFFIXES, LINES, JOURNAL)) if is_open(path)}


def journaled_volumes(folder: Path) -> set[str]:
    """Those of the open volumes in `folder` that have a journal, as all have while they are written. Raises OSError."""
    return {_volume_of(path) for path in folder.glob("*" + JOURNAL + OPEN_SUFFIX)}


def recover(folder: Path, with_index: bool = False, ours: Container[str] = ()) -> list[Path]:
    """Finish the files of dead writers in `folder`, and write the indexes of WARC files if `with_index`. Returns the files
    that were kept.

    `ours`: the volumes whose journals we have locked. Volumes with other journals are left alone. Raises OSError.
    """
    kept = []
    # List the journals first: if one is removed meanwhile, its volume counts as another's, which is true: it was finished.
    others = journaled_volumes(folder)
    for path in sorted(folder.glob("*" + OPEN_SUFFIX)):
        if (volume := _volume_of(path)) in others and volume not in ours:
            continue
        if path.name.endswith((".jsonl" + OPEN_SUFFIX, *(suffix + OPEN_SUFFIX for suffix in WARC_SUFFIXES))):
            kept += _finish(path, with_index)
    return kept


def _volume_of(path: Path) -> str:
    name = path.name.removesuffix(OPEN_SUFFIX)
    suffix = next((suffix for suffix in (*WARC_SUFFIXES, LINES, JOURNAL) if name.endswith(suffix)), "")
    return name.removesuffix(suffix)


def _finish(path: Path, with_index: bool) -> list[Path]:
    segment = Segment.adopt(path)
    if segment is None:
        return []  # its writer is alive, or another replica was faster
    with contextlib.closing(segment):
        size, worth_keeping = _measured(segment)
        if not worth_keeping:
            segment.remove()
            return []
        segment.cut(size)
        segment.sync()
        if with_index and segment.path.name.endswith(WARC_SUFFIXES):
            write_index(path, sorted(read_index(path)), fsync=True)
        segment.finish()
        return [segment.path]


def _measured(segment: Segment) -> Extent:
    if segment.size == 0:  # mmap rejects empty files
        return 0, False
    if compression := compression_of(segment.path):
        return whole_records(segment.fileno(), compression)
    with mmap.mmap(segment.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return whole_lines(data)


def whole_lines(data: mmap.mmap) -> Extent:
    """The extent of the complete lines of `data`."""
    size = data.rfind(b"\n") + 1
    return size, size > 0
