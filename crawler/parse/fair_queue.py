"""Decides whose document is read next in the process for large documents. Pure.

One site can keep that process busy with documents that take seconds each. If documents were read in the order of arrival,
some such sites would delay the large pages of all others by minutes. So the domain that has used the process least has
the next turn, and every second turn goes to the domain that has waited longest. A document then waits for about two
others if its domain uses the process little, whatever other domains send, and each domain has its turn in the end.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import nlargest
from typing import Generic, TypeVar

T = TypeVar("T")

HALF_LIFE_S = 600.0
"""Seconds of use, of all domains together, after which only half of a domain's use still counts."""

REMEMBERED = 1_000
"""Domains whose use is remembered: those that used most, and up to as many others."""


class FairQueue(Generic[T]):
    """The items that wait for a turn, by domain. Of one domain, the item that was added first has the first turn."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}  # the domain that has waited longest comes first
        self._used_s: dict[str, tuple[float, float]] = {}  # and the use of all domains at that time
        self._total_s = 0.0
        self._is_for_longest = False

    def __repr__(self) -> str:
        return f"<FairQueue domains={len(self._waiting)} remembered={len(self._used_s)}>"

    def add(self, domain: str, item: T) -> None:
        """Let `item` wait for a turn of `domain`."""
        self._waiting.setdefault(domain, deque()).append(item)

    def remove(self, domain: str, item: T) -> None:
        """Let `item` no longer wait."""
        items = self._waiting[domain]
        items.remove(item)
        if not items:
            del self._waiting[domain]

    def take(self) -> T | None:
        """The item that has the next turn. It no longer waits. None if none waits."""
        if not self._waiting:
            return None
        longest = next(iter(self._waiting))
        domain = longest if self._is_for_longest else min(self._waiting, key=self._use)
        self._is_for_longest = not self._is_for_longest
        items = self._waiting.pop(domain)
        item = items.popleft()
        if items:
            self._waiting[domain] = items
        return item

    def ended(self, domain: str, took_s: float) -> None:
        """A turn of `domain` has ended after `took_s` seconds."""
        used_s = self._use(domain) + took_s
        self._total_s += took_s
        self._used_s[domain] = (used_s, self._total_s)
        if len(self._used_s) > 2 * REMEMBERED:
            self._used_s = {one: self._used_s[one] for one in nlargest(REMEMBERED, self._used_s, self._use)}

    def _use(self, domain: str) -> float:
        used_s, total_s = self._used_s.get(domain, (0.0, 0.0))
        return used_s * math.exp((total_s - self._total_s) / HALF_LIFE_S * math.log(2))
