"""A domain that is forgotten leaves no byte in the files, and the rest of the archive stays whole."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from crawler.errors import UserError
from crawler.page import Exchange, Link, Outcome, Page
from crawler.sinks.forget import MARKS, DomainRewriter, DomainUrls, add_mark, marks_in
from crawler.sinks.reader import compression_of
from frontier.domains import domain_of, forgotten_mark
from politeness.usage import Usage
from tests.sinks import readers
from tests.sinks.values import NOON, archiving, exchange

GONE = "gone.test"
SHARED = b"<!doctype html><p>" + b"the same licence text on many sites " * 60


def at(url: str, body: bytes, **more: Any) -> Exchange:
    host = url.split("/")[2]
    head = b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host.encode()
    return exchange("x", body, url=url, request_head=head, **more)


def page_of(made: Exchange | None, url: str = "", **more: Any) -> Page:
    url = made.url if made else url
    fresh = Page(url, domain_of(url.split("/")[2]), 1, Outcome.DONE, "ok", NOON + 1, exchange=made)
    return msgspec.structs.replace(fresh, **more)


def groups() -> list[list[Page]]:
    """Pages of two sites, whose bodies do not name each other, except for the last."""
    to_both = (Link("https://a.test/next"), Link("https://www.gone.test/secret?q"), Link("https://b.test/"))
    return [
        [
            page_of(at("https://gone.test/", b"<p>one</p>"), links=to_both, title="gone for good"),
            page_of(at("https://a.test/0", b"<p>first</p>"), links=to_both, via="https://gone.test/"),
        ],
        [
            page_of(at("https://www.gone.test/licence", SHARED)),
            page_of(None, "https://gone.test/denied", reason="robots"),
        ],
        [
            page_of(at("https://a.test/licence", SHARED), links=to_both),
            page_of(
                at("https://a.test/1", b"unlike " * 300),
                licenses=("https://gone.test/rsl.xml", "https://a.test/rsl.xml"),
                usage=Usage(tdm_policy="https://gone.test/policy.json"),
            ),
        ],
        [page_of(at("https://b.test/licence", SHARED, truncated=None)), page_of(at("https://gone.test/2", SHARED))],
        [
            page_of(at("https://a.test/2", b"unlike " * 300), canonical="https://gone.test/2"),
            page_of(at("https://b.test/quotes", b"<p>see https://gone.test/2, which is gone</p>")),
        ],
        [page_of(at("https://gone.test/3", b"<p>three</p>")), page_of(None, "https://gone.test/4", reason="robots")],
    ]


def fill(folder: Path, compression: str = "gzip", parquet: bool = True) -> None:
    """Several volumes, two groups each."""
    asyncio.run(_fill(folder, compression, parquet))


async def _fill(folder: Path, compression: str, parquet: bool) -> None:
    more = {"metadata": True, "parquet": parquet, "index": True, "compression": compression, "revisits": 1_000}
    async with archiving(folder, **more) as archive:
        for number, group in enumerate(groups()):
            robots = [at("https://gone.test/robots.txt", b"User-agent: *\nDisallow: /denied")] if number == 1 else []
            await archive.write(group, robots)
            await archive.settled()
            if number % 2 == 1:
                await archive._in_thread(archive._finish)


def everything(folder: Path) -> dict[str, bytes]:
    """The bytes of each file, decompressed; of a Parquet file, its rows, too."""
    found = {}
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        if compression := compression_of(path):
            whole = b""
            while data:
                reader = compression.reader()
                whole += reader.decompress(data)
                data = reader.unused_data
            data = whole
        elif path.name.endswith(".parquet"):
            data += str(pq.read_table(path).to_pylist()).encode()
        found[path.name] = data
    return found


def check_whole(folder: Path, compression: str = "gzip") -> None:
    """The files agree with each other, and other programs can read them."""
    assert not [path.name for path in folder.iterdir() if ".forget" in path.name]
    known = ids(folder)
    for warc in readers.warc_files(folder):
        readers.check(warc)
        places = {record.offset: record for record in readers.by_fastwarc(warc)}
        index = [
            line.split(b" ", 2)[2] for line in (folder / (warc.name.split(".")[0] + ".cdxj")).read_bytes().splitlines()
        ]
        rows = [msgspec.json.decode(row) for row in index]
        answers = [one for one in places.values() if one.type in ("response", "revisit")]
        assert sorted(row["url"] for row in rows) == sorted(one.url for one in answers)
        for row in rows:
            assert places[int(row["offset"])].url == row["url"]
            assert row["filename"] == warc.name
        for revisit in (one for one in places.values() if one.type == "revisit"):
            assert revisit.headers["WARC-Refers-To"] in known
    for line in readers.lines(folder):
        place: Any = line["warc"]
        if place is not None:
            data = (folder / place["file"]).read_bytes()[place["offset"] :][: place["length"]]
            one = compression_of(folder / place["file"]).reader().decompress(data)  # type: ignore[union-attr]
            assert f"WARC-Target-URI: {line['url']}\r\n".encode() in one
    for lines in folder.glob("*.jsonl"):
        rows = pq.read_table(lines.with_name(lines.name.replace(".jsonl", ".parquet"))).to_pylist()
        decoded = msgspec.json.Decoder().decode_lines(lines.read_bytes())
        assert [(row["url"], row["warc_offset"], row["links"]) for row in rows] == [
            (line["url"], line["warc"] and line["warc"]["offset"], line["links"]) for line in decoded
        ]


def ids(folder: Path) -> set[str]:
    return {one.headers["WARC-Record-ID"] for warc in readers.warc_files(folder) for one in readers.by_fastwarc(warc)}


def payloads(folder: Path) -> dict[str, bytes]:
    """The body of each URL, by the record that has it."""
    bodies: dict[str, bytes] = {}
    revisits = {}
    for warc in readers.warc_files(folder):
        for one in readers.by_fastwarc(warc):
            if one.type == "response":
                bodies[one.url] = one.payload
            elif one.type == "revisit":
                revisits[one.url] = one.headers["WARC-Refers-To-Target-URI"]
    return bodies | {url: bodies[original] for url, original in revisits.items()}


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_no_byte_of_any_file_names_it_and_the_others_stay(tmp_path: Path, compression: str) -> None:
    fill(tmp_path, compression)
    before, lines = payloads(tmp_path), len(readers.lines(tmp_path))
    assert len(readers.warc_files(tmp_path)) == 3
    assert sum(b"gone" in data for data in everything(tmp_path).values()) > 8
    # When it is forgotten,
    rewriter, urls = DomainRewriter(tmp_path, GONE), set[str]()
    rewriter.check()
    rewriter.rewrite(lambda found, _: urls.update(found))
    # Then only what another site has sent still names it,
    (quoting,) = (
        one for warc in readers.warc_files(tmp_path) for one in readers.by_fastwarc(warc) if b"gone" in one.payload
    )
    assert (quoting.type, quoting.url) == ("response", "https://b.test/quotes")
    found = {
        name: data.count(b"gone") - data.count(b"see https://gone.test/2, which is gone") * 2
        for name, data in everything(tmp_path).items()
    }
    assert not any(found.values()), found
    # all files are whole, and every other page can be replayed, also those whose body only the domain had.
    check_whole(tmp_path, compression)
    assert payloads(tmp_path) == {url: body for url, body in before.items() if "gone" not in url}
    assert payloads(tmp_path)["https://b.test/licence"] == SHARED
    assert len(readers.lines(tmp_path)) == lines - 6
    result = rewriter.result
    assert (result.lines, result.bodies, result.bodies_missing) == (6, 2, 0)
    assert {"https://gone.test/denied", "https://www.gone.test/secret?q", "https://gone.test/robots.txt"} <= urls
    assert forgotten_mark(GONE) in marks_in(tmp_path)
    # A second call changes nothing.
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = DomainRewriter(tmp_path, GONE)
    again.rewrite()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept
    assert (again.result.records, again.result.lines, again.result.files) == (0, 0, [])


@pytest.mark.long
def test_a_process_killed_before_any_change_of_a_file_is_repeated(tmp_path: Path) -> None:
    fill(tmp_path / "whole")
    others = {url: body for url, body in payloads(tmp_path / "whole").items() if "gone" not in url}
    words = [sys.executable, "-m", "tests.sinks.killed_forget", str(tmp_path / "whole"), str(tmp_path / "killed")]
    subprocess.run(words, check=True, timeout=300)
    copies = sorted((tmp_path / "killed").iterdir(), key=lambda path: int(path.name))
    assert len(copies) > 40
    for copy in copies:
        DomainRewriter(copy, GONE).rewrite()
        check_whole(copy)
        assert payloads(copy) == others, copy.name
        assert sum(data.count(b"gone") for data in everything(copy).values()) == 2, copy.name


def test_a_dry_run_counts_the_same_and_changes_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    counted = DomainRewriter(tmp_path, GONE)
    counted.rewrite(is_dry=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    done = DomainRewriter(tmp_path, GONE)
    done.rewrite()
    assert sorted(counted.result.files) == sorted(done.result.files)
    assert msgspec.structs.replace(counted.result, files=[]) == msgspec.structs.replace(done.result, files=[])


def test_a_body_that_is_elsewhere_is_reported(tmp_path: Path) -> None:
    """The volume with the first record of the domain was moved to a store."""
    fill(tmp_path, parquet=False)
    first, *_ = readers.warc_files(tmp_path)
    for path in tmp_path.glob(first.name.split(".")[0] + "*"):
        path.unlink()
    rewriter = DomainRewriter(tmp_path, GONE)
    rewriter.rewrite()
    assert (rewriter.result.bodies, rewriter.result.bodies_missing) == (0, 2)
    assert sum(data.count(b"gone") for data in everything(tmp_path).values()) == 2


def test_open_files_and_another_command_are_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    (warc, *_) = readers.warc_files(tmp_path)
    opened = warc.rename(warc.with_name(warc.name + ".open"))
    with pytest.raises(UserError, match="crawler finish"):
        DomainRewriter(tmp_path, GONE).check()
    opened.rename(warc)
    DomainRewriter(tmp_path, GONE).check()
    inner = DomainRewriter(tmp_path, GONE)

    def meanwhile(urls: list[str], names: list[str]) -> None:
        with pytest.raises(UserError, match="another `crawler forget`"):
            inner.rewrite()

    DomainRewriter(tmp_path, GONE).rewrite(meanwhile)
    assert (tmp_path / MARKS).read_text().count("\n") == 1


def test_a_damaged_file_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    fill(tmp_path)
    *_, last = readers.warc_files(tmp_path)
    data = bytearray(last.read_bytes())
    data[len(data) // 2 :] = b"\0" * (len(data) - len(data) // 2)
    last.write_bytes(data)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("news-*")}
    with pytest.raises(UserError, match=last.name):
        DomainRewriter(tmp_path, GONE).rewrite()
    assert {path.name: path.read_bytes() for path in tmp_path.glob("news-*")} == before


def test_files_of_others_with_a_like_name_stay(tmp_path: Path) -> None:
    fill(tmp_path, parquet=False)
    others = [tmp_path / "notes.forget", tmp_path / "notes.forget-commit"]
    for path in others:
        path.write_text("mine")
    DomainRewriter(tmp_path, GONE).rewrite()
    assert [path.read_text() for path in others] == ["mine", "mine"]


class Killed(Exception):
    """Raised by a test where a process would have been killed."""


def test_a_dry_run_is_refused_while_another_works_or_has_left_work_and_removes_nothing(tmp_path: Path) -> None:
    fill(tmp_path, parquet=False)

    def meanwhile(urls: list[str], names: list[str]) -> None:
        left = {path.name for path in tmp_path.iterdir()}
        with pytest.raises(UserError, match="another `crawler forget`"):
            DomainRewriter(tmp_path, "b.test").rewrite(is_dry=True)
        assert {path.name for path in tmp_path.iterdir()} == left
        raise Killed

    with pytest.raises(Killed):
        DomainRewriter(tmp_path, GONE).rewrite(meanwhile)
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert any(name.endswith(".forget") for name in left)
    with pytest.raises(UserError, match="was interrupted"):
        DomainRewriter(tmp_path, "b.test").rewrite(is_dry=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == left


def edit_lines(folder: Path, old: bytes, new: bytes) -> list[Path]:
    """Replace `old` in the lines of `folder`, and remove the Parquet files. Returns the files that were changed."""
    for path in folder.glob("*.parquet"):
        path.unlink()
    changed = [path for path in sorted(folder.glob("*.jsonl")) if old in path.read_bytes()]
    for path in changed:
        path.write_bytes(path.read_bytes().replace(old, new))
    return changed


def test_links_by_their_tags_are_removed() -> None:
    followed = {"product": ["https://gone.test/1", "https://a.test/1"], "": ["https://www.gone.test/"]}
    changes, gone = DomainUrls(GONE).without({"followed": msgspec.Raw(msgspec.json.encode(followed))})
    assert changes == {"followed": {"product": ["https://a.test/1"], "": []}}
    assert gone == ["https://gone.test/1", "https://www.gone.test/"]
    assert DomainUrls(GONE).without({"followed": msgspec.Raw(b"null")}) == ({}, [])


def test_a_line_that_cannot_be_parsed_is_named_before_anything_is_changed(tmp_path: Path) -> None:
    fill(tmp_path)
    path = edit_lines(tmp_path, b'{"url":"https://a.test/2"', b'"https://gone.test/x"\n{"url":"https://a.test/2"')[0]
    before = {path.name: path.read_bytes() for path in tmp_path.glob("news-*")}
    with (
        pytest.raises(UserError, match=rf"{path.name}, line \d+ cannot be parsed"),
        DomainRewriter(tmp_path, GONE).prepared(),
    ):
        pass
    assert {path.name: path.read_bytes() for path in tmp_path.glob("news-*")} == before


def test_a_torn_last_line_is_removed_and_a_whole_one_stays(tmp_path: Path) -> None:
    fill(tmp_path, parquet=False)
    first, second, *_ = sorted(tmp_path.glob("*.jsonl"))
    first.write_bytes(first.read_bytes() + b'{"url":"https://gone.te')
    second.write_bytes(second.read_bytes().removesuffix(b"\n"))
    DomainRewriter(tmp_path, "other.test").rewrite()
    assert all(path.read_bytes().endswith(b"}\n") for path in (first, second))
    assert b"gone.te\n" not in first.read_bytes()


def test_parquet_files_without_lines_are_all_named(tmp_path: Path) -> None:
    fill(tmp_path)
    for path in tmp_path.glob("*.jsonl"):
        path.unlink()
    before = {path.name: path.read_bytes() for path in tmp_path.glob("news-*")}
    with pytest.raises(UserError, match="JSON lines are not in the folder") as refused:
        DomainRewriter(tmp_path, GONE).rewrite()
    assert all(path.name in str(refused.value) for path in tmp_path.glob("*.parquet"))
    assert {path.name: path.read_bytes() for path in tmp_path.glob("news-*")} == before


def test_a_torn_mark_does_not_swallow_the_next_one(tmp_path: Path) -> None:
    (tmp_path / MARKS).write_bytes(b"\xff 1\nnot a mark\n0123456789abcdef")
    add_mark(tmp_path, GONE)
    assert list(marks_in(tmp_path)) == [forgotten_mark(GONE)]


def test_a_call_that_is_stopped_ends_at_the_next_record_and_can_be_repeated(tmp_path: Path) -> None:
    fill(tmp_path)
    rewriter = DomainRewriter(tmp_path, GONE)
    rewriter.stop()
    with pytest.raises(UserError, match="interrupted"):
        rewriter.rewrite()
    DomainRewriter(tmp_path, GONE).rewrite()
    check_whole(tmp_path)
