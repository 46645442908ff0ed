"""Finds the known pages of a crawl in its JSON lines, for a repair: the last line of a page has the state of its visits.

The lines of a page may be in files of several replicas, in any order, and there may be more than fit in memory. So a
temporary database sorts them by URL and time.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from crawler.errors import UserError
from crawler.scope.next_visit import Visits, visit_priority
from frontier.entries import Entry, tag_of
from frontier.known_pages import KnownPage

LAST_S = 2**32 - 1
"""The last time at which a visit can be due, in seconds since 1970."""


class VisitLine(msgspec.Struct):
    """The fields of a JSON line that say what page it is of, and when that is visited again."""

    url: str
    domain: str
    depth: int
    settled_at: str = ""
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
    """A visit as it is sorted. `due_s`: 0 if the page is not visited again."""

    url: str
    settled_at: str
    is_first: bool
    due_s: int
    state: str
    domain: str
    depth: int
    via: str
    tag: str

    @classmethod
    def of(cls, line: VisitLine) -> _Visit:
        due_s = min(int(line.next_visit.timestamp()), LAST_S) if line.next_visit else 0
        about = (line.domain, line.depth, line.via or "", line.entry.tag)
        return cls(line.url, line.settled_at, line.previous_visit is None, due_s, line.visit_state or "", *about)


class LastVisits:
    """Collects the lines of known pages, and tells their last visits. The database is in the first of `folders`, the output
    folders, if that can be written. Raises UserError if there is no room for it."""

    def __init__(self, folders: Sequence[Path]) -> None:
        if folders:
            os.environ["SQLITE_TMPDIR"] = str(folders[0])  # other folders for temporary files may be small or in memory
        self._database = sqlite3.connect("")  # a file that is removed when the process ends
        self._database.execute(f"CREATE TABLE visits ({', '.join(_Visit._fields)})")

    def add(self, lines: Iterable[VisitLine]) -> None:
        """Add `lines`, also those of pages that are not visited again."""
        visits = (_Visit.of(line) for line in lines if line.next_visit or line.previous_visit)
        try:
            self._database.executemany(f"INSERT INTO visits VALUES ({', '.join('?' * len(_Visit._fields))})", visits)
        except sqlite3.OperationalError as error:
            raise _no_room(error) from error

    def pages(self) -> Iterator[KnownPage]:
        """The pages that are visited again, sorted by URL."""
        try:
            rows = self._database.execute("SELECT * FROM visits ORDER BY url, settled_at, is_first, due_s")
            for url, visits in groupby(map(_Visit._make, rows), lambda visit: visit.url):
                last = _last(visits)
                if last is not None:
                    yield _known(url, last)
        except sqlite3.OperationalError as error:
            raise _no_room(error) from error

    def close(self) -> None:
        """Discard the lines."""
        self._database.close()


def _no_room(error: sqlite3.Error) -> UserError:
    return UserError(
        f"the visits of known pages cannot be sorted in a temporary file: {error}; make room for about 300 bytes for each "
        "in the first output folder"
    )


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
