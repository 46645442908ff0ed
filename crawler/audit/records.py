"""Reads the requests of a crawl from the WARC files and JSON lines in its output folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from fastwarc.warc import WarcRecord, WarcRecordType

from crawler.errors import UserError
from crawler.http_head import Head
from crawler.page import content_coding
from crawler.sinks.cdxj import index_path
from crawler.sinks.compression import READ_SUFFIXES
from crawler.sinks.files import LINES
from crawler.sinks.forget import marks_in
from crawler.sinks.lines import files_of, lines_in, lost_from, lost_lines
from crawler.sinks.reader import (
    MAX_DECODED,
    BrokenFraming,
    Unread,
    complete_part,
    read_head,
    records_in,
    seconds_of,
    target_of,
    usage_in,
)
from frontier.domains import domain_of, host_of
from frontier.errors import BadUrl
from frontier.urls import UrlRules, canonicalize, origin_of
from politeness import tdmrep
from politeness.rate_limit import network_of
from politeness.robots_syntax import MAX_BODY
from politeness.usage import NO_USAGE, Usage

_RESPONSES = WarcRecordType.response | WarcRecordType.revisit
WANTED = _RESPONSES | WarcRecordType.warcinfo | WarcRecordType.metadata
UNKNOWN_ADDRESS = ""
AS_GIVEN = UrlRules(strip_params=(), session_params=())
"""Redirects of a robots.txt are followed unchanged, including tracking parameters."""


_OF_BROWSERS = frozenset({"script", "stylesheet", "xhr", "frame", "image", "font"})


class Request(msgspec.Struct, frozen=True):
    """A request that got a response.

    `start`, `end`: seconds since 1970 by the replica's own clock, with microseconds from WARC files and milliseconds from
    JSON lines. They are equal if the archive does not contain the duration. `body`: only of robots.txt and tdmrep.json
    files and their redirect targets, up to the size that RFC 9309 2.5 requires to be parsed. `usage`: what the owner says
    in the header and the page, if the page was kept and `read_archive` was asked for it. `page_id`, `kind`:
    WARC-Page-ID, and WARC-Resource-Type, which is empty for the page itself.
    """

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
    usage: Usage = NO_USAGE
    page_id: str = ""
    kind: str = ""

    @property
    def is_of_browser(self) -> bool:
        """Whether a page in a browser has made it: as part of the visit to the page, without the delay."""
        return bool(self.page_id) and self.kind in _OF_BROWSERS

    @property
    def is_robots(self) -> bool:
        return self.url.partition("://")[2].partition("/")[2] == "robots.txt"

    @property
    def is_tdmrep(self) -> bool:
        return self.url.partition("://")[2].partition("/")[2] == tdmrep.PATH[1:]

    @property
    def redirects_to(self) -> str | None:
        """The URL to which a robots.txt or tdmrep.json redirects. None if the response is not a redirect to a valid URL."""
        if not (300 <= self.status <= 399 and self.location):
            return None
        try:
            return canonicalize(self.location, self.url, AS_GIVEN).href
        except BadUrl:
            return None


class ArchivedRequests:
    """All requests in a folder, ordered by start. `user_agents`: from the warcinfo records. `files`: number of files.
    `unread`: the records and lines that could not be read, by file. `broken`: the files that could not be read to the end,
    each with the reason. `forgotten`: the marks of domains that were forgotten (`crawler forget`); `named`: a URL of
    each domain in lines and indexes."""

    def __init__(self, usage: bool = False) -> None:
        self.requests: list[Request] = []
        self.user_agents: set[str] = set()
        self.files = 0
        self.unread: dict[Path, Unread] = {}
        self.broken: dict[Path, str] = {}
        self.forgotten: set[str] = set()
        self.named: dict[str, str] = {}
        self._reads_usage = usage
        self._bodies: dict[str, bytes] = {}  # of robots.txt files, because revisit records have none
        self._targets: set[str] = set()  # to which robots.txt files redirect, because their bodies are needed as well
        self._kept: set[str] = set()

    def read_warcs(self, paths: Sequence[Path]) -> None:
        self.requests = [request for path in paths for request in self._read_warc(path)]
        if any(request.url in self._targets and request.url not in self._kept for request in self.requests):
            # The target of a robots.txt redirect was read before the redirect.
            self.unread, self.broken = {}, {}
            self.requests = [request for path in paths for request in self._read_warc(path)]

    def _read_warc(self, path: Path) -> Iterator[Request]:
        with complete_part(path) as stream:
            request, pages = None, 0
            try:
                for record in records_in(stream, WANTED):
                    if record.record_type == WarcRecordType.metadata:
                        # That of a page of this crawler follows its response, and says how it was settled.
                        is_page = request is not None and not request.kind
                        pages += is_page and b"\noutcome: " in record.reader.read(MAX_DECODED)
                        continue
                    request = self._read(record, path)
                    if request is not None:
                        yield request
                stream.check_end()
                if lost := lost_from(path) or lost_lines(path, pages):
                    self.broken[path] = lost
            except BrokenFraming as error:
                self.broken[path] = "; ".join(filter(None, (str(error), lost_from(path))))

    def _read(self, record: WarcRecord, path: Path) -> Request | None:
        try:
            if record.record_type == WarcRecordType.warcinfo:
                fields = record.reader.read(MAX_DECODED)
                self.user_agents.update(_values(fields, "http-header-user-agent"))
                return None
            read = read_head(record)
            return self._request(record, *read) if read is not None else None
        except Exception as error:  # records contain what sites sent
            self.unread.setdefault(path, Unread()).add(f"at byte {record.stream_pos:,}", error)
            return None

    def _request(self, record: WarcRecord, http: Head, start_of_body: bytes) -> Request:
        url = target_of(record)
        origin_of(url)  # raises ValueError for anything but an HTTP URL
        start = _seconds(record.headers.get("WARC-Date") or "")
        has_rules = url.endswith(("/robots.txt", tdmrep.PATH)) or url in self._targets
        request = Request(
            url=url,
            domain=domain_of(host_of(url)),
            address=_address(record.headers.get("WARC-IP-Address") or ""),
            start=start,
            end=start + float(record.headers.get("X-Crawler-Elapsed") or 0),
            status=http.status,
            retry_after=http.get(b"retry-after"),
            location=http.get(b"location"),
            coding=content_coding(http.get_list(b"content-encoding"), http.get_list(b"content-type"), start_of_body),
            body=self._body(record, start_of_body) if has_rules else b"",
            usage=self._usage(record, http, start_of_body) if self._reads_usage and not has_rules else NO_USAGE,
            page_id=record.headers.get("WARC-Page-ID") or "",
            kind=record.headers.get("WARC-Resource-Type") or "",
        )
        if has_rules:
            self._kept.add(url)
            self._targets.update([request.redirects_to] if request.redirects_to else ())
        return request

    def _usage(self, record: WarcRecord, http: Head, start: bytes) -> Usage:
        """What the response says about its use. The page of a revisit record is the one to which it refers."""
        body = start + record.reader.read(MAX_DECODED) if record.record_type == WarcRecordType.response else b""
        token = next((agent.partition("/")[0] for agent in sorted(self.user_agents)), "")
        return usage_in(http, body, target_of(record), token)

    def _body(self, record: WarcRecord, start: bytes) -> bytes:
        digest = record.headers.get("WARC-Payload-Digest") or ""
        if record.record_type == WarcRecordType.revisit:
            return self._bodies.get(digest, b"")
        return self._bodies.setdefault(digest, start + record.reader.read(max(0, MAX_BODY - len(start))))

    def read_index(self, path: Path) -> None:
        """Add the domains in the index at `path`."""
        with path.open("rb") as lines:
            for line in lines:
                url = msgspec.json.decode(line.split(b" ", 2)[2], type=dict[str, str]).get("url", "")
                self.named.setdefault(domain_of(host_of(url)), url)

    def read_lines(self, path: Path) -> None:
        """Add the requests of pages that are in no WARC file, and the domains of all."""
        for number, text in enumerate(lines_in(path), 1):
            try:
                line = msgspec.json.decode(text)
                self.named.setdefault(line["domain"], line["url"])
                if line["warc"] is None and line["fetched_at"] is not None:
                    self.requests.append(_request_of(line))
            except Exception as error:
                self.unread.setdefault(path, Unread()).add(f"in line {number:,}", error)


def read_archive(*folders: Path, usage: bool = False, crawl: str = "") -> ArchivedRequests:
    """Read all files in `folders`, or those of `crawl`, open ones up to their last complete record. They are of one crawl:
    all requests are judged together. `usage`: parse all pages for what their owners say about their use. Raises
    UserError if there is no file in one of the folders."""
    archive = ArchivedRequests(usage)
    warcs: list[Path] = []
    lines: list[Path] = []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: {'a file, not a folder' if folder.exists() else 'no such folder'}")
        found, written = (files_of(folder, suffixes, crawl) for suffixes in (READ_SUFFIXES, (LINES,)))
        if not found and not written:
            whose = f" of crawl {crawl!r}" if crawl else ""
            raise UserError(f"nothing to audit in {folder}: no WARC file and no *.pages.jsonl{whose}")
        warcs += found
        lines += written
        archive.forgotten |= marks_in(folder).keys()
    archive.files = len(warcs) + len(lines)
    for path in map(index_path, warcs):
        if archive.forgotten and path.exists():
            archive.read_index(path)
    archive.read_warcs(warcs)
    for path in lines:
        archive.read_lines(path)
    archive.requests.sort(key=lambda request: request.start)
    return archive


def _request_of(line: dict[str, Any]) -> Request:
    start = _seconds(line["fetched_at"])
    end = start + (line["elapsed_ms"] or 0) / 1000
    usage = NO_USAGE
    if line["outcome"] == "done" and line.get("usage"):
        usage = Usage.recorded(line["usage"], line["usage_statements"], "")
    url = line["url"].partition("#")[0]
    return Request(url, line["domain"], UNKNOWN_ADDRESS, start, end, line["status"] or 0, usage=usage)


def _values(block: bytes, field: str) -> Iterator[str]:
    for line in block.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() == field:
            yield value.strip()


def _address(text: str) -> str:
    """The address `text`, or `UNKNOWN_ADDRESS` if it is none."""
    try:
        network_of(text)
    except ValueError:
        return UNKNOWN_ADDRESS
    return text


def _seconds(date: str) -> float:
    seconds = seconds_of(date) if date else 0.0
    if seconds is None:
        raise ValueError(f"not a date: {date!r}")
    return seconds
