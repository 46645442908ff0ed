"""Reads the JSON lines of a crawl: those of a URL, of which only lines that begin with it are parsed, or all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from crawler.errors import UserError, reason_of
from crawler.sinks.open_files import open_and_finished, open_either
from crawler.sinks.segment import LINES, file_name

T = TypeVar("T")


def line_files(folder: Path) -> list[Path]:
    """All files with JSON lines in `folder`, finished or not. None if there is no such folder."""
    return open_and_finished(folder, (LINES,)) if folder.is_dir() else []


def has_lines(folder: Path, crawl: str) -> bool:
    """Whether `folder` has files with lines of `crawl`."""
    return any(is_of(path, crawl) for path in line_files(folder))


def is_of(path: Path, crawl: str) -> bool:
    """Whether the lines in the file `path` are of `crawl`. A file news-two-1 may be of the crawl news-two, or of the crawl
    news and a replica two-1: its first line says which. Without a line, its name counts."""
    if not path.name.startswith(f"{crawl}-"):
        return False
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        written = msgspec.json.decode(next(lines_in(path), b"{}"), type=_Written)
        return not written.replica or not is_of_another(path, written.replica, crawl)
    return True


class _Written(msgspec.Struct):
    """The field of a line that says which replica has written it."""

    replica: str = ""


def newest_line(folder: Path, url: str, crawl: str) -> dict[str, object] | None:
    """The line of the canonical `url` that `crawl` settled last. None if there is none, or no such folder."""
    start = b'{"url":' + msgspec.json.encode(url) + b","
    found = ((path, line) for path in line_files(folder) for line in _lines_with(path, start))
    lines = [line for path, line in found if not is_of_another(path, str(line.get("replica")), crawl)]
    return max(lines, key=lambda line: str(line.get("settled_at")), default=None)


def is_of_another(path: Path, replica: str, crawl: str) -> bool:
    """Whether the name of the file `path` says that the lines of `replica` in it are of another crawl than `crawl`, which
    shares the folder."""
    named, is_named, _ = path.name.partition(file_name(f"-{replica}-"))
    return bool(is_named) and named != crawl


def _lines_with(path: Path, start: bytes) -> Iterator[dict[str, object]]:
    return (msgspec.json.decode(line) for line in lines_in(path) if line.startswith(start))


def decoded_lines(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
    """The complete lines of the file `path`, decoded. Raises UserError for one that cannot be read."""
    number = 0
    try:
        for line in lines_in(path):
            number += 1
            if not line.isspace():
                yield decoder.decode(line)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        place = f"{path}:{number}" if isinstance(error, ValueError) else str(path)
        raise UserError(
            f"{place}: {reason_of(error, path)}: mend or remove it, or move the file away, and repeat the command"
        ) from error


def lines_in(path: Path) -> Iterator[bytes]:
    """The complete lines of the file `path`, finished or not."""
    # Not mmap: a running replica may make an open file shorter.
    with open(open_either(path), "rb") as lines:  # noqa: PTH123 - a file descriptor
        for line in lines:
            if line.endswith(b"\n"):  # the last line may be incomplete
                yield line
