"""WARC 1.1 records (ISO 28500:2017): one HTTP exchange becomes a request and a response record.

The records are formatted here and compressed by ISA-L. FastWARC needs no more CPU, but holds the interpreter's lock all the
time; hashlib and ISA-L release it for three quarters of the time. `bench/warc.py` compares CPU and size with
FastWARC and warcio, which read the files in the tests.

Rules for editors:

- The head is stored as received, with one exception. The body is stored without its transfer coding and may be truncated,
  so framing fields may be wrong for the stored body, and readers would misread it. Such a field is stored with the prefix
  `X-Crawler-`, as Common Crawl does. The stored message then ends where the record ends.
- A record is one gzip member or one zstd frame. Recovery relies on it.
- A response has the digest of its payload. No record has a digest of its block: the checksum of the gzip member or zstd
  frame already covers the whole record, and for a response it would be computed over the same bytes again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator
from functools import lru_cache
from itertools import groupby, product
from operator import attrgetter

import msgspec

from crawler import __version__
from crawler.http_head import renamed
from crawler.page import Exchange, LinkKind, Page
from crawler.sinks.archive_settings import ArchiveSettings
from crawler.sinks.compression import COMPRESSIONS
from crawler.sinks.lines import iso_time
from politeness.usage import NO_USAGE, Usage

CONFORMS_TO = "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"
REVISIT_PROFILE = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
NOT_MODIFIED_PROFILE = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
REVISIT_MIN_BYTES = 1024  # below, a revisit record is hardly smaller than the response record
LONGEST_REMEMBERED = 512  # characters of the URL of a body that is remembered; a site may have URLs of 2,000

_PLAIN_LENGTH = re.compile(rb"content-length:[ \t]*[0-9]+[ \t]*\r?\n")
_LENGTH = re.compile(rb"[0-9]+")
_FRAMING = (b"transfer-encoding", b"content-length")
_ASIDE = b"X-Crawler-"

KEY_FIELD = "X-Crawler-Key"
"""The field with what tells the request from others to its URL, if it is not the URL alone (`frontier.entries`)."""

_OUTLINK = {
    LinkKind.REDIRECT: "R Location:",
    LinkKind.ANCHOR: "L a/@href",
    LinkKind.FRAME: "E frame/@src",
    LinkKind.LINK: "L link/@href",
    LinkKind.SITEMAP: "M sitemap/loc",
    LinkKind.LISTED: "M url/loc",
    LinkKind.FEED: "L link/@href",
    LinkKind.ITEM: "M item/link",
    LinkKind.SCRIPT: "L script",
}
"""Heritrix's letter for the kind of hop, and where the link was found."""

_url_of, _kind_of = attrgetter("url"), attrgetter("kind")

URN = "urn:"
"""How the URIs of records begin that a browser has made of a page; its kind and URL follow."""

Fields = str
"""Header lines of a record, each with its line end."""


class ExchangeRecords(msgspec.Struct, frozen=True):
    """The two records of an exchange. `response_id`: of the second one; `is_revisit`: another record has the body."""

    request: bytes
    response: bytes
    digest: str
    response_id: str
    is_revisit: bool


class Original(msgspec.Struct, frozen=True):
    """The record with the body to which a revisit record refers. `date`: as in that record; `digest`: of the body;
    `record_id`: empty if it is unknown, because another replica or an earlier run has made the record."""

    record_id: str
    url: str
    date: str
    digest: str
    page_url: str = ""  # of the page with which it is removed

    def fields(self) -> Fields:
        of_id = f"WARC-Refers-To: {self.record_id}\r\n" if self.record_id else ""
        return f"{of_id}WARC-Refers-To-Target-URI: {self.url.partition('#')[0]}\r\nWARC-Refers-To-Date: {self.date}\r\n"


class WarcRecords:
    """Makes the records of one replica's files, and remembers which bodies are archived."""

    def __init__(self, settings: ArchiveSettings, random: Callable[[int], bytes] = os.urandom) -> None:
        self._settings = settings
        self._compression = COMPRESSIONS[settings.compression]
        self._id_prefix = id_prefix(random(16))
        self._ids = 0
        self._warcinfo_id = ""
        self._originals: dict[str, Original] = {}  # by digest, the last used at the end
        self._unsure: dict[str, Original] = {}  # of the current group

    def warcinfo(self, file_name: str, now: float) -> bytes:
        """The first record of the file `file_name`. All records made after it refer to it."""
        self._warcinfo_id = self._new_id()
        fields = (
            f"WARC-Type: warcinfo\r\nWARC-Record-ID: {self._warcinfo_id}\r\n"
            f"WARC-Date: {warc_date(now)}\r\nWARC-Filename: {file_name}\r\n"
        )
        block = _warc_fields(
            [
                ("software", f"peercrawl/{__version__}"),
                ("format", "WARC File Format 1.1"),
                ("conformsTo", CONFORMS_TO),
                ("robots", "RFC 9309"),
                ("isPartOf", self._settings.crawl),
                ("replica", self._settings.replica),
                *self._settings.about,
            ]
        )
        return self._record(fields, "application/warc-fields", [block])

    def exchange(
        self, exchange: Exchange, digest: str = "", body_at: float = 0.0, page_fields: Fields = "", page_url: str = ""
    ) -> ExchangeRecords:
        """The records of `exchange`. `digest`: of its body; computed if it is empty. `body_at`: of a 304, when the body was
        received that has not changed, 0 if that is unknown. Its digest is not known, and the record has none.
        `page_fields`: of `page_fields`; `page_url`: of the page to which it belongs, if it is not that of the page."""
        is_unchanged = exchange.status == 304
        known = Original("", exchange.url, warc_date(body_at), "") if is_unchanged and body_at else None
        digest = "" if known else digest or sha1(exchange.body)
        request_id, response_id = self._new_id(), self._new_id()
        original = known or self._recall(exchange, digest, response_id, page_url)
        common = self._common_fields(exchange) + page_fields
        request = f"WARC-Type: request\r\n{_pair(request_id, response_id)}{common}"
        fields = _pair(response_id, request_id) + common
        if digest:
            fields += f"WARC-Payload-Digest: {digest}\r\n"
        block = [stored_head(exchange)]
        if original is None:
            fields = f"WARC-Type: response\r\n{fields}"
            if exchange.truncated is not None:
                fields += f"WARC-Truncated: {exchange.truncated}\r\n"
            block.append(exchange.body)
        else:
            # WARC 1.1 sections 6.7.2, which asks for WARC-Truncated because the body is left out, and 6.7.3
            profile = NOT_MODIFIED_PROFILE if known else f"{REVISIT_PROFILE}\r\nWARC-Truncated: length"
            fields = f"WARC-Type: revisit\r\n{fields}{original.fields()}WARC-Profile: {profile}\r\n"
        return ExchangeRecords(
            self._record(request, "application/http; msgtype=request", [exchange.request_head, exchange.request_body]),
            self._record(fields, "application/http; msgtype=response", block),
            digest,
            response_id,
            is_revisit=original is not None,
        )

    def of_browser(self, page: Page, made: ExchangeRecords, page_fields: Fields) -> bytes:
        """The records with what a browser has made of `page`, named as by Browsertrix. `made`: those of its exchange."""
        exchange, rendered = page.exchange, page.rendered
        if exchange is None or rendered is None:
            return b""
        kinds = [("dom", "text/html; charset=utf-8", rendered.dom.body if rendered.dom else b"")]
        kinds.append(("view", "image/png", rendered.screenshot))
        records = []
        for kind, content_type, body in kinds:
            fields = (
                f"WARC-Type: resource\r\nWARC-Record-ID: {self._new_id()}\r\n"
                f"WARC-Date: {warc_date(exchange.started_at)}\r\nWARC-Target-URI: {URN}{kind}:{exchange.url}\r\n"
                f"WARC-Warcinfo-ID: {self._warcinfo_id}\r\nWARC-Refers-To: {made.response_id}\r\n{page_fields}"
            )
            if body:
                records.append(self._record(fields + f"WARC-Payload-Digest: {sha1(body)}\r\n", content_type, [body]))
        return b"".join(records)

    def page_id(self) -> str:
        return self._new_id()[len("<urn:uuid:") : -1]

    def metadata(self, page: Page, made: ExchangeRecords) -> bytes:
        """The record with what was found in `page`. `made`: the records of its exchange.

        Its fields are those of Heritrix, which WARC 1.1 section 6.6 adopted, Common Crawl's charset-detected, and those of
        the JSON line that `crawler export` cannot find in the response: `depth` to `tries`, `visit`, `licenses`, `cut`, and
        what the owner says about the use of the page.
        """
        exchange = page.exchange
        assert exchange is not None
        lines = [
            f"fetchTimeMs: {exchange.elapsed * 1000:.0f}",
            f"depth: {page.depth}",
            f"outcome: {page.outcome}",
            f"reason: {page.reason}",
            f"tries: {page.tries}",
        ]
        if page.detail:
            lines.append(f"detail: {page.detail}")
        if page.repaired:
            lines.append(f"repaired: {' '.join(page.repaired)}")
        if (rendered := page.rendered) is not None:
            refused = ", ".join(f"{reason} {count}" for reason, count in sorted(rendered.refused.items()))
            lines += [f"rendered: {rendered.outcome}", f"renderTimeMs: {rendered.elapsed * 1000:.0f}"]
            lines += [f"resources: {rendered.requests}", *([f"refused: {refused}"] if refused else [])]
        if page.via:
            lines.append(f"via: {page.via}")
        if page.visit:
            lines.append(f"visit: {page.visit}")
        if page.previous_at:
            lines.append(f"previous-visit: {iso_time(page.previous_at)}")
        if page.charset:
            lines.append(f"charset-detected: {page.charset}")
        if page.licenses:
            lines.append(f"licenses: {' '.join(page.licenses)}")
        if page.cut:
            lines.append(f"cut: {' '.join(page.cut)}")
        if page.usage is not NO_USAGE:
            lines += _usage_fields(page.usage)
        for kind, links in groupby(page.links, _kind_of):
            place = _OUTLINK[kind]
            urls = f" {place}\r\noutlink: ".join(map(_url_of, links))
            lines.append(f"outlink: {urls} {place}")
        block = "\r\n".join([*lines, ""]).encode(errors="replace")
        fields = (
            f"WARC-Type: metadata\r\n{_pair(self._new_id(), made.response_id)}"
            f"WARC-Date: {warc_date(exchange.started_at)}\r\nWARC-Target-URI: {exchange.url.partition('#')[0]}\r\n"
            f"WARC-Warcinfo-ID: {self._warcinfo_id}\r\n"
        )
        return self._record(fields, "application/warc-fields", [block])

    def confirm(self) -> None:
        """Let later records refer to those since the last call: within a group, some may be removed."""
        self._originals |= self._unsure
        self._unsure.clear()
        while len(self._originals) > self._settings.revisits:
            del self._originals[next(iter(self._originals))]

    def forget(self, urls: Container[str]) -> None:
        """Forget the records of `urls` made since `confirm`, because they are removed."""
        for digest in [digest for digest, original in self._unsure.items() if original.page_url in urls]:
            del self._unsure[digest]

    def undo(self) -> None:
        """Forget the records made since `confirm`, because they were not written."""
        self._unsure.clear()

    def _common_fields(self, exchange: Exchange) -> Fields:
        address = f"WARC-IP-Address: {exchange.address}\r\n" if exchange.address else ""
        url, _, key = exchange.url.partition("#")
        if key:
            address += f"{KEY_FIELD}: {key}\r\n"
        return (
            f"WARC-Date: {warc_date(exchange.started_at)}\r\n"
            f"WARC-Target-URI: {url}\r\n"
            f"WARC-Warcinfo-ID: {self._warcinfo_id}\r\n"
            # Seconds from the request to the last byte. An audit needs it to check the pauses between requests.
            f"X-Crawler-Elapsed: {exchange.elapsed:.6f}\r\n"
            f"{address}{_connection_fields(exchange.protocol, exchange.tls)}"
        )

    def _recall(self, exchange: Exchange, digest: str, response_id: str, page_url: str) -> Original | None:
        """The record that already has the body of `exchange`. If there is none, its own record will be remembered."""
        is_keyed = "#" in exchange.url  # a revisit record could not name it
        is_odd = exchange.truncated or is_keyed or len(exchange.url) > LONGEST_REMEMBERED
        if len(exchange.body) < REVISIT_MIN_BYTES or is_odd or not self._settings.revisits:
            return None
        original = self._originals.pop(digest, None)
        if original is not None:
            self._originals[digest] = original  # it is now the last used
        else:
            made = Original(response_id, exchange.url, warc_date(exchange.started_at), digest, page_url or exchange.url)
            self._unsure.setdefault(digest, made)
        return original

    def _record(self, fields: Fields, content_type: str, block: list[bytes]) -> bytes:
        """One record, compressed. `content_type`: of its `block`, which is given in parts."""
        head = f"WARC/1.1\r\n{fields}Content-Type: {content_type}\r\nContent-Length: {sum(map(len, block))}\r\n\r\n"
        return self._compression.compress(b"".join([head.encode(), *block, b"\r\n\r\n"]))

    def _new_id(self) -> str:
        self._ids += 1
        return f"{self._id_prefix}{self._ids:012x}>"


def _usage_fields(usage: Usage) -> Iterator[str]:
    """The fields of a metadata record about the use of a page. All values are in one line."""
    if said := str(usage):
        yield f"usage: {said}"
    for one in usage.statements:
        yield f"usage-statement: {one}"
    if usage.tdm_policy:
        yield f"tdm-policy: {usage.tdm_policy}"


def stored_head(exchange: Exchange) -> bytes:
    """The response head. Framing fields that are wrong for the stored body, or that readers may misread, are renamed.

    A transfer coding overrides Content-Length (RFC 9112 section 6.3), so both are renamed.
    """
    head = exchange.response_head
    if exchange.truncated is None:
        lower = head.lower()
        at = lower.find(b"content-length")
        is_plain_length = at < 0 or (lower.count(b"content-length") == 1 and _PLAIN_LENGTH.match(lower, at))
        if is_plain_length and b"transfer-encoding" not in lower:
            return head  # as nearly all are
        if not _is_transfer_coded(head) and _has_plain_length(exchange):
            return head
    return renamed(head, _FRAMING, _ASIDE)


def _is_transfer_coded(head: bytes) -> bool:
    """Whether any reader may find a transfer coding in `head`."""
    return renamed(head, _FRAMING[:1], _ASIDE) != head


def _has_plain_length(exchange: Exchange) -> bool:
    lengths = {value for name, value in exchange.headers if name.lower() == b"content-length"}
    return len(lengths) <= 1 and all(map(_LENGTH.fullmatch, lengths))


@lru_cache(maxsize=16)
def warc_date(seconds: float) -> str:
    """`seconds` since 1970 with microseconds, which WARC 1.1 section 5.4 allows. A page needs about four times it."""
    return iso_time(seconds, digits=6)


def id_prefix(random: bytes) -> str:
    """The prefix of all record IDs of a run, made of 16 `random` bytes. A count of 12 hex digits and `>` follow.

    The IDs are UUIDs of version 8 (RFC 9562 5.8) with 74 random bits per run. The IDs in a record have most digits in
    common, so it is compressed better than with 122 random bits per ID.
    """
    digits = random.hex()
    variant = "89ab"[random[8] & 3]
    return f"<urn:uuid:{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-{variant}{digits[17:20]}-"


def sha1(data: bytes) -> str:
    """The labelled digest of `data`, "sha1:" and base32, as WARC readers expect it."""
    bits = int.from_bytes(hashlib.sha1(data, usedforsecurity=False).digest(), "big")
    return "sha1:" + "".join([_BASE32[bits >> shift & 0x3FF] for shift in range(150, -1, -10)])


_BASE32 = [first + second for first, second in product("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", repeat=2)]
"""The characters for ten bits each (RFC 4648 6). `base64.b32encode` takes twice the time."""


def page_fields(page_id: str, kind: str = "") -> Fields:
    """The fields of records of a page, as Browsertrix writes them. `kind`: of an extra exchange or requisite."""
    fields = f"WARC-Page-ID: {page_id}\r\n" if page_id else ""
    return fields + (f"WARC-Resource-Type: {kind}\r\n" if kind else "")


def resource_type(page: Page) -> str:
    """The kind of a requisite, by its media type."""
    media = page.content_type
    kinds = {"image/": "image", "css": "stylesheet", "javascript": "script", "font": "font", "audio/": "media"}
    return next((kind for part, kind in {**kinds, "video/": "media"}.items() if part in media), "other")


def _pair(own: str, other: str) -> Fields:
    return f"WARC-Record-ID: {own}\r\nWARC-Concurrent-To: {other}\r\n"


@lru_cache(maxsize=64)
def _connection_fields(protocol: str, tls: str | None) -> Fields:
    """WARC-Protocol, repeated for each layer, and WARC-Cipher-Suite. Both are widely used IIPC proposals."""
    lines = [f"WARC-Protocol: {protocol}\r\n"] if protocol else []
    if tls is not None:
        cipher, _, version = tls.partition(" ")
        if version.startswith("TLSv"):
            lines.append(f"WARC-Protocol: tls/{version.removeprefix('TLSv')}\r\n")
        lines.append(f"WARC-Cipher-Suite: {cipher}\r\n")
    return "".join(lines)


def _warc_fields(pairs: Iterable[tuple[str, str]]) -> bytes:
    """A block of the type application/warc-fields. Line breaks in values become spaces."""
    return b"".join(f"{name}: {' '.join(value.split())}\r\n".encode() for name, value in pairs)
