"""What a page says, for its row: main text or Markdown, the data that its markup carries, a fingerprint of its text.
Optional, as it costs CPU: the page is parsed once more, in the archive's thread (`tests/bench/sinks.py` measures it), or in
a process if that may take long (`content_process`)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Literal

import msgspec
from turbohtml import Document, Element

from crawler.page import Exchange, Outcome, Page
from crawler.parse.content_coding import decode_body
from crawler.parse.encoding import is_html
from crawler.parse.tree import parse, restored

TextForm = Literal["off", "text", "markdown"]

_MAX_BYTES = 4_194_304  # of a body whose text and data are looked at: the tree of so much hostile markup takes 600 MB
MAX_DECODED = 33_554_432
_HEADING_LENGTH = 300  # characters
_JUDGED = 1_000_000  # characters that verdicts are made of: the fingerprint of so many takes 65 ms
_LEAST_MAIN = 200  # characters; on pages of nothing but tables the main content is often a single cell

GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})


class Content(msgspec.Struct, frozen=True):
    """None where nothing was asked for, or where the page has nothing. `json_ld`: the blocks as they are; `opengraph`: its
    keys without "og:". `near_of`: the page that said nearly the same before; `is_dropped`: so the body is not kept. `cut`:
    "text" if only the beginning of the page was looked at, or it took too long to find what it says.

    `main`, `whole` and `heading` are what the verdicts are made of, and in no row: the main text, or all text where no
    part is the main one; the main text, or all text where that is too short to tell pages apart; the first heading.
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
    main: str = ""
    whole: str = ""
    heading: str = ""


NOTHING = Content()

UNREADABLE = Content(cut=("defect",))
"""Of a page whose text could not be found because something was raised that should not be."""


def content_of(
    page: Page, text: TextForm, structured: bool, judged: bool = False, error_pages: bool = False
) -> Content:
    """The content of `page`, if it was answered with a document of HTML, and with 2xx, or 404 and 410 if `error_pages` are
    wanted, too. `judged`: with what verdicts are made of."""
    is_asked = text != "off" or structured or judged
    if not is_asked or page.exchange is None or not has_content(page, error_pages):
        return NOTHING
    body = decoded(page.exchange)
    document = parse(body[:_MAX_BYTES], page.charset or None)
    main = document.main_content() if text != "off" or judged else None
    content = Content(
        description=_description(document),
        text=restored(main.to_text()) or None if main and text == "text" else None,
        markdown=restored(main.to_markdown()) or None if main and text == "markdown" else None,
        json_ld=_restored(document.json_ld(), _DEEPEST) or None if structured else None,
        opengraph=_opengraph(document) if structured else None,
        cut=("text",) if len(body) > _MAX_BYTES else (),
    )
    return _to_be_judged(content, document, main) if judged else content


def has_content(page: Page, error_pages: bool) -> bool:
    """Whether `page` was answered with a document that says something, as `content_of` has it."""
    if page.outcome is not Outcome.DONE or page.exchange is None:
        return False
    if page.exchange.status >= 300 and not (error_pages and page.exchange.status in GONE):
        return False
    return is_html(page.content_type, page.exchange.body)


def _to_be_judged(content: Content, document: Document, main: Element | None) -> Content:
    text = content.text or (restored(main.to_text()) if main else "")
    whole = text if len(text) >= _LEAST_MAIN else restored(document.to_text())
    heading = document.select_one("h1, h2")
    said = " ".join(restored(heading.text).split())[:_HEADING_LENGTH] if heading else ""
    main_text, whole = (text or whole)[:_JUDGED], whole[:_JUDGED]
    return msgspec.structs.replace(content, main=main_text, whole=whole, heading=said, is_judged=True)


def _description(document: Document) -> str | None:
    element = document.select_one('meta[name="description" i], meta[property="og:description"]')
    return (restored(element.attr("content") or "").strip() if element else "") or None


def _opengraph(document: Document) -> dict[str, str] | None:
    return {restored(str(key)): restored(str(value)) for key, value in document.opengraph().items()} or None


_DEEPEST = 100
"""Levels of lists and objects in which names are restored: deeper ones are hardly written."""


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


def decoded(exchange: Exchange) -> bytes:
    """The body of `exchange` without its content coding: what could be had of it."""
    coding = exchange.header_list(b"content-encoding")
    return decode_body(exchange.body, coding.decode("latin-1"), MAX_DECODED).data if coding else exchange.body
