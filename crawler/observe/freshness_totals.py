"""Adds up, over the visits of all known pages, the shares of time in which their copies were younger than their interval,
and up to date. `crawler.scope.copy_age` computes those of one visit.

Each visit after the first adds the time since the last one. So the shares are means over all known pages and the time
before their visits. What happens to a copy is counted when its page is visited again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from crawler.page import CopyAge

HALF_LIFE_S = 86_400.0
"""After so many seconds, a visit counts half. Shorter: the shares follow changes sooner, but vary more."""


class CopyAges(msgspec.Struct, frozen=True):
    """Sums over the last visits, in seconds. `age_s`: since the visits before; `overdue_s`: the part of it since the visits
    were due; `estimated_s`: the part of `age_s` of pages whose rate of changes is estimated; `fresh_s`: for how long of it
    their copies are expected to have been up to date."""

    age_s: float = 0.0
    overdue_s: float = 0.0
    estimated_s: float = 0.0
    fresh_s: float = 0.0

    @property
    def in_time(self) -> float | None:
        """The share of the time in which copies were younger than their interval, None if it is unknown."""
        return 1 - self.overdue_s / self.age_s if self.age_s else None

    @property
    def fresh(self) -> float | None:
        """The expected share of the time in which copies were up to date, None if it is unknown."""
        return self.fresh_s / self.estimated_s if self.estimated_s else None


class FadingAges:
    """Adds up the ages of the copies that a replica visits. The weight of earlier ones halves in each `HALF_LIFE_S`."""

    def __init__(self) -> None:
        self.sums = CopyAges()
        self._at = 0.0

    def add(self, copy: CopyAge, at: float) -> None:
        """Add that of a page that was visited `at`, in seconds since 1970."""
        weight = 0.5 ** (max(0.0, at - self._at) / HALF_LIFE_S)
        self._at = max(self._at, at)
        estimated_s, fresh_s = (0.0, 0.0) if copy.fresh_s is None else (copy.age_s, copy.fresh_s)
        self.sums = CopyAges(
            self.sums.age_s * weight + copy.age_s,
            self.sums.overdue_s * weight + copy.late_s,
            self.sums.estimated_s * weight + estimated_s,
            self.sums.fresh_s * weight + fresh_s,
        )


def total(found: Iterable[CopyAges]) -> CopyAges:
    """The sum of `found`, those of several replicas."""
    sums = [msgspec.structs.astuple(one) for one in found]
    return CopyAges(*map(sum, zip(*sums, strict=True)))
