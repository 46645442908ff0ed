"""Reads sitemaps (sitemaps.org protocol 0.9: `urlset`, `sitemapindex` and the text form) and feeds (RSS, Atom, JSON Feed),
plain or in gzip. Pure.

Many sitemaps of real sites are not well-formed: an unescaped `&`, a warning of PHP before the declaration, a label of
another encoding, an element that nobody closed. So no XML parser reads them, but one expression, which finds the elements
that count wherever they are. It expands no entities and reads no external files (CVE-2003-1564, CWE-611). Its time is
linear: each construct is read to its end or to the end of the file, and no repetition gives back what it matched. It works
on bytes, so only what is extracted needs decoding.

`lastmod` and `priority` become a hint: a fraction added to the score of an entry, which orders pages of the same depth.
"""

from __future__ import annotations

import codecs
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from html import unescape
from typing import Literal
from urllib.parse import quote_from_bytes
from xml.parsers import expat

import msgspec

from crawler.page import GZIP, Link, LinkKind
from crawler.parse.coding import decode_body
from crawler.parse.encoding import XML_TYPES, MediaType, codec_of, encoding_named
from crawler.parse.html import Extracted, ExtractPolicy
from crawler.parse.markup import attributes
from crawler.parse.tags import BASE, TakesLong
from frontier.errors import BadUrl
from frontier.urls import DEFAULT_RULES, EXCESS, Url, UrlRules, canonicalize, canonicalize_links

MAX_NAMED = 500
"""The most sitemaps of one robots.txt that are recognised by their URLs alone."""

MAX_ENTRIES = 50_000
MAX_BYTES = 52_428_800
"""The protocol's limits of one file: entries, and bytes uncompressed."""

_MAYBE_XML = XML_TYPES | {"text/plain", ""}
_JSON_FEED = "application/feed+json"
_PROLOG = 65_536  # bytes of comments and declarations at most
_PEEK = 4_096  # bytes after them in which the root element must begin
_COMMENTS = re.compile(rb"(?s)(?:\s++|<\?.*?\?>|<!--.*?-->)*+")
_PREFIX = rb"(?:[A-Za-z0-9_.-]{1,40}:)?"
_ROOTS = rb"urlset|sitemapindex|rss|feed|RDF"
_ROOT = re.compile(rb"(?i)<(%b)(%b|html)(?=[\s/>])" % (_PREFIX, _ROOTS))
_STARTS = re.compile(rb"(?i)(?:\xef\xbb\xbf|\s)*+<(?:\?xml\s|%b(?:%b)[\s/>])" % (_PREFIX, _ROOTS))
_MAX_TEXT = 4_096  # characters of a `loc` at most; the protocol allows 2,048
_WEIGHT = 0.8  # of `priority` in the hint; the rest is for `lastmod`
_FRESH_DAYS = 30.0  # an age that halves the part of `lastmod`

Form = Literal["urlset", "sitemapindex", "text", "feed"]


class Listed(msgspec.Struct, frozen=True):
    """An entry as written. `lastmod`: seconds since 1970. None: missing or malformed. `is_page`: whether it is a page, and
    not a translation of one, or the next part of a feed."""

    loc: str
    lastmod: float | None = None
    priority: float | None = None
    is_page: bool = True


class Sitemap(msgspec.Struct, frozen=True):
    """The entries of a sitemap or feed. `error`: why some may be missing, or None. Reading ended early (`doctype`: it
    declares entities, `excess`, `malformed`: it breaks off, or `coding` for its compression), or an entry was longer than
    any URL (`length`). `is_repaired`: it is no well-formed XML, and was read all the same."""

    form: Form
    entries: tuple[Listed, ...] = ()
    error: str | None = None
    is_repaired: bool = False


def form_of(body: bytes, content_type: str, is_named: bool) -> Form | None:
    """What kind of sitemap or feed `body` is, by its first bytes, or None.

    Under the type of XML or plain text, its root element may follow other text. Under other types, it has to begin with an
    XML declaration or the root element, unless it `is_named` a sitemap by a robots.txt or an index. The text form looks
    like any other text, so it counts only if it is named.
    """
    essence = MediaType.parse(content_type).essence
    if body.startswith(GZIP):
        body = decode_body(body[:_PROLOG], "gzip", _PROLOG).data
    elif essence == _JSON_FEED:
        return "feed"
    is_likely = is_named or essence in _MAYBE_XML or essence.endswith("+xml")
    if not is_likely and not _STARTS.match(body, 0, _PEEK) and not body.startswith(_STARTS_OF_UTF_16):
        return None
    head = _utf8(body[:_PROLOG])
    root = _root(head)
    if root is not None:
        return _form(root)
    return "text" if is_named and _is_list(head) else None


def named_sitemaps(names: Collection[str], origin: str, rules: UrlRules = DEFAULT_RULES) -> frozenset[str]:
    """The canonical URLs of the first of `names`, the sitemaps in the robots.txt of `origin` as written, which may be
    relative."""
    named, _ = canonicalize_links(names, f"{origin}/robots.txt", rules, MAX_NAMED)
    return frozenset(named).union(names)


def _root(text: bytes) -> re.Match[bytes] | None:
    start = 0
    if comments := _COMMENTS.match(text, 0, _PROLOG):
        start = comments.end()
    root = _ROOT.search(text, start, start + _PEEK)
    return None if root is None or root[2].lower() == b"html" else root


def _form(root: re.Match[bytes]) -> Form:
    name = root[2].lower()
    return "urlset" if name == b"urlset" else "sitemapindex" if name == b"sitemapindex" else "feed"


def _is_list(head: bytes) -> bool:
    return head.lstrip()[:8].lower().startswith((b"http://", b"https://"))


_UTF_16 = {
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"<\0": "utf-16-le",
    b"\0<\0": "utf-16-be",  # not a NUL before UTF-8
}
_STARTS_OF_UTF_16 = tuple(_UTF_16)


def _utf8(text: bytes) -> bytes:
    """`text` without byte order marks, in UTF-8 if it is in UTF-16. A label is not believed: .NET writes `utf-16` at the
    beginning of files in UTF-8."""
    for start, codec in _UTF_16.items():
        if text.startswith(start):
            return text.decode(codec, "replace").encode("utf-8", "replace")
    while text.startswith(codecs.BOM_UTF8):
        text = text[3:]
    return text


def parse_sitemap(body: bytes) -> Sitemap:
    """The entries of the sitemap or feed in `body`, which may be in gzip. Never raises for what a site sent."""
    decoded = decode_body(body, "gzip" if body.startswith(GZIP) else "", MAX_BYTES)
    found = _read(_utf8(decoded.data))
    lost = "coding" if decoded.error else "excess" if decoded.truncated else found.error
    is_repaired = found.form != "text" and bool(found.entries) and not _is_well_formed(decoded.data)
    return msgspec.structs.replace(found, error=lost, is_repaired=is_repaired)


def _is_well_formed(text: bytes) -> bool:
    """Whether a parser of XML would read `text`, without entities of its own; or of JSON, as it was read already."""
    if b"<!ENTITY" in text:  # anywhere: what is before the root for this module may be within it for the parser
        return False
    try:
        expat.ParserCreate().Parse(text, True)
    except expat.ExpatError:
        return text.lstrip()[:1] == b"{"
    except (ValueError, LookupError):  # an encoding that this parser does not know
        return True
    return True


def _read(text: bytes) -> Sitemap:
    root = _root(text)
    if root is None:
        return _read_json(text) if text.lstrip()[:1] == b"{" else _read_lines(text)
    form = _form(root)
    if b"<!ENTITY" in text[: root.start()]:
        return Sitemap(form, (), "doctype")
    codec = _declared_codec(text[: root.start()])
    read = _listed_in_feed(text, root.end(), codec) if form == "feed" else _listed_in_map(text, root, codec)
    pages: dict[str, Listed] = {}
    others: dict[str, Listed] = {}
    error = None
    for entry in read:
        entries = pages if entry.is_page else others
        if len(entry.loc) > _MAX_TEXT:
            error = "length"
        elif len(entries) < MAX_ENTRIES:
            entries.setdefault(entry.loc, entry)
        elif entry.loc not in entries:
            error = "excess"
            if entry.is_page:
                break
    if error is None and b"</%b%b" % (root[1], root[2]) not in text and not _is_empty(text, root):
        error = "malformed"
    return Sitemap(form, (*pages.values(), *(other for loc, other in others.items() if loc not in pages)), error)


def _is_empty(text: bytes, root: re.Match[bytes]) -> bool:
    end = text.find(b">", root.end())
    return text[end - 1 : end] == b"/"


def _read_lines(text: bytes) -> Sitemap:
    lines = [_decoded(line, "") for line in text.split()]
    urls = [line for line in lines if line[:8].lower().startswith(("http://", "https://"))]
    first = urls[:MAX_ENTRIES]
    entries = tuple(Listed(line) for line in first if len(line) <= _MAX_TEXT)
    error = "excess" if len(urls) > MAX_ENTRIES else "length" if len(entries) < len(first) else None
    return Sitemap("text", entries, error)


class _JsonItem(msgspec.Struct):
    url: str | None = None
    date_modified: str | None = None
    date_published: str | None = None


class _JsonFeed(msgspec.Struct):
    items: list[_JsonItem] = []
    next_url: str | None = None


def _read_json(text: bytes) -> Sitemap:
    """A JSON Feed 1.1. Many programs write null for what an item lacks."""
    try:
        feed = msgspec.json.decode(text, type=_JsonFeed)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Sitemap("feed", (), "malformed")
    entries = [
        Listed(item.url, _time(item.date_modified or item.date_published or "")) for item in feed.items if item.url
    ]
    following = (Listed(feed.next_url, is_page=False),) if feed.next_url else ()
    return Sitemap("feed", (*entries[:MAX_ENTRIES], *following), "excess" if len(entries) > MAX_ENTRIES else None)


# The markup

_IGNORED = rb"<!--(?s:.*?)(?:-->|\Z)|<!\[CDATA\[(?s:.*?)(?:\]\]>|\]\] {1,9}>(?=\s*+<)|\Z)"
_TEXT = rb"(?:[^<]++|%b|<(?![!?]|/?[A-Za-z][^<>]*+>))*+(?=<)" % _IGNORED
"""The text of an element, up to the next tag, whatever that is. A `<` that begins none belongs to the text. A text that
ends with the file has been cut."""
_REST = rb"(?:\s[^<>]*+)?+"
_ALTERNATE = rb"<%blink\s(?=[^<>]*+>)([^<>]*\balternate\b[^<>]*+)" % _PREFIX


@lru_cache(maxsize=16)  # a site may have a new prefix in each of its sitemaps
def _map_pieces(prefix: bytes) -> re.Pattern[bytes]:
    """The elements of a sitemap whose root has `prefix`. Those of extensions have another (`image:loc`)."""
    prefix = re.escape(prefix)
    return re.compile(
        rb"(?i)%b|</?%b(url|sitemap)%b>|<%b(loc|lastmod|priority)%b>(%b)|%b"
        % (_IGNORED, prefix, _REST, prefix, _REST, _TEXT, _ALTERNATE)
    )


def _listed_in_map(text: bytes, root: re.Match[bytes], codec: str) -> Iterator[Listed]:
    fields: dict[bytes, bytes] = {}
    for piece in _map_pieces(root[1]).finditer(text, root.end()):
        boundary, name, value, link = piece.groups()
        if name:
            fields.setdefault(name.lower(), value)
        elif boundary and fields:
            yield from _of_fields(fields, codec)
            fields.clear()
        elif link and (href := attributes(link).get(b"href")):
            yield Listed(_value(href, codec), is_page=False)
    yield from _of_fields(fields, codec)


def _of_fields(fields: dict[bytes, bytes], codec: str) -> Iterator[Listed]:
    if loc := _value(fields.get(b"loc", b""), codec):
        lastmod, priority = fields.get(b"lastmod"), fields.get(b"priority")
        yield Listed(
            loc,
            _time(_value(lastmod, codec)) if lastmod else None,
            _share(_value(priority, codec)) if priority else None,
        )


_FEED_PIECES = re.compile(
    rb"(?i)%b|</?%b(item|entry)%b>|<%b(link|guid|pubdate|updated|published|date)(%b)>(%b)"
    % (_IGNORED, _PREFIX, _REST, _PREFIX, _REST, _TEXT)
)


def _listed_in_feed(text: bytes, start: int, codec: str) -> Iterator[Listed]:
    """The pages of a feed: the links of its entries and of itself, and where it goes on (RFC 5005 3)."""
    links: list[str] = []
    guid, changed_at = "", None
    for piece in _FEED_PIECES.finditer(text, start):
        boundary, name, written, content = piece.groups()
        if boundary:
            yield from (Listed(link, changed_at) for link in links or ([guid] if guid else []))
            links, guid, changed_at = [], "", None
        elif name is None:
            continue
        elif name.lower() == b"link":
            values = attributes(written)
            relation, href = values.get(b"rel", b"alternate").lower(), values.get(b"href", b"")
            if href and relation == b"next":
                yield Listed(_value(href, codec), is_page=False)
            elif relation == b"alternate" and (link := _value(href or content, codec)):
                links.append(link)
        elif name.lower() == b"guid":
            value = _value(content, codec)
            is_link = attributes(written).get(b"ispermalink", b"").lower() != b"false"
            guid = value if is_link and value.startswith(("http://", "https://")) else guid
        else:
            changed_at = changed_at or _time(_value(content, codec))
    yield from (Listed(link, changed_at) for link in links or ([guid] if guid else []))


_DECLARATION = re.compile(rb"""<\?xml\s[^>]{0,200}?encoding\s*=\s*["']([A-Za-z][A-Za-z0-9._:-]{0,39})["']""")


def _declared_codec(prolog: bytes) -> str:
    """The codec for the encoding that is declared in `prolog`; empty if none is, or UTF-8 or UTF-16."""
    declared = _DECLARATION.search(prolog)
    encoding = encoding_named(declared[1].decode("ascii")) if declared else None
    return "" if encoding is None or encoding.startswith("UTF-") else codec_of(encoding)


_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z0-9]{1,32});")
_NOT_TEXT = re.compile(rb"<!--(?s:.*?)(?:-->|\Z)|<!\[CDATA\[((?s:.*?))(?:\]\]>|\]\] {1,9}>(?=\s*+<)|\Z)")
_ASCII = bytes(range(128))


def _value(written: bytes, codec: str) -> str:
    """What is `written` in an element or attribute as text. What follows an unescaped `&` is left as it is. Bytes that are
    neither UTF-8 nor in the declared encoding are percent-encoded."""
    if b"<!" in written:
        text = "".join(
            part if number % 2 else _unescaped(part)
            for number, part in enumerate(_decoded(part or b"", codec) for part in _NOT_TEXT.split(written))
        )
    else:
        text = _unescaped(_decoded(written.strip(), codec))
    return text.strip()


def _unescaped(text: str) -> str:
    return _REFERENCE.sub(lambda reference: unescape(reference[0]), text) if "&" in text else text


def _decoded(written: bytes, codec: str) -> str:
    try:
        return written.decode()
    except UnicodeDecodeError:
        return written.decode(codec, "replace") if codec else quote_from_bytes(written, _ASCII)


def _time(text: str) -> float | None:
    """Seconds since 1970 of a W3C date and time (NOTE-datetime), which may be a year alone, or a year and month; or of one
    of RFC 822, which RSS has."""
    text = text.strip()
    if text[:1].isalpha():  # RFC 822, in RSS
        try:
            return parsedate_to_datetime(text).timestamp()
        except (ValueError, OverflowError):
            return None
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
    is_repaired: bool = False


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
    kind = _KINDS.get(sitemap.form, LinkKind.LISTED)
    follows_others = sitemap.form == "feed" or "alternate" in policy.link_kinds
    urls: dict[str, Url] = {}
    links: dict[str, Link] = {}
    hints: dict[str, float] = {}
    dropped: Counter[str] = Counter()
    for number, entry in enumerate(sitemap.entries):
        if not entry.is_page and not follows_others:
            continue
        try:
            listed = canonicalize(entry.loc, url, policy.rules)
        except BadUrl as error:
            dropped[error.reason] += 1
            continue
        room -= len(listed.href)
        if room < 0:
            dropped[EXCESS] = len(sitemap.entries) - number
            break
        if not entry.is_page and listed.href in urls:
            continue
        urls[listed.href] = listed
        of_entry = LinkKind.LINK if sitemap.form == "feed" and not entry.is_page else kind
        links[listed.href] = Link(listed.href, of_entry, max(0.0, entry.lastmod or 0.0))
        if entry.lastmod is not None or entry.priority is not None:
            hints[listed.href] = hint(entry, now)
    found = Extracted(links=tuple(links.values()), urls=tuple(urls.values()), dropped=dict(dropped))
    return SitemapLinks(found, hints, sitemap.error, sitemap.is_repaired)


_KINDS = {"sitemapindex": LinkKind.SITEMAP, "feed": LinkKind.ITEM}


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
