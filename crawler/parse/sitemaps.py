"""Reads sitemaps (sitemaps.org protocol 0.9): `urlset`, `sitemapindex` and the text form, plain or in gzip. Pure.

Expat reads the XML as a stream. Reading ends at what no sitemap needs: a document type (with its entities and external
files: CVE-2003-1564, CWE-611), deep nesting, and entries beyond the protocol's 50,000. What was read before an error
counts, because the files of real sites often break off.

`lastmod` and `priority` become a hint: a fraction added to the score of an entry, which orders pages of the same depth.
"""

from __future__ import annotations

import codecs
import math
import re
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Literal
from xml.parsers import expat

import msgspec

from crawler.page import GZIP, Link, LinkKind
from crawler.parse.coding import decode_body
from crawler.parse.encoding import XML_TYPES, MediaType
from crawler.parse.html import Extracted, ExtractPolicy
from crawler.parse.tags import BASE, TakesLong
from frontier.errors import BadUrl
from frontier.urls import DEFAULT_RULES, EXCESS, Url, UrlRules, canonicalize, canonicalize_links

MAX_NAMED = 500
"""The most sitemaps of one robots.txt."""

MAX_ENTRIES = 50_000
MAX_BYTES = 52_428_800
"""The protocol's limits of one file: entries, and bytes uncompressed."""

_GZIP_TYPES = frozenset({"application/gzip", "application/x-gzip", "application/octet-stream", "binary/octet-stream"})
_MAYBE_XML = XML_TYPES | {"text/plain", ""}
_MAYBE_ZIPPED = _MAYBE_XML | _GZIP_TYPES
_PEEK = 4_096  # bytes in which the root element must begin
_ROOT = re.compile(rb"<(?:[A-Za-z0-9_.-]{1,40}:)?(?:urlset|sitemapindex)[\s/>]")
_MAX_DEPTH = 16  # elements within each other; the protocol's own need 3, Google's extensions 5
_MAX_TEXT = 4_096  # characters of a `loc` at most; the protocol allows 2,048
_WEIGHT = 0.8  # of `priority` in the hint; the rest is for `lastmod`
_FRESH_DAYS = 30.0  # an age that halves the part of `lastmod`

Form = Literal["urlset", "sitemapindex", "text"]


class Listed(msgspec.Struct, frozen=True):
    """An entry as written. `lastmod`: seconds since 1970. None: missing or malformed."""

    loc: str
    lastmod: float | None = None
    priority: float | None = None


class Sitemap(msgspec.Struct, frozen=True):
    """The entries of a sitemap. `error`: why some may be missing, or None. Reading ended early (`doctype`, `depth`,
    `excess`, `malformed`, or `coding` for its compression), or an entry was longer than any URL (`length`)."""

    form: Form
    entries: tuple[Listed, ...] = ()
    error: str | None = None


def is_sitemap(body: bytes, content_type: str, is_named: bool) -> bool:
    """Whether `body` is a sitemap, by its first bytes.

    XML is recognised by its root element, under any type except HTML's. The text form looks like any other text, so it
    counts only if `is_named` by a robots.txt.
    """
    essence = MediaType.parse(content_type).essence
    if body.startswith(GZIP) and (essence in _MAYBE_ZIPPED or is_named):
        head = decode_body(body[:_PEEK], "gzip", _PEEK).data
    elif essence in _MAYBE_XML or essence.endswith("+xml") or is_named:
        head = body[:_PEEK]
    else:
        return False
    return _has_root(head) or (is_named and _is_list(head))


def named_sitemaps(names: Collection[str], origin: str, rules: UrlRules = DEFAULT_RULES) -> frozenset[str]:
    """The canonical URLs of `names`, the sitemaps in the robots.txt of `origin` as written, which may be relative."""
    named, _ = canonicalize_links(names, f"{origin}/robots.txt", rules, MAX_NAMED)
    return frozenset(named).union(names)


def _has_root(head: bytes) -> bool:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        head = head.replace(b"\0", b"")
    return _ROOT.search(head) is not None


def _is_list(head: bytes) -> bool:
    first = head.removeprefix(codecs.BOM_UTF8).lstrip()
    return first[:8].lower().startswith((b"http://", b"https://"))


def parse_sitemap(body: bytes) -> Sitemap:
    """The entries of the sitemap in `body`, which may be in gzip. Never raises for what a site sent."""
    decoded = decode_body(body, "gzip" if body.startswith(GZIP) else "", MAX_BYTES)
    found = (_Reader().read if _has_root(decoded.data[:_PEEK]) else _read_lines)(decoded.data)
    lost = "coding" if decoded.error else "excess" if decoded.truncated else found.error
    return msgspec.structs.replace(found, error=lost)


def _read_lines(text: bytes) -> Sitemap:
    lines = text.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace").split()
    first = lines[:MAX_ENTRIES]
    entries = tuple(Listed(line) for line in first if len(line) <= _MAX_TEXT)
    error = "excess" if len(lines) > MAX_ENTRIES else "length" if len(entries) < len(first) else None
    return Sitemap("text", entries, error)


class _Refused(Exception):
    """Raised when reading must end. The argument is the reason."""


class _Reader:
    """Reads one XML sitemap. The fields of an entry are in the third level and have the root's prefix, unlike those of
    extensions (`image:loc`)."""

    def __init__(self) -> None:
        self._form: Form = "urlset"
        self._prefix = ""
        self._depth = 0
        self._field = ""
        self._text = ""
        self._fields: dict[str, str] = {}
        self._entries: list[Listed] = []
        self._error: str | None = None

    def read(self, text: bytes) -> Sitemap:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        try:
            # XML allows nothing before its declaration, but templates often leave an empty line there.
            stripped = text.removeprefix(codecs.BOM_UTF8).lstrip()
            parser.Parse(stripped if stripped.startswith(b"<?xml") else text, True)
        except _Refused as refused:
            self._error = str(refused)
        except (expat.ExpatError, ValueError, LookupError):  # the last two: for a declared encoding
            self._error = "malformed"
        return Sitemap(self._form, tuple(self._entries), self._error)

    @staticmethod
    def _refuse_doctype(*_: object) -> None:
        raise _Refused("doctype")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._field = ""
        prefix, _, local = name.rpartition(":")
        if self._depth == 1:
            self._prefix = prefix
            self._form = "sitemapindex" if local == "sitemapindex" else "urlset"
        elif self._depth == 2:
            self._fields.clear()
        elif self._depth == 3 and prefix == self._prefix:
            self._field, self._text = local, ""
        elif self._depth > _MAX_DEPTH:
            raise _Refused("depth")

    def _end(self, name: str) -> None:
        if self._depth == 3 and self._field:
            self._fields.setdefault(self._field, self._text)
        elif self._depth == 2 and (loc := self._fields.get("loc", "").rstrip()):
            self._add(loc)
        self._field = ""
        self._depth -= 1

    def _add(self, loc: str) -> None:
        if len(loc) > _MAX_TEXT:
            self._error = "length"
            return
        if len(self._entries) == MAX_ENTRIES:
            raise _Refused("excess")
        lastmod, priority = self._fields.get("lastmod", ""), self._fields.get("priority", "")
        self._entries.append(Listed(loc, _time(lastmod), _share(priority)))

    def _characters(self, text: str) -> None:
        if not self._field:
            return
        if not self._text:
            text = text.lstrip()  # white space does not count, however long
        if len(self._text) <= _MAX_TEXT:
            self._text += text[: _MAX_TEXT + 1]


def _time(text: str) -> float | None:
    """Seconds since 1970 of a W3C date and time (NOTE-datetime), which may be a year alone, or a year and month."""
    text = text.strip()
    try:
        found = datetime.fromisoformat(text + "-01-01"[3 * (len(text) == 7) :] if len(text) in (4, 7) else text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _share(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0.0 <= share <= 1.0 else None


DEFAULT_POLICY = ExtractPolicy()


class SitemapLinks(msgspec.Struct, frozen=True):
    """The links of a sitemap, like those of a page, and the hints for the scores of URLs that have one."""

    found: Extracted
    hints: dict[str, float] = msgspec.field(default_factory=dict)
    error: str | None = None


def sitemap_links(
    body: bytes, url: str, now: float, policy: ExtractPolicy = DEFAULT_POLICY, max_work: float = math.inf
) -> SitemapLinks:
    """The links of the sitemap `body` at `url`. `now`: seconds since 1970. They may be longer than those of a page by the
    size of `body`. Raises TakesLong if `body` and `url` for each relative link exceed `max_work` bytes, where `BASE`
    characters of `url` count as one."""
    sitemap = parse_sitemap(body)
    if len(body) + len(url) * sum(map(_is_relative, sitemap.entries)) // BASE > max_work:
        raise TakesLong
    room = policy.max_link_bytes + len(body)
    kind = LinkKind.SITEMAP if sitemap.form == "sitemapindex" else LinkKind.LISTED
    urls: dict[str, Url] = {}
    changed_at: dict[str, float] = {}
    hints: dict[str, float] = {}
    dropped: Counter[str] = Counter()
    for number, entry in enumerate(sitemap.entries):
        try:
            listed = canonicalize(entry.loc, url, policy.rules)
        except BadUrl as error:
            dropped[error.reason] += 1
            continue
        room -= len(listed.href)
        if room < 0:
            dropped[EXCESS] = len(sitemap.entries) - number
            break
        urls[listed.href] = listed
        changed_at[listed.href] = max(0.0, entry.lastmod or 0.0)
        if entry.lastmod is not None or entry.priority is not None:
            hints[listed.href] = hint(entry, now)
    links = tuple(Link(href, kind, changed_at[href]) for href in urls)
    found = Extracted(links=links, urls=tuple(urls.values()), dropped=dict(dropped))
    return SitemapLinks(found, hints, sitemap.error)


def _is_relative(entry: Listed) -> bool:
    return not entry.loc.startswith(("http://", "https://"))


def hint(entry: Listed, now: float) -> float:
    """What `entry` adds to a score, between -0.5 and 0.5, which is less than one link of depth. 0 without fields."""
    importance = 0.5 if entry.priority is None else entry.priority
    freshness = 0.5
    if entry.lastmod is not None:
        age_days = max(0.0, now - entry.lastmod) / 86_400
        freshness = _FRESH_DAYS / (_FRESH_DAYS + age_days)
    return 0.99 * (_WEIGHT * (importance - 0.5) + (1 - _WEIGHT) * (freshness - 0.5))
