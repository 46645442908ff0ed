"""The content of pages in JSON lines and in Parquet."""

from __future__ import annotations

import gzip
from pathlib import Path

import duckdb
import pandas  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from crawler.page import NO_CONTENT, Link, Outcome, TextForm
from crawler.parse.text import MAX_BYTES, content_of
from crawler.sinks.archive import Archive
from crawler.sinks.parquet import GROUP_ROWS, parquet_path, write_parquet
from tests.sinks import readers
from tests.sinks.values import NOON, exchange, page, settings

HTML = (
    "<!doctype html><html><head><meta name=Description content=' In short. '>"
    "<meta property='og:title' content='Żółw'>"
    '<script type=\'application/ld+json\'>{"@type": "Thing", "n": [1, 2]}</script></head>'
    "<body><nav><a href=/x>menu</a></nav><main><article><h1>A heading</h1>"
    + "<p>The main text of the page, <b>long enough</b> to be found.</p>" * 5
    + "</article></main><footer>small print</footer></body></html>"
).encode()
HTML_TYPE = {"content_type": "text/html", "charset": "utf-8"}


def test_text_or_markdown_of_the_main_content() -> None:
    made = page(exchange("a", HTML), **HTML_TYPE)
    text = content_of(made, "text", structured=False)
    assert text.text is not None
    assert text.text.startswith("A heading")
    assert "menu" not in text.text
    assert (text.description, text.markdown, text.json_ld) == ("In short.", None, None)
    markdown = content_of(made, "markdown", structured=False)
    assert markdown.markdown is not None
    assert markdown.markdown.startswith("# A heading")
    assert "**long enough**" in markdown.markdown
    assert markdown.text is None


def test_each_row_of_a_table_is_a_line_of_the_text() -> None:
    table = (
        b"<main><p>" + b"A long text about it, and about more. " * 9 + b"</p><table><caption>Prices</caption>"
        b"<thead><tr><th>fruit<th>price<tbody><tr><td>apple<td>1<tr><td>a fruit of a long name<td>"
        b"<table><tr><td>2<tr><td>3</table></table><p>The end."
    )
    found = content_of(page(exchange("a", table), **HTML_TYPE), "text", structured=False)
    assert found.text is not None
    lines = [line.strip() for line in found.text.splitlines() if line.strip()][1:]
    assert lines == ["Prices", "fruit price", "apple 1", "a fruit of a long name", "2", "3", "The end."]
    markdown = content_of(page(exchange("a", table), **HTML_TYPE), "markdown", structured=False, judged=True)
    assert "| apple | 1 |" in (markdown.markdown or "")


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("part", [b"<tr><td>a<td>b", b"<th>x", b"<ul><li>x<br>", b"<blockquote>x<p>y", b"<pre>x\n"])
def test_a_text_is_not_many_times_as_long_as_its_page(part: bytes, form: TextForm) -> None:
    """A table with one long cell was padded to 90 MB."""
    start = b"<article><p>" + b"A long text about it, and about more. " * 9 + b"<table><tr><td>" + b"x" * 60_000
    body = start + b"<td>y" + part * 1_000
    found = content_of(page(exchange("a", body), **HTML_TYPE), form, structured=True, judged=True)
    assert len(found.text or found.markdown or "") < 4 * len(body)


def test_a_text_that_grows_beyond_the_limit_is_cut() -> None:
    body = b"<article><p>" + b"word, " * 50 + b"<blockquote>" * 100 + b"<p>x" * 200_000
    found = content_of(page(exchange("a", body), **HTML_TYPE), "text", structured=False)
    assert (len(found.text or ""), found.cut) == (MAX_BYTES, ("text",))


def test_structured_data() -> None:
    found = content_of(page(exchange("a", HTML), **HTML_TYPE), "off", structured=True)
    assert found.json_ld == [{"@type": "Thing", "n": [1, 2]}]
    assert found.opengraph == {"title": "Żółw"}


def test_coded_bodies_are_decoded() -> None:
    coded = exchange("a", gzip.compress(HTML), b"Content-Encoding: gzip")
    assert content_of(page(coded, **HTML_TYPE), "text", structured=False).description == "In short."


def test_codings_in_several_lines_are_one_list() -> None:
    """RFC 9110 5.3."""
    coded = exchange("a", gzip.compress(HTML), b"Content-Encoding: identity", b"content-encoding: gzip")
    assert content_of(page(coded, **HTML_TYPE), "text", structured=False).description == "In short."
    assert (coded.header(b"content-encoding"), coded.header_list(b"content-encoding")) == (
        b"identity",
        b"identity, gzip",
    )
    assert coded.header_list(b"location") is None


def test_names_of_formatting_that_are_no_tags_are_left_as_they_are() -> None:
    """In documents with many tags, formatting elements are renamed, so that they cost no more than others."""
    html = (
        b"<meta name=description content='a <b>word</b>'><meta property='og:title' content='<i>t</i>'>"
        b'<script type="application/ld+json">{"<b>": ["<u>x</u>", {"y": "<b >"}]}</script>'
        b"<main><h1>Heading</h1><p>The <b>main</b> text</p>" + b"<p>of the page.</p>" * 5_000 + b"</main>"
    )
    found = content_of(page(exchange("a", html), **HTML_TYPE), "text", structured=True)
    assert found.description == "a <b>word</b>"
    assert found.opengraph == {"title": "<i>t</i>"}
    assert found.json_ld == [{"<b>": ["<u>x</u>", {"y": "<b >"}]}]
    assert found.text is not None
    assert "The main text" in found.text


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(page(None, "a"), id="no-answer"),
        pytest.param(page(exchange("a", HTML), content_type="application/pdf"), id="no-document"),
        pytest.param(page(exchange("a", HTML, status=404), **HTML_TYPE), id="an-error"),
        pytest.param(page(exchange("a", HTML), outcome=Outcome.DEAD, **HTML_TYPE), id="dead"),
    ],
)
def test_what_is_no_document_has_no_content(made: object) -> None:
    assert content_of(made, "text", structured=True) == NO_CONTENT  # type: ignore[arg-type]


def test_nothing_is_looked_at_unless_it_is_wanted() -> None:
    assert content_of(page(exchange("a", HTML), **HTML_TYPE), "off", structured=False) is NO_CONTENT


async def test_finished_files_become_parquet_while_the_crawl_goes_on(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path, max_bytes=1, parquet=True, text="text", structured=True))
    await archive.start()
    for number in range(5):
        await archive.write([page(exchange(f"{number}-{n}", HTML), **HTML_TYPE) for n in range(3)])
        assert rows_by_duckdb(tmp_path) in range(0, 3 * number + 1, 3)
    await archive.stop()
    assert rows_by_duckdb(tmp_path) == 15
    frame = pandas.concat(map(pandas.read_parquet, readers.files(tmp_path, ".parquet")))
    assert frame.url.is_unique
    assert list(frame.description.unique()) == ["In short."]
    assert [line["url"] for line in readers.lines(tmp_path)] == list(frame.url)


def rows_by_duckdb(folder: Path) -> int:
    if not list(folder.glob("*.parquet")):
        return 0
    counted = duckdb.sql(f"select count(distinct url) from '{folder}/*.parquet'")
    return int(counted.fetchall()[0][0]) if counted else 0


async def test_each_field_of_a_line_has_its_column(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path, structured=True))
    await archive.start()
    full = page(
        exchange("a", HTML), title="Żółw", links=(Link("https://a.test/"), Link("https://b.test/")), **HTML_TYPE
    )
    await archive.write([full, page(None, "denied", outcome=Outcome.DENIED)])
    await archive.stop()
    (lines,) = readers.files(tmp_path, ".jsonl")
    a, denied = pq.read_table(write_parquet(lines)).to_pylist()
    line, _ = readers.lines(tmp_path)
    assert isinstance(line["warc"], dict)
    assert (a["warc_file"], a["warc_offset"], a["warc_length"]) == tuple(line["warc"].values())
    assert a["settled_at"].timestamp() == pytest.approx(NOON + 1, abs=0.001)
    assert a["links"] == ["https://a.test/", "https://b.test/"]
    assert a["json_ld"] == '[{"@type":"Thing","n":[1,2]}]'
    same = [name for name in line if name not in ("warc", "settled_at", "fetched_at", "json_ld", "opengraph")]
    assert {name: a[name] for name in same} == {name: line[name] for name in same}
    assert (denied["outcome"], denied["status"], denied["warc_file"], denied["fetched_at"]) == (
        "denied",
        None,
        None,
        None,
    )


async def test_a_parquet_file_that_a_dead_writer_owes_is_made_at_the_next_start(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path))
    await archive.start()
    await archive.write([page(exchange("a", HTML))])
    await archive.stop()
    following = Archive(settings(tmp_path, replica="next", parquet=True))
    await following.start()
    await following.stop()
    (lines,) = readers.files(tmp_path, ".jsonl")
    assert pq.read_metadata(parquet_path(lines)).num_rows == 1


def test_large_files_have_several_groups(tmp_path: Path) -> None:
    lines = tmp_path / "a.pages.jsonl"
    one = (
        b'{"url":"https://a.test/%d","domain":"a.test","status":200,"outcome":"done","reason":"ok","depth":0,"tries":0,'
    )
    rest = (
        b'"settled_at":"2026-09-21T14:13:21.123Z","fetched_at":null,"elapsed_ms":1,"content_type":"","charset":"",'
        b'"title":"","lang":"","canonical":"","size":0,"decoded_size":0,"digest":"","truncated":null,'
        b'"noarchive":false,"noindex":false,"link_count":0,"links":null,"warc":null,"replica":"r"}\n'
    )
    lines.write_bytes(b"".join(one % n + rest for n in range(GROUP_ROWS + 1)))
    metadata = pq.read_metadata(write_parquet(lines))
    assert (metadata.num_rows, metadata.num_row_groups) == (GROUP_ROWS + 1, 2)
