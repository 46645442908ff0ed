"""Writes the items of a data set to a table of PostgreSQL, one row for each key, once or as long as a crawl runs
(`crawler export --to`). Needs `psycopg` (the extra `peercrawl[postgres]`).

A batch is copied into a temporary table, and from there inserted in one transaction. A row whose key is in the table
replaces the one there if its page was settled later, which the column `_settled_at` remembers. So a second run changes
nothing, and files may be read in any order.

Before anything is written, the items that are there are read once for the types of their fields. A missing table is
created, and missing columns are added. Items with values that do not fit their column are left out.

While the export follows a crawl, the database also remembers how far each file was read, in the transaction in which
the items of that part are written. The last group of pages in an open file may not be settled: the journal of the file
says where it begins (`crawler.sinks.journal`), and only what comes before is read. If lines before that were removed
all the same, other lines are at the same places, and the file is read again from the start.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from crawler.errors import UserError, reason_of
from crawler.logs import log, without_secrets
from crawler.parse.structured import readable
from crawler.scope.extract_rules import Kind, Schema
from crawler.sinks.files import LINES, finished_path, is_open, open_either, open_path
from crawler.sinks.items import GROUP_BYTES, GROUP_ITEMS, FoundItem, Refused, items_of, kept_types, line_files_among
from crawler.sinks.journal import JOURNAL, last_group_begins

if TYPE_CHECKING:
    from psycopg import Connection, Cursor
    from psycopg.sql import Composed, Identifier


class Position(msgspec.Struct, frozen=True):
    """How far a file was read: to the byte `end` of the line that begins at `begin` and has this `digest`."""

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
        """Yield what has come, about `size` items at a time. It counts as read when the next is asked for. Raises
        UserError."""
        for path in line_files_among(self._paths):
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
            while at < end and (read := lines.readline()) and (read.endswith(b"\n") or not is_open(path)):
                begin, line, at = at, read, at + len(read)
                found = items_of(readable(line), self._name)
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


SCHEMES = ("postgresql://", "postgres://")
SETTLED_AT = "_settled_at"

_BATCH = ("pg_temp", "crawler_batch")
_POSITIONS = "crawler_positions"
_LONGEST_NAME = 63
"""Bytes of the name of a column (PostgreSQL, NAMEDATALEN). It would cut longer names."""

_NO_COLUMNS = {SETTLED_AT, "tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}
"""Names that a field cannot have: our own column, and the system columns of PostgreSQL."""

MOST_COLUMNS = 500
"""PostgreSQL allows 1,600 columns, and their values must fit into a page of 8 kB."""

LONGEST_KEY = 2_000
"""Bytes of all key fields of an item as JSON. An entry of an index of PostgreSQL may have 2,704 bytes."""

_PASSING = ("08", "25006", "40001", "40P01", "53300", "57P01", "57P02", "57P03")
"""Errors that pass: of the connection, a server that is read-only after a failover, transactions that are in each other's
way, too many connections, and a server that stops, has crashed or starts. A full disk or a statement that takes too long
may never pass, and whoever waits for it would not hear of it."""

_TYPES: dict[Kind, str] = {
    "bool": "boolean",
    "int": "bigint",
    "float": "double precision",
    "text": "text",
    "list": "jsonb",
    "object": "jsonb",
    "json": "jsonb",
}
_KINDS: dict[str, Kind] = {
    "boolean": "bool",
    **dict.fromkeys(("smallint", "integer", "bigint"), "int"),
    **dict.fromkeys(("real", "double precision", "numeric"), "float"),
    **dict.fromkeys(("json", "jsonb"), "json"),
}
"""The type of a column -> the fields that it takes. Others take text, which PostgreSQL has to understand, such as dates."""


class DatabaseAway(UserError):
    """Raised when the server does not answer, or ends the connection. The call may be repeated."""


class BadValues(UserError):
    """Raised when the server refuses rows because of their values. Nothing was written."""


def is_column(name: str) -> bool:
    """Whether a field may have this `name`."""
    return 0 < len(name.encode()) <= _LONGEST_NAME and name not in _NO_COLUMNS and "\0" not in name


class Destination(msgspec.Struct, frozen=True):
    """`url`: of the database; `table`: with or without a schema; `keys`: the fields that tell items apart."""

    url: str
    table: str
    keys: tuple[str, ...]

    def check(self) -> None:
        """Raises UserError for a URL that cannot be used, and if psycopg is not installed."""
        if not self.url.startswith(SCHEMES):
            raise UserError("--to takes a URL: postgresql://HOST/DATABASE; for a file: --format csv --out FOLDER")
        try:
            import psycopg.conninfo  # noqa: PLC0415
        except ImportError as error:
            raise UserError("--to needs psycopg: pip install 'peercrawl[postgres]'") from error
        try:
            is_wrong = _is_split_wrongly(self.url, psycopg.conninfo.conninfo_to_dict(self.url))
        except (psycopg.Error, ValueError):  # its text has a part of the URL
            raise UserError(
                "--to is not a valid URL of PostgreSQL: postgresql://HOST/DATABASE; write special characters in a password "
                "as %40 and so on, or use PGPASSWORD"
            ) from None
        if is_wrong:
            raise UserError("--to has an @ or / in its user or password: write %40 or %2F, or use PGPASSWORD")


class ItemTable:
    """The table of `destination`, over a connection of its own. All methods raise UserError, or DatabaseAway."""

    def __init__(self, connection: Connection[Any], destination: Destination) -> None:
        self._connection = connection
        self._destination = destination
        self.columns = self._read_columns()

    @classmethod
    @contextlib.contextmanager
    def connected(cls, destination: Destination) -> Iterator[ItemTable]:
        """The table, until the end of the block."""
        import psycopg  # noqa: PLC0415

        with (
            _translated(destination),
            psycopg.connect(
                destination.url, autocommit=True, client_encoding="utf8", fallback_application_name="crawler"
            ) as connection,
        ):
            yield cls(connection, destination)

    def _read_columns(self) -> dict[str, Kind]:
        """Return the columns of the table and what they take, {} if there is no such table."""
        name = self._table.as_string(self._connection)
        found = self._connection.execute(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = to_regclass(%s) "
            "AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [name],
        ).fetchall()
        columns = {str(column): _KINDS.get(kind, "text") for column, kind in found}
        self.exact = {str(column) for column, kind in found if kind == "numeric"}
        if columns and SETTLED_AT not in columns:
            raise UserError(
                f"the table {name} is not one of `crawler export`: choose another one with --table, or add what it lacks "
                f"with ALTER TABLE {name} ADD COLUMN {SETTLED_AT} timestamptz"
            )
        columns.pop(SETTLED_AT, None)
        return columns

    @property
    def _table(self) -> Identifier:
        from psycopg.sql import Identifier  # noqa: PLC0415

        return Identifier(*self._destination.table.split("."))

    def add_columns(self, fields: Mapping[str, Kind]) -> dict[str, str]:
        """Create the table with columns for `fields`, or add columns that it lacks. Returns the types of new columns."""
        new = {name: _TYPES[kind] for name, kind in fields.items() if name not in self.columns}
        for name in new:
            if not is_column(name):
                raise UserError(f"the field {name[:40]!r} cannot be the name of a column")
        if not new:
            return {}
        try:
            with self._connection.transaction():
                self._connection.execute(self._extension(new) if self.columns else self._creation(new))
        except _made_by_others():
            self.columns = self._read_columns()
            if not self.columns:
                raise  # a type of this name, or a table without columns
            return self.add_columns(fields)
        self.columns |= {name: _KINDS.get(kind, "text") for name, kind in new.items()}
        return new

    def _creation(self, columns: Mapping[str, str]) -> Composed:
        from psycopg.sql import SQL, Identifier  # noqa: PLC0415

        typed = [SQL("{} {}").format(Identifier(name), SQL(kind)) for name, kind in columns.items()]
        return SQL("CREATE TABLE {} ({}, {} timestamptz NOT NULL, PRIMARY KEY ({}))").format(
            self._table, SQL(", ").join(typed), Identifier(SETTLED_AT), _names(self._destination.keys)
        )

    def _extension(self, columns: Mapping[str, str]) -> Composed:
        from psycopg.sql import SQL, Identifier  # noqa: PLC0415

        added = [SQL("ADD COLUMN {} {}").format(Identifier(name), SQL(kind)) for name, kind in columns.items()]
        return SQL("ALTER TABLE {} {}").format(self._table, SQL(", ").join(added))

    def write(self, rows: Sequence[tuple[FoundItem, dict[str, Any]]], fields: Sequence[str], batch: Batch) -> int:
        """Write `rows`, items with their values, and the positions of their `batch`, in one transaction. `fields`: the
        columns to write; what an item lacks becomes null. Returns the number of rows that are new or replaced. Raises
        BadValues."""
        from psycopg import DataError, IntegrityError  # noqa: PLC0415
        from psycopg.errors import NotNullViolation, ProgramLimitExceeded, RaiseException  # noqa: PLC0415
        from psycopg.errors import SyntaxError as BadSyntax  # noqa: PLC0415 - of values of types such as ltree

        try:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                changed = self._upsert(cursor, rows, fields) if rows else 0
                self._save_positions(cursor, batch)
        except (DataError, IntegrityError, ProgramLimitExceeded, RaiseException, BadSyntax) as error:
            if isinstance(error, NotNullViolation) and error.diag.column_name not in fields:
                raise  # no item has this column
            raise BadValues((error.diag.message_primary or type(error).__name__).splitlines()[0]) from error
        return changed

    def _upsert(
        self, cursor: Cursor[Any], rows: Sequence[tuple[FoundItem, dict[str, Any]]], fields: Sequence[str]
    ) -> int:
        from psycopg.sql import SQL, Identifier  # noqa: PLC0415

        columns, batch = [*fields, SETTLED_AT], Identifier(*_BATCH)
        names, keys, number = _names(columns), _names(self._destination.keys), Identifier(_unused_name(columns))
        cursor.execute(
            SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {}, 0 AS {} FROM {} WITH NO DATA").format(
                Identifier(_BATCH[1]), names, number, self._table
            )
        )
        with cursor.copy(SQL("COPY {} ({}, {}) FROM STDIN").format(batch, names, number)) as copy:
            for at, (item, values) in enumerate(rows):
                copy.write_row([*(_plain(values.get(field)) for field in fields), item.settled_at, at])
        newest = SQL(
            "(SELECT DISTINCT ON ({keys}) * FROM {batch} ORDER BY {keys}, {time} DESC, {number} DESC) AS newest"
        ).format(keys=keys, batch=batch, time=Identifier(SETTLED_AT), number=number)
        cursor.execute(
            SQL(
                "INSERT INTO {table} AS kept ({names}) SELECT {names} FROM {newest} ON CONFLICT ({keys}) "
                "DO UPDATE SET {changes} WHERE kept.{time} IS NULL OR kept.{time} < excluded.{time}"
            ).format(
                table=self._table,
                names=names,
                newest=newest,
                keys=keys,
                changes=SQL(", ").join(SQL("{0} = excluded.{0}").format(Identifier(name)) for name in columns),
                time=Identifier(SETTLED_AT),
            )
        )
        return cursor.rowcount

    # positions

    def positions(self, data_set: str) -> dict[str, Position]:
        with contextlib.suppress(*_made_by_others()):
            self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {_POSITIONS} (target text, data_set text, file text, position bigint, "
                "line_begin bigint, line_digest text, PRIMARY KEY (target, data_set, file))"
            )
        rows = self._connection.execute(
            f"SELECT file, position, line_begin, line_digest FROM {_POSITIONS} WHERE target = %s AND data_set = %s",
            [self._target(), data_set],
        )
        return {file: Position(*position) for file, *position in rows.fetchall()}

    def _target(self) -> str | None:
        """The name of the table with its OID, which a table that is made again does not keep; None without a table."""
        name = self._table.as_string(self._connection)
        (oid,) = self._connection.execute("SELECT to_regclass(%s)::oid", [name]).fetchone() or (None,)
        return None if oid is None else f"{self._destination.table} {oid}"

    def _save_positions(self, cursor: Cursor[Any], batch: Batch) -> None:
        target = self._target() if batch.positions else None
        if target is None:
            return
        for file, position in batch.positions.items():
            cursor.execute(
                f"INSERT INTO {_POSITIONS} (target, data_set, file, position, line_begin, line_digest) "
                "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (target, data_set, file) DO UPDATE SET "
                "position = excluded.position, line_begin = excluded.line_begin, line_digest = excluded.line_digest",
                [target, batch.data_set, file, position.end, position.begin, position.digest],
            )


def _is_split_wrongly(url: str, parts: Mapping[str, Any]) -> bool:
    """Whether libpq takes a part of the password for the host, the port or the database, and would show it in errors."""
    host, port, database = (str(parts.get(part) or "") for part in ("host", "port", "dbname"))
    is_odd_port = any(not number.isdecimal() for number in port.split(",") if number)
    return urlsplit(url).netloc.count("@") > 1 or "@" in host[1:] + database or is_odd_port


def _made_by_others() -> tuple[type[Exception], ...]:
    """What is raised if another process makes the same table or column at the same time."""
    from psycopg.errors import DuplicateColumn, DuplicateObject, DuplicateTable, UniqueViolation  # noqa: PLC0415

    return DuplicateTable, DuplicateColumn, DuplicateObject, UniqueViolation  # the last two by the type of its rows


def _plain(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, (list, dict)) else value


def _unused_name(columns: Sequence[str]) -> str:
    name = "_number"
    while name in columns:
        name += "_"
    return name


def _names(columns: Sequence[str]) -> Composed:
    from psycopg.sql import SQL, Identifier  # noqa: PLC0415

    return SQL(", ").join(map(Identifier, columns))


@contextlib.contextmanager
def _translated(destination: Destination) -> Iterator[None]:
    import psycopg  # noqa: PLC0415
    from psycopg.errors import InvalidColumnReference  # noqa: PLC0415

    try:
        yield
    except InvalidColumnReference as error:
        keys = ", ".join(destination.keys)
        raise UserError(
            f"the table {destination.table} has no unique index for the --key: CREATE UNIQUE INDEX ON "
            f"{destination.table} ({keys})"
        ) from error
    except psycopg.Error as error:
        lines = (error.diag.message_primary or str(error)).strip().splitlines() or [type(error).__name__]
        place = f" ({error.diag.context.splitlines()[0]})" if error.diag.context else ""
        said = without_secrets(f"PostgreSQL: {lines[0]}{place}")
        unknown = "08" if isinstance(error, psycopg.OperationalError) else ""  # the connection was not established
        passes = (error.sqlstate or unknown).startswith(_PASSING)
        raise (DatabaseAway if passes else UserError)(said) from error


LOOK_S = 1.0
"""How often new lines are looked for."""

AWAY_S = 2.0
"""How long to wait before a database that is away is tried again."""


class Written(msgspec.Struct):
    """What was written. `items`: those that were read; `changed`: rows that are new or replaced."""

    items: int = 0
    changed: int = 0

    def add(self, items: int, changed: int) -> None:
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
    """Writes the items that fit to `table`, counted in `written`. `schema`: the columns, and types of other fields."""

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
            if not (self._unusable(fields, self._met) or self._schema.add(fields)):
                self._met |= dict.fromkeys(fields)

    def check_keys(self) -> None:
        """Raises UserError if no item has a field that is a key."""
        missing = [key for key in self._keys if key not in self._met]
        if self._met and missing:
            raise UserError(f"no item has a field {missing[0]!r}, the --key; the fields are {', '.join(self._met)}")

    def write(self, batch: Batch) -> None:
        rows = []
        for item in batch.items:
            fields = self._schema.as_written(msgspec.json.decode(item.json))
            reason = self._unusable(fields, self._met) or self._obstacle(item, fields) or self._schema.add(fields)
            if reason := reason or self._schema.rounds(fields, self._table.exact):
                self._observer.on_refused(Refused(item, reason))
            else:
                rows.append((item, fields))
                self._met |= dict.fromkeys(fields)
        known = {name: kind for name, kind in self._schema.known.items() if name in self._met}
        if rows:
            if added := self._table.add_columns(known):
                self._observer.on_columns(added)
            self._schema.fix(known)
        rows = [(item, self._schema.as_written(fields)) for item, fields in rows]  # by the types of the whole batch
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

    def _unusable(self, fields: Mapping[str, Any], others: Iterable[str]) -> str:
        if odd := [name for name in fields if not is_column(name)]:
            return f"{odd[0][:40]!r} cannot be the name of a column"
        if len({*fields, *others, *self._table.columns}) > MOST_COLUMNS:
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
