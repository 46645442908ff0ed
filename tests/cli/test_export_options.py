"""Each option of `crawler export` has an effect, or is refused in one line: with each other one, in each kind of export."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.cli.export import USED, export
from crawler.page import Item
from crawler.sinks.archive import Archive
from tests.e2e.harness import Finished
from tests.postgres import PASSWORD, PostgresProcess, need_postgres
from tests.sinks.values import NOON, exchange, page, settings
from tests.typed import Typed

need_postgres()

OPTIONS = {
    "out": ("--out", "there"),
    "form": ("--format", "parquet"),
    "items": ("--items", "shop"),
    "to": ("--to", "postgresql://127.0.0.1:1/none"),
    "table": ("--table", "other"),
    "key": ("--key", "n"),
    "follow": ("--follow",),
    "changes": ("--changes",),
    "since": ("--since", "2026-01-01"),
    "latest": ("--latest",),
    "settings": ("--settings", "shop.toml"),
    "app": ("--app", "shop:router"),
    "text": ("--text", "text"),
    "structured": ("--structured",),
    "links": ("--no-links",),
    "simhash": ("--simhash",),
    "usage": ("--usage", "train-ai"),
    "skip_noindex": ("--skip-noindex",),
    "skip_unlinked": ("--skip-unlinked",),
    "crawl": ("--crawl", "other"),
    "processes": ("--processes", "1"),
}

KINDS = {
    "pages": (),
    "--format markdown": ("--format", "markdown"),
    "--format wacz": ("--format", "wacz"),
    "--items": ("--items", "shop"),
    "--to": ("--items", "shop", "--to", "URL", "--key", "url"),
    "--changes": ("--changes", "--since", "2026-01-01"),
}

WITHOUT_TRACE = {"processes"}
"""Options that change how fast an export is, and nothing in it."""

Outcome = tuple[Any, ...]
Run = Callable[..., tuple[Finished, Outcome]]

HTML = b'<title>T</title><script type=\'application/ld+json\'>{"@type": "Product"}</script><p>' + b"Some text. " * 90


async def crawled(folder: Path) -> None:
    """Two files, the first of the year before."""
    one = {"content_type": "text/html", "visit": "new"}
    items = tuple(Item("shop", msgspec.json.encode({"url": name, "n": name})) for name in "ab")
    at = NOON - 366 * 86_400
    first = page(exchange("a", HTML, started_at=at), items=items[:1], settled_at=at, **one)
    second = page(exchange("b", HTML, b"Content-Usage: train-ai=n", b"X-Robots-Tag: noindex"), items=items[1:], **one)
    for written in (first, second):
        archive = Archive(settings(folder), lambda now=written.settled_at: now)
        await archive.start()
        await archive.write([written])
        await archive.stop()
    (folder.parent / "shop.toml").write_text('[[extract]]\nname = "x"\nfields = { t = { css = "title" } }\n')
    (folder.parent / "shop.py").write_text(
        "from crawler import Router\nrouter = Router()\n"
        "@router.handler()\ndef handle(page, crawl): crawl.push('y', {'t': page.select_text('title')})\n"
    )


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresProcess]:
    with PostgresProcess() as server:
        yield server


@pytest.fixture
async def run(typed: Typed, server: PostgresProcess, tmp_path: Path) -> Run:
    """Exports a crawl into an empty folder or an empty table. Returns what the command said, and what came of it."""
    await crawled(tmp_path / "crawl-out")
    for path in (tmp_path / "crawl-out").glob("*-2025*"):
        os.utime(path, (0, 0))

    @cache
    def export(*words: str) -> tuple[Finished, Outcome]:
        given = [server.url if word == "URL" else word for word in words]
        before = {path for path in tmp_path.rglob("*") if path.is_file()}
        done = typed("export", "crawl-out", *given, environment={"PGPASSWORD": PASSWORD})
        made = sorted({path for path in tmp_path.rglob("*") if path.is_file()} - before)
        found = [(str(path.relative_to(tmp_path)), _content(path)) for path in made if path.name != ".exported.json"]
        for path in made:
            path.unlink()
        return done, (done.code, found, _tables_taken(server) if "URL" in words else [])

    return export


def _tables_taken(server: PostgresProcess) -> list[tuple[Any, ...]]:
    """The tables with their keys, which are removed."""
    found = server.query(
        "SELECT table_name, conname, pg_get_constraintdef(oid) FROM information_schema.tables "
        "JOIN pg_constraint ON conrelid = table_name::regclass WHERE table_schema = 'public' ORDER BY 1, 2"
    )
    server.query("DROP TABLE IF EXISTS shop, other, crawler_positions")
    return found


def _content(path: Path) -> object:
    if path.suffix != ".wacz":
        return path.read_bytes()
    with zipfile.ZipFile(path) as packed:  # without the times in its manifest
        return [(name, packed.read(name)) for name in packed.namelist() if name.startswith("pages/")]


def is_refused(done: Finished) -> bool:
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    return done.code == 2 and len(errors) == 1 and done.err.splitlines()[-1] == errors[0]


def test_the_options_of_the_command_are_all_here() -> None:
    names = {one.name for one in export.params} - {"archives"}
    assert names == set(OPTIONS) == set().union(*USED.values()) - {"archives"}


@pytest.mark.long
def test_each_pair_has_an_effect_or_is_refused(run: Run) -> None:
    for pair in combinations(OPTIONS, 2):
        first, second = (OPTIONS[name] for name in pair)
        done, both = run(*first, *second)
        if not is_refused(done):
            assert WITHOUT_TRACE.issuperset(pair[:1]) or both != run(*second)[1], f"{first} is ignored with {second}"
            assert WITHOUT_TRACE.issuperset(pair[1:]) or both != run(*first)[1], f"{second} is ignored with {first}"


@pytest.mark.parametrize("kind", KINDS)
def test_each_option_has_an_effect_in_a_kind_of_export_or_is_refused(run: Run, kind: str) -> None:
    alone, before = run(*KINDS[kind])
    assert alone.code == 0, alone.err
    for name, words in OPTIONS.items():
        # To follow would not end. The folder with --to has items that are left out, of which there are none here.
        if words[0] in KINDS[kind] or (kind == "--to" and name in ("follow", "out")):
            continue
        done, after = run(*KINDS[kind], *words)
        refused = is_refused(done)
        assert refused or name in WITHOUT_TRACE or after != before, f"{words} is ignored by {kind}"
        assert not refused or after[1:] == ([], []), "nothing was done"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--items", "shop", "--to", "URL", "--key", "url", "--format", "csv"), "--format has no effect with --to"),
        (
            ("--items", "shop", "--settings", "shop.toml"),
            "`crawler export FOLDER --settings FILE --out again`, then `crawler export again --items NAME`",
        ),
        (("--format", "csv"), "--format csv needs --items or --changes; for pages, use parquet or jsonl"),
        (("--items", "shop", "--no-links"), "--no-links has no effect with --items"),
        (("--follow",), "--follow needs --items and --to"),
        (("--items", "shop", "--follow"), "--table and --follow need --to, and --key needs --to or --latest"),
        (("--items", "shop", "--latest"), "--latest needs --key: the field that tells items apart"),
        (("--latest",), "--latest needs --items"),
        (("--changes", "--since", "2d", "--follow"), "--follow has no effect with --changes: leave it out"),
        (("--format", "markdown", "--text", "text"), "--text has no effect with --format markdown"),
        (("--crawl", "other"), "no file of a crawl 'other' to export in crawl-out"),
        (
            ("--items", "shop", "--to", "URL", "--key", "url", "--follow", "--crawl", "a"),
            "--crawl cannot be used with --f",
        ),
        (("--out", "out.zip"), "--out out.zip has the name of a file: name a folder, and the files in it get their"),
        (("--out", "out.wacz"), "--out out.wacz has the name of a file: name a folder"),
        (("--format", "wacz", "--out", "out.zip"), "--out out.zip has the name of a file: name a folder or NAME.wacz"),
        (("--items", "shop", "--format", "csv", "--out", "a.csv"), "--out a.csv has the name of a file"),
    ],
)
def test_what_is_refused_says_what_to_do(run: Run, words: tuple[str, ...], said: str) -> None:
    done, after = run(*words)
    assert is_refused(done) and said in done.err
    assert after[1:] == ([], [])


def test_a_folder_may_have_any_name(run: Run, tmp_path: Path) -> None:
    (tmp_path / "v1.zip").mkdir()
    assert run("--out", "v1.zip")[0].code == 0


async def test_warc_files_have_no_items(typed: Typed, tmp_path: Path) -> None:
    await crawled(tmp_path / "crawl-out")
    file, _ = (tmp_path / "crawl-out").glob("*.warc.gz")
    done = typed("export", str(file), "--items", "shop")
    assert is_refused(done) and "is a WARC file: items and changes are in the files *.pages.jsonl" in done.err
