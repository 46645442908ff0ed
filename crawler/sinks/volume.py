"""A volume: one WARC file, its sibling with the JSON lines, and the journal of both, which grow, stop and fail together."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable
from pathlib import Path

import msgspec

from crawler.sinks.external_sort import SortedLines
from crawler.sinks.index import lines_of, write_index
from crawler.sinks.journal import JournalEntry, JournalRewrite, encoded, without
from crawler.sinks.segment import Segment


class Volume(msgspec.Struct):
    """The open files of an archive. Either of the first two may be left out. `opened_at` in seconds since 1970; `index`:
    the lines for the index of the WARC file, but for `latest`, those of the last group; `doubt`: that group, until its URLs
    are settled."""

    opened_at: float
    fsync: bool
    journal: Segment
    index: SortedLines
    warc: Segment | None = None
    pages: Segment | None = None
    latest: list[bytes] = msgspec.field(default_factory=list)
    doubt: JournalEntry | None = None
    is_broken: bool = False

    def add_warc(self, segment: Segment, warcinfo: bytes) -> None:
        """Records go to `segment`, which begins with the record `warcinfo`. Raises OSError."""
        self.warc = segment
        segment.begin(warcinfo)

    def add_pages(self, segment: Segment) -> None:
        """JSON lines go to `segment`."""
        self.pages = segment

    def is_due(self, max_bytes: int, oldest: float) -> bool:
        """Whether a file has reached `max_bytes`, or the volume was opened at `oldest` or before."""
        return self.opened_at <= oldest or any(segment.size >= max_bytes for segment in self._segments())

    def append(
        self, records: bytes, lines: bytes, index: Iterable[bytes] = (), doubt: JournalEntry | None = None
    ) -> None:
        """Append to both files, or to none of them. Raises OSError.

        What may have to be taken back is first. Then the records, and on the disk first: no line may name a place that
        does not exist.
        """
        before = JournalRewrite(self.warc.size if self.warc else 0, self.pages.size if self.pages else 0, b"", b"")
        try:
            self.journal.cut(0)
            for segment, data in (
                (self.journal, encoded(doubt) if doubt else b""),
                (self.warc, records),
                (self.pages, lines),
            ):
                if segment is not None and data:
                    segment.append(data)
                    if self.fsync:
                        segment.sync()
        except BaseException:
            self._undo(before)
            raise
        self.index.add(self.latest)
        self.doubt, self.latest = doubt, list(index)

    def take_back(self, unsettled: Container[int]) -> None:
        """Take the `unsettled` pages of the last group, by their numbers in it, out of the files. Raises OSError."""
        if self.doubt is None:
            return
        rest = without(
            self.doubt,
            self.warc.read(self.doubt.records_at) if self.warc else b"",
            self.pages.read(self.doubt.lines_at) if self.pages else b"",
            unsettled,
        )
        self._append_to_journal(rest)
        try:
            self._rewrite(rest)
        except BaseException:
            self.leave()
            raise
        if self.warc is not None and self.latest:
            self.latest = list(lines_of(rest.records, self.warc.path.name, rest.records_at))
        self.doubt = None

    def _append_to_journal(self, rest: JournalRewrite) -> None:
        size = self.journal.size
        try:
            self.journal.cut(size)  # of what was not written whole
            self.journal.append(encoded(rest))
            if self.fsync:
                self.journal.sync()
        except BaseException:
            self.journal.cut(size)
            raise

    def finish(self) -> list[Path]:
        """Give the files their plain names, empty ones removed; returns those that are kept. Raises OSError; the files are
        then left to a recovery.

        The index is first: a WARC file with its plain name is one that can be replayed.
        """
        files = []
        try:
            self.index.add(self.latest)
            if self.warc is not None and self.index:
                files.append(write_index(self.warc.path, self.index.merged(), self.fsync))
            for segment in self._segments():
                if self.fsync:
                    segment.sync()
                if segment.finish():
                    files.append(segment.path)
            self.journal.remove()  # last: as long as it is there, nobody else finishes the others
        finally:
            self._close()
        return files

    def discard(self) -> None:
        """Remove what was just created."""
        self.index.close()
        for segment in (*self._segments(), self.journal):
            segment.remove()

    def leave(self) -> None:
        """Close the files as they are: a recovery sorts it out."""
        self.is_broken = True
        self._close()

    def _undo(self, before: JournalRewrite) -> None:
        try:
            self._rewrite(before)
        except OSError:
            # The files are in an unknown state. The group will go to a new volume: nothing of it may stay here.
            with contextlib.suppress(OSError):
                self._append_to_journal(before)
            self.leave()

    def _rewrite(self, rest: JournalRewrite) -> None:
        if self.warc is not None:
            self.warc.cut(rest.records_at)
            self.warc.append(rest.records)
        if self.pages is not None:
            self.pages.cut(rest.lines_at)
            self.pages.append(rest.lines)

    def _segments(self) -> list[Segment]:
        return [segment for segment in (self.warc, self.pages) if segment is not None]

    def _close(self) -> None:
        self.index.close()
        for segment in (*self._segments(), self.journal):
            segment.close()
