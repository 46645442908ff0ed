"""Turns the links of a page into entries of the frontier, by scope, traps, depth and priority. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import msgspec

from crawler.page import LinkKind
from crawler.scope.recent_urls import RecentUrls
from crawler.scope.scope import Scope
from crawler.scope.traps import TrapPolicy, judge_trap
from frontier.entries import Entry, PushMode, mark_of
from frontier.urls import Url

Scorer = Callable[[str, int, LinkKind], float]
"""(url, depth, kind of the link) -> priority. Higher values are fetched earlier."""


def breadth_first(url: str, depth: int, kind: LinkKind) -> float:
    """The default scorer. URLs closer to a seed are fetched earlier."""
    return -float(depth)


MOST_HOPS_BACK = 6
"""Redirects in a row after which no URL is requested once more: three detours over one page, or one over five pages. A site
that sends visitors without cookies round in circles, each time over a new URL, costs as many requests."""

NO_HINTS: Mapping[str, float] = MappingProxyType({})


class LinkFilter:
    """Turns links into entries. `recent`: links that need no check, because they were pushed recently."""

    def __init__(self, scope: Scope, traps: TrapPolicy, scorer: Scorer, recent: RecentUrls) -> None:
        self._scope = scope
        self._traps = traps
        self._scorer = scorer
        self._recent = recent

    def select(
        self,
        links: Iterable[tuple[Url, LinkKind]],
        found_on: Entry,
        hints: Mapping[str, float] = NO_HINTS,
        mode: PushMode = "new",
    ) -> tuple[list[Entry], dict[str, int]]:
        """The entries for `links` of the page `found_on`, and how many links were dropped, by reason.

        A redirect keeps the depth and the tag of its source and adds a hop. A URL in a sitemap has the depth of the
        sitemap. Any other link is one deeper than its page. `hints`: values to add to the score, by URL; `mode`: "moved" if
        the page is a known one and the only link is where it is now, "again" if it `leads_back`. Such a link is queued
        although it was seen.
        """
        selected: list[Entry] = []
        dropped: dict[str, int] = {}
        for url, kind in links if mode != "new" else self._recent.not_recent(links):
            depth, hops = _place(kind, found_on)
            reason: str | None = self._scope.judge(url, depth, hops, found_on.domain)
            if mode == "again":
                reason = "hops" if hops > MOST_HOPS_BACK else None if reason == "outside" else reason  # was in scope
            # Links between the domains of different seeds are followed. The frontier knows these domains.
            may_be_seeds = reason == "outside" and self._scope.kind == "seeds"
            if may_be_seeds and self._recent.has_offered(url.href):
                continue
            reason = judge_trap(url.href, self._traps) or (None if may_be_seeds else reason)
            if reason is None:
                score = self._scorer(url.href, depth, kind) + hints.get(url.href, 0.0)
                link = Entry(url.href, url.domain, score, depth, hops=hops, mode="known" if may_be_seeds else mode)
                if kind is LinkKind.REDIRECT:
                    link = msgspec.structs.replace(link, tag=found_on.tag, chain=_chain(found_on))
                selected.append(link)
            else:
                dropped[reason] = dropped.get(reason, 0) + 1
        return selected, dropped


def leads_back(found_on: Entry, target: str) -> bool:
    """Whether the redirect of `found_on` to the canonical URL `target` leads back to where the redirects began. That is a
    page that sends visitors without a cookie on a detour, and it has only redirected so far."""
    return bool(found_on.chain) and not found_on.visit and target != found_on.url and found_on.chain == mark_of(target)


def _chain(found_on: Entry) -> str:
    """The chain of what `found_on` redirects to. A page that is visited again begins none, so no chain goes on for ever."""
    return "" if found_on.visit else found_on.chain or mark_of(found_on.url)


def _place(kind: LinkKind, found_on: Entry) -> tuple[int, int]:
    """Depth and hops of a link of `kind`. Hops limit what depth does not: redirects, and sitemap indexes of indexes."""
    if kind is LinkKind.REDIRECT:
        return found_on.depth, found_on.hops + 1
    if kind is LinkKind.SITEMAP:
        return max(1, found_on.depth), found_on.hops + 1
    if kind is LinkKind.LISTED:
        return max(1, found_on.depth), 0
    return found_on.depth + 1, 0
