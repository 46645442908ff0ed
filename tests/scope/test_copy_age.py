"""How old copies are when their pages are visited again, and how well their estimated state agrees with the true one."""

from __future__ import annotations

import pytest

from crawler.page import CopyAge
from crawler.scope.next_visit import LONGEST_S, Answer, Visits, copy_age, decide, parse_rules
from tests.simweb.features import Change, Changing, Validity

HOUR, DAY = 3_600.0, 86_400.0
NOW = 1_700_000_000.0
RULES = parse_rules(["adaptive min=1h max=30d start=6h"])


@pytest.mark.parametrize(
    ("misses", "after_s", "late_s"), [(0, 50, 0), (0, 100, 0), (0, 130, 30), (2, 130, 0), (2, 430, 30)]
)
def test_a_visit_is_late_after_its_interval(misses: int, after_s: float, late_s: float) -> None:
    """A page that was missed is due after twice the time, each time."""
    before = Visits(NOW, NOW, interval_s=100, misses=misses, digest="A")
    assert copy_age(before, NOW + after_s) == CopyAge(after_s, late_s, None)


def test_no_interval_is_longer_than_a_year() -> None:
    before = Visits(NOW, NOW, interval_s=int(LONGEST_S), misses=1)
    assert copy_age(before, NOW + LONGEST_S + 9).late_s == 9


def test_a_clock_that_was_set_back_makes_no_negative_age() -> None:
    assert copy_age(Visits(NOW, NOW, interval_s=100), NOW - 5) == CopyAge(0, 0, None)


def test_a_copy_is_never_fresh_for_longer_than_its_age() -> None:
    quiet = Visits(NOW, NOW, interval_s=100, compared=30, unchanged_s=int(LONGEST_S))
    restless = Visits(NOW, NOW, interval_s=100, compared=30, changes=30, changed_s=30)
    assert copy_age(quiet, NOW + HOUR).fresh_s == pytest.approx(HOUR, rel=0.01)
    assert copy_age(restless, NOW + HOUR).fresh_s == pytest.approx(0, abs=5)


def test_the_expected_share_agrees_with_the_true_one() -> None:
    """Given pages that change at random on average every 2 hours to 10 days, when they are visited for 60 days."""
    estimated_s = expected_s = true_s = 0.0
    for number in range(200):
        page = Changing(1, f"http://a.test/{number}", Change.POISSON, 2 * HOUR * 120 ** (number / 200), Validity.NONE)
        seen, due_at = first_visit(page)
        while due_at < NOW + 60 * DAY:
            age = copy_age(seen, due_at)
            if age.fresh_s is not None:
                estimated_s += age.age_s
                expected_s += age.fresh_s
                true_s += min(age.age_s, page.next_change(seen.last_at) - seen.last_at)
            seen, due_at = visit(page, seen, due_at)
    assert expected_s / estimated_s == pytest.approx(true_s / estimated_s, abs=0.03)


def first_visit(page: Changing) -> tuple[Visits, float]:
    return visit(page, None, NOW)


def visit(page: Changing, before: Visits | None, at: float) -> tuple[Visits, float]:
    made = decide(RULES, before, Answer(page.url, "a.test", at, 200, "text/html", str(page.next_change(at))))
    assert made is not None and made.due_at is not None
    return made.visits, made.due_at
