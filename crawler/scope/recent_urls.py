"""Links that this replica pushed lately: most links of a page were on the page before it, and Redis need not be asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from frontier.entries import Entry
from frontier.urls import Url

T = TypeVar("T")

_MARK = "if known "
"""No URL begins so."""


class RecentUrls:
    """A bounded set of links in two generations: when the young one is full, the old one is forgotten.

    It holds the URLs themselves, so it never takes one URL for another; forgetting one only costs a call to Redis.

    Links that count only if their domain is known are marked, and stand for themselves alone. Such a link may have been
    dropped, and when its domain is seeded later, the same link on one of the domain's own pages must not be.
    """

    def __init__(self, capacity: int) -> None:
        self._generation = max(1, capacity // 2)
        self._young: set[str] = set()
        self._old: set[str] = set()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def __contains__(self, link: Entry) -> bool:
        return self._holds(link.url) or (link.mode == "known" and self.has_offered(link.url))

    def has_offered(self, url: str) -> bool:
        """Whether `url` is in the set with a mark."""
        return self._holds(_MARK + url)

    def lacks(self, links: Iterable[tuple[Url, T]]) -> list[tuple[Url, T]]:
        """Those of `links` whose URL is not in the set without a mark: few, as a rule, so they are looked for in one go."""
        young, old = self._young, self._old
        return [(url, of) for url, of in links if (href := url.href) not in young and href not in old]

    def _holds(self, text: str) -> bool:
        return text in self._young or text in self._old

    def add(self, link: Entry) -> None:
        self._young.add(_MARK + link.url if link.mode == "known" else link.url)
        if len(self._young) >= self._generation:
            self._old, self._young = self._young, set()

    def clear(self) -> None:
        """Forget everything: Redis may have lost what it was told last."""
        self._young, self._old = set(), set()
