"""Turns the links of a page into entries for the frontier. Pure.

`judge_trap` drops links of which a site can generate an unlimited number, `Scope` those that do not belong to the crawl,
and `RecentUrls` those that were pushed recently. `LinkFilter` applies them, and gives the others a priority.

The reasons of `Scope`:

| reason | meaning |
|---|---|
| `depth` | more links away from a seed than `max_depth` |
| `hops` | more consecutive redirects than `max_hops` |
| `outside` | not on a domain or host of the crawl |
| `excluded` | matches a pattern of `exclude` |
| `not_included` | `include` is not empty, and none of its patterns matches |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal, TypeVar

import msgspec

from crawler.page import LinkKind
from crawler.scope.shapes import LAST, Shapes, put_off
from frontier.domains import host_of
from frontier.entries import GUESSED, GUESSED_SITEMAP, Entry, PushMode, mark_of
from frontier.errors import BadInput, BadUrl
from frontier.urls import Url, UrlPattern, canonicalize, origin_of

TrapReason = Literal["length", "path_depth", "repetition", "params", "nesting"]

TRAP_REASONS: tuple[TrapReason, ...] = ("length", "path_depth", "repetition", "params", "nesting")

_LONGEST_CYCLE = 4  # segments
_ROUNDS = 3  # repetitions in a row; two occur on real sites: /2011/11/11/, /doc/doc/
_SHORT_PATH = 4  # segments; paths up to this length are not checked, because `/1/1/1` may be a page


class TrapPolicy(msgspec.Struct, frozen=True):
    """Limits above which a URL counts as a trap. Lower: fewer traps are fetched, but more real pages are lost."""

    max_length: int = 1_024
    max_segments: int = 24
    max_repeats: int = 4
    max_params: int = 24


def judge_trap(href: str, policy: TrapPolicy) -> TrapReason | None:
    """Why the canonical URL `href` looks like a trap, or None."""
    if len(href) > policy.max_length:
        return "length"
    if href.count("/") - 2 > _SHORT_PATH:
        segments = href[href.index("/", 8) + 1 :].partition("?")[0].split("/")
        if len(segments) > policy.max_segments:
            return "path_depth"
        if _repeats(segments, policy.max_repeats):
            return "repetition"
    if "&" in href:
        if (more := href.count("&")) >= policy.max_params:
            return "params"
        if more >= _ROUNDS - 1 and _repeats_pair(href.partition("?")[2].split("&")):
            return "repetition"
    if "%2525" in href:
        return "nesting"
    return None


def _repeats(segments: list[str], max_repeats: int) -> bool:
    if len(segments) - len(set(segments)) < _ROUNDS - 1:
        return False
    if max(Counter(filter(None, segments)).values(), default=0) > max_repeats:
        return True
    return any(_has_cycle(segments, size) for size in range(1, _LONGEST_CYCLE + 1))


def _repeats_pair(pairs: list[str]) -> bool:
    """Whether a `name=value` occurs `_ROUNDS` times. Some pages add one to their own query."""
    if len(pairs) - len(set(pairs)) < _ROUNDS - 1:
        return False
    return max(Counter(pair for pair in pairs if "=" in pair).values(), default=0) >= _ROUNDS


def _has_cycle(segments: list[str], size: int) -> bool:
    """Whether a sequence of `size` segments occurs `_ROUNDS` times in a row."""
    run = 0
    for left, right in zip(segments, segments[size:], strict=False):
        run = run + 1 if left == right and left else 0
        if run >= size * (_ROUNDS - 1):
            return True
    return False


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
    max_hops: int = 20

    @classmethod
    def of(
        cls,
        *,
        kind: Kind = "seeds",
        names: Iterable[str] = (),
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        max_depth: int | None = None,
        max_hops: int = 20,
    ) -> Scope:
        """A scope of one kind.

        `seeds`: a link may not leave the domain of its page, so the crawl stays in the registrable domains of its seeds
        without a list of them. Links between the domains of seeds are allowed by the frontier, which knows both domains
        (`frontier/lua/push.lua`). `domains`: all hosts at or below `names`. `hosts`: exactly `names`. `any`: the whole
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
        if self.kind == "seeds":  # the redirect target of a seed counts as a seed
            return None if url.domain == source_domain or (depth == 0 and hops > 0) else "outside"
        return None if self._covers(url) else "outside"

    def judge_queued(self, entry: Entry) -> Reason | None:
        """Why `entry` is no longer in scope, or None. It was when it was queued, but settings change. A seed, and where it
        redirects to, need only not be excluded: somebody has named it. So need requisites, which are part of a page."""
        href = entry.target
        if self.exclude and any(pattern.is_in(href) for pattern in self.exclude):
            return "excluded"
        if not entry.depth or entry.is_requisite:
            return None
        if self.max_depth is not None and entry.depth > self.max_depth:
            return "depth"
        if self.include and not any(pattern.is_in(href) for pattern in self.include):
            return "not_included"
        if self.kind in ("seeds", "any"):  # which domains have seeds is not known here
            return None
        url = Url(entry.url, entry.domain, origin_of(entry.url))
        return None if self._covers(url) else "outside"

    def _covers(self, url: Url) -> bool:
        if self.kind == "domains":
            return url.domain in self.names or _is_below(host_of(url.origin), self.names)
        return self.kind == "any" or host_of(url.origin) in self.names


def _is_below(host: str, names: frozenset[str]) -> bool:
    while host:
        if host in names:
            return True
        host = host.partition(".")[2]
    return False


def _host(name: str) -> str:
    """`name` as in canonical URLs. `*.example.com` and `.example.com` mean `example.com`. Raises BadInput."""
    try:
        return host_of(canonicalize(f"https://{name.strip().removeprefix('*').removeprefix('.')}/").origin)
    except BadUrl:
        raise BadInput(f"not a domain or host: {name!r}; write it like example.com") from None


T = TypeVar("T")


CHARACTERS_EACH = 300
"""Of the URLs that are remembered, on average. A site may have URLs of 2,000 characters, and then fewer are remembered."""


class RecentUrls:
    """A bounded set of links in two generations. When the young one is full, the old one is discarded.

    It stores the URLs themselves, so it never confuses two URLs. Discarding a URL only costs a call to Redis.

    Links that are queued only if their domain is known, or if other domains have not filled its cap, and requisites are
    stored with a mark, and match only such links. So are links with a label: their URLs may have been queued without it.
    A marked link may have been dropped. If its domain is seeded later, the same link on a page of that domain must be
    pushed.

    The target of a known page that has moved, and one to which redirects lead back, are never in the set: they may have to
    be queued although they were pushed.
    """

    def __init__(self, capacity: int) -> None:
        self._generation = max(1, capacity // 2)
        self._characters = 0  # in the young set
        self._young: set[str] = set()
        self._old: set[str] = set()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def __contains__(self, link: Entry) -> bool:
        if link.mode in ("moved", "again"):
            return False
        young, old, url, marked = self._young, self._old, link.url, _marked(link)
        if marked in young or marked in old:
            return True
        return marked is not url and (url in young or url in old) and not link.label_key

    def has_offered(self, url: str) -> bool:
        """Whether a link to `url` that is queued only if its domain is known is in the set."""
        marked = f"known {url}"
        return marked in self._young or marked in self._old

    def not_recent(self, links: Iterable[tuple[Url, T]]) -> list[tuple[Url, T]]:
        """Those of `links` whose URL is not in the set without a mark. Checked in one loop, because usually few remain."""
        young, old = self._young, self._old
        return [(url, of) for url, of in links if (href := url.href) not in young and href not in old]

    def add(self, *links: Entry) -> None:
        for link in links:
            marked = _marked(link)
            self._young.add(marked)
            self._characters += len(marked)
            if link.mode == "new":
                self._young.add(link.url)
        if len(self._young) >= self._generation or self._characters >= self._generation * CHARACTERS_EACH:
            self._old, self._young = self._young, set()
            self._characters = 0

    def clear(self) -> None:
        """Remove all links, because Redis may have lost the last ones that were pushed."""
        self._young.clear()
        self._old.clear()
        self._characters = 0


def _marked(link: Entry) -> str:
    """The URL of `link`, with a mark if it needs one."""
    if link.tag and (key := link.label_key):
        return f"{link.mode}{key} {link.url}"
    return f"{link.mode} {link.url}" if link.mode in _MARKED else link.url


_MARKED = frozenset({"foreign", "known", "requisite"})


Scorer = Callable[[str, int, LinkKind], float]
"""(url, depth, kind of the link) -> priority. Higher values are fetched earlier."""


def breadth_first(url: str, depth: int, kind: LinkKind) -> float:
    """The default scorer. URLs closer to a seed are fetched earlier."""
    return -float(depth)


MOST_HOPS_BACK = 6
"""Redirects in a row after which no URL is requested once more: three detours over one page, or one over five pages. A site
that sends visitors without cookies round in circles, each time over a new URL, costs as many requests."""

NO_HINTS: Mapping[str, float] = MappingProxyType({})


MOST_NEW = 300
"""How many new links of a page are looked at to tell whether it leads to anything else. With patterns of an operator that
take long, 10,000 held up the event loop for seconds."""


class LinkFilter:
    """Turns links into entries. `recent`: links that need no check, because they were pushed recently. `shapes`: which are
    put off; `comes_last`: whether a link with this query comes last; `has_cap`: whether the number of URLs of a domain
    is limited, so that those from other domains are told apart."""

    def __init__(
        self,
        scope: Scope,
        traps: TrapPolicy,
        scorer: Scorer,
        recent: RecentUrls,
        shapes: Shapes | None = None,
        comes_last: Callable[[str], bool] | None = None,
        has_cap: bool = False,
    ) -> None:
        self.scope = scope
        self._traps = traps
        self._scorer = scorer
        self._recent = recent
        self._shapes = shapes or Shapes()
        self._comes_last = comes_last
        self._has_cap = has_cap

    def new(self, links: Iterable[tuple[Url, LinkKind]], found_on: Entry) -> Iterator[str]:
        """Those that `select` would queue, among the first `MOST_NEW` of `links` that were not pushed recently."""
        for url, kind in self._recent.not_recent(links)[:MOST_NEW]:
            if kind is LinkKind.FEED and found_on.depth:
                continue
            is_outside = self.scope.judge(url, *_place(kind, found_on), found_on.domain)
            if not is_outside and judge_trap(url.href, self._traps) is None:
                yield url.href

    def select(
        self,
        links: Iterable[tuple[Url, LinkKind]],
        found_on: Entry,
        hints: Mapping[str, float] = NO_HINTS,
        mode: PushMode = "new",
    ) -> tuple[list[Entry], dict[str, int]]:
        """The entries for those of `links` of the page `found_on` that are `not_recent`, and how many links were dropped,
        by reason. `hints` and `mode`: see `judged`."""
        return self.judged(self.not_recent(links, mode), found_on, hints, mode)

    def is_recent(self, link: Entry) -> bool:
        """Whether `link` need not be pushed, as far as this replica knows."""
        return link in self._recent

    def not_recent(self, links: Iterable[tuple[Url, LinkKind]], mode: PushMode) -> list[tuple[Url, LinkKind]]:
        """Those of `links` that have to be pushed in `mode`, as far as this replica knows."""
        return self._recent.not_recent(links) if mode == "new" else list(links)

    def judged(
        self,
        links: Iterable[tuple[Url, LinkKind]],
        found_on: Entry,
        hints: Mapping[str, float],
        mode: PushMode,
        may_be_recent: bool = False,
        of_copy: Collection[str] = (),
    ) -> tuple[list[Entry], dict[str, int]]:
        """The entries for `links` of the page `found_on`, and how many links were dropped, by reason.

        A redirect keeps the depth and the tag of its source and adds a hop. A URL in a sitemap has the depth of the
        sitemap. Any other link is one deeper than its page. Feeds are only taken from seeds: blogs have one on each page,
        for the comments. `hints`: values to add to the score, by URL; `mode`: "moved" if the page is a known one and the
        only link is where it is now, "again" if it `leads_back`. Such a link is queued although it was seen.
        `may_be_recent`: also those to unknown domains that were pushed before. `of_copy`: URLs to put off, as the page is
        a copy.
        """
        selected: list[Entry] = []
        dropped: dict[str, int] = {}
        placed, depth, hops = None, 0, 0
        judge, is_of_seeds = self.scope.judge, self.scope.kind == "seeds"
        for url, kind in links:
            if kind is not placed:
                if kind is LinkKind.FEED and found_on.depth:
                    continue
                (depth, hops), placed = _place(kind, found_on), kind
            pushed_href = href = url.href
            is_keyed = "#" in href
            if is_keyed:
                href = href.partition("#")[0]
                url = Url(href, url.domain, url.origin)
            reason: str | None = judge(url, depth, hops, found_on.domain)
            if mode == "again":
                reason = "hops" if hops > MOST_HOPS_BACK else None if reason == "outside" else reason  # was in scope
            # Links between the domains of different seeds are followed. The frontier knows these domains.
            may_be_seeds = is_of_seeds and reason == "outside"
            if may_be_seeds and not may_be_recent and self._recent.has_offered(pushed_href):
                continue
            trap = judge_trap(href, self._traps)
            if trap == "length" and kind is LinkKind.REDIRECT:
                trap = None  # logins hand over long states, and `hops` limits how often
            reason = trap or (None if may_be_seeds else reason)
            if reason is None:
                score = self._scorer(href, depth, kind)
                if hints:
                    score += hints.get(href, 0.0)
                if pushed_href in of_copy or (not is_keyed and self._shapes.puts_off(href, url.domain)):
                    score = put_off(score, href)
                elif self._comes_last and "?" in href and self._comes_last(href.partition("?")[2]):
                    score += LAST
                pushed: PushMode = "known" if may_be_seeds else mode
                if self._has_cap and pushed == "new" and url.domain != found_on.domain:
                    pushed = "foreign"
                link = Entry(pushed_href, url.domain, score, depth, hops=hops, mode=pushed)
                if kind is LinkKind.REDIRECT:
                    link = msgspec.structs.replace(link, tag=found_on.tag, chain=_chain(found_on))
                selected.append(link)
            else:
                dropped[reason] = dropped.get(reason, 0) + 1
        return selected, dropped

    def requisites(self, urls: Iterable[Url], found_on: Entry) -> tuple[list[Entry], dict[str, int]]:
        """The entries for `urls`, which `found_on` embeds, or to which it redirects if it is a requisite itself, and how
        many were dropped, by reason. They may be of any host, and come before pages."""
        hops = found_on.hops + 1 if found_on.is_requisite else 0
        selected: list[Entry] = []
        dropped: dict[str, int] = {}
        for url in urls:
            reason: str | None = "hops" if hops > MOST_NESTED else judge_trap(url.href, self._traps)
            if reason is None and any(pattern.is_in(url.href) for pattern in self.scope.exclude):
                reason = "excluded"
            if reason is None:
                entry = Entry(url.href, url.domain, BEFORE_PAGES, found_on.depth + 1, hops=hops, mode="requisite")
                if entry not in self._recent:
                    selected.append(entry)
            else:
                dropped[reason] = dropped.get(reason, 0) + 1
        return selected, dropped


BEFORE_PAGES = 0.5
"""The priority of requisites: higher than that of seeds and what they link to, but it makes no domain urgent."""

AFTER_PAGES = -1e6
"""The priority of requisites that are tried again, or whose domain has backed off again and again: a broken image holds up
no page."""

MOST_NESTED = 5
"""How many requisites may lead from a page to one: a style sheet to another one and to a font, redirects, frames in
frames."""


def leads_back(found_on: Entry, target: str) -> bool:
    """Whether the redirect of `found_on` to the canonical URL `target` leads back to where the redirects began. That is a
    page that sends visitors without a cookie on a detour, and it has only redirected so far."""
    return bool(found_on.chain) and not found_on.visit and target != found_on.url and found_on.chain == mark_of(target)


def _chain(found_on: Entry) -> str:
    """The chain of what `found_on` redirects to. A page that is visited again begins none, so no chain goes on forever."""
    if found_on.visit:
        return ""
    return mark_of(found_on.url) if found_on.chain in ("", GUESSED, GUESSED_SITEMAP) else found_on.chain


def _place(kind: LinkKind, found_on: Entry) -> tuple[int, int]:
    """Depth and hops of a link of `kind`. Hops limit what depth does not: redirects, and sitemap indexes of indexes."""
    if kind is LinkKind.REDIRECT:
        return found_on.depth, found_on.hops + 1
    if kind is LinkKind.SITEMAP:
        return max(1, found_on.depth), found_on.hops + 1
    if kind is LinkKind.LISTED:
        return max(1, found_on.depth), 0
    return found_on.depth + 1, 0
