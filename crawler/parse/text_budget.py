"""Limits how much CPU time the texts of a domain take in the process for large documents. Pure.

A domain may send page after page whose text takes a second to extract. It has turns with the others (`fair_queue`), but its
own pages would wait for their texts without end, and the process would have no rest. So a domain has `BURST_S` seconds for
texts that take long, and gets `SHARE` of each later second. Other texts cost nothing, however many there are.
"""

from __future__ import annotations

from heapq import nlargest

LONG_S = 0.25
"""CPU seconds of a text that takes long: as many as ordinary markup of the largest size takes."""

BURST_S = 10.0
SHARE = 0.01

REMEMBERED = 1_000
"""Domains that are remembered: those that have used most, and up to as many others."""


class TextBudget:
    """What is left to each domain. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._spent_s: dict[str, tuple[float, float]] = {}  # and when that was

    def __repr__(self) -> str:
        return f"<TextBudget domains={len(self._spent_s)}>"

    def is_spent(self, domain: str, now: float) -> bool:
        """Whether no large text of `domain` is extracted now."""
        return self._spent(domain, now) >= BURST_S

    def spend(self, domain: str, took_s: float, now: float) -> None:
        """A text of `domain` took `took_s` CPU seconds."""
        if took_s < LONG_S:
            return
        self._spent_s[domain] = (self._spent(domain, now) + took_s, now)
        if len(self._spent_s) > 2 * REMEMBERED:
            most = nlargest(REMEMBERED, self._spent_s, lambda one: self._spent(one, now))
            self._spent_s = {one: self._spent_s[one] for one in most}

    def _spent(self, domain: str, now: float) -> float:
        spent_s, at = self._spent_s.get(domain, (0.0, now))
        return max(0.0, spent_s - SHARE * (now - at))
