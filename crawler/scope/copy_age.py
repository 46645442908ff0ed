"""How old the copy of a page was when the page was visited again, and for how long it is expected to have been up to date.
Pure."""

from __future__ import annotations

import math

from crawler.page import CopyAge
from crawler.scope.next_visit import LONGEST_S, Visits


def copy_age(before: Visits, at: float) -> CopyAge:
    """The age of the copy of a page with the state `before` that is visited at `at`, in seconds since 1970.

    If a page changes with a rate L, its copy is expected to be up to date for the share (1 - exp(-Lt)) / Lt of the t
    seconds after a visit: F(t) in J. Cho and H. Garcia-Molina, "Effective page refresh policies for Web crawlers", ACM
    Transactions on Database Systems 28(4), 2003, section 3. Only the visits before this one say how large L is.
    """
    age_s = max(0.0, at - before.last_at)
    wait_s = min(before.interval_s * 2.0**before.misses, LONGEST_S)
    late_s = max(0.0, age_s - wait_s)
    if not before.compared or before.misses:
        return CopyAge(age_s, late_s, None)
    rate = before.rate.mean
    return CopyAge(age_s, late_s, -math.expm1(-rate * age_s) / rate)
