"""Rows and Markdown files from WARC files of this crawler and others."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from typer.testing import CliRunner

from crawler.cli.main import app
from crawler.errors import UserError
from crawler.sinks.archive import Archive
from crawler.sinks.content import MAX_DECODED
from crawler.sinks.export import ExportSettings, export, warc_files
from tests.sinks import readers
from tests.sinks.test_content import HTML
from tests.sinks.values import exchange, page, settings

COMMON = ("url", "domain", "status", "content_type", "size", "digest", "truncated", "warc", "text", "description")


@pytest.fixture
async def crawl(tmp_path: Path) -> Path:
    """Two volumes: pages, a revisit, a robots.txt."""
    folder = tmp_path / "crawl"
    archive = Archive(settings(folder, max_bytes=1, text="text", metadata=True))
    await archive.start()
    known: dict[str, Any] = {"content_type": "text/html", "charset": "utf-8", "title": "", "links": ()}
    await archive.write([page(exchange("a/b?c", HTML), **known)], [exchange("robots.txt", b"User-agent: *")])
    await archive.write(
        [page(exchange("second", HTML + b"<p>more</p>"), **known), page(exchange("cut", b"x"), **known)]
    )
    await archive.stop()
    return folder


def ignored(path: Path, rows: int) -> None:
    """Ignore the report."""


def test_rows_are_those_that_the_crawl_wrote(crawl: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert export(warc_files([crawl]), ExportSettings(out, text="text"), 2, ignored) == 3
    pick = [[line[name] for name in COMMON] for line in readers.lines(crawl)]
    assert [[line[name] for name in COMMON] for line in readers.lines(out)] == pick
    assert readers.files(out, ".tmp") == []


def test_parquet(crawl: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(warc_files([crawl]), ExportSettings(out, "parquet"), 1, ignored)
    tables = [pq.read_table(path) for path in readers.files(out, ".parquet")]
    assert [table.column("url").to_pylist() for table in tables] == [
        ["https://site.test/a/b?c"],
        ["https://site.test/second", "https://site.test/cut"],
    ]
    assert readers.files(out, ".jsonl") == []


async def test_rows_say_why_part_of_a_page_is_missing(tmp_path: Path) -> None:
    many = b"".join(b"<a href=/%d>" % number for number in range(10_001))
    archive = Archive(settings(tmp_path / "crawl"))
    await archive.start()
    for name, body, *head in (
        ("whole", HTML),
        ("links", many),
        ("coding", gzip.compress(HTML)[:-9], b"Content-Encoding: gzip"),
        ("decoded", gzip.compress(bytes(MAX_DECODED + 1)), b"Content-Encoding: gzip"),
    ):
        await archive.write([page(exchange(name, body, *head))])
    await archive.write([page(exchange("time", HTML, truncated="time"))])
    await archive.write([page(exchange("again", many))])  # a revisit record, which has no body
    await archive.stop()
    files = warc_files([tmp_path / "crawl"])
    for form in ("jsonl", "parquet"):
        export(files, ExportSettings(tmp_path / "out", form), 1, ignored)
    cut = {"links": ["links"], "coding": ["coding"], "decoded": ["decoded"], "time": ["time"], "whole": [], "again": []}
    (table,) = [pq.read_table(path) for path in readers.files(tmp_path / "out", ".parquet")]
    rows = [*readers.lines(tmp_path / "out"), *table.to_pylist()]
    assert len(rows) == 2 * len(cut)
    assert {(row["url"][18:], *row["cut"]) for row in rows} == {(name, *why) for name, why in cut.items()}
    assert {row["truncated"] for row in rows if row["url"][18:] != "time"} == {None}


def test_a_second_run_goes_on_where_the_first_one_stopped(crawl: Path, tmp_path: Path) -> None:
    files, to = warc_files([crawl]), ExportSettings(tmp_path / "out")
    assert export(files[:1], to, 1, ignored) == 1
    assert export(files, to, 1, ignored) == 2


def test_markdown_files(crawl: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert export(warc_files([crawl]), ExportSettings(out, "markdown"), 1, ignored) == 2
    first, second = readers.files(out / "site.test")
    assert (first.name[:4], second.name[:7]) == ("a-b-", "second-")
    text = first.read_text()
    assert text.startswith(
        '---\nurl: https://site.test/a/b?c\ntitle: ""\nfetched: 2026-09-21T14:13:20.123Z\n---\n\n# A heading'
    )


def test_archives_of_others(tmp_path: Path) -> None:
    """Some crawlers store bodies in their transfer coding, others only keep the header."""
    file = tmp_path / "theirs.warc"
    bodies = {"a": b"3\r\n<p>\r\n2\r\nhi\r\n0\r\n\r\n", "b": b"<p>not chunked", "c": b"0\r\n\r\n"}
    file.write_bytes(b"".join(their_record(name, body) for name, body in bodies.items()))
    assert export([file], ExportSettings(tmp_path / "out"), 1, ignored) == 3
    assert [line["size"] for line in readers.lines(tmp_path / "out")] == [5, 0, 0]


def their_record(name: str, body: bytes) -> bytes:
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    return (
        b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.test/%b\r\n"
        b"WARC-Date: 2026-09-21T14:13:20Z\r\nContent-Type: application/http; msgtype=response\r\n"
        b"Content-Length: %d\r\n\r\n%b\r\n\r\n" % (name.encode(), len(block), block)
    )


def test_a_broken_file_is_told_of_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "broken.warc.gz"
    file.write_bytes(b"\x1f\x8b\x08 nothing of the sort")
    with pytest.raises(UserError, match=r"broken\.warc\.gz"):
        export([file], ExportSettings(tmp_path / "out"), 1, ignored)
    assert readers.files(tmp_path / "out") == []
    with pytest.raises(UserError, match="no finished WARC file"):
        warc_files([tmp_path / "out"])


def test_the_commands(crawl: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    (file, _) = readers.warc_files(crawl)
    printed = run(app, ["extract", str(file), "--text", "markdown"])
    assert printed.exit_code == 0
    assert msgspec.json.decode(printed.stdout_bytes)["markdown"].startswith("# A heading")
    exported = run(app, ["export", str(crawl), "--out", str(tmp_path / "out"), "--processes", "1"])
    assert exported.exit_code == 0
    assert "3 rows from 2 WARC files" in exported.output
