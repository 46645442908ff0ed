"""The interval between two visits of a page: the gain of a visit, the estimated rate of changes, and both together."""

from __future__ import annotations

import math
import random

import pytest

from crawler.scope.freshness import MOST_COMPARED, Observed, Rate, estimated, interval_s, observed

HOUR, DAY = 3_600.0, 86_400.0
GAIN = HOUR / 2
LIMITS = (HOUR, 30 * DAY)


def known(mean_s: float) -> Rate:
    """The rate of a page that is known to change once in `mean_s` on average."""
    return Rate(1e6, 1e6 * mean_s)


def seen_after(visits: int, change_s: float, seed: int = 1) -> tuple[Observed, float]:
    """What `visits` visits of a page have shown that changes once in `change_s` on average, and the interval then."""
    rng, seen, wait_s = random.Random(seed), Observed(), DAY
    for _ in range(visits):
        seen = observed(seen, wait_s, rng.random() < -math.expm1(-wait_s / change_s))
        wait_s = interval_s(seen, GAIN, *LIMITS)
    return seen, wait_s


class TestGain:
    @pytest.mark.parametrize("visits_a_day", [0.1, 1.0, 24.0])
    def test_it_is_the_derivative_of_the_freshness_by_the_visits(self, visits_a_day: float) -> None:
        """Cho and Garcia-Molina 2003: freshness is (f / L) (1 - exp(-L / f)) with f visits and L changes in a second."""
        rate, visits, step = 1 / DAY, visits_a_day / DAY, 1e-6 / DAY

        def freshness(f: float) -> float:
            return f / rate * -math.expm1(-rate / f)

        slope = (freshness(visits + step) - freshness(visits - step)) / (2 * step)
        assert known(DAY).gain_s(1 / visits) == pytest.approx(slope, rel=1e-3)

    def test_it_is_the_mean_over_the_possible_rates(self) -> None:
        rng, believed = random.Random(2), Rate(1.6, 3 * DAY)
        rates = [rng.gammavariate(believed.shape, 1 / believed.seconds) for _ in range(100_000)]
        expected = sum((1 - (1 + rate * DAY) * math.exp(-rate * DAY)) / rate for rate in rates) / len(rates)
        assert believed.gain_s(DAY) == pytest.approx(expected, rel=0.02)

    def test_it_has_no_gap_where_its_formula_has_one(self) -> None:
        around = [Rate(shape, 3 * DAY).gain_s(DAY) for shape in (1 - 1e-5, 1.0, 1 + 1e-5)]
        assert around[0] == pytest.approx(around[1], rel=1e-4) and around[2] == pytest.approx(around[1], rel=1e-4)


class TestInterval:
    @pytest.mark.parametrize("mean_s", [HOUR, DAY, 30 * DAY])
    def test_each_visit_gains_what_is_asked_for(self, mean_s: float) -> None:
        wait_s = known(mean_s).interval_s(GAIN, 60.0, 300 * DAY)
        assert known(mean_s).gain_s(wait_s) == pytest.approx(GAIN, rel=1e-3)

    def test_a_page_that_changes_too_often_is_left_for_the_longest_interval(self) -> None:
        waits = [known(mean_s).interval_s(GAIN, *LIMITS) for mean_s in (HOUR / 4, HOUR, DAY, 30 * DAY)]
        assert waits[0] == 30 * DAY and waits[1] < waits[2] < waits[3] < 30 * DAY

    def test_it_keeps_the_limits(self) -> None:
        assert known(DAY).interval_s(GAIN, 2 * DAY, 3 * DAY) == 2 * DAY
        assert known(300 * DAY).interval_s(GAIN, HOUR, DAY) == DAY


class TestEstimate:
    @pytest.mark.parametrize("change_s", [6 * HOUR, DAY, 9 * DAY])
    def test_it_approaches_the_rate_of_the_page(self, change_s: float) -> None:
        waits = sorted(seen_after(200, change_s, seed)[1] for seed in range(99))
        best = known(change_s).interval_s(GAIN, *LIMITS)
        assert best / 2 < waits[9] and waits[49] == pytest.approx(best, rel=0.3) and waits[89] < 2.5 * best

    @pytest.mark.parametrize(("visits", "changes"), [(10, 1), (20, 5), (30, 15)])
    def test_it_is_near_the_estimator_of_less_bias(self, visits: int, changes: int) -> None:
        """Section 4.1: -ln((visits - changes + 1/2) / (visits + 1/2)) changes in an interval."""
        seen = Observed(visits, changes, changes * DAY, (visits - changes) * DAY)
        expected = -math.log((visits - changes + 0.5) / (visits + 0.5))
        assert estimated(seen).mean * DAY == pytest.approx(expected, rel=0.3)

    def test_it_is_surer_with_more_visits(self) -> None:
        few, many = (estimated(Observed(2 * n, n, n * DAY, n * DAY)).shape for n in (2, 16))
        assert many > 5 * few

    def test_a_page_that_always_changes_is_found_out_within_a_dozen_visits(self) -> None:
        seen, visits = Observed(), 0
        while not visits or interval_s(seen, GAIN, *LIMITS) < 30 * DAY:
            seen = observed(seen, interval_s(seen, GAIN, *LIMITS) if visits else DAY, True)
            visits += 1
            assert visits <= 12

    def test_a_page_that_stops_changing_is_visited_less(self) -> None:
        seen = Observed(MOST_COMPARED, MOST_COMPARED // 2, 16 * HOUR, 16 * HOUR)
        waits = [interval_s(seen, GAIN, *LIMITS)]
        for _ in range(100):
            seen = observed(seen, waits[-1], False)
            waits.append(interval_s(seen, GAIN, *LIMITS))
        assert waits[-1] > 20 * waits[0]

    def test_a_page_that_starts_to_change_is_visited_more(self) -> None:
        seen, rng = Observed(20, 0, 0.0, 60 * DAY), random.Random(4)
        before = wait_s = interval_s(seen, GAIN, *LIMITS)
        for _ in range(30):
            seen = observed(seen, wait_s, rng.random() < -math.expm1(-wait_s / DAY))
            wait_s = interval_s(seen, GAIN, *LIMITS)
        assert wait_s < before / 3

    def test_a_page_taken_for_too_fast_is_tried_again(self) -> None:
        """It was left for 30 days and has changed in them, which says little. It now changes once a day."""
        seen, rng, wait_s = Observed(12, 12, 12 * HOUR, 0.0), random.Random(5), 30 * DAY
        assert interval_s(seen, GAIN, *LIMITS) == wait_s
        for _ in range(20):
            seen = observed(seen, wait_s, rng.random() < -math.expm1(-wait_s / DAY))
            wait_s = interval_s(seen, GAIN, *LIMITS)
        assert wait_s < DAY

    def test_a_page_that_is_still_too_fast_is_left_again_soon(self) -> None:
        seen, waits = Observed(), [DAY]
        while waits.count(30 * DAY) < 4:
            seen = observed(seen, waits[-1], True)
            waits.append(interval_s(seen, GAIN, *LIMITS))
        first, second, *_ = (number for number, wait_s in enumerate(waits) if wait_s == 30 * DAY)
        assert second - first <= first / 2 + 1

    def test_what_is_observed_stays_small(self) -> None:
        seen, _ = seen_after(1_000, DAY)
        assert seen.compared <= MOST_COMPARED and seen.changes <= seen.compared
