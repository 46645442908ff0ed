"""Changing pages and the referee of freshness, checked against direct counting."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from tests.simweb.features import Change, Changing, Validity
from tests.simweb.judge import best_rate, freshness, gain_of, judge_freshness

DAY = 86_400.0
NOW = 1_700_000_000.0


def page(change: Change, mean_s: float = DAY, number: int = 0, validity: Validity = Validity.ETAG) -> Changing:
    return Changing(1, f"http://a.test/{number}", change, mean_s, validity)


def changes(one: Changing, begin: float, end: float) -> list[float]:
    found, at = [], begin
    while (at := one.next_change(at)) < end:
        found.append(at)
    return found


class TestChanges:
    def test_they_come_at_the_rate_and_as_irregularly_as_random_ones(self) -> None:
        gaps: list[float] = []
        for number in range(20):
            found = changes(page(Change.POISSON, DAY, number), NOW, NOW + 200 * DAY)
            gaps += [after - before for before, after in pairwise(found)]
        assert sum(gaps) / len(gaps) == pytest.approx(DAY, rel=0.05)
        assert sum(gap > DAY for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), rel=0.1)

    @pytest.mark.parametrize("change", [Change.POISSON, Change.PERIODIC])
    def test_the_last_and_the_next_change_agree(self, change: Change) -> None:
        one, rng = page(change), random.Random(1)
        for _ in range(200):
            at = NOW + rng.uniform(0, 30 * DAY)
            assert one.changed_at(at) <= at < one.next_change(at)
            assert one.changed_at(one.next_change(at) - 1e-3) == pytest.approx(one.changed_at(at))

    def test_one_that_never_changes_and_one_that_always_does(self) -> None:
        assert page(Change.NEVER).next_change(NOW) == math.inf and page(Change.NEVER).changed_at(NOW) == 0
        assert page(Change.ALWAYS).next_change(NOW) == NOW
        assert page(Change.ALWAYS).text(NOW) != page(Change.ALWAYS).text(NOW + 1e-3)


class TestValidators:
    @pytest.mark.parametrize("validity", [Validity.ETAG, Validity.DATE, Validity.WORDY])
    def test_honest_ones_tell_each_change(self, validity: Validity) -> None:
        one = page(Change.PERIODIC, validity=validity)
        ((name, value),) = one.fields(NOW).items()
        request = {{"ETag": "if-none-match", "Last-Modified": "if-modified-since"}[name]: value}
        changed = one.next_change(NOW)
        assert one.is_not_modified(NOW, request) and one.is_not_modified(changed - 1, request)
        assert not one.is_not_modified(changed + 1, request) and not one.is_not_modified(NOW, {})

    def test_dishonest_ones_do_not(self) -> None:
        stuck, restless = (page(Change.PERIODIC, validity=one) for one in (Validity.STUCK, Validity.RESTLESS))
        assert stuck.is_not_modified(NOW + 9 * DAY, {"if-none-match": stuck.fields(NOW)["ETag"]})
        assert not restless.is_not_modified(NOW + 1, {"if-none-match": restless.fields(NOW)["ETag"]})
        assert page(Change.NEVER, validity=Validity.NONE).fields(NOW) == {}


class TestReferee:
    @pytest.mark.parametrize("change", [Change.POISSON, Change.PERIODIC])
    @pytest.mark.parametrize("visits_a_day", [0.3, 1.1, 5.0])
    def test_what_it_expects_is_what_it_counts(self, change: Change, visits_a_day: float) -> None:
        pages = [page(change, number=number) for number in range(400)]
        times = [NOW + number * DAY / visits_a_day for number in range(int(60 * visits_a_day))]
        end = times[-1] + DAY / visits_a_day
        found = judge_freshness(pages, {one.url: times for one in pages}, NOW, end)
        assert found.reached == pytest.approx(found.uniform, rel=0.05)
        assert found.visits == 400 * len(times)

    def test_the_best_visits_are_as_many_and_none_could_be_moved(self) -> None:
        rng = random.Random(3)
        pages = [page(rng.choice(list(Change)), DAY * math.exp(rng.gauss(0, 2)), number) for number in range(60)]
        gain_s = gain_of(pages, 30 / DAY)
        rates = [best_rate(one, gain_s) for one in pages]
        assert 30 / DAY <= sum(rates) < 36 / DAY  # a periodic page gets all or nothing
        best = sum(map(freshness, pages, rates))
        for _ in range(300):
            moved = rng.random() * 0.5 / DAY
            giver, taker = rng.sample(range(60), 2)
            if rates[giver] > moved:
                other = list(rates)
                other[giver], other[taker] = rates[giver] - moved, rates[taker] + moved
                assert sum(map(freshness, pages, other)) <= best + 1e-6

    def test_a_copy_from_before_counts_and_a_page_without_one_does_not(self) -> None:
        still = [page(Change.NEVER, number=number) for number in range(2)]
        assert judge_freshness(still, {still[0].url: [NOW - DAY]}, NOW, NOW + DAY).reached == 0.5
