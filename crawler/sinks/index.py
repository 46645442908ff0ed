"""CDXJ: the sorted index beside each WARC file, by which replay tools (pywb, OutbackCDX) find a URL's record.

A line is the URL's SURT key, a timestamp of 14 digits, and a JSON object with the place of the response or revisit
record. The lines of a file, about 350 bytes each, are collected while it is written (`crawler.sinks.external_sort`); for
a file whose writer died they are read back from its records. Requests and metadata are found through their response.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import msgspec
import surt
from fastwarc.warc import WarcRecord, WarcRecordType

from crawler.logs import log
from crawler.page import Exchange
from crawler.sinks.segment import OPEN_SUFFIX
from crawler.sinks.times import digits
from crawler.sinks.warc_reader import BrokenFraming, read_head, records_in

_SIMPLE_SITE = re.compile(r"https?://(?:www\d*\.)?((?!www)[a-z0-9-]+(?:\.[a-z0-9-]+)+)((?::[0-9]+)?)")
_SIMPLE_PATH = re.compile(r"(?:/[a-z0-9_~-][a-z0-9_.~-]*)*/?")
_OF_SESSIONS = ("sid", "sess", "cfid", "aspx")


class _Fields(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON part of a line, in the order and spelling of pywb's own indexer: numbers are strings."""

    url: str
    mime: str = ""
    status: str = ""
    digest: str = ""
    length: str = ""
    offset: str = ""
    filename: str = ""


class Indexed(NamedTuple):
    """What the index says of a response or revisit record. `seconds` since 1970, `content_type` as sent."""

    url: str
    seconds: float
    status: str
    content_type: str
    digest: str
    is_revisit: bool

    @classmethod
    def of_exchange(cls, exchange: Exchange, digest: str, is_revisit: bool) -> Indexed:
        content_type = (exchange.header(b"content-type") or b"").decode("latin-1")
        return cls(exchange.url, exchange.started_at, str(exchange.status), content_type, digest, is_revisit)

    @classmethod
    def of_record(cls, record: WarcRecord) -> Indexed:
        headers, read = record.headers, read_head(record)
        http = read[0] if read is not None else None
        return cls(
            url=headers.get("WARC-Target-URI") or "",
            seconds=record.record_date.timestamp() if record.record_date else 0.0,
            status=str(http.status or "") if http else "",
            content_type=(http.get(b"content-type") or "") if http else "",
            digest=headers.get("WARC-Payload-Digest") or "",
            is_revisit=record.record_type == WarcRecordType.revisit,
        )

    def line(self, file: str, offset: int, length: int) -> bytes:
        """The line of the record that stands at `offset` in `file`, `length` bytes long, both compressed."""
        fields = _Fields(
            url=self.url,
            mime="warc/revisit" if self.is_revisit else self.content_type.partition(";")[0].strip().lower(),
            status="" if self.is_revisit else self.status,
            digest=self.digest.removeprefix("sha1:"),
            length=str(length),
            offset=str(offset),
            filename=file,
        )
        return b"%b %b %b\n" % (
            surt_key(self.url).encode(),
            digits(self.seconds).encode(),
            msgspec.json.encode(fields),
        )


def read_index(path: Path) -> Iterator[bytes]:
    """The lines of the records in the WARC file at `path`, which may still have its open name. Raises OSError.

    A record that cannot be understood has no line, which is logged; the index of the others stands.
    """
    return _lines(records_in(str(path)), path.name.removesuffix(OPEN_SUFFIX), 0, path.stat().st_size)


def lines_of(records: bytes, name: str, at: int) -> Iterator[bytes]:
    """As `read_index`, of the compressed `records` that stand at the byte `at` of the WARC file `name`."""
    return _lines(records_in(BytesIO(records)), name, at, len(records))


def _lines(records: Iterable[WarcRecord], name: str, at: int, size: int) -> Iterator[bytes]:
    found: Indexed | None = None
    start = 0
    try:
        for record in records:
            # A record's length is known when the next one begins.
            if found is not None:
                yield from _line(found, name, at + start, record.stream_pos - start)
            start = record.stream_pos
            is_shown = record.record_type in (WarcRecordType.response, WarcRecordType.revisit)
            found = _indexed(record, name, at + start) if is_shown else None
    except BrokenFraming as error:
        log(logging.WARNING, "records_not_indexed", file=name, after=at + start, error=error)
        return  # how long the last record is cannot be told either
    if found is not None:
        yield from _line(found, name, at + start, size - start)


def _indexed(record: WarcRecord, name: str, offset: int) -> Indexed | None:
    try:
        return Indexed.of_record(record)
    except Exception as error:  # what a record holds was written by a site
        log(logging.WARNING, "record_not_indexed", file=name, offset=offset, error=error)
        return None


def _line(found: Indexed, name: str, offset: int, length: int) -> Iterator[bytes]:
    try:
        yield found.line(name, offset, length)
    except Exception as error:  # the URL, the type and the date are a site's, too
        log(logging.WARNING, "record_not_indexed", file=name, offset=offset, error=error)


def write_index(warc: Path, lines: Iterable[bytes], fsync: bool) -> Path:
    """Write the index of the file that is, or will be, called `warc`, of sorted `lines`: whole, or not at all. Returns its
    path. Raises OSError."""
    target = index_path(warc)
    scratch = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        with scratch.open("wb") as file:
            file.writelines(lines)
            if fsync:
                file.flush()
                os.fsync(file.fileno())
        scratch.rename(target)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    return target


def index_path(warc: Path) -> Path:
    """Where the index of the WARC file `warc` stands."""
    return warc.with_name(warc.name.removesuffix(OPEN_SUFFIX).partition(".warc")[0] + ".cdxj")


def surt_key(url: str) -> str:
    """The key under which replay tools look for `url`: that of the `surt` library, at a twentieth of its cost for the URLs,
    most of them, that have nothing but a plain host, port and path."""
    slash = url.find("/", 8)
    path = url[slash:].lower()
    site = _site_key(url[:slash]) if _SIMPLE_PATH.fullmatch(path) else None
    if site is None or any(word in path for word in _OF_SESSIONS):
        return str(surt.surt(url))
    return f"{site}){path.rstrip('/') or '/'}"


@lru_cache(maxsize=8192)
def _site_key(site: str) -> str | None:
    """The key of a URL up to its path; None if that is for the library."""
    simple = _SIMPLE_SITE.fullmatch(site)
    return f"{','.join(reversed(simple[1].split('.')))}{simple[2]}" if simple else None
