"""Finds the known pages of a crawl in its JSON lines, for a repair: the last line of a page has the state of its visits.

The lines of a page may be in files of several replicas, in any order. So the lines with visits are sorted by URL and time,
with little memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from crawler.errors import UserError, reason_of
from crawler.scope.next_visit import Visits, visit_priority
from crawler.sinks.external_sort import SortedLines
from frontier.entries import Entry, tag_of
from frontier.known_pages import KnownPage

RUN = 32_768
"""Lines that are sorted in memory: about 15 MB."""

LAST_S = 2**32 - 1
"""The last time at which a visit can be due, in seconds since 1970."""

Word = Annotated[str, msgspec.Meta(pattern=r"\A\S*\Z")]
"""A text without spaces and line ends, which would divide a line that is sorted."""


class VisitLine(msgspec.Struct):
    """The fields of a JSON line that say what page it is of, and when that is visited again."""

    url: Word
    domain: str
    depth: int
    settled_at: Word = ""
    via: str | None = None
    label: str | None = None
    payload: dict[str, Any] | None = None
    previous_visit: str | None = None
    next_visit: datetime | None = None
    visit_state: str | None = None

    @property
    def entry(self) -> Entry:
        """The entry of the page, without the state of its visits."""
        return Entry(self.url, self.domain, depth=self.depth, tag=tag_of(self.label or "", self.payload))


class _Visit(NamedTuple):
    """What is sorted of a line. `due_s`: 0 if the page is not visited again."""

    is_first: bool
    due_s: int
    state: str
    domain: str
    depth: int
    via: str
    tag: str


_decoder = msgspec.json.Decoder(_Visit)


class LastVisits:
    """Collects the lines of known pages, and tells their last visits. The lines are sorted in a temporary file in `folder`.
    Raises UserError if that cannot be written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines = SortedLines(folder, RUN, may_grow=False)

    def add(self, lines: Iterable[VisitLine]) -> None:
        """Add `lines`, also those of pages that are not visited again."""
        try:
            self._lines.add(_sortable(line) for line in lines if line.next_visit or line.previous_visit)
        except OSError as error:
            raise UserError(
                f"{self._folder}: {reason_of(error, self._folder)}: the visits of known pages are sorted there, so make "
                "room for about 300 bytes for each"
            ) from error

    def pages(self) -> Iterator[KnownPage]:
        """The pages that are visited again, sorted by URL."""
        for url, lines in groupby(self._lines.merged(), lambda line: line.partition(b" ")[0].decode()):
            last = _last(_decoder.decode(line.split(b" ", 2)[2]) for line in lines)
            if last is not None:
                yield _known(url, last)

    def close(self) -> None:
        """Discard the lines."""
        self._lines.close()


def scratch_folder(folders: Sequence[Path]) -> Path:
    """Where the lines of these output folders can be sorted. An output folder has room for more, and the folder for
    temporary files may be in memory."""
    return next((folder for folder in folders if os.access(folder, os.W_OK)), Path(tempfile.gettempdir()))


def _sortable(line: VisitLine) -> bytes:
    due_s = min(int(line.next_visit.timestamp()), LAST_S) if line.next_visit else 0
    about = (line.domain, line.depth, line.via or "", line.entry.tag)
    visit = _Visit(line.previous_visit is None, due_s, line.visit_state or "", *about)
    return f"{line.url} {line.settled_at} ".encode() + msgspec.json.encode(visit) + b"\n"


def _last(visits: Iterable[_Visit]) -> _Visit | None:
    """The one of `visits`, in their order, that Redis has stored. None if the page is not visited again."""
    last = None
    for visit in visits:
        if visit.is_first and last is not None:
            continue  # it was queued twice. The first visit of a page does not replace what later ones have found
        last = visit if visit.due_s else None
    return last


def _known(url: str, last: _Visit) -> KnownPage:
    try:
        Visits.parse(last.state)
    except ValueError as error:
        raise UserError(f"{url}: its last line has a visit_state that cannot be read: {last.state!r}") from error
    priority = visit_priority(last.due_s)
    entry = Entry(url, last.domain, priority, last.depth, via=last.via, visit=last.state, tag=last.tag)
    return KnownPage(last.due_s, entry)
