"""A cluster with many replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frontier.peers import Member, View
from tests.simulation.crowd import BUSY, Agreement, Crowd, judge, replay, size_of
from tests.simulation.loop import Breach
from tests.simulation.run import Run
from tests.simulation.scenario import Scenario
from tests.simulation.wire import Wire

pytestmark = pytest.mark.long


def test_two_hundred_replicas(wire: Wire) -> None:
    """With a usual interval: a brief one lets each replica ask the server five times as often, and shows no more. With a
    short delay, the crawl ends soon after the faults."""
    scenario = replace(Scenario.draw(7, faulty_s=8.0, replicas=200, interval_s=1.0), delay_ms=200)
    assert Run(scenario, wire).go().replicas >= 200


def test_thirty_replicas_join_within_a_minute_and_three_die_at_once(wire: Wire) -> None:
    """``python -m tests.simulation --seed 7 --crowd 1000`` is the long form."""
    scenario = Scenario.crowd(30)
    run = Run(scenario, wire)
    result = run.go()
    joined, died = result.agreements
    assert result.replicas >= 30
    assert died.replicas < joined.replicas  # some may have left while others joined
    assert sum(replica.loop.is_dead for replica in run.replicas) >= scenario.deaths
    joining, all_there, without_some = replay(run.load.phases)
    assert min(cost.phase.calls for cost in (joining, all_there, without_some)) > 100
    assert 0 < max(joining.core, all_there.core, without_some.core) < BUSY


def adopted(me: str, roster: str, owners: str, epoch: int = 1) -> View:
    members = tuple(Member(name, index) for index, name in enumerate(roster, start=1))
    return View(epoch, members, me, tuple(owners))


def test_views_agree_when_the_last_replica_has_one_with_all_the_living_and_no_other() -> None:
    crowd = Crowd(interval_s=5.0)
    crowd.see(adopted("a", "abc", "abbc"), 1.0)
    crowd.expect({"a", "b"}, {"c"}, since=2.0)
    crowd.see(adopted("a", "ab", "aabb", epoch=2), 7.0)
    crowd.see(adopted("b", "abc", "abbc"), 8.0)
    assert crowd.agreement is None
    crowd.see(adopted("b", "ab", "aabb", epoch=2), 9.5)
    assert crowd.agreement == Agreement(2, in_effect=1.0, held=1.5, least=2, most=2, fair=2.0, furthest=0.0)


@pytest.mark.parametrize(
    ("agreement", "invariant"),
    [
        (None, "I4"),
        (Agreement(10, in_effect=2.1, held=2.1, least=2, most=2, fair=2.0, furthest=0.0), "I4"),
        (Agreement(10, in_effect=1.5, held=2.6, least=2, most=2, fair=2.0, furthest=0.0), "I4"),
        (Agreement(10, in_effect=1.5, held=2.4, least=1, most=3, fair=2.0, furthest=1.0), "I5"),
    ],
)
def test_late_views_and_uneven_shards_are_breaches(agreement: Agreement | None, invariant: str) -> None:
    with pytest.raises(Breach) as caught:
        judge(agreement, "after the deaths", adopted_within=2.5)
    assert caught.value.invariant == invariant


def test_the_size_of_a_reply_is_that_on_the_wire() -> None:
    assert size_of([b"claimed", 12, None, []]) == len(b"*4\r\n$7\r\nclaimed\r\n:12\r\n$-1\r\n*0\r\n")
