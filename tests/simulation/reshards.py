"""Operators that give the crawl another number of shards while faults happen, and are often killed in the middle.

Each is a process of its own that does what `crawler reshard` does: it begins a reshard, completes one that was
interrupted, or undoes it.

The referee of reshards: knows which shards the crawl uses, and whether they are open, frozen or being filled.

It sees each call before the ledger does, and keeps those from it that a shard refused. Of the calls that the ledger keeps
account of, a shard in use may refuse none, and one that is not may carry out none but `revoke`, which asks for its past.

It also sees which command has begun the reshard. Another one may begin only if that one has reported nothing for `BUSY_MS`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from frontier.clock import ServerClock, crawl_ms
from frontier.crawls import Crawl, check_new_shards, open_crawl
from frontier.errors import BadInput, CrawlLost, CrawlResharded, RedisAway
from frontier.keys import CrawlKeys
from frontier.reshard import Reshard, open_with_new_shards
from frontier.scripts import (
    BEGIN_RESHARD,
    CANCEL_RESHARD,
    END_RESHARD,
    FREEZE_SHARD,
    IDENTIFY_SHARD,
    REPORT_RESHARD,
    REVOKE,
    SWITCH_LAYOUT,
    Call,
    Reply,
)
from tests.simulation.ledger import Ledger
from tests.simulation.loop import Breach, History, SimClock, SimLoop, Universe
from tests.simulation.network import Network, SimStore
from tests.simulation.scenario import Scenario
from tests.simulation.wire import shard_tag

LOST = [b"lost"]
"""What a script replies if a shard has not the identity that its caller expects."""

BUSY_MS = 10_000
"""As in `lua/begin_reshard.lua`."""


class Layouts:
    """`crawl`: as it was created; then with the layout in use. `on_switch` is told the number of shards of a new one."""

    def __init__(self, history: History, ledger: Ledger, crawl: Crawl, on_switch: Callable[[int], None]) -> None:
        self._history = history
        self._ledger = ledger
        self.crawl = self._first = crawl
        self._on_switch = on_switch
        self._identities: dict[str, str] = {}  # by hash tag of a shard
        self._working: tuple[str, int] | None = None  # the command that has begun the reshard, and when it last said so

    @property
    def keys(self) -> CrawlKeys:
        """The keys of the layout in use."""
        return self.crawl.keys

    def rebuild(self, kept: Sequence[tuple[str, Call, Reply]]) -> None:
        """Forget what the server has lost: only the calls (replica, call, reply) in `kept` count, which were checked."""
        self.crawl = self._first
        self._identities.clear()
        self._working = None
        self._ledger.rebuild(kept, self.observe)

    def observe(self, replica: str, call: Call, reply: Reply) -> None:
        """Check one call that the server ran, and pass it on to the ledger."""
        if call.script in (BEGIN_RESHARD, REPORT_RESHARD, CANCEL_RESHARD, END_RESHARD):
            self._note_command(replica, call, reply)
            return
        if call.script is SWITCH_LAYOUT:
            if reply[0] == b"switched":
                self._switch(*map(str, call.arguments[:3]))
            return
        if call.arguments[0] == "UNLINK" and call.key.endswith("}:stats"):
            self._identities.pop(shard_tag(call.key), None)
            self._ledger.shards.pop(shard_tag(call.key), None)
        if call.script is None or call.script.name not in self._ledger.scripts | {FREEZE_SHARD.name}:
            return
        tag = shard_tag(call.keys[0])
        if call.script is IDENTIFY_SHARD:
            if reply[0] == b"identified":
                self._identify(tag, call)
        elif call.script is FREEZE_SHARD:
            if reply[0] == b"frozen":
                self._history.note(replica, "freeze", tag)
                self._identities[tag] = str(call.arguments[1])
                self._ledger.end_leases(tag)
        elif self._is_let_through(replica, tag, call, reply):
            self._ledger.observe(replica, call, reply)

    def _note_command(self, replica: str, call: Call, reply: Reply) -> None:
        working, words = self._working, call.arguments
        if reply[0] == b"begun":
            command, ms = str(words[2]), int(words[3])
            if working is not None and command != working[0] and abs(ms - working[1]) < BUSY_MS:
                raise Breach("claim", f"the command before has reported {ms - working[1]} ms before", replica)
            self._working = command, ms
        elif reply[0] == b"reported":
            *_, reported_ms, command = str(words[0]).split()
            if working is not None and command == working[0]:
                self._working = command, int(reported_ms)
        elif call.script in (CANCEL_RESHARD, END_RESHARD) and reply[0] != b"other":
            self._working = None

    def _identify(self, tag: str, call: Call) -> None:
        identity, run = str(call.arguments[0]), str(call.arguments[2])
        if tag not in self._identities:
            self._ledger.shards[tag].run = run
        self._identities[tag] = identity

    def _is_let_through(self, replica: str, tag: str, call: Call, reply: Reply) -> bool:
        script = call.script
        assert script is not None
        if not is_of_shard(tag):
            return True
        is_open = self._identities.get(tag) == self.crawl.keys.identity
        is_refused = reply == LOST
        if is_open == is_refused and not (script is REVOKE and not is_refused):
            raise Breach("I1", f"{tag} answers {reply} to {script.name}; it has {self._identities.get(tag)}", tag)
        if is_refused:
            self._history.note(replica, "refused", (script.name, tag))
        return not is_refused

    def _switch(self, tokens: str, shards: str, last_token: str) -> None:
        last_tokens = (*map(int, tokens.split()), int(last_token))
        self.crawl = msgspec.structs.replace(self.crawl, shards=int(shards), last_tokens=last_tokens)
        self._history.note("operator", "switch", self.crawl.keys)
        self._on_switch(int(shards))
        self._ledger.move([of.base[:-1] for of in self.crawl.keys.shards], int(last_token))


def is_of_shard(tag: str) -> bool:
    """Whether the hash tag is that of a shard, and not of keys that all replicas share."""
    return ":" in tag


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
        work = Reshard(store, crawl, (clock, server_clock), after, self._scenario.delay_ms)
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
