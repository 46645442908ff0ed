"""From the octets of a page to its links and to what it says about itself. Pure.

Links come out canonical and once, in the order of their worth: those of `a` and `area`, then frames, then
`link` elements and a `meta` refresh. The document is a tree made by a WHATWG parser, so comments, scripts,
missing end tags and misnested tables mean what they mean to a browser; a few look-ups by tag name collect
everything.

Measured on 35 KB pages of documentation with 80 links: 0.25 ms for the tree, 0.04 ms for the look-ups, and
the joins of `frontier.urls`. Bodies that are not `crawler.markup.is_quick` belong in a thread.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, quote_from_bytes

from turbohtml import Document, Element, Namespace

from crawler.charset import HTML_TYPES, MediaType, is_html
from crawler.directives import directives
from crawler.markup import parse
from crawler.page import Link, LinkKind
from frontier.errors import BadUrl
from frontier.urls import DEFAULT_RULES, Url, UrlRules, canonicalize, canonicalize_links

_TITLE_LENGTH = 1_000  # characters
_LANG_LENGTH = 35  # characters (RFC 5646 4.4.1)
_REFRESH_LENGTH = 4_096  # characters


@dataclass(frozen=True, slots=True)
class ExtractPolicy:
    """What to take from a page.

    `obey_nofollow`: take no links from pages and elements that say nofollow. `link_rels`: of `link` elements
    those with one of these relations. `max_links`: links at most. `max_bytes`: octets of a body that are
    parsed, the rest is cut.
    """

    obey_nofollow: bool = True
    user_agent: str = "peercrawl"
    link_rels: frozenset[str] = frozenset({"canonical", "next", "prev", "alternate"})
    max_links: int = 10_000
    max_bytes: int = 4_194_304
    rules: UrlRules = DEFAULT_RULES


@dataclass(frozen=True, slots=True)
class Extracted:
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
    dropped: dict[str, int] = field(default_factory=dict)
    """Links left out, by reason: those of BadUrl, and `excess` above `max_links`."""
    cut: int = 0
    """Octets beyond `max_bytes`, not parsed."""
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
    document, encoding = parse(body[: policy.max_bytes], media.charset, media.essence not in ("", "text/html"))
    metas = document.find_all("meta")
    said = directives(
        ((meta.attr("name") or "", meta.attr("content") or "") for meta in metas), robots_tags, policy.user_agent
    )
    base = _base(document, url, policy.rules)
    written = _written(document, metas, policy) if not (said.nofollow and policy.obey_nofollow) else {}
    links, urls, dropped = _join(written, base, encoding, policy)
    return Extracted(
        links=links,
        urls=urls,
        title=_title(document),
        lang=_lang(document),
        charset=encoding.lower(),
        canonical=_canonical(document, base, policy.rules),
        nofollow=said.nofollow,
        noindex=said.noindex,
        noarchive=said.noarchive,
        dropped=dropped,
        cut=max(0, len(body) - policy.max_bytes),
    )


# What is written


def _written(document: Document, metas: list[Element], policy: ExtractPolicy) -> dict[LinkKind, list[str]]:
    """References by kind, as they stand in the document."""
    return {
        LinkKind.ANCHOR: _anchors(document, policy.obey_nofollow),
        LinkKind.FRAME: [
            element.attr("src") or "" for name in ("iframe", "frame") for element in document.find_all(name)
        ],
        LinkKind.LINK: [*_related(document, policy), *_refreshes(metas)],
    }


_FOLLOWED = 'a[href]:not([href^="#"]):not([rel~=nofollow i])'
_ALL = 'a[href]:not([href^="#"])'


def _anchors(document: Document, obey_nofollow: bool) -> list[str]:
    found = [element.attr("href") or "" for element in document.select(_FOLLOWED if obey_nofollow else _ALL)]
    areas = document.find_all("area")
    if areas:  # rare: not worth a selector
        found += [area.attr("href") or "" for area in areas if not (obey_nofollow and "nofollow" in _relations(area))]
    return found


def _relations(element: Element) -> set[str]:
    return set((element.attr("rel") or "").lower().split())


def _related(document: Document, policy: ExtractPolicy) -> Iterator[str]:
    for link in document.find_all("link"):
        relations = _relations(link)
        if not relations & policy.link_rels or (policy.obey_nofollow and "nofollow" in relations):
            continue
        if "alternate" in relations:
            # Style sheets, feeds and oEmbed descriptions are alternates, too, but no pages.
            essence = MediaType.parse(link.attr("type") or "text/html").essence
            if "stylesheet" in relations or essence not in HTML_TYPES:
                continue
        yield link.attr("href") or ""


_REFRESH = re.compile(
    r"""\s*(?:[0-9]+|(?=\.))[0-9.]*(?:\s*[;,]\s*|\s+)(?:url\s*=\s*)?(?:"([^"]*)|'([^']*)|(.*))""",
    re.IGNORECASE | re.DOTALL,
)
"""HTML 4.2.5.3, the shared declarative refresh steps."""


def _refreshes(metas: list[Element]) -> Iterator[str]:
    for meta in metas:
        if (meta.attr("http-equiv") or "").lower() == "refresh":
            target = _REFRESH.match((meta.attr("content") or "")[:_REFRESH_LENGTH])
            if target:
                yield target[1] or target[2] or target[3] or ""


def _title(document: Document) -> str:
    for title in document.find_all("title"):
        if title.namespace is Namespace.HTML:
            return " ".join(title.text[: 4 * _TITLE_LENGTH].split())[:_TITLE_LENGTH]
    return ""


def _lang(document: Document) -> str:
    root = document.root
    return ((root.attr("lang") or root.attr("xml:lang") or "").strip() if root else "")[:_LANG_LENGTH]


# What is meant


def _base(document: Document, url: str, rules: UrlRules) -> str:
    """The first `base` that has an href counts, unless it is no URL to be crawled (HTML 4.2.3)."""
    for base in document.find_all("base"):
        href = base.attr("href")
        if href is not None:
            try:
                return canonicalize(href, url, rules).href
            except BadUrl:
                return url
    return url


def _canonical(document: Document, base: str, rules: UrlRules) -> str:
    for link in document.find_all("link"):
        href = link.attr("href")
        if href and "canonical" in _relations(link):
            try:
                return canonicalize(href, base, rules).href
            except BadUrl:
                return ""
    return ""


def _join(
    written: Mapping[LinkKind, list[str]], base: str, encoding: str, policy: ExtractPolicy
) -> tuple[tuple[Link, ...], tuple[Url, ...], dict[str, int]]:
    found: dict[str, tuple[Link, Url]] = {}
    dropped: Counter[str] = Counter()
    for kind, hrefs in written.items():
        if not hrefs:
            continue
        if encoding not in _UNICODE:
            hrefs = [href if href.isascii() else _with_encoded_query(href, encoding) for href in hrefs]
        urls, rejected = canonicalize_links(hrefs, base, policy.rules, policy.max_links - len(found))
        dropped += rejected
        for url in urls:
            if url.href not in found:
                found[url.href] = (Link(url.href, kind), url)
    return tuple(link for link, _ in found.values()), tuple(url for _, url in found.values()), dict(dropped)


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
    encoded = "".join(char if char.isascii() else _encoded(char, encoding) for char in query)
    return f"{start}{mark}{encoded}{hash_mark}{fragment}"


def _encoded(char: str, encoding: str) -> str:
    try:
        return quote_from_bytes(char.encode(encoding))
    except UnicodeEncodeError:
        return f"%26%23{ord(char)}%3B"
    except LookupError:  # an encoding that Python has not: UTF-8 is the best guess
        return quote(char)
