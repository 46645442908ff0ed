"""Commands that read archives: `export` and `extract`."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from crawler.cli.notes import note
from crawler.cli.output_folders import not_named
from crawler.cli.shared_options import Use, flags
from crawler.cli.terminal import Terminal
from crawler.errors import UserError, reason_of
from crawler.logs import printable
from crawler.page import DATA_SET
from crawler.settings.loading import load
from crawler.sinks import export as exporting
from crawler.sinks.changes import export_changes, since_time
from crawler.sinks.content import TextForm
from crawler.sinks.export import Exported, ExportSettings
from crawler.sinks.items import export_items
from crawler.sinks.open_files import is_open
from crawler.sinks.times import iso_time
from crawler.sinks.warc_reader import BrokenFraming
from crawler.wording import count_of

AnyForm = Literal["jsonl", "parquet", "markdown", "csv"]
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
Items = Annotated[str | None, typer.Option(help="Data set whose items to write, instead of pages.", show_default=False)]
Changes = Annotated[
    bool, typer.Option("--changes", help="Write which pages are new, changed, gone or back; needs --since.")
]
Since = Annotated[
    str | None,
    typer.Option(help="Changes from this time on: 2026-03-01, 2026-03-01T12:00:00Z, or 24h ago.", show_default=False),
]
Links = Annotated[bool, typer.Option("--links/--no-links", help="The links of each page.")]


def export(
    archives: Annotated[
        list[Path],
        typer.Argument(help="WARC files, or folders with WARC files; with --items or --changes, output folders."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("export"),
    form: Annotated[
        AnyForm,
        typer.Option("--format", help="jsonl, parquet or markdown; with --items or --changes jsonl, csv or parquet."),
    ] = "jsonl",
    items: Items = None,
    changes: Changes = False,
    since: Since = None,
    text: Text = "off",
    structured: Structured = False,
    links: Links = True,
    simhash: Simhash = False,
    usage: Usage = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Number of processes; default: one per core.")] = None,
) -> None:
    """Convert WARC files to a table of pages, or to one Markdown file per page. Or write the items of a data set, or what
    visits of known pages have found.

    Open files are read up to their last complete record. If it was interrupted, run the same command again to resume. Files
    that were exported with other options are replaced.

    With `--items`, open files are not read. An item with a field whose type differs from that in earlier items is left out
    and reported, and the exit code is then 1.

    `--changes` reads the lines of pages of a crawl with `[recrawl]`, those of open files included.

    [bold]Examples[/bold]

        crawler export crawl-out --format parquet --text text

        crawler export crawl-out --items products --format csv

        crawler export crawl-out --changes --since 24h --format csv

        crawler export crawl-out --format markdown --out notes

        crawler export crawl-out --usage train-ai --text text
    """
    if changes or since is not None:
        _export_changes(archives, since if changes else None, out, form, has_items=items is not None)
        return
    if items is not None:
        _export_items(archives, items, out, form)
        return
    if form == "csv":
        raise UserError("--format csv needs --items or --changes: pages have lists of links")
    settings = ExportSettings(out, form, text, structured, links, simhash, frozenset(map(str, usage or ())))
    _export_pages(archives, settings, processes)


def _export_pages(archives: list[Path], settings: ExportSettings, processes: int | None) -> None:
    files = exporting.warc_files(archives)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Terminal(stderr=True)) as progress:
        task = progress.add_task("WARC files", total=len(files))

        def advance(path: Path) -> None:
            progress.advance(task)

        done = exporting.export(files, settings, processes or os.cpu_count() or 1, advance)
    for line in _told(done, settings, len(files)):
        Terminal().tell(line)
    for line in _not_exported(done, settings):
        note(line)
    if missing := not_named(load(None, flags()).replica, [path for path in archives if path.is_dir()]):
        note(missing)
    if still_open := [path for path in files if is_open(path)]:
        Terminal(stderr=True).tell(
            f"{len(still_open):,} of the WARC files are open, and were read up to their last complete record. If their "
            f"replicas were killed, finish them: crawler finish {still_open[0].parent}"
        )


def _export_changes(paths: list[Path], since: str | None, out: Path, form: AnyForm, has_items: bool) -> None:
    if since is None:
        raise UserError("--changes and --since TIME need each other, such as --changes --since 24h")
    if has_items:
        raise UserError("--items and --changes are two exports: use one at a time")
    if form == "markdown":
        raise UserError("changes have the formats jsonl, csv and parquet")
    begin = since_time(since, datetime.now(UTC))
    done = export_changes(paths, begin, out, form)
    Terminal().tell(f"{count_of(done.changes, 'change')} since {iso_time(begin)} in {done.file}")


def _export_items(paths: list[Path], name: str, out: Path, form: AnyForm) -> None:
    if form == "markdown":
        raise UserError("items have the formats jsonl, csv and parquet")
    if not DATA_SET.fullmatch(name):
        raise UserError(f"{name!r} cannot be the name of a data set")
    done = export_items(paths, name, out, form)
    Terminal().tell(f"{count_of(done.items, 'item')} in {done.file}")
    if done.left_open:
        note(
            f"not read, because open: {count_of(len(done.left_open), 'file')}; if their replicas were killed, finish them: "
            f"crawler finish {done.left_open[0].parent}"
        )
    for one in done.refused:
        Terminal(stderr=True).tell(f"left out: {one.item.url}: {one.reason}")
    if done.refused_count:
        raise UserError(
            f"{count_of(done.refused_count, 'item')} left out, because a field has another type than before: see "
            f"{done.file.with_name(name + '.refused.jsonl')}"
        )


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
