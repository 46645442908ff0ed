"""The text of expensive documents is extracted in the process for large documents, so that it delays neither the event loop
nor other pages."""

from __future__ import annotations

import asyncio
import gzip
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from crawler.page import NO_CONTENT, Content, Page, TextForm
from crawler.parse.child import ChildProcess, DocumentOffloader, JobFailed
from crawler.parse.text import SHORT_CHARACTERS, ContentJob, ContentWanted, is_light, simhash
from crawler.parse.turns import REMEMBERED, WorkBudget
from crawler.sinks.archive import Archive
from crawler.worker.page import PageHandling
from tests.parse.test_text import HTML
from tests.sinks import readers
from tests.sinks.values import exchange, page, settings

EVERYTHING = ContentWanted("text", structured=True, judged=True)
TEXT = ContentWanted("text")

MOST_S = 0.2
"""CPU seconds. The event loop may be late by half as much; slow machines get twice the time."""

SIZE = 4_000_000
HEAVY = {
    "pre": b"<title>t</title>" + b"<pre>x" * (SIZE // 6),
    "articles": b"<title>t</title>" + b"<article>a,b," * (SIZE // 13),
    "data": b'<script type="application/ld+json">[' + b"[]," * (SIZE // 3) + b"[]]</script>",
}

NUMBERED = (
    b"<html a%d>",
    b"<HTML a%d b%d c%d d%d>",
    b"<body a%d b%d c%d d%d e%d f%d g%d h%d>",
    b"<b a%d>x",
    b"<b a%d><p>x",
    b"<a href=%d>x</a>",
    b"<p a%d b%d c%d d%d>",
    b"<table><td>%d",
    b"<td>%d<tr>",
    b"<tr><td>%d<td>",
    b"<meta property=og:a%d content=b>",
    b'<script type="application/ld+json">[%d,[],[]]</script>',
    b"<h1>%d</h1>",
    b"<br> %d",
    b"<span><br>%d",
    b"word%d ",
)
"""What a document may consist of, with a different number in each place."""

CHARACTERS = {"utf-8": "漢", "gbk": "漢", "utf-16le": "漢字", "windows-1252": "é "}


def document(body: bytes, name: str = "a", charset: str = "utf-8") -> Page:
    return page(exchange(name, body), content_type="text/html", charset=charset, decoded_size=len(body))


def largest_light(make: Callable[[int], bytes], charset: str = "utf-8") -> Page:
    """Of the documents that `make` makes of so many parts, the largest that is parsed in the thread."""
    below, above = 1, 1 << 18
    while below + 8 < above:
        parts = (below + above) // 2
        below, above = (
            (parts, above) if is_light(document(make(parts), charset=charset), EVERYTHING) else (below, parts)
        )
    return document(make(below), charset=charset)


def seconds_of(light: Page) -> float:
    """CPU seconds that the thread takes for it, as text or Markdown: the least of three, if they are many."""

    def once(text: TextForm) -> float:
        began = time.process_time()
        ContentWanted(text, structured=True, judged=True, error_pages=True).of(light)
        return time.process_time() - began

    def least(text: TextForm) -> float:
        first = once(text)
        return first if first < MOST_S / 4 else min(first, once(text), once(text))

    return max(least("text"), least("markdown"))


@pytest.fixture
async def offload() -> AsyncIterator[DocumentOffloader]:
    under_test = DocumentOffloader()
    yield under_test
    await under_test.stop()


async def extracted(offload: DocumentOffloader, one: Page, wanted: ContentWanted) -> Content | None:
    assert one.exchange is not None
    return await offload.content(ContentJob.of(one, wanted), one.exchange)


async def test_the_process_finds_what_the_thread_finds(offload: DocumentOffloader) -> None:
    for _ in range(2):
        assert await extracted(offload, document(HTML), EVERYTHING) == EVERYTHING.of(document(HTML))


async def test_the_processes_are_ready_for_texts_before_the_first_page() -> None:
    """To import what finds texts takes a quarter of a CPU second, which is long with the priority of the processes."""
    offload = DocumentOffloader(processes=2, makes_texts=True)
    try:
        await offload.start()
        running = [process.pid for process in offload._processes]
        assert len(set(running)) == 2 and None not in running
        if sys.platform == "linux":
            maps = await asyncio.to_thread(lambda: [Path(f"/proc/{pid}/maps").read_text() for pid in running])
            assert all("/lxml/" in mapped for mapped in maps)
        assert isinstance(await extracted(offload, document(HTML), TEXT), Content)
        assert [process.pid for process in offload._processes] == running
    finally:
        await offload.stop()


async def test_data_that_no_encoder_takes_is_answered_all_the_same(offload: DocumentOffloader) -> None:
    body = b'<script type="application/ld+json">{"a": "\\ud800", "b": 99999999999999999999999}</script>'
    found = await extracted(offload, document(body), ContentWanted(structured=True))
    assert found is not None
    assert found.json_ld == [{"a": "?", "b": "99999999999999999999999"}]


async def test_a_document_that_takes_too_long_has_all_of_its_text_and_the_next_one_is_read(
    offload: DocumentOffloader,
) -> None:
    wanted = ContentWanted("markdown", structured=True, judged=True)
    found = await extracted(offload, document(b"<p>words" + HEAVY["pre"]), wanted)
    assert found is not None and found.markdown is not None
    assert (found.markdown[:5], found.text_by, found.cut) == ("words", "visible", ("text",))
    assert await extracted(offload, document(HTML), TEXT) == TEXT.of(document(HTML))


async def test_a_defect_is_raised_and_the_next_document_is_read(offload: DocumentOffloader) -> None:
    broken = msgspec.structs.replace(document(HTML), charset=1)
    with pytest.raises(JobFailed, match="TypeError"):
        await extracted(offload, broken, TEXT)
    assert await extracted(offload, document(HTML), TEXT) == TEXT.of(document(HTML))


async def test_a_domain_whose_texts_take_long_uses_up_its_budget() -> None:
    """And others do not, nor one with some long texts."""
    took_s = {"slow": [0.9], "other": [0.9], "quick": [0.24], "ordinary": [0.6, 0.03, 0.03, 0.03]}

    class Fake(ChildProcess):
        async def run(self, job: Any, body: bytes) -> Any:
            host, _, number = job.url.removeprefix("https://").partition(".test/")
            self.cpu_s = took_s[host][int(number) % len(took_s[host])]
            return Content(text="said")

    offload = DocumentOffloader(process=Fake())

    async def said(host: str) -> int:
        """How many of 100 texts are extracted."""
        pages = (msgspec.structs.replace(document(HTML), url=f"https://{host}.test/{number}") for number in range(100))
        return sum([await extracted(offload, one, TEXT) is not None for one in pages])

    assert await said("slow") == 16  # 10 s / (0.9 s - 0.25 s)
    assert await said("quick") == await said("ordinary") == 100
    assert await said("other") == 16


async def test_a_page_without_a_text_for_lack_of_a_budget_says_so() -> None:
    class Spent(DocumentOffloader):
        async def content(self, job: ContentJob, body: bytes) -> None:
            return None

    nobody: Any = Mock(settings=Mock(item_rules=()))
    handling = PageHandling(nobody, nobody, TEXT, Spent(), None, lambda *_: nullcontext(), nobody, nobody)
    page = await handling.with_content(nobody, document(HEAVY["pre"]))
    assert (page.cut, page.content) == (("budget",), NO_CONTENT)


def test_a_budget_grows_with_time() -> None:
    budget = WorkBudget()
    for _ in range(20):
        budget.spend("a.test", 1.25, 0.0)
    assert budget.is_spent("a.test", 0.0)
    assert budget.is_spent("a.test", 999.0)
    assert not budget.is_spent("a.test", 1_001.0)


def test_few_budgets_are_remembered() -> None:
    budget = WorkBudget()
    for _ in range(20):
        budget.spend("most", 1.0, 0.0)
    for number in range(3 * REMEMBERED):
        budget.spend(f"{number}", 1.0, 0.0)
    assert len(budget._spent_s) <= 2 * REMEMBERED
    assert budget.is_spent("most", 0.0)


def test_a_bomb_whose_decoded_size_is_unknown_is_not_light() -> None:
    """A document that could not be read in time has the size of its compressed body."""
    bomb = exchange("a", gzip.compress(b"<p>word " * 1_000_000), headers=((b"Content-Encoding", b"gzip"),))
    assert not is_light(page(bomb, content_type="text/html", decoded_size=len(bomb.body)), EVERYTHING)


async def test_pages_are_compared_by_a_fingerprint_and_no_long_text_is_sent_back(offload: DocumentOffloader) -> None:
    words = b" ".join(b"%d" % number for number in range(100_000))
    content = await extracted(offload, document(b"<article><p>" + words), ContentWanted(judged=True))
    assert content is not None
    assert content.simhash == simhash(words.decode()[:1_000_000])
    assert len(content.compared) == SHORT_CHARACTERS + 1


def test_ordinary_documents_are_light() -> None:
    compared = ContentWanted(structured=True, judged=True)
    assert is_light(document(HTML), compared)
    assert is_light(document(b"<p>" + b"word " * 25_000), compared)
    assert is_light(document(b"<p>word " * 900 + b"word " * 20_000), compared)
    assert not is_light(document(b"<p>words and words " * 1_100), compared)
    assert not is_light(document(b"word " * 30_000), compared)
    assert not is_light(document(HTML), EVERYTHING), "the main text takes long"
    assert is_light(page(exchange("a", b"<p>" * 90_000), content_type="image/png", decoded_size=270_000), EVERYTHING)


@pytest.mark.timed
@pytest.mark.parametrize("unit", NUMBERED)
def test_the_largest_document_that_is_parsed_in_the_thread_takes_little_time(unit: bytes) -> None:
    places = unit.count(b"%")

    def make(parts: int) -> bytes:
        return b"".join(unit % tuple(range(at * places, (at + 1) * places)) for at in range(parts))

    assert seconds_of(largest_light(make)) < MOST_S


@pytest.mark.timed
@pytest.mark.parametrize("cell", [b"x" * 30_000, b"<td>x" * 400, b"x" * 125_000])
def test_a_light_table_takes_little_time(cell: bytes) -> None:
    """Its columns took 200 ms."""
    assert (
        seconds_of(largest_light(lambda rows: b"<table><tr><td>" + cell + b"<td>y" + b"<tr><td>a" * rows)) < MOST_S / 4
    )


@pytest.mark.timed
@pytest.mark.parametrize("charset", CHARACTERS)
def test_the_largest_light_document_of_other_encodings_takes_little_time(charset: str) -> None:
    character = CHARACTERS[charset].encode(charset)
    assert seconds_of(largest_light(lambda parts: character * parts, charset)) < MOST_S


@pytest.mark.timed
@pytest.mark.parametrize("name", HEAVY)
async def test_no_page_holds_up_the_event_loop(offload: DocumentOffloader, name: str) -> None:
    """Given a page whose text takes seconds, then the event loop is not delayed."""
    extraction = asyncio.ensure_future(extracted(offload, document(HEAVY[name]), EVERYTHING))
    latest = 0.0
    while not extraction.done():
        before = time.thread_time()  # other programs also delay it
        await asyncio.sleep(0.005)
        latest = max(latest, time.thread_time() - before)
    found = await extraction
    assert found is not None
    assert found.cut in (("text",), ())
    assert latest < 0.25  # 100 ms on a machine with nothing else to do


async def test_the_archive_writes_what_was_extracted_before(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path, text="text"))
    await archive.start()
    await archive.write([msgspec.structs.replace(document(HEAVY["pre"]), content=Content(text="said", cut=("text",)))])
    await archive.stop()
    (line,) = readers.lines(tmp_path)
    assert (line["text"], line["cut"]) == ("said", ["text"])
