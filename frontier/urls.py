"""The canonical form of URLs.

A URL with two names would be fetched twice, and a domain with two names would get twice the requests that it allows. So
each URL has one canonical form, and all other code compares URLs, domains and origins as strings.

The canonical form is the serialisation of the WHATWG URL standard (https://url.spec.whatwg.org/), which converts the scheme
and the host to lower case, applies IDNA, normalises IPv4 and IPv6 addresses, and removes the default port and dot segments.
In addition:

1. The scheme is http or https.
2. User information and the fragment are removed. A crawler without credentials gets the same page without them.
3. The host has no trailing dot, and DNS can represent it: labels of 1 to 63 bytes, 253 bytes in all (RFC 1035 2.3.4).
4. Percent-encoded unreserved characters are decoded, and hex digits are in upper case (RFC 3986 6.2.2.1 and 6.2.2.2). If
   the path or query has a `%` that starts no escape, all escapes stay as they are, because decoding could create a new one.
5. Tracking and session parameters are removed according to `UrlRules`, from the query and from path segments
   (`;jsessionid=1`).
6. An empty query is removed: `/a?` becomes `/a`.

Everything that servers may distinguish stays: the order of parameters (unless `sort_query` is set), empty values, repeated
slashes, a trailing slash, the case of path and query, `%2F`, http and https, `www.`.

For editors: `canonicalize(canonicalize(x).href)` must return the same value again, and no text may raise anything but
`BadUrl`. Hypothesis tests both. Existing crawls store URLs in this form, so a change of it is a change of the key schema.
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Final, Literal
from urllib.parse import unquote

import ada_url
import can_ada
import msgspec

from frontier.domains import LONGEST_HOST, domain_of, shard_of, site_of
from frontier.errors import BadUrl
from frontier.url_rules import DEFAULT_RULES, UrlRules, tidy

__all__ = [
    "DEFAULT_RULES",
    "Reason",
    "Url",
    "UrlRules",
    "canonicalize",
    "canonicalize_links",
    "domain_of",
    "origin_of",
    "shard_of",
]

Reason = Literal["scheme", "host", "length", "syntax"]


class Url(msgspec.Struct, frozen=True, gc=False):
    """A URL in canonical form. `domain`: its registrable domain, the unit of queueing, leasing and rate limiting. `origin`:
    scheme, host, and port unless it is the default, the unit of robots.txt."""

    href: str
    domain: str
    origin: str


def canonicalize(text: str, base: str | None = None, rules: UrlRules = DEFAULT_RULES) -> Url:
    """The canonical form of `text`, resolved against the absolute URL `base` if it is given.

    Raises BadUrl with the reason `scheme` (not http or https), `host` (missing or invalid), `length` (longer than
    `rules.max_length`) or `syntax` (relative without a base, or an invalid base).
    """
    result = _join(text, None if base is None else _parse_base(base), rules)
    if isinstance(result, Url):
        return result
    raise BadUrl(text, result)


EXCESS = "excess"
"""The reason for links beyond the limits of `canonicalize_links`."""


def canonicalize_links(
    hrefs: Iterable[str],
    base: str,
    rules: UrlRules = DEFAULT_RULES,
    limit: int | None = None,
    max_bytes: int | None = None,
) -> tuple[dict[str, Url], dict[str, int]]:
    """The distinct canonical URLs of a page's links, by `href` and in order of appearance; and the number of rejected links
    by reason. `base`: a canonical URL.

    References to the page itself (empty, or only a fragment) are ignored. After `limit` URLs and rejected links, the others
    count as `excess`, and so do those from the one on with which the URLs would be longer than `max_bytes` together. Each
    time that a URL is repeated in another way of writing counts, because it takes time. Raises BadUrl if `base` is not an
    absolute http(s) URL.
    """
    if not base.startswith(_HTTP):
        raise BadUrl(base, "scheme")
    page: can_ada.URL | str | None = None
    path = base.partition("?")[0].partition("#")[0]
    directory = _directories(rules)[path[: path.rfind("/") + 1]]
    longest = _REMEMBERED_LENGTH - len(directory.url)
    found: dict[str, Url] = {}
    rejected: dict[str, int] = {}
    refused = 0
    distinct = dict.fromkeys(hrefs)
    if limit is not None and len(distinct) <= limit:
        limit = None  # it need not be compared with
    for href in distinct:
        if limit is not None and len(found) + refused == limit:
            if _without_fragment(href):
                rejected[EXCESS] = rejected.get(EXCESS, 0) + 1
            continue
        result = directory[href] if len(href) <= longest else _TO_PAGE
        if result is _TO_PAGE:
            text = _without_fragment(href)
            page = page or _parse_base(base)
            result = _join(text, page, rules) if text else None
        if isinstance(result, Url):
            if max_bytes is not None and (max_bytes := max_bytes - len(result.href)) < 0:
                limit, rejected[EXCESS] = len(found) + refused, 1
            else:
                found[result.href] = result
        elif result is not None:
            refused += 1
            rejected[result] = rejected.get(result, 0) + 1
    return found, rejected


def _without_fragment(href: str) -> str:
    """`href` without fragment and surrounding space; empty if it refers to the page itself."""
    if "#" in href:
        whole, _, _ = href.partition("#")
        if whole[-1:] > " ":  # a space before `#` belongs to the URL, one at the end does not
            href = whole
    if href[:1] <= " ":
        href = href.strip(_C0_AND_SPACE)
    return "" if href[:1] == "#" else href


def origin_of(href: str) -> str:
    """Scheme, host and port of the canonical URL `href`: the unit of robots.txt. `href` is not checked."""
    return href[: href.index("/", 8)]


# A URL or path that no parser would change is taken as it is. Any other link takes one call of a native parser, one lookup
# of its site, and normalisation if it contains `%`, `?` or `;`.

_HTTP = ("http://", "https://")
_C0_AND_SPACE = "".join(map(chr, range(0x21)))
LONGEST_WRITTEN = 4
"""Maximum length of a reference without its fragment before parsing, as a multiple of `max_length`. An unnecessary escape
takes three characters instead of one, and parameters may be removed. A data: URL may have millions of characters."""

_REMEMBERED_LINKS = 16_384  # 400 bytes each when typical: 6.5 MB
_REMEMBERED_LENGTH = 400  # characters of link and directory together
_REMEMBERED_BASES = 256


def _parse_base(base: str) -> can_ada.URL | str:
    """The URL `base`, as text if only ada_url accepts it (see `_parse`)."""
    try:
        return can_ada.parse(base)
    except (ValueError, TypeError):
        with suppress(ValueError, TypeError):
            return ada_url.normalize_url(base)
        raise BadUrl(base, "syntax") from None


_remembered_base = lru_cache(maxsize=_REMEMBERED_BASES)(_parse_base)
atexit.register(_remembered_base.cache_clear)  # URLs that outlive the library are reported as leaks


_PLAIN_SEGMENT = "[A-Za-z0-9_~-][A-Za-z0-9._~-]*+"
_PLAIN_HOST = "(?![^/]*xn--)(?:[a-z0-9-]++[.])*+[a-z][a-z0-9-]*+"  # one that ends in a number may be an IPv4 address
_plain = re.compile(
    f"(?:(https?://{_PLAIN_HOST})(?=/)|((?:[.][.]/)*+))(?:/|(?=[^#]))(?:{_PLAIN_SEGMENT}/)*+(?:{_PLAIN_SEGMENT})?+#?"
).fullmatch
"""Matches a URL or a path, absolute or relative, that no parser changes, apart from `../` at the beginning and `#` at the
end: its origin, or each `../`."""

_TO_PAGE: Final = "to page"


class _Directory(dict[str, Url | Reason | Literal["to page"] | None]):
    """Resolves the links of the pages in one directory, and remembers the results, because the pages of a site repeat the
    links of their menus. None is for references to the page itself, and `_TO_PAGE` for links that depend on more than the
    directory."""

    def __init__(self, url: str, directories: _Directories) -> None:
        self.url = url
        self._all = directories
        slash = url.index("/", 8)
        # None if the canonical form of the directory could depend on what is appended
        self._site = None if any(mark in url[slash:] for mark in "%;^") else site_of(url[:slash])

    def __missing__(self, href: str) -> Url | Reason | Literal["to page"] | None:
        self._all.take_room()
        answer = self[href] = self._plain_url(href) or self._resolved(href)
        return answer

    def _plain_url(self, href: str) -> Url | Reason | None:
        plain = _plain(href)
        site = plain and (site_of(plain[1]) if plain[1] else self._site)
        if not plain or not site:
            return None
        url, (domain, origin) = href.removesuffix("#"), site
        if not plain[1]:
            up = plain[2]
            url = (origin if url[0] == "/" else self._above(len(up) // 3) if up else self.url) + url[len(up) :]
        return Url(url, domain, origin) if len(url) <= self._all.rules.max_length else "length"

    def _above(self, levels: int) -> str:
        parts = self.url.split("/")
        return "/".join([*parts[: max(3, len(parts) - 1 - levels)], ""])

    def _resolved(self, href: str) -> Url | Reason | Literal["to page"] | None:
        text = _without_fragment(href)
        if not text:
            return None
        if text[0] in "?hH" and not text.startswith(_HTTP):
            return _TO_PAGE  # `?page=2` and `http:?page=2` keep the last segment of the base
        return self[text] if text != href else _join(text, _remembered_base(self.url), self._all.rules)


class _Directories(dict[str, _Directory]):
    """Directories by URL. All are forgotten when they have `_REMEMBERED_LINKS`."""

    def __init__(self, rules: UrlRules) -> None:
        self.rules = rules
        self._room = _REMEMBERED_LINKS

    def __missing__(self, url: str) -> _Directory:
        self.take_room()
        directory = self[url] = _Directory(url, self)
        return directory

    def take_room(self) -> None:
        """One more entry is remembered."""
        self._room -= 1
        if self._room < 0:
            self.clear()
            self._room = _REMEMBERED_LINKS


_directories = lru_cache(maxsize=8)(_Directories)


def _join(text: str, base: can_ada.URL | str | None, rules: UrlRules) -> Url | Reason:
    if len(text) > LONGEST_WRITTEN * rules.max_length:
        text = _without_fragment(text).strip(_C0_AND_SPACE)
        if len(text) > LONGEST_WRITTEN * rules.max_length:
            return _why_not(text[:64], "length")
    host = "" if text.isascii() and "%" not in text else _unconverted_host(text)
    if len(host) > LONGEST_HOST + len(".:65535"):
        return "host"  # checked first, because the time of the conversion grows faster than the length
    try:
        href = _parse(text, base, has_unconverted_host=bool(host))
    except TypeError:  # lone surrogates
        return _join(_without_surrogates(text), base, rules)
    except ValueError:
        return _why_not(text[:64], "syntax" if base is None else "host")
    if not href.startswith(_HTTP):
        return "scheme"
    slash = href.find("/", 8)
    end = href.find("#", slash)
    tail = href[slash:] if end < 0 else href[slash:end]
    site = site_of(href[:slash])
    if site is None:
        return "host"
    if "%" in tail or "?" in tail or ";" in tail or "^" in tail:
        tail = tidy(tail, rules)
    domain, origin = site
    if len(origin) + len(tail) > rules.max_length:
        return "length"
    return Url(origin + tail, domain, origin)


def _parse(text: str, base: can_ada.URL | str | None, has_unconverted_host: bool) -> str:
    """The serialised URL. Raises ValueError if there is none.

    can_ada takes a third of the time of ada_url, but has IDNA rules of an earlier version of the standard: it maps U+1E9E
    to `ss` (Unicode 15.1 maps it to U+00DF), rejects labels with `xn--` that do not decode, and accepts mixed directions
    (RFC 5893). So ada_url parses all texts whose host needs IDNA. can_ada also keeps `..` behind a segment that begins with
    a dot, so ada_url looks at its results with such segments.
    """
    if not has_unconverted_host and not isinstance(base, str):
        try:
            href = str((can_ada.parse(text) if base is None else base + text).href)
            return ada_url.normalize_url(href) if _DOT_SEGMENT.search(href) else href
        except ValueError:
            if "xn--" not in text.lower():
                raise
    text = _without_surrogates(text)
    if base is None:
        return ada_url.normalize_url(text)
    return ada_url.join_url(base if isinstance(base, str) else base.href, text)


_DOT_SEGMENT = re.compile(r"/(?:\.|%2e)", re.IGNORECASE)


def _without_surrogates(text: str) -> str:
    """`text` with lone surrogates replaced by U+FFFD, as the URL standard does (Infra, "scalar value string")."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_REMOVED = {ord(char): None for char in "\t\n\r"}
_AUTHORITY = re.compile(r"[\x00-\x20]*+(?:https?:[/\\]*+|[/\\]{2,}+)([^/\\?#]*+)", re.IGNORECASE)


def _unconverted_host(text: str) -> str:
    """The decoded host and port in `text`, if they contain escapes or characters outside ASCII, otherwise ""."""
    found = _AUTHORITY.match(text.translate(_REMOVED))  # the URL standard, 4.4: the parser removes them everywhere
    host = found[1].rpartition("@")[2] if found else ""
    return "" if host.isascii() and "%" not in host else unquote(host)


_SCHEME = re.compile(r"[\x00-\x20]*([a-z][a-z0-9+.-]*):", re.IGNORECASE)


def _why_not(start: str, otherwise: Reason) -> Reason:
    scheme = _SCHEME.match(start)
    if scheme is None:
        return otherwise
    if scheme[1].lower() not in ("http", "https"):
        return "scheme"
    return "length" if otherwise == "length" else "host"
