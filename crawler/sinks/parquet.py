"""The pages table in Parquet: one file for each finished file of JSON lines, with a column for each of their fields.

The JSON lines are what is durable while a volume is written; a Parquet file has its footer at its end and is nothing
without it, so it is made when the volume is finished, in another thread, and appears whole under its name. A line is
one row, and no line is in two files: no row is doubled. Needs `pyarrow` (the extra `peercrawl[parquet]`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crawler.errors import UserError
from crawler.sinks.pages import Line

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

GROUP_ROWS = 2_000  # rows of a group: about 12 MB of lines with their links

_decoder = msgspec.json.Decoder(Line)


def require_pyarrow() -> None:
    """Raises UserError, with what to do, unless pyarrow can be imported."""
    try:
        import pyarrow.parquet  # type: ignore[import-untyped]  # noqa: F401, PLC0415
    except ImportError as error:
        raise UserError("archive.parquet needs pyarrow: pip install 'peercrawl[parquet]'") from error


def parquet_path(lines: Path) -> Path:
    """Where the Parquet file of the JSON lines `lines` stands."""
    return lines.with_name(lines.name.removesuffix(".jsonl") + ".parquet")


def write_parquet(lines: Path, target: Path | None = None) -> Path:
    """Make the Parquet file of the finished JSON lines `lines`, at `target` or beside them: whole, or not at all. Raises
    OSError."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    target = target or parquet_path(lines)
    scratch = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    shape = schema()
    try:
        with lines.open("rb") as source, pq.ParquetWriter(scratch, shape, compression="zstd") as writer:
            while group := [_decoder.decode(line) for line in islice(source, GROUP_ROWS)]:
                writer.write_table(table(group, shape))
        scratch.rename(target)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    return target


def missing(folder: Path) -> Iterator[Path]:
    """The finished files of JSON lines in `folder` without their Parquet file: their writers died in between."""
    return (path for path in sorted(folder.glob("*.pages.jsonl")) if not parquet_path(path).exists())


def schema() -> pa.Schema:
    """The columns: those of `Line`, the place in the WARC file in three, JSON in text."""
    import pyarrow as pa  # noqa: PLC0415

    text, moment = pa.string(), pa.timestamp("ms", "UTC")
    special: dict[str, Any] = {
        **dict.fromkeys(("status", "depth", "tries", "elapsed_ms", "link_count"), pa.int32()),
        **dict.fromkeys(("size", "decoded_size"), pa.int64()),
        **dict.fromkeys(("settled_at", "fetched_at"), moment),
        **dict.fromkeys(("noarchive", "noindex", "soft_404"), pa.bool_()),
        **dict.fromkeys(("links", "cut"), pa.list_(text)),
    }
    place = [("warc_file", text), ("warc_offset", pa.int64()), ("warc_length", pa.int64())]
    plain = [(name, special.get(name, text)) for name in Line.__struct_fields__ if name != "warc"]
    return pa.schema(plain + place)


def table(lines: list[Line], shape: pa.Schema) -> pa.Table:
    """`lines` in columns."""
    import pyarrow as pa  # noqa: PLC0415

    columns = []
    for name in shape.names:
        value, field = _GETTERS.get(name), shape.field(name)
        values = [value(line) if value else getattr(line, name) for line in lines]
        is_time = pa.types.is_timestamp(field.type)
        columns.append(pa.array(values, pa.string()).cast(field.type) if is_time else pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=shape)


def _json(name: str) -> Callable[[Line], str | None]:
    def text(line: Line) -> str | None:
        value = getattr(line, name)
        return None if value is None else msgspec.json.encode(value).decode()

    return text


_GETTERS: dict[str, Callable[[Line], Any]] = {
    "warc_file": lambda line: line.warc and line.warc.file,
    "warc_offset": lambda line: line.warc and line.warc.offset,
    "warc_length": lambda line: line.warc and line.warc.length,
    **{name: _json(name) for name in ("json_ld", "opengraph", "extra")},
}
