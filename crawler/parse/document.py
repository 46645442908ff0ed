"""What a response says: its content coding undone, and then a sitemap's or a page's links. Pure.

`read` takes whatever a site sent; a compression bomb or a page of megabytes costs it up to a quarter of a second of a core.
`read_quickly` gives the same answer for all that takes some milliseconds, and None for the rest, which is left to
`crawler.parse.offload`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from crawler.page import Cut
from crawler.parse import sitemaps
from crawler.parse.content_coding import INLINE_INPUT, INLINE_OUTPUT, Decoded, decode_body
from crawler.parse.html import Extracted, ExtractPolicy, extract, extract_quickly
from crawler.scope.link_filter import NO_HINTS
from frontier.urls import EXCESS


class Document(NamedTuple):
    """The body of a response as received, and what its reading depends on.

    `coding`: the Content-Encoding, or empty. `robots_tags`: the values of X-Robots-Tag. `may_be_sitemap`: look whether it
    is one; `is_named`: a robots.txt names it as one. `seen_at`: seconds since 1970, from which ages in sitemaps count.
    """

    body: bytes
    url: str
    coding: str = ""
    content_type: str = ""
    robots_tags: tuple[str, ...] = ()
    may_be_sitemap: bool = False
    is_named: bool = False
    seen_at: float = 0.0


class ParseLimits(NamedTuple):
    """How a document is read. `max_decoded`: bytes of a decoded body at most."""

    extract: ExtractPolicy
    max_decoded: int


class ParsedDocument(NamedTuple):
    """What was read. `hints` of a sitemap are for the priorities; `decoded_size`: bytes of the decoded body. `cut`: by
    what something was left out."""

    found: Extracted
    hints: Mapping[str, float]
    decoded_size: int
    cut: tuple[Cut, ...] = ()


def read(document: Document, limits: ParseLimits) -> ParsedDocument:
    """What `document` says. Never raises for what a site sent."""
    decoded = decode_body(document.body, document.coding, limits.max_decoded)
    if _is_sitemap(document, decoded.data):
        return _sitemap(document, decoded, limits)
    found = extract(decoded.data, document.url, document.content_type, limits.extract, document.robots_tags)
    return ParsedDocument(found, NO_HINTS, len(decoded.data), _cut(decoded, found))


def read_quickly(document: Document, limits: ParseLimits) -> ParsedDocument | None:
    """As `read`; None if that may take long."""
    limit = limits.max_decoded
    if document.coding:
        if len(document.body) > INLINE_INPUT:
            return None
        limit = min(limit, INLINE_OUTPUT)
    decoded = decode_body(document.body, document.coding, limit)
    if decoded.truncated and limit < limits.max_decoded:
        return None
    body = decoded.data
    if _is_sitemap(document, body):
        return _sitemap(document, decoded, limits) if sitemaps.is_quick(body) else None
    found = extract_quickly(body, document.url, document.content_type, limits.extract, document.robots_tags)
    return None if found is None else ParsedDocument(found, NO_HINTS, len(body), _cut(decoded, found))


def _is_sitemap(document: Document, body: bytes) -> bool:
    return document.may_be_sitemap and sitemaps.is_sitemap(body, document.content_type, document.is_named)


def _sitemap(document: Document, decoded: Decoded, limits: ParseLimits) -> ParsedDocument:
    listed = sitemaps.sitemap_links(decoded.data, document.url, document.seen_at, limits.extract.rules)
    cut = _cut(decoded, listed.found)
    return ParsedDocument(listed.found, listed.hints, len(decoded.data), (*cut, "sitemap") if listed.error else cut)


def _cut(decoded: Decoded, found: Extracted) -> tuple[Cut, ...]:
    if not (decoded.truncated or decoded.error or found.dropped):
        return ()
    reasons: list[Cut] = []
    if decoded.truncated:
        reasons.append("decoded")
    if decoded.error:
        reasons.append("coding")
    if EXCESS in found.dropped:
        reasons.append("links")
    return tuple(reasons)
