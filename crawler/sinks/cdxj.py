"""The CDXJ index of a WARC file: a sorted file with which replay tools (pywb, OutbackCDX) find a URL's record.

A line has the URL's SURT key, a timestamp of 14 digits, and a JSON object with the place of the response or revisit
record. The key of another request than GET has its method and body as parameters, because replay tools look for it so.
Answers of 304 have no line: replay tools would show a blank page for them, and without a line show the response that they
confirm. The lines, about 350 bytes each, are collected while the file is written. If the writer died, they are made from
the records in the file. Requests and metadata are found through their response.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache, partial
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_plus, urlencode

import msgspec
from fastwarc.warc import WarcRecord, WarcRecordType

from crawler.http_head import parse_head
from crawler.logs import log
from crawler.page import Exchange
from crawler.sinks.files import OPEN_SUFFIX, whole_file
from crawler.sinks.reader import BrokenFraming, placed, read_head, records_in, seconds_of, target_of

_SIMPLE_SITE = re.compile(r"https?://(?:www\d*\.)?((?!www)[a-z0-9-]+(?:\.[a-z0-9-]+)+)((?::[0-9]+)?)")
_SIMPLE_PATH = re.compile(r"(?:/[a-z0-9_~!$&'()*+,;=:@-][a-z0-9_~!$&'()*+,;=:@.-]*)*/?")
_SIMPLE_QUERY = re.compile(r"[a-z0-9_~!$&'()*+,;=:@./?-]*")
MAX_REQUEST_BODY = 4_096
"""Characters of a request body in a key. Replay tools have the same limit."""

LONGEST_REQUEST = 1 << 20
"""Bytes of a request that are read."""

_SESSION_WORDS = ("sid", "sess", "cfid", "aspx")


class _Fields(msgspec.Struct, omit_defaults=True):
    """The JSON object of a line, without what is empty."""

    url: str
    mime: str = ""
    status: str = ""
    digest: str = ""
    request_body: str = msgspec.field(default="", name="requestBody")
    method: str = ""
    length: str = ""
    offset: str = ""
    filename: str = ""


class Indexed(NamedTuple):
    """What the index contains of a response or revisit record. `seconds`: since 1970; `content_type`: as sent."""

    url: str
    seconds: float
    status: str
    content_type: str
    digest: str
    is_revisit: bool
    method: str = "GET"
    request_body: str = ""  # as parameters

    @property
    def can_be_shown(self) -> bool:
        """Whether a replay tool can show the record."""
        return self.status != "304"

    @classmethod
    def of_exchange(cls, exchange: Exchange, digest: str, is_revisit: bool) -> Indexed:
        content_type = (exchange.header(b"content-type") or b"").decode("latin-1")
        indexed = cls(
            exchange.url.partition("#")[0], exchange.started_at, str(exchange.status), content_type, digest, is_revisit
        )
        return indexed.requested(exchange.request_head, exchange.request_body)

    @classmethod
    def of_record(cls, record: WarcRecord) -> Indexed:
        headers, read = record.headers, read_head(record)
        http = read[0] if read is not None else None
        return cls(
            url=target_of(record),
            seconds=seconds_of(headers.get("WARC-Date")) or 0.0,
            status=str(http.status or "") if http else "",
            content_type=(http.get(b"content-type") or "") if http else "",
            digest=headers.get("WARC-Payload-Digest") or "",
            is_revisit=record.record_type == WarcRecordType.revisit,
        )

    def requested(self, head: bytes, body: bytes) -> Indexed:
        """The same as the response to the request with this `head` and `body`."""
        if not head or head.startswith(b"GET "):
            return self
        method = head.partition(b" ")[0].decode("latin-1")
        media = parse_head(head).get(b"content-type") or ""
        return self._replace(method=method, request_body=_as_parameters(media.partition(";")[0].strip().lower(), body))

    def line(self, file: str, offset: int, length: int) -> bytes:
        """The line of the record at `offset` of `file`, in compressed bytes. As in pywb's, numbers are strings."""
        fields = _Fields(
            self.url,
            "warc/revisit" if self.is_revisit else self.content_type.partition(";")[0].strip().lower(),
            "" if self.is_revisit else self.status,
            self.digest.removeprefix("sha1:"),
            self.request_body,
            "" if self.method == "GET" else self.method,
            str(length),
            str(offset),
            file,
        )
        given = msgspec.json.encode(fields).decode()
        key = self.url
        if self.method != "GET":
            mark = "&" if "?" in key else "?"
            key += f"{mark}__wb_method={self.method}" + (f"&{self.request_body}" if self.request_body else "")
        return f"{surt_key(key)} {digits(self.seconds)} {given}\n".encode()


def _as_parameters(media: str, body: bytes) -> str:
    """The `body` of a request in the key of replay tools (IIPC, "CDX for non-GET requests")."""
    text = ""
    with contextlib.suppress(ValueError):  # other content than its type says
        if media == "application/x-www-form-urlencoded":
            text = unquote_plus(body.decode())
        elif media in ("application/json", "text/plain"):
            fields: dict[str, str] = {}
            _add_members(fields, "", json.loads(body))
            text = urlencode(fields)
    if not text and body and media != "application/json":
        text = f"__wb_post_data={b64encode(body).decode()}"
    return text[:MAX_REQUEST_BODY]


def _add_members(fields: dict[str, str], name: str, value: object) -> None:
    """Add the scalars in the JSON `value` to `fields` by their names. A name that comes again gets a number."""
    if isinstance(value, dict):
        for key, member in value.items():
            _add_members(fields, key, member)
    elif isinstance(value, list):
        for member in value:
            _add_members(fields, name, member)
    elif name:
        number = next(n for n in count(1) if (name if n == 1 else f"{name}.{n}_") not in fields)
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JavaScript has one type of numbers
        words = value if isinstance(value, str) else json.dumps(value)
        fields[name if number == 1 else f"{name}.{number}_"] = words


def digits(seconds: float) -> str:
    """`seconds` since 1970 as 14 digits, as in indexes and file names."""
    return _digits(round(seconds * 1_000_000) // 1_000_000)


@lru_cache(maxsize=64)
def _digits(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).strftime("%Y%m%d%H%M%S")


def read_index(path: Path, name: str = "") -> Iterator[bytes]:
    """The lines of the records in the WARC file at `path`, which may still have its open name. `name`: that of the file in
    the lines, if it has another one. Raises OSError.

    A record that cannot be understood gets no line, which is logged.
    """
    return _lines(records_in(str(path)), name or path.name.removesuffix(OPEN_SUFFIX), 0, path.stat().st_size)


def lines_of(records: bytes, name: str, at: int) -> Iterator[bytes]:
    """Like `read_index`, for the compressed `records` at the offset `at` of the WARC file `name`."""
    return _lines(records_in(BytesIO(records)), name, at, len(records))


def _lines(records: Iterable[WarcRecord], name: str, at: int, size: int) -> Iterator[bytes]:
    requests: dict[str, tuple[bytes, bytes]] = {}  # head and body of the last one, by its response

    def read(record: WarcRecord) -> Callable[[int, int], bytes] | None:
        if record.record_type == WarcRecordType.request:
            head, body = record.reader.read(LONGEST_REQUEST).partition(b"\r\n\r\n")[::2]
            requests.clear()
            requests[record.headers.get("WARC-Concurrent-To") or ""] = head, body
        if record.record_type not in (WarcRecordType.response, WarcRecordType.revisit):
            return None
        try:
            indexed = Indexed.of_record(record)
            if record.record_id in requests:
                indexed = indexed.requested(*requests[record.record_id])
            return partial(indexed.line, name) if indexed.can_be_shown else None
        except Exception as error:  # records contain what sites sent
            log(logging.WARNING, "record_not_indexed", file=name, offset=at + record.stream_pos, error=error)
            return None

    try:
        for line, start, length in placed(records, size, read):
            try:
                yield line(at + start, length)
            except Exception as error:  # so do the URL, the type and the date
                log(logging.WARNING, "record_not_indexed", file=name, offset=at + start, error=error)
    except BrokenFraming as error:
        log(logging.WARNING, "records_not_indexed", file=name, error=error)


def write_index(warc: Path, lines: Iterable[bytes], fsync: bool) -> Path:
    """Write the sorted `lines` as the index of the WARC file `warc`, and return its path. Raises OSError."""
    target = index_path(warc)
    with whole_file(target) as scratch, scratch.open("wb") as file:
        file.writelines(lines)
        if fsync:
            file.flush()
            os.fsync(file.fileno())
    return target


def index_path(warc: Path) -> Path:
    return warc.with_name(warc.name.removesuffix(OPEN_SUFFIX).partition(".warc")[0] + ".cdxj")


def surt_key(url: str) -> str:
    """The key under which replay tools look for `url`. The `surt` library makes it, except for plain URLs, which are most
    of them and take a twentieth of the time (docs/explanation/speed.md)."""
    slash = url.find("/", 8)
    path, mark, query = (rest := url[slash:].lower()).partition("?")
    site = _reversed_site(url[:slash])
    is_plain = site and _SIMPLE_PATH.fullmatch(path) and _SIMPLE_QUERY.fullmatch(query)
    if not is_plain or any(word in rest for word in _SESSION_WORDS):
        import surt  # noqa: PLC0415 - it takes 50 ms, and few crawls need it before their first page

        return str(surt.surt(url))
    if query:
        query = mark + "&".join(map("=".join, sorted(pair.split("=", 1) for pair in query.split("&"))))
    return f"{site}){path.rstrip('/') or '/'}{query}"


@lru_cache(maxsize=1024)
def _reversed_site(site: str) -> str:
    """The beginning of the keys of a plain `site`; empty for another one."""
    plain = _SIMPLE_SITE.fullmatch(site)
    return f"{','.join(reversed(plain[1].split('.')))}{plain[2]}" if plain else ""
