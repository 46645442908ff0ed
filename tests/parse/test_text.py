"""The text and data of pages, and the fingerprints by which pages are compared."""

from __future__ import annotations

import gzip
import random
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import duckdb
import msgspec
import pandas  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from crawler.page import NO_CONTENT, Exchange, Link, Outcome, Page, TextForm
from crawler.parse.child import ChildProcess, DocumentOffloader
from crawler.parse.coding import DEFAULT_LIMIT
from crawler.parse.text import (
    MAX_BYTES,
    NEAR,
    DigestJob,
    NearIndex,
    content_of,
    is_light_body,
    is_near,
    simhash,
    words_of,
)
from crawler.scope.next_visit import DIGEST, TEXT_DIGEST
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
        b"<main><p>" + b"A text about it, and about more. " * 3 + b"</p><table><caption>Prices</caption>"
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


STORY = "The harbour of the town was closed for the winter, and the boats stayed on land until the ice had gone. " * 8
URL = "https://a.test/1"


def article(story: str = STORY, clock: str = "12:00:01", menu: str = "Home") -> bytes:
    return (
        f"<title>News</title><nav><a href=/>{menu}</a></nav><article><h1>Harbour</h1><p>{story}</p></article>"
        f"<footer><p>It is {clock}</p></footer>"
    ).encode()


def compared_page(body: bytes, coding: bytes = b"", content_type: str = "text/html") -> Page:
    headers = ((b"Content-Encoding", coding),) if coding else ()
    exchange = Exchange(URL, 200, "OK", headers, b"", b"", body, "", 0.0, 0.1, 0.1)
    return Page(
        *(URL, "a.test", 0, Outcome.DONE, "ok", 0.0),
        exchange=exchange,
        content_type=content_type,
        charset="utf-8",
        decoded_size=len(body),
    )


def digest(body: bytes, coding: bytes = b"") -> str:
    job = DigestJob.of(compared_page(body, coding), DEFAULT_LIMIT)
    assert job is not None
    return job.run(body)


def test_only_the_main_text_counts() -> None:
    assert len(digest(article())) == TEXT_DIGEST != DIGEST
    assert digest(article()) == digest(article(clock="12:00:02", menu="Start"))
    assert digest(article()) != digest(article(STORY.replace("winter", "summer")))


@pytest.mark.parametrize("page", ["<main>{}</main>", "<article>{}</article>", "<div><main>{}</main></div>"])
def test_the_header_of_an_article_counts(page: str) -> None:
    one, other = (page.format(f"<header><h1>Screw</h1><p>{price} EUR</p></header><p>{STORY}</p>") for price in (1, 2))
    assert digest(one.encode()) != digest(other.encode())


def test_what_is_beside_half_of_the_text_counts() -> None:
    one, other = (f"<main><p>{STORY}</p></main><section><p>{STORY} {day}</p></section>" for day in (1, 2))
    assert digest(one.encode()) != digest(other.encode())


@pytest.mark.parametrize("page", ["<main>{}</main>", "<div role=main>{}</div>", "<div>{}</div>"])
def test_no_section_of_several_is_left_out(page: str) -> None:
    """The parser takes the longest one for the main text."""
    longest = f"<section><h2>Old</h2><p>{STORY * 2}</p></section>"
    before, after = (
        page.format(f"{longest}<section><h2>New</h2><p>{STORY} Files are {word} deleted.</p></section>")
        for word in ("never", "always")
    )
    assert digest(before.encode()) != digest(after.encode())


FOOTER = (
    "Example Ltd, 5 Main Street. We use cookies to count visits; by going on you agree. All prices include tax. " * 2
)
ROWS = range(30)
KINDS = {
    "table": "".join(f"<tr><td>Item {row}<td>%s.{row} EUR" for row in ROWS).join(("<table>", "</table>")),
    "terms": "".join(f"<dt>Term {row}<dd>Meaning %s of term {row}" for row in ROWS).join(("<dl>", "</dl>")),
    "links": "".join(f"<li><a href=/{row}>Part %s of {row}</a>" for row in ROWS).join(("<ul>", "</ul>")),
    "lines": "<br>".join(f"Line {row} of song %s" for row in ROWS),
    "steps": "".join(f"<li>Step {row}: turn screw %s" for row in ROWS).join(("<ol>", "</ol>")),
    "blocks": "".join(f"<div>Block {row} of text %s</div>" for row in ROWS),
}
"""Contents without a paragraph, with a gap in each row."""


@pytest.mark.parametrize("footer", ["<footer><p>{}</p></footer>", "<div><p>{}</p></div>"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_footer_is_not_the_text_of_a_page_without_paragraphs(kind: str, footer: str) -> None:
    before, after = (
        f"<nav><a href=/>Home</a></nav><main><h1>Page</h1>{KINDS[kind].replace('%s', number)}</main>"
        + footer.format(FOOTER)
        for number in ("one", "two")
    )
    assert digest(before.encode()) != digest(after.encode())


def test_spaces_line_ends_and_the_content_coding_do_not_count() -> None:
    assert digest(article()) == digest(article(STORY.replace(" ", "\n  ")))
    assert digest(article()) == digest(gzip.compress(article()), b"gzip")


def test_of_a_page_with_little_text_all_of_it_counts() -> None:
    assert digest(article("Closed.")) != digest(article("Closed.", clock="12:00:02"))


@pytest.mark.timed
def test_the_columns_of_a_table_take_no_time() -> None:
    """A page that is read in the event loop took 200 ms, because each row was as long as the longest cell."""
    body = b"<table><tr><td>" + b"x" * 110_000 + b"<td>y" + b"<tr><td>a<td>b" * 300
    assert is_light_body(body, "", "utf-8")
    began = time.process_time()
    assert digest(body) == digest(body.replace(b"<td>", b"<td>  "))
    assert time.process_time() - began < 0.1


def test_a_page_without_text_has_none() -> None:
    assert digest(b"<img src=1.png>") == ""


@pytest.mark.parametrize(
    "other",
    [
        {"content_type": "text/plain"},
        {"cut": ("length",)},
        {"cut": ("unread",)},
        {"decoded_size": MAX_BYTES + 1},
        {"exchange": None},
    ],
)
def test_nor_has_one_that_is_not_html_or_not_whole(other: dict[str, object]) -> None:
    whole = compared_page(article())
    assert DigestJob.of(whole, DEFAULT_LIMIT) is not None
    assert DigestJob.of(msgspec.structs.replace(whole, cut=("links",)), DEFAULT_LIMIT) is not None
    assert DigestJob.of(msgspec.structs.replace(whole, **other), DEFAULT_LIMIT) is None


class TestOffloaded:
    @pytest.fixture
    async def offload(self) -> AsyncIterator[DocumentOffloader]:
        under_test = DocumentOffloader()
        yield under_test
        await under_test.stop()

    async def test_the_process_finds_what_the_event_loop_finds(self, offload: DocumentOffloader) -> None:
        large = article(STORY * 300)
        assert is_light_body(article(), "", "utf-8") and not is_light_body(large, "", "utf-8")
        for body in (article(), large):
            page = compared_page(body)
            job = DigestJob.of(page, DEFAULT_LIMIT)
            assert job is not None and page.exchange is not None
            assert await offload.text_digest(job, page.exchange) == job.run(body) != ""

    async def test_there_is_none_if_the_process_ends_and_the_next_one_is_read(self) -> None:
        """A document on which the process dies has no fingerprint, so its body is compared."""

        class DiesOnce(ChildProcess):
            async def _start(self):  # type: ignore[no-untyped-def]
                process = await super()._start()
                if not self.has_died:
                    process.send_signal(signal.SIGSEGV)
                self.has_died = True
                return process

            has_died = False

        offload, page = DocumentOffloader(process=DiesOnce()), compared_page(article())
        job = DigestJob.of(page, DEFAULT_LIMIT)
        assert job is not None and page.exchange is not None
        try:
            assert await offload.text_digest(job, page.exchange) == ""
            assert await offload.text_digest(job, page.exchange) == job.run(article())
        finally:
            await offload.stop()


ALL = (1 << 64) - 1


def by_definition(text: str) -> int | None:
    """Charikar's fingerprint by its definition: all shingles vote on each bit."""
    words = words_of(text)
    shingles = [b" ".join(words[at : at + 3]) for at in range(max(1, len(words) - 2))]
    hashes = [xxh3_64_intdigest(shingle) for shingle in shingles]
    if not words:
        return None
    return sum(1 << bit for bit in range(64) if 2 * sum(h >> bit & 1 for h in hashes) > len(hashes))


@given(st.lists(st.sampled_from(["one", "two", "three", "Żółw", "x1", "漢字", "a-b", "--"]), max_size=70))
def test_the_fingerprint_is_the_vote_of_the_shingles(words: list[str]) -> None:
    text = " ".join(words)
    assert simhash(text) == by_definition(text)


def test_the_fingerprint_is_the_same_everywhere_and_always() -> None:
    """Fingerprints are stored in files, so later versions must compute the same ones."""
    assert simhash("") is simhash(" -- ") is None
    assert f"{simhash('The quick brown fox jumps over the lazy dog'):016x}" == "5cc1c8efc0c9b905"
    assert simhash("The QUICK, brown;\tfox") == simhash("the quick brown fox")


def test_words_of_scripts_without_spaces_are_their_characters() -> None:
    assert words_of("漢字 and Katakana: カナ") == [
        "漢".encode(),
        "字".encode(),
        b"and",
        b"katakana",
        "カ".encode(),
        "ナ".encode(),
    ]
    text = "".join(chr(0x4E00 + random.Random(1).randrange(3_000)) for _ in range(1_500))
    one, other = simhash(text), simhash(text[:700] + "一" + text[701:])
    assert one is not None
    assert other is not None
    assert is_near(one, other)


def flipped(fingerprint: int, bits: list[int]) -> int:
    for bit in bits:
        fingerprint ^= 1 << bit
    return fingerprint


@given(st.integers(0, ALL), st.lists(st.integers(0, 63), max_size=NEAR + 3, unique=True), st.randoms())
def test_what_differs_in_three_bits_is_found_and_no_more(
    fingerprint: int, bits: list[int], chance: random.Random
) -> None:
    index = NearIndex(60)
    for number in range(20):
        index.add(flipped(fingerprint, chance.sample(range(64), 30)), 0, f"far-{number}")
    index.add(fingerprint, 0, "it")
    for number in range(20):
        index.add(flipped(fingerprint, chance.sample(range(64), 30)), 0, f"far-{number + 20}")
    found = index.find(flipped(fingerprint, bits), 0)
    assert (found == ("it", True)) == (len(bits) <= NEAR)


def test_the_index_forgets_the_oldest_and_does_not_grow() -> None:
    index, noise = NearIndex(1_000), random.Random(1)
    prints = [noise.getrandbits(64) for _ in range(5_000)]
    for number, fingerprint in enumerate(prints):
        assert index.find(fingerprint, 0) is None
        index.add(fingerprint, number, str(number))
    assert [index.find(fingerprint, 0) for fingerprint in prints[:4_000]] == [None] * 4_000
    found = [index.find(fingerprint, number) for number, fingerprint in enumerate(prints[4_000:], 4_000)]
    assert found == [(str(number), True) for number in range(4_000, 5_000)]
    assert repr(index) == "<NearIndex 1000 of 1000>"


def test_an_index_may_be_larger_than_memory() -> None:
    index = NearIndex(1 << 40)
    index.add(1, 0, "it")
    assert index.find(3, 0) == ("it", True)
    assert repr(index) == "<NearIndex 1 of 1099511627776>"


def test_a_page_of_the_same_name_is_preferred() -> None:
    index = NearIndex(10)
    for name, url in ((1, "one"), (2, "two"), (3, "three")):
        index.add(5, name, url)
    assert [index.find(4, name) for name in (1, 2, 3)] == [("one", True), ("two", True), ("three", True)]
    assert index.find(4, 9) == ("three", False)


def test_an_index_without_room_finds_nothing() -> None:
    index = NearIndex(0)
    index.add(1, 0, "it")
    assert index.find(1, 0) is None


def test_fingerprints_made_to_meet_cost_a_bounded_time() -> None:
    """All share a block of 16 bits, and none is similar: 100,000 of them are no slower than a thousand."""
    index = NearIndex(100_000)
    noise = random.Random(1)
    for _ in range(100_000):
        index.add(noise.getrandbits(48) << 16, 0, "other")
    before = time.process_time()
    for _ in range(100):
        index.find(noise.getrandbits(48) << 16, 0)
    assert time.process_time() - before < 2.0  # unbounded: 100 x 100,000 comparisons, ten times as long
