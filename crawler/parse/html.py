"""Extracts the links of a page, and what the page says about itself. Pure.

Links are canonical and distinct, most valuable first: those of `a` and `area`, then frames, then `link` elements and a
`meta` refresh. `crawler.parse.tags` finds the tags.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple
from urllib.parse import quote_from_bytes

import msgspec

from crawler.page import Link, LinkKind
from crawler.parse.encoding import (
    HTML_TYPES,
    UNICODE,
    MediaType,
    as_text,
    codec_of,
    encoded,
    encoding_guessed,
    encoding_of_meta,
    encoding_sent,
    is_html,
    sniffed,
)
from crawler.parse.markup import as_html, attribute_text, attributes, content_text
from crawler.parse.requisites import embedded_in, embedded_in_css
from crawler.parse.tags import INLINE_PAGE, INLINE_TREE, Tags, TakesLong, is_plain, scan
from frontier.domains import host_of
from frontier.errors import BadUrl
from frontier.urls import DEFAULT_RULES, EXCESS, LONGEST_WRITTEN, Url, UrlRules, canonicalize, canonicalize_links

_KNOWN = frozenset({"nofollow", "noindex", "noarchive"})
_AI = ("noai", "noimageai")
_VALUED = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
"""Directives with a value after a colon. A colon also follows the name of an agent."""

_SEPARATORS = re.compile(r"[\s,;]+")
_AGENT = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")  # a token of RFC 9110 5.6.2, in lower case
_LONGEST = 4096  # characters of a value that are read, after leading white space


class Directives(msgspec.Struct, frozen=True):
    """`nofollow`: take no links from the page. `noindex` and `noarchive` are for users of the archive. `noai` and
    `noimageai`: who says this, such as `X-Robots-Tag`; empty if nobody does."""

    nofollow: bool = False
    noindex: bool = False
    noarchive: bool = False
    noai: str = ""
    noimageai: str = ""


def directives(metas: Iterable[tuple[str, str]], headers: Sequence[str], user_agent: str) -> Directives:
    """The directives in `metas` (name and content of each `meta` element) and in the X-Robots-Tag values `headers`.

    `user_agent`: our product token, compared without regard to case.
    """
    agent = user_agent.lower()
    said: set[str] = set()
    who: dict[str, str] = {}
    for name, content in metas:
        if name.lower() in ("robots", agent):
            _note(_SEPARATORS.split(content.lstrip()[:_LONGEST].lower()), f"meta {name.lower()}", said, who)
    for value in headers:
        _note(_from_header(value.lstrip()[:_LONGEST].lower(), agent), "X-Robots-Tag", said, who)
    if "none" in said:
        said |= {"nofollow", "noindex"}
    return Directives(**dict.fromkeys(_KNOWN & said, True), **who)  # type: ignore[arg-type]


def _note(words: Iterable[str], source: str, said: set[str], who: dict[str, str]) -> None:
    """Add `words` to `said`, and to `who` the first source of each word about AI."""
    said.update(words)
    for word in _AI:
        if word in said:
            who.setdefault(word, source)


def _from_header(value: str, agent: str) -> set[str]:
    """The words in `value` for `agent`: one in `noindex, otherbot: nofollow`."""
    said: set[str] = set()
    for_us = True
    for part in re.split("[,;]", value):
        name, colon, rest = part.partition(":")
        name = name.strip()
        if colon and (name in _VALUED or not _AGENT.fullmatch(name)):
            continue  # a value, or the rest of a date that contains a comma
        if colon:
            for_us = name == agent
            part = rest
        if for_us:
            said.add(part.strip())
    return said


NOFOLLOW = "nofollow"
"""Why links are left out whose page or element says so."""

_TITLE_LENGTH = 1_000  # characters
_LANG_LENGTH = 35  # characters (RFC 5646 4.4.1)
_TDM_LENGTH = 2_048  # characters: the longest policy that is read (`politeness.tdmrep`)


class ExtractPolicy(msgspec.Struct, frozen=True):
    """What to extract from a page.

    `obey_nofollow`: take no links from pages and elements marked nofollow. `link_kinds`: which links to take besides those
    of `a` and frames. `max_links`: the most links of a page; `max_link_bytes`: their total length at most. `requisites`:
    whether to find what pages and style sheets embed.
    """

    obey_nofollow: bool = True
    user_agent: str = "peercrawl"
    link_kinds: frozenset[str] = frozenset({"canonical", "next", "prev", "alternate", "feed"})
    max_links: int = 10_000
    max_link_bytes: int = 1 << 20
    rules: UrlRules = DEFAULT_RULES
    requisites: bool = False


class Extracted(msgspec.Struct, frozen=True, gc=False):
    """What a page contains. `links` and `urls` are the same links, for the page record and for the crawl. `noai`,
    `noimageai`: see `Directives`. `tdm`: name and content of its `meta` elements of the TDM Reservation Protocol."""

    links: tuple[Link, ...] = ()
    urls: tuple[Url, ...] = ()
    title: str = ""
    lang: str = ""
    charset: str = ""  # WHATWG name in lower case
    canonical: str = ""
    nofollow: bool = False
    noindex: bool = False
    noarchive: bool = False
    noai: str = ""
    noimageai: str = ""
    tdm: tuple[tuple[str, str], ...] = ()
    dropped: dict[str, int] = {}
    """Links left out, by reason: those of BadUrl, `excess` above `max_links` or `max_link_bytes`, and `nofollow`."""
    error: str | None = None
    """Why nothing was parsed (`type`: not HTML), or None."""
    requisites: tuple[Url, ...] = ()
    """What the page embeds, if that is wanted."""


def extract(
    body: bytes,
    url: str,
    content_type: str,
    policy: ExtractPolicy,
    robots_tags: Sequence[str] = (),
    is_inline: bool = False,
    link_header: str = "",
) -> Extracted:
    """What the page at the canonical `url` contains.

    `body`: decoded content; `content_type`: the whole header value, or an empty string; `robots_tags`: the values of its
    X-Robots-Tag headers; `link_header`: those of its Link headers as one list. `is_inline`: raise TakesLong if this page
    takes much more time than usual for its size. Raises nothing else, whatever a site sent.
    """
    media = MediaType.parse(content_type)
    sent = _links_sent(link_header, url, policy.rules) if link_header else []
    essence = sniffed(media.essence, body)
    if not is_html(essence, body):
        said = directives((), robots_tags, policy.user_agent)
        related = (
            {LinkKind.LINK: _related(sent, policy)} if sent and not (said.nofollow and policy.obey_nofollow) else {}
        )
        links, urls, dropped = _join(related, url, "UTF-8", policy)
        of_header = {"links": links, "urls": urls, "dropped": dropped, "canonical": _canonical(sent, url, policy.rules)}
        if policy.requisites and essence == "text/css":
            of_header["requisites"] = _requisites_of_css(body, url, media, policy, is_inline)
        return Extracted(**msgspec.structs.asdict(said), **of_header, error="type")  # type: ignore[arg-type]
    page = _read(body, MediaType(essence, media.charset), url, policy, is_inline)
    named = [(meta["name"], meta["content"]) for meta in page.metas]
    said = directives(named, robots_tags, policy.user_agent)
    base = _base(page, url, policy.rules)
    if is_inline and page.tags.are_many_for(base):
        raise TakesLong
    written = _written(page, sent, policy)
    if not _EMBEDDED.isdisjoint(policy.link_kinds):
        if is_inline and len(body) > INLINE_TREE:
            raise TakesLong
        written[LinkKind.LINK] += _embedded(_transcoded(body, page.encoding), page.codec, policy.link_kinds)
    canonical = _canonical(page.links, base, policy.rules) or (_canonical(sent, url, policy.rules) if sent else "")
    unfollowed = len(page.tags.unfollowed)
    if said.nofollow and policy.obey_nofollow:
        _, left_out, _ = _join(written, base, page.encoding, policy)
        unfollowed += len({to.href for to in left_out} - {url, canonical})
        written = {}
    links, urls, dropped = _join(written, base, page.encoding, policy)
    if unfollowed:
        dropped[NOFOLLOW] = unfollowed
    if page.tags.is_cut:
        dropped[EXCESS] = dropped.get(EXCESS, 0) + 1
    return Extracted(
        links=links,
        urls=urls,
        title=_title(page),
        lang=_lang(page),
        charset=page.encoding.lower(),
        canonical=canonical,
        **msgspec.structs.asdict(said),
        tdm=tuple((name.lower(), content[:_TDM_LENGTH]) for name, content in named if name[:4].lower() == "tdm-"),
        dropped=dropped,
        requisites=_requisites(body, base, page, essence, policy, is_inline) if policy.requisites else (),
    )


# The markup


class _Markup(msgspec.Struct, frozen=True):
    """The tags of a page, the WHATWG name of its encoding, and the codec for it."""

    tags: Tags
    encoding: str
    codec: str
    metas: list[_Attributes]
    links: list[_LinkElement]


class _Attributes(dict[str, str]):
    """The attribute values of a tag as text, which are decoded when they are asked for. A missing one is empty."""

    def __init__(self, written: bytes, codec: str) -> None:
        self._values, self._codec = attributes(written), codec

    def __missing__(self, name: str) -> str:
        written = self._values.get(name.encode())
        value = self[name] = attribute_text(written, self._codec) if written else ""
        return value


_FEED_TYPES = frozenset({"application/rss+xml", "application/atom+xml", "application/feed+json", "application/rdf+xml"})


class _LinkElement(NamedTuple):
    """What a `link` element or a Link header says. `relations`: the words of its `rel`; `kinds`: the kinds of link that it
    is. Style sheets and oEmbed descriptions are alternates too, but neither pages nor feeds."""

    href: str
    relations: frozenset[str]
    kinds: frozenset[str]

    @classmethod
    def made(cls, href: str, rel: str, media_type: str) -> _LinkElement:
        relations = frozenset(rel.lower().split())
        if "alternate" not in relations:
            return cls(href, relations, relations)
        essence = MediaType.parse(media_type or "text/html").essence
        if "stylesheet" in relations or (essence not in HTML_TYPES and essence not in _FEED_TYPES):
            return cls(href, relations, frozenset())
        return cls(href, relations, relations if essence in HTML_TYPES else _FEED)

    @classmethod
    def of(cls, written: bytes, codec: str) -> _LinkElement:
        values = attributes(written)
        return cls.made(*[attribute_text(values.get(name, b""), codec) for name in (b"href", b"rel", b"type")])


_TRANSCODED = frozenset({"UTF-16LE", "UTF-16BE", "ISO-2022-JP", "replacement"})
"""Encodings in which the bytes of ASCII do not always mean ASCII."""


def _read(body: bytes, media: MediaType, url: str, policy: ExtractPolicy, is_inline: bool) -> _Markup:
    is_xml = media.essence != "text/html"
    encoding = encoding_sent(body, media.charset)
    tags = _scanned(body, encoding, is_xml, policy, is_inline)
    metas = [_text_of(meta, "utf-8") for meta in tags.meta]
    if encoding is None:
        declared = (encoding_of_meta(meta["charset"], meta["http-equiv"], meta["content"]) for meta in metas)
        encoding = next(filter(None, declared), None) or encoding_guessed(body, is_xml, host_of(url))
        if encoding in _TRANSCODED:
            tags = _scanned(body, encoding, is_xml, policy, is_inline)
    codec = "utf-8" if encoding in _TRANSCODED else codec_of(encoding)
    if codec != "utf-8":
        metas = [_text_of(meta, codec) for meta in tags.meta]
    return _Markup(tags, encoding, codec, metas, [_link_of(link, codec) for link in tags.link])


def _scanned(body: bytes, encoding: str | None, is_xml: bool, policy: ExtractPolicy, is_inline: bool) -> Tags:
    if is_inline and _takes_long(body, encoding, is_xml):
        raise TakesLong
    body = _transcoded(body, encoding)
    return scan(as_html(body) if is_xml else body, policy.obey_nofollow, is_inline)


def _transcoded(body: bytes, encoding: str | None) -> bytes:
    return body.decode(codec_of(encoding), "replace").encode("utf-8", "replace") if encoding in _TRANSCODED else body


def _takes_long(body: bytes, encoding: str | None, is_xml: bool) -> bool:
    if is_xml:
        return len(body) > INLINE_TREE
    return len(body) > INLINE_PAGE and (encoding in _TRANSCODED or not is_plain(body))


_REMEMBERED = 1_024  # attribute lists: the heads of a site's pages are much the same
_REMEMBERED_BYTES = 1_024  # longer attribute lists are rare, and a site may send megabytes


def _text_of(written: bytes, codec: str) -> _Attributes:
    return (_remembered if len(written) <= _REMEMBERED_BYTES else _Attributes)(written, codec)


def _link_of(written: bytes, codec: str) -> _LinkElement:
    return (_remembered_link if len(written) <= _REMEMBERED_BYTES else _LinkElement.of)(written, codec)


_remembered = lru_cache(maxsize=_REMEMBERED)(_Attributes)
_remembered_link = lru_cache(maxsize=_REMEMBERED)(_LinkElement.of)


def _written(page: _Markup, sent: list[_LinkElement], policy: ExtractPolicy) -> dict[LinkKind, list[str]]:
    """References by kind, as written in the document. `sent`: what its Link headers say."""
    hrefs = page.tags.hrefs
    return {
        LinkKind.ANCHOR: attribute_text(b"\0".join(hrefs), page.codec).split("\0") if hrefs else [],
        LinkKind.FRAME: [_text_of(frame, page.codec)["src"] for frame in page.tags.frame],
        LinkKind.LINK: [*_related([*page.links, *sent], policy), *_refreshes(page.metas)],
        LinkKind.FEED: [link.href for link in page.links if link.kinds == _FEED] if "feed" in policy.link_kinds else [],
    }


_FEED = frozenset({"feed"})


def _related(links: list[_LinkElement], policy: ExtractPolicy) -> list[str]:
    avoided = "nofollow" if policy.obey_nofollow else ""
    return [
        href
        for href, relations, kinds in links
        if not kinds.isdisjoint(policy.link_kinds) and kinds != _FEED and avoided not in relations
    ]


_EMBEDDED = frozenset({"src", "srcset", "data-src", "json-ld"})
_EMBEDDING = re.compile(
    rb"""(?is)<!--.*?(?:-->|\Z)|<script(?=[\s/>])([^>]*+)>(.*?)(?:</script|\Z)"""
    rb"""|<(?:img|source|video|audio|track|embed|iframe)(?=[\s/])((?:[^>"']++|"[^"]*+"|'[^']*+'|["'])*+)>"""
)
_CANDIDATE = re.compile(r"[^\s,]\S*+(?:\s++[^\s,]++)?")


def _embedded(page: bytes, codec: str, kinds: frozenset[str]) -> list[str]:
    """The URLs of images and media, and those in JSON-LD, which few crawls follow."""
    found: list[str] = []
    # Without an end, each of many tags would be read to the end of the page.
    for script, content, media in _EMBEDDING.findall(page, 0, page.rfind(b">") + 1):
        if b"ld+json" in script and "json-ld" in kinds:
            found += _urls_of_json(content)
        elif media:
            values = _Attributes(media, codec)
            found += [values[name] for name in ("src", "data-src") if name in kinds]
            for name, kind in (("srcset", "srcset"), ("data-srcset", "data-src")):
                if kind in kinds:
                    found += [one.split()[0].rstrip(",") for one in _CANDIDATE.findall(values[name])]
    return [url for url in found if url]


def _urls_of_json(content: bytes) -> list[str]:
    try:
        left = [msgspec.json.decode(content.translate(None, b"\r\n\t"))]
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return []
    found: list[str] = []
    while left:
        value = left.pop()
        if isinstance(value, dict):
            found += [url for url in (value.get("url"),) if isinstance(url, str)]
            left += value.values()
        elif isinstance(value, list):
            left += value
    return found


def _requisites(
    body: bytes, base: str, page: _Markup, essence: str, policy: ExtractPolicy, is_inline: bool
) -> tuple[Url, ...]:
    if is_inline and len(body) > INLINE_TREE:
        raise TakesLong
    markup = as_html(body) if essence != "text/html" else body
    return _embedded_urls(embedded_in(markup, page.encoding), base, page.encoding, policy)


def _requisites_of_css(
    body: bytes, url: str, media: MediaType, policy: ExtractPolicy, is_inline: bool
) -> tuple[Url, ...]:
    if is_inline and len(body) > INLINE_TREE:
        raise TakesLong
    return _embedded_urls(embedded_in_css(as_text(body, media.charset)), url, "UTF-8", policy)


def _embedded_urls(references: list[str], base: str, encoding: str, policy: ExtractPolicy) -> tuple[Url, ...]:
    """The URLs of `references`, with all their parameters, because replay looks for them as they are in the page."""
    policy = msgspec.structs.replace(policy, rules=_all_kept(policy.rules.max_length))
    return _join({LinkKind.LINK: references}, base, encoding, policy)[1]


@lru_cache
def _all_kept(max_length: int) -> UrlRules:
    return UrlRules((), (), max_length=max_length)


_LINK_VALUE = re.compile(
    r"""<([^<>]*+)>((?:\s*+;\s*+[^\s=;,"]++(?:\s*+=\s*+(?:"(?:[^"\\]++|\\.)*+"?|[^\s;,"]*+))?+)*+)""", re.DOTALL
)
_LINK_PARAMETER = re.compile(r""";\s*+([^\s=;,"]++)\s*+=\s*+(?:"((?:[^"\\]++|\\.)*+)"?|([^\s;,"]*+))""", re.DOTALL)
_MAY_RELATE = re.compile("(?i)canonical|next|prev|alternate")


def _links_sent(header: str, url: str, rules: UrlRules) -> list[_LinkElement]:
    """What the Link header of the page at `url` says (RFC 8288 3), with canonical URLs, as its base may be another one."""
    found = []
    for href, written in _LINK_VALUE.findall(header) if _MAY_RELATE.search(header) else ():
        values = {name.lower(): quoted or bare for name, quoted, bare in reversed(_LINK_PARAMETER.findall(written))}
        if "anchor" not in values and (target := _joined(href.strip(), url, rules)):
            found.append(_LinkElement.made(target, values.get("rel", ""), values.get("type", "")))
    return found


_REFRESH = re.compile(
    r"""\s*+(?:[0-9]++|(?=\.))[0-9.]*+(?:\s*+[;,]\s*+|\s++)(?:url\s*+=\s*+)?+(?:"([^"]*+)|'([^']*+)|(.*+))""",
    re.IGNORECASE | re.DOTALL,
)
"""HTML 4.2.5.3, the shared declarative refresh steps. Linear: no repetition gives back what it matched."""


def _refreshes(metas: list[_Attributes]) -> Iterator[str]:
    for meta in metas:
        if meta["http-equiv"].lower() == "refresh":
            target = refresh_target(meta["content"])
            if target is not None:
                yield target


def refresh_target(value: str) -> str | None:
    """Where a `meta` refresh with the content `value`, or the header field Refresh, leads; None if it leads nowhere."""
    target = _REFRESH.match(value)
    return (target[1] or target[2] or target[3] or "") if target else None


def _title(page: _Markup) -> str:
    start = (page.tags.titles[0] if page.tags.titles else b"").lstrip()[: 16 * _TITLE_LENGTH]
    return " ".join(content_text(start, page.codec).split())[:_TITLE_LENGTH]


def _lang(page: _Markup) -> str:
    if not page.tags.html:
        return ""
    root = _text_of(page.tags.html[0], page.codec)
    return (root["lang"] or root["xml:lang"]).strip()[:_LANG_LENGTH]


# The URLs


def _base(page: _Markup, url: str, rules: UrlRules) -> str:
    """The URL to which references are joined: that of the first `base` with an href, if it can be crawled (HTML 4.2.3)."""
    hrefs = (_text_of(written, page.codec)["href"] for written in page.tags.base if b"href" in attributes(written))
    href = next(hrefs, None)
    return url if href is None else _joined(href, url, rules) or url


def _canonical(links: list[_LinkElement], base: str, rules: UrlRules) -> str:
    hrefs = (link.href for link in links if "canonical" in link.relations and link.href)
    return _joined(next(hrefs, ""), base, rules)


def _joined(href: str, base: str, rules: UrlRules) -> str:
    try:
        return canonicalize(href, base, rules).href if href else ""
    except BadUrl:
        return ""


def _join(
    written: Mapping[LinkKind, list[str]], base: str, encoding: str, policy: ExtractPolicy
) -> tuple[tuple[Link, ...], tuple[Url, ...], dict[str, int]]:
    found: dict[str, Url] = {}
    links: list[Link] = []
    dropped: dict[str, int] = {}
    room: int | None = policy.max_link_bytes
    if sum(map(len, written.values())) * policy.rules.max_length <= policy.max_link_bytes:
        room = None  # they need not be counted
    for kind, hrefs in written.items():
        if not hrefs:
            continue
        if encoding not in UNICODE:
            longest = LONGEST_WRITTEN * policy.rules.max_length  # longer ones are rejected, encoded or not
            hrefs = [
                href if len(href) > longest or href.isascii() else _with_encoded_query(href, encoding) for href in hrefs
            ]
        urls, rejected = canonicalize_links(hrefs, base, policy.rules, policy.max_links - len(found), room)
        room = None if room is None else room - sum(map(len, urls))
        dropped |= {reason: count + dropped.get(reason, 0) for reason, count in rejected.items()}
        new = [href for href in urls if href not in found] if found else urls
        links += map(Link, new, repeat(kind))
        found |= urls
    return tuple(links), tuple(found.values()), dropped


def _with_encoded_query(href: str, encoding: str) -> str:
    """`href` with its query percent-encoded in the document's encoding, as browsers send it (URL 5.1, percent-encode after
    encoding)."""
    start, mark, rest = href.partition("?")
    query, hash_mark, fragment = rest.partition("#")
    if not mark or query.isascii() or "#" in start:
        return href
    quoted = quote_from_bytes(encoded(query, encoding, "escaped_references"), _ASCII)
    return f"{start}{mark}{quoted}{hash_mark}{fragment}"


_ASCII = bytes(range(128)).replace(b"#", b"")
"""The URL parser escapes what needs it. `#` may be half of a character in ISO-2022-JP."""


def _escaped_references(error: UnicodeError) -> tuple[str, int]:
    """A character that the encoding lacks becomes a numeric character reference, percent-encoded."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(f"%26%23{ord(char)}%3B" for char in lacking), error.end


codecs.register_error("escaped_references", _escaped_references)
