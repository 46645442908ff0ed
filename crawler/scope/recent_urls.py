"""Remembers links that this replica pushed recently. Most links of a page repeat, and then need no call to Redis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from frontier.entries import Entry
from frontier.urls import Url

T = TypeVar("T")


class RecentUrls:
    """A bounded set of links in two generations. When the young one is full, the old one is discarded.

    It stores the URLs themselves, so it never confuses two URLs. Discarding a URL only costs a call to Redis.

    Links that are queued only if their domain is known are stored with a mark, and match only such links. A marked link
    may have been dropped. If its domain is seeded later, the same link on a page of that domain must be pushed.

    The target of a known page that has moved, and one to which redirects lead back, are never in the set: they may have to
    be queued although they were pushed.
    """

    def __init__(self, capacity: int) -> None:
        self._generation = max(1, capacity // 2)
        self._young: set[str] = set()
        self._old: set[str] = set()
        self._young_marked: set[str] = set()
        self._old_marked: set[str] = set()

    def __len__(self) -> int:
        return len(self._young) + len(self._old) + len(self._young_marked) + len(self._old_marked)

    def __contains__(self, link: Entry) -> bool:
        if link.mode in ("moved", "again"):
            return False
        return link.url in self._young or link.url in self._old or (link.mode == "known" and self.has_offered(link.url))

    def has_offered(self, url: str) -> bool:
        """Whether `url` is in the set with a mark."""
        return url in self._young_marked or url in self._old_marked

    def not_recent(self, links: Iterable[tuple[Url, T]]) -> list[tuple[Url, T]]:
        """Those of `links` whose URL is not in the set without a mark. Checked in one loop, because usually few remain."""
        young, old = self._young, self._old
        return [(url, of) for url, of in links if (href := url.href) not in young and href not in old]

    def add(self, link: Entry) -> None:
        (self._young_marked if link.mode == "known" else self._young).add(link.url)
        if len(self._young) + len(self._young_marked) >= self._generation:
            self._old, self._young = self._young, set()
            self._old_marked, self._young_marked = self._young_marked, set()

    def clear(self) -> None:
        """Remove all links, because Redis may have lost the last ones that were pushed."""
        for urls in (self._young, self._old, self._young_marked, self._old_marked):
            urls.clear()
