"""Who goes first when there is more to do than a replica can."""

from __future__ import annotations

import pytest

from crawler.turns import gives_way_s


@pytest.mark.parametrize("late_s", [-1.0, 0.0, 0.05])
def test_large_bodies_cost_their_domain_nothing_while_the_replica_keeps_up(late_s: float) -> None:
    assert gives_way_s(10 << 20, late_s) == 0.0


def test_a_replica_that_is_behind_takes_no_more_of_domains_with_large_bodies() -> None:
    assert gives_way_s(10 << 20, 0.5) == 10.0
    assert gives_way_s(20_000, 0.5) < 0.02
    assert gives_way_s(0, 60.0) == 0.0
