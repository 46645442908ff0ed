"""Operators that give the crawl another number of shards while faults happen, and are often killed in the middle.

Each is a process of its own that does what `crawler reshard` does: it begins a reshard, completes one that was
interrupted, or undoes it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from frontier.clock import ServerClock, crawl_ms
from frontier.crawls import Crawl, check_new_shards, open_crawl
from frontier.errors import BadInput, CrawlLost, CrawlResharded, RedisAway
from frontier.reshard import Reshard, Wanted, open_with_new_shards
from tests.simulation.history import Breach, History
from tests.simulation.loop import SimClock, SimLoop, Universe
from tests.simulation.network import Network, SimStore
from tests.simulation.scenario import Scenario

AGAIN_S = 1.0
"""Seconds until a command that has failed is run again."""

SHARDS = (2, 4, 8, 16, 32, 64)

CANCELS = 0.3
"""The chance that a reshard that was interrupted is undone, and not completed."""

KILLED = 0.6
"""The chance that a command is killed within `KILLED_S` seconds, which is as long as most of them take."""

KILLED_S = 15.0


class Operators:
    """`loop` makes the event loop of a process of that name."""

    def __init__(
        self,
        universe: Universe,
        network: Network,
        scenario: Scenario,
        history: History,
        loop: Callable[[str], SimLoop],
        name: str,
    ) -> None:
        self._universe = universe
        self._network = network
        self._scenario = scenario
        self._history = history
        self._loop = loop
        self._name = name
        self._rng = random.Random(f"reshards {scenario.seed}")
        self._loops: list[SimLoop] = []
        self._is_on = True

    def plan(self) -> None:
        """Begin at random moments of the time with faults."""
        for _ in range(self._scenario.reshards):
            self._universe.at(self._rng.uniform(1.0, self._scenario.faulty_s), self._strike)

    def finish(self) -> None:
        """Complete or undo what was interrupted. Nobody is killed any more."""
        self._is_on = False
        if self._loops:
            self._begin(only_finish=True)

    def check(self) -> None:
        """Raises Breach if a command has failed in a way that it does not expect."""
        for loop in self._loops:
            if loop.failures:
                raise Breach("I8", f"{loop.name} is broken: {loop.failures[0]}", loop.name)

    def close(self) -> None:
        """End all processes."""
        for loop in self._loops:
            loop.close()

    def _strike(self) -> None:
        if not self._is_on:
            return
        loop = self._begin(only_finish=False)
        if self._rng.random() < KILLED:
            self._universe.at(self._universe.now + self._rng.uniform(0.0, KILLED_S), lambda: self._kill(loop))

    def _kill(self, loop: SimLoop) -> None:
        if self._is_on:
            self._history.note(loop.name, "is killed")
            loop.is_dead = True

    def _begin(self, only_finish: bool) -> SimLoop:
        """Start a command in a process of its own. One that is still at work goes on beside it."""
        loop = self._loop(f"operator{len(self._loops) + 1}")
        self._loops.append(loop)
        loop.spawn(self._work(loop, only_finish))
        return loop

    async def _work(self, loop: SimLoop, only_finish: bool) -> None:
        while True:
            try:
                await self._reshard(SimStore(self._network, loop), SimClock(loop), only_finish)
            except RedisAway:
                await SimClock(loop).sleep(AGAIN_S)
            except CrawlResharded as error:
                self._history.note(loop.name, "gives up", error)
                if not only_finish:
                    return
                await SimClock(loop).sleep(AGAIN_S)
            except CrawlLost as error:
                with self._universe.judging():
                    raise Breach("I1", str(error), loop.name) from error
            else:
                return

    async def _reshard(self, store: SimStore, clock: SimClock, only_finish: bool) -> None:
        crawl = await open_crawl(store, self._name, for_reshard=True)
        if only_finish and not (crawl.resharding or crawl.former):
            return
        server_clock = ServerClock(clock, crawl_ms(store, crawl.keys.peers))
        await server_clock.refresh()
        after, cancels = self._choose(crawl)
        self._history.note(store.sender, "reshards", (crawl.shards, after, cancels))
        work = Reshard(store, crawl, (clock, server_clock), Wanted(after, self._scenario.delay_ms))
        if cancels:
            await work.cancel(_tell_nobody)
            return
        last_token = await open_with_new_shards(work, crawl, _tell_nobody)
        await work.clean(last_token, _tell_nobody)

    def _choose(self, crawl: Crawl) -> tuple[int, bool]:
        """The number of shards that `crawl` is to get, and whether a reshard is undone instead."""
        if crawl.former:
            return crawl.shards, False
        if progress := crawl.resharding:
            return progress.after, progress.cancelled or self._rng.random() < CANCELS
        return self._rng.choice([number for number in SHARDS if _is_possible(crawl.shards, number)]), False


def _is_possible(before: int, after: int) -> bool:
    try:
        check_new_shards(before, after)
    except BadInput:
        return False
    return True


def _tell_nobody(step: str, done: int, total: int) -> None: ...
