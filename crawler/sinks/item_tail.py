"""Reads the items of a running crawl, as their pages are settled.

The end of an open file may have pages that are not settled: these are taken back if their replica dies. The journal of the
file says where they begin (`crawler.sinks.journal`), and only what comes before is read. So an item is read some seconds
after its page was settled, or when the file is finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from crawler.errors import UserError, reason_of
from crawler.sinks.items import GROUP_ITEMS, FoundItem, items_of, line_files
from crawler.sinks.journal import JOURNAL, doubt_begins
from crawler.sinks.open_files import finished_path, is_open, open_either
from crawler.sinks.segment import LINES, open_path

Positions = Mapping[str, int]
"""The name of a file with lines, once it is finished -> how many of its bytes were read."""


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

    def batches(self, size: int = GROUP_ITEMS) -> Iterator[Batch]:
        """Yield what has come since the last call, about `size` items at a time. What was yielded counts as read when the
        next batch is asked for. Raises UserError."""
        for path in line_files(self._paths):
            name = finished_path(path).name
            try:
                for batch in self._in_file(path, name, size):
                    yield batch
                    self._positions |= batch.positions
            except FileNotFoundError:
                pass  # it was uploaded and removed
            except (OSError, msgspec.MsgspecError) as error:
                raise UserError(f"{path}: {reason_of(error, path)}") from error

    def _in_file(self, path: Path, name: str, size: int) -> Iterator[Batch]:
        end, at = _settled_bytes(path), self._positions.get(name, 0)
        if end is None or end == at:
            return
        items: list[FoundItem] = []
        with open(open_either(path), "rb") as lines:  # noqa: PTH123 - a file descriptor
            at = lines.seek(at if end > at else 0)  # a shorter file was written anew
            while at < end and (line := lines.readline()).endswith(b"\n"):
                at += len(line)
                items += items_of(line, self._name)
                if len(items) >= size:
                    yield Batch(self._name, items, {name: at})
                    items = []
        if self._positions.get(name) != at:
            yield Batch(self._name, items, {name: at})


def _settled_bytes(path: Path) -> int | None:
    """Return how many bytes of the file with lines at `path` are settled, None if that is unknown now. Raises OSError."""
    size = path.stat().st_size
    if not is_open(path):
        return size
    # The journal is read later than the size: a group is in the journal before its lines are in the file.
    journal = open_path(path.with_name(finished_path(path).name.removesuffix(LINES) + JOURNAL))
    begins = doubt_begins(journal.read_bytes())
    return None if begins is None else min(size, begins)
