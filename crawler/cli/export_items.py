"""`crawler export --items`: writes a data set to a file, or to a table of a database."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Annotated, NamedTuple

import typer

from crawler.cli.terminal import Terminal
from crawler.cli.unknown_names import note
from crawler.errors import UserError, reason_of
from crawler.page import DATA_SET
from crawler.sinks import items
from crawler.sinks.item_writer import LOOK_S, Observer, write_items
from crawler.sinks.items import SHOWN, Refused, line_files
from crawler.sinks.open_files import is_open
from crawler.sinks.postgres import Destination
from crawler.wording import count_of

ToTable = Annotated[
    str | None,
    typer.Option(
        "--to",
        help="Write items to this database, postgresql://USER@HOST/DATABASE; PGPASSWORD has the password.",
        show_default=False,
    ),
]
Table = Annotated[
    str | None,
    typer.Option(help="Table for --to, TABLE or SCHEMA.TABLE; default: the name of the data set.", show_default=False),
]
Key = Annotated[
    list[str] | None,
    typer.Option("--key", help="Field that tells items apart in the table. Repeatable.", show_default=False),
]
Follow = Annotated[bool, typer.Option("--follow", help="With --to: go on with new items until Ctrl-C.")]


class Target(NamedTuple):
    """The options `--to`, `--table`, `--key` and `--follow`."""

    url: str | None
    table: str | None
    keys: tuple[str, ...]
    follow: bool


def export_items(paths: list[Path], name: str | None, file: tuple[Path, str], target: Target) -> None:
    """Write the items of the data set `name` to the `target`, or to a file. `file`: its folder and format."""
    if name is None:
        raise UserError("--to needs --items: only items have a place in a table")
    if not DATA_SET.fullmatch(name):
        raise UserError(f"{name!r} cannot be the name of a data set")
    if target.url is None:
        if target.follow or target.keys or target.table:
            raise UserError("--table, --key and --follow need --to")
        _to_file(paths, name, *file)
    elif not target.keys:
        raise UserError("--to needs --key: the field that tells items apart, such as --key url")
    else:
        destination = Destination(target.url, target.table or name, tuple(dict.fromkeys(target.keys)))
        _to_table(paths, name, file[0], destination, target.follow)


def _to_file(paths: list[Path], name: str, out: Path, form: str) -> None:
    if form not in ("jsonl", "csv", "parquet"):
        raise UserError("items have the formats jsonl, csv and parquet")
    done = items.export_items(paths, name, out, form)  # type: ignore[arg-type]
    Terminal().tell(f"{count_of(done.items, 'item')} in {done.file}")
    _note_rejected(done.rejected)
    if done.left_open:
        note(not_read(done.left_open))
    for one in done.refused:
        Terminal(stderr=True).tell(f"left out: {one.item.url}: {one.reason}")
    if done.refused_count:
        raise UserError(
            f"{count_of(done.refused_count, 'item')} left out, because a field has another type than before: see "
            f"{out / name}.rejected.jsonl"
        )


def _to_table(paths: list[Path], name: str, out: Path, destination: Destination, follow: bool) -> None:
    refusals = _Refusals(out / f"{name}.rejected.jsonl", adds=follow)
    observer = Observer(lambda columns: note(_new_columns(destination.table, columns)), refusals.add)
    stopping = _until_signal() if follow else None
    if stopping is not None:
        _await_output(paths, stopping)
        if stopping.is_set():
            return
    written = write_items(paths, name, destination, observer, stopping)
    if not (follow or written.items or refusals.count):
        raise UserError(items.without_items(paths, line_files(paths), name))
    changed = count_of(written.changed, "row")
    Terminal().tell(f"{count_of(written.items, 'item')}; {changed} of the table {destination.table} new or changed")
    left_open = [path for path in line_files(paths) if is_open(path)]
    if not follow:
        rejected = items.read_rejected(paths, name)
        _note_rejected(len(rejected.items) + rejected.others)
    if left_open and not follow:
        note(
            f"read up to their last settled page, because open: {count_of(len(left_open), 'file')}; if their replicas were "
            f"killed, finish them: crawler finish {left_open[0].parent}"
        )
    if refusals.count:
        raise UserError(
            f"{count_of(refusals.count, 'item')} left out for values that do not fit the table: see {refusals.path}"
        )


def _note_rejected(number: int) -> None:
    if number:
        note(
            f"{count_of(number, 'item')} rejected in the crawl, not exported: see `crawler status`, and the field rejected "
            "of the lines of their pages"
        )


def not_read(left_open: Sequence[Path]) -> str:
    """Return the note about files that were not read."""
    return (
        f"not read, because open: {count_of(len(left_open), 'file')}; if their replicas were killed, finish them: "
        f"crawler finish {left_open[0].parent}"
    )


def _new_columns(table: str, columns: Mapping[str, str]) -> str:
    return f"new columns of the table {table}: {', '.join(f'{name} {kind}' for name, kind in columns.items())}"


def _until_signal() -> Event:
    """Return what SIGINT and SIGTERM set. A second one ends the process."""
    stopping = Event()

    def stop(number: int, frame: object) -> None:
        stopping.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return stopping


def _await_output(paths: Sequence[Path], stopping: Event) -> None:
    """Wait until all `paths` exist, or `stopping` is set: the crawl that makes them may be started later."""
    if missing := [str(path) for path in paths if not path.exists()]:
        note(f"waiting for {', '.join(missing)}, which a crawl makes when it starts")
        while not (all(path.exists() for path in paths) or stopping.wait(LOOK_S)):
            pass


class _Refusals:
    """Writes the items that are left out to the file `path`, and shows the first ones. `adds`: to what is there."""

    def __init__(self, path: Path, adds: bool) -> None:
        self.path = path
        self.count = 0
        if not adds:
            path.unlink(missing_ok=True)

    def add(self, one: Refused) -> None:
        if self.count < SHOWN:
            Terminal(stderr=True).tell(f"left out: {one.item.url}: {one.reason}")
        self.count += 1
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(items.refused_line(one))
        except OSError as error:
            raise UserError(f"{self.path}: {reason_of(error, self.path)}") from error
