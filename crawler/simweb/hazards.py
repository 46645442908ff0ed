"""The kinds of attack that a synthetic web can make.

A crawler must survive each attack, and must still fetch the page next to it. Ordinary faults, such as a connection that
closes in mid-body, are in `features` (`Kind`).
"""

from __future__ import annotations

from enum import StrEnum


class Hazard(StrEnum):
    """What the page /hazard of a hostile domain does; for some, its robots.txt, its sitemap, or all later pages."""

    GZIP_BOMB = "gzip-bomb"  # 128 MiB in 128 KiB
    BROTLI_BOMB = "br-bomb"
    ZSTD_BOMB = "zstd-bomb"
    NESTED_BOMB = "nested-bomb"  # Content-Encoding: gzip, gzip
    ENDLESS_BODY = "endless-body"
    ENDLESS_HEAD = "endless-head"  # header fields without end
    HUGE_FIELD = "huge-field"  # one header field of 4 MiB
    DRIP = "drip"  # one byte a second
    HUGE_CHUNK = "huge-chunk"  # a chunk size beyond 64 bits
    SURPLUS = "surplus"  # a second, unrequested response after the first (Content-Length too small)
    HUGE_LOCATION = "huge-location"  # a redirect to a URL of 1 MiB
    MANY_LINKS = "many-links"  # 100,000 links, all denied by robots.txt
    HUGE_ATTRIBUTE = "huge-attribute"  # an href of 5 MiB
    DEEP_TAGS = "deep-tags"  # 200,000 nested elements
    CIRCLE = "circle"  # redirects back and forth between two domains, always to new URLs
    CALENDAR = "calendar"  # each month links to the next
    SESSIONS = "sessions"  # each page links to itself under three new ids
    DEEPER = "deeper"  # each page links to one a folder deeper
    ROBOTS_BOMB = "robots-bomb"  # robots.txt: its rules, then 128 MiB in 128 KiB
    ROBOTS_ENDLESS = "robots-endless"  # robots.txt: its rules, then comments without end
    ROBOTS_PATTERNS = "robots-patterns"  # robots.txt of 500 KiB: patterns that make a backtracking matcher slow
    SITEMAP_BOMB = "sitemap-bomb"  # XML whose entities expand to 1 GiB
    TRAILERS = "trailers"  # trailer fields without end
    BLANK_LINE = "blank-line"  # a blank line, then 16 MiB that are not a status line
    INTERIM = "interim"  # 1xx responses without end
    UNREQUESTED = "unrequested"  # bytes without end after a complete response
    REFERENCE = "reference"  # character references with numbers of 4,301 digits
    OPEN_TAG = "open-tag"  # a tag of 1.7 MiB that does not end
    SURROGATE = "surrogate"  # JSON-LD with a lone surrogate
    CHARSET = "charset"  # 16,000 spaces after "charset="


TRAPS = frozenset({Hazard.CALENDAR, Hazard.SESSIONS, Hazard.DEEPER})
"""Sites with an unlimited number of pages. Only the crawler's own rules limit what it fetches there."""

UNREADABLE = frozenset(
    {Hazard.ENDLESS_HEAD, Hazard.HUGE_FIELD, Hazard.HUGE_LOCATION, Hazard.BLANK_LINE, Hazard.INTERIM}
)
"""Attacks without a response head that a correct client accepts."""
