"""The referee of freshness: how fresh the copies of changing pages were, by the log of their visits, and how fresh the same
number of visits could have made them.

A copy is fresh from a visit until the next change. J. Cho and H. Garcia-Molina, "Effective page refresh policies for Web
crawlers", ACM Transactions on Database Systems 28(4), 2003: of all policies that know the rates of the pages, but not their
next changes, the best visits each page at equal intervals, and so often that one visit more would gain the same at each
page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from crawler.simweb.changing import Change, Changing

_STEPS = 40
_MOST_CHANGES = 800.0  # between two visits: with more, a visit gains all that it can


@dataclass(frozen=True, slots=True)
class Freshness:
    """Shares of the time in which a copy was fresh, on average of all pages: as it was (`reached`), at best and with equal
    intervals for all pages (`uniform`) by as many `visits`."""

    reached: float
    optimum: float
    uniform: float
    visits: int

    def __str__(self) -> str:
        return (
            f"freshness {self.reached:.3f} with {self.visits} visits: {self.reached / self.optimum:.3f} of the optimum "
            f"{self.optimum:.3f}, {self.reached / self.uniform:.3f} times that of equal intervals {self.uniform:.3f}"
        )


def judge_freshness(
    pages: Collection[Changing], visits: Mapping[str, Sequence[float]], begin: float, end: float
) -> Freshness:
    """How fresh the copies of `pages` were from `begin` to `end`. `visits`: the times of the responses of each URL, in
    order; those before `begin` have made its first copy."""
    counted = sum(begin <= at < end for page in pages for at in visits.get(page.url, ()))
    rate = counted / (end - begin)
    reached = sum(_fresh_s(page, visits.get(page.url, ()), begin, end) for page in pages) / (end - begin)
    gain_s = gain_of(pages, rate)
    at_best = sum(freshness(page, best_rate(page, gain_s)) for page in pages)
    equally = sum(freshness(page, rate / len(pages)) for page in pages)
    return Freshness(reached / len(pages), at_best / len(pages), equally / len(pages), counted)


def _fresh_s(page: Changing, visits: Sequence[float], begin: float, end: float) -> float:
    """How many seconds the copy was fresh."""
    fresh_s = 0.0
    for at, until in pairwise([*visits, end]):
        fresh_s += max(0.0, min(page.next_change(at), until, end) - max(at, begin))
    return fresh_s


def freshness(page: Changing, rate: float) -> float:
    """The share of the time in which the copy of `page` is fresh with `rate` visits per second at equal intervals."""
    if page.change in (Change.NEVER, Change.ALWAYS):
        return float(page.change is Change.NEVER)
    changes = 1 / (rate * page.mean_s) if rate else math.inf  # between two visits
    if page.change is Change.PERIODIC:
        return 1 - changes / 2 if changes <= 1 else 1 / (2 * changes)
    return -math.expm1(-changes) / changes if 0 < changes < math.inf else float(not changes)


def best_rate(page: Changing, gain_s: float) -> float:
    """How many visits per second to make, so that one more would gain `gain_s` seconds of freshness; 0 if none gains it."""
    if page.change in (Change.NEVER, Change.ALWAYS):
        return 0.0
    if page.change is Change.PERIODIC:
        return 1 / math.sqrt(2 * page.mean_s * gain_s) if gain_s < page.mean_s / 2 else 0.0
    if gain_s >= page.mean_s:
        return 0.0
    changes = _root(
        lambda changes: (1 - (1 + changes) * math.exp(-changes)) * page.mean_s - gain_s, 1e-9, _MOST_CHANGES
    )
    return 1 / (changes * page.mean_s)


def gain_of(pages: Collection[Changing], rate: float) -> float:
    """What each visit gains, in seconds, if `rate` visits per second, or hardly more, are shared in the best way."""
    return _root(lambda gain_s: rate - sum(best_rate(page, gain_s) for page in pages), 1e-3, 1e10)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return low
