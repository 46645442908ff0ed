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
   (`;jsessionid=1`), and so are segments with the session of a site in ASP.NET (`/(S(1))/`).
6. An empty query is removed: `/a?` becomes `/a`.
7. An IPv6 address that stands for an IPv4 address (RFC 4291 2.5.5.2) is written as that.

Everything that servers may distinguish stays: the order of parameters (unless `sort_query` is set), empty values, repeated
slashes, a trailing slash, the case of path and query, `%2F`, http and https, `www.`.

For editors: `canonicalize(canonicalize(x).href)` must return the same value again, and no text may raise anything but
`BadUrl`. Hypothesis tests both. Existing crawls store URLs in this form, so a change of it is a change of the key schema.

`UrlRules` are the rules of a crawl for its URLs. `UrlPattern` is a regular expression that somebody has written for URLs;
what a site sends cannot make it take long.
"""

from __future__ import annotations

import codecs
import re
import warnings
from collections.abc import Iterable
from functools import cached_property, lru_cache
from ipaddress import IPv6Address
from typing import Any, Final, Literal
from urllib.parse import unquote

import ada_url
import msgspec
import pcre2  # type: ignore[import-untyped]

from frontier.domains import LONGEST_HOST, site_of
from frontier.errors import BadInput, BadUrl

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
"""Added by mailing tools and advertisers. Scripts in the page read them, and servers ignore them."""

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
"""Removed only if the value looks like a session token, because `sid` may also be the number of a story or a shop."""

_TOKEN = r"[0-9a-z]{16,}"  # JSESSIONID has 32 hex digits, PHPSESSID 26 or 32 characters, older servers 16 or more


_ASP_SESSION = re.compile(r"/\((?:[A-RT-Z]\([^()/]*+\))*+S\([0-9A-Za-z]{16,}\)(?:[A-Z]\([^()/]*+\))*+\)(?=/)")


class UrlRules(msgspec.Struct, frozen=True, dict=True, cache_hash=True):
    """Changes to URLs beyond the syntax. All replicas of a crawl must use the same rules.

    `strip_params`, `session_params`: names of parameters to remove, in any case; a trailing `*` matches any ending.
    `sort_query`: sort the parameters, which makes `?a=1&b=2` and `?b=2&a=1` one URL, and breaks the few sites where the
    order matters. `max_length`: maximum number of characters of the canonical form; the URLs of pages are shorter.
    """

    strip_params: tuple[str, ...] = TRACKING_PARAMS
    session_params: tuple[str, ...] = SESSION_PARAMS
    sort_query: bool = False
    max_length: int = 2048

    @cached_property
    def stripped(self) -> re.Pattern[str]:
        """Matches a complete `name=value` of a query that is to be removed."""
        tracking = f"(?:{_any_of(self.strip_params)})(?:=.*)?"
        session = f"(?:{_any_of(self.session_params)})={_TOKEN}.*"
        return re.compile(f"(?:{tracking}|{session})", re.IGNORECASE | re.DOTALL)

    @cached_property
    def stripped_from_path(self) -> Any:
        """Matches a session parameter of a path segment, including its semicolon (RFC 3986 3.3). Compiled to machine code,
        because `re` takes 70 ns for each semicolon, and a path may have 2,000 of them."""
        return pcre2.compile(f"(?i);(?:{_any_of(self.session_params, '[^=/;]*+')})={_TOKEN}[^/;]*")


def _any_of(names: tuple[str, ...], ending: str = "[^=]*+") -> str:
    # Possessive, so that matching takes linear time: an ending extends to the `=`, or to the end of the parameter.
    patterns = (re.escape(name.rstrip("*")) + (ending if name.endswith("*") else "") for name in names)
    # For an empty tuple, a pattern that matches nothing: an empty alternative would match everything.
    return "|".join(patterns) or "(?!)"


DEFAULT_RULES = UrlRules()


_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
_UNTIDY_ESCAPE = re.compile("%(?:[a-f][0-9A-Fa-f]|[0-9A-F][a-f]|2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])")
"""An escape in lower case, or of an unreserved character: ALPHA, DIGIT, - . _ ~ (RFC 3986 2.3)."""


_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_TIDY_ESCAPES = {
    f"%{high}{low}": char if (char := chr(int(high + low, 16))) in _UNRESERVED else f"%{high}{low}".upper()
    for high in "0123456789ABCDEFabcdef"
    for low in "0123456789ABCDEFabcdef"
}


def _tidy_escape(match: re.Match[str]) -> str:
    return _TIDY_ESCAPES[match[0]]


def tidy(tail: str, rules: UrlRules) -> str:
    """Normalise the escapes of path and query, and remove parameters. A removed parameter may contain the invalid escape
    that prevented the decoding of the others."""
    while _BAD_ESCAPE.search(tail):
        stripped = _without_params(tail, rules)
        if stripped == tail:
            return tail
        tail = stripped
    return _without_params(_UNTIDY_ESCAPE.sub(_tidy_escape, tail) if "%" in tail else tail, rules)


def _without_params(tail: str, rules: UrlRules) -> str:
    """`tail`, or a URL, without tracking and session parameters, and with `^` in its path escaped."""
    path, mark, query = tail.partition("?")
    if "^" in path:
        path = path.replace("^", "%5E")
    if ";" in path or "/(" in path:
        path = _without_sessions(path, rules)
    if not mark:
        return path
    kept = [pair for pair in query.split("&") if not rules.stripped.fullmatch(pair)]
    query = "&".join(sorted(kept) if rules.sort_query else kept)
    return f"{path}?{query}" if query else path


def _without_sessions(path: str, rules: UrlRules) -> str:
    stripped = rules.stripped_from_path.sub("", path)
    if rules.session_params:
        stripped = _ASP_SESSION.sub("", stripped)
    # `/..;sid=0123456789abcdef/` becomes a dot segment.
    return path if stripped == path else ada_url.URL(f"http://host{stripped}").pathname


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
    result = _join(text, None if base is None else _checked_base(base), rules)
    if isinstance(result, Url):
        return result
    raise BadUrl(text, result)


def stored_url(text: str, rules: UrlRules = DEFAULT_RULES) -> Url:
    """The canonical form of `text`, a URL that the crawl has written, with the key of its request if it has one
    (`frontier.entries`). Raises BadUrl like `canonicalize`."""
    return with_key(canonicalize(text, rules=rules), text.partition("#")[2])


def with_key(url: Url, key: str) -> Url:
    """The canonical `url` of a request with `key`, which may be empty."""
    return Url(f"{url.href}#{key}", url.domain, url.origin) if key else url


def as_written(text: str, base: str, rules: UrlRules = DEFAULT_RULES) -> str:
    """The URL `text`, resolved against the absolute URL `base`, with its path and query as they are written: points 4 to 6
    above are left out. Raises BadUrl like `canonicalize`."""
    result = _join(text, _checked_base(base), rules, is_tidied=False)
    if isinstance(result, Url):
        return result.href
    raise BadUrl(text, result)


def decoded_reference(sent: bytes) -> str:
    """The URL reference in a header field. Bytes that are not UTF-8 are percent-encoded as they are, as browsers do it."""
    return sent.decode("utf-8", "percent_encoded")


def _percent_encoded(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"%{byte:02X}" for byte in error.object[error.start : error.end]), error.end


codecs.register_error("percent_encoded", _percent_encoded)


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
    page = ""  # the base, once it was checked
    path = base.partition("?")[0].partition("#")[0]
    directories = _directories(rules)
    directory = directories[path[: path.rfind("/") + 1]]
    known = len(directory)
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
        result = directory[href]
        if result is _TO_PAGE:
            text = _without_fragment(href)
            page = page or _checked_base(base)
            result = _join(text, page, rules) if text else None
        if isinstance(result, Url):
            if max_bytes is not None and (max_bytes := max_bytes - len(result.href)) < 0:
                limit, rejected[EXCESS] = len(found) + refused, 1
            else:
                found[result.href] = result
        elif result is not None:
            refused += 1
            rejected[result] = rejected.get(result, 0) + 1
    directories.take_room(len(directory) - known)
    return found, rejected


def _without_fragment(href: str) -> str:
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


# A URL or path that no parser would change is taken as it is, but for parameters that are removed. Any other link takes one
# call of a native parser, one lookup of its site, and normalisation if it contains `%`, `?` or `;`.

_HTTP = ("http://", "https://")
_C0_AND_SPACE = "".join(map(chr, range(0x21)))
LONGEST_WRITTEN = 4
"""Maximum length of a reference without its fragment before parsing, as a multiple of `max_length`. An unnecessary escape
takes three characters instead of one, and parameters may be removed. A data: URL may have millions of characters."""

_REMEMBERED_LINKS = 16_384  # 400 bytes each when typical: 6.5 MB
_REMEMBERED_LENGTH = 400  # characters of link and directory together


def _checked_base(base: str) -> str:
    try:
        return ada_url.normalize_url(base)
    except ValueError:
        raise BadUrl(base, "syntax") from None


_PLAIN_SEGMENT = "[A-Za-z0-9_~-][A-Za-z0-9._~-]*+"
_PLAIN_HOST = "(?![^/]*xn--)(?:[a-z0-9-]++[.])*+[a-z][a-z0-9-]*+"  # one that ends in a number may be an IPv4 address
_plain = re.compile(
    f"(?:(https?://{_PLAIN_HOST})(?=/)|((?:[.][.]/)*+))(?:/|(?=[^#?]))(?:{_PLAIN_SEGMENT}/)*+(?:{_PLAIN_SEGMENT})?+"
    r"(\?[A-Za-z0-9_~@=&/.:,+-]++)?+#?"
).fullmatch
"""Matches a URL or a path, absolute or relative, that no parser changes, apart from `../` at the beginning and `#` at the
end: its origin, each `../`, and its query."""

_TO_PAGE: Final = "to page"


class _Directory(dict[str, Url | Reason | Literal["to page"] | None]):
    """Resolves the links of the pages in one directory, and remembers the results, because the pages of a site repeat the
    links of their menus. None is for references to the page itself, and `_TO_PAGE` for links that depend on more than the
    directory, and for long ones, which are not remembered."""

    def __init__(self, url: str, directories: _Directories) -> None:
        self.url = url
        self._all = directories
        slash = url.index("/", 8)
        # None if the canonical form of the directory could depend on what is appended
        self._site = None if any(mark in url[slash:] for mark in "%;^(") else site_of(url[:slash])

    def __missing__(self, href: str) -> Url | Reason | Literal["to page"] | None:
        if len(href) + len(self.url) > _REMEMBERED_LENGTH:
            return _TO_PAGE
        answer = self[href] = self._plain_url(href) or self._resolved(href)
        return answer

    def _plain_url(self, href: str) -> Url | Reason | None:
        plain = _plain(href)
        if not plain:
            return None
        start, up, query = plain.groups()
        site = site_of(start) if start else self._site
        if not site:
            return None
        url, (domain, origin) = href.removesuffix("#"), site
        if not start:
            url = (origin if url[0] == "/" else self._above(len(up) // 3) if up else self.url) + url[len(up) :]
        if query:
            url = _without_params(url, self._all.rules)
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
        return self[text] if text != href else _join(text, self.url, self._all.rules)


class _Directories(dict[str, _Directory]):
    """Directories by URL. All are forgotten after a page with which they have more than `_REMEMBERED_LINKS`."""

    def __init__(self, rules: UrlRules) -> None:
        self.rules = rules
        self._room = _REMEMBERED_LINKS

    def __missing__(self, url: str) -> _Directory:
        self.take_room(1)
        directory = self[url] = _Directory(url, self)
        return directory

    def take_room(self, links: int) -> None:
        """So many more are remembered."""
        self._room -= links
        if self._room < 0:
            self.clear()
            self._room = _REMEMBERED_LINKS


_directories = lru_cache(maxsize=8)(_Directories)


_MAPPED = re.compile(r"(?<=://)\[(::ffff:[0-9a-f]{1,4}:[0-9a-f]{1,4})\]")


def _unmapped(match: re.Match[str]) -> str:
    return str(IPv6Address(match[1]).ipv4_mapped)


def _join(text: str, base: str | None, rules: UrlRules, is_tidied: bool = True) -> Url | Reason:
    if len(text) > LONGEST_WRITTEN * rules.max_length:
        text = _without_fragment(text).strip(_C0_AND_SPACE)
        if len(text) > LONGEST_WRITTEN * rules.max_length:
            return _why_not(text[:64], "length")
    if not text.isascii():
        text = _without_surrogates(text)
    host = "" if text.isascii() and "%" not in text else _unconverted_host(text)
    if len(host) > LONGEST_HOST + len(".:65535"):
        return "host"  # checked first, because the time of the conversion grows faster than the length
    try:
        href = ada_url.normalize_url(text) if base is None else ada_url.join_url(base, text)
    except ValueError:
        return _why_not(text[:64], "syntax" if base is None else "host")
    if not href.startswith(_HTTP):
        return "scheme"
    if "[::ffff:" in href[:16]:
        href = _MAPPED.sub(_unmapped, href)
    slash = href.find("/", 8)
    end = href.find("#", slash)
    tail = href[slash:] if end < 0 else href[slash:end]
    site = site_of(href[:slash])
    if site is None:
        return "host"
    if is_tidied and ("%" in tail or "?" in tail or ";" in tail or "^" in tail or "/(" in tail):
        tail = tidy(tail, rules)
    domain, origin = site
    if len(origin) + len(tail) > rules.max_length:
        return "length"
    return Url(origin + tail, domain, origin)


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


STEPS = 100_000
"""A search ends after so many steps, which take less than a millisecond. Each character before a match takes one. PCRE2 has
a limit of its own, a hundred times as high."""

_VERBOSE = re.compile(r"\(\?[a-z]*x")
"""In such a pattern, spaces do not count, and # begins a comment."""

_REPEATS = re.compile(r"[*+{]")
"""Only what repeats a part can take long. Without it, the `re` module is used, which is six times as fast for a URL."""


def limited(pattern: str, steps: int) -> Any:
    """The expression that finds `pattern` in a text, as PCRE2 understands it, in at most `steps` steps, of which each
    character before the match takes one. It begins where the search does, so that the limit counts for the search as a
    whole, not again for each place where a match could begin. A search that takes more raises pcre2.LibraryError. Raises
    pcre2.PatternError or ValueError for what is not an expression."""
    pcre2.compile(pattern, jit=False)  # so that a bracket cannot close the group below
    end = "\n" if _VERBOSE.match(pattern) else ""  # of a comment
    return pcre2.compile(rf"(*LIMIT_MATCH={steps})\G(?s:.*?)\K(?:{pattern}{end})")


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    """The expression. Warnings that a later Python may read it in another way would name a line of this file."""
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        return re.compile(pattern)


class UrlPattern:
    """The regular expression `pattern`, in the common syntax of Python and PCRE2. `if_unknown`: the answer if the search
    ends too early to tell. Raises BadInput."""

    __slots__ = ("_search", "if_unknown", "pattern")

    def __init__(self, pattern: str, if_unknown: bool = False) -> None:
        self.pattern = pattern
        self.if_unknown = if_unknown
        try:
            found = _compiled(pattern)  # its errors are clearer
            if _REPEATS.search(pattern):
                found = limited(pattern, STEPS)
        except (re.error, pcre2.PatternError, ValueError, TypeError, RecursionError) as error:
            hint = "; write `.*` for any characters" if pattern.startswith("*") else ""
            raise BadInput(f"not a regular expression: {pattern!r}: {error}{hint}") from None
        self._search = found.search

    def __repr__(self) -> str:
        return f"<UrlPattern {self.pattern!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UrlPattern) and (self.pattern, self.if_unknown) == (other.pattern, other.if_unknown)

    def __hash__(self) -> int:
        return hash((self.pattern, self.if_unknown))

    def is_in(self, url: str) -> bool:
        try:
            return self._search(url) is not None
        except pcre2.LibraryError:
            return self.if_unknown


def is_in_url(pattern: str, url: str) -> bool:
    """Whether the regular expression `pattern` is found in `url`. Raises BadInput."""
    return _of(pattern).is_in(url)


_of = lru_cache(maxsize=1_000)(UrlPattern)
