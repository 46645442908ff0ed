"""Converts WARC files, of this crawler or another, to rows like those of a crawl, or to Markdown files.

Each response and revisit record becomes a row, except those of robots.txt files. Each WARC file becomes one file of rows
with the same name, which is complete or does not exist. So files are converted in parallel, and a second run continues
where the first one stopped.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from hashlib import blake2b
from pathlib import Path
from typing import Literal, cast
from urllib.parse import urlsplit

import msgspec
from fastwarc.warc import WarcRecord, WarcRecordType

from crawler.errors import UserError
from crawler.logs import log
from crawler.page import Cut, Exchange, Outcome, Page
from crawler.parse.document import Document, ParseLimits, read
from crawler.parse.encoding import MediaType
from crawler.parse.html import ExtractPolicy
from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.content import MAX_DECODED, UNREADABLE, Content, TextForm, content_of
from crawler.sinks.near_duplicates import Likeness
from crawler.sinks.pages import PageLines, Place, Row
from crawler.sinks.parquet import parquet_path, require_pyarrow, write_parquet
from crawler.sinks.times import iso_time
from crawler.sinks.warc_reader import BrokenFraming, Head, dechunked, placed, read_head, records_in
from frontier.errors import BadUrl
from frontier.urls import canonicalize

Form = Literal["jsonl", "parquet", "markdown"]

_LIMITS = ParseLimits(ExtractPolicy(obey_nofollow=False), MAX_DECODED)
_SLUG = re.compile(r"[^A-Za-z0-9._-]+")


class ExportSettings(msgspec.Struct, frozen=True):
    """`out`: folder of the results. `text`, `structured`, `links`, `simhash`: as in `ArchiveSettings`."""

    out: Path
    form: Form = "jsonl"
    text: TextForm = "off"
    structured: bool = False
    links: bool = True
    simhash: bool = False


def warc_files(paths: Sequence[Path]) -> list[Path]:
    """The finished WARC files among `paths` and in the folders among them. Raises UserError if there are none."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(file for file in path.iterdir() if file.name.endswith((*WARC_SUFFIXES, ".warc")))
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(f"{path}: no such file or folder")
    if not found:
        raise UserError(f"no finished WARC file in {', '.join(map(str, paths))}")
    return found


def export(
    files: Sequence[Path], settings: ExportSettings, processes: int, on_done: Callable[[Path, int], None]
) -> int:
    """Export `files`. Calls `on_done` with each finished file and its number of rows. Returns the total number of rows.

    Raises UserError for a file that cannot be read or written. Files that are already finished are kept.
    """
    if settings.form == "parquet":
        require_pyarrow()
    settings.out.mkdir(parents=True, exist_ok=True)
    rows = 0
    with ProcessPoolExecutor(max(1, min(processes, len(files)))) as pool:
        running = {pool.submit(export_file, path, settings): path for path in files}
        for future in as_completed(running):
            path = running[future]
            try:
                count = future.result()
            except (OSError, BrokenFraming) as error:
                pool.shutdown(cancel_futures=True)
                raise UserError(f"{path}: {error}") from error
            rows += count
            on_done(path, count)
    return rows


def export_file(path: Path, settings: ExportSettings) -> int:
    """Export one WARC file. Returns the number of rows. Raises OSError and BrokenFraming."""
    if settings.form == "markdown":
        return sum(_write_markdown(row.page, settings.out) for row in read_rows(path))
    target = settings.out / (path.name.partition(".warc")[0] + ".pages.jsonl")
    final = parquet_path(target) if settings.form == "parquet" else target
    if final.exists():
        return 0
    scratch = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    rows = 0
    try:
        with scratch.open("wb") as file:
            for line in encoded(path, settings):
                file.write(line)
                rows += 1
        if settings.form == "parquet":
            write_parquet(scratch, final)
        else:
            scratch.rename(target)
    finally:
        scratch.unlink(missing_ok=True)
    return rows


def encoded(path: Path, settings: ExportSettings) -> Iterator[bytes]:
    """The JSON lines of the WARC file at `path`. Raises OSError and BrokenFraming.

    If part of a record cannot be processed, its line has the cut `defect`, and the error is logged.
    """
    lines = PageLines(settings.links, "")
    likeness = Likeness("off", "off", simhash=settings.simhash)
    for row in read_rows(path):
        yield lines.encode(row._replace(content=_content(row.page, settings, likeness)), _log_failure)


def _content(page: Page, settings: ExportSettings, likeness: Likeness) -> Content:
    try:
        content = content_of(page, settings.text, settings.structured, settings.simhash)
        return likeness.judge(page, content) if content.is_judged else content
    except Exception as error:  # pages contain what sites sent
        _log_failure(page.url, error)
        return UNREADABLE


def _log_failure(url: str, error: Exception) -> None:
    log(logging.WARNING, "record_not_exported", url=url, error=error)


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of the WARC file at `path`. Raises OSError and BrokenFraming."""
    for row, start, length in placed(records_in(str(path)), path.stat().st_size, _row):
        yield row._replace(place=Place(path.name, start, length))


def _row(record: WarcRecord) -> Row | None:
    """The row of `record`, or None if it has none."""
    if record.record_type not in (WarcRecordType.response, WarcRecordType.revisit):
        return None
    headers = record.headers
    try:
        url = canonicalize(headers.get("WARC-Target-URI") or "", None)
    except BadUrl:
        return None
    read_so_far = read_head(record)
    if read_so_far is None or urlsplit(url.href).path == "/robots.txt":
        return None
    http, start_of_body = read_so_far
    exchange = Exchange(
        url=url.href,
        status=http.status,
        reason="",
        headers=http.fields,
        request_head=b"",
        response_head=b"",
        body=_body(http, start_of_body + record.reader.read()),
        address=headers.get("WARC-IP-Address") or "",
        started_at=record.record_date.timestamp() if record.record_date else 0.0,
        elapsed=0.0,
        first_byte=0.0,
        truncated=headers.get("WARC-Truncated") if record.record_type == WarcRecordType.response else None,
    )
    page = Page(url.href, url.domain, 0, Outcome.DONE, "exported", exchange.started_at, exchange=exchange)
    try:
        page = _parsed(page, exchange, http)
    except Exception as error:  # pages contain what sites sent
        _log_failure(url.href, error)
        page = msgspec.structs.replace(page, cut=("defect",))
    return Row(page, headers.get("WARC-Payload-Digest") or "")


def _body(http: Head, stored: bytes) -> bytes:
    """The `stored` body without its transfer coding, which other crawlers may store."""
    if http.get_list(b"transfer-encoding").strip().lower() != "chunked":
        return stored
    try:
        return dechunked(stored)
    except ValueError:  # the body is not chunked, or incomplete
        return b""


def _parsed(page: Page, exchange: Exchange, http: Head) -> Page:
    content_type = http.get_list(b"content-type")
    document = read(Document(exchange.body, page.url, http.get_list(b"content-encoding"), content_type), _LIMITS)
    found = document.found
    return msgspec.structs.replace(
        page,
        content_type=MediaType.parse(content_type).essence,
        charset=found.charset,
        title=found.title,
        lang=found.lang,
        canonical=found.canonical,
        links=found.links,
        decoded_size=document.decoded_size,
        cut=(cast(Cut, exchange.truncated), *document.cut) if exchange.truncated else document.cut,
    )


def _write_markdown(page: Page, out: Path) -> int:
    """Write the Markdown file of `page`, `<domain>/<path>-<hash>.md`. Returns the number of files written: 1 or 0."""
    try:
        markdown = content_of(page, "markdown", structured=False).markdown
    except Exception as error:  # pages contain what sites sent
        _log_failure(page.url, error)
        return 0
    if markdown is None:
        return 0
    assert page.exchange is not None
    slug = _SLUG.sub("-", urlsplit(page.url).path).strip("-.")[:80] or "index"
    name = f"{slug}-{blake2b(page.url.encode(), digest_size=4).hexdigest()}.md"
    folder = out / _SLUG.sub("-", page.domain)
    folder.mkdir(parents=True, exist_ok=True)
    title = page.title.replace("\\", "\\\\").replace('"', '\\"')
    head = f'---\nurl: {page.url}\ntitle: "{title}"\nfetched: {iso_time(page.exchange.started_at)}\n---\n\n'
    (folder / name).write_text(head + markdown.rstrip() + "\n", encoding="utf-8", errors="replace")
    return 1
