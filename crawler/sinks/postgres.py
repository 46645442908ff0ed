"""Writes the items of a data set to a table of PostgreSQL, one row for each key.

A batch is copied into a temporary table, and from there inserted in one transaction. A row whose key is in the table
replaces the one there if its page was settled later, which the column `_settled_at` remembers. So a second run changes
nothing, files may be read in any order, and of several visits of a page the last one counts.

A missing table is created, and missing columns are added, with the types of the fields. Items with values that do not fit
their column are left out, as in files (`crawler.sinks.items`). Needs `psycopg` (the extra `peercrawl[postgres]`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from crawler.errors import UserError
from crawler.logs import without_secrets
from crawler.scope.extract_rules import Kind
from crawler.sinks.item_tail import Batch, Position
from crawler.sinks.items import FoundItem

if TYPE_CHECKING:
    from psycopg import Connection, Cursor
    from psycopg.sql import Composed, Identifier

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
        try:
            import psycopg.conninfo  # noqa: PLC0415
        except ImportError as error:
            raise UserError("--to needs psycopg: pip install 'peercrawl[postgres]'") from error
        try:
            if not self.url.startswith(SCHEMES):
                raise UserError("--to takes a URL: postgresql://HOST/DATABASE")
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
        columns to write; what an item lacks becomes null. Returns the number of rows that are new or have changed. Raises
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
        cursor.execute(
            SQL(
                "INSERT INTO {table} AS kept ({names}) SELECT {names} FROM (SELECT DISTINCT ON ({keys}) * FROM {batch} "
                "ORDER BY {keys}, {time} DESC, {number} DESC) AS newest ON CONFLICT ({keys}) DO UPDATE SET {changes} "
                "WHERE kept.{time} IS NULL OR kept.{time} < excluded.{time}"
            ).format(
                table=self._table,
                names=names,
                keys=keys,
                batch=batch,
                time=Identifier(SETTLED_AT),
                number=number,
                changes=SQL(", ").join(SQL("{0} = excluded.{0}").format(Identifier(name)) for name in columns),
            )
        )
        return cursor.rowcount

    # positions

    def positions(self, data_set: str) -> dict[str, Position]:
        """How far the files of crawls were read for this table; nothing if there is no table yet. Positions from before
        they named a line do not count: what they stand for is read again, which changes no row."""
        with contextlib.suppress(*_made_by_others()):
            self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {_POSITIONS} (target text, data_set text, file text, position bigint, "
                "PRIMARY KEY (target, data_set, file))"
            )
        self._add_line_columns()
        rows = self._connection.execute(
            f"SELECT file, position, line_begin, line_digest FROM {_POSITIONS} WHERE target = %s AND data_set = %s AND "
            "line_begin IS NOT NULL",
            [self._target(), data_set],
        )
        return {file: Position(*position) for file, *position in rows.fetchall()}

    def _add_line_columns(self) -> None:
        found = self._connection.execute(
            f"SELECT FROM pg_attribute WHERE attrelid = '{_POSITIONS}'::regclass AND attname = 'line_digest'"
        )
        if not found.fetchall():
            self._connection.execute(
                f"ALTER TABLE {_POSITIONS} ADD COLUMN IF NOT EXISTS line_begin bigint, "
                "ADD COLUMN IF NOT EXISTS line_digest text"
            )

    def _target(self) -> str | None:
        """The name of the table with its OID, so that a table that was dropped and made again is another one; None without
        a table."""
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
    """A name for the number of a row in its batch, which is none of `columns`."""
    name = "_number"
    while name in columns:
        name += "_"
    return name


def _names(columns: Sequence[str]) -> Composed:
    from psycopg.sql import SQL, Identifier  # noqa: PLC0415

    return SQL(", ").join(map(Identifier, columns))


@contextlib.contextmanager
def _translated(destination: Destination) -> Iterator[None]:
    """Translate the errors of psycopg, without what is secret in the URL."""
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
