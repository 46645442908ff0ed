"""Decides which URLs belong to a crawl. Pure: an immutable value that returns a reason.

| reason | meaning |
|---|---|
| `depth` | more links away from a seed than `max_depth` |
| `hops` | more consecutive redirects than `max_hops` |
| `outside` | not on a domain or host of the crawl |
| `excluded` | matches a pattern of `exclude` |
| `not_included` | `include` is not empty, and none of its patterns matches |
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from frontier.errors import BadInput, BadUrl
from frontier.urls import Url, UrlPattern, canonicalize

Kind = Literal["seeds", "domains", "hosts", "any"]
Reason = Literal["depth", "hops", "outside", "excluded", "not_included"]

REASONS: tuple[Reason, ...] = ("depth", "hops", "excluded", "not_included", "outside")
"""All reasons that `Scope.judge` may return, in the order in which it checks them."""


class Scope(msgspec.Struct, frozen=True):
    """Which URLs belong to a crawl. Created by `Scope.of`. `names`: domains or hosts as in canonical URLs."""

    kind: Kind = "seeds"
    names: frozenset[str] = frozenset()
    include: tuple[UrlPattern, ...] = ()
    exclude: tuple[UrlPattern, ...] = ()
    max_depth: int | None = None
    max_hops: int = 10

    @classmethod
    def of(
        cls,
        *,
        kind: Kind = "seeds",
        names: Iterable[str] = (),
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        max_depth: int | None = None,
        max_hops: int = 10,
    ) -> Scope:
        """A scope of one kind.

        `seeds`: a link may not leave the domain of its page, so the crawl stays in the registrable domains of its seeds
        without a list of them. Links between the domains of seeds are allowed by the frontier, which knows both domains
        (`crawler.scope.link_filter`). `domains`: all hosts at or below `names`. `hosts`: exactly `names`. `any`: the whole
        web. `include` and `exclude` are regular expressions, which may match anywhere in the canonical URL.

        Raises BadInput for an invalid host name or a malformed pattern.
        """
        return cls(
            kind,
            frozenset(map(_host, names)),
            tuple(map(UrlPattern, include)),
            tuple(UrlPattern(pattern, if_unknown=True) for pattern in exclude),
            max_depth,
            max_hops,
        )

    def judge(self, url: Url, depth: int, hops: int, source_domain: str) -> Reason | None:
        """Why `url` is out of scope, or None.

        `depth`: number of links from a seed; `hops`: number of consecutive redirects that led here; `source_domain`:
        domain of the page that contains the link.
        """
        if self.max_depth is not None and depth > self.max_depth:
            return "depth"
        if hops > self.max_hops:
            return "hops"
        if self.exclude and any(pattern.is_in(url.href) for pattern in self.exclude):
            return "excluded"
        if self.include and not any(pattern.is_in(url.href) for pattern in self.include):
            return "not_included"
        # Checked last, so that "outside" means that there is no other reason against the URL.
        return None if self._covers(url, depth, hops, source_domain) else "outside"

    def _covers(self, url: Url, depth: int, hops: int, source_domain: str) -> bool:
        match self.kind:
            case "any":
                return True
            case "seeds":
                # The redirect target of a seed counts as a seed.
                return url.domain == source_domain or (depth == 0 and hops > 0)
            case "domains":
                return url.domain in self.names or _is_below(_host_of(url.origin), self.names)
            case "hosts":
                return _host_of(url.origin) in self.names


def _host_of(origin: str) -> str:
    host = origin.partition("://")[2]
    return host if host.endswith("]") else re.sub(r":\d+$", "", host)


def _is_below(host: str, names: frozenset[str]) -> bool:
    while host:
        if host in names:
            return True
        host = host.partition(".")[2]
    return False


def _host(name: str) -> str:
    """`name` as in canonical URLs. `*.example.com` and `.example.com` mean `example.com`. Raises BadInput."""
    try:
        return _host_of(canonicalize(f"https://{name.strip().removeprefix('*').removeprefix('.')}/").origin)
    except BadUrl:
        raise BadInput(f"not a domain or host: {name!r}; write it like example.com") from None
