"""The fingerprint of a page's main text: the same while only what surrounds the text differs."""

from __future__ import annotations

import gzip
import signal
import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from crawler.page import Exchange, Outcome, Page
from crawler.parse.child import ChildProcess, DocumentOffloader
from crawler.parse.coding import DEFAULT_LIMIT
from crawler.parse.text import MAX_BYTES, TextJob, is_light_body
from crawler.scope.next_visit import DIGEST, TEXT_DIGEST

STORY = "The harbour of the town was closed for the winter, and the boats stayed on land until the ice had gone. " * 8
URL = "https://a.test/1"


def article(story: str = STORY, clock: str = "12:00:01", menu: str = "Home") -> bytes:
    return (
        f"<title>News</title><nav><a href=/>{menu}</a></nav><article><h1>Harbour</h1><p>{story}</p></article>"
        f"<footer><p>It is {clock}</p></footer>"
    ).encode()


def page(body: bytes, coding: bytes = b"", content_type: str = "text/html") -> Page:
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
    job = TextJob.of(page(body, coding), DEFAULT_LIMIT)
    assert job is not None
    return job.run(body)


def test_only_the_main_text_counts() -> None:
    assert len(digest(article())) == TEXT_DIGEST != DIGEST
    assert digest(article()) == digest(article(clock="12:00:02", menu="Start"))
    assert digest(article()) != digest(article(STORY.replace("winter", "summer")))


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
    whole = page(article())
    assert TextJob.of(whole, DEFAULT_LIMIT) is not None
    assert TextJob.of(msgspec.structs.replace(whole, cut=("links",)), DEFAULT_LIMIT) is not None
    assert TextJob.of(msgspec.structs.replace(whole, **other), DEFAULT_LIMIT) is None


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
            job = TextJob.of(page(body), DEFAULT_LIMIT)
            assert job is not None and await offload.text_digest(job, body) == job.run(body) != ""

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

        offload, body = DocumentOffloader(process=DiesOnce()), article()
        job = TextJob.of(page(body), DEFAULT_LIMIT)
        assert job is not None
        try:
            assert await offload.text_digest(job, body) == ""
            assert await offload.text_digest(job, body) == job.run(body)
        finally:
            await offload.stop()
