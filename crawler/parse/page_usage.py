"""Collects what the owner of a page says about its use: in robots.txt and other files of the site, in the header of the
response, and in the page. Pure.

`politeness.usage_preferences` combines the statements. The draft has no category for images alone, so `noimageai` says
something about a response only if it is an image; about a page, it is recorded without an answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from crawler.parse.html import Extracted
from politeness import content_usage, tdmrep
from politeness.site_usage import NOT_STATED, SiteUsage
from politeness.tdmrep import Reservation
from politeness.usage_preferences import NO_AI, NO_USAGE, Statement, Usage

X_ROBOTS_TAG = b"x-robots-tag"

NOTED = frozenset({X_ROBOTS_TAG, content_usage.HEADER, tdmrep.RESERVATION, tdmrep.POLICY})
"""The header fields, in lower case, that may say something about the use of a page."""

MAX_TDM = 16
"""The most `meta` elements of the TDM Reservation Protocol that are read. A page needs two."""


Fields = Sequence[tuple[bytes, bytes]]


def noted_fields(fields: Fields) -> list[tuple[bytes, bytes]]:
    """The header fields among `fields` that are in `NOTED`, with their names in lower case."""
    return [(name, value) for key, value in fields if (name := key.lower()) in NOTED]


def robots_tags(noted: Fields) -> tuple[str, ...]:
    """The values of X-Robots-Tag."""
    return tuple(value.decode("latin-1") for name, value in noted if name == X_ROBOTS_TAG)


def usage_of(site: SiteUsage, noted: Fields, found: Extracted, is_image: bool) -> Usage:
    """What the owner of a page says about its use. `noted`: see `noted_fields`; `found`: what is in the page."""
    if site is NOT_STATED and not noted and not found.tdm and not found.noai and not found.noimageai:
        return NO_USAGE
    statements: list[Statement] = []
    if values := [value for name, value in noted if name == content_usage.HEADER]:
        statements.append(content_usage.header_statement(b", ".join(values)))
    if found.noai:
        statements.append(Statement(f"{found.noai}: noai", NO_AI))
    if found.noimageai:
        statements.append(Statement(f"{found.noimageai}: noimageai", NO_AI if is_image else ()))
    sent = {name: value.decode("latin-1") for name, value in reversed(noted) if name != content_usage.HEADER}
    written = {name.encode("utf-8", "replace"): content for name, content in reversed(found.tdm[:MAX_TDM])}
    return site.combined(statements, [Reservation.of(sent, "header"), Reservation.of(written, "meta")])


def header_usage(fields: Fields) -> Usage:
    """What the header `fields` of a response say about the use of its body, except X-Robots-Tag."""
    return usage_of(NOT_STATED, noted_fields(fields), Extracted(), is_image=False)
