"""Extracts the content of a page for its row: main text or Markdown, and the structured data in its markup.

This is optional, because the page is parsed a second time (`bench/sinks.py` measures the cost): in the archive's
thread, or if it may take long, in the process for large documents (`crawler.parse.offload`). Pure."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from crawler.page import NO_CONTENT, Content, Exchange, Outcome, Page, TextForm
from crawler.parse import text_fingerprint
from crawler.parse.content_coding import decode_body
from crawler.parse.encoding import is_html
from crawler.parse.simhash import simhash
from crawler.parse.text_fingerprint import MAX_BYTES, text_to_compare
from crawler.parse.tree import flatten_tables, parse, restored

if TYPE_CHECKING:
    from turbohtml import Document, Element

MAX_DECODED = 33_554_432
_HEADING_LENGTH = 300  # characters
_JUDGED = 1_000_000  # characters that are compared, because the time of a fingerprint grows with them
SHORT_CHARACTERS = 4_000  # the longest text of an error page

DATA_BYTES = 262_144
"""Maximum size of a large document's encoded JSON-LD. Each empty list takes two bytes, but is an object in the receiving
process."""

GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})


def content_of(
    page: Page, text: TextForm, structured: bool, judged: bool = False, error_pages: bool = False
) -> Content:
    """The content of `page` if it is HTML with status 2xx, or also 404 and 410 if `error_pages`. `judged`: with the fields
    for comparing pages."""
    is_asked = text != "off" or structured or judged
    if not is_asked or page.exchange is None or not has_content(page, error_pages):
        return NO_CONTENT
    body = decoded(page.exchange, MAX_BYTES + 1)
    document = parse(body[:MAX_BYTES], page.charset or None)
    main = document.main_content() if text != "off" or judged else None
    markdown = restored(main.to_markdown()) if main and text == "markdown" else ""
    if text == "text" or judged:
        flatten_tables(document)
    plain = restored(main.to_text()) if main and text == "text" else ""
    content = Content(
        description=_description(document),
        text=plain[:MAX_BYTES] or None,
        markdown=markdown[:MAX_BYTES] or None,
        json_ld=_restored(document.json_ld(), _DEEPEST) or None if structured else None,
        opengraph=_opengraph(document) if structured else None,
        cut=("text",) if max(len(body), len(plain), len(markdown)) > MAX_BYTES else (),
    )
    return _to_be_judged(content, document, main) if judged else content


class ContentWanted(msgspec.Struct, frozen=True):
    """What to extract from pages, as the arguments of `content_of`."""

    text: TextForm = "off"
    structured: bool = False
    judged: bool = False
    error_pages: bool = False

    def __bool__(self) -> bool:
        return self.text != "off" or self.structured or self.judged

    def of(self, page: Page) -> Content:
        """The content of `page`."""
        return content_of(page, self.text, self.structured, self.judged, self.error_pages)


class ContentJob(msgspec.Struct, frozen=True):
    """A `page` without its body, whose content is `wanted`."""

    CPU_S: ClassVar[float] = 1.0  # several times what ordinary markup of the largest size takes

    page: Page
    wanted: ContentWanted

    @classmethod
    def of(cls, page: Page, wanted: ContentWanted) -> ContentJob:
        """The job for `page`, which has an exchange."""
        return cls(_with_body(msgspec.structs.replace(page, links=(), items=()), b""), wanted)

    @property
    def url(self) -> str:
        return self.page.url

    def run(self, body: bytes) -> Content:
        """The content of the page with this `body`, in values that MessagePack has."""
        content = self.wanted.of(_with_body(self.page, body))
        try:
            if content.json_ld is not None and len(msgspec.msgpack.encode(content.json_ld)) > DATA_BYTES:
                content = msgspec.structs.replace(content, json_ld=None, cut=("text",))
            msgspec.msgpack.encode(content)
        except (UnicodeEncodeError, OverflowError, RecursionError):
            return Content(**{name: plain(value) for name, value in msgspec.structs.asdict(content).items()})
        return content


def _with_body(page: Page, body: bytes) -> Page:
    assert page.exchange is not None
    return msgspec.structs.replace(page, exchange=msgspec.structs.replace(page.exchange, body=body))


def is_light(page: Page, wanted: ContentWanted) -> bool:
    """Whether extracting what is `wanted` of `page` is quick enough for a thread, whatever a site sent."""
    if not wanted or page.exchange is None or not has_content(page, wanted.error_pages):
        return True
    coding = (page.exchange.header_list(b"content-encoding") or b"").decode("latin-1")
    return text_fingerprint.is_light(page.exchange.body, coding, page.charset)


def has_content(page: Page, error_pages: bool) -> bool:
    """Whether `content_of` extracts anything from `page`."""
    if page.outcome is not Outcome.DONE or page.exchange is None:
        return False
    if page.exchange.status >= 300 and not (error_pages and page.exchange.status in GONE):
        return False
    return is_html(page.content_type, page.exchange.body)


def _to_be_judged(content: Content, document: Document, main: Element | None) -> Content:
    heading = document.select_one("h1, h2")
    said = " ".join(restored(heading.text).split())[:_HEADING_LENGTH] if heading else ""
    compared = text_to_compare(main, document)
    return msgspec.structs.replace(
        content,
        simhash=simhash(compared[:_JUDGED]),
        compared=compared[: SHORT_CHARACTERS + 1],
        heading=said,
        is_judged=True,
    )


def _description(document: Document) -> str | None:
    element = document.select_one('meta[name="description" i], meta[property="og:description"]')
    return (restored(element.attr("content") or "").strip() if element else "") or None


def _opengraph(document: Document) -> dict[str, str] | None:
    return {restored(str(key)): restored(str(value)) for key, value in document.opengraph().items()} or None


_DEEPEST = 100
"""Levels of lists and objects in which strings are restored, and that encoders get: deeper ones become null."""


def _restored(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return restored(value)
    if not depth:
        return value
    if isinstance(value, list):
        return [_restored(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {restored(str(key)): _restored(item, depth - 1) for key, item in value.items()}
    return value


def plain(value: Any, depth: int = _DEEPEST) -> Any:
    """`value`, without anything that an encoder rejects."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 64:
        return hex(value)
    if isinstance(value, list):
        return [plain(item, depth - 1) for item in value] if depth else None
    if isinstance(value, dict):
        return {plain(key, 1): plain(item, depth - 1) for key, item in value.items()} if depth else None
    return value


def decoded(exchange: Exchange, limit: int = MAX_DECODED) -> bytes:
    """The body of `exchange` without its content coding, as far as it can be decoded, and at most `limit` bytes of it."""
    coding = exchange.header_list(b"content-encoding")
    return decode_body(exchange.body, coding.decode("latin-1"), limit).data if coding else exchange.body[:limit]
