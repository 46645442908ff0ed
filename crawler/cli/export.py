"""Commands that read archives: `export` and `extract`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from crawler.cli.export_changes import Changes, Since, export_changes
from crawler.cli.export_items import Follow, Key, Table, Target, ToTable, export_items, not_read
from crawler.cli.export_options import check_options, given
from crawler.cli.output_folders import not_named, one_crawl
from crawler.cli.shared_options import OfCrawl, Use, flags
from crawler.cli.terminal import Terminal
from crawler.cli.unknown_names import note
from crawler.errors import UserError, reason_of
from crawler.logs import printable
from crawler.page import TextForm
from crawler.settings.load import load
from crawler.sinks import export as exporting
from crawler.sinks.crawl_files import files_of
from crawler.sinks.export import Exported, ExportSettings
from crawler.sinks.open_files import is_open
from crawler.sinks.output_folder import check_output_folder
from crawler.sinks.segment import LINES
from crawler.sinks.wacz import SUFFIX, write_wacz
from crawler.sinks.warc_reader import BrokenFraming
from crawler.wording import count_of

AnyForm = Literal["jsonl", "parquet", "markdown", "wacz", "csv"]
Text = Annotated[TextForm, typer.Option("--text", help="Main text of each page: off, text or markdown.")]
Structured = Annotated[bool, typer.Option("--structured", help="JSON-LD and OpenGraph data of each page.")]
Simhash = Annotated[bool, typer.Option("--simhash", help="Fingerprint of each page's text, to find near duplicates.")]


Usage = Annotated[
    list[Use] | None,
    typer.Option(
        "--usage",
        help="Leave out pages whose owner refuses this use: train-ai, ai-use or search. Repeatable.",
        show_default=False,
    ),
]
Links = Annotated[bool, typer.Option("--links/--no-links", help="The links of each page.")]
Archives = Annotated[
    list[Path],
    typer.Argument(help="WARC files, or folders with WARC files; with --items or --changes, output folders."),
]
Out = Annotated[
    Path, typer.Option("--out", "-o", help="Folder for the results; with --format wacz also a file, NAME.wacz.")
]
Form = Annotated[
    AnyForm,
    typer.Option("--format", help="jsonl, parquet, markdown, wacz; with --items or --changes jsonl, csv, parquet."),
]
Items = Annotated[str | None, typer.Option(help="Data set whose items to write, instead of pages.", show_default=False)]


def export(
    context: typer.Context,
    archives: Archives,
    out: Out = Path("export"),
    form: Form = "jsonl",
    items: Items = None,
    to: ToTable = None,
    table: Table = None,
    key: Key = None,
    follow: Follow = False,
    changes: Changes = False,
    since: Since = None,
    text: Text = "off",
    structured: Structured = False,
    links: Links = True,
    simhash: Simhash = False,
    usage: Usage = None,
    crawl: OfCrawl = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Number of processes; default: one per core.")] = None,
) -> None:
    """Convert WARC files to a table of pages, or to one Markdown file per page, pack them into one WACZ file, or write the
    items of a data set, or what visits of known pages have found.

    Open files are read up to their last complete record. If it was interrupted, run the same command again to resume. Files
    that were exported with other options are replaced. Options that have no effect together are refused.

    With `--format wacz`, all is in one new file, without open files. With `--text text`, its pages can be searched.

    With `--items`, an item with a field of another type than the crawl has kept is left out and reported, and the exit
    code is then 2. Open files are not read. With `--to`, items go to a table of PostgreSQL, one row per value of `--key`:
    an item replaces the row there if its page was settled later, so a second run changes nothing. Missing tables and
    columns are added; open files are read up to their last settled page. `--follow` continues as long as the crawl runs.

    `--changes` reads the lines of pages of a crawl with `recrawl.rules`, those of open files included.

    [bold]Examples[/bold]

        crawler export crawl-out --format parquet --text text

        crawler export crawl-out --items products --format csv

        crawler export crawl-out --items products --to postgresql://me@db.example/shop --key url

        crawler export crawl-out --changes --since 24h --format csv

        crawler export crawl-out --format markdown --out notes

        crawler export crawl-out --format wacz --out news.wacz

        crawler export crawl-out --usage train-ai --text text
    """
    check_options(given(context), form, out)
    only = "" if follow else one_crawl(archives, crawl, of_each=True)
    if changes or since is not None:
        export_changes(_of(archives, only, (LINES,)), since if changes else None, (out, form), items is not None)
    elif items is not None or to is not None:
        export_items(_of(archives, only, (LINES,)), items, (out, form), Target(to, table, tuple(key or ()), follow))
    else:
        uses = frozenset(map(str, usage or ()))
        settings = ExportSettings(out, form, text, structured, links, simhash, uses)  # type: ignore[arg-type] # not csv
        (_export_wacz if form == "wacz" else _export_pages)(archives, settings, processes, only)


def _of(paths: list[Path], crawl: str, suffixes: Iterable[str]) -> list[Path]:
    """Return `paths` with the files of `crawl` in the place of folders, unless it is ""."""
    if not crawl:
        return paths
    found = [file for path in paths for file in (files_of(path, suffixes, crawl) if path.is_dir() else [path])]
    if not found:
        raise UserError(f"no file of a crawl {crawl!r} to export in {', '.join(map(str, paths))}")
    return found


def _export_pages(archives: list[Path], settings: ExportSettings, processes: int | None, crawl: str) -> None:
    files = exporting.warc_files(_of(archives, crawl, exporting.SUFFIXES))
    with _progress(len(files)) as advance:
        done = exporting.export(files, settings, processes or os.cpu_count() or 1, advance)
    for line in _told(done, settings, len(files)):
        Terminal().tell(line)
    for line in _not_exported(done, settings):
        note(line)
    if missing := not_named(load(None, flags()).replica, [path for path in archives if path.is_dir()], crawl):
        note(missing)
    if still_open := [path for path in files if is_open(path)]:
        Terminal(stderr=True).tell(
            f"{len(still_open):,} of the WARC files are open, and were read up to their last complete record. If their "
            f"replicas were killed, finish them: crawler finish {still_open[0].parent}"
        )


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
    files = exporting.warc_files(_of(archives, crawl, exporting.SUFFIXES))
    target = out if out.suffix == SUFFIX else out / f"{archives[0].resolve().name.partition('.warc')[0]}{SUFFIX}"
    check_output_folder(target.parent)
    with _progress(len(files)) as advance:
        done = write_wacz(files, target, text, processes or os.cpu_count() or 1, advance)
    Terminal().tell(
        f"{count_of(done.pages, 'page')} and {count_of(done.records, 'record')} from "
        f"{count_of(done.warc_files, 'WARC file')} in {done.file}"
    )
    if done.left_open:
        note(not_read(done.left_open))
    if missing := not_named(load(None, flags()).replica, [path for path in archives if path.is_dir()], crawl):
        note(missing)


def _told(done: Exported, settings: ExportSettings, files: int) -> list[str]:
    """Return what an export of `files` WARC files did, in one line each."""
    if done.kept == files:
        return [
            f"already exported with these options, nothing to do: {count_of(files, 'WARC file')} in {settings.out}/"
        ]
    what = count_of(done.rows, "file" if settings.form == "markdown" else "row")
    lines = [f"{what} from {count_of(files - done.kept, 'WARC file')} in {settings.out}/"]
    if done.kept:
        lines.append(f"left alone, because exported with these options before: {count_of(done.kept, 'WARC file')}")
    if done.differing:
        lines.append(
            f"earlier results with other options were replaced; different: {', '.join(sorted(done.differing))}"
        )
    if done.left_out:
        lines.append(f"left out, because without main text: {count_of(done.left_out, 'response')}")
    return lines


def _not_exported(done: Exported, settings: ExportSettings) -> list[str]:
    """Return what the preferences of owners mean for an export for `settings.usage`, in one line each."""
    if not settings.usage:
        return []
    uses = ", ".join(sorted(settings.usage))
    lines = [f"left out, because their owners refuse {uses}: {count_of(done.refused, 'page')}"]
    if done.kept:
        lines.append(f"not counted again: those of {count_of(done.kept, 'WARC file')} that were exported before")
    if done.unrecorded:
        lines.append(
            f"{count_of(done.unrecorded, 'page')} without a metadata record: what robots.txt says of their use is unknown"
        )
    return lines


def extract(
    archives: Annotated[list[Path], typer.Argument(help="WARC files.")],
    text: Text = "text",
    structured: Structured = False,
    links: Links = True,
    simhash: Simhash = False,
    usage: Usage = None,
) -> None:
    """Print a JSON line for each page in WARC files, which may be open.

    [bold]Example[/bold]

        crawler extract crawl-out/crawl-00001.warc.gz | head -1
    """
    settings = ExportSettings(Path(), "jsonl", text, structured, links, simhash, frozenset(map(str, usage or ())))
    selection = exporting.Selection(settings.usage)
    for archive in archives:
        if archive.is_dir():
            raise UserError(f"{archive} is a folder; use `crawler export {archive}`, or name WARC files in it")
    for file in exporting.warc_files(archives):
        try:
            for lines in exporting.encoded(file, settings, selection):
                sys.stdout.buffer.write(printable(lines.decode()).encode())
            sys.stdout.flush()
        except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        except (OSError, BrokenFraming) as error:
            raise UserError(f"{file}: {reason_of(error, file)}") from error
    for line in _not_exported(Exported(refused=selection.refused, unrecorded=selection.unrecorded), settings):
        note(line)
