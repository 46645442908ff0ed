"""Which of a page's links become entries of the frontier: scope, traps, depth, and the priority of each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from crawler.page import LinkKind
from crawler.scope.recent_urls import RecentUrls
from crawler.scope.scope import Scope
from crawler.scope.traps import TrapPolicy, judge_trap
from frontier.entries import Entry, PushMode
from frontier.urls import Url

Scorer = Callable[[str, int, LinkKind], float]
"""(url, depth, kind of the link) -> priority; higher is fetched earlier."""


def breadth_first(url: str, depth: int, kind: LinkKind) -> float:
    """The default scorer: nearer to a seed is earlier."""
    return -float(depth)


NO_HINTS: Mapping[str, float] = MappingProxyType({})


class LinkFilter:
    """Turns links into entries. `known`: links that need no look, because they were pushed lately."""

    def __init__(self, scope: Scope, traps: TrapPolicy, scorer: Scorer, known: RecentUrls) -> None:
        self._scope = scope
        self._traps = traps
        self._scorer = scorer
        self._known = known

    def select(
        self, links: Iterable[tuple[Url, LinkKind]], found_on: Entry, hints: Mapping[str, float] = NO_HINTS
    ) -> tuple[list[Entry], dict[str, int]]:
        """The entries for `links` of the page `found_on`, and how many links were dropped, by reason.

        A redirect keeps its source's depth and counts a hop; any other link is one deeper, but what a sitemap lists, which
        is as deep as the sitemap. `hints` are added to the score of the URLs that they name.
        """
        selected: list[Entry] = []
        dropped: dict[str, int] = {}
        for url, kind in self._known.lacks(links):
            depth, hops = _place(kind, found_on)
            reason: str | None = self._scope.judge(url, depth, hops, found_on.domain)
            # Between the domains of seeds links are followed; the frontier knows which domains those are.
            may_be_seeds = reason == "outside" and self._scope.kind == "seeds"
            if may_be_seeds and self._known.has_offered(url.href):
                continue
            reason = judge_trap(url.href, self._traps) or (None if may_be_seeds else reason)
            if reason is None:
                score = self._scorer(url.href, depth, kind) + hints.get(url.href, 0.0)
                mode: PushMode = "known" if may_be_seeds else "new"
                selected.append(Entry(url.href, url.domain, score, depth, hops=hops, mode=mode))
            else:
                dropped[reason] = dropped.get(reason, 0) + 1
        return selected, dropped


def _place(kind: LinkKind, found_on: Entry) -> tuple[int, int]:
    """Depth and hops of a link of `kind`. Hops bound what depth does not: redirects, and indexes that list indexes."""
    if kind is LinkKind.REDIRECT:
        return found_on.depth, found_on.hops + 1
    if kind is LinkKind.SITEMAP:
        return max(1, found_on.depth), found_on.hops + 1
    if kind is LinkKind.LISTED:
        return max(1, found_on.depth), 0
    return found_on.depth + 1, 0
