"""Converts each finished file of JSON lines to Parquet, with a row for each line and a column for each field.

A Parquet file cannot be read without the footer at its end, so it cannot be written along with the JSON lines. It is
written when the volume is finished, in another thread. Needs `pyarrow` (the extra `peercrawl[parquet]`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crawler.errors import UserError
from crawler.sinks.files import whole_file
from crawler.sinks.lines import Line, place_columns

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

GROUP_ROWS = 2_000  # rows per row group: about 12 MB of lines with their links

_TIMES = ("settled_at", "fetched_at", "previous_visit", "next_visit")


def require_pyarrow(wanted: str) -> None:
    """Raise UserError if pyarrow is not installed. `wanted`: the setting or option that needs it, as the user gave it."""
    try:
        import pyarrow.parquet  # type: ignore[import-untyped]  # noqa: F401, PLC0415
    except ImportError as error:
        raise UserError(f"{wanted} needs pyarrow: pip install 'peercrawl[parquet]'") from error


def parquet_path(lines: Path) -> Path:
    return lines.with_name(lines.name.removesuffix(".jsonl") + ".parquet")


def write_parquet(lines: Path, target: Path | None = None) -> Path:
    """Convert the JSON lines in `lines` to a Parquet file at `target` or next to them. Returns its path; raises OSError."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    target, shape, decoder = target or parquet_path(lines), schema(), msgspec.json.Decoder(Line)
    with (
        whole_file(target) as scratch,
        lines.open("rb") as source,
        pq.ParquetWriter(scratch, shape, compression="zstd") as writer,
    ):
        while rows := [_row(decoder.decode(line)) for line in islice(source, GROUP_ROWS)]:
            writer.write_table(pa.Table.from_pylist(rows, shape))
    return target


def missing(folder: Path) -> Iterator[Path]:
    """The finished files of JSON lines in `folder` without a Parquet file, because their writers died."""
    return (path for path in sorted(folder.glob("*.pages.jsonl")) if not parquet_path(path).exists())


def schema() -> pa.Schema:
    """The columns: the fields of `Line`, with three columns for the place in the WARC file, and text columns for JSON."""
    import pyarrow as pa  # noqa: PLC0415

    text, texts = pa.string(), pa.list_(pa.string())
    named = {
        **dict.fromkeys(("size", "decoded_size"), pa.int64()),
        **dict.fromkeys(_TIMES, pa.timestamp("ms", "UTC")),
    }
    by_type = {
        **dict.fromkeys((int, int | None), pa.int32()),
        bool | None: pa.bool_(),
        **dict.fromkeys((list[str], list[str] | None), texts),
    }
    fields = [field for field in msgspec.structs.fields(Line) if field.name != "warc"]
    columns = [(field.name, named.get(field.name) or by_type.get(field.type, text)) for field in fields]
    return pa.schema([*columns, ("warc_file", text), ("warc_offset", pa.int64()), ("warc_length", pa.int64())])


def _row(line: Line) -> dict[str, Any]:
    row = msgspec.structs.asdict(line)
    for name in _TIMES:
        row[name] = row[name] and datetime.fromisoformat(row[name])
    for name in ("json_ld", "opengraph", "extra", "items", "rejected_items", "payload", "followed"):
        row[name] = None if row[name] is None else msgspec.json.encode(row[name]).decode()
    return row | place_columns(row.pop("warc"))
