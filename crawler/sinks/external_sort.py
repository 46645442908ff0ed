"""Sorts more lines than fit in memory.

An external merge sort (Knuth, The Art of Computer Programming, volume 3, 5.4): lines are sorted in runs, which are written
to an unnamed temporary file and merged at the end.
"""

from __future__ import annotations

import heapq
import mmap
import tempfile
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

RUN = 4_096
"""Lines of a run, and the most lines in memory: about 1.5 MB of an index."""


class SortedLines:
    """Lines, each with its newline. The temporary file is in `folder`. While it cannot be written, more than `run` lines
    stay in memory if they `may_grow`."""

    def __init__(self, folder: Path, run: int = RUN, may_grow: bool = True) -> None:
        self._folder = folder
        self._run = run
        self._may_grow = may_grow
        self._lines: list[bytes] = []
        self._file: BinaryIO | None = None
        self._ends = [0]  # of the runs in the file

    def __repr__(self) -> str:
        return f"<SortedLines lines={len(self._lines)} runs={len(self._ends) - 1}>"

    def __bool__(self) -> bool:
        return bool(self._lines) or len(self._ends) > 1

    def add(self, lines: Iterable[bytes]) -> None:
        """Add `lines`. Raises OSError if they may not grow and cannot be written."""
        for line in lines:
            self._lines.append(line)
            if len(self._lines) % self._run == 0:
                try:
                    self._write()
                except OSError:
                    if not self._may_grow:
                        raise

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - closed by `close`
        run = memoryview(b"".join(sorted(self._lines)))
        self._file.seek(self._ends[-1])  # overwrites what a failed write has left
        while run:
            run = run[self._file.write(run) :]
        self._ends.append(self._file.tell())
        self._lines.clear()

    def merged(self) -> Iterator[bytes]:
        """All lines, sorted. Raises OSError."""
        self._lines.sort()
        if self._file is None or len(self._ends) == 1:
            yield from self._lines
            return
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as written:
            runs = (_lines(written, start, end) for start, end in pairwise(self._ends))
            yield from heapq.merge(self._lines, *runs)

    def close(self) -> None:
        """Discard the lines."""
        self._lines, self._ends = [], [0]
        if self._file is not None:
            self._file.close()
            self._file = None


def _lines(written: mmap.mmap, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        after = written.find(b"\n", start) + 1
        yield written[start:after]
        start = after
