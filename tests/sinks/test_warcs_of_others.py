"""WARC files that other tools write of real responses, and files that were cut."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from crawler.errors import UserError
from crawler.sinks.archive import Archive
from crawler.sinks.compression import COMPRESSIONS
from crawler.sinks.export import ExportSettings, export
from crawler.sinks.forget import DomainRewriter
from tests.sinks import readers
from tests.sinks.test_export import ignored, their_record
from tests.sinks.values import exchange, page, settings
from tests.typed import Typed

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


@pytest.fixture(params=["gzip", "zstd", "plain"])
async def whole(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[bytes, str, list[int]]:
    """A WARC file, the end of its name, and where its records end."""
    if request.param == "plain":
        records = [their_record(name, b"<p>" + name.encode()) for name in "abc"]
        suffix = ".warc"
    else:
        archive = Archive(settings(tmp_path / "made", compression=request.param))
        await archive.start()
        await archive.write([page(exchange(name, b"<p>" + name.encode())) for name in "abc"])
        await archive.stop()
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
    done = typed("export", str(file))
    assert done.code == 0
    assert "1 row from 1 WARC file" in done.out
    assert "2 responses could not be read" in done.err
    file.write_bytes(no_url)
    done = typed("export", str(file))
    assert done.code == 2
    assert "no page was exported: 1 response could not be read" in done.err
    file.write_bytes(of_dns)
    assert typed("export", str(file)).code == 0
