"""URLs that this replica pushed lately: most links of a page were on the page before it, and Redis need not be asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from frontier.urls import Url

T = TypeVar("T")


class RecentUrls:
    """A bounded set of URLs in two generations: when the young one is full, the old one is forgotten.

    It holds the URLs themselves, so it never takes one URL for another; forgetting one only costs a call to Redis.
    """

    def __init__(self, capacity: int) -> None:
        self._generation = max(1, capacity // 2)
        self._young: set[str] = set()
        self._old: set[str] = set()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def __contains__(self, url: object) -> bool:
        return url in self._young or url in self._old

    def lacks(self, links: Iterable[tuple[Url, T]]) -> list[tuple[Url, T]]:
        """Those of `links` whose URL is not in the set: few, as a rule, so they are looked for in one go."""
        young, old = self._young, self._old
        return [link for link in links if (href := link[0].href) not in young and href not in old]

    def add(self, url: str) -> None:
        self._young.add(url)
        if len(self._young) >= self._generation:
            self._old, self._young = self._young, set()

    def clear(self) -> None:
        """Forget everything: Redis may have lost what it was told last."""
        self._young, self._old = set(), set()
