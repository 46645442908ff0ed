"""A cluster with many replicas."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.run import Run
from tests.simulation.scenario import Scenario
from tests.simulation.wire import Wire


def test_two_hundred_replicas(wire: Wire) -> None:
    """With a usual interval: a brief one lets each replica ask the server five times as often, and shows no more. With a
    short delay, the crawl ends soon after the faults."""
    scenario = replace(Scenario.draw(7, faulty_s=8.0, replicas=200, interval_s=1.0), delay_ms=200)
    assert Run(scenario, wire).go().replicas >= 200


def test_thirty_replicas_join_within_a_minute_and_three_die_at_once(wire: Wire) -> None:
    """``python -m tests.simulation --seed 7 --crowd 1000`` is the long form."""
    scenario = Scenario.crowd(30)
    run = Run(scenario, wire)
    assert run.go().replicas >= 30
    assert sum(replica.loop.is_dead for replica in run.replicas) >= scenario.deaths
    assert run.universe.now > scenario.faulty_s
