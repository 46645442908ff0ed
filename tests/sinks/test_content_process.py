"""The text of expensive documents is extracted in a process, so that it delays neither the event loop nor other pages."""

from __future__ import annotations

import asyncio
import gzip
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crawler.page import Page
from crawler.sinks.archive import Archive
from crawler.sinks.content import SHORT_CHARACTERS, TextForm, content_of
from crawler.sinks.content_process import UNREAD, Job, TextProcess, is_light
from crawler.sinks.simhash import simhash
from tests.sinks import readers
from tests.sinks.test_content import HTML
from tests.sinks.values import exchange, page, settings

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
        below, above = (parts, above) if is_light(document(make(parts), charset=charset)) else (below, parts)
    return document(make(below), charset=charset)


def seconds_of(light: Page) -> float:
    """CPU seconds that the thread takes for it, as text or Markdown: the least of three, if they are many."""

    def once(text: TextForm) -> float:
        began = time.process_time()
        content_of(light, text, structured=True, judged=True, error_pages=True)
        return time.process_time() - began

    def least(text: TextForm) -> float:
        first = once(text)
        return first if first < MOST_S / 4 else min(first, once(text), once(text))

    return max(least("text"), least("markdown"))


@pytest.fixture
def process() -> Iterator[TextProcess]:
    under_test = TextProcess()
    yield under_test
    under_test.stop()


def test_the_process_finds_what_the_thread_finds(process: TextProcess) -> None:
    for _ in range(2):
        job = Job(document(HTML), "text", structured=True, judged=True)
        assert process.content_of(job) == content_of(*job)


def test_data_that_no_encoder_takes_is_answered_all_the_same(process: TextProcess) -> None:
    body = b'<script type="application/ld+json">{"a": "\\ud800", "b": 99999999999999999999999}</script>'
    found = process.content_of(Job(document(body), "off", structured=True))
    assert found.json_ld == [{"a": "?", "b": hex(99999999999999999999999)}]


def test_a_document_that_takes_too_long_is_left_out_and_the_next_one_is_read(process: TextProcess) -> None:
    assert process.content_of(Job(document(HEAVY["pre"]), "text", structured=False)) == UNREAD
    job = Job(document(HTML), "text", structured=False)
    assert process.content_of(job) == content_of(*job)


def test_a_process_that_does_not_answer_is_replaced(process: TextProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(document(HTML), "text", structured=False)
    process.content_of(job)
    monkeypatch.setattr("crawler.sinks.content_process.LONGEST_S", 0.1)
    assert process._running is not None
    process._running[0].send_signal(signal.SIGSTOP)
    assert process.content_of(job) == UNREAD
    monkeypatch.undo()
    assert process.content_of(job) == content_of(*job)


def test_a_bomb_whose_decoded_size_is_unknown_is_not_light() -> None:
    """A document that could not be read in time has the size of its compressed body."""
    bomb = exchange("a", gzip.compress(b"<p>word " * 1_000_000), headers=((b"Content-Encoding", b"gzip"),))
    assert not is_light(page(bomb, content_type="text/html", decoded_size=len(bomb.body)))


def test_pages_are_compared_by_a_fingerprint_and_no_long_text_is_sent_back(process: TextProcess) -> None:
    words = b" ".join(b"%d" % number for number in range(100_000))
    content = process.content_of(Job(document(b"<article><p>" + words), "off", structured=False, judged=True))
    assert content.simhash == simhash(words.decode()[:1_000_000])
    assert len(content.compared) == SHORT_CHARACTERS + 1


def test_ordinary_documents_are_light() -> None:
    assert is_light(document(HTML))
    assert is_light(document(b"<p>" + b"word " * 25_000))
    assert is_light(document(b"<p>word " * 900 + b"word " * 20_000))
    assert not is_light(document(b"<p>words and words " * 1_100))
    assert not is_light(document(b"word " * 30_000))
    assert is_light(page(exchange("a", b"<p>" * 90_000), content_type="image/png", decoded_size=270_000))


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
async def test_no_page_holds_up_the_event_loop(tmp_path: Path, name: str) -> None:
    """Given pages whose text takes seconds, then the event loop is not delayed, and their lines have the cut `text`."""
    archive = Archive(settings(tmp_path, text="text", structured=True))
    await archive.start()
    writing = asyncio.ensure_future(archive.write([document(HEAVY[name], "heavy"), document(HTML, "light")]))
    latest = 0.0
    while not writing.done():
        before = time.perf_counter()
        await asyncio.sleep(0.005)
        latest = max(latest, time.perf_counter() - before)
    await writing
    await archive.stop()
    heavy, light = readers.lines(tmp_path)
    assert heavy["cut"] in (["text"], [])
    assert (light["description"], light["cut"]) == ("In short.", [])
    assert latest < 0.25  # 100 ms on a machine with nothing else to do
