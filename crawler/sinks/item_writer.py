"""Writes the items of a data set to a table of a database, once or as long as a crawl runs (`crawler export --to`).

Before anything is written, the items that are there are read once for the types of their fields. While it follows a crawl,
the table's database also remembers how far each file was read, in the transaction in which the items of that part are
written. So it goes on where it stopped, however it ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import msgspec

from crawler.errors import UserError
from crawler.logs import log
from crawler.scope.extract_rules import Schema
from crawler.sinks.item_tail import Batch, ItemTail
from crawler.sinks.items import FoundItem, Refused
from crawler.sinks.postgres import (
    LONGEST_KEY,
    MOST_COLUMNS,
    BadValues,
    DatabaseAway,
    Destination,
    ItemTable,
    is_column,
)
from crawler.sinks.types_file import kept_types

LOOK_S = 1.0
"""How often new lines are looked for."""

AWAY_S = 2.0
"""How long to wait before a database that is away is tried again."""


class Written(msgspec.Struct):
    """What was written. `items`: those that were read; `changed`: rows that are new or have changed."""

    items: int = 0
    changed: int = 0

    def add(self, items: int, changed: int) -> None:
        """Count what was written."""
        self.items += items
        self.changed += changed


class Observer(msgspec.Struct, frozen=True):
    """What is called with the types of columns that were added, and with each item that was left out."""

    on_columns: Callable[[Mapping[str, str]], None]
    on_refused: Callable[[Refused], None]


def write_items(
    paths: Sequence[Path], name: str, destination: Destination, observer: Observer, stopping: Event | None = None
) -> Written:
    """Write the items of the data set `name` in the files among `paths`. With `stopping`, go on with those that come, until
    it is set; a database that is away is then waited for. Raises UserError, and DatabaseAway at the first connection."""
    destination.check()
    written = Written()
    is_known = False
    while True:
        try:
            with ItemTable.connected(destination) as table:
                is_known = True
                schema = Schema(table.columns, kept_types(paths, name))
                writer = ItemWriter(table, destination.keys, schema, written, observer)
                for batch in ItemTail(paths, name, {}).batches():
                    writer.look_at(batch.items)
                writer.check_keys()
                _write(ItemTail(paths, name, table.positions(name) if stopping else {}), writer, stopping)
                return written
        except DatabaseAway as error:
            if stopping is None or not is_known:
                raise
            log(logging.WARNING, "database_away", error=error)
            if stopping.wait(AWAY_S):
                return written


def _write(tail: ItemTail, writer: ItemWriter, stopping: Event | None) -> None:
    while True:
        for batch in tail.batches():
            if stopping is None:
                writer.write(msgspec.structs.replace(batch, positions={}))
            elif not stopping.is_set():
                writer.write(batch)
            else:
                return
        if stopping is None or stopping.wait(LOOK_S):
            return


class ItemWriter:
    """Writes batches to `table`, except for items that do not fit, and counts in `written`. `schema`: the columns of the
    table, and the types of other fields that the crawl has kept."""

    def __init__(
        self, table: ItemTable, keys: Sequence[str], schema: Schema, written: Written, observer: Observer
    ) -> None:
        self._table = table
        self._keys = keys
        self._written = written
        self._observer = observer
        self._schema = schema
        self._met: dict[str, None] = {}  # the fields of the data set, in their order

    def look_at(self, items: Sequence[FoundItem]) -> None:
        """Learn the fields of `items`, before any are written."""
        for item in items:
            fields = msgspec.json.decode(item.json)
            if not (self._unusable(fields) or self._schema.add(fields)):
                self._met |= dict.fromkeys(fields)

    def check_keys(self) -> None:
        """Raises UserError if none of the items that were seen has a field that is a key."""
        missing = [key for key in self._keys if key not in self._met]
        if self._met and missing:
            raise UserError(f"no item has a field {missing[0]!r}, the --key; the fields are {', '.join(self._met)}")

    def write(self, batch: Batch) -> None:
        """Write the items of `batch`. Raises UserError, DatabaseAway."""
        rows = []
        for item in batch.items:
            fields = msgspec.json.decode(item.json)
            if reason := self._unusable(fields) or self._obstacle(item, fields) or self._schema.add(fields):
                self._observer.on_refused(Refused(item, reason))
            else:
                rows.append((item, fields))
                self._met |= dict.fromkeys(fields)
        known = {name: kind for name, kind in self._schema.known.items() if name in self._met}
        if rows:
            if added := self._table.add_columns(known):
                self._observer.on_columns(added)
            self._schema.fix(known)
        self._write(rows, [name for name in self._met if name in known], batch)

    def _write(self, rows: Sequence[tuple[FoundItem, dict[str, Any]]], names: Sequence[str], batch: Batch) -> None:
        """Write `rows`, in parts if some of them are refused, and leave these out."""
        try:
            self._written.add(len(rows), self._table.write(rows, names, batch))
        except BadValues as error:
            if len(rows) > 1:
                half = len(rows) // 2
                self._write(rows[:half], names, msgspec.structs.replace(batch, positions={}))
                self._write(rows[half:], names, batch)
            else:
                self._observer.on_refused(Refused(rows[0][0], f"PostgreSQL: {error}"))
                self._table.write((), names, batch)

    def _unusable(self, fields: Mapping[str, Any]) -> str:
        """Why no table can have these `fields`, or ""."""
        if odd := [name for name in fields if not is_column(name)]:
            return f"{odd[0][:40]!r} cannot be the name of a column"
        if len({**self._schema.kinds, **fields}) > MOST_COLUMNS:
            return f"more than {MOST_COLUMNS} fields in the data set"
        return ""

    def _obstacle(self, item: FoundItem, fields: Mapping[str, Any]) -> str:
        missing = [key for key in self._keys if fields.get(key) is None]
        if missing:
            return f"{missing[0]}: no value, and it is the key"
        if len(msgspec.json.encode([fields[key] for key in self._keys])) > LONGEST_KEY:
            return f"the key is longer than {LONGEST_KEY:,} bytes"
        # JSON escapes NUL, and a backslash before the escape would be doubled.
        has_nul = b"\\u0000" in item.json and any("\0" in text for text in _texts_in(fields))
        return "it has the character NUL, which PostgreSQL cannot keep" if has_nul else ""


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.items() if isinstance(value, dict) else value:
            yield from _texts_in(list(part) if isinstance(part, tuple) else part)
