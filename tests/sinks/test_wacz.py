"""WACZ files: what is in them, and that they are complete or not there. `test_replay` has other programs read them."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.page import Exchange
from crawler.sinks.cdxj import digits, surt_key
from tests.e2e.harness import wait_until
from tests.sinks.values import NOON, archived, exchange, page
from tests.typed import Typed

HTML = b"<title>A page</title><h1>Head</h1><p>" + b"This is the text of a page, and it is long enough. " * 20
WHOLE: dict[str, Any] = {"content_type": "text/html", "charset": "utf-8", "links": ()}


def answered(name: str, was: bytes, head: bytes) -> Exchange:
    """An exchange with another head: `head` in the place of `was`."""
    made = exchange(name, b"<p>short")
    return msgspec.structs.replace(made, response_head=made.response_head.replace(was, head))


def named_wacz(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*.wacz*")]


def lines(packed: zipfile.ZipFile, name: str) -> list[Any]:
    return [msgspec.json.decode(line) for line in packed.read(name).splitlines()]


def records(packed: zipfile.ZipFile) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Key, timestamp and fields of the lines of the index, read block by block as viewers do."""
    index, blocks = packed.read("indexes/index.cdx.gz"), packed.read("indexes/index.idx").splitlines()
    assert blocks[0].startswith(b"!meta 0 ")
    end = 0
    for block in blocks[1:]:
        key, timestamp, place = block.split(b" ", 2)
        where = msgspec.json.decode(place)
        assert where["offset"] == end
        end += where["length"]
        data = index[where["offset"] : end]
        assert where["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        found = gzip.decompress(data).splitlines()
        assert found[0].startswith(b"%b %b " % (key, timestamp))
        for line in found:
            one, at, fields = line.decode().split(" ", 2)
            yield one, at, msgspec.json.decode(fields)
    assert end == len(index)


async def test_pages_and_records_are_found(typed: Typed, tmp_path: Path) -> None:
    """Seeds are in the first list. Each visit of a page is there, and the record of each is at its place."""
    seed = page(exchange("seed", HTML), **WHOLE | {"depth": 0})
    again = page(exchange("seed", HTML + b"news", started_at=NOON + 60), **WHOLE | {"depth": 0})
    other = page(exchange("other", HTML), **WHOLE)  # a revisit record
    missing = page(answered("missing", b"200 OK", b"404 Not Found"), **WHOLE)
    picture = page(answered("plain", b"text/html", b"text/plain"), links=())
    await archived(tmp_path / "out", [seed, other, missing], [again, picture], max_bytes=1)
    done = typed("export", "out", "--format", "wacz", "--text", "text", "--out", "news.wacz")
    assert (done.code, done.out) == (0, "3 pages and 5 records from 2 WARC files in news.wacz\n")
    with zipfile.ZipFile(tmp_path / "news.wacz") as packed:
        (head, *pages), (other_head, *others) = (
            lines(packed, f"pages/{name}.jsonl") for name in ("pages", "extraPages")
        )
        assert (head["format"], head["hasText"], other_head["format"]) == ("json-pages-1.0", True, "json-pages-1.0")
        found = [(one["url"], one["ts"][:19], one.get("title"), "long enough" in one.get("text", "")) for one in pages]
        assert found == [
            ("https://site.test/seed", "2026-09-21T14:13:20", "A page", True),
            ("https://site.test/seed", "2026-09-21T14:14:20", "A page", True),
        ]
        assert [one["url"] for one in others] == ["https://site.test/other"]
        assert len({one["id"] for one in (*pages, *others)}) == 3
        indexed = [*records(packed)]
        assert [key for key, _, _ in indexed] == sorted(
            surt_key(f"https://site.test/{name}") for name in ("seed", "seed", "other", "missing", "plain")
        )
        assert {at for key, at, _ in indexed if key.endswith("/seed")} == {digits(NOON), digits(NOON + 60)}
        for _, _, fields in indexed:
            start, length = int(fields["offset"]), int(fields["length"])
            record = gzip.decompress(packed.read(f"archive/{fields['filename']}")[start : start + length])
            assert f"WARC-Target-URI: {fields['url']}\r\n".encode() in record


async def test_the_manifest_has_every_file_with_its_digest(typed: Typed, tmp_path: Path) -> None:
    await archived(tmp_path / "News", [page(exchange("a", HTML), **WHOLE)], crawl="News_Of+Today")
    assert (
        typed("export", "News", "--format", "wacz").out == "1 page and 1 record from 1 WARC file in export/News.wacz\n"
    )
    with zipfile.ZipFile(tmp_path / "export" / "News.wacz") as packed:
        manifest = packed.read("datapackage.json")
        digest = msgspec.json.decode(packed.read("datapackage-digest.json"))
        assert digest == {"path": "datapackage.json", "hash": f"sha256:{hashlib.sha256(manifest).hexdigest()}"}
        said = msgspec.json.decode(manifest)
        assert (said["profile"], said["wacz_version"], said["title"]) == ("data-package", "1.1.1", "News")
        listed = {one["path"]: one for one in said["resources"]}
        assert {*listed, "datapackage.json", "datapackage-digest.json"} == {*packed.namelist()}
        # Without a seed, all pages are in the first list.
        assert len(lines(packed, "pages/pages.jsonl")) == 2
        for path, one in listed.items():
            data = packed.read(path)
            assert (one["hash"], one["bytes"]) == (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))
            assert one["name"] == one["name"].lower()
            assert "+" not in one["name"]
        # ReplayWeb.page takes the place of the data from the directory, which says nothing of the entry's own fields.
        file = (tmp_path / "export" / "News.wacz").read_bytes()
        for entry in packed.infolist():
            own = int.from_bytes(file[entry.header_offset + 28 : entry.header_offset + 30], "little")
            assert own == len(entry.extra) == 0
        stored = {entry.filename for entry in packed.infolist() if entry.compress_type == zipfile.ZIP_STORED}
        assert stored == {path for path in listed if path.endswith(".gz")}
    (warc,) = (tmp_path / "News").glob("*.warc.gz")
    assert f"archive/{warc.name}" in listed


async def test_an_index_of_several_blocks_is_sorted(typed: Typed, tmp_path: Path) -> None:
    """More lines than a block has, and than are sorted in memory."""
    visits = [page(exchange(f"{number * 7919 % 5003}", b"%d" % number), links=()) for number in range(4_500)]
    await archived(tmp_path / "out", visits)
    assert typed("export", "out", "--format", "wacz", "--out", "a.wacz").code == 0
    with zipfile.ZipFile(tmp_path / "a.wacz") as packed:
        keys = [(key, at) for key, at, _ in records(packed)]
        assert len(packed.read("indexes/index.idx").splitlines()) == 1 + 5
    assert keys == sorted(keys)
    assert len(keys) == 4_500


async def test_zstd_files_are_compressed_with_gzip(typed: Typed, tmp_path: Path) -> None:
    await archived(
        tmp_path / "out", [page(exchange(name, HTML + name.encode()), **WHOLE) for name in "ab"], compression="zstd"
    )
    assert typed("export", "out", "--format", "wacz", "--out", "a.wacz").out.startswith("2 pages and 2 records")
    with zipfile.ZipFile(tmp_path / "a.wacz") as packed:
        for _, _, fields in records(packed):
            assert fields["filename"].endswith(".warc.gz")
            start, length = int(fields["offset"]), int(fields["length"])
            record = gzip.decompress(packed.read(f"archive/{fields['filename']}")[start : start + length])
            assert f"WARC-Target-URI: {fields['url']}\r\n".encode() in record


async def test_open_files_are_left_out_and_named(typed: Typed, tmp_path: Path) -> None:
    await archived(tmp_path / "out", [page(exchange("a", HTML), **WHOLE)])
    (warc,) = (tmp_path / "out").glob("*.warc.gz")
    warc.with_name("b.warc.gz.open").write_bytes(warc.read_bytes())
    done = typed("export", "out", "--format", "wacz", "--out", "a.wacz")
    assert done.out.startswith("1 page and 1 record from 1 WARC file")
    assert "not read, because open: 1 file; if their replicas were killed, finish them: crawler finish out" in done.err
    done = typed("export", "out/b.warc.gz.open", "--format", "wacz", "--out", "b.wacz")
    assert (done.code, done.err.splitlines()[-1]) == (
        2,
        "error: out/b.warc.gz.open is open; if its replica was killed: crawler finish out",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--usage", "train-ai"), "--usage cannot be used with --format wacz, which packs whole WARC files"),
        (("--items", "shop"), "items have the formats jsonl, csv and parquet"),
        (("--out", "out/a.warc.gz/x.wacz"), "is a file, not a folder"),
        (("out/a.warc.gz", "copy/a.warc.gz"), "have the same name"),
    ],
)
async def test_what_cannot_be_packed_is_refused(
    typed: Typed, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    await archived(tmp_path / "out", [page(exchange("a", HTML), **WHOLE)])
    (warc,) = (tmp_path / "out").glob("*.warc.gz")
    warc.rename(warc.with_name("a.warc.gz"))
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    inputs = () if words[0].endswith(".gz") else ("out",)
    done = typed("export", *inputs, "--format", "wacz", *words)
    assert done.code == 2
    assert said in done.err
    assert named_wacz(tmp_path) == []


LARGE = 300 << 20
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def large_archive(folder: Path, size: int) -> None:
    """A WARC file with one record of `size` bytes that cannot be compressed, many times."""
    folder.mkdir()
    body = os.urandom(1 << 20)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: %d\r\n\r\n" % len(body)
    record = (
        b"WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:0>\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
        b"WARC-Target-URI: http://a.test/\r\nContent-Type: application/http;msgtype=response\r\n"
        b"Content-Length: %d\r\n\r\n" % (len(head) + len(body)) + head + body + b"\r\n\r\n"
    )
    member = gzip.compress(record, 1)
    with (folder / "large.warc.gz").open("wb") as file:
        for _ in range(size // len(member)):
            file.write(member)


def test_memory_does_not_grow_with_the_archive_and_a_kill_leaves_no_file(tmp_path: Path) -> None:
    large_archive(tmp_path / "out", LARGE)
    words = [
        sys.executable,
        "-m",
        "crawler",
        "export",
        "out",
        "--format",
        "wacz",
        "--out",
        "a.wacz",
        "--processes",
        "1",
    ]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(
        lambda: any(path.stat().st_size > 1 << 20 for path in tmp_path.glob(".wacz-*/a.wacz")), "a part of the file"
    )
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "a.wacz").exists()
    assert list(tmp_path.glob(".wacz-*"))
    # In a small process, because the peak of a process begins with that of the one that has started it.
    measured = [sys.executable, "-c", MEASURE, *words]
    done = subprocess.run(measured, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    assert int(done.stdout) << 10 < LARGE // 2
    assert named_wacz(tmp_path) == ["a.wacz"]
    assert not list(tmp_path.glob(".wacz-*"))
    with zipfile.ZipFile(tmp_path / "a.wacz") as packed:
        assert packed.getinfo("archive/large.warc.gz").file_size == (tmp_path / "out" / "large.warc.gz").stat().st_size
