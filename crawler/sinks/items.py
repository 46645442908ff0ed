"""Reads the items of a data set from the lines of pages, and writes them as a table (`crawler export --items`).

The fields of a data set have types, which the crawl has kept (`crawler.sinks.types_file`), or that of the first value that
is not null. Whole numbers may become decimal ones. An item with a field of another type would make the table wrong, so it
is left out, reported, and written to a file of its own (`NAME.rejected.jsonl`) with the reason. So are those that were
rejected in the crawl. If the items go to a table of a database (`crawler.sinks.postgres`), its columns
have the types.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from crawler.errors import UserError, reason_of
from crawler.scope.extract_rules import Schema
from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.open_files import is_open, open_and_finished
from crawler.sinks.page_lines import RejectedLine
from crawler.sinks.parquet import require_pyarrow
from crawler.sinks.segment import LINES, OPEN_SUFFIX, remove_left_over, whole_file
from crawler.sinks.types_file import kept_types

T = TypeVar("T")

ItemForm = Literal["jsonl", "csv", "parquet"]
GROUP_ITEMS = 2_000
GROUP_BYTES = 16 << 20
"""Items that are written together, and bytes of these items as JSON, about. They are in memory several times."""

SHOWN = 20
"""Items that were left out, of which each is reported."""


class FoundItem(NamedTuple):
    """An item as JSON, the URL of its page, and when that was settled."""

    url: str
    json: bytes
    settled_at: str


class Refused(NamedTuple):
    """An item that was left out, and why."""

    item: FoundItem
    reason: str


class ItemsExported(msgspec.Struct, frozen=True):
    """The result of an export. `file`: where the items are; `refused`: the first items that were left out, and their number
    in all; `rejected`: how many others the crawl has rejected; `left_open`: files that were not read because they are
    open."""

    file: Path
    items: int
    refused: tuple[Refused, ...]
    refused_count: int
    rejected: int
    left_open: tuple[Path, ...]


class _Line(msgspec.Struct):
    url: str
    settled_at: str
    items: dict[str, list[msgspec.Raw]] | None = None
    rejected: list[str] = []
    rejected_items: dict[str, list[RejectedLine]] | None = None


_decoder = msgspec.json.Decoder(_Line)


def line_files(paths: Sequence[Path]) -> list[Path]:
    """Return the files with lines of pages among `paths` and in the folders among them, open ones included. Raises
    UserError for a path that does not exist, and for a WARC file."""
    found: list[Path] = []
    for path in paths:
        if path.name.removesuffix(OPEN_SUFFIX).endswith((*WARC_SUFFIXES, ".warc")) and path.is_file():
            raise UserError(f"{path} is a WARC file: items and changes are in the files {'*' + LINES} beside it")
        if path.is_dir():
            found += open_and_finished(path, (LINES,))
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(f"{path}: no such file or folder")
    return found


def read_items(paths: Sequence[Path], name: str) -> Iterator[FoundItem]:
    """Yield the items of the data set `name` in the finished files among `paths`. An open file may end with pages that are
    not settled. Raises UserError for a file that cannot be read."""
    return _read(paths, lambda line: items_of(line, name))


def _read(paths: Sequence[Path], parse: Callable[[bytes], Iterable[T]]) -> Iterator[T]:
    for path in line_files(paths):
        if is_open(path):
            continue
        try:
            with path.open("rb") as lines:
                for line in lines:
                    yield from parse(line)
        except (OSError, msgspec.MsgspecError) as error:
            raise UserError(f"{path}: {reason_of(error, path)}") from error


def items_of(line: bytes, name: str) -> list[FoundItem]:
    """Return the items of the data set `name` in the `line` of a page. Raises MsgspecError."""
    if b'"items":{' not in line:
        return []
    read = _decoder.decode(line)
    return [FoundItem(read.url, bytes(item), read.settled_at) for item in (read.items or {}).get(name, ())]


class Rejected(NamedTuple):
    """The items of a data set that the crawl has rejected: those of which the lines of their pages have the contents, and
    how many others these lines name."""

    items: list[Refused]
    others: int


def read_rejected(paths: Sequence[Path], name: str) -> Rejected:
    """Return what was rejected of the data set `name` in the finished files among `paths`. Raises UserError for a file that
    cannot be read."""
    items, named = list[Refused](), 0
    for line in _read(paths, lambda line: [_decoder.decode(line)] if b'"rejected":["' in line else []):
        whole = (line.rejected_items or {}).get(name, ())
        items += (Refused(FoundItem(line.url, bytes(one.item), line.settled_at), one.reason) for one in whole)
        named += sum(
            text.startswith(f"{name}.") and text not in {one.reason for one in whole} for text in line.rejected
        )
    return Rejected(items, named)


def export_items(paths: Sequence[Path], name: str, out: Path, form: ItemForm) -> ItemsExported:
    """Write the data set `name` to a file in the folder `out`, in place of one from an earlier export. Raises UserError if
    there is no such item, and for a file that cannot be read or written."""
    if form == "parquet":
        require_pyarrow("--format parquet")
    files = line_files(paths)  # once, because replicas may finish others meanwhile
    left_open = tuple(file for file in files if is_open(file))
    files = [file for file in files if file not in left_open]
    schema, rejected = Schema(known=kept_types(paths, name)), read_rejected(files, name)
    refused: list[Refused] = []
    count = 0
    for item in read_items(files, name):
        if reason := schema.add(msgspec.json.decode(item.json)):
            refused.append(Refused(item, reason))
        else:
            count += 1
    if not count and not refused and not rejected.items:
        more = f"; {left_open[0]} is open, see `crawler finish`" if left_open else ""
        raise UserError(without_items(paths, files, name) + more)
    target = out / f"{name}.{form}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        remove_left_over(out)
        left_out = {(item.url, item.json) for item, _ in refused}
        kept = (item for item in read_items(files, name) if (item.url, item.json) not in left_out)
        with whole_file(target) as scratch:
            write_items(form, scratch, kept, schema)
        refused = [*rejected.items, *refused]
        _write_refused(out / f"{name}.rejected.jsonl", refused)
    except OSError as error:
        raise UserError(f"{target}: {reason_of(error, target)}") from error
    return ItemsExported(target, count, tuple(refused[:SHOWN]), len(refused), rejected.others, left_open)


def without_items(paths: Sequence[Path], files: Sequence[Path], name: str) -> str:
    """Return what to say if no item of the data set `name` is in the `files` of `paths`: how many were rejected, or which
    data sets there are, also those of which all items were rejected."""
    said, counted = f"no item of a data set {name!r} in {', '.join(map(str, paths))}", Counter(_read(files, _names_in))
    if name in counted:
        return f"{said} was kept: {counted[name]:,} rejected"
    return f"{said}; data sets there: {', '.join(sorted(counted)[:SHOWN])}" if counted else said


def _names_in(line: bytes) -> Iterable[str]:
    """Yield the data set of each item that the `line` of a page has or names as rejected. Raises MsgspecError."""
    if b'"items":{' not in line and b'"rejected":["' not in line:
        return
    read = _decoder.decode(line)
    yield from read.items or {}
    for text in read.rejected:  # "shop.price: missing", "shop: size"
        yield text.partition(":")[0].partition(".")[0]


def write_items(form: ItemForm, path: Path, items: Iterable[FoundItem], schema: Schema) -> None:
    """Write `items`, whose fields are in `schema`, to the file `path`. Raises OSError."""
    _WRITERS[form](path, items, schema)


def _write_refused(path: Path, refused: Sequence[Refused]) -> None:
    if not refused:
        path.unlink(missing_ok=True)
        return
    with whole_file(path) as scratch, scratch.open("wb") as file:
        for one in refused:
            file.write(refused_line(one))


def refused_line(one: Refused) -> bytes:
    """Return the line of an item that was left out."""
    line = {"url": one.item.url, "reason": one.reason, "item": msgspec.Raw(one.item.json)}
    return msgspec.json.encode(line) + b"\n"


def _write_jsonl(path: Path, items: Iterable[FoundItem], schema: Schema) -> None:
    with path.open("wb") as file:
        for item in items:
            file.write(item.json + b"\n")


def _write_csv(path: Path, items: Iterable[FoundItem], schema: Schema) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        assert isinstance(file, io.TextIOWrapper)
        writer = csv.DictWriter(file, list(schema.kinds))
        writer.writeheader()
        for item in items:
            writer.writerow(_row(item, schema, as_text=True))


def _write_parquet(path: Path, items: Iterable[FoundItem], schema: Schema) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]  # noqa: PLC0415
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415

    types = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "time": pa.timestamp("ms", "UTC")}
    shape = pa.schema([(name, types.get(kind or "", pa.string())) for name, kind in schema.kinds.items()])
    with pq.ParquetWriter(path, shape, compression="zstd") as writer:
        rows: list[dict[str, Any]] = []
        row_bytes = 0
        for item in items:
            rows.append(_row(item, schema, as_text=False))
            row_bytes += len(item.json)
            if len(rows) >= GROUP_ITEMS or row_bytes >= GROUP_BYTES:
                writer.write_table(pa.Table.from_pylist(rows, shape))
                rows, row_bytes = [], 0
        writer.write_table(pa.Table.from_pylist(rows, shape))


def _row(item: FoundItem, schema: Schema, as_text: bool) -> dict[str, Any]:
    """The fields of `item`: lists and objects as JSON text. `as_text`: also true and false, as JSON writes them."""
    row: dict[str, Any] = {}
    for name, value in msgspec.json.decode(item.json).items():
        is_json = isinstance(value, (list, dict)) or (as_text and isinstance(value, bool))
        row[name] = msgspec.json.encode(value).decode() if is_json else value
        if schema.kinds[name] == "float" and isinstance(value, int) and not as_text:
            row[name] = float(value)
        if schema.kinds[name] == "time" and value is not None and not as_text:
            row[name] = datetime.fromisoformat(value)
    return row


_WRITERS = {"jsonl": _write_jsonl, "csv": _write_csv, "parquet": _write_parquet}
