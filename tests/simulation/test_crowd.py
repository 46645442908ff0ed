"""A cluster with many replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.crowd import BUSY, replay
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
