"""Converts WARC files, of this crawler or another, to rows like those of a crawl, or to Markdown files.

Each response and revisit record becomes a row (`crawler.sinks.reader`). Each WARC file becomes one file of rows with the
same name, which is complete or does not exist. So files are converted in parallel, and a second run continues where the
first one stopped. The rows of an open file are in a file whose name contains `.open`, and those of a file with
records that are missing or cannot be read in one whose name contains `.cut`. Each run replaces it, and removes it once the
WARC file is finished, or whole.

Markdown has one file for each page (`crawler.sinks.markdown_files`), of the response that has its body now
(`crawler.sinks.last_visits`). The files of pages that are gone or refused are removed, and those of a page under another
name: the URL in a file says which page it is of.

The file `.exported.json` in the folder of the results (`crawler.sinks.made`) says how these were made, so that a result is
kept only if the same export would make it again. It is written after outdated results were removed and before new ones are
made, so an interrupted export leaves no result that it describes wrongly.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from threading import Thread
from typing import Literal, NamedTuple, TypeVar

import msgspec

from crawler.errors import UserError, reason_of
from crawler.logs import configure
from crawler.page import NO_CONTENT, UNREADABLE, Content, Page, TextForm
from crawler.parse.text import content_of, has_content
from crawler.sinks.compression import READ_SUFFIXES
from crawler.sinks.files import (
    LINES,
    OPEN_SUFFIX,
    PARQUET,
    check_output_folder,
    finished_path,
    is_open,
    locked,
    open_and_finished,
    open_path,
    remove_left_over,
    scratch_file,
    scratch_folder,
)
from crawler.sinks.last_visits import LastVisits, ResponseKey, add_lines, is_inconclusive, unlinked, visits_in
from crawler.sinks.lines import PageLines, Row, iso_time, lost_from, lost_lines
from crawler.sinks.made import Made, check_replaceable, made_in, record, write
from crawler.sinks.markdown_files import draft, remove_others, with_relative_links, write_changed
from crawler.sinks.near_duplicates import Likeness
from crawler.sinks.parquet import parquet_path, require_pyarrow, write_parquet
from crawler.sinks.reader import BrokenFraming, NoRow, Unread, has_body, read_rows, report

Form = Literal["jsonl", "parquet", "markdown", "wacz"]

_CUT = ".cut"


class ExportSettings(msgspec.Struct, frozen=True):
    """`out`: folder of the results. `text`, `structured`, `links`, `simhash`: as in `ArchiveSettings`. `usage`: leave
    out pages whose owner refuses one of these uses at the last visit. `skip_noindex`: make no Markdown of pages that
    say noindex; `skip_unlinked`: nor of those to which nothing links any more. `since`: leave out what was fetched
    before, in seconds since 1970. `finder`: yields what puts items into the pages of a file; `rules`: a digest of its
    settings; `may_keep`: with the same options, it finds the same items."""

    out: Path
    form: Form = "jsonl"
    text: TextForm = "off"
    structured: bool = False
    links: bool = True
    simhash: bool = False
    usage: frozenset[str] = frozenset()
    skip_noindex: bool = False
    skip_unlinked: bool = False
    since: float = 0.0
    finder: Callable[[], AbstractContextManager[Callable[[Page], Page]]] | None = None
    rules: str = ""
    may_keep: bool = True

    def options(self, refused: Iterable[str] = ()) -> dict[str, str]:
        """What the content of a file depends on, by option. `refused`: the URLs in it whose owners refuse the use."""
        last_word = blake2b("\n".join(sorted(refused)).encode(), digest_size=8).hexdigest() if refused else ""
        return {
            **({"--since": iso_time(self.since)} if self.since else {}),
            **({"--settings": self.rules} if self.rules else {}),
            **({"last word of owners": last_word} if last_word else {}),
            "--text": self.text,
            "--structured": "on" if self.structured else "off",
            "--links": "on" if self.links else "off",
            "--simhash": "on" if self.simhash else "off",
            **({"--usage": ", ".join(sorted(self.usage))} if self.usage else {}),
        }


class Exported(msgspec.Struct):
    """The result of an export. `rows`: written rows, or Markdown files. Pages without a Markdown file: `textless`
    ones, `unindexed` because they say noindex, `gone` at their last visit, and `missing`, whose response
    is in none of the WARC files. `removed`: files of earlier exports, and those under other names. `files`: the
    Markdown files by the URLs of the pages that were read, None for those without one. `kept`: WARC files that were
    exported before with the same options. `refused`: what was left out because of `ExportSettings.usage`. `unrecorded`:
    other responses without a metadata record, so that the preferences in robots.txt are unknown. `rowless`: valid records
    without a row, by why and what they are: how many, and the URL of the first. By WARC file: `unread` records, `broken`
    if it could not be read to the end, and `lineless` with pages that have no JSON line."""

    rows: int = 0
    textless: int = 0
    kept: int = 0
    refused: int = 0
    unrecorded: int = 0
    gone: int = 0
    missing: int = 0
    removed: int = 0
    unindexed: int = 0
    files: dict[str, Path | None] = {}
    rowless: dict[tuple[str, str], tuple[int, str]] = {}
    unread: dict[Path, Unread] = {}
    broken: dict[Path, str] = {}
    lineless: dict[Path, str] = {}

    def add(self, other: Exported) -> None:
        for name in ("rows", "textless", "kept", "refused", "unrecorded", "gone", "removed", "unindexed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, (number, url) in other.rowless.items():
            self._count_rowless(kind, number, url)
        self.files |= other.files
        self.unread |= other.unread
        self.broken |= other.broken
        self.lineless |= other.lineless

    def _count_rowless(self, kind: tuple[str, str], number: int, url: str) -> None:
        before, first = self.rowless.get(kind, (0, url))
        self.rowless[kind] = before + number, first

    def selected(self, path: Path, settings: ExportSettings, refused: Collection[str] = ()) -> Iterator[Row]:
        """The rows at `path` without those `refused` or before `settings.since`, which are counted."""

        def on_unread(url: str, error: Exception) -> None:
            if isinstance(error, NoRow):
                self._count_rowless((str(error), error.kind), 1, url)
            else:
                self.unread.setdefault(path, Unread()).add(url, error)

        pages = 0
        try:
            for row in read_rows(path, on_unread):
                pages += row.columns.get("outcome") is not None  # from the metadata record of a page of this crawler
                status = row.page.exchange.status if row.page.exchange else 0
                if row.page.url in refused or (row.page.usage.refusal(settings.usage) and is_inconclusive(status)):
                    self.refused += 1
                elif not settings.since or (row.page.exchange and row.page.exchange.started_at >= settings.since):
                    # The depth is in each metadata record of this crawler.
                    self.unrecorded += bool(settings.usage) and row.columns.get("depth") is None
                    yield row
            if lost := lost_from(path):
                self.broken[path] = lost
            elif lost := lost_lines(path, pages):
                self.lineless[path] = lost
        except (BrokenFraming, OSError) as error:  # others are exported all the same
            self.broken[path] = "; ".join(filter(None, (reason_of(error, path), lost_from(path))))


def warc_files(paths: Sequence[Path]) -> list[Path]:
    """The WARC files among `paths` and in folders among them, open ones included. Raises UserError if there are none."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += open_and_finished(path, READ_SUFFIXES)
        elif path.is_file() or open_path(path).is_file():
            found.append(path if path.is_file() else open_path(path))
        else:
            raise UserError(f"{path}: no such file or folder")
    if not found:
        raise UserError(f"no WARC file in {', '.join(map(str, paths))}")
    return found


class Plan(NamedTuple):
    """What to take of a WARC file: `pages`, the URLs of pages by the response with their body; and what is `refused`.
    `is_cut`: a part of the file cannot be read, which is reported."""

    pages: Mapping[ResponseKey, Sequence[str]]
    refused: frozenset[str]
    is_cut: bool = False


def planned(
    files: Sequence[Path], settings: ExportSettings, processes: int, lines: Sequence[Path]
) -> tuple[LastVisits, dict[Path, Plan]]:
    """What the last visits in `files` and in the `lines` of their crawls say, and what to take of each file therefore."""
    visits = LastVisits()
    if settings.form != "markdown" and not settings.usage:
        return visits, {path: Plan({}, frozenset()) for path in files}
    found = in_processes(partial(visits_in, settings.usage), files, processes, lambda path: None)
    for one in found:
        visits.update(one)
    add_lines(visits, lines, settings.usage)
    if settings.skip_unlinked:
        visits.leave_out(unlinked(lines))
    pages: dict[str, dict[float, list[str]]] = {}  # URL and time of a response -> the pages with its body
    for url in visits.urls(settings.since) if settings.form == "markdown" else ():
        if body := visits.body_of(url):
            pages.setdefault(body.url, {}).setdefault(body.at, []).append(url)
    return visits, {
        path: Plan(
            {ResponseKey(url, at): names for url in one.with_bodies() for at, names in pages.get(url, {}).items()},
            frozenset(filter(visits.is_refused, one.urls())) if settings.usage else frozenset(),
            one.is_cut,
        )
        for path, one in zip(files, found, strict=True)
    }


def export(
    files: Sequence[Path],
    settings: ExportSettings,
    processes: int,
    on_done: Callable[[Path], None],
    lines: Sequence[Path] = (),
) -> Exported:
    """Export `files`, and call `on_done` with each finished one. Files that were exported with the same options are kept,
    and those with other options are replaced. `lines`: the files with the lines of the pages of the same crawls, which say
    what was denied.

    Raises UserError for a file that cannot be opened or written.
    """
    if settings.form == "parquet":
        require_pyarrow("--format parquet")
    check_output_folder(settings.out)
    total = Exported()
    visits, plans = planned(files, settings, processes, lines)
    try:
        settings.out.mkdir(parents=True, exist_ok=True)
        remove_left_over(settings.out)
        if settings.form != "markdown":
            claimed = _claimed(plans, settings)
            _prepare(settings, plans, claimed)
    except OSError as error:
        raise UserError(f"{settings.out}: {error.strerror}") from error
    if settings.form == "markdown":
        _export_markdown(files, settings, processes, on_done, plans, visits, total)
        return total
    try:
        for done in in_processes(partial(_export_file, settings), files, processes, on_done, plans):
            total.add(done)
    finally:
        with contextlib.suppress(OSError):
            record(settings.out, {path.name: made for path, made in claimed.items()})
    return total


def _export_markdown(
    files: Sequence[Path],
    settings: ExportSettings,
    processes: int,
    on_done: Callable[[Path], None],
    plans: Mapping[Path, Plan],
    visits: LastVisits,
    total: Exported,
) -> None:
    """Write the Markdown files of `plans`, and remove others of the `visits`. Counts them in `total`. Raises UserError."""
    out, bodies = settings.out, {url: visits.body_of(url) for url in visits.urls(settings.since)}
    try:
        for folder in filter(Path.is_dir, out.iterdir()):
            remove_left_over(folder)
        with scratch_folder(out, ".drafts-") as drafts:
            for done in in_processes(partial(_draft_pages, settings, drafts), files, processes, on_done, plans):
                total.add(done)
            if settings.skip_noindex:
                _leave_out_noindex(total, visits)
            missing = {url for url, body in bodies.items() if body is not None and url not in total.files}
            files_of_pages = {url: path for url, path in total.files.items() if path is not None}
            total.rows = len(files_of_pages)
            kept, total.removed = remove_others(out, bodies.keys() - missing, files_of_pages)
            known = kept | files_of_pages
            for path in files_of_pages.values():
                text = (drafts / path.stem).read_text(encoding="utf-8")
                write_changed(path, with_relative_links(text, path, known))
    except OSError as error:
        raise UserError(f"{out}: {reason_of(error, out)}") from error
    total.refused = sum(map(visits.is_refused, bodies))
    total.gone = sum(body is None for body in bodies.values()) - total.refused
    total.missing = sum(body.at >= settings.since for url in missing if (body := bodies[url]))


def _leave_out_noindex(total: Exported, visits: LastVisits) -> None:
    """Make no file of pages of which the last response says noindex, but not the one with their body."""
    for url in [url for url, path in total.files.items() if path is not None and visits.is_noindex(url)]:
        total.files[url] = None
        total.unindexed += 1


def _draft_pages(settings: ExportSettings, drafts: Path, path: Path, plan: Plan) -> Exported:
    """Write drafts of the pages whose bodies are in the WARC file at `path`. Raises OSError."""
    done = Exported()
    for row in done.selected(path, settings) if plan.pages or plan.is_cut else ():
        assert row.page.exchange is not None
        for url in plan.pages.get(ResponseKey(row.page.url, row.page.exchange.started_at), ()):
            done.files[url] = None
            if settings.skip_noindex and row.page.noindex:
                done.unindexed += 1
                continue
            page, written = msgspec.structs.replace(row.page, url=url), None
            try:
                written = draft(page, row.columns.get("visit") or "", drafts, settings.out)
            except OSError:
                raise
            except Exception as error:  # pages contain what sites sent
                report(url, error)
            if written is None:
                done.textless += has_content(page, False)  # others, such as style sheets, have no text
            else:
                done.files[url] = written
    return done


def _claimed(plans: Mapping[Path, Plan], settings: ExportSettings) -> dict[Path, Made]:
    """Return the results that there may be, and how they are made. Raises UserError for two with one name."""
    claimed: dict[Path, Made] = {}
    for path, plan in plans.items():
        size = 0 if is_open(path) else path.stat().st_size
        made = Made(_source(path), size, settings.options(plan.refused))
        for is_broken in (False, True):
            other = claimed.setdefault(_result(path, settings, is_broken), made)
            if other.source != made.source:
                raise UserError(
                    f"{other.source} and {made.source} have the same name: export them to two folders, with --out"
                    if _stem(Path(other.source)) == _stem(Path(made.source))
                    else f"the results of {other.source} and {made.source} may have the same name: export them to two "
                    "folders, with --out"
                )
    return claimed


def _source(path: Path) -> str:
    return str(finished_path(path.resolve()))


def _result(path: Path, settings: ExportSettings, is_broken: bool = False) -> Path:
    state = OPEN_SUFFIX if is_open(path) else _CUT if is_broken else ""
    lines = settings.out / f"{_stem(path)}{state}{LINES}"
    return parquet_path(lines) if settings.form == "parquet" else lines


def _stem(path: Path) -> str:
    return path.name.partition(".warc")[0]


def _export_file(settings: ExportSettings, path: Path, plan: Plan) -> Exported:
    """Export one WARC file, unless its result exists. Raises OSError."""
    done = Exported()
    result = _result(path, settings)
    if not is_open(path) and result.exists() and not lost_from(path):
        return Exported(kept=1)
    with scratch_file(result.with_name(f"{result.name}.lines")) as scratch:
        with scratch.open("wb") as file:
            file.writelines(encoded(path, settings, done, plan.refused))
        if done.broken or done.unread or done.lineless:  # each further export reports it again
            result.unlink(missing_ok=True)
            result = _result(path, settings, is_broken=True)
        if settings.since and not done.rows:
            pass  # a file for each WARC file of years would be empty
        elif settings.form == "parquet":
            write_parquet(scratch, result)
        else:
            scratch.rename(result)
    return done


def encoded(path: Path, settings: ExportSettings, done: Exported, refused: Collection[str] = ()) -> Iterator[bytes]:
    """The JSON lines of the rows of the WARC file at `path`. Counts them in `done`. Raises OSError.

    If part of a record cannot be processed, its line has the cut `defect`, and the error is logged.
    """
    lines = PageLines(settings.links, "")
    likeness = Likeness("off", "off", simhash=settings.simhash)
    with settings.finder() if settings.finder else contextlib.nullcontext() as with_items:
        for row in done.selected(path, settings, refused):
            if with_items is not None and has_body(row):
                row = row._replace(page=with_items(row.page))
            content = _content(row.page, settings, likeness) if has_body(row) else NO_CONTENT
            done.rows += 1
            yield lines.encode(row._replace(content=content), report)


def _content(page: Page, settings: ExportSettings, likeness: Likeness) -> Content:
    try:
        content = content_of(page, settings.text, settings.structured, settings.simhash)
        return likeness.judge(page, content) if content.is_judged else content
    except Exception as error:  # pages contain what sites sent
        report(page.url, error)
        return UNREADABLE


def _prepare(settings: ExportSettings, files: Iterable[Path], claimed: Mapping[Path, Made]) -> None:
    """Remove the results of finished `files` that are not as in `claimed` (result -> how it is made), and those of when
    they were open or cut. Record that all of `claimed` will be there.

    Raises UserError, without having removed anything, if a result belongs to another WARC file, or is no export, as the
    lines of a crawl in its own folder; and OSError.
    """
    with locked(settings.out):
        known = made_in(settings.out)
        for path, made in claimed.items():
            check_replaceable(path, made.source, known)
        for file in files:
            if is_open(file):
                continue
            for early in (f"{_stem(file)}{state}{end}" for state in (OPEN_SUFFIX, _CUT) for end in (LINES, PARQUET)):
                if early in known and known[early].source == _source(file):
                    (settings.out / early).unlink(missing_ok=True)  # its rows are among those of the finished file
            result = _result(file, settings)
            made, before = claimed[result], known.get(result.name)
            if before is not None and result.exists() and (before != made or not settings.may_keep):
                result.unlink()
        known = {name: made for name, made in known.items() if (settings.out / name).exists()}
        write(settings.out, known | {path.name: made for path, made in claimed.items()})


T = TypeVar("T")


def in_processes(
    work: Callable[..., T],
    files: Sequence[Path],
    processes: int,
    on_done: Callable[[Path], None],
    also: Mapping[Path, object] | None = None,
) -> list[T]:
    """The results of `work` for each of `files`, and for what is `also` given for it, in their order, from at most this
    many processes. Calls `on_done` with each finished file. Raises UserError for a file for which `work` raises OSError or
    BrokenFraming."""
    with shared_work(max(1, min(processes, len(files)))) as pool:
        running = {pool.submit(work, path, *([also[path]] if also else [])): path for path in files}
        for future in as_completed(running):
            path = running[future]
            try:
                future.result()
            except (OSError, BrokenFraming) as error:
                pool.shutdown(cancel_futures=True)
                raise UserError(f"{path}: {reason_of(error, path)}") from error
            on_done(path)
    return [future.result() for future in running]


@contextlib.contextmanager
def shared_work(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Yield an executor of this many processes. Raises UserError if one of them cannot be started, or is killed."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"  # or new interpreters would import from the working directory
    try:
        with ProcessPoolExecutor(processes, initializer=_end_with_parent) as pool:
            try:
                pool.submit(os.getpid)  # starts the processes
            except OSError as error:
                raise UserError(f"no process can be started for this command: {error.strerror}") from error
            yield pool
    except BrokenProcessPool as error:
        raise UserError(
            "a process of this command was killed, perhaps for lack of memory: repeat the command, with fewer --processes"
        ) from error
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def _end_with_parent() -> None:
    """End with the parent: a process holds both ends of the pipe from which it reads, and would wait forever."""
    configure("console", "warning")
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, name="parent", daemon=True).start()
