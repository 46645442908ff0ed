"""Reads the body of a response: undoes its content coding, then extracts the links of a sitemap or page. Pure.

A compression bomb or a page of megabytes takes up to a quarter of a second of a core. `read_if_small` leaves such
documents to `crawler.parse.child`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, cast

import msgspec

from crawler.http_head import first_values
from crawler.page import GZIP, Cut, Page, Repaired
from crawler.parse.coding import Decoded, decode_body
from crawler.parse.encoding import MediaType, encoding_named
from crawler.parse.html import NOFOLLOW, Extracted, ExtractPolicy, extract
from crawler.parse.sitemaps import form_of, sitemap_links
from crawler.parse.tags import TakesLong
from crawler.scope.scope import NO_HINTS
from frontier.urls import EXCESS
from politeness import tdmrep
from politeness.tdmrep import NOT_STATED, Reservation, SiteUsage
from politeness.usage import CONTENT_USAGE, NO_AI, NO_USAGE, Statement, Usage, header_statement

INLINE_INPUT = 192 * 1024
INLINE_OUTPUT = 1024 * 1024
"""The largest bodies with a content coding, compressed and decompressed, that are read in the event loop. The worst hold
it up for a twentieth of a second, a real page of 500 KB for a millisecond. The input counts in each layer of nested
codings, and each time that it is read (`decode_body`)."""

INLINE_SITEMAP = 32 * 1024
"""The same for sitemaps, in decompressed bytes. Almost all of them are URLs, the most expensive content, down to two bytes
each in the text form."""


class Document(NamedTuple):
    """The body of a response as received, and everything that its reading depends on.

    `coding`: as `crawler.page.content_coding` gives it. `robots_tags`: the values of X-Robots-Tag. `may_be_sitemap`: check
    whether it is a sitemap; `may_be_feed`: or a feed. `is_named`: a robots.txt or an index names it as a sitemap.
    `seen_at`: seconds since 1970. `link_header`: the values of its Link header as one list.
    """

    body: bytes
    url: str
    coding: str = ""
    content_type: str = ""
    robots_tags: tuple[str, ...] = ()
    may_be_sitemap: bool = False
    is_named: bool = False
    seen_at: float = 0.0
    may_be_feed: bool = False
    link_header: str = ""


class ParseLimits(NamedTuple):
    """How to read a document. `max_decoded`: the most bytes of a decoded body."""

    extract: ExtractPolicy
    max_decoded: int


class ParsedDocument(NamedTuple):
    """The contents of a document. `hints`: values that a sitemap adds to the score of a URL. `decoded_size`: bytes of the
    decoded body. `cut`: why something was left out. `repaired`: what was malformed, and could be read. `is_list`: it is a
    sitemap or feed."""

    found: Extracted
    hints: Mapping[str, float]
    decoded_size: int
    cut: tuple[Cut, ...] = ()
    repaired: tuple[Repaired, ...] = ()
    is_list: bool = False

    def describe(self, page: Page, content_type: str, truncated: str | None) -> Page:
        """`page` with what this document, its body, says about it. `content_type`: the whole header value; `truncated`: as
        `Exchange.truncated`."""
        found, media = self.found, MediaType.parse(content_type)
        return msgspec.structs.replace(
            page,
            content_type=media.essence,
            charset=found.charset or (encoding_named(media.charset or "") or "").lower(),  # of text that is not HTML
            title=found.title,
            lang=found.lang,
            canonical=found.canonical,
            links=found.links,
            decoded_size=self.decoded_size,
            noarchive=found.noarchive,
            noindex=found.noindex,
            unfollowed=found.dropped.get(NOFOLLOW, 0),
            cut=(cast(Cut, truncated), *self.cut) if truncated else self.cut,
            repaired=(*page.exchange.repaired, *self.repaired) if page.exchange else self.repaired,
        )


def read(document: Document, limits: ParseLimits) -> ParsedDocument:
    """The contents of `document`. Never raises for what a site sent."""
    return _read(document, decode_body(document.body, document.coding, limits.max_decoded), limits)


class ReadJob(msgspec.Struct, frozen=True):
    """A `document` without its body, to be read within `limits`."""

    CPU_S: ClassVar[float] = 10.0  # 40 times what the worst known one takes
    RESULT: ClassVar = ParsedDocument

    document: Document
    limits: ParseLimits

    @property
    def url(self) -> str:
        return self.document.url

    def run(self, body: bytes) -> ParsedDocument:
        """The contents of the document with this `body`."""
        return read(self.document._replace(body=body), self.limits)


def read_if_small(document: Document, limits: ParseLimits) -> ParsedDocument | None:
    """As `read`; None for a document of so many bytes that reading it would hold up an event loop."""
    limit = limits.max_decoded
    if document.coding:
        if len(document.body) > INLINE_INPUT:
            return None
        limit = min(limit, INLINE_OUTPUT)
    decoded = decode_body(document.body, document.coding, limit, INLINE_INPUT)
    if (decoded.truncated and limit < limits.max_decoded) or decoded.error == "too_much_work":
        return None
    data = decoded.data
    if (len(data) > INLINE_SITEMAP or data.startswith(GZIP)) and _is_sitemap(document, data):
        return None
    try:
        return _read(document, decoded, limits, is_inline=True)
    except TakesLong:
        return None


def _read(document: Document, decoded: Decoded, limits: ParseLimits, is_inline: bool = False) -> ParsedDocument:
    data, repaired = decoded.data, _REPAIRED_CODING if decoded.is_repaired else ()
    if _is_sitemap(document, data):
        max_work = INLINE_SITEMAP if is_inline else math.inf
        listed = sitemap_links(data, document.url, document.seen_at, limits.extract, max_work)
        cut = _cut(decoded, listed.found)
        cut = (*cut, "sitemap") if listed.error else cut
        repaired = (*repaired, "sitemap") if listed.is_repaired else repaired
        return ParsedDocument(listed.found, listed.hints, len(data), cut, repaired, is_list=True)
    found = extract(
        data,
        document.url,
        document.content_type,
        limits.extract,
        document.robots_tags,
        is_inline,
        document.link_header,
    )
    return ParsedDocument(found, NO_HINTS, len(data), _cut(decoded, found), repaired)


_REPAIRED_CODING: tuple[Repaired, ...] = ("coding",)


def _is_sitemap(document: Document, body: bytes) -> bool:
    if not (document.may_be_sitemap or document.may_be_feed):
        return False
    form = form_of(body, document.content_type, document.is_named)
    return form is not None and (document.may_be_feed if form == "feed" else document.may_be_sitemap)


def _cut(decoded: Decoded, found: Extracted) -> tuple[Cut, ...]:
    reasons: tuple[tuple[Cut, object], ...] = (
        ("decoded", decoded.truncated),
        ("coding", decoded.error),
        ("links", EXCESS in found.dropped),
    )
    return tuple(reason for reason, holds in reasons if holds)


X_ROBOTS_TAG = b"x-robots-tag"

NOTED = frozenset({X_ROBOTS_TAG, CONTENT_USAGE, tdmrep.RESERVATION, tdmrep.POLICY})
"""The header fields, in lower case, that may say something about the use of a page."""

MAX_TDM = 16
"""The most `meta` elements of the TDM Reservation Protocol that are read. A page needs two."""


Fields = Sequence[tuple[bytes, bytes]]


def noted_fields(fields: Fields) -> list[tuple[bytes, bytes]]:
    """The header fields among `fields` that are in `NOTED`, with their names in lower case."""
    if NOTED.isdisjoint(first_values(tuple(fields))):  # as nearly always
        return []
    return [(name, value) for key, value in fields if (name := key.lower()) in NOTED]


def robots_tags(noted: Fields) -> tuple[str, ...]:
    """The values of X-Robots-Tag."""
    return tuple(value.decode("latin-1") for name, value in noted if name == X_ROBOTS_TAG)


def usage_of(site: SiteUsage, noted: Fields, found: Extracted, is_image: bool) -> Usage:
    """What the owner of a page says about its use. `noted`: see `noted_fields`; `found`: what is in the page."""
    if site is NOT_STATED and not noted and not found.tdm and not found.noai and not found.noimageai:
        return NO_USAGE
    statements: list[Statement] = []
    if values := [value for name, value in noted if name == CONTENT_USAGE]:
        statements.append(header_statement(b", ".join(values)))
    if found.noai:
        statements.append(Statement(f"{found.noai}: noai", NO_AI))
    if found.noimageai:
        statements.append(Statement(f"{found.noimageai}: noimageai", NO_AI if is_image else ()))
    sent = {name: value.decode("latin-1") for name, value in reversed(noted) if name != CONTENT_USAGE}
    written = {name.encode("utf-8", "replace"): content for name, content in reversed(found.tdm[:MAX_TDM])}
    return site.combined(statements, [Reservation.of(sent, "header"), Reservation.of(written, "meta")])


def header_usage(fields: Fields) -> Usage:
    """What the header `fields` of a response say about the use of its body, except X-Robots-Tag."""
    return usage_of(NOT_STATED, noted_fields(fields), Extracted(), is_image=False)
