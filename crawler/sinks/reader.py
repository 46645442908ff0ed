"""Reads WARC files, those of this crawler and others: records, HTTP heads, and rows like those of a crawl.

FastWARC reads the records, and `crawler.http_head` the HTTP heads: FastWARC's own parser stops reading the file at a
head of more than 32,000 bytes. A record that cannot be parsed affects no other record. Only if the framing of the file
is broken does the reading stop. A file may end in the middle of a record, so how much of it is complete is measured
first: FastWARC would take half a record for a short one.

Each response or revisit record becomes a row, except those of robots.txt and tdmrep.json files. A row has what the
response says, what was found in its body, and what the file's warcinfo record and the metadata record of the response
add. What none of them contains is null.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from crawler.http_head import HEAD_END, Head, parse_head
from crawler.logs import log
from crawler.page import FETCHED, Exchange, Extra, Link, Outcome, Page, Rendered, content_coding
from crawler.parse.document import Document, ParsedDocument, ParseLimits, noted_fields, read, robots_tags, usage_of
from crawler.parse.encoding import MediaType
from crawler.parse.html import ExtractPolicy
from crawler.sinks.compression import COMPRESSIONS, Compression, CompressionName
from crawler.sinks.files import OPEN_SUFFIX, finished_path, is_open, open_either
from crawler.sinks.lines import Place, Row, iso_time
from crawler.sinks.warc import KEY_FIELD
from crawler.wording import count_of
from frontier.errors import BadUrl
from frontier.urls import Url, canonicalize, with_key
from politeness import tdmrep
from politeness.tdmrep import NOT_STATED
from politeness.usage import NO_USAGE, Usage

T = TypeVar("T")

_STEP = 16_384  # bytes per read; nearly all heads are shorter
_LONGEST_HEAD = 1 << 20
"""Bytes. This crawler accepts 64 KiB (`max_header_bytes`), but others accept more."""

MAX_DECODED = 32 << 20
"""Bytes of a decoded body that are read."""

_LARGEST_BODY = MAX_DECODED + 1
"""Bytes that are read of a body, or of a block with fields. With the last one, the parser finds the body too long."""

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?\r?\n")
"""RFC 9112 7.1."""


class BrokenFraming(Exception):
    """Raised when the next record of a file cannot be found because compression or framing is broken, or when a finished
    file ends in the middle of a record."""


_CHUNK = 1 << 16  # bytes per call of the decompressor; it copies those after the end of a member, so not too many

Extent = tuple[int, bool]
"""The number of bytes of complete records at the start of a file, and whether they are worth keeping."""

_MAGIC: dict[bytes, CompressionName] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_PLAIN_HEAD = re.compile(rb"[\r\n]*WARC/(?:0\.[0-9]*|1\.[01])[ \t]*\r?\n(?:[^\r\n][^\n]*+\n)*+\r\n")
"""The heads that FastWARC reads: at another one, it would stop and not say where."""
_LONGEST_FIELDS = 1 << 15  # bytes of such a head

_LENGTH = re.compile(rb"^content-length:[ \t]*([0-9]{1,15})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)


class Part(io.FileIO):
    """The first `size` bytes of a file, for readers that read to the end. `total`: the bytes that should be complete
    records. `problem`: what is wrong with the record after them, if that is known."""

    def __init__(self, fd: int, size: int, total: int, problem: str = "") -> None:
        super().__init__(fd)
        self.size = size
        self._total = total
        self._problem = problem

    def check_end(self) -> None:
        """Raises BrokenFraming if the file ends in the middle of a record, or is damaged there."""
        if self.size == 0 and self._total and (kind := _other_kind(self.fileno())):
            raise BrokenFraming(kind)
        if self._problem:
            raise BrokenFraming(
                f"{self._problem} at byte {self.size:,} of {self._total:,}, so it is not read from there on"
            )
        if self.size < self._total:
            raise BrokenFraming(f"cut off or damaged: no complete record from byte {self.size:,} of {self._total:,} on")

    def read(self, size: int | None = -1) -> bytes:
        """Read at most `size` bytes, or all that are left."""
        left = max(0, self.size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left)) or b""


def complete_part(path: Path, one_each: bool = False) -> Part:
    """The complete records of the WARC file at `path`. `one_each`: several in a member are a problem. Raises OSError."""
    fd = open_either(path)
    try:
        magic = os.pread(fd, 4, 0)
        name = next((name for start, name in _MAGIC.items() if magic.startswith(start)), None)
        size, problem = _framed_records(fd, COMPRESSIONS[name], one_each) if name else (_whole_plain_records(fd), "")
        return Part(fd, size, size if is_open(path) else os.fstat(fd).st_size, problem)
    except BaseException:
        os.close(fd)
        raise


_OTHER_KINDS = {
    b"PK\x03\x04": "a ZIP or WACZ file: unpack it, and name the WARC files in it (in the folder archive of a WACZ file)",
    b"\x04\x22\x4d\x18": "compressed with LZ4: decompress it first",
    b"\x5d\x2a\x4d\x18": "compressed with zstd and a dictionary: decompress it first",
    b"BZh": "compressed with bzip2: decompress it first",
    b"\xfd7zXZ": "compressed with xz: decompress it first",
    b"filedesc:": "an ARC file: convert it to WARC first, for example with `warcio recompress`",
}


def _other_kind(fd: int) -> str:
    """What the file behind `fd` is instead of a WARC file, by its first bytes. Empty if it may be one. Raises OSError."""
    start = os.pread(fd, _CHUNK, 0)
    if name := next((name for magic, name in _MAGIC.items() if start.startswith(magic)), None):
        with contextlib.suppress(COMPRESSIONS[name].error):
            start = COMPRESSIONS[name].reader().decompress(start) or b"WARC/"
    other = next((kind for magic, kind in _OTHER_KINDS.items() if start.startswith(magic)), "not a WARC file")
    return "" if start.lstrip(b"\r\n").startswith(b"WARC/") else other


def compression_of(path: Path) -> Compression | None:
    """The compression of the WARC file at `path`, open or not. None if it is not a compressed WARC file."""
    name = finished_path(path).name
    return next((one for one in COMPRESSIONS.values() if name.endswith(one.suffix)), None)


def whole_records(fd: int, compression: Compression) -> Extent:
    """The extent of the complete records behind `fd`. With only the warcinfo record, it is not worth keeping."""
    size = records = 0
    while length := _record_length(fd, size, compression):
        size += length
        records += 1
    return size, records > 1


class _Member:
    """The records in a gzip member or zstd frame, by their lengths. `records`: how many have begun."""

    def __init__(self) -> None:
        self.records = 0
        self._head = b""  # of the next record, as far as it is known
        self._left = 0  # bytes of the current record

    def add(self, data: bytes) -> None:
        at = 0
        while True:
            step = min(self._left, len(data) - at)
            self._left -= step
            at += step
            known = len(self._head)
            if at == len(data) or known >= _LONGEST_HEAD:
                return
            if known:
                self._head += data[at : at + _LONGEST_HEAD]
            head = _PLAIN_HEAD.match(self._head) if known else _PLAIN_HEAD.match(data, at)
            length = _content_length(head[0]) if head else None
            if head is None or length is None:
                self._head = self._head or data[at : at + _LONGEST_HEAD]
                return
            at = head.end() if not known else at + head.end() - known
            self._head, self._left = b"", length
            self.records += 1

    @property
    def is_whole(self) -> bool:
        """Whether the last record has ended, with nothing but line ends after it."""
        return not self._left and not self._head.strip(b"\r\n")


def _framed_records(fd: int, compression: Compression, one_each: bool) -> tuple[int, str]:
    """The bytes of the complete records of the file behind `fd`, up to the first member or frame with which no record
    ends, and what is wrong with that: with a length that is too large, a reader would take the next record, which may be
    of another site, for a part of the body. Raises OSError."""
    size = 0
    while True:
        member = _Member()
        length = _record_length(fd, size, compression, member.add)
        if length and not member.is_whole:
            return size, "a record cannot be read, or has another length than its Content-Length says,"
        if one_each and member.records > 1:
            return size, "several records were compressed as one,"
        if not length:
            return size, ""
        size += length


def _record_length(
    fd: int, start: int, compression: Compression, on_data: Callable[[bytes], None] = lambda data: None
) -> int:
    """The length of the compressed record at `start`, 0 for an incomplete one. `on_data` is called with its content."""
    reader = compression.reader()
    at = start
    while not reader.eof:
        chunk = os.pread(fd, _CHUNK, at)  # not mmap: a running replica may make the file shorter
        if not chunk:
            return 0
        try:
            on_data(reader.decompress(chunk))
        except compression.error:
            return 0
        at += len(chunk)
    return at - len(reader.unused_data) - start


def _whole_plain_records(fd: int) -> int:
    """The bytes of the complete records of the file behind `fd`, which is not compressed. Raises OSError."""
    total, size = os.fstat(fd).st_size, 0
    while size < total and (length := _plain_length(fd, size)) and size + length <= total:
        size += length
        line_ends = os.pread(fd, 4, size)
        size += len(line_ends) - len(line_ends.lstrip(b"\r\n"))
    return size


def _plain_length(fd: int, start: int) -> int:
    """The length of the record at `start`, without the line ends after it, if it is complete; 0 if there is none."""
    head = b""
    while len(head) < _LONGEST_HEAD and (step := os.pread(fd, _CHUNK, start + len(head))):
        head += step
        if end := _PLAIN_HEAD.match(head):
            length = _content_length(end[0])
            return end.end() + length if length is not None else 0
    return 0


def _content_length(head: bytes) -> int | None:
    """The length in the `head` of a record. None if there is none, if several differ, or if the head is too long."""
    if len(head.lstrip(b"\r\n")) > _LONGEST_FIELDS:
        return None
    lengths = set(map(int, _LENGTH.findall(head)))
    return lengths.pop() if len(lengths) == 1 else None


def records_in(source: str | IO[bytes], types: WarcRecordType = WarcRecordType.any_type) -> Iterator[WarcRecord]:
    """The records of these `types` in the file or stream `source`. Raises BrokenFraming and OSError."""
    try:
        yield from ArchiveIterator(source, record_types=types, parse_http=False)
    except OSError as error:
        if error.errno is not None:
            raise
        raise BrokenFraming(str(error)) from error


def placed(
    records: Iterable[WarcRecord], size: int, read: Callable[[WarcRecord], T | None]
) -> Iterator[tuple[T, int, int]]:
    """The results of `read` for all `records` of a source of `size` bytes, each with the record's offset and length in
    compressed bytes. Records for which it returns None are left out. Raises BrokenFraming and OSError."""
    result, start = None, 0
    for record in records:
        # The length of a record is known only when the next one begins.
        if result is not None:
            yield result, start, record.stream_pos - start
        start, result = record.stream_pos, read(record)
    if result is not None:
        yield result, start, size - start


def target_of(record: WarcRecord, field: str = "WARC-Target-URI") -> str:
    """The URI in this field of `record`, "" if there is none. Wget writes it in angle brackets, as WARC 1.0 defines it."""
    return (record.headers.get(field) or "").strip().removeprefix("<").removesuffix(">")


def read_head(record: WarcRecord) -> tuple[Head, bytes] | None:
    """The HTTP head of `record`, and the bytes of the body read with it. None if the record is not an HTTP message.
    Interim responses before the final one (RFC 9110 15.2), which some tools store with it, are left out."""
    if not (record.headers.get("Content-Type") or "").lower().startswith("application/http"):
        return None
    block, searched, interim = b"", 0, None
    while True:
        if interim is not None and not b"HTTP/".startswith(block[:5]):
            return interim, block
        if end := HEAD_END.search(block, searched):
            head, block, searched = parse_head(block[: end.end()]), block[end.end() :], 0
            if head.status not in _INTERIM:
                return head, block
            interim = head
            continue
        step = record.reader.read(_STEP)
        if not step or len(block) >= _LONGEST_HEAD:
            return (interim if interim and not block else parse_head(block)), b""
        searched, block = max(0, len(block) - 2), block + step


def dechunked(body: bytes) -> tuple[bytes, bool]:
    """`body` without the chunked coding (RFC 9112 7.1), which other crawlers may store, and whether it is complete. A body
    that was stored without the coding that its head names is returned as it is."""
    stream = BytesIO(body)
    parts: list[bytes] = []
    while True:
        line = stream.readline()
        size = _CHUNK_SIZE.fullmatch(line)
        length = int(size[1], 16) if size else -1
        if length == 0 and (parts or line.endswith(b"\r\n") or stream.read(3) in (b"", b"\n", b"\r\n")):
            return b"".join(parts), True
        chunk = stream.read(min(length, len(body))) if length > 0 else b""
        is_cut = len(chunk) < length
        if length <= 0 or (not is_cut and stream.readline().strip()) or (is_cut and not line.endswith(b"\r\n")):
            return (b"".join(parts), False) if parts else (body, True)
        parts.append(chunk)
        if is_cut:
            return b"".join(parts), False


_INTERIM = frozenset({*range(100, 200)} - {HTTPStatus.SWITCHING_PROTOCOLS})
_LIMITS = ParseLimits(ExtractPolicy(obey_nofollow=False), MAX_DECODED)
_NUMBER = re.compile(r"[0-9]{1,9}")
_COUNT = re.compile(r" ([0-9]{1,9})(?=,|$)")
_SECONDS = re.compile(r"[0-9]{1,6}(?:\.[0-9]+)?")
_OF_BODY = ("charset", "title", "lang", "canonical", "size", "decoded_size", "truncated", "noarchive", "noindex")
"""Columns that only a record with a body can fill."""


class _NotHttp(Exception):
    """Raised when the response record of a page contains no HTTP message."""


class NoRow(Exception):
    """Raised for a record that is valid, but has no row: a revisit record without an HTTP head (WARC 1.1 section 6.7), a
    resource record (6.4), as warcit makes them, a conversion or continuation record, or a response to something else than
    HTTP. `kind`: what it is."""

    def __init__(self, reason: str, kind: str) -> None:
        super().__init__(reason)
        self.kind = kind


class _Response(NamedTuple):
    """The row of a response or revisit record. `columns`: see `Row`. `has_body`: it is not a revisit record."""

    record_id: str
    row: Row
    columns: Mapping[str, Any]
    has_body: bool
    page_id: str

    def with_extra(self, extra: Extra) -> _Response:
        """This response with `extra`, which the handler of its page has fetched."""
        page = msgspec.structs.replace(self.row.page, extras=(*self.row.page.extras, extra))
        return self._replace(row=self.row._replace(page=page))


class _Fetched(NamedTuple):
    """What the handler of the page with the ID `page_id` has fetched."""

    page_id: str
    extra: Extra


class _Metadata(NamedTuple):
    """The content of a metadata record. `of`: the ID of the response or revisit record."""

    of: str
    fields: Mapping[str, str]
    outlinks: tuple[Link, ...]
    usage: Usage


class _Dom(NamedTuple):
    """What a page showed in a browser. `of`: the ID of the response record."""

    of: str
    html: bytes


class _Writer(NamedTuple):
    """The replica that wrote the records after a warcinfo record. None in files of other crawlers."""

    replica: str | None


def read_rows(path: Path, on_unread: Callable[[str, Exception], None] | None = None) -> Iterator[Row]:
    """The rows of the complete records of the WARC file at `path`. `on_unread` is called with the URL of a response that
    has no row, and why. Raises OSError, and BrokenFraming at the end of a finished file that has an incomplete record.
    """
    name = path.name.removesuffix(OPEN_SUFFIX)
    writer = _Writer(None)
    response: _Response | None = None
    metadata: _Metadata | None = None
    dom: _Dom | None = None
    with complete_part(path) as part:
        for found, start, length in placed(records_in(part), part.size, partial(_read, on_unread or report)):
            if isinstance(found, _Metadata):
                if response is not None and found.of == response.record_id:
                    metadata = found
                continue
            if isinstance(found, _Dom):
                if response is not None and found.of == response.record_id:
                    dom = found
                continue
            if isinstance(found, _Fetched):
                if response is not None and found.page_id == response.page_id:
                    response = response.with_extra(found.extra)
                continue
            # The metadata record of a response may come after other records, but before the next response.
            if response is not None:
                yield _completed(response, metadata, writer, dom)
            response, metadata, dom = None, None, None
            if isinstance(found, _Writer):
                writer = found
            elif isinstance(found, _Response):
                response = found._replace(row=found.row._replace(place=Place(name, start, length)))
        if response is not None:
            yield _completed(response, metadata, writer, dom)
        part.check_end()


class Unread(msgspec.Struct):
    """Records of a file that could not be read: how many, and where the first one is, and what is wrong with it."""

    count: int = 0
    first: str = ""

    def add(self, place: str, error: Exception) -> None:
        self.count += 1
        self.first = self.first or f"{place}: {error}"

    def __str__(self) -> str:
        return f"{count_of(self.count, 'record')} could not be read, the first {self.first}"


def has_body(row: Row) -> bool:
    """Whether the record of `row` has the body of the page. A revisit record has none."""
    return row.columns.get("size", 0) is not None


def report(url: str, error: Exception) -> None:
    log(logging.WARNING, "record_not_exported", url=url, error=error)


def _completed(response: _Response, metadata: _Metadata | None, writer: _Writer, dom: _Dom | None) -> Row:
    row, fields = response.row, metadata.fields if metadata is not None else {}
    if dom is not None:
        row = row._replace(page=_shown(row.page, dom.html))
    columns: dict[str, Any] = {
        **{name: fields.get(name) or None for name in ("outcome", "reason", "detail", "via")},
        **{name: _number(fields.get(name)) for name in ("depth", "tries")},
        "elapsed_ms": _number(fields.get("fetchTimeMs")),
        "rendered": fields.get("rendered") or None,
        "rendered_why": None,
        "render_ms": _number(fields.get("renderTimeMs")),
        "resources": _number(fields.get("resources")),
        "refused": _sum(fields.get("refused", "")) if fields.get("rendered") else None,
        "visit": fields.get("visit") or None,
        "previous_visit": _date(fields.get("previous-visit")),
        **({"repaired": fields.get("repaired", "").split()} if metadata is not None else {}),
        "licenses": fields.get("licenses", "").split() if metadata is not None else None,
        "settled_at": None,
        "replica": writer.replica,
        **response.columns,
    }
    if not response.has_body:
        columns |= dict.fromkeys(_OF_BODY)
        columns["charset"] = fields.get("charset-detected")
        if metadata is None:
            columns |= dict.fromkeys(("links", "link_count", "cut", "repaired"))
        else:
            columns["cut"] = fields.get("cut", "").split()
            row = row._replace(page=msgspec.structs.replace(row.page, links=metadata.outlinks))
    if metadata is not None and metadata.usage is not NO_USAGE:
        # What robots.txt said is only there.
        usage = metadata.usage.with_also(row.page.usage)
        row = row._replace(page=msgspec.structs.replace(row.page, usage=usage))
    return row._replace(columns=columns)


def _read(
    on_unread: Callable[[str, Exception], None], record: WarcRecord
) -> _Response | _Fetched | _Metadata | _Dom | _Writer | None:
    try:
        match record.record_type:
            case WarcRecordType.response | WarcRecordType.revisit:
                return _response(record)
            case WarcRecordType.metadata:
                return _metadata(record)
            case WarcRecordType.resource if target_of(record).startswith("urn:dom:"):
                return _Dom(record.headers.get("WARC-Refers-To") or "", record.reader.read(MAX_DECODED))
            case WarcRecordType.resource if _is_of_web(target_of(record)):
                raise NoRow("without an HTTP head", "resource record")
            case WarcRecordType.resource if target_of(record).lower().startswith(("file:", "ftp:", "ftps:")):
                raise NoRow("neither http nor https", "resource record")
            case WarcRecordType.conversion:  # as in WET files
                raise NoRow("without an HTTP head", "conversion record")
            case WarcRecordType.continuation:
                raise NoRow("segmented, so that only the first part is read", "continuation record")
            case WarcRecordType.warcinfo:
                return _Writer(dict(_fields(record)).get("replica"))
            case _:
                return None
    except Exception as error:  # records contain what sites sent
        on_unread(target_of(record), error)
        return None


def _is_of_web(target: str) -> bool:
    return target.lower().startswith(("http:", "https:"))


def _fields(record: WarcRecord) -> Iterator[tuple[str, str]]:
    block = record.reader.read(_LARGEST_BODY)
    if len(block) == _LARGEST_BODY:
        raise ValueError(f"the block has more than {MAX_DECODED:,} bytes")
    for line in block.decode(errors="replace").split("\n"):
        name, _, value = line.partition(":")
        yield name, value.strip()


def _shown(page: Page, html: bytes) -> Page:
    """`page` as it showed `html` in a browser. What the server has sent decides on its use, too."""
    exchange = page.exchange
    assert exchange is not None
    document = read(Document(html, page.url, "", "text/html; charset=utf-8"), _LIMITS)
    dom = msgspec.structs.replace(exchange, body=html, headers=((b"Content-Type", b"text/html; charset=utf-8"),))
    return msgspec.structs.replace(
        document.describe(page, page.content_type, exchange.truncated),
        decoded_size=page.decoded_size,
        noarchive=page.noarchive or document.found.noarchive,
        noindex=page.noindex or document.found.noindex,
        rendered=Rendered("done", 0.0, dom),
    )


def _metadata(record: WarcRecord) -> _Metadata:
    fields: dict[str, str] = {}
    links: list[Link] = []
    texts: list[str] = []
    for name, value in _fields(record):
        if name == "outlink":
            links += [Link(url) for url in value.split(None, 1)[:1]]
        elif name == "usage-statement":
            texts.append(value)
        else:
            fields[name] = value
    usage = Usage.recorded(fields.get("usage", ""), texts, fields.get("tdm-policy", "")) if texts else NO_USAGE
    return _Metadata(record.headers.get("WARC-Concurrent-To") or "", fields, tuple(links), usage)


def _response(record: WarcRecord) -> _Response | _Fetched | None:
    """The row of `record`, what a handler has fetched, or None. Raises BadUrl, NoRow and _NotHttp."""
    headers, target = record.headers, target_of(record)
    if not _is_of_web(target):  # such as the dns: records of Heritrix
        raise NoRow("neither http nor https", f"{(headers.get('WARC-Type') or '').lower()} record")
    kind, page_id = headers.get("WARC-Resource-Type") or "document", headers.get("WARC-Page-ID") or ""
    if kind != "document" and not (kind == FETCHED and page_id):
        return None  # it belongs to a page
    url = with_key(canonicalize(target, None), headers.get(KEY_FIELD) or "")
    if urlsplit(url.href).path in ("/robots.txt", tdmrep.PATH):
        return None
    read_so_far = read_head(record)
    if read_so_far is None:
        if record.record_type == WarcRecordType.revisit:
            raise NoRow("without an HTTP head", "revisit record")
        raise _NotHttp(f"not an HTTP message but {headers.get('Content-Type')!r}")
    http, start_of_body = read_so_far
    has_body = record.record_type == WarcRecordType.response
    stored = start_of_body + record.reader.read(_LARGEST_BODY)
    size = len(stored)
    while rest := record.reader.read(_STEP):
        size += len(rest)
    is_cut = size > len(stored)
    body, is_complete = _body(http, stored)
    truncated = headers.get("WARC-Truncated") or (None if is_complete or is_cut else "disconnect")
    if headers.get("WARC-Segment-Number"):  # the rest is in other records, which are not read
        truncated = truncated or "unspecified"
    started_at = seconds_of(headers.get("WARC-Date"))
    exchange = Exchange(
        url=url.href,
        status=http.status,
        reason="",
        headers=http.fields,
        request_head=b"",
        response_head=b"",
        body=body,
        address=headers.get("WARC-IP-Address") or "",
        started_at=started_at or 0.0,
        elapsed=_seconds(headers.get("X-Crawler-Elapsed")) or 0.0,
        first_byte=0.0,
        truncated=truncated if has_body else None,
    )
    if kind == FETCHED:
        return _Fetched(page_id, Extra(exchange, kind)) if has_body and not is_cut else None
    page = Page(url.href, url.domain, 0, Outcome.DONE, "", exchange.started_at, exchange=exchange)
    try:
        page = _parsed(page, exchange, http)
    except Exception as error:  # pages contain what sites sent
        report(url.href, error)
        page = msgspec.structs.replace(page, cut=("defect",))
    columns: dict[str, Any] = {}
    if is_cut:
        page = msgspec.structs.replace(page, cut=tuple(dict.fromkeys((*page.cut, "decoded"))))
        columns |= {"size": size, "decoded_size": None}
    if _seconds(headers.get("X-Crawler-Elapsed")) is not None:
        columns["elapsed_ms"] = round(exchange.elapsed * 1000)
    if not http.status:
        columns["status"] = None
    if started_at is None:
        columns["fetched_at"] = None
    digest = headers.get("WARC-Payload-Digest") or ""
    if not digest and http.status != HTTPStatus.NOT_MODIFIED:
        columns["digest"] = None
    row = Row(page, digest, refers=None if has_body else _referred(record))
    return _Response(headers.get("WARC-Record-ID") or "", row, columns, has_body, page_id)


def _referred(record: WarcRecord) -> tuple[str, float] | None:
    """The URL and time of the response to which a revisit record refers, None if it does not say."""
    url, date = target_of(record, "WARC-Refers-To-Target-URI"), seconds_of(record.headers.get("WARC-Refers-To-Date"))
    with contextlib.suppress(BadUrl):
        return (canonicalize(url, None).href, date) if url and date is not None else None
    return None


def _body(http: Head, stored: bytes) -> tuple[bytes, bool]:
    """The `stored` body without its transfer coding, which other crawlers may store, and whether it is complete."""
    if http.get_list(b"transfer-encoding").strip().lower() != "chunked":
        return stored, True
    return dechunked(stored)


def _parsed(page: Page, exchange: Exchange, http: Head) -> Page:
    content_type = http.get_list(b"content-type")
    document = _document(http, exchange.body, page.url, _LIMITS)
    page = document.describe(page, content_type, exchange.truncated)
    return msgspec.structs.replace(page, usage=_usage(http, document))


def usage_in(http: Head, stored: bytes, url: str, user_agent: str) -> Usage:
    """What a response says about the use of its page. `user_agent`: product token of the crawler. Never raises."""
    policy = msgspec.structs.replace(_LIMITS.extract, user_agent=user_agent or _LIMITS.extract.user_agent)
    return _usage(http, _document(http, _body(http, stored)[0], url, ParseLimits(policy, MAX_DECODED)))


def _document(http: Head, body: bytes, url: str, limits: ParseLimits) -> ParsedDocument:
    tags = robots_tags(noted_fields(http.fields))
    content_type = http.get_list(b"content-type")
    coding = content_coding(http.get_list(b"content-encoding"), content_type, body)
    return read(Document(body, url, coding, content_type, tags), limits)


def requisites_at(path: Path, offset: int, url: str, policy: ExtractPolicy) -> tuple[Url, ...]:
    """What the page `url` embeds, whose record is at this place. Raises BrokenFraming and OSError."""
    with path.open("rb") as file:
        file.seek(offset)
        record = next(records_in(file), None)
        if record is None or (read_so_far := read_head(record)) is None:
            return ()
        http, start_of_body = read_so_far
        body, _ = _body(http, start_of_body + record.reader.read(_LARGEST_BODY))
        return _document(http, body, url, ParseLimits(policy, MAX_DECODED)).found.requisites


def _usage(http: Head, document: ParsedDocument) -> Usage:
    is_image = MediaType.parse(http.get_list(b"content-type")).essence.startswith("image/")
    return usage_of(NOT_STATED, noted_fields(http.fields), document.found, is_image)


def _number(text: str | None) -> int | None:
    return int(text) if text and _NUMBER.fullmatch(text) else None


def _sum(counts: str) -> int:
    """The sum of `counts`, such as `robots 2, type image 5`."""
    return sum(map(int, _COUNT.findall(counts)))


def _date(text: str | None) -> str | None:
    """The date `text` as in rows, None if it is none, or beyond the years 1 to 9999 in UTC."""
    seconds = seconds_of(text)
    return iso_time(seconds) if seconds is not None else None


def seconds_of(text: str | None) -> float | None:
    """The date `text` in seconds since 1970, None as in `_date`. It may have reduced precision (WARC 1.1 5.4), and others
    leave out the zone, which is UTC, or write 14 digits, as in an index."""
    text = (text or "").strip()
    if len(text) in (4, 7):
        text += "-01-01"[len(text) - 4 :]
    elif len(text) == 14 and text.isdecimal():
        text = f"{text[:8]}T{text[8:]}"
    try:
        date = datetime.fromisoformat(text)
        return date.replace(tzinfo=date.tzinfo or UTC).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def _seconds(text: str | None) -> float | None:
    return float(text) if text and _SECONDS.fullmatch(text) else None
