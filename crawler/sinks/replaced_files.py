"""Replaces finished files of a volume with new ones, all of them or none, and marks the domains that were forgotten.

The new files are written beside the old ones, with the suffix `.forget`. Then a file with the suffix `.forget-commit` lists
them, and from that moment on they count. If the process is killed before, the old files are still complete; if it is killed
later, the next call gives the new files their names.

The file `forgotten-domains.txt` has the mark of each domain that was forgotten, its SHA-1. `crawler audit` reads it.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from crawler.errors import UserError
from crawler.sinks.segment import sync_folder, whole_file
from frontier.domains import forgotten_mark

MARKS = "forgotten-domains.txt"
SCRATCH, COMMIT = ".forget", ".forget-commit"

_MARK = re.compile(r"([0-9a-f]{40}) (\S+)")
_UNFINISHED = re.compile(r".*\.(?:cdxj|parquet|forget|forget-commit)\.(\d+)\.tmp")


class Commit(msgspec.Struct):
    """The files of a volume: those with a new content, and those to remove. `sizes`: the bytes of the new files."""

    replaced: list[str]
    removed: list[str]
    sizes: list[int] = []


def carry_out(folder: Path, volume: str, commit: Commit) -> None:
    """Replace the files of `volume`. The new ones are on the disk. Raises OSError."""
    marker = folder / (volume + COMMIT)
    sync_folder(folder)
    sizes = [(folder / (name + SCRATCH)).stat().st_size for name in commit.replaced]
    with whole_file(marker) as scratch, scratch.open("wb") as file:
        file.write(msgspec.json.encode(msgspec.structs.replace(commit, sizes=sizes)))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)
    _rename(marker)


def complete(folder: Path) -> None:
    """Give the files of volumes that were committed their names, and remove what was not committed. Raises OSError."""
    for marker in sorted(folder.glob("*" + COMMIT)):
        _rename(marker)
    for path in folder.iterdir():
        if path.name.endswith(SCRATCH) or _is_left_over(path):
            path.unlink(missing_ok=True)


def has_left_work(folder: Path) -> bool:
    """Whether a process that was killed has left files that `complete` would rename or remove. Raises OSError."""
    return any(path.name.endswith((SCRATCH, COMMIT)) for path in folder.iterdir())


def _rename(marker: Path) -> None:
    folder, commit = marker.parent, msgspec.json.decode(marker.read_bytes(), type=Commit)
    new = [name for name in commit.replaced if (folder / (name + SCRATCH)).exists()]
    for name, size in zip(commit.replaced, commit.sizes, strict=False):
        if name not in new and not _has_size(folder / name, size):  # it was not renamed before
            raise UserError(
                f"{folder / (name + SCRATCH)} is missing, the new version of {name}: restore it, or remove {marker} to "
                "keep the old version, and repeat the command"
            )
    for name in new:
        (folder / (name + SCRATCH)).rename(folder / name)
    for name in commit.removed:
        (folder / name).unlink(missing_ok=True)
    sync_folder(folder)
    marker.unlink()


def _has_size(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size == size


def add_mark(folder: Path, domain: str) -> None:
    """Note that `domain` is being forgotten. Raises OSError."""
    if forgotten_mark(domain) not in marks_in(folder):
        with (folder / MARKS).open("a+b") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            torn = b"\n" if file.read() not in (b"", b"\n") else b""
            file.write(torn + f"{forgotten_mark(domain)} {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n".encode())
            file.flush()
            os.fsync(file.fileno())


def marks_in(folder: Path) -> dict[str, str]:
    """The marks of the domains that were forgotten in `folder`, and when. Lines that are none are ignored."""
    try:
        lines = (folder / MARKS).read_bytes().decode(errors="replace").split("\n")
    except FileNotFoundError:
        return {}
    return {found[1]: found[2] for line in lines if (found := _MARK.fullmatch(line.rstrip()))}


def _is_left_over(path: Path) -> bool:
    """Whether `path` is what a killed process has left of a file that it was writing (`whole_file`)."""
    found = _UNFINISHED.fullmatch(path.name)
    if found is None:
        return False
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it runs
    return int(found[1]) == os.getpid()
