"""How long exchanges with the simulated server take."""

from __future__ import annotations

import random

import pytest

from frontier.counters import Counters
from frontier.keys import CrawlKeys
from tests.simulation.loop import History, SimLoop, Universe
from tests.simulation.network import LASTING_S, Network, SimStore
from tests.simulation.scenario import Scenario
from tests.simulation.wire import Wire


@pytest.mark.parametrize("seed", range(3))
def test_a_replica_finds_the_end_of_a_crawl_with_thousands_of_shards_in_seconds(wire: Wire, seed: int) -> None:
    """A real server answers for 2,000 shards in some milliseconds. Replicas must stop soon after the end (I7), and each
    reads the counters twice for that."""
    scenario = Scenario.crowd(1_000, seed)
    wire.command("FLUSHDB")
    universe = Universe()
    network = Network(universe, wire, scenario, History(universe))
    network.is_faulty = False
    loop = SimLoop(universe, "r1", random.Random(seed), lateness=0.0, drift=0.0)
    task = loop.spawn(Counters(SimStore(network, loop), CrawlKeys("sim", scenario.shards, "")).has_ended())
    while not task.done():
        universe.step()
    assert task.result()
    assert universe.now < 2 * LASTING_S + 1.0
