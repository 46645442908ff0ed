"""The process for large documents: one at a time, a stand-in for whoever waits, and turns of domains."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import brotli  # type: ignore[import-untyped]
import pytest

from crawler.errors import FailureKind
from crawler.events import Event, Events, OwnFailure
from crawler.parse.child import (
    MAX_WAITING_BYTES,
    ChildEnded,
    ChildNotStarted,
    ChildProcess,
    DocumentOffloader,
)
from crawler.parse.coding import DEFAULT_LIMIT
from crawler.parse.document import Document, ParsedDocument, ParseLimits, ReadJob, read, read_if_small
from crawler.parse.extraction import ExtractionJob
from crawler.parse.html import ExtractPolicy
from crawler.parse.turns import REMEMBERED, FairQueue
from crawler.processes import python_command
from crawler.scope.extract_rules import ExtractRule, FieldRule
from crawler.worker.worker import WorkerPool
from frontier.urls import UrlRules
from tests.fuzz.repeated_inputs import EMPTY_BLOCKS
from tests.sinks.values import exchange


def order(queue: FairQueue) -> list[str]:
    """The items that wait, in the order of their turns."""
    found = []
    while (item := queue.take()) is not None:
        found.append(item)
    return found


def test_without_use_turns_go_by_arrival() -> None:
    queue = FairQueue()
    for domain in ("c", "a", "b"):
        queue.add(domain, domain)
    assert order(queue) == ["c", "a", "b"]
    assert queue.take() is None


def test_each_domain_has_one_turn_before_any_has_two() -> None:
    queue = FairQueue()
    for item in ("a1", "a2", "a3", "b1", "b2", "c1"):
        queue.add(item[0], item)
    assert order(queue) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_domain_that_used_much_waits_for_those_that_used_little_but_not_forever() -> None:
    queue = FairQueue()
    queue.ended("heavy", 6.5)
    queue.add("heavy", "heavy")
    for number in range(4):
        queue.add(f"light{number}", f"light{number}")
    assert order(queue) == ["light0", "heavy", "light1", "light2", "light3"]


def test_a_light_document_waits_for_one_heavy_one_after_that_of_the_moment_at_most() -> None:
    """Whatever the number of heavy domains, once each has shown that it is one."""
    queue = FairQueue()
    for number in range(100):
        queue.ended(f"heavy{number}", 6.5)
        queue.add(f"heavy{number}", f"heavy{number}")
    waits = []
    for turn in range(1_000):
        if turn % 5 == 0:
            queue.add("light", "light")
            came = turn
        taken = queue.take()
        assert taken is not None
        queue.ended(taken, 0.1 if taken == "light" else 6.5)
        if taken == "light":
            waits.append(turn - came)
        else:
            queue.add(taken, taken)
    assert len(waits) == 200
    assert max(waits) == 1
    assert {queue.take() for _ in range(100)} == {f"heavy{number}" for number in range(100)}


def test_use_is_forgotten() -> None:
    queue = FairQueue()
    queue.ended("once", 5.0)
    for _ in range(10_000):
        queue.ended("other", 5.0)
    for item in ("used", "once"):
        queue.add(item, item)
    queue.ended("used", 0.1)
    assert order(queue) == ["once", "used"]
    for number in range(2 * REMEMBERED - 2):
        queue.ended(f"{number}", 0.1)
    assert repr(queue) == f"<FairQueue domains=0 remembered={REMEMBERED}>"


def test_what_no_longer_waits_has_no_turn() -> None:
    queue = FairQueue()
    for item in ("a1", "a2", "b1"):
        queue.add(item[0], item)
    queue.remove("a", "a1")
    queue.remove("b", "b1")
    assert order(queue) == ["a2"]


LIMITS = ParseLimits(ExtractPolicy(), DEFAULT_LIMIT)
URL = "https://a.test/dir/page"
LINKS = b"<title>Many</title>" + b"".join(b'<a href="/%d">%d</a>\n' % (n, n) for n in range(30_000))
PAGE = Document(LINKS, URL, content_type="text/html", robots_tags=("noindex",))
SITEMAP = Document(
    b"<urlset>"
    + b"".join(b"<url><loc>https://a.test/%d</loc><priority>0.9</priority></url>" % n for n in range(10_000))
    + b"</urlset>",
    "https://a.test/sitemap.xml",
    may_be_sitemap=True,
    seen_at=1_790_000_000.0,
)
TEXT_SITEMAP = Document(
    b"https://a.test/1\n" + b"a " * 20_000,
    "https://a.test/sitemap.txt",
    content_type="text/plain",
    may_be_sitemap=True,
    is_named=True,
)
BOOM = b"<p>Boom. " * 1_000_000
BOMBS = [
    Document(body, URL, coding, "text/html")
    for coding, body in (
        ("gzip", gzip.compress(BOOM, 1)),
        ("br", brotli.compress(BOOM, quality=1)),
        ("gzip, gzip", gzip.compress(gzip.compress(BOOM, 1), 1)),
        ("deflate", b"\x00\x00\x00\xff\xff" * 400_000),  # empty blocks: much input, no output
        ("deflate, gzip", gzip.compress(EMPTY_BLOCKS * 20_000 + b"\x07\xff\xff")),
    )
]
SEMICOLONS = "/" + ";" * 1_990 + "/"
NUMBERED = b"".join(b"<a href=%d>" % number for number in range(3_000))
LONG_URLS = [
    Document(b"<base href='%b'>" % SEMICOLONS.encode() + NUMBERED, URL, content_type="text/html"),
    Document(NUMBERED, "https://a.test" + SEMICOLONS, content_type="text/html"),
    TEXT_SITEMAP._replace(
        body=b"<urlset>" + b"".join(b"<loc>%d</loc><url>" % n for n in range(1_500)), url="https://a.test" + SEMICOLONS
    ),
]
SMALL = Document(b"<a href=x>x</a>", URL, content_type="text/html")


async def read_by(offloader: DocumentOffloader, document: Document, limits: ParseLimits) -> ParsedDocument:
    return await offloader.read(document, limits, exchange("", document.body))


@pytest.mark.parametrize("document", [PAGE, SITEMAP, TEXT_SITEMAP, *BOMBS, *LONG_URLS])
async def test_what_is_read_in_the_process_is_what_would_be_read_here(document: Document) -> None:
    assert read_if_small(document, LIMITS) is None
    offloader = DocumentOffloader()
    try:
        assert await read_by(offloader, document, LIMITS) == read(document, LIMITS)
    finally:
        await offloader.stop()


async def test_the_settings_of_the_crawl_go_with_the_document() -> None:
    rules = UrlRules(strip_params=("page",))
    limits = ParseLimits(ExtractPolicy(rules=rules, max_links=3), 100)
    document = Document(gzip.compress(b"<a href='/?page=1&a=2'>x</a>" * 100), URL, "gzip", "text/html")
    offloader = DocumentOffloader()
    try:
        reading = await read_by(offloader, document, limits)
    finally:
        await offloader.stop()
    assert [url.href for url in reading.found.urls] == ["https://a.test/?a=2"]
    assert reading.decoded_size == 100


def test_small_pages_and_anything_that_is_not_parsed_need_no_process() -> None:
    assert read_if_small(SMALL, LIMITS) == read(SMALL, LIMITS)
    picture = Document(os.urandom(3_000_000), URL, content_type="image/png")
    assert read_if_small(picture, LIMITS) == read(picture, LIMITS)


WORDS = b"<p>words" * 100_000 + b"w" * 1_500_000


@pytest.mark.parametrize(
    ("body", "content_type", "is_read_here"),
    [
        (WORDS, "text/html", True),
        (WORDS, "application/xhtml+xml", False),
        (WORDS, "text/html; charset=iso-2022-jp", False),
        (WORDS + b"w" * 1_500_000, "text/html", False),
        (b"<p>words" * 200_000, "text/html", False),  # many tags
        (b"<p" + b" a=1" * 600_000, "text/html", False),  # many attributes
    ],
)
def test_a_large_page_needs_no_process_if_it_is_mostly_text(body: bytes, content_type: str, is_read_here: bool) -> None:
    document = Document(body, URL, content_type=content_type)
    assert read_if_small(document, LIMITS) == (read(document, LIMITS) if is_read_here else None)


async def test_everybody_who_waits_has_stepped_aside_until_they_hold_too_much() -> None:
    aside = [0, 0]

    @asynccontextmanager
    async def stand_in() -> AsyncIterator[None]:
        aside[0] += 1
        try:
            yield
        finally:
            aside[1] += 1

    offloader = DocumentOffloader(stand_in)
    half = Document(bytes(MAX_WAITING_BYTES // 2), URL, content_type="image/png")
    tasks = [
        asyncio.create_task(read_by(offloader, document, LIMITS))
        for document in (half, SMALL, SMALL, half, half, SMALL)
    ]
    await asyncio.sleep(0)
    assert aside == [4, 0]  # the second half no longer fits beside the small ones, which do beside each other
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert aside == [4, 4]
    await offloader.stop()


async def test_a_process_that_somebody_killed_is_started_again_and_the_document_read() -> None:
    process = ChildProcess()
    offloader = DocumentOffloader(process=process)
    try:
        assert await read_by(offloader, SMALL, LIMITS) == read(SMALL, LIMITS)
        first = process.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        assert await read_by(offloader, PAGE, LIMITS) == read(PAGE, LIMITS)
        assert process.pid not in (None, first)
    finally:
        await offloader.stop()


@pytest.mark.long
async def test_a_document_in_a_process_that_was_stopped_is_read_by_another() -> None:
    process = ChildProcess(reply_timeout_s=15.0)
    offloader = DocumentOffloader(process=process)
    try:
        assert await read_by(offloader, SMALL, LIMITS) == read(SMALL, LIMITS)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        assert await read_by(offloader, PAGE, LIMITS) == read(PAGE, LIMITS)
    finally:
        await offloader.stop()


async def test_a_document_that_takes_too_long_is_given_up_and_the_next_one_is_read() -> None:
    process = ChildProcess(reply_timeout_s=0.001)
    try:
        with pytest.raises(ChildEnded, match="took too long"):
            await process.run(ReadJob(PAGE._replace(body=b""), LIMITS), PAGE.body)
        assert process.pid is None
        offloader = DocumentOffloader(process=process)
        given_up = await read_by(offloader, PAGE, LIMITS)
    finally:
        await process.stop()
    assert given_up.found.dropped == {"unread": 1}
    assert given_up.found.error == "unread"
    assert given_up.decoded_size == len(LINKS)


async def test_a_document_that_the_process_dies_of_is_not_tried_again() -> None:
    class Dying(ChildProcess):
        asked = 0

        async def run(self, job: Any, body: bytes) -> None:
            self.asked += 1
            raise ChildEnded(-signal.SIGPROF)

    process = Dying()
    assert (await read_by(DocumentOffloader(process=process), SMALL, LIMITS)).found.error == "unread"
    assert process.asked == 1


async def test_whoever_is_cut_off_leaves_no_half_answer_behind() -> None:
    offloader = DocumentOffloader()
    try:
        cut_off = asyncio.create_task(read_by(offloader, PAGE, LIMITS))
        next_one = asyncio.create_task(read_by(offloader, SMALL, LIMITS))
        await asyncio.sleep(0)
        cut_off.cancel()
        assert await next_one == read(SMALL, LIMITS)
    finally:
        await offloader.stop()


async def test_a_process_is_replaced_after_its_share_of_documents() -> None:
    process = ChildProcess(documents=2)
    try:
        pids = []
        for _ in range(4):
            await process.run(ReadJob(SMALL, LIMITS), SMALL.body)
            pids.append(process.pid)
    finally:
        await process.stop()
    assert pids[0] == pids[1] != pids[2] == pids[3]


class Slow(ChildProcess):
    """Takes a while for the documents of one of two kinds of sites."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []
        self.began = [asyncio.Event() for _ in range(64)]

    async def run(self, job: Any, body: bytes) -> ParsedDocument:
        self.order.append(job.document.url)
        self.began[len(self.order)].set()
        await asyncio.sleep(0.02 if "heavy" in job.document.url else 0.0)
        return job.run(body)


async def test_sites_with_documents_that_take_long_do_not_hold_up_the_others() -> None:
    process = Slow()
    offloader = DocumentOffloader(process=process)

    async def visit(host: str, pages: int) -> None:
        for number in range(pages):
            await read_by(offloader, SMALL._replace(url=f"https://{host}/{number}"), LIMITS)

    heavy = [asyncio.create_task(visit(f"heavy{number}.test", 4)) for number in range(8)]
    await asyncio.sleep(0)
    await visit("good.test", 5)
    before = process.order.index("https://good.test/4")
    assert (
        before <= 8 + 3 * 5
    )  # the first of each, and then at most three between two good ones; in turn it would be 40
    await asyncio.gather(*heavy)
    assert len(process.order) == 8 * 4 + 5


async def test_who_gives_up_waiting_takes_no_turn() -> None:
    process = Slow()
    offloader = DocumentOffloader(process=process)
    tasks = [
        asyncio.create_task(read_by(offloader, SMALL._replace(url=f"https://heavy{number}.test/"), LIMITS))
        for number in range(4)
    ]
    await asyncio.sleep(0)
    tasks[1].cancel()  # waits
    await process.began[2].wait()
    tasks[2].cancel()  # is being read
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in found] == [False, True, True, False]
    assert process.order == [f"https://heavy{number}.test/" for number in (0, 2, 3)]


async def test_items_are_extracted_in_the_process() -> None:
    rule = ExtractRule(
        "links", (FieldRule("name"), FieldRule("href", attr="href", type="url")), each="a[href='/29999']"
    )
    job = ExtractionJob((rule,), URL, "text/html", "utf-8", "gzip", {}, DEFAULT_LIMIT)
    offload = DocumentOffloader()
    try:
        found = await offload.extract(job, exchange("", gzip.compress(LINKS)))
        assert [item.fields for item in found.items] == [{"name": "29999", "href": "https://a.test/29999"}]
    finally:
        await offload.stop()


async def test_a_page_whose_extraction_takes_too_long_is_reported() -> None:
    job = ExtractionJob(
        (ExtractRule("links", (FieldRule("name"),), each="a"),), URL, "text/html", "utf-8", "", {}, DEFAULT_LIMIT
    )
    offload = DocumentOffloader(process=ChildProcess(reply_timeout_s=0.01))
    try:
        found = await offload.extract(job, exchange("", LINKS))
        assert (found.items, [str(one) for one in found.rejected]) == ((), ["links: unread"])
    finally:
        await offload.stop()


class Stopped(ChildProcess):
    """Never answers, as on a machine that is busy with other work."""

    async def run(self, job: Any, body: bytes) -> ParsedDocument:
        return await asyncio.Event().wait()  # type: ignore[return-value]


@pytest.mark.parametrize(("size", "most"), [(1 << 20, 192), (200_000, 735), (1, 1_064)])
async def test_few_bodies_wait_for_a_process_that_gets_no_cpu_time(size: int, most: int) -> None:
    """Beyond a limit the 64 workers keep theirs, and fetch no others."""
    pool, taken = WorkerPool(), 0
    offloader = DocumentOffloader(pool.extra_worker, Stopped())

    async def work() -> None:
        nonlocal taken
        taken += 1
        await read_by(offloader, SMALL._replace(body=bytes(size)), LIMITS)

    pool.start(work, 64, asyncio.create_task)
    for _ in range(3_000):
        await asyncio.sleep(0)
    assert most - 1 <= taken <= most
    await pool.stop()


class OneAtATime(Stopped):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Semaphore(0)
        self.lengths: list[int] = []

    async def run(self, job: Any, body: bytes) -> ParsedDocument:
        await self.may_answer.acquire()
        self.lengths.append(len(body))
        return job.run(b"")  # type: ignore[no-any-return]


@pytest.mark.parametrize("has_folder", [True, False])
async def test_large_bodies_wait_in_files(tmp_path: Path, has_folder: bool) -> None:
    process, size = OneAtATime(), 1 << 20
    folder = tmp_path if has_folder else tmp_path / "gone"
    offloader, held = DocumentOffloader(process=process, folder=folder), [exchange("", bytes(size)) for _ in range(3)]
    calls = [asyncio.create_task(offloader.read(SMALL, LIMITS, one)) for one in held]
    async with asyncio.timeout(10):
        while has_folder and any(one.body for one in held[1:]):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
    assert held[0].body  # it has its turn
    calls[1].cancel()
    await asyncio.wait([calls[1]])
    process.may_answer.release()
    process.may_answer.release()
    await asyncio.gather(*calls, return_exceptions=True)
    assert (process.lengths, [one.body for one in held]) == ([size] * 2, [bytes(size)] * 3)


async def test_pages_of_a_domain_that_take_long_are_not_read_in_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stays within the limit of a page, but many domains could send such pages without end."""
    monkeypatch.setattr("crawler.parse.child.INLINE_ORDINARY_S", 0.001)  # less than a fast machine takes
    offloader, limits = DocumentOffloader(), LIMITS._replace(extract=ExtractPolicy(requisites=True))
    costly = SMALL._replace(body=b"<h2><hr>" * 24_000)
    assert any(offloader.read_at_once(costly, limits, "costly.test") is None for _ in range(1_000))
    assert offloader.read_at_once(costly, limits, "a.test") is not None


class CommandMissing:
    """Replaces the command line of the process by those of others, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *commands: tuple[str, ...]) -> None:
        self._left = [*commands]
        monkeypatch.setattr("crawler.parse.child.python_command", self._next)

    def _next(self, module: str) -> tuple[str, ...]:
        return self._left.pop(0) if self._left else python_command(module)


BROKEN = [("/missing/python",), ("/bin/false",), ("/bin/sh", "-c", "echo")]


async def test_a_document_waits_until_a_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its links would be lost, for a reason of this machine."""
    CommandMissing(monkeypatch, *BROKEN)
    events, seen = Events(), list[Event]()
    events.subscribe(seen.append)
    offloader = DocumentOffloader(events=events, retry_s=0.01)
    try:
        assert await read_by(offloader, PAGE, LIMITS) == read(PAGE, LIMITS)
    finally:
        await offloader.stop()
    assert [one.kind for one in seen if isinstance(one, OwnFailure)] == [FailureKind.MACHINE] * len(BROKEN)


@pytest.mark.parametrize("command", BROKEN)
async def test_a_process_that_does_not_begin_was_not_started(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    CommandMissing(monkeypatch, command)
    process = ChildProcess()
    with pytest.raises(ChildNotStarted):
        await process.run(ReadJob(SMALL, LIMITS), SMALL.body)
    assert process.pid is None
