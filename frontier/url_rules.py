"""The rules of a crawl for its URLs, and what they do to the path and the query of a URL: parameters are removed, and
escapes normalised."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import ada_url
import msgspec
import pcre2  # type: ignore[import-untyped]

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
    """`tail` without tracking and session parameters, and with `^` in its path escaped."""
    path, mark, query = tail.partition("?")
    if "^" in path:
        path = path.replace("^", "%5E")
    if ";" in path:
        path = _without_sessions(path, rules)
    if not mark:
        return path
    kept = [pair for pair in query.split("&") if not rules.stripped.fullmatch(pair)]
    query = "&".join(sorted(kept) if rules.sort_query else kept)
    return f"{path}?{query}" if query else path


def _without_sessions(path: str, rules: UrlRules) -> str:
    stripped = rules.stripped_from_path.sub("", path)
    # `/..;sid=0123456789abcdef/` becomes a dot segment.
    return path if stripped == path else ada_url.URL(f"http://host{stripped}").pathname
