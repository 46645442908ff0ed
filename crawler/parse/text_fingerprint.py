"""The fingerprint of a page's main text, by which two visits are compared: it stays the same if only a clock or an
advertisement has changed. Pure.

Extracting the text of hostile markup may take seconds, so only documents that are light are read in the event loop. The
process for large documents (`crawler.parse.offload`) reads the others.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from crawler.page import Page
from crawler.parse.content_coding import decode_body
from crawler.parse.encoding import is_html
from crawler.parse.tree import flatten_tables, parse, restored
from crawler.scope.next_visit import TEXT_DIGEST

if TYPE_CHECKING:
    from turbohtml import Document

MAX_BYTES = 4_194_304
"""Bytes of a body that are parsed; the tree of so much hostile markup takes 600 MB."""

_LEAST_MAIN = 200  # characters; on pages with only tables, the main content is often a single cell

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


def main_or_all(main: str, document: Document) -> str:
    """The main text `main` of `document`, whose tables are flat, or all its text if that is too short to tell pages
    apart."""
    return main if len(main) >= _LEAST_MAIN else restored(document.to_text())


class TextJob(msgspec.Struct, frozen=True):
    """A page whose main text is wanted as a fingerprint. `coding`: its Content-Encoding; `charset`: the encoding of its
    text; `max_decoded`: the most bytes of its decoded body."""

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
        """The fingerprint of the main text of `body`, as it was received, or of all its text if that is short. Empty if it
        has no text. Only the order of the words counts, not what separates them."""
        document = parse(decode_body(body, self.coding, self.max_decoded).data, self.charset or None)
        main = document.main_content()
        flatten_tables(document)
        words = main_or_all(restored(main.to_text()) if main else "", document).split()
        text = " ".join(words).encode(errors="replace")
        return hashlib.sha1(text, usedforsecurity=False).hexdigest()[:TEXT_DIGEST] if words else ""
