"""What one visit to one URL leaves behind: the value that travels from the fetch to the sinks.

`gc=False`: these hold nothing that could refer back to them, so the collector need not know of them
(`crawler.app.gc_schedule`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec


class Outcome(StrEnum):
    """How a leased URL ended this time. `RETRY` comes back later; the others are final."""

    DONE = "done"
    RETRY = "retry"
    DEAD = "dead"
    DENIED = "denied"


class LinkKind(StrEnum):
    """Where a link stood. The order of the members is the order of their worth to a crawl.

    `SITEMAP` leads to a sitemap (from robots.txt or an index), `LISTED` to a page that a sitemap lists.
    """

    REDIRECT = "redirect"
    ANCHOR = "a"
    FRAME = "frame"
    LINK = "link"
    SITEMAP = "sitemap"
    LISTED = "listed"


Cut = Literal["length", "time", "disconnect", "decoded", "coding", "links", "sitemap", "unread", "defect"]
"""By what something of a page was left out.

`length`, `time`, `disconnect`: the body as received ended early (`Exchange.truncated`). `decoded`: it is longer than
`limits.max_decoded` once decompressed. `coding`: it could not be decompressed to its end. `links`: it has more links than
`limits.max_links`. `sitemap`: it is a sitemap that is malformed, breaks off, or has too many or too
long entries. `unread`: reading it took more
time or memory than a document may take. `defect`: something was raised while it was handled (`crawler.defects`).
"""


class Link(msgspec.Struct, frozen=True, gc=False):
    """An outlink: the canonical absolute URL and where it stood."""

    url: str
    kind: LinkKind = LinkKind.ANCHOR


class Phases(NamedTuple):
    """What it took to open a connection, in seconds. `tls_s` is None over plain http."""

    dns_s: float
    connect_s: float
    tls_s: float | None


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """One HTTP exchange as it went over the wire, transfer coding removed and content coding kept.

    `request_head` and `response_head` are the start line and header lines with CRLF line ends and the closing empty
    line. `body` is the entity as received (still compressed when the server compressed it), cut at the limit named in
    `truncated` ("length", "time" or "disconnect", the words of WARC 1.1 section 5.13; None when whole).
    """

    url: str
    status: int
    reason: str
    headers: tuple[tuple[bytes, bytes], ...]
    request_head: bytes
    response_head: bytes
    body: bytes
    address: str
    started_at: float  # seconds since 1970
    elapsed: float  # seconds from the start of the request to the last byte
    first_byte: float  # seconds from the start of the request to the response head
    truncated: str | None = None
    protocol: str = "http/1.1"
    tls: str | None = None  # cipher suite and version, None over plain http
    phases: Phases | None = None  # None when a connection was used again

    def header(self, name: bytes) -> bytes | None:
        """The first value of the header `name` (given in lower case), or None."""
        for key, value in self.headers:
            if key.lower() == name:
                return value
        return None

    def header_list(self, name: bytes) -> bytes | None:
        """All values of the header `name` (given in lower case) as one list, or None: a field whose value is a list may
        come in several lines (RFC 9110 5.3)."""
        values = [value for key, value in self.headers if key.lower() == name]
        return b", ".join(values) if values else None


class Page(msgspec.Struct, frozen=True, gc=False):
    """A URL that was settled, with everything that the sinks may want of it.

    `exchange` is None when nothing was received (denied by robots.txt, or dead for want of an answer). `links` are those
    found, before scope and deduplication. `cut` says by what something of the page was left out: see `Cut`.
    """

    url: str
    domain: str
    depth: int
    outcome: Outcome
    reason: str  # one word of a closed list: "ok", "redirect", "robots", "timeout", "http_500" ...
    settled_at: float  # seconds since 1970
    tries: int = 0
    exchange: Exchange | None = None
    content_type: str = ""  # media type without parameters, lower case
    charset: str = ""  # the encoding that the text was decoded with
    title: str = ""
    lang: str = ""
    canonical: str = ""
    links: tuple[Link, ...] = ()
    decoded_size: int = 0  # bytes after content decoding
    digest: str = ""  # "sha1:" and base32 of the entity as received
    noarchive: bool = False
    noindex: bool = False
    cut: tuple[Cut, ...] = ()
    via: str = ""  # the URL of the page where this one was first found; empty for seeds, and unless asked for
