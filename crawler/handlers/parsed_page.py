"""A page with selectors: what handlers receive, and what a loop over a crawl yields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from crawler.page import Page
from crawler.parse import tree
from crawler.parse.content_coding import decode_body
from crawler.parse.encoding import codec_of, encoding_named
from crawler.parse.json_ld import json_ld_of, values_at
from frontier.urls import UrlPattern

if TYPE_CHECKING:
    from turbohtml import Document, Element

MAX_DECODED = 64 << 20
"""Bytes of a decoded body. `limits.max_decoded` is lower unless it was raised."""


class ParsedPage(Page, frozen=True, dict=True, gc=True):
    """A `Page` with its contents. The body is decoded and parsed when it is first needed.

    In documents with more than 4,000 tags, formatting elements such as `b`, `i` and `strong` become `span`, because the
    standard makes it expensive to parse many of them: select by class or by another element there.
    """

    @classmethod
    def of(cls, page: Page) -> ParsedPage:
        """Return `page` with selectors."""
        return cls(*[getattr(page, name) for name in Page.__struct_fields__])

    @property
    def status(self) -> int:
        """The HTTP status, 0 without a response."""
        return self.exchange.status if self.exchange else 0

    @property
    def body(self) -> bytes:
        """The body without its content coding, empty without a response."""
        if "body" not in self.__dict__:
            self.__dict__["body"] = self._decoded()
        found: bytes = self.__dict__["body"]
        return found

    def _decoded(self) -> bytes:
        if self.exchange is None:
            return b""
        coding = (self.exchange.header_list(b"content-encoding") or b"").decode("latin-1")
        return decode_body(self.exchange.body, coding, MAX_DECODED).data

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(codec_of(encoding_named(self.charset or "") or "UTF-8"), "replace")

    def json(self) -> Any:
        """Return the body as JSON. Raises ValueError if it is not JSON."""
        return msgspec.json.decode(self.body)

    @property
    def document(self) -> Document:
        """The tree of the HTML document (turbohtml)."""
        if "document" not in self.__dict__:
            self.__dict__["document"] = tree.parse(self.body, self.charset or None)
        found: Document = self.__dict__["document"]
        return found

    def select(self, css: str) -> list[Element]:
        """Return the elements that match the CSS selector, in the order of the page."""
        return list(self.document.select(css))

    def select_text(self, css: str) -> str | None:
        """Return the text of the first element that matches, without white space around it; None if none does."""
        found = self.document.select_one(css)
        return None if found is None else tree.restored(found.text).strip()

    def select_attr(self, css: str, name: str) -> str | None:
        """Return the attribute `name` of the first element that matches; None if none does or it has no such attribute."""
        found = self.document.select_one(css)
        value = None if found is None else found.attrs.get(name)
        return " ".join(value) if isinstance(value, list) else value

    def json_ld(self, path: str = "") -> list[Any]:
        """Return what `path` leads to in the JSON-LD of the page: a type and keys, such as `Product.offers.price`. A
        type alone is for its objects, and no path for the objects at the top. The items of lists take the place of
        these. JSON-LD that cannot be read is left out, and so is what follows after the first MiB."""
        if "_json_ld" not in self.__dict__:
            self.__dict__["_json_ld"] = json_ld_of(self.document)
        return values_at(self.__dict__["_json_ld"], path)

    def urls(self, pattern: str = "") -> list[str]:
        """Return the URLs of the links in which the regular expression `pattern` is found."""
        is_in = UrlPattern(pattern).is_in
        return [link.url for link in self.links if is_in(link.url)]
