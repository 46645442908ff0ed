"""What a page says, for its row: main text or Markdown, and the data that its markup carries. Optional, as it costs CPU:
the page is parsed once more, here in the archive's thread (`tests/bench/sinks.py` measures what)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from turbohtml import Document

from crawler.charset import is_html
from crawler.decode import decode_body
from crawler.markup import parse
from crawler.page import Exchange, Outcome, Page

TextForm = Literal["off", "text", "markdown"]

_MAX_OCTETS = 4_194_304  # of a body that are looked at, as for links
_MAX_DECODED = 33_554_432


@dataclass(frozen=True, slots=True)
class Content:
    """None where nothing was asked for, or where the page has nothing. `json_ld`: the blocks as they are; `opengraph`: its
    keys without "og:"."""

    description: str | None = None
    text: str | None = None
    markdown: str | None = None
    json_ld: list[Any] | None = None
    opengraph: dict[str, str] | None = None


NOTHING = Content()


def content_of(page: Page, text: TextForm, structured: bool) -> Content:
    """The content of `page`, if it was answered with a document of HTML."""
    if (text == "off" and not structured) or page.outcome is not Outcome.DONE or page.exchange is None:
        return NOTHING
    if page.exchange.status >= 300 or not is_html(page.content_type, page.exchange.body):
        return NOTHING
    body = decoded(page.exchange)
    document, _ = parse(body[:_MAX_OCTETS], page.charset or None)
    main = document.main_content() if text == "markdown" else None
    return Content(
        description=_description(document),
        text=document.main_text() or None if text == "text" else None,
        markdown=main.to_markdown() or None if main else None,
        json_ld=document.json_ld() or None if structured else None,
        opengraph={str(key): str(value) for key, value in document.opengraph().items()} or None if structured else None,
    )


def _description(document: Document) -> str | None:
    element = document.select_one('meta[name="description" i], meta[property="og:description"]')
    return ((element.attr("content") or "").strip() if element else "") or None


def decoded(exchange: Exchange) -> bytes:
    """The body of `exchange` without its content coding: what could be had of it."""
    coding = exchange.header(b"content-encoding")
    return decode_body(exchange.body, coding.decode("latin-1"), _MAX_DECODED).data if coding else exchange.body
