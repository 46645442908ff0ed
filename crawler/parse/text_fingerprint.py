"""The text by which a page is compared with others and with its last visit, and its fingerprint. Pure.

It is the main text, so that nothing has changed if only a clock or an advertisement has. But the main text is found by its
paragraphs. On a page whose content is a table, a list or lines, it may be a paragraph of the footer, which all pages of
the site have. So the rest of the page counts, too, unless the main text is most of it.

Extracting the text of hostile markup may take seconds, so only documents that are light are read in the event loop. The
process for large documents (`crawler.parse.offload`) reads the others.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, ClassVar

import msgspec

from crawler.page import Page
from crawler.parse.content_coding import decode_body
from crawler.parse.encoding import is_html
from crawler.parse.tree import flatten_tables, parse, restored
from crawler.scope.next_visit import TEXT_DIGEST

if TYPE_CHECKING:
    from turbohtml import Document, Element

MAX_BYTES = 4_194_304
"""Bytes of a body that are parsed; the tree of so much hostile markup takes 600 MB."""

_LEAST_MAIN = 200  # characters; on pages with only tables, the main content is often a single cell

_LEAST_SHARE = 1 / 3
"""Share of the main text in the text outside of `_SURROUNDINGS`. With more, short release notes of Django that differ only
in a version are no copies of each other. A paragraph of a footer has less on all but the shortest pages."""

_SURROUNDINGS = "nav, header, footer, aside, [role=navigation], [role=banner], [role=contentinfo], [role=complementary]"
"""What the same on many pages is likely to be in. The footer of an article or its header may be, too: little of a text."""

LIGHT_BYTES = 32_768
"""A decoded body of this size is light, if it has at most `LIGHT_TAGS`."""

LIGHT_TAGS = 1_000
"""The parser takes quadratic time for `<b a1><p><b a2><p>...`, because each `<p>` opens all unclosed `<b>` again: half a
second for four times as many tags. Many `<br>` take long to become Markdown."""

LIGHT_TAGGED_BYTES = 131_072
"""So is a larger body, up to this size, but not in UTF-16, in which tags cannot be counted."""

LIGHT_HIGH_BYTES = 65_536
"""Nor is a larger one with more bytes above 127: in scripts without spaces, each character counts as a word."""

_HIGH = bytes(range(128, 256))


def is_light(body: bytes, coding: str, charset: str) -> bool:
    """Whether extracting the text of `body`, as received with the Content-Encoding `coding`, takes some tens of
    milliseconds at most, whatever a site sent."""
    # A body that decodes to nothing may take long, too.
    found = decode_body(body, coding, LIGHT_TAGGED_BYTES + 1, max_work=LIGHT_TAGGED_BYTES)
    if found.error == "too_much_work":
        return False
    body = found.data
    if body.count(b"<") > LIGHT_TAGS:
        return False
    if len(body) > LIGHT_BYTES:
        if len(body) > LIGHT_TAGGED_BYTES or charset.startswith("utf-16"):
            return False
        return len(body) - len(body.translate(None, _HIGH)) <= LIGHT_HIGH_BYTES
    return True


def text_to_compare(main: Element | None, document: Document) -> str:
    """The text that tells `document` from others: that of its element `main`, or if that is short, or in or beside longer
    text, all text of the content. Its tables must be flat (`flatten_tables`). Removes elements from `document`."""
    whole = restored(document.to_text())
    text = restored(main.to_text()) if main and not main.closest(_SURROUNDINGS) else ""
    is_long = len(text) >= _LEAST_MAIN
    if is_long and len(text) >= _LEAST_SHARE * len(whole):
        return text
    for part in document.select(_SURROUNDINGS):
        part.decompose()
    content = restored(document.to_text())
    if len(content) < _LEAST_MAIN:
        return whole
    return text if is_long and len(text) >= _LEAST_SHARE * len(content) else content


class TextJob(msgspec.Struct, frozen=True):
    """A page whose text is wanted as a fingerprint. `coding`: its Content-Encoding; `charset`: the encoding of its
    text; `max_decoded`: the most bytes of its decoded body."""

    CPU_S: ClassVar[float] = 1.0  # several times what ordinary markup of the largest size takes

    url: str
    charset: str
    coding: str
    max_decoded: int

    @classmethod
    def of(cls, page: Page, max_decoded: int) -> TextJob | None:
        """The job for `page`. None if it is not HTML, or if a part of its text would be missing."""
        exchange, is_whole = page.exchange, set(page.cut) <= {"links"} and page.decoded_size <= MAX_BYTES
        if exchange is None or not is_whole or not is_html(page.content_type, exchange.body):
            return None
        coding = (exchange.header_list(b"content-encoding") or b"").decode("latin-1")
        return cls(page.url, page.charset, coding, max_decoded)

    def run(self, body: bytes) -> str:
        """The fingerprint of the text to compare of `body`, as it was received. Empty if it has no text. Only the order of
        the words counts, not what separates them."""
        document = parse(decode_body(body, self.coding, self.max_decoded).data, self.charset or None)
        main = document.main_content()
        flatten_tables(document)
        words = text_to_compare(main, document).split()
        text = " ".join(words).encode(errors="replace")
        return hashlib.sha1(text, usedforsecurity=False).hexdigest()[:TEXT_DIGEST] if words else ""
