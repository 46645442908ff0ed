"""From WARC files, of this crawler or another's, to rows: the pages table once more, with other columns, or Markdown files.

One row for each response record and for each revisit record; robots.txt files are left out. Each WARC file becomes one
file of rows of the same name, made whole or not at all, so the work goes to as many processes as there are files, and a
second run goes on where the first one stopped.
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
from crawler.parse.document import Document, ParsedDocument, ParseLimits, read
from crawler.parse.encoding import MediaType
from crawler.parse.html import Extracted, ExtractPolicy
from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.content import MAX_DECODED, UNREADABLE, Content, TextForm, content_of
from crawler.sinks.near_duplicates import Likeness
from crawler.sinks.pages import PageLines, Place, Row, minimal_row
from crawler.sinks.parquet import parquet_path, require_pyarrow, write_parquet
from crawler.sinks.times import iso_time
from crawler.sinks.warc_reader import BrokenFraming, Head, dechunked, read_head, records_in
from frontier.errors import BadUrl
from frontier.urls import canonicalize

Form = Literal["jsonl", "parquet", "markdown"]

_LIMITS = ParseLimits(ExtractPolicy(obey_nofollow=False), MAX_DECODED)
_SLUG = re.compile(r"[^A-Za-z0-9._-]+")


class ExportSettings(msgspec.Struct, frozen=True):
    """`out`: folder of the results. `text`, `structured`, `links`, `simhash`: columns, as in `ArchiveSettings`."""

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
    """Export `files`; `on_done` is told of each with its number of rows. Returns the number of all rows.

    Raises UserError for a file that cannot be read or written; what was finished before stays.
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
    """Export one WARC file; returns the number of rows. Raises OSError and BrokenFraming."""
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
        yield lines.encode(row._replace(content=_content(row.page, settings, likeness)), _tell_of)


def _content(page: Page, settings: ExportSettings, likeness: Likeness) -> Content:
    try:
        content = content_of(page, settings.text, settings.structured, settings.simhash)
        return likeness.judge(page, content) if content.is_judged else content
    except Exception as error:  # what a page holds was written by a site
        _tell_of(page.url, error)
        return UNREADABLE


def _tell_of(url: str, error: Exception) -> None:
    log(logging.WARNING, "record_not_exported", url=url, error=error)


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of the WARC file at `path`. Raises OSError and BrokenFraming."""
    found: Row | None = None
    start = 0
    for record in records_in(str(path)):
        # A record's length is known when the next one begins.
        if found is not None:
            yield _placed(found, path, start, record.stream_pos)
        start, found = record.stream_pos, _row(record)
    if found is not None:
        yield _placed(found, path, start, path.stat().st_size)


def _placed(row: Row, path: Path, start: int, end: int) -> Row:
    return row._replace(place=Place(path.name, start, end - start))


def _row(record: WarcRecord) -> Row | None:
    """The row of `record`, None if it has none. One whose page cannot be read is marked as cut by a defect."""
    if record.record_type not in (WarcRecordType.response, WarcRecordType.revisit):
        return None
    headers = record.headers
    try:
        url = canonicalize(headers.get("WARC-Target-URI") or "", None)
    except BadUrl:
        return None
    read = read_head(record)
    if read is None or urlsplit(url.href).path == "/robots.txt":
        return None
    http, start_of_body = read
    at = record.record_date.timestamp() if record.record_date else 0.0
    exchange = Exchange(
        url=url.href,
        status=http.status,
        reason="",
        headers=http.fields,
        request_head=b"",
        response_head=b"",
        body=_body(http, start_of_body + record.reader.read()),
        address=headers.get("WARC-IP-Address") or "",
        started_at=at,
        elapsed=0.0,
        first_byte=0.0,
        truncated=headers.get("WARC-Truncated") if record.record_type == WarcRecordType.response else None,
    )
    digest = headers.get("WARC-Payload-Digest") or ""
    try:
        return Row(_page(exchange, url.domain, at), digest)
    except Exception as error:  # what a page holds was written by a site
        _tell_of(url.href, error)
        return minimal_row(Row(_page_of(exchange, url.domain, at, ParsedDocument(Extracted(), {}, 0)), digest))


def _body(http: Head, stored: bytes) -> bytes:
    """What is `stored` without its transfer coding, which archives of others may keep."""
    if http.get_list(b"transfer-encoding").strip().lower() != "chunked":
        return stored
    try:
        return dechunked(stored)
    except ValueError:  # a coding that the stored body does not have, or that is broken
        return b""


def _page(exchange: Exchange, domain: str, at: float) -> Page:
    document = Document(
        exchange.body, exchange.url, _list(exchange, b"content-encoding"), _list(exchange, b"content-type")
    )
    return _page_of(exchange, domain, at, read(document, _LIMITS))


def _list(exchange: Exchange, name: bytes) -> str:
    return (exchange.header_list(name) or b"").decode("latin-1")


def _page_of(exchange: Exchange, domain: str, at: float, document: ParsedDocument) -> Page:
    found = document.found
    return Page(
        url=exchange.url,
        domain=domain,
        depth=0,
        outcome=Outcome.DONE,
        reason="exported",
        settled_at=at,
        exchange=exchange,
        content_type=MediaType.parse(_list(exchange, b"content-type")).essence,
        charset=found.charset,
        title=found.title,
        lang=found.lang,
        canonical=found.canonical,
        links=found.links,
        decoded_size=document.decoded_size,
        cut=(cast(Cut, exchange.truncated), *document.cut) if exchange.truncated else document.cut,
    )


def _write_markdown(page: Page, out: Path) -> int:
    """Write the Markdown file of `page`, `<domain>/<path>-<hash>.md`; returns how many were written: 1 or 0."""
    try:
        markdown = content_of(page, "markdown", structured=False).markdown
    except Exception as error:  # what a page holds was written by a site
        _tell_of(page.url, error)
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
