"""One function decides what a URL is called and which domain it belongs to.

A URL that has two names is fetched twice, and a domain that has two names is hit twice as hard as it allows:
so there is one canonical form, and every other part compares URLs, domains and origins as plain strings.

The canonical form is the serialisation of the WHATWG URL standard (https://url.spec.whatwg.org/), which
lower-cases the scheme and the host, applies IDNA, rewrites IPv4 and IPv6 addresses, drops the default port
and resolves dot segments, and on top of that:

1. only http and https;
2. no user information and no fragment: neither names another page to a crawler without credentials;
3. no trailing dot on the host, and only a host that DNS can carry (labels of 1 to 63 bytes, 253 in all: RFC
   1035 2.3.4);
4. percent-encoded unreserved characters decoded and hex digits in upper case (RFC 3986 6.2.2.1 and 6.2.2.2),
   unless the path and query hold a `%` that starts no escape: decoding beside it could make a new one, so
   they stay as they are;
5. tracking and session parameters dropped as `UrlRules` says, from the query and from path segments
   (`;jsessionid=1`);
6. no empty query: `/a?` is `/a`.

Kept, because servers tell them apart: the order of parameters (unless `sort_query`), empty values, repeated
slashes, a trailing slash, letter case of path and query, `%2F`, http against https, `www.`.

For editors: `canonicalize(canonicalize(x).href)` must give the same value again, and nothing but `BadUrl` may
escape for any text; hypothesis holds both. Stored crawls know URLs by this form: a change of it is a change
of the key schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import Final, Literal
from urllib.parse import unquote

import ada_url
import can_ada
import msgspec

from frontier.domains import LONGEST_HOST, domain_of, shard_of, site_of
from frontier.errors import BadUrl

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

TRACKING_PARAMS = (
    "utm_*",
    "gclid",
    "gbraid",
    "wbraid",
    "dclid",
    "fbclid",
    "msclkid",
    "yclid",
    "mc_cid",
    "mc_eid",
)
"""Added by mailing tools and advertisers for scripts to read: no server answers differently for them."""

SESSION_PARAMS = (
    "jsessionid",
    "phpsessid",
    "aspsessionid*",
    "sessionid",
    "session_id",
    "sid",
    "cftoken",
    "zenid",
)
"""Dropped only where the value looks like a token, because `sid` is also the number of a story or a shop."""

_TOKEN = r"[0-9a-z]{16,}"  # JSESSIONID has 32 hex digits, PHPSESSID 26 or 32 characters, older servers 16 or more


class UrlRules(msgspec.Struct, frozen=True, dict=True, cache_hash=True):
    """What may be changed about a URL beyond its syntax. All replicas of a crawl must use equal rules.

    Names are compared without regard to case; a trailing `*` matches any ending.
    """

    strip_params: tuple[str, ...] = TRACKING_PARAMS
    session_params: tuple[str, ...] = SESSION_PARAMS
    sort_query: bool = False
    """Makes `?a=1&b=2` and `?b=2&a=1` one URL; wrong for the few sites where order counts."""
    max_length: int = 2048
    """Characters of the canonical form. Pages that people link to stay below; traps and blobs of data do
    not."""

    @cached_property
    def stripped(self) -> re.Pattern[str]:
        """Matches a whole `name=value` of a query that is to be dropped."""
        tracking = f"(?:{_any_of(self.strip_params)})(?:=.*)?"
        session = f"(?:{_any_of(self.session_params)})={_TOKEN}.*"
        return re.compile(f"(?:{tracking}|{session})", re.IGNORECASE | re.DOTALL)

    @cached_property
    def stripped_from_path(self) -> re.Pattern[str]:
        """Matches a session parameter of a path segment, its semicolon included (RFC 3986 3.3)."""
        return re.compile(f";(?:{_any_of(self.session_params, '[^=/;]*+')})={_TOKEN}[^/;]*", re.IGNORECASE)


def _any_of(names: tuple[str, ...], ending: str = "[^=]*+") -> str:
    # Linear: an ending is taken to the `=`, or to where the parameter ends, and not given back.
    patterns = (re.escape(name.rstrip("*")) + (ending if name.endswith("*") else "") for name in names)
    # A pattern that matches nothing stands for an empty tuple: an empty alternative would match everything.
    return "|".join(patterns) or "(?!)"


DEFAULT_RULES = UrlRules()


class Url(msgspec.Struct, frozen=True, gc=False):
    """A URL that can be crawled, in canonical form."""

    href: str
    domain: str
    """The registrable domain: the unit of queueing, leasing and rate limiting."""
    origin: str
    """Scheme, host, and port where it is not the default: the unit of robots.txt."""


def canonicalize(text: str, base: str | None = None, rules: UrlRules = DEFAULT_RULES) -> Url:
    """The canonical form of `text`, joined to the absolute URL `base` if that is given.

    Raises BadUrl with the reason `scheme` (not http or https), `host` (none, or one that cannot be), `length`
    (above `rules.max_length`) or `syntax` (relative without a base, or a base that is no URL).
    """
    result = _join(text, None if base is None else _parse_base(base), rules)
    if isinstance(result, Url):
        return result
    raise BadUrl(text, result)


EXCESS = "excess"
"""The reason for links beyond the limit of `canonicalize_links`."""


def canonicalize_links(
    hrefs: Iterable[str], base: str, rules: UrlRules = DEFAULT_RULES, limit: int | None = None
) -> tuple[dict[str, Url], dict[str, int]]:
    """The distinct canonical URLs of a page's links, by their text and in order of appearance; how many were rejected,
    by reason. `base`: a canonical URL.

    References to the page itself (empty, or a fragment alone) are passed over. After `limit` URLs and rejected texts
    the others count as `excess`. Raises BadUrl if `base` is not an absolute http(s) URL.
    """
    if not base.startswith(_HTTP):
        raise BadUrl(base, "scheme")
    join, directory = _joiner(rules), _directory(base)
    longest = _REMEMBERED_LENGTH - len(directory)
    found: dict[str, Url] = {}
    rejected: dict[str, int] = {}
    refused = 0
    for href in dict.fromkeys(hrefs):
        if len(found) + refused == limit:
            if _without_fragment(href):
                rejected[EXCESS] = rejected.get(EXCESS, 0) + 1
            continue
        result = join(directory, href) if len(href) <= longest else _TO_PAGE
        if result is _TO_PAGE:
            text = _without_fragment(href)
            result = _join(text, _parse_base(base), rules) if text else None
        if result is None:
            continue
        if isinstance(result, Url):
            found.setdefault(result.href, result)
        else:
            refused += 1
            rejected[result] = rejected.get(result, 0) + 1
    return found, rejected


def _without_fragment(href: str) -> str:
    """The reference `href` without its fragment and the space around; empty if it leads to the page itself."""
    if "#" in href:
        whole, _, _ = href.partition("#")
        if whole[-1:] > " ":  # a space before `#` belongs to the URL, one at the end does not
            href = whole
    if href[:1] <= " ":
        href = href.strip(_C0_AND_SPACE)
    return "" if href[:1] == "#" else href


def origin_of(href: str) -> str:
    """Scheme, host and port of a canonical URL: the unit of robots.txt. A slice: `href` is not checked."""
    return href[: href.index("/", 8)]


# The fast path: a plain path is added to the base; any other link costs one native parse, one look-up of its site, and the
# tidying of what has `%`, `?` or `;`.

_HTTP = ("http://", "https://")
_C0_AND_SPACE = "".join(map(chr, range(0x21)))
LONGEST_WRITTEN = 4
"""How many times `max_length` a reference may have, before it is parsed and without its fragment: escapes that need not be
take three characters for one, and parameters are dropped. A data: URL may have millions of characters."""

_REMEMBERED_LINKS = 16_384  # 460 bytes each when typical: 7.5 MB
_REMEMBERED_LENGTH = 400  # characters of link and directory together
_REMEMBERED_DIRECTORIES = 256


def _parse_base(base: str) -> can_ada.URL:
    try:
        return can_ada.parse(base)
    except (ValueError, TypeError):
        raise BadUrl(base, "syntax") from None


def _directory(href: str) -> str:
    path = href.partition("?")[0].partition("#")[0]
    return path[: path.rfind("/") + 1]


_PLAIN_SEGMENT = "[A-Za-z0-9_~-][A-Za-z0-9._~-]*+"
_is_plain = re.compile(f"(?:/|(?=.))(?:{_PLAIN_SEGMENT}/)*+(?:{_PLAIN_SEGMENT})?+").fullmatch
"""Matches a path, absolute or not, of which no parser changes anything."""


def _plain_site_of(directory: str) -> tuple[str, str] | None:
    """Domain and origin, if what is added to `directory` makes nothing in it mean anything else."""
    slash = directory.index("/", 8)
    return None if any(mark in directory[slash:] for mark in "%;^") else site_of(directory[:slash])


_TO_PAGE: Final = "to page"


@lru_cache(maxsize=8)
def _joiner(rules: UrlRules) -> Callable[[str, str], Url | Reason | Literal["to page"] | None]:
    """A join that remembers its results: pages of a site repeat the links of their menus, relative to one
    directory. None for references to the page itself; `_TO_PAGE` for those that depend on more than its directory."""
    parse = lru_cache(maxsize=_REMEMBERED_DIRECTORIES)(_parse_base)
    plain_site_of = lru_cache(maxsize=_REMEMBERED_DIRECTORIES)(_plain_site_of)

    @lru_cache(maxsize=_REMEMBERED_LINKS)
    def join(directory: str, href: str) -> Url | Reason | Literal["to page"] | None:
        if _is_plain(href) and (site := plain_site_of(directory)):
            domain, origin = site
            url = (origin if href[0] == "/" else directory) + href
            return Url(url, domain, origin) if len(url) <= rules.max_length else "length"
        text = _without_fragment(href)
        if not text:
            return None
        if text[0] in "?hH" and not text.startswith(_HTTP):
            return _TO_PAGE  # `?page=2` and `http:?page=2` keep the last segment of the base
        return join(directory, text) if text != href else _join(text, parse(directory), rules)

    return join


def _join(text: str, base: can_ada.URL | None, rules: UrlRules) -> Url | Reason:
    if len(text) > LONGEST_WRITTEN * rules.max_length:
        text = _without_fragment(text).strip(_C0_AND_SPACE)
        if len(text) > LONGEST_WRITTEN * rules.max_length:
            return _why_not(text[:64], "length")
    if len(text) > LONGEST_HOST and _has_long_host(text):
        return "host"
    try:
        href = _parse(text, base)
    except ValueError:
        return _why_not(text[:64], "syntax" if base is None else "host")
    except TypeError:  # lone surrogates: the standard works on scalar values, so they become U+FFFD
        return _join(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), base, rules)
    if not href.startswith(_HTTP):
        return "scheme"
    slash = href.find("/", 8)
    end = href.find("#", slash)
    tail = href[slash:] if end < 0 else href[slash:end]
    site = site_of(href[:slash])
    if site is None:
        return "host"
    if "%" in tail or "?" in tail or ";" in tail or "^" in tail:
        tail = _tidy(tail, rules)
    domain, origin = site
    if len(origin) + len(tail) > rules.max_length:
        return "length"
    return Url(origin + tail, domain, origin)


def _parse(text: str, base: can_ada.URL | None) -> str:
    """The serialised URL. Raises ValueError if there is none.

    can_ada is the fast parser (0.9 us to join a link, ada_url 3 us) with IDNA rules of an earlier revision of
    the standard: it refuses ASCII labels `xn--` that do not decode, and lets mixed directions (RFC 5893)
    pass. Both are only possible where a label is not plain ASCII, and there ada_url has the last word.
    """
    try:
        href: str = (can_ada.parse(text) if base is None else base + text).href
    except ValueError:
        if "xn--" not in text.lower() and text.isascii():
            raise
    else:
        if "xn--" not in href or "xn--" not in href[: href.find("/", 8)] or (text.isascii() and "%" not in text):
            return href
    return ada_url.normalize_url(text) if base is None else ada_url.join_url(base.href, text)


_REMOVED = {ord(char): None for char in "\t\n\r"}
_AUTHORITY = re.compile(r"[\x00-\x20]*+(?:https?:[/\\]*+|[/\\]{2,}+)([^/\\?#]*+)", re.IGNORECASE)


def _has_long_host(text: str) -> bool:
    """Whether the host in `text` is longer than one can be, as its ASCII form is no shorter. To make that form takes half
    a second for a host of 20,000 characters, and more than twice the time for twice the length."""
    if text.isascii() and "%" not in text:
        return False  # nothing to be made
    found = _AUTHORITY.match(text.translate(_REMOVED))  # URL 4.4: the parser removes them, wherever they stand
    return found is not None and len(unquote(found[1].rpartition("@")[2])) > LONGEST_HOST + len(".:65535")


_SCHEME = re.compile(r"[\x00-\x20]*([a-z][a-z0-9+.-]*):", re.IGNORECASE)


def _why_not(start: str, otherwise: Reason) -> Reason:
    scheme = _SCHEME.match(start)
    if scheme is None:
        return otherwise
    if scheme[1].lower() not in ("http", "https"):
        return "scheme"
    return "length" if otherwise == "length" else "host"


_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
_UNTIDY_ESCAPE = re.compile("%(?:[a-f][0-9A-Fa-f]|[0-9A-F][a-f]|2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])")
"""In lower case, or of an unreserved character: ALPHA, DIGIT, - . _ ~ (RFC 3986 2.3)."""


def _tidy_escape(match: re.Match[str]) -> str:
    code = int(match[0][1:], 16)
    char = chr(code)
    return char if char.isascii() and (char.isalnum() or char in "-._~") else f"%{code:02X}"


def _tidy(tail: str, rules: UrlRules) -> str:
    """Path and query with escapes normalised and parameters dropped: repeated until nothing changes, because
    a dropped parameter may take away the bad escape that kept the others from being decoded."""
    while (tidied := _tidied(tail, rules)) != tail:
        tail = tidied
    return tail


def _tidied(tail: str, rules: UrlRules) -> str:
    if "^" in tail:
        path, mark, query = tail.partition("?")
        tail = path.replace("^", "%5E") + mark + query
    if "%" in tail and not _BAD_ESCAPE.search(tail):
        tail = _UNTIDY_ESCAPE.sub(_tidy_escape, tail)
    path, mark, query = tail.partition("?")
    if ";" in path:
        path = _without_sessions(path, rules)
    if not mark:
        return path
    kept = [pair for pair in query.split("&") if not rules.stripped.fullmatch(pair)]
    query = "&".join(sorted(kept) if rules.sort_query else kept)
    return f"{path}?{query}" if query else path


def _without_sessions(path: str, rules: UrlRules) -> str:
    stripped = rules.stripped_from_path.sub("", path)
    # `/..;sid=0123456789abcdef/` has become a dot segment.
    return path if stripped == path else str(can_ada.parse(f"http://host{stripped}").pathname)
