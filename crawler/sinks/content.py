"""Extracts the content of a page for its row: main text or Markdown, and the structured data in its markup.

This is optional, because the page is parsed a second time (`bench/sinks.py` measures the cost): in the archive's
thread, or in a separate process if it may take long (`content_process`)."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from crawler.page import Exchange, Outcome, Page
from crawler.parse.content_coding import decode_body
from crawler.parse.encoding import is_html
from crawler.parse.text_fingerprint import MAX_BYTES, text_to_compare
from crawler.parse.tree import flatten_tables, parse, restored
from crawler.sinks.simhash import simhash

if TYPE_CHECKING:
    from turbohtml import Document, Element

TextForm = Literal["off", "text", "markdown"]

MAX_DECODED = 33_554_432
_HEADING_LENGTH = 300  # characters
_JUDGED = 1_000_000  # characters that are compared, because the time of a fingerprint grows with them
SHORT_CHARACTERS = 4_000  # the longest text of an error page

GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})


class Content(msgspec.Struct, frozen=True):
    """The content of a page. Values are None if the settings do not ask for them, or if the page has none.

    `json_ld`: the blocks, unchanged; `opengraph`: keys without "og:". `near_of`: the URL of an earlier page with nearly the
    same text; `is_dropped`: whether the body is therefore not stored. `cut`: "text" if only the beginning of the page was
    parsed or only that of its text is here, or if it took too long; "defect" after an exception.

    `simhash`: the fingerprint of the text to compare (`text_to_compare`).

    Two fields are only for comparing pages (`is_judged`). `compared`: the text to compare, at most `SHORT_CHARACTERS` and
    one more; `heading`: the first heading.
    """

    description: str | None = None
    text: str | None = None
    markdown: str | None = None
    json_ld: list[Any] | None = None
    opengraph: dict[str, str] | None = None
    simhash: int | None = None
    near_of: str | None = None
    soft_404: bool | None = None
    is_dropped: bool = False
    is_judged: bool = False
    cut: tuple[str, ...] = ()
    compared: str = ""
    heading: str = ""


NOTHING = Content()

UNREADABLE = Content(cut=("defect",))
"""The content of a page whose extraction raised an unexpected exception."""


def content_of(
    page: Page, text: TextForm, structured: bool, judged: bool = False, error_pages: bool = False
) -> Content:
    """The content of `page` if it is HTML with status 2xx, or also 404 and 410 if `error_pages`. `judged`: with the fields
    for comparing pages."""
    is_asked = text != "off" or structured or judged
    if not is_asked or page.exchange is None or not has_content(page, error_pages):
        return NOTHING
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
"""Levels of lists and objects in which strings are restored."""


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


def decoded(exchange: Exchange, limit: int = MAX_DECODED) -> bytes:
    """The body of `exchange` without its content coding, as far as it can be decoded, and at most `limit` bytes of it."""
    coding = exchange.header_list(b"content-encoding")
    return decode_body(exchange.body, coding.decode("latin-1"), limit).data if coding else exchange.body[:limit]
