"""Remembers in the data folder where the crawls of the embedded store have written their output, so that commands without
`--out` find it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from crawler.errors import UserError
from crawler.settings.load import Settings
from crawler.settings.tables import ReplicaTable
from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.files import LINES, whole_file
from crawler.sinks.lines import SETTINGS, crawls_in, files_of

NAME = "outputs.json"


def remember(local: ReplicaTable, crawl: str) -> list[Path]:
    """Remember that `crawl` writes to the output folder. Returns the other folders that it has written to, the latest
    first; none for a store that machines share, or if the data folder cannot be written."""
    if local.redis:
        return []
    path, known = local.data_dir / NAME, _read(local.data_dir)
    here = str(local.out.absolute())
    folders = [here, *(folder for folder in known.get(crawl, []) if folder != here)]
    if known.get(crawl) != folders:
        try:
            with whole_file(path) as scratch:
                scratch.write_bytes(msgspec.json.encode(known | {crawl: folders}))
        except OSError:
            return []
    return _existing(folders[1:])


def output_folders(settings: Settings, crawl: str) -> list[Path]:
    """Return where the output of `crawl` is: in the folder that is named, where it has written, or the default."""
    local = settings.replica
    if local.redis or settings.names("replica.out"):
        return [local.out]
    return _existing(_read(local.data_dir).get(crawl, [])) or [local.out]


def check_exists(folder: Path) -> None:
    if not folder.is_dir():
        raise UserError(f"{folder}: {'a file, not a folder' if folder.exists() else 'no such folder'}")


def has_output(folder: Path, crawl: str) -> bool:
    """Whether a replica of `crawl` has written to `folder`."""
    return (folder / f"{crawl}{SETTINGS}").exists() or bool(files_of(folder, (*WARC_SUFFIXES, LINES), crawl))


def one_crawl(folders: Iterable[Path], named: str | None, of_each: bool = False) -> str:
    """Return the crawl whose output in `folders` a command reads: the one that is `named`, or "" for all that is there.
    `of_each`: without a name, folders may have different crawls. Raises UserError if several crawls are there (in one
    folder) and none is named, or none of that name is."""
    found = {folder: crawls_in(folder) for folder in folders if folder.is_dir()}
    if named is None and of_each:
        found = {folder: crawls for folder, crawls in found.items() if len(crawls) > 1}
    crawls = sorted(set[str]().union(*found.values()))
    kind, verb = "several crawls" if named is None else "crawls", "have" if len(found) > 1 else "has"
    where = f"{', '.join(map(str, found))} {verb} output of {kind}: {', '.join(crawls)}"
    if named is None and crawls[1:]:
        raise UserError(f"{where}; name one, such as --crawl {crawls[0]}")
    if named is not None and crawls and named not in crawls:
        raise UserError(f"{where}; there is none of a crawl {named!r}")
    return named or ""


def not_named(local: ReplicaTable, folders: Sequence[Path], crawl: str = "") -> str:
    """Return which other folders the crawls that wrote to `folders` have written to, as a note; "" for none."""
    given = {str(folder.resolve()) for folder in folders}
    known = {} if local.redis else _read(local.data_dir)
    others = {
        str(folder.resolve()): shown(folder)
        for name, written in known.items()
        if crawl in ("", name) and given & {str(Path(folder).resolve()) for folder in written}
        for folder in _existing(written)
    }
    missing = [name for path, name in others.items() if path not in given]
    return f"the crawl has also written to {', '.join(missing)}: name all its folders" if missing else ""


def shown(folder: Path) -> str:
    """Return `folder` as it is written here: relative if it is below the current folder."""
    absolute, here = folder.absolute(), Path.cwd()
    return f"{os.path.relpath(absolute, here) if absolute.is_relative_to(here) else absolute}/"


def _existing(folders: list[str]) -> list[Path]:
    return [Path(folder) for folder in folders if Path(folder).is_dir()]


def _read(data_dir: Path) -> dict[str, list[str]]:
    try:
        return msgspec.json.decode((data_dir / NAME).read_bytes(), type=dict[str, list[str]])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
