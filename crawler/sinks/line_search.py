"""Searches the JSON lines of a crawl for a URL. Only lines that begin with it are parsed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from crawler.sinks.open_files import open_and_finished, open_either
from crawler.sinks.segment import LINES


def line_files(folder: Path) -> list[Path]:
    """All files with JSON lines in `folder`, finished or not. None if there is no such folder."""
    return open_and_finished(folder, (LINES,)) if folder.is_dir() else []


def newest_line(folder: Path, url: str) -> dict[str, object] | None:
    """The line of the canonical `url` that was settled last. None if there is none, or no such folder."""
    start = b'{"url":' + msgspec.json.encode(url) + b","
    lines = [line for path in line_files(folder) for line in _lines_with(path, start)]
    return max(lines, key=lambda line: str(line.get("settled_at")), default=None)


def _lines_with(path: Path, start: bytes) -> Iterator[dict[str, object]]:
    return (msgspec.json.decode(line) for line in lines_in(path) if line.startswith(start))


def lines_in(path: Path) -> Iterator[bytes]:
    """The complete lines of the file `path`, finished or not."""
    # Not mmap: a running replica may make an open file shorter.
    with open(open_either(path), "rb") as lines:  # noqa: PTH123 - a file descriptor
        for line in lines:
            if line.endswith(b"\n"):  # the last line may be incomplete
                yield line
