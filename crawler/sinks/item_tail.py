"""Reads the items of a running crawl, as their pages are settled.

The last group of pages in an open file may not be settled: these are taken back if their replica dies. The journal of the
file says where they begin (`crawler.sinks.journal`), and only what comes before is read. So an item is read some seconds
after its page was settled.

What was read may still be removed: if Redis has lost that it was settled, or by `crawler forget`. Then other lines are at
the same places, and the file is read again from the start. The same holds for a file of another crawl with the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path

import msgspec

from crawler.errors import UserError, reason_of
from crawler.sinks.items import GROUP_BYTES, GROUP_ITEMS, FoundItem, items_of, line_files
from crawler.sinks.journal import JOURNAL, last_group_begins
from crawler.sinks.open_files import finished_path, is_open, open_either
from crawler.sinks.segment import LINES, open_path


class Position(msgspec.Struct, frozen=True):
    """How far a file was read: up to the byte `end`, where a line ends that begins at the byte `begin` and has this
    `digest`."""

    end: int
    begin: int
    digest: str

    def is_in(self, lines: BufferedReader) -> bool:
        """Whether this line is still there."""
        lines.seek(self.begin)
        return _digest(lines.read(self.end - self.begin)) == self.digest


Positions = Mapping[str, Position]
"""The name of a file with lines, once it is finished, and the digest of its first line -> how far it was read. The line
names its crawl, its replica and a time, so files of two crawls differ in it."""


class Batch(msgspec.Struct, frozen=True):
    """Items of whole pages, in their order, and the positions after them in the files that they are from."""

    data_set: str
    items: list[FoundItem]
    positions: Positions


class ItemTail:
    """The items of the data set `name` in the files among `paths`, from `positions` on."""

    def __init__(self, paths: Sequence[Path], name: str, positions: Positions) -> None:
        self._paths = paths
        self._name = name
        self._positions = dict(positions)
        self._ends: dict[Path, int] = {}  # finished name -> the settled bytes at the last look

    def batches(self, size: int = GROUP_ITEMS) -> Iterator[Batch]:
        """Yield what has come since the last call, about `size` items at a time. What was yielded counts as read when the
        next batch is asked for. Raises UserError."""
        for path in line_files(self._paths):
            try:
                end = _settled_bytes(path)
                if not end or self._ends.get(finished_path(path)) == end:
                    continue
                for batch in self._in_file(path, end, size):
                    yield batch
                    self._positions |= batch.positions
                self._ends[finished_path(path)] = end
            except FileNotFoundError:
                pass  # it was uploaded and removed
            except (OSError, msgspec.MsgspecError) as error:
                if isinstance(error, OSError) or not is_open(path):
                    raise UserError(f"{path}: {reason_of(error, path)}") from error
                # Pages were taken back while it was read: the next look finds other lines.

    def _in_file(self, path: Path, end: int, size: int) -> Iterator[Batch]:
        items: list[FoundItem] = []
        item_bytes = 0
        with open(open_either(path), "rb") as lines:  # noqa: PTH123 - a file descriptor
            file = f"{finished_path(path).name} {_digest(lines.readline())}"
            before = self._positions.get(file)
            at = begin = lines.seek(before.end if before is not None and before.is_in(lines) else 0)
            line = b""
            while at < end and (read := lines.readline()).endswith(b"\n"):
                begin, line, at = at, read, at + len(read)
                found = items_of(line, self._name)
                items += found
                item_bytes += sum(len(item.json) for item in found)
                if len(items) >= size or item_bytes >= GROUP_BYTES:
                    yield Batch(self._name, items, {file: Position(at, begin, _digest(line))})
                    items, item_bytes, line = [], 0, b""
        if line:
            yield Batch(self._name, items, {file: Position(at, begin, _digest(line))})


def _digest(line: bytes) -> str:
    return blake2b(line, digest_size=8).hexdigest()


def _settled_bytes(path: Path) -> int | None:
    """Return how many bytes of the file with lines at `path` are settled, None if that is unknown now. Raises OSError."""
    size = path.stat().st_size
    if not is_open(path):
        return size
    # The journal is read later than the size: a group is in the journal before its lines are in the file.
    journal = open_path(path.with_name(finished_path(path).name.removesuffix(LINES) + JOURNAL))
    begins = last_group_begins(journal.read_bytes())
    return None if begins is None else min(size, begins)
