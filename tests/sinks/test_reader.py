"""Reading WARC files: nothing that a site sent may stop the reading, nor a file that is open, damaged or foreign."""

from __future__ import annotations

import gzip
import io
import os
import random
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import pytest
from click.testing import CliRunner
from fastwarc.warc import WarcRecordType

from crawler.audit.check import audit
from crawler.audit.records import read_archive
from crawler.cli.main import app
from crawler.errors import UserError
from crawler.page import Exchange
from crawler.sinks.archive import Archive
from crawler.sinks.cdxj import index_path, lines_of, surt_key
from crawler.sinks.compression import COMPRESSIONS, CompressionName
from crawler.sinks.export import ExportSettings, export, warc_files
from crawler.sinks.files import LINES, finished_path, open_and_finished, open_either, open_path
from crawler.sinks.forget import DomainRewriter
from crawler.sinks.lines import newest_line
from crawler.sinks.reader import MAX_DECODED, BrokenFraming, dechunked, read_head, read_rows, records_in
from crawler.sinks.warc import WarcRecords
from tests.audit.test_check import RULES
from tests.sinks import readers
from tests.sinks.test_export import ignored, their_record
from tests.sinks.test_recovery import durable_before_death
from tests.sinks.values import NOON, archived, archiving, exchange, page, settings
from tests.typed import Typed

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


async def index_of(folder: Path, found: Exchange) -> bytes:
    """The index of an archive with `found`, which is the same if it is made from the records after a death."""
    await archived(folder, [page(found), page(exchange("plain", b"<p>plain"))], wall=lambda: NOON)
    (file,) = readers.warc_files(folder)
    whole = index_path(file).read_bytes()
    index_path(file).unlink()
    file.rename(open_path(file))
    await archived(folder, replica="next")
    assert index_path(file).read_bytes() == whole
    return whole


@pytest.mark.parametrize("name", HEADS)
async def test_any_response_head_is_read_back(tmp_path: Path, name: str) -> None:
    """By the recovery of a dead writer's file with its index, by an audit and by an export."""
    await index_of(tmp_path, odd(name))
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


POSTS = {
    "form": (b"application/x-www-form-urlencoded", b"q=a+b&x=%C3%A9", "q=a b&x=\xe9"),
    "json": (b"application/json; charset=utf-8", b'{"a": [1, true], "b": {"a": 2.0, "c": null}}',
             "a=1&a.2_=true&a.3_=2&c=null"),
    "bytes": (b"application/octet-stream", b"\0\xff", "__wb_post_data=AP8="),
    "misnamed": (b"application/x-www-form-urlencoded", b"\xff", "__wb_post_data=/w=="),
}  # fmt: skip


def posted(name: str, body: bytes = b"<p>answer") -> Exchange:
    media, sent, _ = POSTS[name]
    head = b"POST /%b HTTP/1.1\r\nHost: site.test\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    head %= name.encode(), media, len(sent)
    return exchange(name, body, request_head=head, request_body=sent, method="POST")


@pytest.mark.parametrize("name", POSTS)
async def test_the_index_has_a_request_with_its_body(tmp_path: Path, name: str) -> None:
    """Also the index that is made from the records after a death."""
    whole = await index_of(tmp_path, posted(name))
    (line,) = [line for line in whole.splitlines() if b"__wb_method" in line]
    key, _, text = line.split(b" ", 2)
    fields = msgspec.json.decode(text)
    url = posted(name).url
    assert (fields["url"], fields["method"], fields["requestBody"]) == (url, "POST", POSTS[name][2])
    assert key.decode() == surt_key(f"{url}?__wb_method=POST&{POSTS[name][2]}")


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
    assert (len(archive.requests), audit(archive, RULES).unread) == (2, 4)


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


either = pytest.mark.parametrize("compression", COMPRESSIONS)


def type_words(*words: str) -> tuple[str, str]:
    """What a command writes to standard output and standard error."""
    done = CliRunner().invoke(app, [*words], catch_exceptions=False, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def exported(folder: Path, out: Path) -> tuple[list[str], str]:
    """The URLs that `crawler export` writes to `out`, and what it writes to standard error."""
    _, err = type_words("export", str(folder), "--out", str(out), "--processes", "1")
    return [str(line["url"]) for line in readers.lines(out)], err


@either
def test_the_files_of_a_killed_writer_are_read_by_all_commands(tmp_path: Path, compression: CompressionName) -> None:
    # Given the files of a killed process, with half a record and half a line at their ends,
    folder = tmp_path / "crawl"
    folder.mkdir()
    durable = durable_before_death(folder, compression, groups=random.Random(7).randint(3, 8))
    assert not readers.warc_files(folder)
    (warc,) = folder.glob("*.warc.*.open")
    (rows,) = folder.glob(f"*{LINES}.open")
    for path in (warc, rows):
        with path.open("ab") as file:
            file.write(path.read_bytes()[:150])
    # Then `export` and `extract` find all durable pages,
    urls, err = exported(folder, tmp_path / "out")
    assert durable <= set(urls)
    assert len(set(urls)) == len(urls)
    assert f"crawler finish {folder}" in err
    out, _ = type_words("extract", str(finished_path(warc)))
    found = [msgspec.json.decode(line) for line in out.splitlines()]
    assert [line["url"] for line in found] == urls
    # their places are those in the finished file,
    assert {line["warc"]["file"] for line in found} == {finished_path(warc).name}
    # an audit reads all of them and nothing else,
    judged = audit(read_archive(folder), RULES)
    assert (judged.requests, judged.unread) == (len(urls), 0)
    # and so does the search of `crawler why`.
    last = max(durable, key=lambda url: int(url.rpartition("/")[2]))
    line = newest_line([folder], last, settings(folder).crawl)
    assert line is not None
    assert line["url"] == last


async def test_what_was_exported_of_an_open_file_is_replaced_when_it_is_finished(tmp_path: Path) -> None:
    folder, out = tmp_path / "crawl", tmp_path / "out"
    async with archiving(folder) as archive:
        await archive.write([page(exchange("a", b"<p>a"))])
        assert exported(folder, out)[0] == ["https://site.test/a"]
        await archive.write([page(exchange("b", b"<p>b"))])
        both = ["https://site.test/a", "https://site.test/b"]
        assert exported(folder, out)[0] == both
    urls, err = exported(folder, out)
    assert urls == both
    assert "crawler finish" not in err
    assert [path.name for path in readers.files(out) if ".open" in path.name] == []


async def test_a_file_that_was_finished_after_it_was_listed_is_read(tmp_path: Path) -> None:
    async with archiving(tmp_path) as archive:
        await archive.write([page(exchange("a", b"<p>a"))])
        (warc,) = open_and_finished(tmp_path, (".warc.gz",))
        (rows,) = open_and_finished(tmp_path, (LINES,))
    assert [row.page.url for row in read_rows(warc)] == ["https://site.test/a"]
    fd = open_either(rows)
    assert os.pread(fd, 100, 0).startswith(b'{"url":"https://site.test/a"')
    os.close(fd)


def test_a_folder_without_warc_files_is_named(tmp_path: Path) -> None:
    for words in (["export", str(tmp_path)], ["extract", str(tmp_path)], ["audit", str(tmp_path / "none")]):
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, UserError)
        assert str(tmp_path) in str(done.exception)


NAMES = ("plain", "chunked", "gzip", "chunked,gzip")
RECORDING = """
import sys
from warcio.capture_http import capture_http
import urllib.request
with capture_http(sys.argv[1]):
    for url in sys.argv[2:]:
        urllib.request.urlopen(url).read()
"""


class _Handler(BaseHTTPRequestHandler):
    """Sends a page in the codings that its path names."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = f"<title>{self.path}</title><a href=/next>next</a>{'<p>text' * 300}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        if "gzip" in self.path:
            body = gzip.compress(body)
            self.send_header("Content-Encoding", "gzip")
        if "chunked" in self.path:
            self.send_header("Transfer-Encoding", "chunked")
            parts = [body[at : at + 40] for at in range(0, len(body), 40)]
            body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in [*parts, b""])
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def urls() -> Iterator[list[str]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield [f"http://127.0.0.1:{server.server_port}/{name}" for name in NAMES]
        server.shutdown()


def wget(folder: Path, urls: list[str], *options: str) -> Path:
    if shutil.which("wget") is None:
        if os.environ.get("CI"):
            raise RuntimeError("CI must install wget; see .ci/run")
        pytest.skip("needs wget")
    folder.mkdir(exist_ok=True)
    subprocess.run(["wget", "-q", "--no-config", "--warc-file=made", *options, *urls], cwd=folder, check=True)
    (made,) = [*folder.glob("made.warc*")]
    return made


def titles(out: Path) -> list[tuple[str | None, int | None]]:
    return [(line["title"], line["link_count"]) for line in readers.lines(out)]


@pytest.mark.parametrize("option", ["--warc-compression", "--no-warc-compression", "--compression=auto"])
def test_files_of_wget(urls: list[str], option: str, tmp_path: Path, typed: Typed) -> None:
    """Wget writes URLs in angle brackets."""
    made = wget(tmp_path / "wget", urls, *([] if option == "--warc-compression" else [option]))
    done = typed("export", str(made), "--out", "out")
    assert done.code == 0, done.err
    assert titles(tmp_path / "out") == [(f"/{name}", 1) for name in NAMES]
    assert "4 pages" in typed("export", str(tmp_path / "wget"), "--format", "wacz", "--out", "x.wacz").out
    if made.suffix == ".gz":
        assert "4 requests" in " ".join(typed("audit", str(made.parent), "--delay", "0").out.split())


def test_files_of_wget_with_revisit_records(urls: list[str], tmp_path: Path) -> None:
    wget(tmp_path / "first", urls, "--warc-cdx")
    again = wget(tmp_path / "again", urls, f"--warc-dedup={tmp_path / 'first' / 'made.cdx'}")
    assert export([again], ExportSettings(tmp_path / "out"), 1, ignored).rows == len(urls)
    assert {line["status"] for line in readers.lines(tmp_path / "out")} == {200}


def test_a_domain_is_forgotten_in_files_of_wget(urls: list[str], tmp_path: Path) -> None:
    made = wget(tmp_path / "wget", urls)
    rewriter = DomainRewriter(made.parent, "127.0.0.1")
    rewriter.rewrite()
    assert rewriter.result.records == 2 * len(urls)
    assert export([made], ExportSettings(tmp_path / "out"), 1, ignored).rows == 0


def test_files_of_warcio(urls: list[str], tmp_path: Path, typed: Typed) -> None:
    made = tmp_path / "made.warc.gz"
    subprocess.run([sys.executable, "-c", RECORDING, made, *urls], check=True)
    assert typed("export", str(made), "--out", "out").code == 0
    assert titles(tmp_path / "out") == [(f"/{name}", 1) for name in NAMES]


@pytest.fixture(params=["gzip", *(pytest.param(name, marks=pytest.mark.long) for name in ("zstd", "plain"))])
async def whole(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[bytes, str, list[int]]:
    """A WARC file, the end of its name, and where its records end."""
    if request.param == "plain":
        records = [their_record(name, b"<p>" + name.encode()) for name in "abc"]
        suffix = ".warc"
    else:
        await archived(
            tmp_path / "made",
            [page(exchange(name, b"<p>" + name.encode())) for name in "abc"],
            compression=request.param,
        )
        (file,) = readers.warc_files(tmp_path / "made")
        suffix = COMPRESSIONS[request.param].suffix
        data, records = file.read_bytes(), []
        while data:
            reader = COMPRESSIONS[request.param].reader()
            reader.decompress(data)
            records.append(data[: len(data) - len(reader.unused_data)])
            data = reader.unused_data
    ends = [sum(map(len, records[: number + 1])) for number in range(len(records))]
    return b"".join(records), suffix, ends


def test_a_file_that_was_cut_anywhere_is_exported_up_to_there_and_named(
    whole: tuple[bytes, str, list[int]], tmp_path: Path
) -> None:
    data, suffix, ends = whole
    file, out = tmp_path / f"x{suffix}", ExportSettings(tmp_path / "out")
    line_ends = 4 if suffix == ".warc" else 0  # without those after the last record, nothing is missing
    for at in (*range(1, ends[0], 97), *range(ends[-3], len(data) - line_ends, 13), *ends[:-1], len(data)):
        file.write_bytes(data[:at])
        done = export([file], out, 1, ignored)
        complete = max((end for end in ends if end - line_ends <= at), default=0)
        file.write_bytes(data[:complete])
        expected = export([file], ExportSettings(tmp_path / "expected"), 1, ignored)
        assert done.rows == expected.rows
        assert list(done.broken) == ([] if complete - line_ends <= at <= complete else [file])
        shutil.rmtree(tmp_path / "expected")
        shutil.rmtree(tmp_path / "out")


async def test_commands_name_files_that_were_cut_each_time_until_they_are_whole(tmp_path: Path, typed: Typed) -> None:
    archive = Archive(settings(tmp_path / "crawl"))
    await archive.start()
    await archive.write([page(exchange(name, b"<p>" + name.encode())) for name in "ab"])
    await archive.stop()
    (file,) = readers.warc_files(tmp_path / "crawl")
    data = file.read_bytes()
    file.write_bytes(data[:-5])
    for words in (
        ("export", "crawl", "--out", "out"),
        ("export", "crawl", "--out", "out"),
        ("export", "crawl", "--out", "tables", "--format", "parquet"),
        ("export", "crawl", "--out", "notes", "--format", "markdown"),
        ("export", "crawl", "--out", "x.wacz", "--format", "wacz"),
        ("extract", str(file)),
        ("audit", "crawl", "--delay", "0"),
    ):
        done = typed(*words)
        assert done.code == (1 if words[0] == "audit" else 2), words  # the archive breaks a rule, too
        assert file.name in done.err, words
    with pytest.raises(UserError, match=file.name):
        DomainRewriter(file.parent, "other.test").rewrite(is_dry=True)
    assert [path.name for path in readers.files(tmp_path / "out", ".jsonl")] == [
        file.name.replace(".warc.gz", ".cut.pages.jsonl")
    ]
    file.write_bytes(data)
    assert typed("export", "crawl", "--out", "out").code == 0
    assert [path.name for path in readers.files(tmp_path / "out", ".jsonl")] == [
        file.name.replace(".warc.gz", ".pages.jsonl")
    ]


def test_records_that_cannot_be_read_are_counted_and_others_are_exported(tmp_path: Path, typed: Typed) -> None:
    good, no_url = their_record("a", b"<p>a"), their_record("a", b"<p>a").replace(b"http://a.test/a", b"http://a:b/")
    no_http = good.replace(b"application/http; msgtype=response", b"text/html")
    of_dns = good.replace(b"http://a.test/a", b"dns:a.test")
    file = tmp_path / "theirs.warc"
    file.write_bytes(no_url + good + no_http + of_dns)
    for _ in range(2):  # the second time, too
        done = typed("export", str(file))
        assert done.code == 2
        assert "1 row from 1 WARC file" in done.out
        assert f"{file}: 2 records could not be read, the first http://a:b/" in " ".join(done.err.split())
    file.write_bytes(no_url)
    done = typed("export", str(file))
    assert done.code == 2
    assert "no page was exported: 1 record could not be read" in done.err
    file.write_bytes(of_dns)
    assert typed("export", str(file)).code == 0


@pytest.mark.parametrize("compress", [bytes, COMPRESSIONS["gzip"].compress])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"WARC/1.0\r\n", b"WARC/2.0\r\n"),
        (b"WARC/1.0\r\n", b"WARC/1.0\r\nX: " + b"a" * 40_000 + b"\r\n"),
        (b"\r\n\r\nHTTP", b"\n\nHTTP"),
    ],
    ids=["version", "long", "line ends"],
)
def test_all_records_before_a_head_that_cannot_be_read_are_exported(
    tmp_path: Path, typed: Typed, old: bytes, new: bytes, compress: Callable[[bytes], bytes]
) -> None:
    records = [their_record(name, b"<p>") for name in "abcd"]
    records[2] = records[2].replace(old, new)
    start = sum(len(compress(record)) for record in records[:2])
    (tmp_path / "theirs.warc").write_bytes(b"".join(map(compress, records)))
    done = typed("export", "theirs.warc")
    assert (done.code, done.out) == (2, "2 rows from 1 WARC file in export/\n")
    assert f" byte {start:,} of " in " ".join(done.err.split())
    places = [row["warc"]["offset"] + row["warc"]["length"] for row in readers.lines(tmp_path / "export")]
    assert places == [start // 2, start]


def test_records_without_a_row_are_counted(tmp_path: Path, typed: Typed) -> None:
    revisit = (
        b"WARC/1.1\r\nWARC-Type: revisit\r\nWARC-Target-URI: http://a.test/b\r\nWARC-Date: 2026-09-21T14:13:20Z\r\n"
        b"WARC-Profile: http://netpreserve.org/warc/1.1/revisit/identical-payload-digest\r\n"
        b"Content-Length: 0\r\n\r\n\r\n\r\n"
    )
    resource = revisit.replace(b"revisit\r\n", b"resource\r\n").replace(b"/b", b"/c")
    of_dns = their_record("a", b"").replace(b"http://a.test/a", b"dns:a.test")
    (tmp_path / "theirs.warc").write_bytes(their_record("a", b"<p>a") + revisit + of_dns + resource + of_dns)
    without = [
        "without a row, because neither http nor https: 2 response records, the first dns:a.test",
        "without a row, because without an HTTP head: 1 resource record, the first http://a.test/c",
        "without a row, because without an HTTP head: 1 revisit record, the first http://a.test/b",
    ]
    done = typed("export", "theirs.warc")
    assert (done.code, done.out.splitlines()) == (0, ["1 row from 1 WARC file in export/", *without])
    done = typed("extract", "theirs.warc")
    assert (done.code, done.err.splitlines()) == (0, [f"note: {line}" for line in without])
    assert typed("export", "theirs.warc", "--format", "wacz", "--out", "x.wacz").code == 0


def test_a_file_may_be_cut_and_have_records_that_cannot_be_read(tmp_path: Path, typed: Typed) -> None:
    no_url = their_record("a", b"<p>a").replace(b"http://a.test/a", b"http://a:b/")
    (tmp_path / "theirs.warc").write_bytes(their_record("a", b"<p>a") + no_url + no_url[:-9])
    done = typed("export", "theirs.warc")
    assert done.code == 2
    assert "theirs.warc: 1 record could not be read, the first http://a:b/" in done.err
    assert "theirs.warc: cut off or damaged" in done.err


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"PK\x03\x04" + bytes(99), "a ZIP or WACZ file: unpack it"),
        (b"\x5d\x2a\x4d\x18" + bytes(99), "compressed with zstd and a dictionary"),
        (b"filedesc://x.arc 0.0.0.0 20260921141320 text/plain 9\n", "an ARC file: convert it"),
        (gzip.compress(b"filedesc://x.arc 0.0.0.0 20260921141320 text/plain 9\n", mtime=0), "an ARC file: convert it"),
        (b"<!doctype html><p>a", "not a WARC file"),
        (gzip.compress(b"<!doctype html><p>a", mtime=0), "not a WARC file"),
        (gzip.compress(b"WARC/1.1", mtime=0)[:-9], "cut off or damaged: no complete record from byte 0"),
    ],
)
def test_other_files_are_named_as_what_they_are(tmp_path: Path, typed: Typed, data: bytes, kind: str) -> None:
    (tmp_path / "x.warc.gz").write_bytes(data)
    done = typed("export", "x.warc.gz")
    assert done.code == 2
    assert f"x.warc.gz: {kind}" in done.err


def test_fields_of_records_may_be_in_small_letters(tmp_path: Path, typed: Typed) -> None:
    record = their_record("a", b"<p>a").replace(b"\r\nContent-Type: application", b"\r\ncontent-type: Application", 1)
    (tmp_path / "theirs.warc").write_bytes(record)
    assert "1 row from 1 WARC file" in typed("export", "theirs.warc").out


BAD_DATES = (b"0001-01-01T00:00:00+14:00", b"9999-12-31T23:59:59.999999-12:00", b"soon")


@pytest.mark.parametrize("form", ["jsonl", "parquet", "markdown", "wacz"])
@pytest.mark.parametrize("date", BAD_DATES)
def test_a_date_of_others_that_cannot_be_read_is_unknown(tmp_path: Path, date: bytes, form: str, typed: Typed) -> None:
    good = their_record("b", b"<p>b")
    said = b"previous-visit: " + date + b"\r\n"
    metadata = (
        b"WARC/1.0\r\nWARC-Type: metadata\r\nWARC-Concurrent-To: <urn:x:a>\r\n"
        b"Content-Type: application/warc-fields\r\nContent-Length: %d\r\n\r\n%b\r\n\r\n" % (len(said), said)
    )
    bad = their_record("a", b"<p>a").replace(b"2026-09-21T14:13:20Z", date)
    (tmp_path / "theirs.warc").write_bytes(bad + metadata + good)
    assert typed("export", "theirs.warc", "--format", form, "--out", "out").code == 0
    if form == "jsonl":
        rows = [(row["url"], row["fetched_at"], row["previous_visit"]) for row in readers.lines(tmp_path / "out")]
        assert rows == [("http://a.test/a", None, None), ("http://a.test/b", "2026-09-21T14:13:20.000Z", None)]


DATES = {
    b"2014": "2014-01-01T00:00:00.000Z",
    b"2014-03": "2014-03-01T00:00:00.000Z",
    b"2014-03-04": "2014-03-04T00:00:00.000Z",
    b"2014-03-04T05:06Z": "2014-03-04T05:06:00.000Z",
    b"2014-03-04T05:06:07": "2014-03-04T05:06:07.000Z",
    b"20140304050607": "2014-03-04T05:06:07.000Z",
    b"2014-03-04T05:06:07.123456789Z": "2014-03-04T05:06:07.123Z",
}


def test_dates_may_have_any_precision_and_no_zone(tmp_path: Path, typed: Typed) -> None:
    """WARC 1.1 5.4. The index and Markdown files have the same date, and an audit reads it."""
    records = [their_record(str(n), b"<p>text").replace(b"2026-09-21T14:13:20Z", date) for n, date in enumerate(DATES)]
    (tmp_path / "theirs.warc").write_bytes(b"".join(records))
    assert typed("export", "theirs.warc").code == 0
    assert [row["fetched_at"] for row in readers.lines(tmp_path / "export")] == list(DATES.values())
    assert "could not be read" not in typed("audit", str(tmp_path)).err
    index = lines_of(b"".join(records), "theirs.warc", 0)
    digits = [re.sub(r"\D", "", date)[:14] for date in DATES.values()]
    assert [line.split()[1].decode()[:14] for line in index] == digits
    years = [their_record("a", b"<p>in " + year).replace(b"2026-09-21T14:13:20Z", year) for year in (b"2013", b"2012")]
    unknown = their_record("b", b"<p>text").replace(b"2026-09-21T14:13:20Z", b"soon")
    (tmp_path / "theirs.warc").write_bytes(b"".join([*years, unknown, unknown]))
    done = typed("export", "theirs.warc", "--format", "markdown", "--out", "notes")
    assert (done.code, done.out) == (0, "2 files from 1 WARC file in notes/\n")
    texts = ["".join(path.read_text().splitlines(True)[3:]) for path in sorted((tmp_path / "notes").rglob("*.md"))]
    assert texts == ["fetched: 2013-01-01T00:00:00.000Z\n---\n\nin 2013\n", "---\n\ntext\n"]


OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>text"
INTERIM = {
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK: (200, "text"),
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 3 + OK: (200, "text"),
    b"HTTP/1.1 103 Early Hints\r\nLink: </" + b"a" * 16_330 + b">\r\n\r\n" + OK: (200, "text"),
    b"HTTP/1.1 100 Continue\r\nContent-Type: text/html\r\n\r\n<p>text\n\nmore": (100, "text more"),
    b"HTTP/1.1 101 Switching Protocols\r\nContent-Type: text/html\r\n\r\n<p>text": (101, "text"),
    b"HTTP/1.1 100 Continue\r\n\r\n": (100, None),
}


def test_interim_responses_before_the_final_one_are_left_out(tmp_path: Path, typed: Typed) -> None:
    replaced = re.compile(rb"Content-Length: \d+\r\n\r\n.*\r\n\r\n", re.DOTALL)
    (tmp_path / "theirs.warc").write_bytes(
        b"".join(
            replaced.sub(lambda _, block=block: b"Content-Length: %d\r\n\r\n%b\r\n\r\n" % (len(block), block), record)  # type: ignore[misc]
            for record, block in ((their_record("a", b""), block) for block in INTERIM)
        )
    )
    assert typed("export", "theirs.warc", "--text", "text").code == 0
    assert [(row["status"], row["text"]) for row in readers.lines(tmp_path / "export")] == list(INTERIM.values())


LONGER_BY = (5, 100, 9_000)  # up to 4, only the line ends after it


@pytest.mark.parametrize("longer", LONGER_BY)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_no_record_is_taken_for_the_body_of_the_one_before(
    tmp_path: Path, compression: CompressionName, longer: int, typed: Typed
) -> None:
    """Its length is too large: the file is named, and no command takes it for complete."""
    length = int(record(b"http://a.test/").partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
    bad = record(b"http://a.test/").replace(b"Content-Length: %d" % length, b"Content-Length: %d" % (length + longer))
    suffix, compress = COMPRESSIONS[compression].suffix, COMPRESSIONS[compression].compress
    file = tmp_path / f"x-1{suffix}"
    first, second = compress(record(b"http://b.test/1")), compress(record(b"http://gone.test/"))
    file.write_bytes(first + compress(bad) + second)
    for words in (("export", str(file)), ("export", str(file), "--format", "wacz"), ("audit", str(tmp_path))):
        done = typed(*words)
        assert done.code == 2, words
        assert f"another length than its Content-Length says, at byte {len(first):,}" in " ".join(done.err.split())
    assert [row["url"] for row in readers.lines(tmp_path / "export")] == ["http://b.test/1"]
    with pytest.raises(UserError, match="cannot be rewritten"):
        DomainRewriter(tmp_path, "gone.test").rewrite()


def test_a_domain_is_not_forgotten_in_records_that_were_compressed_as_one(tmp_path: Path) -> None:
    records = record(b"http://a.test/") + record(b"http://gone.test/")
    (tmp_path / "x-1.warc.gz").write_bytes(COMPRESSIONS["gzip"].compress(records))
    assert export(warc_files([tmp_path]), ExportSettings(tmp_path / "out"), 1, ignored).rows == 2
    with pytest.raises(UserError, match="compressed as one"):
        DomainRewriter(tmp_path, "gone.test").rewrite()


def test_a_body_of_any_size_is_read_up_to_a_limit(tmp_path: Path) -> None:
    size = 8 * MAX_DECODED
    whole = record(b"http://a.test/", b"X: 1\r\n").replace(b"<p>text", b"")
    head, _, block = whole.removesuffix(b"\r\n\r\n").partition(b"\r\n\r\n")
    head = head.rpartition(b"\r\n")[0] + b"\r\nContent-Length: %d\r\n\r\n" % (len(block) + size)
    compressing = zlib.compressobj(wbits=31)
    with (tmp_path / "x.warc.gz").open("wb") as file:
        file.write(compressing.compress(head + block))
        for _ in range(8):
            file.write(compressing.compress(bytes(MAX_DECODED)))
        file.write(compressing.compress(b"\r\n\r\n") + compressing.flush())
        file.write(COMPRESSIONS["gzip"].compress(record(b"http://b.test/")))
    first, second = read_rows(tmp_path / "x.warc.gz")
    assert (first.columns["size"], first.page.cut, second.page.cut) == (size, ("decoded",), ())
    assert first.page.exchange is not None
    assert MAX_DECODED < len(first.page.exchange.body) < MAX_DECODED + 100_000


def test_an_audit_goes_on_without_an_address_that_is_none(tmp_path: Path, typed: Typed) -> None:
    addresses = (b"not-an-ip", b"1.2.3.4:80", b"\xff", b"1.2.3.4")
    records = (record(b"http://%d.test/" % at, b"WARC-IP-Address: %b\r\n" % ip) for at, ip in enumerate(addresses))
    (tmp_path / "x.warc.gz").write_bytes(b"".join(map(COMPRESSIONS["gzip"].compress, records)))
    done = typed("audit", str(tmp_path), "--json")
    assert done.code == 0
    found = msgspec.json.decode(done.out)
    assert (found["requests"], found["addresses"], found["unread"]) == (4, 1, 0)


def test_an_audit_reads_plain_files_and_names_each_with_bad_records_once(tmp_path: Path, typed: Typed) -> None:
    bad, good = record(b"http://a.test/", b"X-Crawler-Elapsed: soon\r\n"), record(b"http://b.test/")
    (tmp_path / "theirs.warc").write_bytes(good + bad + bad)
    done = typed("audit", str(tmp_path))
    assert done.code == 0
    told = f"{tmp_path}/theirs.warc: 2 records could not be read, the first at byte {len(good)}: could not convert"
    assert told in " ".join(done.err.split())
    assert done.err.count("theirs.warc") == 1
    assert "record_not_audited" not in done.err


def test_converted_and_segmented_records_are_named(tmp_path: Path, typed: Typed) -> None:
    response = their_record("a", b"<p>first part").replace(
        b"WARC-Type: response", b"WARC-Segment-Number: 1\r\nWARC-Type: response"
    )
    others = [
        response.replace(b"WARC-Type: response", b"WARC-Type: %b" % kind).replace(b"http://a.test/a", url)
        for kind, url in (
            (b"continuation", b"http://a.test/a"),
            (b"conversion", b"http://a.test/b"),
            (b"resource", b"file:///c"),
            (b"resource", b"urn:x:log"),
        )
    ]
    (tmp_path / "x.warc").write_bytes(b"".join([response, *others]))
    done = typed("extract", "x.warc")
    (line,) = map(msgspec.json.decode, done.out.splitlines())
    assert line["truncated"] == "unspecified"
    for said in (
        "only the first part is read: 1 continuation record, the first http://a.test/a",
        "without an HTTP head: 1 conversion record, the first http://a.test/b",
        "neither http nor https: 1 resource record, the first file:///c",
    ):
        assert said in done.err
