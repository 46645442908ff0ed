"""Remembers how the files of an export were made, so that a file is kept only if the same export would make it again.

The record is a file in the folder of the results. It is written after outdated results were removed and before new ones
are made, so an interrupted export leaves no file that the record describes wrongly. A result that the record does not
know is made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from crawler.errors import UserError
from crawler.sinks.segment import whole_file

NAME = ".exported.json"


class Made(msgspec.Struct, frozen=True):
    """How a result was made: from the WARC file `source` (an absolute path) of `size` bytes, with `options`."""

    source: str
    size: int
    options: dict[str, str]


def prepare(out: Path, wanted: Mapping[Path, Made]) -> set[str]:
    """Remove the results in `out` that are not as `wanted` (result -> how it is made), and record that all of `wanted`
    will be there. Returns the names of the options that differ from those of a removed result.

    Raises UserError, without having removed anything, if a result belongs to another WARC file, and OSError.
    """
    known = _read(out / NAME)
    outdated = {path: made for path, made in wanted.items() if path.exists() and known.get(path.name) != made}
    for path, made in outdated.items():
        before = known.get(path.name)
        if before is not None and before.source != made.source and Path(before.source).exists():
            raise UserError(
                f"{path} was exported from {before.source}: use another folder for {made.source}, with --out"
            )
    differing: set[str] = set()
    for path, made in outdated.items():
        before = known.get(path.name)
        if before is not None:
            names = before.options.keys() | made.options.keys()
            differing |= {name for name in names if before.options.get(name) != made.options.get(name)}
        path.unlink()
    made_here = {name: made for name, made in known.items() if (out / name).exists()}
    made_here |= {path.name: made for path, made in wanted.items()}
    with whole_file(out / NAME) as scratch:
        scratch.write_bytes(msgspec.json.format(msgspec.json.encode(made_here), indent=1))
    return differing


def _read(path: Path) -> dict[str, Made]:
    """Return the record at `path`: result -> how it was made. A damaged one counts as empty."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Made])
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
