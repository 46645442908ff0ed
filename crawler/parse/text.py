"""Extracts the text and data of a page, and compares texts: fingerprints that are similar for similar ones, and an index
that finds these. Pure.

`content_of` extracts what the settings ask for, `ContentJob` in a process of its own. `DigestJob` makes the digest by which
two visits of a page are compared, and `simhash` the fingerprint by which pages are.

The fingerprint is Charikar's (Similarity estimation techniques from rounding algorithms, STOC 2002): a bit is set if it is
set in the hashes of more than half of the text's features. The features are all runs of three words, with repetitions;
their hash is XXH3-64, so a text has the same fingerprint on every machine. If a few words change, a few bits change. Texts
that differ in at most three of 64 bits count as copies, as Manku, Jain and Das Sarma recommend for eight billion pages
(Detecting near-duplicates for web crawling, WWW 2007, section 4).
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Sequence
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar

import msgspec
from xxhash import xxh3_64_digest

from crawler.arguments import checked
from crawler.page import NO_CONTENT, Content, Exchange, Outcome, Page, TextForm
from crawler.parse.coding import decode_body, is_html_page
from crawler.parse.encoding import as_text, encoding_guessed, encoding_sent
from crawler.parse.main_text import MAIN, SURROUNDINGS, main_text, surroundings
from crawler.parse.structured import json_ld_of, plain, publication_date
from crawler.parse.tree import flatten_tables, parse, restored, text_of
from crawler.scope.next_visit import TEXT_DIGEST

if TYPE_CHECKING:
    from turbohtml import Document, Element

NEAR = 3
"""Number of bits in which the fingerprints of copies may differ (Manku et al. 2007, section 4)."""

_SHINGLE = 3  # words
_ROW = 64  # bits of a fingerprint
_ALL = (1 << _ROW) - 1

_BLOCKS = NEAR + 1
_BLOCK = _ROW // _BLOCKS  # bits
_CHAIN = 1_000  # entries compared per table; only an attack causes this many collisions

_SPACES = bytes(code if code >= 128 or chr(code).isalnum() else 32 for code in range(256))


@cache
def _unspaced() -> re.Pattern[str]:
    """Characters of scripts with few or no spaces between words. Each counts as a word."""
    return re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af]")


def simhash(text: str) -> int | None:
    """The fingerprint of `text`, 64 bits. None if it has no words."""
    words = words_of(text)
    if not words:
        return None
    shingles = zip(*(words[start:] for start in range(_SHINGLE)), strict=False)
    digests = list(map(xxh3_64_digest, map(b" ".join, shingles))) or [xxh3_64_digest(b" ".join(words))]
    return _majority(_counts(digests), len(digests) // 2)


def words_of(text: str) -> list[bytes]:
    """The words of `text` in lower case, separated by spaces and ASCII punctuation."""
    if not text.isascii():
        text = _unspaced().sub(r" \g<0> ", text)
    return text.lower().encode(errors="replace").translate(_SPACES).split()


def _counts(digests: Sequence[bytes]) -> list[int]:
    """Count for each of 64 bits how many of `digests` have it. The nth number of the result has the nth binary digit of all
    64 counters, lowest first.

    The counters are bit-sliced: the digests form one long number, whose halves are added digit by digit until one row of
    64 bits is left. So the interpreter adds all rows at once. A loop over the digests takes tens of milliseconds.
    """
    planes, rows = [int.from_bytes(b"".join(digests))], len(digests)
    while rows > 1:
        lower = rows // 2 * _ROW
        mask = (1 << lower) - 1
        carry, added = 0, []
        for plane in planes:
            one, other = plane >> lower, plane & mask
            added.append(one ^ other ^ carry)
            carry = (one & other) | (carry & (one ^ other))
        planes = [*added, carry]
        rows -= rows // 2
    return planes


def _majority(planes: Sequence[int], half: int) -> int:
    """The bits whose counter in `planes` is above `half`. Compares digits from the highest down."""
    more, equal = 0, _ALL
    for digit in reversed(range(len(planes))):
        if half >> digit & 1:
            equal &= planes[digit]
        else:
            more |= equal & planes[digit]
            equal &= ~planes[digit]
    return more


def is_near(one: int, other: int) -> bool:
    """Whether two fingerprints belong to copies."""
    return (one ^ other).bit_count() <= NEAR


class NearIndex:
    """The last `capacity` fingerprints, each with the URL of its page.

    If two fingerprints differ in three bits, at least one of their four blocks of 16 bits is equal (Manku et al. 2007,
    section 3.1). So there is one table for each block, and only fingerprints found there are compared. A table consists
    of chains through a ring buffer, newest entry first, like the window of deflate. This takes 48 bytes per fingerprint,
    plus its URL, and nothing needs to be deleted.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._count = 0
        self._prints, self._titles = array("Q"), array("Q")
        self._urls: list[str] = []
        self._newest = [array("q", [-1]) * (1 << _BLOCK) for _ in range(_BLOCKS)]
        self._before = [array("q") for _ in range(_BLOCKS)]

    def __repr__(self) -> str:
        return f"<NearIndex {min(self._count, self._capacity)} of {self._capacity}>"

    def find(self, fingerprint: int, title_digest: int) -> tuple[str, bool] | None:
        """The URL of a page with a similar fingerprint, and whether it has the same `title_digest`, which is
        preferred. None if there is none."""
        if not self._capacity:
            return None
        found, oldest = None, max(0, self._count - self._capacity)
        for block in range(_BLOCKS):
            number = self._newest[block][_block(fingerprint, block)]
            for _ in range(_CHAIN):
                if number < oldest:
                    break
                slot = number % self._capacity
                if is_near(self._prints[slot], fingerprint):
                    if self._titles[slot] == title_digest:
                        return self._urls[slot], True
                    found = found or (self._urls[slot], False)
                number = self._before[block][slot]
        return found

    def add(self, fingerprint: int, title_digest: int, url: str) -> None:
        """Add the page at `url`. If the index is full, it replaces the oldest one."""
        if not self._capacity:
            return
        if self._count < self._capacity:  # grows with its content, because the capacity may be more than fits in memory
            self._prints.append(0)
            self._titles.append(0)
            self._urls.append("")
            for before in self._before:
                before.append(-1)
        slot = self._count % self._capacity
        self._prints[slot], self._titles[slot], self._urls[slot] = fingerprint, title_digest, url
        for block in range(_BLOCKS):
            key = _block(fingerprint, block)
            self._before[block][slot] = self._newest[block][key]
            self._newest[block][key] = self._count
        self._count += 1


def _block(fingerprint: int, number: int) -> int:
    return fingerprint >> number * _BLOCK & (1 << _BLOCK) - 1


MAX_BYTES = 4_194_304
"""Bytes of a body that are parsed; the tree of so much hostile markup takes 600 MB."""

_LEAST_MAIN = 200  # characters; on pages with only tables, the main content is often a single cell

_LEAST_SHARE = 2 / 3
"""The element `main` is compared alone if it has this share of the text outside of `surroundings`. On all but the shortest
pages, a paragraph of a footer has less than the other third."""

LIGHT_BYTES = 32_768
"""A decoded body of this size is light, if it has at most `LIGHT_TAGS`."""

LIGHT_TAGS = 1_000
"""The parser takes quadratic time for `<b a1><p><b a2><p>...`, because each `<p>` opens all unclosed `<b>` again: half a
second for four times as many tags. Many `<br>` take long to become Markdown."""

LIGHT_TAGGED_BYTES = 131_072
"""So is a larger body, up to this size, but not in UTF-16, in which tags cannot be counted."""

LIGHT_HIGH_BYTES = 65_536
"""Nor is a larger one with more bytes above 127: in scripts without spaces, each character counts as a word."""

_HIGH = bytes(range(128, 256))


def is_light_body(body: bytes, coding: str, charset: str) -> bool:
    """Whether extracting the text of `body`, as received with the Content-Encoding `coding`, takes some tens of
    milliseconds at most, whatever a site sent."""
    # A body that decodes to nothing may take long, too.
    found = decode_body(body, coding, LIGHT_TAGGED_BYTES + 1, max_work=LIGHT_TAGGED_BYTES)
    if found.error == "too_much_work":
        return False
    body = found.data
    if body.count(b"<") > LIGHT_TAGS:
        return False
    if len(body) > LIGHT_BYTES:
        if len(body) > LIGHT_TAGGED_BYTES or charset.startswith("utf-16"):
            return False
        return len(body) - len(body.translate(None, _HIGH)) <= LIGHT_HIGH_BYTES
    return True


def text_to_compare(main: Element | None, document: Document) -> str:
    """The text that tells `document` from others: that of its only `main`, otherwise that of the element `main`, or all
    text of the content if that is short, or in or beside longer text. Its tables must be flat (`flatten_tables`). Removes
    elements from `document`."""
    whole = restored(document.to_text())
    if main and main.closest(SURROUNDINGS):
        main = None
    for part in surroundings(document):
        part.decompose()
    content = restored(document.to_text())
    if len(content) < _LEAST_MAIN:
        return whole
    marked = document.select(MAIN)
    if len(marked) == 1:
        main = marked[0]
    text = restored(main.to_text()) if main else ""
    return text if len(text) >= max(_LEAST_MAIN, _LEAST_SHARE * len(content)) else content


class DigestJob(msgspec.Struct, frozen=True):
    """A page whose text is wanted as a digest. `coding`: its Content-Encoding; `charset`: the encoding of its
    text; `max_decoded`: the most bytes of its decoded body."""

    CPU_S: ClassVar[float] = 1.0  # several times what ordinary markup of the largest size takes
    RESULT: ClassVar = str

    url: str
    charset: str
    coding: str
    max_decoded: int

    @classmethod
    def of(cls, page: Page, max_decoded: int) -> DigestJob | None:
        """The job for `page`. None if it is not HTML, or if a part of its text would be missing."""
        exchange, is_whole = page.shown, set(page.cut) <= {"links"} and page.decoded_size <= MAX_BYTES
        if exchange is None or not is_whole or not is_html_page(page):
            return None
        return cls(page.url, page.charset, exchange.content_coding, max_decoded)

    def run(self, body: bytes) -> str:
        """The digest of the text to compare of `body`, as it was received, in hexadecimal digits. Empty if it has no text.
        Only the words and their order count, not what separates them."""
        document = parse(decode_body(body, self.coding, self.max_decoded).data, self.charset or None)
        main = document.main_content()
        flatten_tables(document)
        words = text_to_compare(main, document).split()
        text = " ".join(words).encode(errors="replace")
        return hashlib.sha1(text, usedforsecurity=False).hexdigest()[:TEXT_DIGEST] if words else ""


_HEADING_LENGTH = 300  # characters
_JUDGED = 1_000_000  # characters that are compared, because the time of a fingerprint grows with them
SHORT_CHARACTERS = 4_000  # the longest text of an error page

DATA_BYTES = 262_144
"""Maximum size of a large document's encoded JSON-LD. Each empty list takes two bytes, but is an object in the receiving
process."""

PLAIN_TYPES = frozenset({"text/plain", "text/markdown", "text/x-markdown"})
"""Media types of pages that are their text."""

GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})


def content_of(
    page: Page, text: TextForm, structured: bool, judged: bool = False, error_pages: bool = False
) -> Content:
    """The content of `page` if it is HTML or plain text with status 2xx, or also 404 and 410 if `error_pages`. `judged`:
    with the fields for comparing pages."""
    page, is_asked = page.as_shown(), text != "off" or structured or judged
    if not is_asked or page.exchange is None or not has_content(page, error_pages):
        return NO_CONTENT
    body = decoded(page.exchange, MAX_BYTES + 1)
    if page.content_type in PLAIN_TYPES:
        return _plain_content(body, page.charset, text)
    document = parse(body[:MAX_BYTES], page.charset or None)
    structured_data = json_ld_of(document).values if structured or text != "off" else []
    content = Content(
        description=_description(document),
        json_ld=structured_data or None if structured else None,
        opengraph=_opengraph(document) if structured else None,
        published=publication_date(document, structured_data) if structured or text != "off" else None,
        cut=("text",) if len(body) > MAX_BYTES else (),
    )
    if judged:
        main = document.main_content()
        flatten_tables(document)
        content = _to_be_judged(content, document, main)
        document = parse(body[:MAX_BYTES], page.charset or None)
    return _with_text(content, document, page.url, text) if text != "off" else content


def _with_text(content: Content, document: Document, url: str, text: TextForm) -> Content:
    """`content` with the main text of `document`. Changes `document`."""
    main = main_text(document, url, is_markdown=text == "markdown")
    cut = content.cut or (("text",) if len(main.text) > MAX_BYTES else ())
    return msgspec.structs.replace(
        content,
        **{text: main.text[:MAX_BYTES] or None},
        text_by=main.by or None,
        cut=(*cut, "main") if main.is_small else cut,
    )


def _all_text(page: Page, text: TextForm) -> Content:
    """The text of all elements of `page`, a line for each block, which takes linear time."""
    assert page.exchange is not None
    document = parse(decoded(page.exchange, MAX_BYTES), page.charset or None)
    lines = (" ".join(line.split()) for line in text_of(document.select_one("body") or document).split("\n"))
    found = "\n".join(filter(None, lines))[:MAX_BYTES].encode(errors="replace").decode()
    content = Content(text_by="visible" if found else None, cut=("text",))
    return msgspec.structs.replace(content, **{text: found or None})


def _plain_content(body: bytes, charset: str, text: TextForm) -> Content:
    """The content of a page that is text already. A fingerprint or data of it would say nothing."""
    if text == "off":
        return NO_CONTENT
    found = as_text(body[:MAX_BYTES], charset or encoding_sent(body, None) or encoding_guessed(body, is_xml=False))
    cut = ("text",) if len(body) > MAX_BYTES else ()
    content = Content(text_by="plain", cut=cut)
    return msgspec.structs.replace(content, **{text: found}) if found.strip() else NO_CONTENT


class ContentWanted(msgspec.Struct, frozen=True):
    """What to extract from pages, as the arguments of `content_of`."""

    text: TextForm = "off"
    structured: bool = False
    judged: bool = False
    error_pages: bool = False

    def __bool__(self) -> bool:
        return self.text != "off" or self.structured or self.judged

    def of(self, page: Page) -> Content:
        """The content of `page`."""
        return content_of(page, self.text, self.structured, self.judged, self.error_pages)


class ContentJob(msgspec.Struct, frozen=True):
    """A `page` without its body, whose content is `wanted`. `is_hasty`: only its whole text, as all took too long."""

    CPU_S: ClassVar[float] = 2.0  # three times what the slowest ordinary page takes, one of 3.5 MB
    RESULT: ClassVar = Content

    page: Page
    wanted: ContentWanted
    is_hasty: bool = False

    @classmethod
    def of(cls, page: Page, wanted: ContentWanted) -> ContentJob:
        """The job for `page`, which has an exchange."""
        page = msgspec.structs.replace(page.as_shown(), links=(), items=(), extras=())
        return cls(_with_body(page, b""), wanted)

    @property
    def url(self) -> str:
        return self.page.url

    def run(self, body: bytes) -> Content:
        """The content of the page with this `body`, in values that MessagePack has."""
        if self.is_hasty:
            return _all_text(_with_body(self.page, body), self.wanted.text)
        content = self.wanted.of(_with_body(self.page, body))
        try:
            if content.json_ld is not None and len(msgspec.msgpack.encode(content.json_ld)) > DATA_BYTES:
                content = msgspec.structs.replace(content, json_ld=None, cut=("text",))
            msgspec.msgpack.encode(content)
        except (UnicodeEncodeError, OverflowError, RecursionError):
            return Content(**{name: plain(value) for name, value in msgspec.structs.asdict(content).items()})
        return content


def _with_body(page: Page, body: bytes) -> Page:
    assert page.exchange is not None
    return msgspec.structs.replace(page, exchange=msgspec.structs.replace(page.exchange, body=body))


def is_light(page: Page, wanted: ContentWanted) -> bool:
    """Whether extracting what is `wanted` of `page` is quick enough for a thread, whatever a site sent."""
    if not wanted or page.exchange is None or not has_content(page, wanted.error_pages):
        return True
    if page.content_type in PLAIN_TYPES:
        return not page.exchange.content_coding
    shown = page.shown or page.exchange
    if wanted.text != "off":
        return False  # its main text takes tens of milliseconds
    return is_light_body(shown.body, shown.content_coding, page.charset)


def has_content(page: Page, error_pages: bool) -> bool:
    """Whether `content_of` extracts anything from `page`."""
    if page.outcome is not Outcome.DONE or page.exchange is None:
        return False
    if page.exchange.status >= 300 and not (error_pages and page.exchange.status in GONE):
        return False
    return page.content_type in PLAIN_TYPES or is_html_page(page)


def _to_be_judged(content: Content, document: Document, main: Element | None) -> Content:
    heading = document.select_one("h1, h2")
    said = " ".join(restored(heading.text).split())[:_HEADING_LENGTH] if heading else ""
    compared = text_to_compare(main, document)
    return msgspec.structs.replace(
        content,
        simhash=simhash(compared[:_JUDGED]),
        compared=compared[: SHORT_CHARACTERS + 1],
        heading=said,
        is_judged=True,
    )


def _description(document: Document) -> str | None:
    element = document.select_one('meta[name="description" i], meta[property="og:description"]')
    return (restored(element.attr("content") or "").strip() if element else "") or None


def _opengraph(document: Document) -> dict[str, str] | None:
    return {restored(str(key)): restored(str(value)) for key, value in document.opengraph().items()} or None


@checked
def decoded(exchange: Exchange, limit: int = 32 << 20) -> bytes:
    """The body of `exchange` without its content coding, as far as it can be decoded, and at most `limit` bytes of it."""
    return decode_body(exchange.body, exchange.content_coding, limit).data
