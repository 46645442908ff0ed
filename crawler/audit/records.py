"""What an output folder tells about the requests that were made: read from WARC files and JSON lines, nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import msgspec
from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from crawler.errors import UserError
from crawler.fetch.client import host_of
from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.line_search import line_files
from crawler.sinks.segment import OPEN_SUFFIX
from frontier.errors import BadUrl
from frontier.urls import UrlRules, canonicalize, domain_of
from politeness.robots_text import MAX_BODY

WANTED = WarcRecordType.response | WarcRecordType.revisit | WarcRecordType.warcinfo
UNKNOWN_ADDRESS = ""
AS_GIVEN = UrlRules(strip_params=(), session_params=())
"""A robots.txt redirects to what it says, tracking parameters included."""


class Request(msgspec.Struct, frozen=True):
    """A request that was answered. Times are seconds since 1970 by the replica's own clock; WARC dates have microseconds,
    JSON lines milliseconds. `end` is `start` where the archive does not tell how long the answer took. `body` is kept of
    robots.txt files and what they redirect to, cut at what RFC 9309 asks to be read."""

    url: str
    domain: str
    address: str
    start: float
    end: float
    status: int
    retry_after: str | None = None
    location: str | None = None
    coding: str = ""
    body: bytes = b""

    @property
    def is_robots(self) -> bool:
        return self.url.partition("://")[2].partition("/")[2] == "robots.txt"


class ArchivedRequests(msgspec.Struct):
    """All requests in a folder, in order of their start. `user_agents`: those that the files name."""

    requests: list[Request]
    user_agents: set[str]
    files: int


def read_archive(folder: Path) -> ArchivedRequests:
    """Everything in `folder`, finished files and those left open. Raises UserError if there is nothing."""
    reader = _WarcReader()
    patterns = [f"*{suffix}{end}" for suffix in WARC_SUFFIXES for end in ("", OPEN_SUFFIX)]
    warcs = sorted(path for pattern in patterns for path in folder.glob(pattern))
    requests = [request for path in warcs for request in reader.read(path)]
    if reader.has_missed(requests):
        requests = [request for path in warcs for request in reader.read(path)]
    lines = list(line_files(folder))
    if not warcs and not lines:
        raise UserError(f"nothing to audit in {folder}: no WARC file and no *.pages.jsonl")
    requests += [request for path in lines for request in _from_lines(path)]
    requests.sort(key=lambda request: request.start)
    return ArchivedRequests(requests, reader.user_agents, len(warcs) + len(lines))


class _WarcReader:
    """Reads files one after another, and remembers robots.txt bodies for revisit records, which have none, and the URLs
    that robots.txt files redirect to, whose bodies count, too."""

    def __init__(self) -> None:
        self.user_agents: set[str] = set()
        self._bodies: dict[str, bytes] = {}
        self._targets: set[str] = set()
        self._kept: set[str] = set()

    def has_missed(self, requests: Iterable[Request]) -> bool:
        """Whether a file that a robots.txt redirects to was read before it was known to be one."""
        return any(request.url in self._targets and request.url not in self._kept for request in requests)

    def read(self, path: Path) -> Iterator[Request]:
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, record_types=WANTED, parse_http=True):
                if record.record_type == WarcRecordType.warcinfo:
                    self.user_agents.update(_user_agents(record.reader.read()))
                elif record.http_headers is not None:
                    yield self._request(record)

    def _request(self, record: WarcRecord) -> Request:
        url = record.headers.get("WARC-Target-URI") or ""
        start = _seconds(record.headers.get("WARC-Date") or "")
        http = record.http_headers
        status, location, body = int(http.status_code or 0), http.get("Location"), b""
        if url.endswith("/robots.txt") or url in self._targets:
            body = self._body(record)
            self._kept.add(url)
            if 300 <= status <= 399 and location:
                self._targets.add(_joined(location, url))
        return Request(
            url=url,
            domain=domain_of(host_of(url)),
            address=record.headers.get("WARC-IP-Address") or UNKNOWN_ADDRESS,
            start=start,
            end=start + float(record.headers.get("X-Crawler-Elapsed") or 0),
            status=status,
            retry_after=http.get("Retry-After"),
            location=location,
            coding=http.get("Content-Encoding") or "",
            body=body,
        )

    def _body(self, record: WarcRecord) -> bytes:
        digest = record.headers.get("WARC-Payload-Digest") or ""
        if record.record_type == WarcRecordType.revisit:
            return self._bodies.get(digest, b"")
        return self._bodies.setdefault(digest, record.reader.read(MAX_BODY))


def _joined(location: str, base: str) -> str:
    try:
        return canonicalize(location, base, AS_GIVEN).href
    except BadUrl:
        return ""


def _from_lines(path: Path) -> Iterator[Request]:
    """The requests of pages that are not in a WARC file, such as those that asked not to be archived."""
    with path.open("rb") as lines:
        for text in lines:
            if not text.endswith(b"\n"):
                return  # being written
            line = msgspec.json.decode(text)
            if line["warc"] is None and line["fetched_at"] is not None:
                start = _seconds(line["fetched_at"])
                end = start + (line["elapsed_ms"] or 0) / 1000
                yield Request(line["url"], line["domain"], UNKNOWN_ADDRESS, start, end, line["status"] or 0)


def _user_agents(block: bytes) -> Iterator[str]:
    for line in block.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() == "http-header-user-agent":
            yield value.strip()


def _seconds(date: str) -> float:
    return datetime.fromisoformat(date.replace("Z", "+00:00")).timestamp() if date else 0.0
