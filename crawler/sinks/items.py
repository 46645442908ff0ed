"""Reads the items of a data set from the lines of pages, and writes them as a table (`crawler export --items`); also
what visits of known pages have found (`--changes`).

The fields of a data set have types, which the crawl has kept in the file `CRAWL.types.json`, or those of their values:
text if these have several, or a number that a column cannot have, and then the others are written as JSON. Items that the
crawl has rejected are reported, and written to `NAME.rejected.jsonl` with the reason.

Changes come from the lines of open files, too. A page that is gone is visited some times more: only the first of these
visits is a change. Later ones are recognised by the time of the visit before, so about 100 bytes are remembered for
each.
"""

from __future__ import annotations

import csv
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import msgspec

from crawler.errors import UserError, reason_of
from crawler.logs import log
from crawler.scope.extract_rules import LARGEST, Kind, Kinds, Schema, as_json
from crawler.scope.next_visit import UNITS, duration_s
from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.files import (
    LINES,
    OPEN_SUFFIX,
    file_name,
    is_open,
    locked,
    remove_left_over,
    whole_file,
)
from crawler.sinks.lines import IsoTime, Place, RejectedLine, decoded_lines, is_of, iso_time, line_files, place_columns
from crawler.sinks.made import replacing
from crawler.sinks.parquet import require_pyarrow

T = TypeVar("T")

TableForm = Literal["jsonl", "csv", "parquet"]
TABLE_FORMS: tuple[TableForm, ...] = get_args(TableForm)
"""The formats of items and of changes."""

GROUP_ITEMS = 2_000
GROUP_BYTES = 16 << 20
"""Items that are written together, and bytes of these items as JSON, about. They are in memory several times."""

SHOWN = 20
"""Report at most this many items that were left out."""


class FoundItem(NamedTuple):
    """An item as JSON, the URL of its page, when that was settled and fetched, and what the visit found."""

    url: str
    json: bytes
    settled_at: str
    fetched_at: str | None = None
    visit: str | None = None

    def fields(self, added: Collection[str]) -> dict[str, Any]:
        """The fields of the item, and those of `fetched_at` and `visit` that are to be `added`."""
        fields = msgspec.json.decode(self.json, type=dict[str, Any])
        return fields | {name: getattr(self, name) for name in _ADDED if name in added}


class Refused(NamedTuple):
    item: FoundItem
    reason: str


class ItemsExported(msgspec.Struct, frozen=True):
    """The result of an export. `file`: where the items are; `refused`: the first items that the crawl has rejected, and
    their number in all; `rejected`: how many others, of which it has not kept the contents; `left_open`: files that were
    not read because they are open."""

    file: Path
    items: int
    refused: tuple[Refused, ...]
    refused_count: int
    rejected: int
    left_open: tuple[Path, ...]


class _Visit(msgspec.Struct):
    url: str
    settled_at: IsoTime | None = None  # null in lines from archives
    fetched_at: IsoTime | None = None
    visit: str | None = None

    @property
    def at(self) -> str:
        """When the page was settled, or fetched if that is unknown."""
        return self.settled_at or self.fetched_at or ""


class _Line(_Visit):
    items: dict[str, list[msgspec.Raw] | None] | None = None  # other programs write null for missing data sets, too
    rejected: list[str] | None = None
    rejected_items: dict[str, list[RejectedLine] | None] | None = None


_decoder = msgspec.json.Decoder(_Line)


def line_files_among(paths: Sequence[Path]) -> list[Path]:
    """Return the files with lines of pages among `paths` and in the folders among them, open ones included. Raises
    UserError for a path that does not exist, and for a WARC file."""
    found: list[Path] = []
    for path in paths:
        if path.name.removesuffix(OPEN_SUFFIX).endswith((*WARC_SUFFIXES, ".warc")) and path.is_file():
            raise UserError(f"{path} is a WARC file: items and changes are in the files {'*' + LINES} beside it")
        if path.is_dir():
            found += line_files(path)
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(f"{path}: no such file or folder")
    return found


def read_items(paths: Sequence[Path], name: str) -> Iterator[FoundItem]:
    """Yield the items of the data set `name` in the finished files among `paths`. An open file may end with pages that are
    not settled. Raises UserError for a file that cannot be read."""
    return _read(paths, lambda line: _items_of(line, name))


def _read(paths: Sequence[Path], parse: Callable[[_Line], Iterable[T]]) -> Iterator[T]:
    for path in line_files_among(paths):
        try:
            for line in decoded_lines(path, _decoder) if not is_open(path) else ():
                yield from parse(line)
        except msgspec.MsgspecError as error:
            raise UserError(f"{path}: {reason_of(error, path)}") from error


def items_of(line: bytes, name: str) -> list[FoundItem]:
    """Return the items of the data set `name` in the `line` of a page. Raises MsgspecError."""
    return [] if line.isspace() else _items_of(_decoder.decode(line), name)


def _items_of(line: _Line, name: str) -> list[FoundItem]:
    items = (line.items or {}).get(name) or ()
    found = [FoundItem(line.url, bytes(item), line.at, line.fetched_at, line.visit) for item in items]
    for item in found:
        try:
            item.fields(())
        except msgspec.MsgspecError as error:
            raise msgspec.ValidationError(f"an item of {line.url} cannot be read: {error}") from error
    return found


class Rejected(NamedTuple):
    """The items of a data set that the crawl has rejected: those of which the lines of their pages have the contents, and
    how many others these lines name."""

    items: list[Refused]
    others: int


def read_rejected(paths: Sequence[Path], name: str, begin: str = "") -> Rejected:
    """Return what was rejected of the data set `name` in the finished files among `paths`, on pages that were settled from
    `begin` on, a time as in the lines. Raises UserError for a file that cannot be read."""
    items, others = list[Refused](), 0
    for line in _read(paths, lambda line: [line] if line.rejected and line.at >= begin else []):
        whole = (line.rejected_items or {}).get(name) or ()
        items += (Refused(FoundItem(line.url, bytes(one.item), line.at), one.reason) for one in whole)
        reasons = {one.reason for one in whole}
        # "shop: price: missing", or "shop: size" of no single field
        others += sum(text.startswith(f"{name}: ") and text not in reasons for text in line.rejected or ())
    return Rejected(items, others)


def export_items(
    paths: Sequence[Path],
    name: str,
    target: Path,
    keys: Sequence[str] = (),
    since: float = 0.0,
    may_be_empty: bool = False,
) -> ItemsExported:
    """Write the data set `name` to the file `target`, in place of one from an earlier export; its ending, one of
    `TABLE_FORMS`, names the format. `keys`: fields; of the items with the same values there, only the one that was settled
    last is written, all if there are none. `since`: leave out pages that were settled before, in seconds since 1970.
    `may_be_empty`: if there is no item at all, or none since then, write a file without any and log that. Raises UserError
    otherwise, and for a file that cannot be read or written, or that no export has made."""
    with replacing(target.parent, {target.name: f"the items {name}", rejected_beside(target).name: rejected_of(name)}):
        return _export_items(paths, name, target, keys, since, may_be_empty)


def _export_items(
    paths: Sequence[Path], name: str, target: Path, keys: Sequence[str], since: float, may_be_empty: bool
) -> ItemsExported:
    if target.suffix == ".parquet":
        require_pyarrow(f"{target.name}")
    files = line_files_among(paths)  # once, because replicas may finish others meanwhile
    left_open = tuple(file for file in files if is_open(file))
    files = [file for file in files if file not in left_open]
    begin = iso_time(since) if since else ""
    schema, rejected = Schema(known=kept_types(paths, name)), read_rejected(files, name, begin)

    def settled() -> Iterator[FoundItem]:
        return (item for item in read_items(files, name) if item.settled_at >= begin)

    latest = _latest(settled(), keys) if keys else None

    def wanted() -> Iterator[FoundItem]:
        return (item for number, item in enumerate(settled()) if latest is None or number in latest)

    count, inexact = 0, set[str]()
    for item in wanted():
        count += 1
        inexact |= _learn(schema, msgspec.json.decode(item.json))
    if target.suffix == ".parquet":
        schema.learn({one: "text" for one in inexact if schema.kinds[one] == "float"})
    if not count and not rejected.items:
        more = f"; {left_open[0]} is open, see `crawler finish`" if left_open else ""
        there = set(_read(files, _names_in))
        if left_open or not may_be_empty or (there and name not in there):
            raise UserError(without_items(paths, files, name, begin) + more)
        log(logging.WARNING, "no_items", problem=without_items(paths, files, name, begin))
    if nowhere := [key for key in keys if key not in schema.kinds]:
        raise UserError(f"no item of {name!r} has a field {nowhere[0]!r}; there is {', '.join(schema.kinds)}")
    added = {one: kind for one, kind in _ADDED.items() if one not in schema.kinds}
    schema.learn(added)
    count = _write_table(target, wanted(), schema, added)
    _write_refused(rejected_beside(target), rejected.items)
    return ItemsExported(target, count, tuple(rejected.items[:SHOWN]), len(rejected.items), rejected.others, left_open)


def _learn(schema: Schema, fields: Mapping[str, Any]) -> set[str]:
    """Add the types of `fields`: text for a whole number that is too large for a column. Returns the names of those with
    whole numbers that a column with decimal numbers would round."""
    numbers = {name: value for name, value in fields.items() if isinstance(value, int)}
    large = {name for name, value in numbers.items() if not -LARGEST <= value < LARGEST}
    schema.learn(dict.fromkeys(large, "text"))
    schema.add({name: value for name, value in fields.items() if name not in large})
    return {name for name, value in numbers.items() if name not in large and int(float(value)) != value}


def rejected_beside(target: Path) -> Path:
    return target.with_suffix(".rejected.jsonl")


def rejected_of(name: str) -> str:
    """What the file with the rejected items of the data set `name` is, among the results of exports."""
    return f"rejected items {name}"


_ADDED: dict[str, Kind | None] = {"fetched_at": "time", "visit": "text"}
"""Fields of the page that all items have in a file, unless one of them has a field of that name."""


def _latest(items: Iterable[FoundItem], keys: Sequence[str]) -> set[int]:
    """The numbers of the items that were settled last of all with the same values of `keys`. An item that lacks one of the
    keys is the only one of its kind."""
    last: dict[bytes, tuple[str, int]] = {}
    for number, item in enumerate(items):
        fields = msgspec.json.decode(item.json)
        values = [int(one) if isinstance(one, float) and one.is_integer() else one for one in map(fields.get, keys)]
        key = msgspec.json.encode(values if None not in values else number)
        if key not in last or item.settled_at >= last[key][0]:
            last[key] = item.settled_at, number
    return {number for _, number in last.values()}


def without_items(paths: Sequence[Path], files: Sequence[Path], name: str, begin: str = "") -> str:
    """Return what to say if no item of the data set `name` is in the `files` of `paths`, or none since `begin`: that there
    are earlier ones, how many were rejected, or which data sets there are, also those whose items were all rejected."""
    said, counted = f"no item of a data set {name!r} in {', '.join(map(str, paths))}", Counter(_read(files, _names_in))
    if begin and any(True for _ in read_items(files, name)):
        return f"{said} was settled since {begin}"
    if name in counted:
        return f"{said} was kept: {counted[name]:,} rejected"
    return f"{said}; data sets there: {', '.join(sorted(counted)[:SHOWN])}" if counted else said


def _names_in(line: _Line) -> Iterable[str]:
    """Yield the data set of each item that the `line` of a page has or names as rejected."""
    yield from (name for name, items in (line.items or {}).items() if items)
    for text in line.rejected or ():  # "shop: price: missing", "shop: size"
        yield text.partition(":")[0]


def _write_table(target: Path, items: Iterable[FoundItem], schema: Schema, added: Collection[str] = ()) -> int:
    """Write `items`, whose fields are in `schema`, and the `added` ones of their pages, to the file `target`. Returns how
    many there were. Raises UserError."""
    count = 0

    def counted() -> Iterator[FoundItem]:
        nonlocal count
        for item in items:
            count += 1
            yield item

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_left_over(target.parent)
        with whole_file(target) as scratch:
            _WRITERS[target.suffix[1:]](scratch, counted(), schema, added)
    except OSError as error:
        raise UserError(f"{target}: {reason_of(error, target)}") from error
    return count


def _write_refused(path: Path, refused: Sequence[Refused]) -> None:
    try:
        path.unlink(missing_ok=True)
        if refused:
            with whole_file(path) as scratch:
                scratch.write_bytes(b"".join(map(refused_line, refused)))
    except OSError as error:
        raise UserError(f"{path}: {reason_of(error, path)}") from error


def refused_line(one: Refused) -> bytes:
    line = {"url": one.item.url, "reason": one.reason, "item": msgspec.Raw(one.item.json)}
    return msgspec.json.encode(line) + b"\n"


def _write_jsonl(path: Path, items: Iterable[FoundItem], schema: Schema, added: Collection[str]) -> None:
    with path.open("wb") as file:
        file.writelines(msgspec.json.encode(schema.as_written(item.fields(added))) + b"\n" for item in items)


def _write_csv(path: Path, items: Iterable[FoundItem], schema: Schema, added: Collection[str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(schema.kinds))
        writer.writeheader()
        for item in items:
            writer.writerow(_row(item, schema, added, as_text=True))


def _write_parquet(path: Path, items: Iterable[FoundItem], schema: Schema, added: Collection[str]) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]  # noqa: PLC0415
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415

    types = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "time": pa.timestamp("ms", "UTC")}
    shape = pa.schema([(name, types.get(kind or "", pa.string())) for name, kind in schema.kinds.items()])
    with pq.ParquetWriter(path, shape, compression="zstd") as writer:
        rows: list[dict[str, Any]] = []
        row_bytes = 0
        for item in items:
            rows.append(_row(item, schema, added, as_text=False))
            row_bytes += len(item.json)
            if len(rows) >= GROUP_ITEMS or row_bytes >= GROUP_BYTES:
                writer.write_table(pa.Table.from_pylist(rows, shape))
                rows, row_bytes = [], 0
        writer.write_table(pa.Table.from_pylist(rows, shape))


def _row(item: FoundItem, schema: Schema, added: Collection[str], as_text: bool) -> dict[str, Any]:
    """The fields of `item`: lists and objects as JSON text. `as_text`: also true and false, as JSON writes them."""
    row: dict[str, Any] = {}
    for name, value in schema.as_written(item.fields(added)).items():
        is_json = isinstance(value, (list, dict)) or (as_text and isinstance(value, bool))
        row[name] = as_json(value) if is_json else value
        if schema.kinds[name] == "float" and isinstance(value, int) and not as_text:
            row[name] = float(value)
        if schema.kinds[name] == "time" and value is not None and not as_text:
            row[name] = datetime.fromisoformat(value)
    return row


_WRITERS = {"jsonl": _write_jsonl, "csv": _write_csv, "parquet": _write_parquet}


SUFFIX = ".types.json"

_types_decoder = msgspec.json.Decoder(dict[str, Kinds])


def save_types(folder: Path, crawl: str, types: Mapping[str, Kinds]) -> None:
    """Add the `types` of the fields of data sets to those of `crawl` in `folder`. Without the file, an export finds the
    types in the items, so an error is only logged."""
    target = folder / f"{file_name(crawl)}{SUFFIX}"
    try:
        with locked(folder), whole_file(target) as scratch:
            kept = _types_decoder.decode(target.read_bytes()) if target.exists() else {}
            for name, kinds in types.items():
                kept[name] = _joined(kept.get(name, {}), kinds)
            scratch.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    except (OSError, msgspec.MsgspecError) as error:
        log(logging.WARNING, "types_not_kept", file=target, error=error)


def types_of(folders: Sequence[Path], crawl: str) -> dict[tuple[str, str], str]:
    """Return the types that are kept for `crawl` in `folders`, by data set and field. Raises UserError for a file that
    cannot be read."""
    files = (folder / f"{file_name(crawl)}{SUFFIX}" for folder in folders)
    types = _types_in(filter(Path.exists, files))
    return {(name, field): kind for name, kinds in types.items() for field, kind in kinds.items()}


def kept_types(paths: Sequence[Path], name: str) -> Kinds:
    """Return the types of the fields of the data set `name` that the crawls of `paths`, which are files or folders, have
    kept beside them. Raises UserError for a file that cannot be read."""
    return _types_in(dict.fromkeys(file for path in paths for file in _beside(path))).get(name, {})


def _beside(path: Path) -> list[Path]:
    """The files with types that count for the items in `path`: in a folder those of all crawls, and for a file that of its
    own crawl."""
    if path.is_dir():
        return sorted(path.glob(f"*{SUFFIX}"))
    of_file = [file for file in path.parent.glob(f"*{SUFFIX}") if is_of(path, file.name[: -len(SUFFIX)])]
    return sorted(of_file, key=lambda file: len(file.name))[-1:]


def _joined(before: Kinds, after: Kinds) -> Kinds:
    both = Schema(known=before)
    both.learn(after)
    return both.known


def _types_in(files: Iterable[Path]) -> dict[str, Kinds]:
    types: dict[str, Kinds] = {}
    for file in files:
        try:
            for name, kinds in _types_decoder.decode(file.read_bytes()).items():
                types[name] = _joined(types.get(name, {}), kinds)
        except (OSError, msgspec.MsgspecError) as error:
            raise UserError(f"{file}: {reason_of(error, file)}") from error
    return types


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


class _ChangeLine(_Visit):
    status: int | None = None
    digest: str | None = None
    warc: Place | None = None
    previous_visit: str | None = None


_change_decoder = msgspec.json.Decoder(_ChangeLine)


class ChangesExported(msgspec.Struct, frozen=True):
    file: Path
    changes: int


def since_time(text: str, now: datetime) -> float:
    """The time that `text` names, in seconds since 1970: a date or time in ISO 8601, in UTC if it names no zone, or how
    long ago it was. Raises UserError."""
    try:
        if (ago_s := duration_s(text)) is not None:
            return max(0.0, (now - timedelta(seconds=ago_s)).timestamp())
        named = datetime.fromisoformat(text)
        seconds = (named if named.tzinfo else named.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise UserError(
            f"--since {text!r}: write a time such as 2026-03-01 or 2026-03-01T12:00:00Z, or how long ago: a number and "
            f"{UNITS}"
        ) from error
    if seconds > now.timestamp():
        raise UserError(f"--since {text!r} is in the future: it is {iso_time(now.timestamp())} now")
    return max(0.0, seconds)


def export_changes(paths: Sequence[Path], since: float, out: Path, form: TableForm) -> ChangesExported:
    """Write the changes since `since`, in seconds since 1970, to a file in the folder `out`, in place of one from an
    earlier export. Raises UserError if no line says what a visit has found, and for a file that cannot be read or
    written, or that no export has made."""
    if form == "parquet":
        require_pyarrow("--format parquet")
    target = out / f"changes.{form}"
    with replacing(out, {target.name: "changes"}):
        return ChangesExported(target, _write_table(target, _changes(paths, iso_time(since)), Schema(_COLUMNS)))


def _changes(paths: Sequence[Path], since: str) -> Iterator[FoundItem]:
    """The changes in the lines in `paths` since `since`, a time as in the lines. Raises UserError if no line says what a
    visit has found."""
    files = line_files_among(paths)

    def visits() -> Iterator[_ChangeLine]:
        return (line for path in files for line in decoded_lines(path, _change_decoder) if line.visit is not None)

    has_visits, gone = False, set[int]()  # hashes of URLs and times of visits that found them gone
    for line in visits():
        has_visits = True
        if line.visit == "gone":
            gone.add(hash((line.url, line.fetched_at)))
    if not has_visits:
        raise UserError(f"no line in {', '.join(map(str, paths))} says what a visit has found: that needs [recrawl]")
    for line in visits():
        was_gone = line.visit == "gone" and hash((line.url, line.previous_visit)) in gone
        if line.visit in CHANGES and line.at >= since and not was_gone:
            row = msgspec.structs.asdict(line)
            row |= place_columns(row.pop("warc"))
            whole = msgspec.json.encode({name: row[name] for name in _COLUMNS})
            yield FoundItem(line.url, whole, line.at)
