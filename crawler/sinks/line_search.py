"""Searches the JSON lines of a crawl for a URL. The files are searched as bytes, without parsing the lines."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import msgspec

_PATTERNS = ("*.pages.jsonl", "*.pages.jsonl.open")


def line_files(folder: Path) -> list[Path]:
    """All files with JSON lines in `folder`, finished or not."""
    return sorted(path for pattern in _PATTERNS for path in folder.glob(pattern))


def newest_line(folder: Path, url: str) -> dict[str, object] | None:
    """The line of the canonical `url` that was settled last. None if there is none, or no such folder."""
    needle = b'{"url":' + msgspec.json.encode(url) + b","
    lines = [line for path in line_files(folder) for line in _lines_with(path, needle)]
    return max(lines, key=lambda line: str(line.get("settled_at")), default=None)


def _lines_with(path: Path, needle: bytes) -> Iterator[dict[str, object]]:
    if not path.stat().st_size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(needle)
        while at >= 0:
            end = data.find(b"\n", at)
            if end < 0:
                return  # an incomplete line, which is being written
            if at == 0 or data[at - 1 : at] == b"\n":
                yield msgspec.json.decode(data[at:end])
            at = data.find(needle, end)
