"""The file `CRAWL.types.json` beside the output, which keeps the types of the fields of data sets.

So each export of a data set has the same columns with the same types, whatever items the exported files have. The
replicas that write to a folder share the file. Each adds what it has learnt; what it does not know stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from crawler.errors import UserError, reason_of
from crawler.logs import log
from crawler.scope.extract_rules import Kinds
from crawler.sinks.line_search import is_of
from crawler.sinks.segment import file_name, whole_file

SUFFIX = ".types.json"

_decoder = msgspec.json.Decoder(dict[str, Kinds])


def save_types(folder: Path, crawl: str, types: Mapping[str, Kinds]) -> None:
    """Add the `types` of the fields of data sets to those of `crawl` in `folder`. Without the file, an export finds the
    types in the items, so an error is only logged."""
    target = folder / f"{file_name(crawl)}{SUFFIX}"
    try:
        with _locked(folder), whole_file(target) as scratch:
            kept = _decoder.decode(target.read_bytes()) if target.exists() else {}
            for name, kinds in types.items():
                kept[name] = _joined(kept.get(name, {}), kinds)
            scratch.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    except (OSError, msgspec.MsgspecError) as error:
        log(logging.WARNING, "types_not_kept", file=target, error=error)


def types_of(folders: Sequence[Path], crawl: str) -> dict[tuple[str, str], str]:
    """Return the types that are kept for `crawl` in `folders`, by data set and field. Raises UserError for a file that
    cannot be read."""
    found: dict[str, Kinds] = {}
    for file in (folder / f"{file_name(crawl)}{SUFFIX}" for folder in folders):
        for name, kinds in _read(file).items() if file.exists() else ():
            found[name] = _joined(kinds, found.get(name, {}))
    return {(name, field): kind for name, kinds in found.items() for field, kind in kinds.items()}


def kept_types(paths: Sequence[Path], name: str) -> Kinds:
    """Return the types of the fields of the data set `name` that the crawls of `paths`, which are files or folders, have
    kept beside them. Raises UserError for a file that cannot be read."""
    found: Kinds = {}
    for file in dict.fromkeys(file for path in paths for file in _beside(path)):
        found = _joined(_read(file).get(name, {}), found)
    return found


def _beside(path: Path) -> list[Path]:
    """The files with types that count for the items in `path`: in a folder those of all crawls, and for a file that of its
    own crawl."""
    if path.is_dir():
        return sorted(path.glob(f"*{SUFFIX}"))
    of_file = [file for file in path.parent.glob(f"*{SUFFIX}") if is_of(path, file.name[: -len(SUFFIX)])]
    return sorted(of_file, key=lambda file: len(file.name))[-1:]


def _joined(before: Kinds, after: Kinds) -> Kinds:
    """Return the types of both. Those `after` count, but decimal numbers stay decimal."""
    numbers = {field for field, kind in after.items() if {kind, before.get(field)} == {"int", "float"}}
    return {**before, **after, **dict.fromkeys(numbers, "float")}


def _read(file: Path) -> dict[str, Kinds]:
    try:
        return _decoder.decode(file.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(f"{file}: {reason_of(error, file)}") from error


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
