"""One JSON line for each settled URL: what a data set needs, and where the WARC file keeps the rest.

Denied and dead URLs have their line too, with a null status, so that the reasons of all settled URLs are in the data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from crawler.page import Page
from crawler.sinks.content import NOTHING, Content
from crawler.sinks.settings import ArchiveSettings
from crawler.sinks.times import iso_time


class Place(msgspec.Struct, frozen=True):
    """Where a page's response (or revisit) record stands: bytes in the compressed file."""

    file: str
    offset: int
    length: int


class Line(msgspec.Struct, frozen=True):
    """A line. All fields are always there; None is null.

    `description` to `soft_404` are null unless the settings ask for them; `extra` holds what page hooks returned.
    Times are UTC with milliseconds. `size` counts the bytes of the body as received, `decoded_size` those after content
    decoding. `links` are the found URLs in the page's order, null when the settings leave them out. `simhash`: 16
    hexadecimal digits, as readers of JSON have no integers of 64 bits in common. `cut`: by what something of the page was
    left out, in the words of `crawler.page.Cut`; `text` stands for the text and data that a page says beyond its first
    4 MiB, or that it takes too long to find, `defect` for a line that lacks what could not be written.
    """

    url: str
    domain: str
    status: int | None
    outcome: str
    reason: str
    depth: int
    tries: int
    settled_at: str
    fetched_at: str | None
    elapsed_ms: int | None
    content_type: str
    charset: str
    title: str
    lang: str
    canonical: str
    size: int
    decoded_size: int
    digest: str
    truncated: str | None
    noarchive: bool
    noindex: bool
    link_count: int
    links: list[str] | None
    warc: Place | None
    replica: str
    description: str | None = None
    text: str | None = None
    markdown: str | None = None
    json_ld: list[Any] | None = None
    opengraph: dict[str, str] | None = None
    simhash: str | None = None
    near_of: str | None = None
    soft_404: bool | None = None
    cut: list[str] = []
    via: str | None = None
    extra: Any = None  # encoded before; a dict when the line is read


class Row(NamedTuple):
    """What becomes a line: a page, the digest of its body ("" without one), where its record stands, what hooks added, and
    what the page says."""

    page: Page
    digest: str = ""
    place: Place | None = None
    extra: msgspec.Raw | None = None
    content: Content = NOTHING


class PageLines:
    """Makes the lines of one replica."""

    def __init__(self, settings: ArchiveSettings) -> None:
        self._settings = settings
        self._encoder = msgspec.json.Encoder()

    def encode(self, rows: Iterable[Row]) -> bytes:
        """The lines of `rows`."""
        lines = [self._line(row) for row in rows]
        try:
            return self._encoder.encode_lines(lines)
        except (UnicodeEncodeError, OverflowError, RecursionError):
            # A page's JSON-LD may hold what JSON can say and UTF-8, 64 bits or a stack of our size cannot hold.
            return self._encoder.encode_lines([_encodable(line) for line in lines])

    def _line(self, row: Row) -> Line:
        page, exchange, content = row.page, row.page.exchange, row.content
        return Line(
            url=page.url,
            domain=page.domain,
            status=exchange.status if exchange else None,
            outcome=page.outcome.value,
            reason=page.reason,
            depth=page.depth,
            tries=page.tries,
            settled_at=iso_time(page.settled_at),
            fetched_at=iso_time(exchange.started_at) if exchange else None,
            elapsed_ms=round(exchange.elapsed * 1000) if exchange else None,
            content_type=page.content_type,
            charset=page.charset,
            title=page.title,
            lang=page.lang,
            canonical=page.canonical,
            size=len(exchange.body) if exchange else 0,
            decoded_size=page.decoded_size,
            digest=row.digest,
            truncated=exchange.truncated if exchange else None,
            noarchive=page.noarchive,
            noindex=page.noindex,
            link_count=len(page.links),
            links=[link.url for link in page.links] if self._settings.links else None,
            warc=row.place,
            replica=self._settings.replica,
            description=content.description,
            text=content.text,
            markdown=content.markdown,
            json_ld=content.json_ld,
            opengraph=content.opengraph,
            simhash=None if content.simhash is None else f"{content.simhash:016x}",
            near_of=content.near_of,
            soft_404=content.soft_404,
            cut=[*page.cut, *content.cut],
            via=page.via or None,
            extra=row.extra,
        )


_DEEPEST = 100
"""Levels of lists and objects in what a page says of itself; of what lies deeper, null is kept."""


def _encodable(line: Line) -> Line:
    """`line` with question marks for lone surrogates, numbers beyond 64 bits as text, and nothing nested too deeply."""
    fields = msgspec.structs.asdict(line)
    return Line(**{name: plain(value) for name, value in fields.items()})


def plain(value: Any, depth: int = _DEEPEST) -> Any:
    """`value` with nothing in it that an encoder refuses."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 64:
        return hex(value)
    if isinstance(value, list):
        return [plain(item, depth - 1) for item in value] if depth else None
    if isinstance(value, dict):
        return {plain(key, 1): plain(item, depth - 1) for key, item in value.items()} if depth else None
    return value


def minimal_row(row: Row) -> Row:
    """`row` with nothing that a page or a hook says, marked as cut by a defect: for a line that cannot be made."""
    page = msgspec.structs.replace(
        row.page, content_type="", charset="", title="", lang="", canonical="", links=(), cut=("defect",), via=""
    )
    return Row(page, row.digest, row.place)
