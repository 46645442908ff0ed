"""One JSON line for each settled URL: what a data set needs, and the place of its record in the WARC file.

Denied and dead URLs also get a line, with a null status if there was no response, so the data has the reasons of all
settled URLs. `PageLines` makes the lines. The functions after it find lines, and the files of one of several crawls that
share a folder. `SortedVisits` finds the known pages of a crawl for a repair: the last line of a page has the state of its
visits. The lines of a page may be in files of several replicas, in any order, and there may be more than fit in memory. So
a temporary database sorts them by URL and time.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from crawler.errors import UserError, reason_of
from crawler.page import NO_CONTENT, Content, Exchange, Page
from crawler.parse.structured import plain, readable
from crawler.scope.next_visit import Visits, visit_priority
from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.files import (
    LINES,
    PARQUET,
    file_name,
    finished_path,
    is_open,
    open_and_finished,
    open_either,
    open_path,
    volume_of,
)
from crawler.wording import count_of
from frontier.entries import Entry, tag_of
from frontier.known_pages import KnownPage

_url_of = attrgetter("url")

_PACKED = tuple(LINES + end for end in (".gz", ".zst", ".bz2", ".xz", ".lz4", ".zip"))


def iso_time(seconds: float, digits: int = 3) -> str:
    """`seconds` since 1970 in ISO 8601, in UTC, with at most six `digits` of the fraction. Rounded to microseconds as the
    states of visits are: a time that was stored has to be written the same again."""
    whole, micros = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_second(whole)}.{micros:06d}"[: 20 + digits] + "Z"


@lru_cache(maxsize=64)
def _second(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).isoformat()[:19]


IsoTime = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[0-9.]*Z$")]
"""A time as `iso_time` writes it. Other programs that copy lines may write others, which cannot be compared with it."""


class Place(msgspec.Struct, frozen=True):
    """The place of a page's response or revisit record, in bytes of the compressed file."""

    file: str
    offset: int
    length: int


def place_columns(place: Place | None) -> dict[str, Any]:
    """`place` as columns of a table: `warc_file`, `warc_offset` and `warc_length`, all None without a place."""
    return {f"warc_{name}": getattr(place, name, None) for name in Place.__struct_fields__}


class Line(msgspec.Struct, frozen=True):
    """A line. All fields are always present, and None becomes null; docs/reference/output.md describes them. In rows
    from WARC files, those of `outcome` to `replica` that the file does not contain are null.

    Times are UTC with milliseconds. `simhash`: 16 hexadecimal digits, because not all JSON readers support integers of
    64 bits. `cut`: why part of the page is missing (`crawler.page.Cut`); also `main` if the main text is less than half
    of the content, `text` if text and data after the first 4 MiB are missing, or took too long to extract, and `defect`
    if the line could not be written completely. `rejected_items`: those that were complete, as `RejectedLine`s, by the
    name of their data set.
    """

    url: str
    domain: str
    status: int | None
    outcome: str | None
    reason: str | None
    depth: int | None
    tries: int | None
    settled_at: str | None
    fetched_at: str | None
    elapsed_ms: int | None
    content_type: str
    charset: str | None
    title: str | None
    lang: str | None
    canonical: str | None
    size: int | None
    decoded_size: int | None
    digest: str | None
    truncated: str | None
    noarchive: bool | None
    noindex: bool | None
    link_count: int | None
    links: list[str] | None
    warc: Place | None
    replica: str | None
    description: str | None = None
    text: str | None = None
    markdown: str | None = None
    json_ld: list[Any] | None = None
    opengraph: dict[str, str] | None = None
    simhash: str | None = None
    near_of: str | None = None
    soft_404: bool | None = None
    cut: list[str] | None = []
    via: str | None = None
    usage: str | None = None
    usage_statements: list[str] = []
    tdm_policy: str | None = None
    licenses: list[str] | None = []
    visit: str | None = None
    previous_visit: str | None = None
    extra: Any = None  # already encoded; a dict when the line is read
    items: Any = None  # the same
    handler_error: str | None = None
    rejected: list[str] = []
    rejected_count: int = 0
    rejected_items: Any = None  # as `items`
    label: str | None = None
    payload: Any = None  # as `items`
    followed: Mapping[str, Sequence[str]] | None = None
    next_visit: str | None = None
    visit_state: str | None = None
    repaired: list[str] | None = []
    detail: str | None = None
    text_by: str | None = None
    published: str | None = None
    content_language: str | None = None
    last_modified: str | None = None
    rendered: str | None = None
    rendered_why: str | None = None
    render_ms: int | None = None
    resources: int | None = None
    refused: int | None = None


class RejectedLine(msgspec.Struct, frozen=True):
    """An item that was rejected because of what it has, and why."""

    reason: str
    item: msgspec.Raw


SHOWN = 20
"""Items in `Line.rejected`."""


class Row(NamedTuple):
    """What becomes a line. `digest`: of the body, empty without one; `extra`: fields from hooks, as JSON. `columns`: values
    that replace those from the page; None for unknown ones. `refers`: the URL and time of the response to which a revisit
    record refers."""

    page: Page
    digest: str = ""
    place: Place | None = None
    extra: msgspec.Raw | None = None
    content: Content = NO_CONTENT
    columns: Mapping[str, Any] = {}
    refers: tuple[str, float] | None = None


class PageLines:
    """Makes the lines of one replica, with the links of each page if `with_links`."""

    def __init__(self, with_links: bool, replica: str) -> None:
        self._with_links = with_links
        self._replica = replica
        self._encoder = msgspec.json.Encoder()

    def encode(self, row: Row, report: Callable[[str, Exception], None]) -> bytes:
        """Encode the line of `row`. If that raises, `report` is called with the URL and the error, and the line has no
        values from the site or from hooks, and the cut `defect`."""
        try:
            line = self._line(row)
            try:
                return self._encoder.encode(line) + b"\n"
            except (UnicodeEncodeError, OverflowError, RecursionError):
                # JSON-LD may contain lone surrogates, integers above 64 bits, and deeply nested values.
                fields = msgspec.structs.asdict(line).items()
                return self._encoder.encode(Line(**{name: plain(value) for name, value in fields})) + b"\n"
        except Exception as error:
            report(row.page.url, error)
            return self._encoder.encode(self._line(_minimal_row(row))) + b"\n"

    def _line(self, row: Row) -> Line:
        page, exchange, content = row.page, row.page.exchange, row.content
        line = Line(
            url=page.url,
            domain=page.domain,
            status=exchange.status if exchange else None,
            outcome=page.outcome,
            reason=page.reason,
            depth=page.depth,
            tries=page.tries,
            settled_at=iso_time(page.settled_at),
            fetched_at=iso_time(exchange.started_at) if exchange else None,
            elapsed_ms=round(exchange.elapsed * 1000) if exchange else None,
            content_type=page.content_type,
            charset=page.charset,
            title=page.title,
            lang=page.lang,
            canonical=page.canonical,
            size=len(exchange.body) if exchange else 0,
            decoded_size=page.decoded_size,
            digest=row.digest,
            truncated=exchange.truncated if exchange else None,
            noarchive=page.noarchive,
            noindex=page.noindex,
            link_count=len(page.links),
            links=list(map(_url_of, page.links)) if self._with_links else None,
            warc=row.place,
            replica=self._replica,
            description=content.description,
            text=content.text,
            markdown=content.markdown,
            json_ld=content.json_ld,
            opengraph=content.opengraph,
            simhash=None if content.simhash is None else f"{content.simhash:016x}",
            near_of=content.near_of,
            soft_404=content.soft_404,
            cut=[*page.cut, *content.cut],
            via=page.via or None,
            usage=str(page.usage) or None,
            usage_statements=list(page.usage.statements),
            tdm_policy=page.usage.tdm_policy or None,
            licenses=list(page.licenses),
            visit=page.visit or None,
            previous_visit=iso_time(page.previous_at) if page.previous_at else None,
            extra=row.extra,
            items=_by_name((item.name, msgspec.Raw(item.json)) for item in page.items),
            handler_error=page.handler_error or None,
            rejected=list(map(str, page.rejected[:SHOWN])),
            rejected_count=page.rejected_count,
            rejected_items=_by_name(
                (one.name, RejectedLine(str(one), msgspec.Raw(one.json))) for one in page.rejected if one.json
            ),
            label=page.label or None,
            payload=_payload(page.tag),
            followed=page.followed if self._with_links else None,
            next_visit=iso_time(page.next_at) if page.next_at else None,
            visit_state=page.visit_state or None,
            repaired=list(page.repaired),
            detail=page.detail or None,
            text_by=content.text_by,
            published=content.published,
            content_language=_header(exchange, b"content-language"),
            last_modified=_header(exchange, b"last-modified"),
        )
        if (rendered := page.rendered) is not None:
            line = msgspec.structs.replace(
                line,
                rendered=rendered.outcome,
                rendered_why=rendered.why,
                render_ms=round(rendered.elapsed * 1000),
                resources=rendered.requests,
                refused=sum(rendered.refused.values()),
            )
        return msgspec.structs.replace(line, **row.columns) if row.columns else line


def _by_name(items: Iterable[tuple[str, Any]]) -> msgspec.Raw | None:
    named: dict[str, list[Any]] = {}
    for name, item in items:
        named.setdefault(name, []).append(item)
    return msgspec.Raw(msgspec.json.encode(named)) if named else None


def _header(exchange: Exchange | None, name: bytes) -> str | None:
    value = exchange and exchange.header(name)
    return value.decode("latin-1") if value else None


def _payload(tag: str) -> msgspec.Raw | None:
    _, brace, text = tag.partition("{")
    return msgspec.Raw(f"{brace}{text}".encode()) if brace else None


def _minimal_row(row: Row) -> Row:
    """`row` without all values from the site or a hook, marked with the cut `defect`, for a line that cannot be encoded."""
    page = msgspec.structs.replace(
        row.page,
        content_type="",
        charset="",
        title="",
        lang="",
        canonical="",
        links=(),
        cut=("defect",),
        via="",
        detail="",
    )
    return Row(page, row.digest, row.place, columns=row.columns)


T = TypeVar("T")


def line_files(folder: Path) -> list[Path]:
    return open_and_finished(folder, (LINES,)) if folder.is_dir() else []


def check_unpacked(path: Path) -> None:
    """Raises UserError if `path`, or a file in this folder, has lines that somebody has compressed."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    if packed := [one for one in files if one.name.endswith(_PACKED)]:
        raise UserError(f"{packed[0]} is compressed, so its lines cannot be read: decompress it, or move it away")


def has_lines(folder: Path, crawl: str) -> bool:
    return any(is_of(path, crawl) for path in line_files(folder))


def is_of(path: Path, crawl: str) -> bool:
    """Whether the lines in the file `path` are of `crawl`. A file news-two-1 may be of the crawl news-two, or of the crawl
    news and a replica two-1: its first line says which. Without a line, its name counts."""
    if not path.name.startswith(f"{crawl}-"):
        return False
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        written = msgspec.json.decode(next(lines_in(path), b"{}"), type=_Written)
        return not written.replica or not is_of_another(path, written.replica, crawl)
    return True


class _Written(msgspec.Struct):
    """The field of a line that says which replica has written it."""

    replica: str = ""


def newest_line(folders: Iterable[Path], url: str, crawl: str) -> dict[str, object] | None:
    """The line of the canonical `url` in `folders` that `crawl` settled last, None if there is none. Folders may be
    missing. Raises UserError for a line that cannot be read."""
    start = b'{"url":' + msgspec.json.encode(url) + b","
    decoder = msgspec.json.Decoder(dict[str, object])
    paths = chain.from_iterable(map(line_files, folders))
    found = ((path, line) for path in paths for line in decoded_lines(path, decoder, start))
    lines = [line for path, line in found if not is_of_another(path, str(line.get("replica")), crawl)]
    return max(lines, key=lambda line: str(line.get("settled_at")), default=None)


def is_of_another(path: Path, replica: str, crawl: str) -> bool:
    """Whether the name of the file `path` says that the lines of `replica` in it are of another crawl than `crawl`."""
    named, is_named, _ = path.name.partition(file_name(f"-{replica}-"))
    return bool(is_named) and named != crawl


def decoded_lines(path: Path, decoder: msgspec.json.Decoder[T], start: bytes = b"") -> Iterator[T]:
    """The lines of the file `path` that begin with `start`, decoded. Raises UserError for one that cannot be read."""
    number = 0
    try:
        for line in lines_in(path):
            number += 1
            if line.startswith(start) and not line.isspace():
                yield decoder.decode(line)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        place = f"{path}:{number}" if isinstance(error, ValueError) else str(path)
        raise UserError(
            f"{place}: {reason_of(error, path)}: fix or delete the line, or move the file, then rerun"
        ) from error


def lines_in(path: Path) -> Iterator[bytes]:
    """The lines of the file `path`, the last one of an open file only if it is complete."""
    # Not mmap: a running replica may make an open file shorter.
    with open(open_either(path), "rb") as lines:  # noqa: PTH123 - a file descriptor
        for line in lines:
            if line.endswith(b"\n") or not is_open(path):
                yield readable(line)


class _Placed(msgspec.Struct):
    """The field of a line that says where the record of the page is."""

    warc: Place | None = None


def lost_records(lines: Path, warc: Path, size: int) -> int:
    """How many of the `lines` of a volume name records beyond the end of the WARC file `warc` of `size` bytes. The records
    are written first, so the file has lost its end: after a power failure, or because a copy of it was cut."""
    name = finished_path(warc).name
    return sum(place.file == name and place.offset + place.length > size for place in _places(lines))


def _places(lines: Path) -> Iterator[Place]:
    decoder = msgspec.json.Decoder(_Placed)
    for line in lines_in(lines):
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):  # others report such a line
            if place := decoder.decode(line).warc:
                yield place


def lost_from(warc: Path) -> str:
    """What is missing in the finished WARC file at `warc` according to the lines beside it, "" if nothing is."""
    lines = warc.with_name(volume_of(warc) + LINES)
    if is_open(warc) or not lines.is_file() or not (lost := lost_records(lines, warc, warc.stat().st_size)):
        return ""
    return f"{count_of(lost, 'record')} named in {lines.name} would be beyond its end: it was cut off"


def lost_lines(warc: Path, pages: int) -> str:
    """How many of the `pages` of this crawler in the finished WARC file at `warc` have no line in the file beside it, ""
    if all have one, or if their crawl writes none by its settings in the folder."""
    lines = warc.with_name(volume_of(warc) + LINES)
    if not pages or is_open(warc) or open_path(lines).exists():
        return ""
    if lines.is_file():
        missing = pages - sum(place.file == warc.name for place in _places(lines))
        return (
            f"{count_of(missing, 'page')} in it without a line in {lines.name}: it was cut off" if missing > 0 else ""
        )
    return f"{count_of(pages, 'page')} in it without a line: {lines.name} is lost" if _has_lines(warc) else ""


def _has_lines(warc: Path) -> bool:
    crawls = [crawl for crawl in _kept(warc.parent) if warc.name.startswith(f"{crawl}-")]
    if not crawls or warc.with_name(volume_of(warc) + PARQUET).exists():
        return False
    with contextlib.suppress(OSError, ValueError):
        settings = tomllib.loads(warc.with_name(max(crawls, key=len) + SETTINGS).read_text(encoding="utf-8"))
        return bool(settings.get("archive", {}).get("pages", True))
    return False


SETTINGS = ".settings.toml"
"""The end of the name of the file with the settings of a crawl."""


def crawls_in(folder: Path) -> set[str]:
    """The crawls that keep their settings in `folder`; of several, those with output there."""
    kept = _kept(folder)
    if len(kept) < 2:
        return kept
    return {_crawl_of(path, kept) for path in open_and_finished(folder, (*WARC_SUFFIXES, LINES))} - {""}


def files_of(folder: Path, suffixes: Iterable[str], crawl: str) -> list[Path]:
    """The files of `crawl` in `folder` with these `suffixes`, open ones included; if it is "", those of all."""
    found, crawls = open_and_finished(folder, suffixes), _kept(folder) | {crawl}
    return [path for path in found if _crawl_of(path, crawls) == crawl] if crawl else found


def _kept(folder: Path) -> set[str]:
    return {path.name.removesuffix(SETTINGS) for path in folder.glob(f"*{SETTINGS}")}


def _crawl_of(path: Path, crawls: Iterable[str]) -> str:
    """The one of `crawls` that has written the file `path`, by the lines of its volume; "" if it is none of them."""
    volume = volume_of(finished_path(path))
    lines = open_path(path.with_name(volume + LINES)) if volume else path
    return max((crawl for crawl in crawls if is_of(lines, crawl)), key=len, default="")


LAST_S = 2**32 - 1
"""The last time at which a visit can be due, in seconds since 1970."""


class VisitLine(msgspec.Struct):
    """The fields of a JSON line that say what page it is of, and when that is visited again."""

    url: str
    domain: str
    depth: int
    settled_at: str = ""
    via: str | None = None
    label: str | None = None
    payload: dict[str, Any] | None = None
    previous_visit: str | None = None
    next_visit: datetime | None = None
    visit_state: str | None = None

    @property
    def entry(self) -> Entry:
        """The entry of the page, without the state of its visits."""
        return Entry(self.url, self.domain, depth=self.depth, tag=tag_of(self.label or "", self.payload))


class _Visit(NamedTuple):
    """A visit as it is sorted. `due_s`: 0 if the page is not visited again."""

    url: str
    settled_at: str
    is_first: bool
    due_s: int
    state: str
    domain: str
    depth: int
    via: str
    tag: str

    @classmethod
    def of(cls, line: VisitLine) -> _Visit:
        due_s = min(int(line.next_visit.timestamp()), LAST_S) if line.next_visit else 0
        about = (line.domain, line.depth, line.via or "", line.entry.tag)
        return cls(line.url, line.settled_at, line.previous_visit is None, due_s, line.visit_state or "", *about)


class SortedVisits:
    """Collects the lines of known pages, and tells their last visits. The database has an unnamed temporary file in the
    first of `folders`, the output folders, that can be written: a folder for temporary files may be small or in memory.
    Raises UserError if there is no room for it."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folder = next((folder for folder in folders if os.access(folder, os.W_OK)), Path(tempfile.gettempdir()))
        with self._translated(), tempfile.NamedTemporaryFile(dir=self._folder) as file:
            self._database = sqlite3.connect(file.name)
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.execute(
                f"CREATE TABLE visits ({', '.join(_Visit._fields)}, PRIMARY KEY (url, settled_at, is_first, due_s)) "
                "WITHOUT ROWID"
            )

    def add(self, lines: Iterable[VisitLine]) -> None:
        """Add `lines`, also those of pages that are not visited again."""
        visits = (_Visit.of(line) for line in lines if line.next_visit or line.previous_visit)
        values = ", ".join("?" * len(_Visit._fields))
        with self._translated():
            self._database.executemany(f"INSERT OR REPLACE INTO visits VALUES ({values})", visits)

    def pages(self) -> Iterator[KnownPage]:
        """The pages that are visited again, sorted by URL."""
        rows = self._database.execute("SELECT * FROM visits ORDER BY url, settled_at, is_first, due_s")
        for url, visits in groupby(map(_Visit._make, rows), lambda visit: visit.url):
            last = _last(visits)
            if last is not None:
                yield _known(url, last)

    def close(self) -> None:
        self._database.close()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.OperationalError) as error:
            raise UserError(
                f"{self._folder}: {error}: the visits of known pages are sorted there, so make room for about 300 bytes "
                "for each"
            ) from error


def _last(visits: Iterable[_Visit]) -> _Visit | None:
    """The one of `visits`, in their order, that Redis has stored. None if the page is not visited again."""
    last = None
    for visit in visits:
        if visit.is_first and last is not None:
            continue  # it was queued twice. The first visit of a page does not replace what later ones have found
        last = visit if visit.due_s else None
    return last


def _known(url: str, last: _Visit) -> KnownPage:
    try:
        Visits.parse(last.state)
    except ValueError as error:
        raise UserError(f"{url}: its last line has a visit_state that cannot be read: {last.state!r}") from error
    priority = visit_priority(last.due_s)
    entry = Entry(url, last.domain, priority, last.depth, via=last.via, visit=last.state, tag=last.tag)
    return KnownPage(last.due_s, entry)
