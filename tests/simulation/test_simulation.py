"""Some dozens of seeds at each run of the tests; ``python -m tests.simulation --runs 5000`` is the long run."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from frontier.counters import Counters
from frontier.keys import CrawlKeys
from tests.simulation.loop import Breach, History, SimLoop, Universe
from tests.simulation.mutant_gate import NOTICED_BY, QUICK, is_noticed
from tests.simulation.mutants import MUTANTS, ROOT, Mutant
from tests.simulation.network import LASTING_S, Network, SimStore
from tests.simulation.run import Run
from tests.simulation.scenario import BRIEF_S, MANY_RESTARTS, Scenario, World
from tests.simulation.wire import Wire

SEEDS = 20

WITH_FETCHES = range(6)

RESHARDED = (0, 4, 6, 7, 13, 19)
"""Seeds with three nodes, with twenty restarts, and with reshards that are undone while others copy."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_invariant_is_breached(wire: Wire, seed: int) -> None:
    """I1, I2, I4, I5, I7 and I8 hold through faults drawn from the seed, and the crawl comes to its end."""
    run = Run(Scenario.draw(seed), wire)
    try:
        result = run.go()
    except Breach as breach:
        breach.add_note("\n".join(run.history.told(breach.about)[-40:]))
        breach.add_note(f"again: python -m tests.simulation --seed {seed} -v")
        raise
    assert result.requests > 0


@pytest.mark.parametrize("seed", WITH_FETCHES)
def test_no_invariant_is_breached_by_requests_of_handlers(wire: Wire, seed: int) -> None:
    """They go to any domain of the crawl, of any replica, and no site is asked too early."""
    result = Run(replace(Scenario.draw(seed), fetches=3), wire).go()
    assert result.requests > 1.5 * len(World(Scenario.draw(seed)).resources)


@pytest.mark.parametrize("seed", WITH_FETCHES)
def test_no_invariant_is_breached_by_pages_in_browsers(wire: Wire, seed: int) -> None:
    """The requests of a page belong to its visit, and nothing else is sent to its domain meanwhile."""
    result = Run(replace(Scenario.draw(seed), renders=4), wire).go()
    assert result.requests > 1.5 * len(World(Scenario.draw(seed)).resources)


def test_requests_of_handlers_wait_for_pages_in_browsers(wire: Wire) -> None:
    Run(replace(Scenario.draw(11), fetches=2, renders=2), wire).go()


@pytest.mark.long
@pytest.mark.parametrize("seed", RESHARDED)
def test_no_invariant_is_breached_by_reshards(wire: Wire, seed: int) -> None:
    """The same while operators change the number of shards, and are killed."""
    Run(replace(Scenario.draw(seed), reshards=3), wire).go()


@pytest.mark.long
@pytest.mark.parametrize("seed", [5, 15])
def test_reshards_while_pages_are_in_browsers_leave_no_task_behind(wire: Wire, seed: int) -> None:
    Run(replace(Scenario.draw(seed), reshards=2, renders=3), wire).go()


def test_these_seeds_include_the_rare_worlds() -> None:
    """Only a chain shows that the counters must be read twice, and only a short interval that rosters must be kept. Many
    restarts lose what was repeated after others."""
    drawn = [Scenario.draw(seed) for seed in range(SEEDS)]
    assert any(scenario.is_chain for scenario in drawn)
    assert any(scenario.interval_s == BRIEF_S for scenario in drawn)
    assert any(scenario.restarts == MANY_RESTARTS for scenario in drawn)


def test_a_seed_tells_the_same_story_again(wire: Wire) -> None:
    stories = []
    for _ in range(2):
        run = Run(Scenario.draw(11), wire)
        run.go()
        stories.append(run.history.told())
    assert stories[0] == stories[1]


def test_a_task_that_is_closed_is_in_its_own_loop() -> None:
    """Otherwise `asyncio.gather` in its last steps makes a loop that nobody closes."""
    universe, seen = Universe(), []
    loop = SimLoop(universe, "r", random.Random(1), lateness=0.0, drift=0.0)

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(asyncio.get_running_loop())

    loop.spawn(work())
    universe.step()
    loop.close()
    assert seen == [loop]


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


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_the_program_as_it_is(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text()
    assert [text.count(old) for old, _ in mutant.changes] == [1] * len(mutant.changes)


def test_each_mutant_names_what_notices_it() -> None:
    assert NOTICED_BY.keys() == {mutant.name for mutant in MUTANTS}
    tests = [by.split("::") for by in NOTICED_BY.values() if not by.startswith("--")]
    assert [(path, name) for path, name in tests if f" {name}" not in (ROOT / path).read_text()] == []


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.parametrize("name", QUICK)
def test_a_mutant_is_noticed(name: str) -> None:
    """`make soak` tries them all."""
    assert is_noticed(next(mutant for mutant in MUTANTS if mutant.name == name))
