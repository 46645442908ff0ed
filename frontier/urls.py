"""One function decides what a URL is called and which domain it belongs to.

A URL that has two names is fetched twice, and a domain that has two names is hit twice as hard as it allows: so there is
one canonical form, and every other part compares URLs, domains and origins as plain strings.

The canonical form is the serialisation of the WHATWG URL standard (https://url.spec.whatwg.org/), which lower-cases the
scheme and the host, applies IDNA, rewrites IPv4 and IPv6 addresses, drops the default port and resolves dot segments,
and on top of that:

1. only http and https;
2. no user information and no fragment: neither names another page to a crawler without credentials;
3. no trailing dot on the host, and only a host that DNS can carry (labels of 1 to 63 octets, 253 in all: RFC 1035 2.3.4);
4. percent-encoded unreserved characters decoded and hex digits in upper case (RFC 3986 6.2.2.1 and 6.2.2.2), unless the
   path and query hold a `%` that starts no escape: decoding beside it could make a new one, so they stay as they are;
5. tracking and session parameters dropped as `UrlRules` says, from the query and from path segments (`;jsessionid=1`);
6. no empty query: `/a?` is `/a`.

Kept, because servers tell them apart: the order of parameters (unless `sort_query`), empty values, repeated slashes, a
trailing slash, letter case of path and query, `%2F`, http against https, `www.`.

For editors: `canonicalize(canonicalize(x).href)` must give the same value again, and nothing but `BadUrl` may escape for
any text; hypothesis holds both. Stored crawls know URLs by this form: a change of it is a change of the key schema.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Literal

import can_ada
import tldextract
import xxhash

from frontier.errors import BadUrl

Reason = Literal["scheme", "host", "length", "syntax"]

TRACKING_PARAMS = ("utm_*", "gclid", "gbraid", "wbraid", "dclid", "fbclid", "msclkid", "yclid", "mc_cid", "mc_eid")
"""Added by mailing tools and advertisers for scripts to read: no server answers differently for them."""

SESSION_PARAMS = ("jsessionid", "phpsessid", "aspsessionid*", "sessionid", "session_id", "sid", "cftoken", "zenid")
"""Dropped only where the value looks like a token, because `sid` is also the number of a story or a shop."""

_TOKEN = r"[0-9a-z]{16,}"  # JSESSIONID has 32 hex digits, PHPSESSID 26 or 32 characters, older servers 16 or more


@dataclass(frozen=True)
class UrlRules:
    """What may be changed about a URL beyond its syntax. All replicas of a crawl must use equal rules.

    Names are compared without regard to case; a trailing `*` matches any ending.
    """

    strip_params: tuple[str, ...] = TRACKING_PARAMS
    session_params: tuple[str, ...] = SESSION_PARAMS
    sort_query: bool = False
    """Makes `?a=1&b=2` and `?b=2&a=1` one URL; wrong for the few sites where order counts."""
    max_length: int = 2048
    """Characters of the canonical form. Pages that people link to stay below; traps and blobs of data do not."""

    @cached_property
    def stripped(self) -> re.Pattern[str]:
        """Matches a whole `name=value` of a query that is to be dropped."""
        tracking = f"(?:{_any_of(self.strip_params)})(?:=.*)?"
        session = f"(?:{_any_of(self.session_params)})={_TOKEN}.*"
        return re.compile(f"(?:{tracking}|{session})", re.IGNORECASE | re.DOTALL)

    @cached_property
    def stripped_from_path(self) -> re.Pattern[str]:
        """Matches a session parameter of a path segment, its semicolon included (RFC 3986 3.3)."""
        return re.compile(f";(?:{_any_of(self.session_params)})={_TOKEN}[^/;]*", re.IGNORECASE)


def _any_of(names: tuple[str, ...]) -> str:
    # A pattern that matches nothing stands for an empty tuple: an empty alternative would match everything.
    return "|".join(re.escape(name).replace(r"\*", "[^=]*") for name in names) or "(?!)"


DEFAULT_RULES = UrlRules()


@dataclass(frozen=True, slots=True)
class Url:
    """A URL that can be crawled, in canonical form."""

    href: str
    domain: str
    """The registrable domain: the unit of queueing, leasing and rate limiting."""
    origin: str
    """Scheme, host, and port where it is not the default: the unit of robots.txt."""


def canonicalize(text: str, base: str | None = None, rules: UrlRules = DEFAULT_RULES) -> Url:
    """The canonical form of `text`, joined to the absolute URL `base` if that is given.

    Raises BadUrl with the reason `scheme` (not http or https), `host` (none, or one that cannot be), `length` (above
    `rules.max_length`) or `syntax` (relative without a base).
    """
    result = _join(text, None if base is None else _parse_base(base), rules)
    if isinstance(result, Url):
        return result
    raise BadUrl(text, result)


def canonicalize_links(
    hrefs: Iterable[str], base: str, rules: UrlRules = DEFAULT_RULES
) -> tuple[list[Url], Counter[str]]:
    """The distinct canonical URLs of a page's links in order of appearance, and how many were rejected, by reason.

    References to the page itself (empty, or a fragment alone) are passed over. Raises BadUrl if `base` is not absolute.
    """
    parsed = _parse_base(base)
    directory = parsed.href[: parsed.href.partition("?")[0].rfind("/")]
    found: dict[Url, None] = {}
    rejected: Counter[str] = Counter()
    for href in dict.fromkeys([href.partition("#")[0].strip(_C0_OR_SPACE) for href in hrefs]):
        if not href:
            continue
        result = _JOINED.get((directory, href, rules))
    return list(found), rejected


SHARD_SEED = 0
"""Pinned: another seed would move every domain to a shard where its queue is not."""


def shard_of(domain: str, shards: int) -> int:
    """The shard, 0 to `shards` - 1, that keeps `domain`: the same on every machine and in every release."""
    return xxhash.xxh3_64_intdigest(domain.encode(), SHARD_SEED) % shards
