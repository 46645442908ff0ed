"""The queries of `docs/how-to/query-output.md` and the examples of `docs/how-to/extend.md` are run as they stand."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from msgspec.structs import replace

from crawler.errors import UserError
from crawler.hooks import SINKS, PageHooks, load
from crawler.page import Item, Link, Outcome
from crawler.sinks import SinkContext
from crawler.sinks.archive import Archive
from crawler.sinks.items import export_items
from crawler.sinks.sink import CombinedSink
from tests.sinks import readers
from tests.sinks.values import NOON, exchange, page, settings

DOCS = Path(__file__).parent.parent / "docs" / "how-to"


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / name).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
async def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> duckdb.DuckDBPyConnection:
    """DuckDB in a folder with a crawl in `crawl-out`: a finished volume, and one whose last line is being written."""
    monkeypatch.chdir(tmp_path)
    archive = Archive(settings(Path("crawl-out"), max_bytes=1, parquet=True))
    await archive.start()
    about, html = (Link("https://example.com/about"),), {"content_type": "text/html"}
    a, b, c = (exchange(name, body) for name, body in (("a", b"<p>said"), ("b", b"<p><b>said"), ("c", b"c")))
    await archive.write([page(a, links=about, **html), page(b, **html)])
    await archive.write([page(replace(c, status=404)), page(None, "d", outcome=Outcome.DENIED, reason="robots")])
    await archive.stop()
    reopen_last(tmp_path)
    return duckdb.connect()


def reopen_last(folder: Path) -> None:
    """Make the last file one that is being written: half a line follows its last one."""
    finished = max(folder.glob("crawl-out/*.pages.jsonl"))
    with finished.open("a") as file:
        file.write('{"url":"https://site.test/e","doma')
    finished.rename(finished.with_name(f"{finished.name}.open"))


async def test_pages_without_links_can_be_asked_for_their_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB takes a list that is empty on all lines for JSON."""
    monkeypatch.chdir(tmp_path)
    archive = Archive(settings(Path("crawl-out")))
    await archive.start()
    await archive.write([page(exchange("a", b"<p>said"), links=(), content_type="text/html")])
    await archive.stop()
    view, *queries, _ = blocks("query-output.md", "sql")
    with duckdb.connect() as database:
        database.execute(view)
        assert [database.execute(query).fetchall() for query in queries[3:]] == [[], [], []]


def test_the_queries_are_answered(database: duckdb.DuckDBPyConnection) -> None:
    """All blocks of the page are run in their order, in the folder that contains `crawl-out`."""
    view, *queries, near = blocks("query-output.md", "sql")
    (export,) = blocks("query-output.md", "sh")
    (frame,) = blocks("query-output.md", "python")
    database.execute(view)
    per_status, reasons, once, backlinks, *_ = (database.execute(query).fetchall() for query in queries)
    assert per_status == [("site.test", 200, 2), ("site.test", 404, 1)]
    assert reasons == [("denied", "robots", 1)]
    assert [(url, status) for url, status, _ in once] == [
        ("https://site.test/a", 200),
        ("https://site.test/b", 200),
        ("https://site.test/c", 404),
        ("https://site.test/d", None),
    ]
    assert backlinks == [("https://site.test/a",)]
    subprocess.run([sys.executable, "-m", *shlex.split(export)], check=True, capture_output=True)
    assert database.execute(near).fetchall() == [("https://site.test/a", "https://site.test/b")]
    names: dict[str, Any] = {}
    exec(frame, names)
    assert set(names["pages"].url) == {"https://site.test/a", "https://site.test/b"}, "the finished file"


async def test_what_visits_have_found_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    archive = Archive(settings(Path("crawl-out")))
    await archive.start()
    for number, found in enumerate(("new", "changed", "unchanged", "changed", "")):
        visit = {"visit": found, "settled_at": NOON + 60 * number, "previous_at": NOON - 60}
        await archive.write([page(exchange("a", b"a"), **visit), page(exchange("b", b"b"))])
    await archive.stop()
    view, *queries, _ = blocks("query-output.md", "sql")
    with duckdb.connect() as database:
        database.execute(view)
        database.execute("SET TimeZone = 'UTC'")
        visits, changes = map(database.sql, queries[4:])
        assert visits.fetchall() == [("changed", 2, 1), ("new", 1, 1), ("unchanged", 1, 1)]
        assert changes.project("url, changes, last::VARCHAR").fetchall() == [
            ("https://site.test/a", 2, "2026-09-21 14:16:20.123+00")
        ]


async def test_changed_prices_and_products_that_are_left_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    archive = Archive(settings(Path("crawl-out")))
    await archive.start()
    at = dict.fromkeys("ab", NOON)
    visits = (("a", "new", 5), ("b", "new", 7), ("a", "unchanged", None), ("a", "changed", 4.5), ("b", "gone", None))
    for name, found, price in visits:
        at[name] += 60
        fields = {"url": f"https://site.test/{name}", "price": price}
        items = () if price is None else (Item("products", msgspec.json.encode(fields)),)
        await archive.write([page(exchange(name, b"x"), visit=found, settled_at=at[name], items=items)])
    await archive.stop()
    export_items([tmp_path / "crawl-out"], "products", tmp_path / "export" / "products.jsonl", ("url",))
    changed, left = blocks("recipe-shop-to-postgresql.md", "sql")
    with duckdb.connect() as database:
        database.execute(blocks("query-output.md", "sql")[0])
        assert [row[:3] for row in database.execute(changed).fetchall()] == [("https://site.test/a", "5", "4.5")]
        assert database.sql(left.rstrip().rstrip(";")).project("url, price").fetchall() == [
            ("https://site.test/a", 4.5)
        ]


def test_parquet_answers_like_the_lines(database: duckdb.DuckDBPyConnection) -> None:
    view, first, *_ = blocks("query-output.md", "sql")
    database.execute(view)
    page = (DOCS / "query-output.md").read_text()
    (parquet, _) = re.findall(r"use `(FROM '.*?')`", page)
    assert first.replace("FROM pages", parquet) != first
    assert database.execute(first.replace("FROM pages", parquet)).fetchall() == database.execute(first).fetchall()


async def test_the_examples_of_hooks_and_sinks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_hooks.py").write_text("\n".join(blocks("extend.md", "python")))
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    hooks = PageHooks.named(["my_hooks:headings"])
    sink = load("my_hooks:Listing", SINKS)(SinkContext(out, "news", "host-1a2b"))
    combined = CombinedSink(Archive(settings(out), hooks=hooks), [sink])
    await combined.start()
    html = page(exchange("a", b"<h1>First</h1><p>text<h2>Second</h2>"), content_type="text/html")
    await combined.write([html, page(exchange("b", b"%PDF"), content_type="application/pdf"), page(None, "c")])
    await combined.stop()
    assert hooks.take_failures() == []
    a, b, c = readers.lines(out)
    assert a["extra"] == {"headings": ["First", "Second"]}
    assert (b["extra"], b["warc"], c["extra"]) == (None, None, None)
    (listing,) = readers.files(out, ".urls.txt")
    assert [url[-1] for url in listing.read_text().split()] == ["a", "b", "c"]


def test_a_hook_that_is_not_there_is_told_of_before_the_crawl() -> None:
    with pytest.raises(UserError, match="cannot be imported"):
        PageHooks.named(["no_such_module:hook"])
