"""Rows and Markdown files from WARC files, and what owners say about the use of their pages."""

from __future__ import annotations

import errno
import gzip
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

from crawler.cli.main import app
from crawler.cli.options import USES
from crawler.errors import UserError
from crawler.page import Item, Link, Outcome, RejectedItem, Rendered
from crawler.sinks.archive import Archive
from crawler.sinks.export import ExportSettings, Form, export, shared_work, warc_files
from crawler.sinks.parquet import write_parquet
from crawler.sinks.reader import MAX_DECODED
from politeness.usage import CATEGORIES, Statement, combined, statement
from tests.e2e.harness import Finished
from tests.parse.test_text import HTML
from tests.sinks import readers
from tests.sinks.values import NOON, archived, archiving, exchange, page, settings
from tests.typed import Typed

COMMON = ("url", "domain", "status", "content_type", "size", "digest", "truncated", "warc", "text", "description")
NOT_IN_A_RESPONSE = ("outcome", "reason", "depth", "tries", "settled_at", "via")


@pytest.fixture
async def crawl(tmp_path: Path) -> Path:
    """Two volumes: pages, a revisit, a robots.txt."""
    folder = tmp_path / "crawl"
    async with archiving(folder, max_bytes=1, text="text", metadata=True) as archive:
        known: dict[str, Any] = {"content_type": "text/html", "charset": "utf-8", "title": "", "links": ()}
        await archive.write([page(exchange("a/b?c", HTML), **known)], [exchange("robots.txt", b"User-agent: *")])
        await archive.write(
            [page(exchange("second", HTML + b"<p>more</p>"), **known), page(exchange("cut", b"x"), **known)]
        )
    return folder


def ignored(path: Path) -> None:
    """Ignore the report."""


def test_rows_are_those_that_the_crawl_wrote(crawl: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert export(warc_files([crawl]), ExportSettings(out, text="text"), 2, ignored).rows == 3
    pick = [[line[name] for name in COMMON] for line in readers.lines(crawl)]
    assert [[line[name] for name in COMMON] for line in readers.lines(out)] == pick
    assert readers.files(out, ".tmp") == []


async def test_pages_that_were_in_a_browser(tmp_path: Path) -> None:
    """In the lines of a crawl, and read back from its records, as JSON and as Parquet."""
    refused = {"robots": 2, "type image": 5}
    rendered = Rendered("done", 1.5, exchange("a", b"<p>shown"), requests=8, refused=refused, why="shell")
    await archived(tmp_path / "crawl", [page(exchange("a", b"<p>sent"), rendered=rendered)])
    (lines,) = (tmp_path / "crawl").glob("*.pages.jsonl")
    (row,) = pq.read_table(write_parquet(lines)).to_pylist()
    browser = {"rendered": "done", "render_ms": 1500, "resources": 8, "refused": 7}
    assert row.items() >= {**browser, "rendered_why": "shell"}.items()
    export(warc_files([tmp_path / "crawl"]), ExportSettings(tmp_path / "out", "parquet"), 1, ignored)
    (row,) = pq.read_table(readers.files(tmp_path / "out", ".parquet")[0]).to_pylist()
    assert row.items() >= {**browser, "rendered_why": None}.items()


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
    async with archiving(tmp_path / "crawl") as archive:
        for name, body, *head in (
            ("whole", HTML),
            ("links", many),
            ("coding", gzip.compress(HTML)[:-9], b"Content-Encoding: gzip"),
            ("decoded", gzip.compress(bytes(MAX_DECODED + 1)), b"Content-Encoding: gzip"),
        ):
            await archive.write([page(exchange(name, body, *head))])
        await archive.write([page(exchange("time", HTML, truncated="time"))])
        await archive.write([page(exchange("again", many))])  # a revisit record, which has no body
    files = warc_files([tmp_path / "crawl"])
    for form in ("jsonl", "parquet"):
        export(files, ExportSettings(tmp_path / "out", form), 1, ignored)
    cut = {"links": ["links"], "coding": ["coding"], "decoded": ["decoded"], "time": ["time"], "whole": [], "again": []}
    (table,) = [pq.read_table(path) for path in readers.files(tmp_path / "out", ".parquet")]
    rows = [*readers.lines(tmp_path / "out"), *table.to_pylist()]
    assert len(rows) == 2 * len(cut)
    assert {(row["url"][18:], *row["cut"]) for row in rows} == {(name, *why) for name, why in cut.items()}
    assert {row["truncated"] for row in rows if row["url"][18:] != "time"} == {None}


async def test_rows_have_what_the_metadata_records_say(tmp_path: Path) -> None:
    """All columns are those of the crawl's own line, except the time of the settlement."""
    async with archiving(tmp_path / "crawl") as archive:
        known: dict[str, Any] = {
            "content_type": "text/html",
            "charset": "utf-8",
            "links": (Link("https://site.test/x"),),
        }
        body = b"<p><a href=/x>x</a>" + b"the same " * 200
        fetched = exchange("a", body, b"X-Robots-Tag: noindex", elapsed=1.2344)
        ours = page(
            fetched, **known, depth=4, tries=2, decoded_size=len(body), via="https://site.test/from", noindex=True
        )
        await archive.write([ours])
        await archive.write([page(exchange("again", body), **known, depth=5, reason="redirect", cut=("links",))])
        await archive.write([page(exchange("retried", b"later"), outcome=Outcome.RETRY, reason="http_503")])
    export(warc_files([tmp_path / "crawl"]), ExportSettings(tmp_path / "out"), 1, ignored)
    first, again, retried = readers.lines(tmp_path / "out")
    line, line_of_again = readers.lines(tmp_path / "crawl")
    assert first == line | {"settled_at": None}
    unknown = ("title", "lang", "canonical", "size", "decoded_size", "noarchive", "noindex")
    assert again == line_of_again | dict.fromkeys(("settled_at", *unknown))
    known_of_retried = (retried[name] for name in ("outcome", "reason", "depth", "tries", "elapsed_ms"))
    assert [*known_of_retried] == [None, None, None, None, 250]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
async def test_rows_of_a_crawl_without_metadata_records_do_not_make_anything_up(tmp_path: Path, form: Form) -> None:
    async with archiving(tmp_path / "crawl", metadata=False) as archive:
        body = b"<p>" + b"the same " * 200
        for name in ("a", "again"):
            await archive.write([page(exchange(name, body), depth=4)])
    export(warc_files([tmp_path / "crawl"]), ExportSettings(tmp_path / "out", form), 1, ignored)
    tables = [pq.read_table(path).to_pylist() for path in readers.files(tmp_path / "out", ".parquet")]
    first, again = tables[0] if form == "parquet" else readers.lines(tmp_path / "out")
    assert not {first[name] for name in NOT_IN_A_RESPONSE} - {None}
    assert (first["elapsed_ms"], first["replica"], first["size"], first["cut"]) == (250, "host-1a2b", len(body), [])
    of_body = ("title", "size", "links", "link_count", "cut", "noindex")
    assert not {again[name] for name in (*NOT_IN_A_RESPONSE, *of_body)} - {None}
    assert (again["status"], again["content_type"], again["elapsed_ms"]) == (200, "text/html", 250)


def test_values_of_others_that_are_no_numbers_are_unknown(tmp_path: Path) -> None:
    said = b"fetchTimeMs: -3\r\ndepth: 99999999999\r\ntries: many\r\nreason: \xff\r\n"
    metadata = (
        b"WARC/1.0\r\nWARC-Type: metadata\r\nWARC-Target-URI: http://a.test/a\r\nWARC-Concurrent-To: <urn:x:a>\r\n"
        b"Content-Type: application/warc-fields\r\nContent-Length: %d\r\n\r\n%b\r\n\r\n" % (len(said), said)
    )
    file = tmp_path / "theirs.warc"
    file.write_bytes(their_record("a", b"") + metadata + metadata.replace(b":a>", b":b>").replace(b"\xff", b"ok"))
    export([file], ExportSettings(tmp_path / "out", "parquet"), 1, ignored)
    (row,) = pq.read_table(readers.files(tmp_path / "out", ".parquet")[0]).to_pylist()
    assert [row[name] for name in ("elapsed_ms", "depth", "tries", "reason", "replica")] == [
        *[None] * 3,
        "\ufffd",
        None,
    ]


def test_a_missing_extra_is_named_as_the_user_named_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match=r"^--format parquet needs pyarrow: pip install 'peercrawl\[parquet\]'$"):
        export([tmp_path / "x.warc.gz"], ExportSettings(tmp_path / "out", "parquet"), 1, ignored)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match=r"^archive\.parquet = true needs pyarrow"):
        Archive(settings(tmp_path, parquet=True))


SAME = "already exported with these options, nothing to do: 2 WARC files in export/\n"


@pytest.mark.parametrize(
    ("words", "column"),
    [
        (("--simhash",), "simhash"),
        (("--text", "text"), "text"),
        (("--text", "markdown"), "markdown"),
        (("--no-links",), "links"),
        (("--structured",), "opengraph"),
    ],
)
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
async def test_an_export_with_other_options_replaces_the_files(
    typed: Typed, tmp_path: Path, form: str, words: tuple[str, ...], column: str
) -> None:
    async with archiving(tmp_path / "crawl-out", max_bytes=1) as archive:
        for name in "ab":
            body = HTML + b"<meta property=og:title content=x><a href=/y>y</a>" + name.encode()
            await archive.write([page(exchange(name, body), content_type="text/html", charset="utf-8", links=())])
    command = ("export", "crawl-out", "--format", form, "--processes", "1")

    def values() -> list[Any]:
        tables = [pq.read_table(path).to_pylist() for path in readers.files(tmp_path / "export", ".parquet")]
        rows = [row for table in tables for row in table] if form == "parquet" else readers.lines(tmp_path / "export")
        return [row.get(column) for row in rows]

    done = typed(*command)
    assert (done.out, done.err) == ("2 rows from 2 WARC files in export/\n", "")  # no bar outside of a terminal
    plain = values()
    assert typed(*command).out == SAME
    again = typed(*command, *words)
    assert (again.code, again.out) == (0, "2 rows from 2 WARC files in export/\n")
    assert all(one != other for one, other in zip(values(), plain, strict=True))
    assert typed(*command, *words).out == SAME
    typed(*command)
    assert values() == plain


def test_files_of_an_unknown_or_interrupted_export_are_made_again(crawl: Path, typed: Typed, tmp_path: Path) -> None:
    typed("export", str(crawl))
    out = tmp_path / "export"
    first, second = readers.files(out, ".jsonl")
    first.unlink()
    assert typed("export", str(crawl)).out.splitlines() == [
        "1 row from 1 WARC file in export/",
        "left alone, because exported with these options before: 1 WARC file",
    ]
    second.write_text("of somebody")
    (out / ".exported.json").write_text("{")
    refused = typed("export", str(crawl))
    assert (refused.code, "no export has made it" in refused.err, second.read_text()) == (2, True, "of somebody")
    for path in (first, second):
        path.unlink()
    assert typed("export", str(crawl)).out == "3 rows from 2 WARC files in export/\n"
    assert len(readers.lines(out)) == 3


def test_archives_with_equal_names_do_not_replace_each_other(crawl: Path, typed: Typed, tmp_path: Path) -> None:
    other = shutil.copytree(crawl, tmp_path / "other")
    together = typed("export", str(crawl), str(other))
    assert (together.code, "have the same name: export them to two folders, with --out" in together.err) == (2, True)
    assert typed("export", str(crawl)).code == 0
    after = typed("export", str(other))
    assert after.code == 2
    assert "was exported from" in after.err
    crawl.rename(tmp_path / "moved")
    assert typed("export", str(tmp_path / "moved")).out == "3 rows from 2 WARC files in export/\n"


def test_the_lines_of_a_crawl_are_not_replaced_by_an_export(crawl: Path, typed: Typed) -> None:
    lines = sorted(crawl.glob("*.warc.gz"))[0]
    lines = lines.with_name(f"{lines.name.partition('.warc')[0]}.pages.jsonl")
    lines.write_text("a line of the crawl\n")
    refused = typed("export", str(crawl), "--out", str(crawl))
    assert (refused.code, "no export has made it: use another folder (--out)" in refused.err) == (2, True)
    assert lines.read_text() == "a line of the crawl\n"
    assert not (crawl / ".exported.json").exists()


def test_notes_beside_exported_markdown_stay(crawl: Path, typed: Typed, tmp_path: Path) -> None:
    typed("export", str(crawl), "--format", "markdown", "--out", "notes")
    exported = next((tmp_path / "notes").rglob("*.md"))
    notes = exported.with_name("notes.md")
    notes.write_text(exported.read_text() + "My own words.\n")
    typed("export", str(crawl), "--format", "markdown", "--out", "notes")
    assert notes.read_text().endswith("My own words.\n")
    assert exported.exists()


def test_a_folder_that_cannot_be_written_is_told_of(crawl: Path, typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "export").write_text("")
    done = typed("export", str(crawl))
    assert done.code == 2
    assert "error: cannot write in export: it is a file, not a folder; choose another folder with --out" in done.err


def test_markdown_files(crawl: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert export(warc_files([crawl]), ExportSettings(out, "markdown"), 1, ignored).rows == 3
    first, second = (file for file in readers.files(out / "site.test") if file.name.startswith(("a-b-", "second-")))
    assert (first.name[:4], second.name[:7]) == ("a-b-", "second-")
    text = first.read_text()
    assert text.startswith(
        '---\nurl: "https://site.test/a/b?c"\ntitle: ""\nfetched: 2026-09-21T14:13:20.123Z\n---\n\n# A heading'
    )


@pytest.mark.parametrize("order", [(0, 60), (60, 0)])
async def test_the_latest_response_of_a_page_is_its_markdown_file(tmp_path: Path, order: tuple[int, int]) -> None:
    """A URL that was queued again has several responses, in files that are converted in any order."""
    async with archiving(tmp_path / "crawl", max_bytes=1) as archive:
        for later_s in order:
            made = exchange("a", HTML.replace(b"A heading", b"Heading %d" % later_s), started_at=NOON + later_s)
            await archive.write([page(made, content_type="text/html", charset="utf-8")], [])
    export(warc_files([tmp_path / "crawl"]), ExportSettings(tmp_path / "out", "markdown"), 1, ignored)
    (file,) = readers.files(tmp_path / "out" / "site.test")
    assert "# Heading 60" in file.read_text()


def test_archives_of_others(tmp_path: Path) -> None:
    """Some crawlers store bodies in their transfer coding, others only keep its header."""
    file = tmp_path / "theirs.warc"
    bodies = {
        "a": b"3\r\n<p>\r\n2\r\nhi\r\n0\r\n\r\n",
        "b": b"<p>not chunked",
        "c": b"0\r\n\r\n",
        "d": b"3\r\n<p>\r\n9\r\nhi",
    }
    file.write_bytes(b"".join(their_record(name, body) for name, body in bodies.items()))
    assert export([file], ExportSettings(tmp_path / "out"), 1, ignored).rows == 4
    read = [(line["size"], line["truncated"]) for line in readers.lines(tmp_path / "out")]
    assert read == [(5, None), (14, None), (0, None), (5, "disconnect")]


def their_record(name: str, body: bytes) -> bytes:
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    return (
        b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.test/%b\r\nWARC-Record-ID: <urn:x:%b>\r\n"
        b"WARC-Date: 2026-09-21T14:13:20Z\r\nContent-Type: application/http; msgtype=response\r\n"
        b"Content-Length: %d\r\n\r\n%b\r\n\r\n" % (name.encode(), name.encode(), len(block), block)
    )


@pytest.mark.parametrize("form", ["jsonl", "markdown"])
def test_a_broken_file_is_told_of_by_its_name(tmp_path: Path, form: Form) -> None:
    file = tmp_path / "broken.warc.gz"
    file.write_bytes(b"\x1f\x8b\x08 nothing of the sort")
    done = export([file], ExportSettings(tmp_path / "out", form), 1, ignored)
    assert (done.rows, list(done.broken)) == (0, [file])
    with pytest.raises(UserError, match="no WARC file in"):
        warc_files([tmp_path / "out"])


@pytest.mark.parametrize("command", ["export", "audit"])
def test_a_half_copied_file_is_told_of_with_the_number_of_missing_records(
    crawl: Path, typed: Typed, command: str
) -> None:
    (_, path) = sorted(crawl.glob("*.warc.gz"))
    os.truncate(path, path.stat().st_size // 2)
    done = typed(command, str(crawl))
    assert done.code == {"export": 2, "audit": 1}[command]  # the crawl was not polite either
    assert re.search(r"cut off or damaged: .*; [12] records? named in .* would be beyond its end", done.err)


@pytest.mark.parametrize("command", ["export", "audit", "export --format wacz"])
@pytest.mark.parametrize("is_lost", [True, False])
def test_lost_lines_are_told_of_with_the_number_of_pages_without_one(
    crawl: Path, typed: Typed, command: str, is_lost: bool
) -> None:
    (crawl / "news.settings.toml").write_text("frontier.shards = 8\n")
    words = (
        [*command.split(), str(crawl), "--out", "out"]
        if "export" in command
        else ["audit", str(crawl), "--tolerance", "1e6"]
    )
    assert "without a line" not in typed(*words).err
    shutil.rmtree("out", ignore_errors=True)
    lines = sorted(crawl.glob("*.pages.jsonl"))[-1]
    whole = lines.read_bytes()
    lines.unlink() if is_lost else lines.write_bytes(whole.splitlines(keepends=True)[0])
    for _ in range(1 if "wacz" in command else 2):  # the second time, too
        done = typed(*words)
        assert done.code == 2
        number = "2 pages" if is_lost else "1 page"
        assert f"{number} in it without a line" in done.err
        assert lines.name in done.err


def test_a_crawl_that_writes_no_lines_lacks_none(crawl: Path, typed: Typed) -> None:
    (crawl / "news.settings.toml").write_text("archive.pages = false\n")
    for lines in crawl.glob("*.pages.jsonl"):
        lines.unlink()
    assert typed("export", str(crawl), "--out", "out").code == 0


def test_the_commands(crawl: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    (file, _) = readers.warc_files(crawl)
    printed = run(app, ["extract", str(file), "--text", "markdown"])
    assert printed.exit_code == 0
    assert msgspec.json.decode(printed.stdout_bytes)["markdown"].startswith("# A heading")
    exported = run(app, ["export", str(crawl), "--out", str(tmp_path / "out"), "--processes", "1"])
    assert exported.exit_code == 0
    assert "3 rows from 2 WARC files" in exported.output


def _dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_is_an_error_of_one_line() -> None:
    """As the kernel does it if there is no memory."""
    with pytest.raises(UserError, match="repeat the command, with fewer --processes"), shared_work(2) as pool:
        pool.submit(_dies).result()


def test_so_is_one_that_the_system_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("multiprocessing.popen_fork.os.fork", fork)
    with pytest.raises(UserError, match="no process can be started"), shared_work(2) as pool:
        pool.submit(os.getpid).result()


ROBOTS = statement("robots.txt line 3: Content-Usage", b"train-ai=n")
OPEN = statement("header Content-Usage", b"train-ai=y, search=n")
REFUSED = combined([ROBOTS, Statement("meta robots: noimageai", ())], "https://site.test/policy")
HEADER = b"Content-Usage: train-ai=y, search=n"


@pytest.fixture
async def preferring(tmp_path: Path) -> Path:
    """A page whose robots.txt refuses training, one whose header refuses search, one without a word, one withheld."""
    async with archiving(tmp_path / "crawl", parquet=True) as archive:
        html = {"content_type": "text/html"}
        await archive.write(
            [
                page(exchange("robots", b"<p>" + b"some words of text " * 50), usage=REFUSED, **html),
                page(exchange("header", b"<p>" + b"other words of text " * 50, HEADER), usage=combined([OPEN]), **html),
                page(exchange("silent", b"<p>" + b"more words of text " * 50), **html),
                page(exchange("withheld", b"<title>secret"), usage=combined([OPEN]), title="secret", **html).withheld(),
            ]
        )
    return tmp_path / "crawl"


def names(folder: Path) -> set[str]:
    return {str(line["url"]).rpartition("/")[2] for line in readers.lines(folder)}


def test_a_withheld_page_keeps_the_licences_of_its_site() -> None:
    """They come from robots.txt, and may be what permits the use."""
    assert page(exchange("a", b""), licenses=("https://a.test/rsl.xml",)).withheld().licenses == (
        "https://a.test/rsl.xml",
    )


def test_the_lines_say_it(preferring: Path) -> None:
    lines = {str(line["url"]).rpartition("/")[2]: line for line in readers.lines(preferring)}
    robots, silent = lines["robots"], lines["silent"]
    assert (robots["usage"], robots["tdm_policy"]) == ("train-ai=n", "https://site.test/policy")
    assert robots["usage_statements"] == ["robots.txt line 3: Content-Usage: train-ai=n", "meta robots: noimageai"]
    assert (silent["usage"], silent["usage_statements"], silent["tdm_policy"]) == (None, [], None)


def test_metadata_records_say_it(preferring: Path) -> None:
    (file,) = readers.warc_files(preferring)
    metadata = [record.payload.decode() for record in readers.by_warcio(file) if record.type == "metadata"]
    assert "usage: train-ai=n\r\nusage-statement: robots.txt line 3: Content-Usage: train-ai=n\r\n" in metadata[0]
    assert "tdm-policy: https://site.test/policy\r\n" in metadata[0]
    assert not any("usage" in text or "tdm" in text for text in metadata[2:])


def test_nothing_of_a_withheld_page_is_kept(preferring: Path) -> None:
    line = next(line for line in readers.lines(preferring) if str(line["url"]).endswith("withheld"))
    assert (line["outcome"], line["reason"], line["status"], line["usage"]) == (
        "denied",
        "usage",
        200,
        "train-ai=y, search=n",
    )
    assert (line["warc"], line["size"], line["digest"], line["title"], line["links"]) == (None, 0, "", "", [])
    assert line["fetched_at"] is not None
    (file,) = readers.warc_files(preferring)
    assert not any("withheld" in record.url for record in readers.by_warcio(file))


def test_a_withheld_page_that_failed_stays_a_failure() -> None:
    failed = page(exchange("a", b"body"), outcome=Outcome.DEAD, reason="http_503").withheld()
    assert (failed.outcome, failed.reason, failed.is_withheld) == (Outcome.DEAD, "http_503", True)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ([], {"robots", "header", "silent"}),
        (["--usage", "train-ai"], {"header", "silent"}),
        (["--usage", "search"], {"robots", "silent"}),
        (["--usage", "train-ai", "--usage", "search"], {"silent"}),
        (["--usage", "ai-use"], {"robots", "header", "silent"}),
    ],
)
def test_an_export_leaves_out_what_is_refused_and_counts_it(
    preferring: Path, typed: Typed, tmp_path: Path, options: list[str], left: set[str]
) -> None:
    done = typed("export", str(preferring), "--out", "out", *options)
    assert done.code == 0, done.err
    assert names(tmp_path / "out") == left
    assert f"{len(left)} row" in done.out
    if options:
        said = told(done, f"refuse {', '.join(sorted(options[1::2]))}: {3 - len(left)} page")
        assert said == (len(left) < 3)
    else:
        assert "refuse" not in done.err
    # An export for another use replaces the files.
    assert typed("export", str(preferring), "--out", "out", "--usage", "train-ai").code == 0
    assert names(tmp_path / "out") == {"header", "silent"}


def told(done: Finished, text: str) -> bool:
    return text in " ".join(done.err.split())


def test_an_exported_row_says_what_the_line_says(preferring: Path, typed: Typed, tmp_path: Path) -> None:
    assert typed("export", str(preferring), "--out", "out").code == 0
    exported = {row["url"]: row for row in readers.lines(tmp_path / "out")}
    for line in readers.lines(preferring):
        if line["warc"] is not None:
            assert [exported[line["url"]][name] for name in ("usage", "usage_statements", "tdm_policy")] == [
                line[name] for name in ("usage", "usage_statements", "tdm_policy")
            ]


@pytest.mark.parametrize("form", ["markdown", "parquet"])
def test_other_formats_leave_it_out_too(preferring: Path, typed: Typed, form: str) -> None:
    done = typed("export", str(preferring), "--out", "out", "--format", form, "--usage", "train-ai")
    assert (done.code, "2 " in done.out) == (0, True)
    assert told(done, "left out, because their owners refuse train-ai: 1 page")


def test_one_file_is_extracted_without_them(preferring: Path, typed: Typed) -> None:
    (file,) = readers.warc_files(preferring)
    done = typed("extract", str(file), "--usage", "train-ai")
    assert ("site.test/header" in done.out, "site.test/robots" in done.out) == (True, False)
    assert told(done, "refuse train-ai: 1 page")


async def test_archives_without_metadata_records_are_filtered_by_their_responses(tmp_path: Path, typed: Typed) -> None:
    """The archives of others have none. What robots.txt said is then unknown, and the command says so."""
    await archived(
        tmp_path / "crawl",
        [page(exchange("robots", b"a"), usage=REFUSED), page(exchange("header", b"b", HEADER))],
        metadata=False,
    )
    done = typed("export", "crawl", "--out", "out", "--usage", "search")
    assert names(tmp_path / "out") == {"robots"}
    assert told(done, "1 page without a metadata record: what robots.txt says of their use is unknown")


def test_the_options_know_all_categories() -> None:
    assert tuple(USES.choices) == CATEGORIES


HANDLERS = """
from crawler import Router
router = Router()
@router.handler()
async def push(page, crawl):
    await crawl.push("s", {"v": VALUE})
"""


def test_with_handlers_everything_is_exported_again(crawl: Path, typed: Typed, tmp_path: Path) -> None:
    for value in ("1", "22"):
        sys.modules.pop("pushing", None)
        (tmp_path / "pushing.py").write_text(HANDLERS.replace("VALUE", value))
        done = typed("export", str(crawl), "--app", "pushing:router", "--out", "out")
        assert (done.code, done.out) == (0, "3 rows from 2 WARC files in out/\n"), done.err
        found = [line["items"] for line in readers.lines(tmp_path / "out")]
        assert {"s": [{"v": int(value)}]} in found
    del sys.modules["pushing"]


MINE = "of somebody"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("s.csv", ("--items", "s", "--format", "csv")),
        ("s.rejected.jsonl", ("--items", "s", "--format", "csv")),
        ("changes.csv", ("--changes", "--since", "2020-01-01", "--format", "csv")),
        ("w.wacz", ("--format", "wacz")),
    ],
)
async def test_files_that_no_export_made_stay(typed: Typed, tmp_path: Path, name: str, words: tuple[str, ...]) -> None:
    await archived(tmp_path / "crawl", [page(exchange("a", HTML), visit="new", items=(Item("s", b'{"v":1}'),))])
    out = tmp_path / "out"
    out.mkdir()
    for other in ("notes.2024.tmp", name):
        (out / other).write_text(MINE)
    command = ("export", "crawl", *words, "--out", "out/w.wacz" if name == "w.wacz" else "out")
    refused = typed(*command)
    assert (refused.code, "no export has made it" in refused.err) == (2, True), refused
    assert (out / name).read_text() == MINE
    (out / name).unlink()
    for _ in range(2):  # its own file is replaced
        done = typed(*command)
        assert done.code == 0, done
    assert (out / "notes.2024.tmp").read_text() == MINE


async def test_a_data_set_does_not_replace_what_another_has_rejected(typed: Typed, tmp_path: Path) -> None:
    items, rejected = (
        (Item("s", b'{"v":1}'), Item("s.rejected", b'{"v":1}')),
        RejectedItem("s", "v", "type", json=b'{"v":"x"}'),
    )
    await archived(tmp_path / "crawl", [page(exchange("a", HTML), items=items, rejected=(rejected,))])
    assert "s.rejected.jsonl" in typed("export", "crawl", "--items", "s").err
    rejected = (tmp_path / "export/s.rejected.jsonl").read_text()
    refused = typed("export", "crawl", "--items", "s.rejected")
    assert (refused.code, "was exported from rejected items s: use another folder" in refused.err) == (2, True)
    assert (tmp_path / "export/s.rejected.jsonl").read_text() == rejected


def test_rows_of_a_cut_file_do_not_replace_other_files(crawl: Path, typed: Typed, tmp_path: Path) -> None:
    first = sorted(crawl.glob("*.warc.gz"))[0]
    data = first.read_bytes()
    (tmp_path / "news.warc.gz").write_bytes(data[:-5])
    (tmp_path / "out").mkdir()
    result = tmp_path / "out/news.cut.pages.jsonl"
    result.write_text(MINE)
    assert "no export has made it" in typed("export", "news.warc.gz", "--out", "out").err
    assert result.read_text() == MINE
    result.unlink()
    for _ in range(2):
        assert "could not be read to the end" in typed("export", "news.warc.gz", "--out", "out").err
        assert result.exists()
    (tmp_path / "news.warc.gz").write_bytes(data)
    assert typed("export", "news.warc.gz", "--out", "out").code == 0
    assert not result.exists()
    result.write_text(MINE)
    assert typed("export", "news.warc.gz", "--out", "out").code == 2
    assert result.read_text() == MINE


@pytest.mark.parametrize("names", [("news.warc.gz", "news.cut.warc.gz"), ("news.warc.gz.open", "news.open.warc.gz")])
def test_files_whose_results_may_have_one_name_are_refused(
    crawl: Path, typed: Typed, tmp_path: Path, names: tuple[str, str]
) -> None:
    (tmp_path / "both").mkdir()
    for path, name in zip(sorted(crawl.glob("*.warc.gz")), names, strict=True):
        shutil.copy(path, tmp_path / "both" / name)
    refused = typed("export", "both", "--processes", "1")
    assert (refused.code, "may have the same name: export them to two folders" in refused.err) == (2, True)
    assert readers.files(tmp_path / "export", ".jsonl") == []
