"""From the bytes of a page to its links and to what it says about itself. Pure.

Links come out canonical and once, in the order of their worth: those of `a` and `area`, then frames, then
`link` elements and a `meta` refresh. `crawler.parse.tags` finds the tags without building a tree, so that comments,
scripts and quoted markup mean what they mean to a browser at half of a tree's cost.

A page of nothing but new links takes 7 us for each; what may take long belongs elsewhere than in the event loop, hence
`extract_quickly`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import repeat
from typing import NamedTuple
from urllib.parse import quote_from_bytes

import msgspec
from turbohtml import unescape

from crawler.page import Link, LinkKind
from crawler.parse.attributes import attribute_text, attributes
from crawler.parse.encoding import HTML_TYPES, MediaType, encoding_guessed, encoding_of_meta, encoding_sent, is_html
from crawler.parse.robots_meta import directives
from crawler.parse.tags import Tags, scan, scan_quickly
from frontier.errors import BadUrl
from frontier.urls import DEFAULT_RULES, LONGEST_WRITTEN, Url, UrlRules, canonicalize, canonicalize_links

_QUICK_US = 22_000
_QUICK_BYTES = 3_145_728
_UNCOUNTED_US = _QUICK_US / 262_144  # what a byte can take at most: a tag of three (`<?>`) is cheap
_COUNTED_AT_ONCE = 65_536
_QUICK_TAGS = 20_000
_TAG_US, _END_TAG_US, _SORTED_US, _READ_US = 0.33, 0.11, 0.2, 9.0
"""What it takes at most to find a tag, to sort it out, and to follow a link that is new or take another tag apart."""
_HREF_BYTE_US, _BYTE_US = 0.17, 0.33
"""What it takes besides for each byte: of hrefs, full of character references, and of other tags, full of attributes."""

_TITLE_LENGTH = 1_000  # characters
_LANG_LENGTH = 35  # characters (RFC 5646 4.4.1)


class ExtractPolicy(msgspec.Struct, frozen=True):
    """What to take from a page.

    `obey_nofollow`: take no links from pages and elements that say nofollow. `link_rels`: of `link` elements
    those with one of these relations. `max_links`: links at most.
    """

    obey_nofollow: bool = True
    user_agent: str = "peercrawl"
    link_rels: frozenset[str] = frozenset({"canonical", "next", "prev", "alternate"})
    max_links: int = 10_000
    rules: UrlRules = DEFAULT_RULES


class Extracted(msgspec.Struct, frozen=True, gc=False):
    """What a page holds. `links` and `urls` are the same links, as page record and as crawlable URL."""

    links: tuple[Link, ...] = ()
    urls: tuple[Url, ...] = ()
    title: str = ""
    lang: str = ""
    charset: str = ""  # WHATWG name in lower case
    canonical: str = ""
    nofollow: bool = False
    noindex: bool = False
    noarchive: bool = False
    dropped: dict[str, int] = {}
    """Links left out, by reason: those of BadUrl, and `excess` above `max_links`."""
    error: str | None = None
    """Why there was no text to parse (`type`: not HTML), or None."""


def extract(
    body: bytes, url: str, content_type: str, policy: ExtractPolicy, robots_tags: Sequence[str] = ()
) -> Extracted:
    """What the page at the canonical `url` holds.

    `body` is decoded content, `content_type` the whole header value or an empty string, `robots_tags` the
    values of its X-Robots-Tag headers. Never raises for what a site sent.
    """
    media = MediaType.parse(content_type)
    if not is_html(media.essence, body):
        said = directives((), robots_tags, policy.user_agent)
        return Extracted(nofollow=said.nofollow, noindex=said.noindex, noarchive=said.noarchive, error="type")
    return _extracted(url, _scanned(body, media, policy), policy, robots_tags)


def extract_quickly(
    body: bytes, url: str, content_type: str, policy: ExtractPolicy, robots_tags: Sequence[str] = ()
) -> Extracted | None:
    """As `extract`; None if that may take longer than 22 ms of a fast core, which nearly no page does."""
    media = MediaType.parse(content_type)
    if not is_html(media.essence, body):
        return extract(body, url, content_type, policy, robots_tags)
    if len(body) > _QUICK_BYTES or _us_to_scan(body) > _QUICK_US:
        return None
    encoding = encoding_sent(body, media.charset)
    tags = scan_quickly(_scannable(body, encoding), policy.obey_nofollow, _QUICK_TAGS)
    if tags is None or _us_to_read(tags) > _QUICK_US:
        return None
    return _extracted(url, _Scanned(body, media, tags, encoding), policy, robots_tags)


def _us_to_scan(body: bytes) -> float:
    """Microseconds at most. Looks no further than until it is known that there is time enough: to count is not free."""
    us = 0.0
    for at in range(0, len(body), _COUNTED_AT_ONCE):
        us_of_rest = (len(body) - at) * _UNCOUNTED_US
        if us + us_of_rest <= _QUICK_US:
            return us + us_of_rest
        us += body.count(b"<", at, at + _COUNTED_AT_ONCE) * _TAG_US
    return us if us <= _QUICK_US else us - body.count(b"</") * (_TAG_US - _END_TAG_US)


def _us_to_read(tags: Tags) -> float:
    """Microseconds at most, once they are found."""
    href_bytes = sum(map(len, tags.hrefs))
    each = (len(tags.hrefs) + tags.others) * _READ_US + tags.count * _SORTED_US
    return each + href_bytes * _HREF_BYTE_US + tags.other_bytes * _BYTE_US


def _extracted(url: str, scanned: _Scanned, policy: ExtractPolicy, robots_tags: Sequence[str]) -> Extracted:
    page = _decode_tags(scanned, policy)
    said = directives([(meta["name"], meta["content"]) for meta in page.metas], robots_tags, policy.user_agent)
    base = _base(page, url, policy.rules)
    written = _written(page, policy) if not (said.nofollow and policy.obey_nofollow) else {}
    links, urls, dropped = _join(written, base, page.encoding, policy)
    return Extracted(
        links=links,
        urls=urls,
        title=_title(page),
        lang=_lang(page),
        charset=page.encoding.lower(),
        canonical=_canonical(page, base, policy.rules),
        nofollow=said.nofollow,
        noindex=said.noindex,
        noarchive=said.noarchive,
        dropped=dropped,
    )


# What is written


class _Scanned(NamedTuple):
    """A body and the tags in it. `encoding`: None if nothing but the tags themselves can tell."""

    body: bytes
    media: MediaType
    tags: Tags
    encoding: str | None


class _Markup(msgspec.Struct, frozen=True):
    """The tags of a page and the WHATWG name of its encoding. The attribute values of `metas` and `links` are text; a
    missing one is empty."""

    tags: Tags
    encoding: str
    metas: list[_Attributes]
    links: list[_Attributes]

    @property
    def codec(self) -> str:
        return _codec(self.encoding)


class _Attributes(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return ""

    @cached_property
    def relations(self) -> frozenset[str]:
        """The words of `rel`."""
        return frozenset(self["rel"].lower().split())


_TRANSCODED = frozenset({"UTF-16LE", "UTF-16BE", "ISO-2022-JP", "replacement"})
"""Encodings in which the bytes of ASCII do not always mean ASCII."""


def _codec(encoding: str) -> str:
    return "utf-8" if encoding == "UTF-8" or encoding in _TRANSCODED else f"whatwg-{encoding}"


def _scanned(body: bytes, media: MediaType, policy: ExtractPolicy) -> _Scanned:
    encoding = encoding_sent(body, media.charset)
    return _Scanned(body, media, scan(_scannable(body, encoding), policy.obey_nofollow), encoding)


def _decode_tags(scanned: _Scanned, policy: ExtractPolicy) -> _Markup:
    """The tags in the page's encoding, once it is known."""
    body, media, tags, encoding = scanned
    metas = [_text_of(meta, "utf-8") for meta in tags.meta]
    if encoding is None:
        declared = (encoding_of_meta(meta["charset"], meta["http-equiv"], meta["content"]) for meta in metas)
        encoding = next(filter(None, declared), None) or encoding_guessed(
            body, is_xml=media.essence not in ("", "text/html")
        )
        if encoding in _TRANSCODED:
            tags = scan(_scannable(body, encoding), policy.obey_nofollow)
    codec = _codec(encoding)
    if codec != "utf-8":
        metas = [_text_of(meta, codec) for meta in tags.meta]
    return _Markup(tags, encoding, metas, [_text_of(link, codec) for link in tags.link])


def _scannable(body: bytes, encoding: str | None) -> bytes:
    if encoding in _TRANSCODED:
        return body.decode(f"whatwg-{encoding}", "replace").encode("utf-8", "replace")
    return body


_REMEMBERED = 1_024  # attribute lists: the head of a site's pages is much the same on all of them
_REMEMBERED_BYTES = 1_024  # longer ones are rare, and a site may send megabytes


def _text_of(written: bytes, codec: str) -> _Attributes:
    return (_remembered if len(written) <= _REMEMBERED_BYTES else _parse_attributes)(written, codec)


def _parse_attributes(written: bytes, codec: str) -> _Attributes:
    return _Attributes(
        (name.decode("latin-1"), attribute_text(value, codec)) for name, value in attributes(written).items()
    )


_remembered = lru_cache(maxsize=_REMEMBERED)(_parse_attributes)


def _written(page: _Markup, policy: ExtractPolicy) -> dict[LinkKind, list[str]]:
    """References by kind, as they stand in the document."""
    return {
        LinkKind.ANCHOR: attribute_text(b"\0".join(page.tags.hrefs), page.codec).split("\0"),
        LinkKind.FRAME: [_text_of(frame, page.codec)["src"] for frame in page.tags.frame],
        LinkKind.LINK: [*_related(page, policy), *_refreshes(page.metas)],
    }


def _related(page: _Markup, policy: ExtractPolicy) -> Iterator[str]:
    for link in page.links:
        relations = link.relations
        if not relations & policy.link_rels or (policy.obey_nofollow and "nofollow" in relations):
            continue
        if "alternate" in relations:
            # Style sheets, feeds and oEmbed descriptions are alternates, too, but no pages.
            essence = MediaType.parse(link["type"] or "text/html").essence
            if "stylesheet" in relations or essence not in HTML_TYPES:
                continue
        yield link["href"]


_REFRESH = re.compile(
    r"""\s*+(?:[0-9]++|(?=\.))[0-9.]*+(?:\s*+[;,]\s*+|\s++)(?:url\s*+=\s*+)?+(?:"([^"]*+)|'([^']*+)|(.*+))""",
    re.IGNORECASE | re.DOTALL,
)
"""HTML 4.2.5.3, the shared declarative refresh steps. Linear: no repetition gives back what it took."""


def _refreshes(metas: list[_Attributes]) -> Iterator[str]:
    for meta in metas:
        if meta["http-equiv"].lower() == "refresh":
            target = _REFRESH.match(meta["content"])
            if target:
                yield target[1] or target[2] or target[3] or ""


def _title(page: _Markup) -> str:
    content = page.tags.title
    if content is None:
        return ""
    return " ".join(unescape(content.lstrip()[: 16 * _TITLE_LENGTH].decode(page.codec, "replace")).split())[
        :_TITLE_LENGTH
    ]


def _lang(page: _Markup) -> str:
    for written in page.tags.html:
        root = _text_of(written, page.codec)
        return (root["lang"] or root["xml:lang"]).strip()[:_LANG_LENGTH]
    return ""


# What is meant


def _base(page: _Markup, url: str, rules: UrlRules) -> str:
    """The first `base` that has an href counts, unless it is no URL to be crawled (HTML 4.2.3)."""
    for written in page.tags.base:
        base = _text_of(written, page.codec)
        if "href" in base:
            try:
                return canonicalize(base["href"], url, rules).href
            except BadUrl:
                return url
    return url


def _canonical(page: _Markup, base: str, rules: UrlRules) -> str:
    for link in page.links:
        if "canonical" in link.relations and link["href"]:
            try:
                return canonicalize(link["href"], base, rules).href
            except BadUrl:
                return ""
    return ""


def _join(
    written: Mapping[LinkKind, list[str]], base: str, encoding: str, policy: ExtractPolicy
) -> tuple[tuple[Link, ...], tuple[Url, ...], dict[str, int]]:
    found: dict[str, Url] = {}
    links: list[Link] = []
    dropped: dict[str, int] = {}
    for kind, hrefs in written.items():
        if not hrefs:
            continue
        if encoding not in _UNICODE:
            longest = LONGEST_WRITTEN * policy.rules.max_length  # longer ones are refused, encoded or not
            hrefs = [
                href if len(href) > longest or href.isascii() else _with_encoded_query(href, encoding) for href in hrefs
            ]
        urls, rejected = canonicalize_links(hrefs, base, policy.rules, policy.max_links - len(found))
        dropped |= {reason: count + dropped.get(reason, 0) for reason, count in rejected.items()}
        new = [href for href in urls if href not in found] if found else urls
        links += map(Link, new, repeat(kind))
        found |= urls
    return tuple(links), tuple(found.values()), dropped


_UNICODE = frozenset({"UTF-8", "UTF-16LE", "UTF-16BE", "replacement", "x-user-defined"})
"""Encodings whose documents write their queries in UTF-8 (Encoding 4.3, get an output encoding)."""


def _with_encoded_query(href: str, encoding: str) -> str:
    """`href` with the characters of its query percent-encoded in the document's encoding, as browsers send
    them.

    URL 5.1 (percent-encode after encoding): what the encoding lacks becomes a numeric character reference.
    """
    start, mark, rest = href.partition("?")
    query, hash_mark, fragment = rest.partition("#")
    if not mark or query.isascii() or "#" in start:
        return href
    return f"{start}{mark}{query.translate(_escapes(encoding))}{hash_mark}{fragment}"


class _Escapes(dict[int, str]):
    """For `str.translate`: what the characters beyond ASCII become in a query. It takes some microseconds to find that out,
    and a page has the same ones again and again."""

    def __init__(self, encoding: str) -> None:
        try:
            self._codec = codecs.lookup(encoding).name
        except LookupError:  # an encoding that Python has not: UTF-8 is the best guess
            self._codec = "utf-8"

    def __missing__(self, code: int) -> str:
        if len(self) >= _ESCAPES:
            self.clear()
        char = chr(code)
        self[code] = char if char.isascii() else quote_from_bytes(char.encode(self._codec, "xmlcharrefreplace"))
        return self[code]


_ESCAPES = 32_768
"""Characters at most, 190 bytes each: more than Chinese and Japanese encodings have in two bytes."""
_escapes = lru_cache(maxsize=4)(_Escapes)
