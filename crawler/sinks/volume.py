"""A volume: one WARC file and its sibling with the JSON lines, which grow, stop and fail together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from crawler.sinks.index import write_index
from crawler.sinks.segment import Segment


@dataclass(slots=True)
class Volume:
    """The open files of an archive. Either may be left out. `opened_at` in seconds since 1970; `index`: the lines for
    the index of the WARC file, about 350 octets a page."""

    opened_at: float
    fsync: bool
    warc: Segment | None = None
    pages: Segment | None = None
    index: list[bytes] = field(default_factory=list)
    is_broken: bool = False

    def is_due(self, max_bytes: int, oldest: float) -> bool:
        """Whether a file has reached `max_bytes`, or the volume was opened at `oldest` or before."""
        return self.opened_at <= oldest or any(segment.size >= max_bytes for segment in self._segments())

    def append(self, records: bytes, lines: bytes, index: Iterable[bytes] = ()) -> None:
        """Append to both files, or to none of them. Raises OSError.

        The records are first, and on the disk first: no line may name a place that does not exist.
        """
        before = [(segment, segment.size) for segment in self._segments()]
        try:
            for segment, data in ((self.warc, records), (self.pages, lines)):
                if segment is not None and data:
                    segment.append(data)
                    if self.fsync:
                        segment.sync()
        except BaseException:
            self._cut(before)
            raise
        self.index += index

    def finish(self) -> list[Path]:
        """Give the files their plain names, empty ones removed; returns those that are kept. Raises OSError; the files are
        then left to a recovery.

        The index is first: a WARC file with its plain name is one that can be replayed.
        """
        files = []
        try:
            if self.warc is not None and self.index:
                files.append(write_index(self.warc.path, self.index, self.fsync))
            for segment in self._segments():
                if self.fsync:
                    segment.sync()
                if segment.finish():
                    files.append(segment.path)
        finally:
            self._close()
        return files

    def discard(self) -> None:
        """Remove what was just created."""
        for segment in self._segments():
            segment.remove()

    def _cut(self, sizes: list[tuple[Segment, int]]) -> None:
        try:
            for segment, size in sizes:
                segment.cut(size)
        except OSError:
            # The files are in an unknown state: a recovery sorts it out, and the next group begins a new volume.
            self.is_broken = True
            self._close()

    def _segments(self) -> list[Segment]:
        return [segment for segment in (self.warc, self.pages) if segment is not None]

    def _close(self) -> None:
        for segment in self._segments():
            segment.close()
