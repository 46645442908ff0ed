"""What the last visit of each URL says, in WARC files and in the lines of a crawl: which response has the body of its page
now, and whether its owner refuses a use.

An export that has one result for a page (Markdown), or that leaves out what owners refuse, depends on the last visit, not
on what each response said in its time. A 304, or a body that was archived before, stands for an earlier response. A page
that is gone, that redirects, that its robots.txt denies, or whose owner wants it neither archived nor used, has no body any
more. A visit that is inconclusive (5xx, 401, 403, 408, 429, no response) says nothing of the page, so the one before it
counts. Nor does a denial by the crawl's own settings or its operator. A body that was cut off while it was received does
not replace a whole one. A page to which nothing links any more may be left out, too (`unlinked`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from crawler.errors import UserError
from crawler.page import BROKEN_OFF, Cut
from crawler.sinks.lines import IsoTime, Place, Row, decoded_lines
from crawler.sinks.reader import BrokenFraming, has_body, read_rows
from politeness.usage import Usage

_INCONCLUSIVE = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
)
"""401 and 403 are mostly said to crawlers, or because a login has ended, and not of the page."""

_LINKS_LOST = frozenset(get_args(Cut)) - {"budget"}
"""Cuts after which links of a page may be missing."""

_OWNERS_DENIALS = frozenset({"robots", "usage"})
"""Reasons of denials that are the owner's word. Others are the crawl's own, such as a block or a limit."""


class ResponseKey(NamedTuple):
    """The URL of a response, and its time in seconds since 1970."""

    url: str
    at: float


class Visit(NamedTuple):
    """What a visit at the time `at` (seconds since 1970) says of its URL. `body`: the response with the body of the page,
    None if the page has none, or if the visit `confirms` that of the response before. `is_refused`: whether the owner
    refuses the use; `is_noindex`: whether the response says noindex, which a 304 may do in its header; `is_cut`: whether
    the body broke off while it was received."""

    at: float
    body: ResponseKey | None
    is_refused: bool
    confirms: bool = False
    is_noindex: bool = False
    is_cut: bool = False

    def replaces(self, other: Visit | None) -> bool:
        """Whether this visit says more than `other` of what the page is now."""
        if other is None:
            return True
        if self.body and other.body and self.is_cut != other.is_cut:
            return other.is_cut
        return self.at >= other.at


class LastVisits:
    """The last visits of URLs, and the last one of each that has a body or names the response that has it, by URL."""

    def __init__(self) -> None:
        self.is_cut = False  # the rest of a file could not be read
        self._last: dict[str, Visit] = {}
        self._bodies: dict[str, Visit] = {}

    def add(self, url: str, visit: Visit) -> None:
        """Add a visit, in any order."""
        if visit.replaces(self._last.get(url)):
            self._last[url] = visit
        if visit.body is not None and visit.replaces(self._bodies.get(url)):
            self._bodies[url] = visit

    def update(self, other: LastVisits) -> None:
        for visits in (other._bodies, other._last):
            for url, visit in visits.items():
                self.add(url, visit)

    def leave_out(self, urls: Iterable[str]) -> None:
        """Let none of the pages `urls` have a body any more."""
        for url in self._last.keys() & set(urls):
            self._last[url] = Visit(self._last[url].at, None, self.is_refused(url))

    def urls(self, since: float = 0.0) -> Iterator[str]:
        return (url for url, visit in self._last.items() if visit.at >= since)

    def with_bodies(self) -> Iterable[str]:
        return self._bodies

    def body_of(self, url: str) -> ResponseKey | None:
        """The response that has the body of the page `url` now, None if it has none or the use is refused. If the response
        that the last visit confirms is unknown, that is the visit itself, which has no body."""
        if self.is_refused(url):
            return None
        last = self._last[url]
        if not last.confirms:
            return last.body
        return self._bodies[url].body if url in self._bodies else ResponseKey(url, last.at)

    def is_noindex(self, url: str) -> bool:
        return self._last[url].is_noindex

    def is_refused(self, url: str) -> bool:
        """Whether the owner of `url` refuses the use. A 304 stands for a body that may say so itself."""
        last = self._last.get(url)
        if last is None:
            return False
        of_body = self._bodies.get(url) if last.confirms else None
        return last.is_refused or (of_body is not None and of_body.is_refused)


def visits_in(usage: Collection[str], path: Path) -> LastVisits:
    """The last visits in the WARC file at `path`, as far as it can be read. `usage`: the uses that may be refused."""
    found = LastVisits()
    try:
        for row in read_rows(path, lambda url, error: None):
            if (visit := _visit(row, usage)) is not None:
                found.add(row.page.url, visit)
    except (OSError, BrokenFraming):
        found.is_cut = True
    return found


def is_inconclusive(status: int) -> bool:
    """Whether a visit with this `status`, 0 without a response, says nothing of its page, which could not be fetched for
    now."""
    return status >= 500 or status < 200 or status in _INCONCLUSIVE


def _visit(row: Row, usage: Collection[str]) -> Visit | None:
    page, exchange = row.page, row.page.exchange
    assert exchange is not None
    status, at = exchange.status, exchange.started_at
    if is_inconclusive(status):
        return None
    body = None
    if status < 300:
        body = ResponseKey(page.url, at) if has_body(row) else row.refers and ResponseKey(*row.refers)
    confirms = status == HTTPStatus.NOT_MODIFIED or (status < 300 and body is None)
    is_refused, is_cut = page.usage.refusal(usage) is not None, exchange.truncated in BROKEN_OFF
    return Visit(at, body, is_refused, confirms, page.noindex, is_cut)


class _Line(msgspec.Struct):
    url: str
    outcome: str | None = None
    reason: str | None = None
    status: int | None = None
    settled_at: IsoTime | None = None
    fetched_at: IsoTime | None = None
    warc: Place | None = None
    usage: str | None = None
    depth: int | None = None
    content_type: str = ""
    links: Sequence[str] | None = None
    followed: Mapping[str, Sequence[str]] | None = None
    cut: Sequence[str] | None = None

    @property
    def is_denied(self) -> bool:
        return self.outcome == "denied" and self.reason in _OWNERS_DENIALS

    @property
    def at(self) -> float:
        """When the URL was fetched, or settled, in seconds since 1970."""
        return datetime.fromisoformat(self.fetched_at or self.settled_at or "1970-01-01T00:00Z").timestamp()


_decoder = msgspec.json.Decoder(_Line)


def add_lines(visits: LastVisits, files: Iterable[Path], usage: Collection[str]) -> None:
    """Add what the lines of pages in `files` say of URLs that were not fetched, or not archived. Raises UserError for a
    file that cannot be read."""
    for line in _lines(files):
        is_page = line.outcome == "done" and line.status is not None and line.status < 300
        if line.is_denied or (is_page and line.warc is None):
            is_refused = Usage.recorded(line.usage or "", (), "").refusal(usage) is not None
            visits.add(line.url, Visit(line.at, None, is_refused))


def unlinked(files: Iterable[Path]) -> set[str]:
    """The URLs in the lines of a crawl to which no way of links leads any more from a seed or a sitemap, so that a fresh
    crawl would not find them. Raises UserError for a file that cannot be read, and for lines without links or seeds."""
    last: dict[str, tuple[float, Sequence[str]]] = {}
    found: set[str] = set()
    for line in _lines(files):
        if line.depth == 0 or (line.links and "html" not in line.content_type and line.status == HTTPStatus.OK):
            found.add(line.url)
        is_known = line.status != HTTPStatus.NOT_MODIFIED and not is_inconclusive(line.status or 0)
        if not (line.is_denied or is_known) or line.at < last.get(line.url, (0.0,))[0]:
            continue
        if line.links is None:
            raise UserError(
                "--skip-unlinked needs the links of all pages, which this crawl has not kept: archive.links"
            )
        links = [*line.links, *chain.from_iterable((line.followed or {}).values())]
        if not _LINKS_LOST.isdisjoint(line.cut or ()):
            links.extend(last.get(line.url, (0.0, ()))[1])  # some of its own may be missing
        last[line.url] = line.at, links
    if not found:
        raise UserError(
            "--skip-unlinked needs the lines of the pages of a crawl from its seeds on: name its output folder"
        )
    left = [*found]
    while left:
        _, linked = last.get(left.pop(), (0.0, ()))
        new = set(linked) - found
        found |= new
        left += new
    return last.keys() - found


def _lines(files: Iterable[Path]) -> Iterator[_Line]:
    for path in files:
        yield from decoded_lines(path, _decoder)
