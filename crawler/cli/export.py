"""`crawler export` and `extract`: write pages, items or changes from the archives of a crawl."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, NamedTuple, cast, get_args

import click
import msgspec
from click.core import ParameterSource
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from crawler.cli.options import (
    FILE,
    FOLDER,
    USES,
    Decorator,
    Whole,
    app,
    command,
    given_settings,
    of_crawl,
    options,
    settings_file,
)
from crawler.cli.output_folders import not_named, one_crawl
from crawler.cli.text import Terminal, note
from crawler.errors import UserError, reason_of
from crawler.logs import configure, printable
from crawler.page import DATA_SET, TextForm
from crawler.settings.load import load
from crawler.sinks import export as exporting
from crawler.sinks import items as data_sets
from crawler.sinks.compression import READ_SUFFIXES
from crawler.sinks.export import Exported, ExportSettings
from crawler.sinks.files import LINES, check_output_folder, is_open
from crawler.sinks.items import SHOWN, TABLE_FORMS, Refused, line_files_among
from crawler.sinks.lines import check_unpacked, files_of, iso_time
from crawler.sinks.made import Made, check_replaceable, has_pages, made_in, record
from crawler.sinks.postgres import LOOK_S, Destination, Observer, write_items
from crawler.sinks.wacz import SUFFIX, write_wacz
from crawler.wording import count_of

if TYPE_CHECKING:
    from crawler.app.archived_items import ItemFinder

FORMS = ("jsonl", "parquet", "markdown", "wacz", "csv")

_WITH_CHANGES = ("markdown", "wacz")
"""The formats in which changes are pages as in other exports."""

_FILES = frozenset({".csv", ".gz", ".json", ".jsonl", ".md", ".parquet", ".warc", ".zip", ".zst", SUFFIX})
"""Endings of names that people give to files, not to folders."""

_ALWAYS = frozenset({"archives", "out", "crawl"})
_OF_PAGES = _ALWAYS | {"form", "usage", "processes", "since"}

USED = {
    "pages": _OF_PAGES | {"text", "structured", "links", "simhash", "settings", "app"},
    "--format markdown": _OF_PAGES | {"changes", "skip_noindex", "skip_unlinked"},
    "--format wacz": _ALWAYS | {"form", "text", "processes", "usage", "since", "changes"},
    "--items": _ALWAYS | {"form", "items", "table", "key", "follow", "since", "latest"},
    "--to": _ALWAYS | {"items", "to", "table", "key", "follow"},
    "--changes": _ALWAYS | {"form", "changes", "since", "items"},
}
"""What is exported -> the options, by parameter, that have an effect on it, or are refused with a reason of their own."""

_NEEDS = {
    "table": "--to",
    "key": "--items",
    "follow": "--items and --to",
    "latest": "--items",
    "skip_noindex": "--format markdown",
    "skip_unlinked": "--format markdown",
}


def _page_options(text: TextForm) -> Decorator:
    """Return a decorator that adds the options for what is written of each page. `text`: the default of --text."""
    return options(
        click.option(
            "--text",
            type=click.Choice(get_args(TextForm)),
            default=text,
            help="Main text of each page: off, text or markdown.",
        ),
        click.option("--structured", is_flag=True, help="JSON-LD and OpenGraph data of each page."),
        click.option("--links/--no-links", default=True, help="The links of each page."),
        click.option("--simhash", is_flag=True, help="Fingerprint of each page's text, to find near duplicates."),
        click.option(
            "--usage",
            type=USES,
            multiple=True,
            help="Leave out pages whose owner refuses this use: train-ai, ai-use or search. Repeatable.",
        ),
    )


class Target(NamedTuple):
    """The options `--to`, `--table`, `--key`, `--follow`, `--latest` and `--since`, in seconds since 1970."""

    url: str | None
    table: str | None
    keys: tuple[str, ...]
    follow: bool
    latest: bool
    since: float


@command()
@click.pass_context
@click.argument(
    "archives",
    type=FOLDER,
    nargs=-1,
    required=True,
    help="WARC files, or folders with WARC files; with --items or --changes, output folders.",
)
@click.option(
    "--out",
    "-o",
    type=FOLDER,
    default="export",
    help="Folder for the results; with --format wacz also a file, NAME.wacz. For --items of an earlier export: its folder.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    default="jsonl",
    help="jsonl, parquet, markdown, wacz; with --items or --changes jsonl, csv, parquet.",
)
@click.option("--items", metavar="NAME", help="Data set whose items to write, instead of pages.")
@click.option(
    "--to",
    metavar="URL",
    help="Write items to this database, postgresql://USER@HOST/DATABASE; PGPASSWORD has the password.",
)
@click.option(
    "--table", metavar="NAME", help="Table for --to, TABLE or SCHEMA.TABLE; default: the name of the data set."
)
@click.option(
    "--key", multiple=True, metavar="FIELD", help="Field that tells items apart; for --to, --latest. Repeatable."
)
@click.option("--latest", is_flag=True, help="Of the items with the same --key, write only the latest.")
@click.option("--follow", is_flag=True, help="With --to: go on with new items until Ctrl-C.")
@click.option("--changes", is_flag=True, help="Write which pages are new, changed, gone or back; needs --since.")
@click.option(
    "--since",
    metavar="TIME",
    help="Only what was visited from this time on: 2026-03-01, 2026-03-01T12:00:00Z, or 24h ago.",
)
@_page_options("off")
@click.option("--skip-noindex", is_flag=True, help="With --format markdown: leave out pages that say noindex.")
@click.option(
    "--skip-unlinked",
    is_flag=True,
    help="With --format markdown: leave out pages that no links lead to any more, as a fresh crawl would.",
)
@settings_file
@app
@of_crawl
@click.option("--processes", type=Whole(1), help="Number of processes; default: one per core.")
def export(
    context: click.Context,
    archives: tuple[Path, ...],
    out: Path,
    form: str,
    items: str | None,
    to: str | None,
    table: str | None,
    key: tuple[str, ...],
    follow: bool,
    changes: bool,
    since: str | None,
    latest: bool,
    text: TextForm,
    structured: bool,
    links: bool,
    simhash: bool,
    usage: tuple[str, ...],
    skip_noindex: bool,
    skip_unlinked: bool,
    crawl: str | None,
    processes: int | None,
) -> None:
    """Convert WARC files to a table of pages, or to one Markdown file per page, pack them into one WACZ file, or write the
    items of a data set, or what visits of known pages have found.

    Open files are read up to their last complete record. Of a file that was cut or damaged, the complete records before
    that are exported. The file is named, as are files with records that cannot be read, and the exit code is 2. If it was
    interrupted, run the same command again to resume. Files that were exported with other options are replaced. Options
    that have no effect together are refused.

    With `--format wacz`, all is in one new file, without open files. With `--text text`, its pages can be searched.

    With `--items`, items that the crawl has rejected are reported, and the exit code is then 2. Open files are not read.
    With `--to`, items go to a table of PostgreSQL, one row per value of `--key`: an item replaces the row there if its page
    was settled later, so a second run changes nothing. Missing tables and columns are added; open files are read up to
    their last settled page. `--follow` continues as long as the crawl runs.

    `--changes` reads the lines of pages of a crawl with `recrawl.rules`, those of open files included.

    Examples:

        crawler export crawl-out --format parquet --text text
        crawler export crawl-out --items products --format csv
        crawler export crawl-out --items products --to postgresql://me@db.example/shop --key url
        crawler export crawl-out --changes --since 24h --format csv
        crawler export crawl-out --format markdown --out notes
        crawler export crawl-out --format wacz --out news.wacz
        crawler export crawl-out --usage train-ai --text text
        crawler export crawl-out --settings shop.toml --out again
    """
    configure("console", "warning")
    given = _given(context)
    check_options(given, form, out)
    folder = archives[0] if archives[0].is_dir() else archives[0].parent
    if items is not None and "out" not in given and has_pages(folder):
        out = folder  # `export` may have the items of the crawl
    for archive in archives:
        check_unpacked(archive)
    paths, only = list(archives), "" if follow else one_crawl(archives, crawl, of_each=True)
    begin = data_sets.since_time(since, datetime.now(UTC)) if since is not None else 0.0
    if changes and since is None:
        raise UserError("--changes needs --since TIME, such as --changes --since 24h")
    if changes and form not in _WITH_CHANGES:
        _export_changes(_of(paths, only, (LINES,)), begin, out, form, items is not None)
    elif items is not None or to is not None:
        _export_items(_of(paths, only, (LINES,)), items, out, form, Target(to, table, key, follow, latest, begin))
    else:
        shape = cast("exporting.Form", form)  # not csv
        settings = ExportSettings(
            out,
            shape,
            text,
            structured,
            links,
            simhash,
            frozenset(usage),
            skip_noindex,
            skip_unlinked,
            begin,
            *_finder(context),
        )
        (_export_wacz if form == "wacz" else _export_pages)(paths, settings, processes, only)


def _finder(context: click.Context) -> tuple[ItemFinder | None, str, bool]:
    """Return what finds items on archived pages if --settings or --app is given, a digest of its settings, and whether it
    finds the same items with the same settings: what handlers do depends on their code, and on all that it uses."""
    if not {"settings", "app"} & _given(context).keys():
        return None, "", True
    from crawler.app.archived_items import ItemFinder  # noqa: PLC0415 - imports handlers and parsers

    settings = given_settings()
    if not settings.extract and not settings.handlers.app:
        raise UserError("nothing finds items: the settings have neither [[extract]] nor a router in handlers.app")
    made_from = msgspec.json.encode([settings.extract, settings.handlers, settings.app])
    return ItemFinder(settings), blake2b(made_from, digest_size=8).hexdigest(), not settings.handlers.app


def _of(paths: list[Path], crawl: str, suffixes: Iterable[str]) -> list[Path]:
    """Return `paths` with each folder replaced by its files of `crawl`, unless that is ""."""
    if not crawl:
        return paths
    found = [file for path in paths for file in (files_of(path, suffixes, crawl) if path.is_dir() else [path])]
    if not found:
        raise UserError(f"no file of a crawl {crawl!r} to export in {', '.join(map(str, paths))}")
    return found


def _export_pages(archives: list[Path], settings: ExportSettings, processes: int | None, crawl: str) -> None:
    files = exporting.warc_files(_of(archives, crawl, READ_SUFFIXES))
    folders = [path for path in archives if path.is_dir()]
    lines = [file for path in folders for file in files_of(path, (LINES,), crawl)]
    with _progress(len(files)) as advance:
        done = exporting.export(files, settings, processes or os.cpu_count() or 1, advance, lines)
    for line in _results(done, settings, len(files)):
        Terminal().tell(line)
    for line in _not_exported(done, settings):
        note(line)
    if missing := not_named(load().replica, folders, crawl):
        note(missing)
    if still_open := [path for path in files if is_open(path)]:
        Terminal(stderr=True).tell(
            f"{len(still_open):,} of the WARC files are open, and were read up to their last complete record. If their "
            f"replicas were killed, finish them: crawler finish {still_open[0].parent}"
        )
    _check_read(done)


def _check_read(done: Exported) -> None:
    problems = (done.unread, done.broken, done.lineless)
    for path in sorted({*done.unread, *done.broken, *done.lineless}):
        for problem in filter(None, (found.get(path) for found in problems)):
            Terminal(stderr=True).tell(f"{path}: {problem}")
    if done.broken:
        raise UserError(
            f"{count_of(len(done.broken), 'WARC file')} could not be read to the end; only complete records before that "
            "were exported"
        )
    if done.lineless:
        whose = count_of(len(done.lineless), "WARC file")
        raise UserError(f"JSON lines of {whose} are lost; all pages in WARC files were exported")
    if done.unread:
        unread = f"{count_of(sum(one.count for one in done.unread.values()), 'record')} could not be read"
        is_empty = not (done.rows or done.textless or done.refused or done.kept)
        raise UserError(f"no page was exported: {unread}" if is_empty else f"{unread}; all others were exported")


@contextlib.contextmanager
def _progress(files: int) -> Iterator[Callable[[Path], None]]:
    """Show a bar for this many WARC files in a terminal, until they are done. Yields what advances it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Terminal(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("WARC files", total=files)
        yield lambda path: progress.advance(task)


def _export_wacz(archives: list[Path], settings: ExportSettings, processes: int | None, crawl: str) -> None:
    if settings.usage:
        raise UserError("--usage cannot be used with --format wacz, which packs whole WARC files")
    out, text = settings.out, settings.text
    files = exporting.warc_files(_of(archives, crawl, READ_SUFFIXES))
    if not (files := [file for file in files if file.stat().st_mtime >= settings.since]):
        raise UserError(f"no WARC file was written since {iso_time(settings.since)}")
    target = out if out.suffix == SUFFIX else out / f"{archives[0].resolve().name.partition('.warc')[0]}{SUFFIX}"
    check_output_folder(target.parent)
    with _progress(len(files)) as advance:
        done = write_wacz(files, target, text, processes or os.cpu_count() or 1, advance)
    for path, problem in done.problems.items():
        Terminal(stderr=True).tell(f"{path}: {problem}")
    Terminal().tell(
        f"{count_of(done.pages, 'page')} and {count_of(done.records, 'record')} from "
        f"{count_of(done.warc_files, 'WARC file')} in {done.file}"
    )
    if done.left_open:
        note(_open_note("not read", done.left_open))
    if missing := not_named(load().replica, [path for path in archives if path.is_dir()], crawl):
        note(missing)
    if done.problems:
        whose = count_of(len(done.problems), "WARC file")
        raise UserError(f"records or JSON lines of {whose} are missing; all others were packed")


def _results(done: Exported, settings: ExportSettings, files: int) -> list[str]:
    if done.kept == files:
        return [
            f"already exported with these options, nothing to do: {count_of(files, 'WARC file')} in {settings.out}/"
        ]
    what = count_of(done.rows, "file" if settings.form == "markdown" else "row")
    lines = [f"{what} from {count_of(files - done.kept, 'WARC file')} in {settings.out}/"]
    if done.kept:
        lines.append(f"left alone, because exported with these options before: {count_of(done.kept, 'WARC file')}")
    counts = (
        ("left out, because without main text", done.textless, "page"),
        ("left out, because they say noindex", done.unindexed, "page"),
        ("left out, because gone, moved, denied or no longer linked", done.gone, "page"),
        ("left as they were, because their text is in other WARC files", done.missing, "page"),
        ("removed, because of earlier visits", done.removed, "file"),
    )
    lines += [f"{what}: {count_of(number, unit)}" for what, number, unit in counts if number]
    return lines + _without_row(done)


def _without_row(done: Exported) -> list[str]:
    """Return which records have no row although they could be read, in one line each."""
    return [
        f"without a row, because {reason}: {count_of(number, kind)}, the first {url}"
        for (reason, kind), (number, url) in sorted(done.rowless.items())
    ]


def _not_exported(done: Exported, settings: ExportSettings) -> list[str]:
    """Return what the preferences of owners mean for an export for `settings.usage`, in one line each."""
    if not settings.usage:
        return []
    uses = ", ".join(sorted(settings.usage))
    lines = [f"left out, because their owners refuse {uses}: {count_of(done.refused, 'page')}"] if done.refused else []
    if done.kept:
        lines.append(f"not counted again: those of {count_of(done.kept, 'WARC file')} that were exported before")
    if done.unrecorded:
        lines.append(
            f"{count_of(done.unrecorded, 'page')} without a metadata record: what robots.txt says of their use is unknown"
        )
    return lines


@command()
@click.argument("archives", type=FILE, nargs=-1, required=True, help="WARC files.")
@_page_options("text")
@settings_file
@app
@click.pass_context
def extract(
    context: click.Context,
    archives: tuple[Path, ...],
    text: TextForm,
    structured: bool,
    links: bool,
    simhash: bool,
    usage: tuple[str, ...],
) -> None:
    """Print a JSON line for each response in WARC files, which may be open.

    With `--settings` or `--app`, the lines have the items that the `[[extract]]` tables or the handlers find on the
    archived pages. Nothing is fetched.

    Examples:

        crawler extract crawl-out/crawl-00001.warc.gz | head -1
        crawler extract crawl-out/crawl-00001.warc.gz --settings shop.toml
    """
    configure("console", "warning")
    settings = ExportSettings(
        Path(),
        text=text,
        structured=structured,
        links=links,
        simhash=simhash,
        usage=frozenset(usage),
        finder=_finder(context)[0],
    )
    done = Exported()
    for archive in archives:
        if archive.is_dir():
            raise UserError(f"{archive} is a folder; use `crawler export {archive}`, or name WARC files in it")
    files = exporting.warc_files(list(archives))
    _, plans = exporting.planned(files, settings, 1, ())
    for file in files:
        try:
            for lines in exporting.encoded(file, settings, done, plans[file].refused):
                sys.stdout.buffer.write(printable(lines.decode()).encode())
            sys.stdout.flush()
        except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        except OSError as error:
            raise UserError(f"{file}: {reason_of(error, file)}") from error
    for line in (*_without_row(done), *_not_exported(done, settings)):
        note(line)
    _check_read(done)


# options


def _given(context: click.Context) -> dict[str, str]:
    return {
        one.name: (one.secondary_opts if context.params.get(one.name) is False else one.opts)[0]
        for one in context.command.params
        if one.name and context.get_parameter_source(one.name) is ParameterSource.COMMANDLINE
    }


def check_options(options: dict[str, str], form: str, out: Path) -> None:
    """Raises UserError for an option without effect (parameter -> as it was typed), and for an `out` that cannot be."""
    exported = _exported(options, form)
    for name, typed in options.items():
        if name not in USED[exported]:
            if name in _NEEDS and exported != "--changes":
                raise UserError(f"{typed} needs {_NEEDS[name]}")
            if name in ("settings", "app") and exported in ("--items", "--to"):
                value = "FILE" if name == "settings" else "MODULE:ROUTER"
                raise UserError(
                    f"{typed} has no effect {_with(exported)}: to find the items again, `crawler export FOLDER {typed} "
                    f"{value} --out again`, then `crawler export again --items NAME`"
                )
            raise UserError(f"{typed} has no effect {_with(exported)}: leave it out")
    if exported == "pages" and form == "csv":
        raise UserError("--format csv needs --items or --changes; for pages, use parquet or jsonl")
    if "follow" in options and "crawl" in options:
        raise UserError("--crawl cannot be used with --follow: let the crawl write to a folder of its own (--out)")
    is_file = out.suffix.lower() in _FILES and not out.is_dir()
    if is_file and (exported != "--format wacz" or out.suffix != SUFFIX):
        also = f" or NAME{SUFFIX}" if exported == "--format wacz" else ", and the files in it get their names"
        raise UserError(f"--out {out} has the name of a file: name a folder{also}")


def _exported(options: Collection[str], form: str) -> str:
    if "changes" in options and form not in _WITH_CHANGES:
        return "--changes"
    if "to" in options or "items" in options:
        return "--to" if "to" in options else "--items"
    return f"--format {form}" if f"--format {form}" in USED else "pages"


def _with(exported: str) -> str:
    return f"with {exported}" if exported.startswith("--") else f"on {exported}"


# changes


def _export_changes(paths: Sequence[Path], begin: float, out: Path, form: str, has_items: bool) -> None:
    """Write the changes since `begin`, in seconds since 1970, to a file in the folder `out`. Raises UserError."""
    if has_items:
        raise UserError("--items and --changes are two exports: use one at a time")
    if form not in TABLE_FORMS:
        raise UserError("changes have the formats jsonl, csv and parquet")
    done = data_sets.export_changes(list(paths), begin, out, form)
    Terminal().tell(f"{count_of(done.changes, 'change')} since {iso_time(begin)} in {done.file}")


# items


def _export_items(paths: list[Path], name: str | None, out: Path, form: str, target: Target) -> None:
    if name is None:
        raise UserError("--to needs --items: only items have a place in a table")
    if not DATA_SET.fullmatch(name):
        raise UserError(f"{name!r} cannot be the name of a data set")
    if target.url is None:
        if target.follow or target.table or (target.keys and not target.latest):
            raise UserError("--table and --follow need --to, and --key needs --to or --latest")
        if target.latest and not target.keys:
            raise UserError("--latest needs --key: the field that tells items apart, such as --key url")
        _to_file(paths, name, out, form, target)
    elif not target.keys:
        raise UserError("--to needs --key: the field that tells items apart, such as --key url")
    elif not target.table and "." in name:
        raise UserError(f"--to needs --table for {name!r}: a dot in it would name a schema")
    else:
        destination = Destination(target.url, target.table or name, tuple(dict.fromkeys(target.keys)))
        _to_table(paths, name, out, destination, target.follow)


def _to_file(paths: list[Path], name: str, out: Path, form: str, target: Target) -> None:
    if form not in TABLE_FORMS:
        raise UserError("items have the formats jsonl, csv and parquet")
    file = out / f"{name}.{form}"
    done = data_sets.export_items(paths, name, file, target.keys, target.since)
    Terminal().tell(f"{count_of(done.items, 'item')} in {done.file}")
    _note_rejected(done.rejected)
    if done.left_open:
        note(_open_note("not read", done.left_open))
    for one in done.refused:
        Terminal(stderr=True).tell(f"left out: {one.item.url}: {one.reason}")
    if done.refused_count:
        raise UserError(
            f"{count_of(done.refused_count, 'item')} left out, because the crawl has rejected them: see "
            f"{data_sets.rejected_beside(done.file)}"
        )


def _to_table(paths: list[Path], name: str, out: Path, destination: Destination, follow: bool) -> None:
    refusals = _Refusals(out / f"{name}.rejected.jsonl", data_sets.rejected_of(name), adds=follow)
    observer = Observer(lambda columns: note(_new_columns(destination.table, columns)), refusals.add)
    stopping = _until_signal() if follow else None
    if stopping is not None:
        _await_output(paths, stopping)
        if stopping.is_set():
            return
    written = write_items(paths, name, destination, observer, stopping)
    if not (follow or written.items or refusals.count):
        raise UserError(data_sets.without_items(paths, line_files_among(paths), name))
    changed = count_of(written.changed, "row")
    Terminal().tell(f"{count_of(written.items, 'item')}; {changed} of the table {destination.table} new or replaced")
    left_open = [path for path in line_files_among(paths) if is_open(path)]
    if not follow:
        rejected = data_sets.read_rejected(paths, name)
        _note_rejected(len(rejected.items) + rejected.others)
    if left_open and not follow:
        note(_open_note("read up to their last settled page", left_open))
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


def _open_note(what: str, files: Sequence[Path]) -> str:
    return (
        f"{what}, because open: {count_of(len(files), 'file')}; if their replicas were killed, finish them: "
        f"crawler finish {files[0].parent}"
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
    """Writes the items that are left out to the file `path`, and shows the first ones. `source`: what it contains; `adds`:
    to what is there. Raises UserError if another file has its name."""

    def __init__(self, path: Path, source: str, adds: bool) -> None:
        self.path = path
        self.count = 0
        self._made = {path.name: Made(source)}
        check_replaceable(path, source, made_in(path.parent))
        if not adds:
            path.unlink(missing_ok=True)

    def add(self, one: Refused) -> None:
        if self.count < SHOWN:
            Terminal(stderr=True).tell(f"left out: {one.item.url}: {one.reason}")
        self.count += 1
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(data_sets.refused_line(one))
            if self.count == 1:
                record(self.path.parent, self._made)
        except OSError as error:
            raise UserError(f"{self.path}: {reason_of(error, self.path)}") from error
