"""WARC 1.1 records (ISO 28500:2017): one HTTP exchange becomes a request and a response record.

The records are formatted here and compressed by ISA-L. CPU per page of 37 KB, request and response records with their
digests, and their size relative to the pages, as `tests/sinks/bench_warc.py` measures it:

    here, ISA-L level 2      0.21 ms  0.30      FastWARC, level 1      0.19 ms  0.33
    digest of body given     0.18 ms  0.30      FastWARC, level 3      0.35 ms  0.24
    here, ISA-L level 0      0.19 ms  0.32      warcio                 1.83 ms  0.25

FastWARC costs no more, but holds the interpreter's lock all the while, so the event loop would stand still even with a
thread; hashlib and ISA-L release it for three quarters of the time. zlib's compression alone takes 0.32 to 0.84 ms.
FastWARC and warcio read the files back in the tests.

Rules for editors:

- The head is stored as received, with one exception. The body is stored without its transfer coding and may be cut;
  framing fields that are untrue of the stored body would make readers misread it. Such a field is kept under a name
  with the prefix `X-Crawler-`, as Common Crawl does, and the stored message then ends where the record ends.
- A record is one gzip member, or one zstd frame. Recovery stands on it.
- A response has the digest of its payload; no record has one of its block, which for a response is the same bytes and the
  head once more: 90 us for 43 KB, a twentieth of the time of a page, where the processor has no instructions for SHA-1, and
  7 us for a request. The checksum of the gzip member or zstd frame covers the whole record.
"""

from __future__ import annotations

import hashlib
import os
import re
from base64 import b32encode
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable
from functools import lru_cache
from http import HTTPStatus
from importlib.metadata import version

import msgspec

from crawler.page import Exchange, LinkKind, Page
from crawler.sinks.compression import COMPRESSIONS
from crawler.sinks.settings import ArchiveSettings
from crawler.sinks.times import warc_date

CONFORMS_TO = "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"
REVISIT_PROFILE = b"http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
NOT_MODIFIED_PROFILE = b"http://netpreserve.org/warc/1.1/revisit/server-not-modified"
REVISIT_MIN_BYTES = 1024  # below, a revisit record is hardly smaller than the response record

_TRANSFER_CODED = re.compile(rb"^transfer-encoding[ \t]*:", re.IGNORECASE | re.MULTILINE)
_FRAMING = re.compile(rb"^(?=(?:transfer-encoding|content-length)[ \t]*:)", re.IGNORECASE | re.MULTILINE)

_OUTLINK = {
    LinkKind.REDIRECT: "R Location:",
    LinkKind.ANCHOR: "L a/@href",
    LinkKind.FRAME: "E frame/@src",
    LinkKind.LINK: "L link/@href",
    LinkKind.SITEMAP: "M sitemap/loc",
    LinkKind.LISTED: "M url/loc",
}
"""Heritrix's letter for the kind of hop, and where the link stood."""

Fields = bytes
"""Lines of a record's header, each with its end."""


class ExchangeRecords(msgspec.Struct, frozen=True):
    """The two compressed records of an exchange; `digest` is that of the payload, `response_id` the identity of the
    second. `is_revisit`: a record elsewhere holds the body."""

    request: bytes
    response: bytes
    digest: str
    response_id: bytes
    is_revisit: bool


class Original(msgspec.Struct, frozen=True):
    """What a revisit record says of the record that holds the body. `date` as in that record; `digest`: of the body."""

    record_id: bytes
    url: bytes
    date: bytes
    digest: str

    def fields(self) -> Fields:
        return b"WARC-Refers-To: %b\r\nWARC-Refers-To-Target-URI: %b\r\nWARC-Refers-To-Date: %b\r\n" % (
            self.record_id,
            self.url,
            self.date,
        )


class WarcRecords:
    """Makes the records of one replica's files, and remembers the bodies that it has archived."""

    def __init__(self, settings: ArchiveSettings, random: Callable[[int], bytes] = os.urandom) -> None:
        self._settings = settings
        self._compress = COMPRESSIONS[settings.compression].compress
        self._id_prefix = id_prefix(random(16))
        self._ids = 0
        self._warcinfo_id = b""
        self._originals: OrderedDict[str, Original] = OrderedDict()
        self._unsure: dict[str, Original] = {}
        self._last_answers: dict[str, Original] = {}

    def warcinfo(self, file_name: str, now: float) -> bytes:
        """The first record of the file `file_name`; the records made after it refer to it."""
        self._warcinfo_id = self._new_id()
        fields = b"WARC-Type: warcinfo\r\nWARC-Record-ID: %b\r\nWARC-Date: %b\r\nWARC-Filename: %b\r\n" % (
            self._warcinfo_id,
            warc_date(now),
            file_name.encode(),
        )
        block = _warc_fields(
            [
                ("software", f"peercrawl/{version('peercrawl')}"),
                ("format", "WARC File Format 1.1"),
                ("conformsTo", CONFORMS_TO),
                ("robots", "RFC 9309"),
                ("isPartOf", self._settings.crawl),
                ("replica", self._settings.replica),
                *self._settings.about,
            ]
        )
        return self._record(fields, b"application/warc-fields", [block])

    def exchange(self, exchange: Exchange, digest: str = "") -> ExchangeRecords:
        """The records of `exchange`. `digest` is that of its body, to be computed when empty."""
        if exchange.status == HTTPStatus.NOT_MODIFIED and (known := self._last_answers.get(exchange.url)):
            return self._not_modified(exchange, known)
        digest = digest or sha1(exchange.body)
        request_id, response_id = self._new_id(), self._new_id()
        common = self._common_fields(exchange)
        request = self._request(exchange, common, request_id, response_id)
        fields = b"%b%bWARC-Payload-Digest: %b\r\n" % (_pair(response_id, request_id), common, digest.encode())
        original = self._recall(exchange, digest, response_id)
        response = self._response(exchange, fields) if original is None else self._revisit(exchange, fields, original)
        if exchange.url in self._settings.refetched and exchange.status == HTTPStatus.OK:
            self._last_answers[exchange.url] = original or _original(exchange, digest, response_id)
        return ExchangeRecords(request, response, digest, response_id, is_revisit=original is not None)

    def metadata(self, page: Page, made: ExchangeRecords) -> bytes:
        """The record with what was found in `page`, whose exchange became the records `made`.

        Its fields are those of Heritrix, which WARC 1.1 section 6.6 adopted, Common Crawl's charset-detected, and `cut`
        with the reasons in `Page.cut`.
        """
        exchange = page.exchange
        assert exchange is not None
        lines = [f"fetchTimeMs: {exchange.elapsed * 1000:.0f}", f"depth: {page.depth}"]
        if page.via:
            lines.append(f"via: {page.via}")
        if page.charset:
            lines.append(f"charset-detected: {page.charset}")
        if page.cut:
            lines.append(f"cut: {' '.join(page.cut)}")
        lines += [f"outlink: {link.url} {_OUTLINK[link.kind]}" for link in page.links]
        block = "\r\n".join([*lines, ""]).encode(errors="replace")
        fields = b"WARC-Type: metadata\r\n%bWARC-Date: %b\r\nWARC-Target-URI: %b\r\nWARC-Warcinfo-ID: %b\r\n" % (
            _pair(self._new_id(), made.response_id),
            warc_date(exchange.started_at),
            exchange.url.encode(),
            self._warcinfo_id,
        )
        return self._record(fields, b"application/warc-fields", [block])

    def _not_modified(self, exchange: Exchange, known: Original) -> ExchangeRecords:
        """The records of an `exchange` whose answer was 304 to a request that was conditional on the response in `known`
        (WARC 1.1 section 6.7.3)."""
        request_id, response_id = self._new_id(), self._new_id()
        common = self._common_fields(exchange)
        request = self._request(exchange, common, request_id, response_id)
        head = stored_head(exchange)
        fields = b"WARC-Type: revisit\r\n%b%bWARC-Profile: %b\r\n%bWARC-Payload-Digest: %b\r\n" % (
            _pair(response_id, request_id),
            common,
            NOT_MODIFIED_PROFILE,
            known.fields(),
            known.digest.encode(),
        )
        revisit = self._record(fields, b"application/http; msgtype=response", [head])
        return ExchangeRecords(request, revisit, known.digest, response_id, is_revisit=True)

    def _request(self, exchange: Exchange, common: Fields, request_id: bytes, response_id: bytes) -> bytes:
        fields = b"WARC-Type: request\r\n%b%b" % (_pair(request_id, response_id), common)
        return self._record(fields, b"application/http; msgtype=request", [exchange.request_head])

    def settle(self) -> None:
        """The records made since the last call will stay; later ones may refer to them. Those of one group do not refer to
        each other, as some may be taken back and the others not."""
        for digest, original in self._unsure.items():
            self._originals[digest] = original
            if len(self._originals) > self._settings.revisits:
                self._originals.popitem(last=False)
        self._unsure.clear()

    def forget(self, urls: Container[str]) -> None:
        """The records of `urls` made since `settle` are taken back."""
        self._last_answers.clear()
        for digest in [digest for digest, original in self._unsure.items() if original.url.decode() in urls]:
            del self._unsure[digest]

    def undo(self) -> None:
        """The records made since `settle` were not written; nothing may refer to them."""
        self._last_answers.clear()  # rarer than it is worth to be counted
        self._unsure.clear()

    def _common_fields(self, exchange: Exchange) -> Fields:
        fields = (
            b"WARC-Date: %b\r\n"
            b"WARC-Target-URI: %b\r\n"
            b"WARC-Warcinfo-ID: %b\r\n"
            # From the request to the last byte, in seconds: with it an audit knows for how long a site was left alone.
            b"X-Crawler-Elapsed: %.6f\r\n"
        ) % (warc_date(exchange.started_at), exchange.url.encode(), self._warcinfo_id, exchange.elapsed)
        if exchange.address:
            fields += b"WARC-IP-Address: %b\r\n" % exchange.address.encode()
        return fields + _connection_fields(exchange.protocol, exchange.tls)

    def _response(self, exchange: Exchange, fields: Fields) -> bytes:
        head = stored_head(exchange)
        fields = b"WARC-Type: response\r\n" + fields
        if exchange.truncated is not None:
            fields += b"WARC-Truncated: %b\r\n" % exchange.truncated.encode()
        return self._record(fields, b"application/http; msgtype=response", [head, exchange.body])

    def _revisit(self, exchange: Exchange, fields: Fields, original: Original) -> bytes:
        head = stored_head(exchange)
        fields = (
            b"WARC-Type: revisit\r\n%b"
            b"WARC-Profile: %b\r\n%b"
            b"WARC-Truncated: length\r\n"  # WARC 1.1 section 6.7.2 asks for it when the body is left out
        ) % (fields, REVISIT_PROFILE, original.fields())
        return self._record(fields, b"application/http; msgtype=response", [head])

    def _recall(self, exchange: Exchange, digest: str, response_id: bytes) -> Original | None:
        """The record that already holds the body of `exchange`; if there is none, this one will be remembered."""
        if len(exchange.body) < REVISIT_MIN_BYTES or exchange.truncated or not self._settings.revisits:
            return None
        original = self._originals.get(digest)
        if original is not None:
            self._originals.move_to_end(digest)
            return original
        self._unsure.setdefault(digest, _original(exchange, digest, response_id))
        return None

    def _record(self, fields: Fields, content_type: bytes, block: list[bytes]) -> bytes:
        """One record, compressed alone."""
        head = b"WARC/1.1\r\n%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (
            fields,
            content_type,
            sum(map(len, block)),
        )
        record = b"".join([head, *block, b"\r\n\r\n"])
        return self._compress(record)

    def _new_id(self) -> bytes:
        self._ids += 1
        return b"%b%012x>" % (self._id_prefix, self._ids)


def _original(exchange: Exchange, digest: str, response_id: bytes) -> Original:
    return Original(response_id, exchange.url.encode(), warc_date(exchange.started_at), digest)


def stored_head(exchange: Exchange) -> bytes:
    """The response head, with framing fields that are untrue of the stored body set aside.

    A Content-Length beside a transfer coding was overridden by it (RFC 9112 section 6.3) and must not come back to life.
    """
    head = exchange.response_head
    if exchange.truncated is not None or _TRANSFER_CODED.search(head):
        return _FRAMING.sub(b"X-Crawler-", head)
    return head


def id_prefix(random: bytes) -> bytes:
    """What all record IDs of a run begin with, made of 16 `random` bytes; a count of 12 hex digits and `>` follow.

    So they are UUIDs of version 8 (RFC 9562 5.8), of which 74 random bits tell runs apart. The IDs that a record holds have
    most of their digits in common, so that it is compressed better than with 122 random bits for each.
    """
    digits = random.hex()
    variant = "89ab"[random[8] & 3]
    return f"<urn:uuid:{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-{variant}{digits[17:20]}-".encode()


def sha1(data: bytes) -> str:
    """The labelled digest of `data`: "sha1:" and base32, which WARC readers expect."""
    return "sha1:" + b32encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode()


def _pair(own: bytes, other: bytes) -> Fields:
    """A record's identity, and that of one made of the same exchange."""
    return b"WARC-Record-ID: %b\r\nWARC-Concurrent-To: %b\r\n" % (own, other)


@lru_cache(maxsize=64)
def _connection_fields(protocol: str, tls: str | None) -> Fields:
    """WARC-Protocol, repeated for each layer, and WARC-Cipher-Suite: IIPC proposals in wide use."""
    lines = [f"WARC-Protocol: {protocol}\r\n"] if protocol else []
    if tls is not None:
        cipher, _, version = tls.partition(" ")
        if version.startswith("TLSv"):
            lines.append(f"WARC-Protocol: tls/{version.removeprefix('TLSv')}\r\n")
        lines.append(f"WARC-Cipher-Suite: {cipher}\r\n")
    return "".join(lines).encode()


def _warc_fields(pairs: Iterable[tuple[str, str]]) -> bytes:
    """A block of the type application/warc-fields; a value's line breaks become spaces."""
    return b"".join(f"{name}: {' '.join(value.split())}\r\n".encode() for name, value in pairs)
