"""Writes what visits of known pages have found since a time as a table: pages that are new, changed, gone or back (`crawler
export --changes`).

It comes from the lines of pages, those of open files included, in the order of the files. So it takes the same memory for
any number of other lines, and the changes of a page are in their order if one replica found them. The lines of a running
replica may end with pages that are not settled: these are visited again, and then have a second line.

A page that is gone is visited some times more, and these visits find the same: only the first is a change. Later ones are
told by the time of the visit before, so about 100 bytes are remembered for each visit that found a page gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from crawler.errors import UserError, reason_of
from crawler.scope.extract_rules import Kind, Schema
from crawler.sinks.items import FoundItem, ItemForm, line_files, write_items
from crawler.sinks.line_search import lines_in
from crawler.sinks.page_lines import Place
from crawler.sinks.parquet import require_pyarrow
from crawler.sinks.segment import remove_left_over, whole_file
from crawler.sinks.time_formats import iso_time

CHANGES = frozenset({"new", "changed", "gone", "back"})

_COLUMNS: dict[str, Kind] = {
    "url": "text",
    "visit": "text",
    "settled_at": "time",
    "fetched_at": "time",
    "previous_visit": "time",
    "status": "int",
    "digest": "text",
    "warc_file": "text",
    "warc_offset": "int",
    "warc_length": "int",
}
_AGO = re.compile(r"(\d{1,6})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class _Line(msgspec.Struct):
    url: str
    settled_at: str
    fetched_at: str | None
    status: int | None
    digest: str | None
    warc: Place | None
    visit: str | None = None
    previous_visit: str | None = None


_decoder = msgspec.json.Decoder(_Line)


class ChangesExported(msgspec.Struct, frozen=True):
    """The result of an export: the number of `changes` in `file`."""

    file: Path
    changes: int


def since_time(text: str, now: datetime) -> float:
    """The time that `text` names, in seconds since 1970: a date or time in ISO 8601, in UTC if it names no zone, or how
    long ago it was. Raises UserError."""
    try:
        if ago := _AGO.fullmatch(text):
            return max(0.0, (now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).timestamp())
        named = datetime.fromisoformat(text)
        seconds = (named if named.tzinfo else named.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise UserError(
            f"--since {text!r}: write a time such as 2026-03-01 or 2026-03-01T12:00:00Z, or 24h for the last 24 hours"
        ) from error
    if seconds > now.timestamp():
        raise UserError(f"--since {text!r} is in the future: it is {iso_time(now.timestamp())} now")
    return max(0.0, seconds)


def export_changes(paths: Sequence[Path], since: float, out: Path, form: ItemForm) -> ChangesExported:
    """Write the changes since `since`, in seconds since 1970, to a file in the folder `out`, in place of one from an
    earlier export. Raises UserError if no line says what a visit has found, and for a file that cannot be read or
    written."""
    if form == "parquet":
        require_pyarrow("--format parquet")
    changes = _Changes(paths, iso_time(since))
    target = out / f"changes.{form}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        remove_left_over(out)
        with whole_file(target) as scratch:
            write_items(form, scratch, changes.read(), Schema(_COLUMNS))
            changes.check()
    except OSError as error:
        raise UserError(f"{target}: {reason_of(error, target)}") from error
    return ChangesExported(target, changes.count)


class _Changes:
    """The changes in the lines in `paths` since `since`, a time as in the lines, and their number."""

    def __init__(self, paths: Sequence[Path], since: str) -> None:
        self._paths = paths
        self._since = since
        self._has_visits = False
        self._gone: set[int] = set()  # hashes of URLs and times of visits that found them gone
        self.count = 0

    def read(self) -> Iterator[FoundItem]:
        for path in line_files(self._paths):
            try:
                for line in lines_in(path):
                    if b'"visit":"' in line and (found := self._change(_decoder.decode(line))) is not None:
                        self.count += 1
                        yield found
            except (OSError, msgspec.MsgspecError) as error:
                raise UserError(f"{path}: {reason_of(error, path)}") from error

    def check(self) -> None:
        """Raise UserError if no line says what a visit has found."""
        if not self._has_visits:
            raise UserError(
                f"no line in {', '.join(map(str, self._paths))} says what a visit has found: that needs [recrawl]"
            )

    def _change(self, line: _Line) -> FoundItem | None:
        """The row of `line`, None if it is not a change since then."""
        self._has_visits |= line.visit is not None
        was_gone = line.visit == "gone" and self._was_gone(line)
        if line.visit not in CHANGES or line.settled_at < self._since or was_gone:
            return None
        row = msgspec.structs.asdict(line)
        place = row.pop("warc")
        row |= {f"warc_{name}": getattr(place, name, None) for name in Place.__struct_fields__}
        return FoundItem(line.url, msgspec.json.encode({name: row[name] for name in _COLUMNS}), line.settled_at)

    def _was_gone(self, line: _Line) -> bool:
        """Whether the visit before that of `line`, which found its page gone, has found the same."""
        self._gone.add(hash((line.url, line.fetched_at)))
        return hash((line.url, line.previous_visit)) in self._gone
