"""The queries of `docs/how-to/query-output.md` and the examples of `docs/how-to/extend.md` are run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from msgspec.structs import replace

from crawler.errors import UserError
from crawler.hooks import SINKS, PageHooks, load
from crawler.page import Link, Outcome
from crawler.sinks import SinkContext
from crawler.sinks.archive import Archive
from crawler.sinks.tee import Tee
from tests.sinks import readers
from tests.sinks.values import exchange, page, settings

DOCS = Path(__file__).parent.parent / "docs" / "how-to"


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / name).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
async def crawl(tmp_path: Path) -> Path:
    """A small crawl in `crawl-out`."""
    folder = tmp_path / "crawl-out"
    archive = Archive(settings(folder, max_bytes=1, parquet=True, simhash=True))
    await archive.start()
    about, html = (Link("https://example.com/about"),), {"content_type": "text/html"}
    a, b, c = (exchange(name, body) for name, body in (("a", b"<p>said"), ("b", b"<p><b>said"), ("c", b"c")))
    await archive.write([page(a, links=about, **html), page(b, **html)])
    await archive.write([page(replace(c, status=404)), page(None, "d", outcome=Outcome.DENIED, reason="robots")])
    await archive.stop()
    return folder


def test_the_queries_are_answered(crawl: Path) -> None:
    per_status, reasons, once, backlinks, near = (ask(query, crawl) for query in blocks("query-output.md", "sql"))
    assert per_status == [("site.test", 200, 2), ("site.test", 404, 1)]
    assert reasons == [("denied", "robots", 1)]
    assert [(url, status) for url, status, _ in once] == [
        ("https://site.test/a", 200),
        ("https://site.test/b", 200),
        ("https://site.test/c", 404),
        ("https://site.test/d", None),
    ]
    assert backlinks == [("https://site.test/a",)]
    assert near == [("https://site.test/a", "https://site.test/b")]


def test_the_lines_answer_like_parquet(crawl: Path) -> None:
    first = blocks("query-output.md", "sql")[0]
    assert ask(first.replace(".parquet", ".jsonl"), crawl) == ask(first, crawl)


def ask(query: str, crawl: Path) -> list[tuple[object, ...]]:
    answer = duckdb.sql(query.replace("crawl-out", str(crawl)).strip().rstrip(";"))
    assert answer is not None
    return answer.fetchall()


async def test_the_examples_of_hooks_and_sinks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_hooks.py").write_text("\n".join(blocks("extend.md", "python")))
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    hooks = PageHooks.named(["my_hooks:headings"])
    sink = load("my_hooks:Listing", SINKS)(SinkContext(out, "news", "host-1a2b"))
    tee = Tee(Archive(settings(out), hooks=hooks), [sink])
    await tee.start()
    html = page(exchange("a", b"<h1>First</h1><p>text<h2>Second</h2>"), content_type="text/html")
    await tee.write([html, page(exchange("b", b"%PDF"), content_type="application/pdf"), page(None, "c")])
    await tee.stop()
    assert hooks.take_failures() == []
    a, b, c = readers.lines(out)
    assert a["extra"] == {"headings": ["First", "Second"]}
    assert (b["extra"], b["warc"], c["extra"]) == (None, None, None)
    (listing,) = readers.files(out, ".urls.txt")
    assert [url[-1] for url in listing.read_text().split()] == ["a", "b", "c"]


def test_a_hook_that_is_not_there_is_told_of_before_the_crawl() -> None:
    with pytest.raises(UserError, match="cannot be imported"):
        PageHooks.named(["no_such_module:hook"])
