"""What a response says: its content coding undone, and then a sitemap's or a page's links. Pure.

`read` takes whatever a site sent; a compression bomb or a page of megabytes costs it up to a quarter of a second of a core.
`read_quickly` gives the same answer for all that takes some milliseconds, and None for the rest, which is left to
`crawler.heavy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from crawler import sitemaps
from crawler.decode import INLINE_INPUT, INLINE_OUTPUT, decode_body
from crawler.extract import Extracted, ExtractPolicy, extract, extract_quickly
from crawler.links import NO_HINTS


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


class Limits(NamedTuple):
    """How a document is read. `max_decoded`: octets of a decoded body at most."""

    extract: ExtractPolicy
    max_decoded: int


class Reading(NamedTuple):
    """What was read. `hints` of a sitemap are for the priorities; `decoded_size`: octets of the decoded body."""

    found: Extracted
    hints: Mapping[str, float]
    decoded_size: int


def read(document: Document, limits: Limits) -> Reading:
    """What `document` says. Never raises for what a site sent."""
    body = decode_body(document.body, document.coding, limits.max_decoded).data if document.coding else document.body
    if _is_sitemap(document, body):
        return _sitemap(document, body, limits)
    found = extract(body, document.url, document.content_type, limits.extract, document.robots_tags)
    return Reading(found, NO_HINTS, len(body))


def read_quickly(document: Document, limits: Limits) -> Reading | None:
    """As `read`; None if that may take long."""
    body = document.body
    if document.coding:
        if len(body) > INLINE_INPUT:
            return None
        decoded = decode_body(body, document.coding, min(limits.max_decoded, INLINE_OUTPUT))
        if decoded.truncated and limits.max_decoded > INLINE_OUTPUT:
            return None
        body = decoded.data
    if _is_sitemap(document, body):
        return _sitemap(document, body, limits) if sitemaps.is_quick(body) else None
    found = extract_quickly(body, document.url, document.content_type, limits.extract, document.robots_tags)
    return None if found is None else Reading(found, NO_HINTS, len(body))


def _is_sitemap(document: Document, body: bytes) -> bool:
    return document.may_be_sitemap and sitemaps.is_sitemap(body, document.content_type, document.is_named)


def _sitemap(document: Document, body: bytes, limits: Limits) -> Reading:
    listed = sitemaps.sitemap_links(body, document.url, document.seen_at, limits.extract.rules)
    return Reading(listed.found, listed.hints, len(body))
