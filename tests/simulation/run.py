"""One run: build everything from the seed, let it happen, and judge it."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass

from frontier.clock import ServerClock
from frontier.entries import Entry
from frontier.errors import RedisAway
from frontier.keys import CrawlKeys
from frontier.queue import Frontier
from tests.simulation.audit import audit
from tests.simulation.faults import Faults
from tests.simulation.history import Breach, History
from tests.simulation.ledger import Ledger
from tests.simulation.loop import SimClock, SimLoop, Universe
from tests.simulation.network import Network, SimStore
from tests.simulation.replica import SimReplica, Surroundings, frontier_settings
from tests.simulation.scenario import Scenario
from tests.simulation.sites import Sites
from tests.simulation.views import Views
from tests.simulation.wire import ScriptFailed, Wire
from tests.simulation.world import World

AUDIT_EVERY = 500
"""Events between two comparisons of Redis with the ledger."""

DRAIN_S = 7_200.0
"""A crawl of these sizes, left in peace, is over long before: fifteen losses of the longest lease take 450 s."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a run did."""

    events: int
    simulated_s: float
    calls: int
    requests: int
    refetched: int
    replicas: int


class Run:
    """A run of `scenario` on the server behind `wire`, which is emptied first."""

    def __init__(self, scenario: Scenario, wire: Wire) -> None:
        self.scenario = scenario
        self.universe = Universe()
        self.history = History(self.universe)
        self.replicas: list[SimReplica] = []
        self._wire = wire
        self._rng = random.Random(f"run {scenario.seed}")
        self._joined = 0
        self._emptied_at: float | None = None
        world, keys, recorded = World(scenario), CrawlKeys("sim", scenario.shards), dict[str, int]()
        self.ledger = Ledger(world, self.history, scenario.delay_ms, recorded, scenario.max_pages)
        self.ledger.on_empty = self._note_end
        self._network = Network(self.universe, wire, scenario, self.history)
        self._network.observers.append(self.ledger.observe)
        self._sites = Sites(self.universe, world, self.history, self.ledger.delay_of, scenario)
        self._views = Views(scenario.shards)
        self._network.observers.append(self._views.observe)
        self._here = Surroundings(
            scenario, world, self._network, self._sites, self.history, keys, recorded, self._views.see
        )

    def _note_end(self) -> None:
        self._emptied_at = self.universe.now

    def go(self) -> Result:
        """Run to the end. Raises Breach."""
        self._wire.command("FLUSHDB")
        before = self._wire.calls
        try:
            self._seed()
            for _ in range(self.scenario.replicas):
                self._join()
            self._suffer()
            self._drain()
            self._judge()
        except ScriptFailed as error:
            raise Breach("I1", f"a script failed: {error}") from error
        finally:
            for replica in self.replicas:
                replica.loop.close()
        requests = self._sites.requests
        refetched = sum(count - 1 for count in self._here.recorded.values())
        return Result(
            self.universe.events,
            self.universe.now,
            self._wire.calls - before,
            sum(requests.values()),
            refetched,
            len(self.replicas),
        )

    def _seed(self) -> None:
        loop = self._loop("seeder")
        store = SimStore(self._network, loop)
        clock = ServerClock(SimClock(loop), store.time_ms)
        frontier = Frontier(store, self._here.keys, clock, frontier_settings(self.scenario), b"key")
        world = self._here.world

        async def seed() -> None:
            await clock.refresh()
            await frontier.push([Entry(url, world.resources[url].domain) for url in world.seeds])

        self._network.is_faulty = False
        task = loop.spawn(seed())
        while not task.done():
            self.universe.step()
        self._network.is_faulty = True

    def _loop(self, name: str) -> SimLoop:
        rng = random.Random(f"{self.scenario.seed} {name} loop")
        return SimLoop(self.universe, name, rng, self.scenario.lateness, self.scenario.drift)

    def _join(self) -> None:
        self._joined += 1
        replica = SimReplica(self._here, self._loop(f"r{self._joined}"))
        self.replicas.append(replica)
        self.universe.at(self.universe.now + self._rng.uniform(0.0, 2.0), replica.start, replica.loop)
        replica.loop.spawn(self._watch_end(replica))

    def _alive(self) -> list[SimReplica]:
        return [replica for replica in self.replicas if not (replica.loop.is_dead or replica.has_left)]

    async def _watch_end(self, replica: SimReplica) -> None:
        """Ask the counters now and then whether the crawl is over, and hold the answer against the ledger (I7)."""
        clock = SimClock(replica.loop)
        while not replica.ended:
            # A wrong answer is likeliest when little is left.
            await clock.sleep(self._rng.uniform(0.2, 2.0) if self.ledger.open < 6 else self._rng.uniform(0.5, 20.0))
            asked_at = self.universe.now
            with contextlib.suppress(RedisAway):
                replica.ended = await replica.counters.has_ended()
                was_over = self._emptied_at is not None and self._emptied_at < asked_at
                if replica.ended and self.ledger.open:
                    raise Breach("I7", f"the crawl is said to be over with {self.ledger.open} URLs open", replica.name)
                if was_over and not replica.ended:
                    raise Breach("I7", "the crawl is over and is said to go on", replica.name)

    # the course of a run

    def _suffer(self) -> None:
        faults = Faults(self.universe, self._network, self.scenario, self.history, self._join, self._alive)
        for _ in range(self.scenario.steps):
            if self._is_over():
                break
            self._step()
        faults.stop()
        for replica in self.replicas:
            replica.loop.paused_until = 0.0
        self.history.note("", "healed")

    def _drain(self) -> None:
        if not self._alive():
            self._join()
        until = self.universe.now + DRAIN_S
        while not self._is_over():
            if self.universe.now > until:
                raise Breach("I8", f"{self.ledger.open} URLs are open {DRAIN_S:g} s after all was well again")
            for _ in range(50):
                self._step()
            if not self._alive():
                self._join()

    def _is_over(self) -> bool:
        emptied = self._emptied_at is not None and any(replica.ended for replica in self.replicas)
        return emptied or self._is_spent

    @property
    def _is_spent(self) -> bool:
        return any(replica.spent for replica in self.replicas)

    def _step(self) -> None:
        self.universe.step()
        if self.universe.events % AUDIT_EVERY == 0:
            self._audit()

    def _audit(self) -> None:
        audit(self._wire, self._here.keys, self.ledger)
        for replica in self.replicas:
            if replica.loop.failures:
                raise Breach("I8", f"{replica.name} is broken: {replica.loop.failures[0]}", replica.name)

    def _judge(self) -> None:
        """What must hold at the end."""
        self._audit()
        ledger, world = self.ledger, self._here.world
        reached, pending = set[str](), list(world.seeds)
        while pending:
            url = pending.pop()
            if url not in reached:
                reached.add(url)
                if ledger.settled.get(url) == "done":
                    pending += world.resources[url].links
        lost = reached - ledger.settled.keys() - ledger.capped
        if self._is_spent:
            if ledger.pages != self.scenario.max_pages:
                raise Breach("limit", f"the crawl ends with {ledger.pages} pages, not {self.scenario.max_pages}")
        elif lost:
            raise Breach("I1", f"never settled: {sorted(lost)}")
        for replica in self.replicas:
            replica.recover()
        recorded = self._here.recorded
        for url in sorted(ledger.settled.keys() - ledger.lost_with_holder):
            if recorded.get(url, 0) != 1:
                raise Breach("I1", f"{url} is settled, and has {recorded.get(url, 0)} records", url)
