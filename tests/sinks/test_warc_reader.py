"""Reading WARC files: nothing that a site sent may stop the reading."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from fastwarc.warc import WarcRecordType

from crawler.audit.check import audit
from crawler.audit.records import read_archive
from crawler.page import Exchange
from crawler.sinks.archive import Archive
from crawler.sinks.cdxj import index_path, lines_of
from crawler.sinks.compression import COMPRESSIONS
from crawler.sinks.export import ExportSettings, export, warc_files
from crawler.sinks.files import open_path
from crawler.sinks.reader import BrokenFraming, dechunked, read_head, records_in
from crawler.sinks.warc import WarcRecords
from tests.audit.test_check import RULES
from tests.sinks import readers
from tests.sinks.values import NOON, exchange, page, settings

HEADS = {
    "one line of 60 KB": b"X: " + b"a" * 60_000,
    "many lines": b"\r\n".join([b"X: " + b"a" * 100] * 570),
    "no line at all": b"X",
    "bytes beyond ASCII": b"X: \xff\xfe\xed\xa0\x80\0",
    "a coding that is folded into nothing": b" Transfer-Encoding: chunked",
    "a coding with a space": b"Transfer-Encoding : chunked",
    "a quoted coding": b'"Transfer-Encoding": chunked',
    "several lengths": b"Content-Length: 6, 6",
}


def odd(name: str) -> Exchange:
    return exchange("odd", b"<p>odd", HEADS[name])


@pytest.mark.parametrize("name", HEADS)
async def test_any_response_head_is_read_back(tmp_path: Path, name: str) -> None:
    """By the recovery of a dead writer's file with its index, by an audit and by an export."""
    archive = Archive(settings(tmp_path), wall=lambda: NOON)
    await archive.start()
    await archive.write([page(odd(name)), page(exchange("plain", b"<p>plain"))])
    await archive.stop()
    (file,) = readers.warc_files(tmp_path)
    whole = index_path(file).read_bytes()
    index_path(file).unlink()
    file.rename(open_path(file))
    following = Archive(settings(tmp_path, replica="next"))
    await following.start()
    await following.stop()
    assert index_path(file).read_bytes() == whole
    found = audit(read_archive(tmp_path), RULES)
    assert (found.requests, found.unread) == (2, 0)
    out = tmp_path / "out"
    assert export(warc_files([tmp_path]), ExportSettings(out), 1, lambda path: None).rows == 2
    assert [(line["status"], line["size"]) for line in readers.lines(out)] == [(200, 6), (200, 8)]


@pytest.mark.parametrize("name", HEADS)
def test_the_index_of_a_group_that_was_taken_back_in_part_is_made_of_any_head(name: str) -> None:
    record = WarcRecords(settings(Path())).exchange(odd(name)).response
    (line,) = lines_of(record, "x.warc.gz", 7)
    assert b'"status":"200"' in line
    assert b'"offset":"7"' in line


def test_a_record_that_cannot_be_understood_is_one_line_less(caplog: pytest.LogCaptureFixture) -> None:
    compress = COMPRESSIONS["gzip"].compress
    records = b"".join(compress(record(url)) for url in (b"http://a:b/", b"http://a.test/"))
    assert len(list(lines_of(records, "x.warc.gz", 0))) == 1
    assert [entry.message for entry in caplog.records] == ["record_not_indexed"]


def test_what_follows_broken_framing_has_no_lines(caplog: pytest.LogCaptureFixture) -> None:
    compress = COMPRESSIONS["gzip"].compress
    first, second = (compress(record(url)) for url in (b"http://a.test/1", b"http://a.test/2"))
    assert len(list(lines_of(first + second + b"junk" * 99, "x.warc.gz", 0))) == 1
    assert [entry.message for entry in caplog.records] == ["records_not_indexed"]
    with pytest.raises(BrokenFraming):
        list(records_in(io.BytesIO(first + b"junk" * 99)))


def test_an_audit_counts_what_it_cannot_read(tmp_path: Path) -> None:
    compress = COMPRESSIONS["gzip"].compress
    good, bad = record(b"http://a.test/"), record(b"http://a.test/", b"X-Crawler-Elapsed: soon\r\n")
    (tmp_path / "a.warc.gz").write_bytes(compress(bad) + compress(good) + b"junk" * 99)
    (tmp_path / "b.warc.gz").write_bytes(compress(record(b"")) + compress(good))
    (tmp_path / "a.pages.jsonl").write_bytes(b"\0\0\0\n")
    archive = read_archive(tmp_path)
    assert (len(archive.requests), archive.unread) == (2, 4)


def record(url: bytes, fields: bytes = b"") -> bytes:
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>text"
    return (
        b"WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: %b\r\nWARC-Date: 2026-09-21T14:13:20Z\r\n%b"
        b"Content-Type: application/http; msgtype=response\r\nContent-Length: %d\r\n\r\n%b\r\n\r\n"
    ) % (url, fields, len(block), block)


@pytest.mark.parametrize("size", [10, 16_383, 16_384, 40_000])
def test_head_and_body_are_parted_wherever_the_reading_stops(size: int) -> None:
    body = b"\r\n\r\n" * 9_000
    block = b"HTTP/1.1 200 OK\nX: %b\n\n%b" % (b"a" * size, body)
    whole = (
        b"WARC/1.1\r\nWARC-Type: response\r\nContent-Type: application/http; msgtype=response\r\n"
        b"Content-Length: %d\r\n\r\n%b\r\n\r\n" % (len(block), block)
    )
    found = next(records_in(io.BytesIO(whole), WarcRecordType.response))
    read = read_head(found)
    assert read is not None
    assert (read[0].get(b"x"), read[1] + found.reader.read()) == ("a" * size, body)


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\nTrailer: x\r\n\r\n", (b"abc", True)),
        (b"2\nab\n0\n\n", (b"ab", True)),
        (b"0\r\n\r\n", (b"", True)),
        (b"2\r\nab", (b"ab", False)),
        (b"2\r\nab\r\n9\r\nc", (b"abc", False)),
        (b"2\r\nab\r\nzz\r\nc", (b"ab", False)),
        (b"f" * 16 + b"\r\nab", (b"ab", False)),
        *(
            (plain, (plain, True))
            for plain in (b"", b"<p>", b"-1\r\n", b"zz\r\n", b"f" * 25 + b"\r\nab", b"1\r\nab\r\n0\r\n")
        ),
        *((plain, (plain, True)) for plain in (b"beef\nand bread", b"0\n1\n2", b"12", b"0")),
    ],
)
def test_a_body_is_read_with_or_without_the_chunked_coding_that_its_head_names(
    body: bytes, read: tuple[bytes, bool]
) -> None:
    assert dechunked(body) == read
