"""A volume: a WARC file, the file with its JSON lines, and the journal of both. They are written and finished together."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Container, Iterable
from pathlib import Path

import msgspec

from crawler.sinks.cdxj import lines_of, write_index
from crawler.sinks.files import Segment
from crawler.sinks.journal import JOURNAL, KEPT_S, JournalEntry, JournalRewrite, encoded, left, merged, without
from crawler.sinks.sink import MayRepeat
from frontier.settle import LeasedUrl

LOOK_AGAIN_S = 1.0
"""How often a group that is kept longer is looked at."""

OBSOLETE_LINES = 16
"""The journal is rewritten once it has this many obsolete lines more than others."""


class Volume(msgspec.Struct):
    """The open files of an archive; `warc` or `pages` may be None. `opened_at`: seconds since 1970. `index`: index lines
    of the WARC file (350 bytes each, 10 to 20 MB for a file of 1 GiB), without those of the last group, which are in
    `latest`. `doubt`: the last group, until its URLs are
    settled. `recent`: the groups before it, and until when (monotonic seconds) they are in the journal. `may_repeat` is
    called in the thread of the archive. `is_broken`: the files are closed and left to a recovery."""

    opened_at: float
    fsync: bool
    journal: Segment
    warc: Segment | None = None
    pages: Segment | None = None
    index: list[bytes] = msgspec.field(default_factory=list)
    latest: list[bytes] = msgspec.field(default_factory=list)
    doubt: JournalEntry | None = None
    recent: list[tuple[float, JournalEntry]] = msgspec.field(default_factory=list)
    may_repeat: MayRepeat = lambda url: False
    obsolete: int = 0  # lines of the journal
    is_broken: bool = False

    @property
    def name(self) -> str:
        return self.journal.path.name.removesuffix(JOURNAL)

    def is_due(self, max_bytes: int, oldest: float) -> bool:
        """Whether a file has reached `max_bytes`, or the volume was opened at `oldest` (seconds since 1970) or earlier."""
        return self.opened_at <= oldest or any(segment.size >= max_bytes for segment in self._segments())

    def append(
        self,
        records: bytes,
        lines: bytes,
        index: Iterable[bytes] = (),
        doubt: JournalEntry | None = None,
        now: float = 0.0,
    ) -> None:
        """Append to both files, or to none of them. `now`: monotonic seconds. Raises OSError.

        The journal is written first. The records come before the lines, also on the disk, because no line may name a
        place that does not exist.
        """
        journaled = self.journal.size
        before = JournalRewrite(self.warc.size if self.warc else 0, self.pages.size if self.pages else 0, b"", b"")
        try:
            self._shorten_journal(now)
            journaled = self.journal.size
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
            self._undo(before, journaled)
            raise
        self.index += self.latest
        self.doubt, self.latest = doubt, list(index)

    def mark_settled(self) -> None:
        """Note in the journal that the last group is settled, for readers (`item_tail`). Raises OSError; nothing
        changes then."""
        last = self.doubt or (self.recent[-1][1] if self.recent else None)
        if last is None or self.pages is None:
            return
        size = self.journal.size
        records_at = self.warc.size if self.warc else 0
        try:
            self.journal.append(encoded(JournalEntry(last.crawl, records_at, self.pages.size, ())))
        except BaseException:
            self.journal.cut(size)
            raise
        self.obsolete += 1

    def take_back(self, unsettled: Container[int]) -> None:
        """Remove the pages with the indexes `unsettled` in the last group from the files. Raises OSError."""
        if self.doubt is None:
            return
        rest = without(
            self.doubt,
            self.warc.read(self.doubt.records_at) if self.warc else b"",
            self.pages.read(self.doubt.lines_at) if self.pages else b"",
            unsettled,
        )
        doubt = left(self.doubt, unsettled)
        self._append_to_journal(rest)
        try:
            self.rewrite(rest)
            self._append_to_journal(doubt)
        except BaseException:
            self.leave()
            raise
        if self.warc is not None and self.latest:
            self.latest = list(lines_of(rest.records, self.warc.path.name, rest.records_at))
        self.doubt = doubt
        self.obsolete += 2

    def take_back_urls(self, urls: Collection[LeasedUrl]) -> int:
        """Remove those of `urls` that are in the groups of the last seconds. Returns how many were found. Unless there are
        none, the files are then closed and left to a recovery, because their index is wrong. Raises OSError."""
        group = merged([*(group for _, group in self.recent), *([self.doubt] if self.doubt else [])])
        if group is None:
            return 0
        unsettled = {number for number, leased in enumerate(group.leased) if leased in urls}
        if unsettled:
            self.doubt = group
            self.take_back(unsettled)
            self.leave()
        return len(unsettled)

    def _append_to_journal(self, entry: JournalEntry | JournalRewrite) -> None:
        size = self.journal.size
        try:
            self.journal.cut(size)  # removes what a failed append has left
            self.journal.append(encoded(entry))
            if self.fsync:
                self.journal.sync()
        except BaseException:
            self.journal.cut(size)
            raise

    def finish(self) -> list[Path]:
        """Give the files their plain names, and remove empty ones. Returns those that are kept. Raises OSError; then the
        files are left to a recovery.

        The index is written first, so that every WARC file with its plain name can be replayed.
        """
        files = []
        try:
            index = sorted(self.index + self.latest)
            if self.warc is not None and index:
                files.append(write_index(self.warc.path, index, self.fsync))
            for segment in self._segments():
                if self.fsync:
                    segment.sync()
                if segment.finish():
                    files.append(segment.path)
            self.journal.remove()  # last, because nobody else finishes the other files while it exists
        finally:
            self.leave()
        return files

    def discard(self) -> None:
        for segment in (*self._segments(), self.journal):
            segment.remove()

    def leave(self) -> None:
        self.is_broken = True
        self.close_files()
        self.journal.close()

    def _shorten_journal(self, now: float) -> None:
        """Keep the last group for a while, and rewrite the journal when most of its lines are obsolete."""
        if self.doubt is not None:
            self.recent.append((now + KEPT_S, self.doubt))
            self.doubt = None
        kept = list(itertools.dropwhile(lambda one: self._is_over(*one, now), self.recent))  # none from the middle
        if kept and kept[0][0] <= now:
            kept[0] = (now + LOOK_AGAIN_S, kept[0][1])
        self.obsolete += len(self.recent) - len(kept)
        self.recent = kept
        if self.obsolete > len(kept) + OBSOLETE_LINES:
            self.journal.cut(0)
            self.journal.append(b"".join(encoded(group) for _, group in kept))
            self.obsolete = 0

    def _is_over(self, until: float, group: JournalEntry, now: float) -> bool:
        return until <= now and not any(map(self.may_repeat, group.leased))

    def _undo(self, before: JournalRewrite, journaled: int) -> None:
        try:
            self.rewrite(before)
            self.journal.cut(journaled)
        except OSError:
            # The state of the files is unknown. The group will be written to a new volume, so it must not stay here.
            with contextlib.suppress(OSError):
                self._append_to_journal(before)
            self.leave()

    def rewrite(self, rest: JournalRewrite) -> None:
        """Replace the ends of the files with `rest`. After a power failure, a file may be shorter. Raises OSError."""
        for segment, at, data in (
            (self.warc, rest.records_at, rest.records),
            (self.pages, rest.lines_at, rest.lines),
        ):
            if segment is not None and segment.size >= at:
                segment.cut(at)
                segment.append(data)

    def _segments(self) -> list[Segment]:
        return [segment for segment in (self.warc, self.pages) if segment is not None]

    def close_files(self) -> None:
        """Close the files, but not the journal, whose lock keeps others from finishing them."""
        for segment in self._segments():
            segment.close()
