"""When to visit a page again so that the copy of the whole crawl is freshest. Pure.

J. Cho and H. Garcia-Molina, "Effective page refresh policies for Web crawlers", ACM Transactions on Database Systems 28(4),
2003: changes of a page are a Poisson process with a rate L, and the copy of a page is fresh until its first change after a
visit. A visit after t seconds gains (1 - (1 + Lt) exp(-Lt)) / L seconds of freshness, compared with leaving it out: its
derivative with respect to the number of visits. This grows with t up to 1/L. The visits of all pages together gain the
most if each is made when its gain reaches the same number of seconds. So a page that changes often is visited often, but
one that changes too often for a visit to gain that much is left.

The rate is not known. What the visits of a page have found gives a gamma distribution of it, and the expected gain counts.
It is larger the less is known, so a page about which little is known is visited, and the estimate cannot get stuck: what
is known of a page that was left alone for long counts little when it is visited again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_CHANGES = 0.25
"""Changes that every page is believed to have had, so that one that has not changed yet is visited at times. Lower: fewer
visits for pages that never change; higher: changes of pages that seldom change are found sooner."""

MOST_COMPARED = 32
"""Visits after which the observations lose half of their weight."""

_LONG_AGO = 4
"""An interval that is so many times longer than all observed ones shows that these are old."""

_CERTAIN = 3
"""In so many times the mean time between two changes, a change is almost certain (95%)."""

_SOONER = 4
"""By how much the interval shrinks while each visit finds a change."""

_STEPS = 24
"""Halvings of a range of rates or intervals: enough for a thousandth of a range that spans ten years."""


class Rate(NamedTuple):
    """What is believed about the changes of a page in a second: a gamma distribution with this shape and its inverse
    scale in seconds."""

    shape: float
    seconds: float

    @property
    def mean(self) -> float:
        """Expected changes per second."""
        return self.shape / self.seconds

    def gain_s(self, after_s: float) -> float:
        """The expected gain of a visit that is made `after_s` seconds after the last, in seconds of freshness."""
        ratio, shape = self.seconds / (self.seconds + after_s), self.shape
        if abs(shape - 1) < 1e-6:
            inverse = -self.seconds * math.log(ratio)
        else:
            inverse = self.seconds / (shape - 1) * -math.expm1((shape - 1) * math.log(ratio))
        return inverse - after_s * math.exp(shape * math.log(ratio))

    def interval_s(self, gain_s: float, min_s: float, max_s: float) -> float:
        """After how many seconds a visit gains `gain_s`, within these limits."""
        if self.gain_s(min_s) >= gain_s:
            return min_s
        if self.gain_s(max_s) <= gain_s:
            return max_s
        low, high = math.log(min_s), math.log(max_s)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.gain_s(math.exp(middle)) < gain_s else (low, middle)
        return math.exp((low + high) / 2)


class Observed(NamedTuple):
    """What visits have shown: of how many is known whether the page had changed (`compared`), how many found a change,
    and the sums of the intervals that ended with and without one."""

    compared: int = 0
    changes: int = 0
    changed_s: float = 0.0
    unchanged_s: float = 0.0


def observed(before: Observed, passed_s: float, has_changed: bool) -> Observed:
    """`before` and one more visit, `passed_s` seconds after the last.

    Old observations lose weight, so that the estimate follows a page that changes more or less often than before. A change
    in an interval in which one was certain shows nothing, so it must not make the other intervals look longer.
    """
    seen = _faded(before, passed_s)
    if not has_changed:
        return seen._replace(compared=seen.compared + 1, unchanged_s=seen.unchanged_s + passed_s)
    if seen.compared:
        passed_s = min(passed_s, _CERTAIN / estimated(seen).mean)
    if seen.changes and passed_s * _CERTAIN < seen.changed_s / seen.changes:
        seen = Observed(seen.compared - seen.changes, 0, 0.0, seen.unchanged_s)
    return Observed(seen.compared + 1, seen.changes + 1, seen.changed_s + passed_s, seen.unchanged_s)


def _faded(seen: Observed, passed_s: float) -> Observed:
    """`seen` with half its weight if it is of many visits, and with less if all of them were in a short time long ago.

    If each visit has found a change, half of them are kept. The page is then tried after an interval as short as theirs,
    and left again soon if it still changes too often. Otherwise it would be tried as if nothing were known of it, with
    longer intervals first.
    """
    whole_s = seen.changed_s + seen.unchanged_s
    weight = min(_LONG_AGO * whole_s / passed_s, 0.5 if seen.compared >= MOST_COMPARED else 1.0)
    if weight >= 1:
        return seen
    changes, compared = int(seen.changes * weight), int(seen.compared * weight)
    if 0 < seen.compared == seen.changes:
        kept = max(math.ceil(seen.changes / 2), changes)
        return Observed(kept, kept, seen.changed_s / seen.changes * kept)
    if changes == compared:  # a sum without a visit would count as one
        return Observed(compared, changes, changes and seen.changed_s * weight)
    return Observed(compared, changes, changes and seen.changed_s * weight, seen.unchanged_s * weight)


def interval_s(seen: Observed, gain_s: float, min_s: float, max_s: float) -> float:
    """After how many seconds to visit a page that was `seen`, so that the visit gains `gain_s` seconds of freshness.

    While each visit has found a change, the page may change much more often than it was visited. The next visits are then
    made sooner, until one finds no change or the page is known to change too often.
    """
    rate = estimated(seen)
    wait_s = rate.interval_s(gain_s, min_s, max_s)
    if seen.changes == seen.compared and wait_s < max_s:
        sooner_s = seen.changed_s / seen.changes / _SOONER
        wait_s = min(wait_s, max(min_s, gain_s / 2, sooner_s))
    return wait_s


def estimated(seen: Observed) -> Rate:
    """The rate of changes of a page that was `seen`, at least once.

    The likelihood is that of J. Cho and H. Garcia-Molina, "Estimating frequency of change", ACM Transactions on Internet
    Technology 3(3), 2003, section 4.2. To store only sums, the intervals that ended with a change are taken as equally
    long. As in section 4.1, half an interval without a change is added. The distribution has the mode of the likelihood
    on a logarithmic scale, and its curvature there.
    """
    compared, changes, changed_s, unchanged_s = seen
    quiet_s = max(1.0, unchanged_s + (changed_s + unchanged_s) / compared / 2)
    each_s = max(1.0, changed_s) / max(1, changes)
    low, high = math.log(_CHANGES / quiet_s), math.log((_CHANGES + changes) / quiet_s)
    for _ in range(_STEPS if changes else 0):
        middle = (low + high) / 2
        rate = math.exp(middle)
        is_low = _CHANGES + changes * _within(rate * each_s) > rate * quiet_s
        low, high = (middle, high) if is_low else (low, middle)
    rate = math.exp((low + high) / 2) if changes else _CHANGES / quiet_s
    shape = rate * quiet_s + changes * _bend(rate * each_s)
    return Rate(shape, shape / rate)


def _within(expected: float) -> float:
    """The derivative of ln(1 - exp(-u)) with respect to ln u."""
    return expected / math.expm1(expected) if 0 < expected < 700 else 0.0


def _bend(expected: float) -> float:
    """The negative derivative of `_within` with respect to ln u."""
    if not 1e-6 < expected < 300:
        return 0.0
    less = math.expm1(expected)
    return expected * (expected * (less + 1) - less) / less**2
