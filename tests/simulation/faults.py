"""What happens to replicas: pauses, crashes, orderly leaves, joins, and a server that stalls, is out of reach, restarts
without its last writes, or whose clock steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.simulation.loop import History, Universe
from tests.simulation.network import CONTROL_KEY, Network
from tests.simulation.replica import SimReplica
from tests.simulation.scenario import Scenario

KINDS = ("pause", "pause", "crash", "leave", "join", "join", "cut", "cut", "away", "stall", *4 * ("step",))

SOON_S = 2.0
"""Within so many seconds a replica starts that joins."""

STEPS_S = (-3600.0, -60.0, 60.0, 3600.0)


def timekeepers(network: Network, now: float, alive: Sequence[SimReplica]) -> list[SimReplica]:
    """Those of `alive` that notice a step of the server's clock within an interval, and are sure that it is one.

    One that is paused or cut off, or that waits for an answer that was cut off, reads the clock too late for a new replica.
    One that others went on without, or that has not seen the last correction, doubts its own clock.
    """
    newest = max((one.epoch for one in alive), default=0)
    return [
        one
        for one in alive
        if one.keeps_time
        and one.name in network.timekeepers
        and one.epoch >= newest - 1
        and max(network.cut.get(one.name, 0.0), network.silent_until.get(one.name, 0.0), one.loop.paused_until) <= now
    ]


class Faults:
    """Causes one fault after another until `stop`."""

    def __init__(
        self,
        universe: Universe,
        network: Network,
        scenario: Scenario,
        history: History,
        join: Callable[[float], None],
        alive: Callable[[], list[SimReplica]],
        restart: Callable[[float], None],
    ) -> None:
        self._universe = universe
        self._network = network
        self._scenario = scenario
        self._history = history
        self._join = join
        self._alive = alive
        self._rng = random.Random(f"faults {scenario.seed}")
        self._is_on = True
        self._restart = restart
        restarts = random.Random(f"when restarted {scenario.seed}")
        for _ in range(scenario.restarts):
            at, lost_s = restarts.uniform(1.0, scenario.faulty_s), restarts.choice((0.0, 1.0, restarts.random()))
            universe.at(at, lambda lost_s=lost_s: self._lose(lost_s))  # type: ignore[misc]
        self._plan()
        self._of_nodes = random.Random(
            f"nodes {scenario.seed}"
        )  # of its own, so that other faults are as with one node
        if scenario.nodes > 1:
            self._plan_node()

    def _plan_node(self) -> None:
        in_s = self._of_nodes.expovariate(1 / (3 * self._scenario.fault_every_s))
        self._universe.at(self._universe.now + in_s, self._strike_node)

    def _strike_node(self) -> None:
        """One node hangs, or cannot be reached: for a moment, some seconds, or several leases."""
        if not self._is_on:
            return
        rng, now = self._of_nodes, self._universe.now
        node = f"node{rng.randrange(self._scenario.nodes)}"
        if node == self._network.node_of(CONTROL_KEY) and not self._network.is_step_noticed:
            self._plan_node()  # see `_may_happen`
            return
        lasting_s = rng.choice((rng.uniform(0.5, 3.0), rng.uniform(0.2, 3.0) * self._scenario.lease_ms / 1000))
        is_hanging = rng.random() < 0.5
        self._history.note(node, "hangs" if is_hanging else "away", f"{lasting_s:.3f} s")
        (self._network.stalled_nodes if is_hanging else self._network.cut)[node] = now + lasting_s
        self._plan_node()

    def _lose(self, lost_s: float) -> None:
        if self._is_on:
            self._history.note("", "restart", f"{lost_s:.3f} s lost")
            self._restart(lost_s)

    def _plan(self) -> None:
        in_s = self._rng.expovariate(1 / self._scenario.fault_every_s)
        self._universe.at(self._universe.now + in_s, self._strike)

    def _strike(self) -> None:
        if not self._is_on:
            return
        kind, now, alive = self._rng.choice(KINDS), self._universe.now, self._alive()
        lease_s = self._scenario.lease_ms / 1000
        lasting_s = lease_s * self._rng.choice((0.1, 0.6, 1.0, 1.1, 2.5)) * self._rng.uniform(0.8, 1.2)
        replica = self._rng.choice(alive) if alive else None
        if not self._may_happen(kind, alive):
            self._plan()
            return
        self._history.note(replica.name if replica else "", kind, f"{lasting_s:.3f} s")
        if kind == "join":
            if len(alive) < 1.5 * self._scenario.replicas:
                self._join(SOON_S)
        elif kind == "away":
            self._network.cut[""] = now + lasting_s / 2
        elif kind == "step":
            self._network.stepped_ms += 1000 * self._rng.choice(STEPS_S)
            self._network.is_step_noticed = False
            if self._is_swift:
                self._join(SOON_S)  # a replica that may read the clock before anybody has noticed the step
        elif kind == "stall":
            self._network.stalled_until = now + lasting_s / 2
        elif replica is not None:
            self._harm(replica, kind, now + lasting_s)
        self._plan()

    @property
    def _is_swift(self) -> bool:
        """Whether a new replica gets an answer in time from those that know crawl time."""
        scenario = self._scenario
        return not (scenario.exchange_fault or scenario.slow or scenario.lateness) and scenario.interval_s >= 1

    def _may_happen(self, kind: str, alive: list[SimReplica]) -> bool:
        if not self._network.is_step_noticed:
            # Otherwise it may be that nobody notices it before a new replica has to trust the server's clock, as described
            # in `frontier.clock`.
            return kind == "join" and self._is_swift
        if kind != "step":
            return True
        now, network = self._universe.now, self._network
        node = network.node_of(CONTROL_KEY)
        away_until = max(network.cut.get("", 0.0), network.cut.get(node, 0.0))
        is_reached = max(away_until, network.stalled_until, network.stalled_nodes.get(node, 0.0)) <= now
        all_know = all(one.keeps_time for one in alive)
        return bool(timekeepers(network, now, alive)) and (all_know or self._is_swift) and is_reached

    def _harm(self, replica: SimReplica, kind: str, until: float) -> None:
        if kind == "pause":
            # What was put off until the end of a longer pause stays there.
            replica.loop.paused_until = max(replica.loop.paused_until, until)
        elif kind == "cut":
            self._network.cut[replica.name] = until
        elif kind == "crash":
            replica.loop.is_dead = True
            in_s = self._rng.choice((0.0, 1.0, 3.0)) * self._scenario.lease_ms / 1000
            self._universe.at(self._universe.now + in_s, replica.recover)
        elif kind == "leave":
            replica.leave(grace_s=self._rng.choice((2.0, 5.0)))

    def stop(self) -> None:
        """End all faults. From now on everything works."""
        self._is_on = False
        self._network.is_faulty = False
        self._network.cut.clear()
        self._network.stalled_until = 0.0
        self._network.stalled_nodes.clear()
