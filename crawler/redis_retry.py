"""Calls to Redis that have to succeed: pause while Redis is unavailable, report this once, and continue when it is back.

All calls of a replica that must eventually succeed go through one `RedisRetry`. The replica therefore has one outage state
for each node, and reports each change of it once. A refused call (for example after the password was changed) is retried
like an outage, because an operator can fix both. If writes are refused, the outage ends with a write: a server whose disk
is full still answers reads. `crawler.worker.commit` repeats writes that a restart has lost.

**A node** is here what can be away by itself: the single server, or a server of a cluster. A key of a wrong type, which
somebody else has written over, must cost only its shard. So this shard counts as a node of its own, even on a single
server, and so do the keys of the crawl, until `watch` finds that all their keys have their types again.

**One node.** All methods repeat a call until it answers.

**Several nodes.** A node that hangs must cost only its own shards. So whatever a worker or a commit needs from several
nodes is asked side by side (`each`), and what occupies a worker is asked once (`soon`). Both wait for an answer for
`PATIENCE_S` at most. A node that has not answered by then counts as away: only `watch` asks it again, every `WATCH_S`,
until it answers. A node that has lost shards counts as away, too, until `watch` finds that they are restored. Only the
loss of shards on the node of the control keys is raised, as if it were the only one.
Calls that belong to one node and hold up nobody else (`call`) are repeated until they succeed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from crawler.events import Events, RedisOutageBegan, RedisOutageEnded, ReplicasMissed
from frontier.clock import Clock
from frontier.errors import RedisAway, RedisMisused, ReplicasMissing, ShardLost, WritesRefused, WrongType
from frontier.shards import Nodes

T = TypeVar("T")
Part = TypeVar("Part")

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0
"""The first delay between attempts, and the longest. A restarted server is noticed within a tenth of a second; during a
long outage each call is attempted about twelve times a minute."""

LONGEST_NODE_WAIT_S = 1.0
"""The longest delay between attempts at one of several nodes. It ends early when the node is found to be back."""

PATIENCE_S = 1.0
"""How long an answer is awaited by those who can do something else meanwhile. Nodes answer within milliseconds, and within
some hundreds while they write a snapshot."""

LATE_S = 0.05
"""A timer that is later than this was held up by something else than timers."""

WATCH_S = 0.25
"""How often a node that is away is asked whether it serves again."""

UNREADABLE_S = 30.0
"""For how long a shard rests of which a script could not understand the values: only another try tells whether it can."""

ANY = ""
"""Stands for all nodes together: the only one, or a call whose node is unknown."""


class _Outage:
    """An outage of a node. `error`: the latest; `is_incomplete`: it has lost shards, or has keys of a wrong type, so only
    `watch` finds out when it is over; `refuses_writes`: it may answer reads anyway."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.error = ""
        self.is_incomplete = False
        self.refuses_writes = False
        self.is_watched = False  # `watch` is asking the node
        self.rests_until = 0.0  # it is not asked before (monotonic)
        self.end = asyncio.Event()


class RedisRetry:
    """Repeats calls until Redis answers them. `nodes`: None if there can be only one."""

    def __init__(
        self,
        clock: Clock,
        events: Events,
        rng: random.Random,
        verify: Callable[[], Awaitable[None]] | None = None,
        nodes: Nodes | None = None,
    ) -> None:
        """`verify` is awaited before the first call after an outage of the node of the control keys. Its exceptions
        propagate to the caller, except RedisAway and RedisMisused, which are retried."""
        self._clock = clock
        self._events = events
        self._rng = rng
        self._nodes = nodes
        self._outages: dict[str, _Outage] = {}  # by node
        self._verify = verify
        self._asking: set[asyncio.Task[Any]] = set()
        self._refused: dict[object, str] = {}  # calls of which a write was refused, and which are repeated -> node

    # state

    @property
    def has_many_nodes(self) -> bool:
        """Whether there are several nodes, so that some may serve while others cannot."""
        return self._nodes is not None and self._nodes.has_many_nodes

    @property
    def is_away(self) -> bool:
        """Whether nothing can be done: all nodes are away."""
        if not self._outages or not self.has_many_nodes:
            return bool(self._outages)
        assert self._nodes is not None
        return self._nodes.names <= self._outages.keys()

    @property
    def errors(self) -> list[str]:
        """Why nodes are away: the latest error of each."""
        return list(dict.fromkeys(outage.error for outage in self._outages.values() if outage.error))

    @property
    def away_nodes(self) -> list[str]:
        """Those of several nodes that cannot be used, without `incomplete_nodes`. Empty if there is only one."""
        if not self.has_many_nodes:
            return []
        return sorted(node for node, outage in self._outages.items() if node != ANY and not outage.is_incomplete)

    @property
    def _crawl_node(self) -> str:
        """The node of the control keys."""
        return ANY if self._nodes is None else self._nodes.crawl_node

    @property
    def away_crawl_node(self) -> str:
        """The node of the control keys, if it is away while others serve; "" otherwise."""
        node = self._crawl_node
        return node if self.is_node_away(node) else ""

    @property
    def incomplete_nodes(self) -> list[str]:
        """The nodes that have lost shards, or have keys of a wrong type."""
        return sorted(node for node, outage in self._outages.items() if outage.is_incomplete)

    @property
    def nodes(self) -> dict[str, bool]:
        """Whether each node is away."""
        names = sorted(self._nodes.names) if self._nodes else []
        if len(names) == 1:
            return {names[0]: bool(self._outages)}
        return {node: node in self._outages for node in names}

    def is_node_away(self, node: str) -> bool:
        """Whether `node` is away, while others may serve. Always False if there is only one."""
        return bool(self._outages) and node in self._outages and self.has_many_nodes

    def is_shard_away(self, shard: int) -> bool:
        """Like `is_node_away`, for the node of `shard`."""
        return bool(self._outages) and self._nodes is not None and self.is_node_away(self._nodes.of(shard))

    def node_of(self, shard: int) -> str:
        return ANY if self._nodes is None else self._nodes.of(shard)

    def split(self, items: Sequence[Part], shard_of: Callable[[Part], int]) -> dict[str, list[Part]]:
        """`items` by the node of their shards."""
        if not self.has_many_nodes:
            return {ANY: list(items)} if items else {}
        assert self._nodes is not None
        return self._nodes.split(items, shard_of)

    # calls

    async def call(self, call: Callable[[], Awaitable[T]], node: str = ANY, is_divisible: bool = False) -> T:
        """Repeat `call` until it succeeds, and return its result. `call` must be safe to repeat. `node`: the one that it
        needs. Raises what `verify` and `call` raise, except RedisAway, RedisMisused and the loss of shards of some nodes
        only. `is_divisible`: raise WrongType when the shard of such a key begins to be a node of its own."""
        wait_s, this = FIRST_WAIT_S, object()
        try:
            while True:
                try:
                    if self._outages and self._verify is not None and self._must_verify(node):
                        await self._verify()
                    result = await call()
                except (RedisAway, RedisMisused, ShardLost) as error:
                    self.failed(error, node)
                    if is_divisible and isinstance(error, WrongType) and node != self._name(node, error):
                        raise
                    if isinstance(error, WritesRefused):
                        self._refused[this] = self._name(node, error)
                    await self._wait_for(self._name(node, error), wait_s * self._rng.uniform(0.5, 1.5))
                    wait_s = min(wait_s * 2, LONGEST_NODE_WAIT_S if self.has_many_nodes else LONGEST_WAIT_S)
                else:
                    self.answered(node, has_written=this in self._refused)
                    return result
        finally:
            self._refused.pop(this, None)

    async def _wait_for(self, node: str, longest_s: float) -> None:
        """Wait for `longest_s`, or with several nodes until `node` is back, if that is earlier. A call that waits to
        the end would otherwise begin up to one and a half delays after a failover."""
        outage = self._outages.get(node)
        if not self.has_many_nodes or outage is None:
            await self._clock.sleep(longest_s)
            return
        # `asyncio.wait_for` of Python 3.11 loses a cancellation at the moment when the node is back.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await outage.end.wait()

    async def call_crawl_node(self, call: Callable[[], Awaitable[T]]) -> T:
        """Like `call`, for the node of the control keys."""
        return await self.call(call, self._crawl_node)

    async def soon(self, call: Callable[[], Awaitable[T]], node: str) -> T:
        """The result of `call`, which needs `node`. With several nodes, raises RedisAway if the node is away or does not
        answer in time. Otherwise like `call`."""
        if not self.has_many_nodes:
            return await self.call(call, is_divisible=True)
        answer = (await self.each({node: None}, lambda _: call()))[node]
        if isinstance(answer, RedisAway):
            raise answer
        return answer

    async def crawl_node_soon(self, call: Callable[[], Awaitable[T]]) -> T:
        """Like `soon`, for the node of the control keys."""
        return await self.soon(call, self._crawl_node)

    async def each(self, parts: Mapping[str, Part], call: Callable[[Part], Awaitable[T]]) -> dict[str, T | RedisAway]:
        """The results of `call` for the part of each node, side by side. `parts` is from `split`.

        With several nodes, one that is away, or does not answer in time, has a RedisAway in place of its result; the call
        may take effect anyway. If there is only one, the call is repeated until it succeeds."""
        if not self.has_many_nodes:
            return {node: await self._undivided(partial(call, part)) for node, part in parts.items()}
        asked = {node: self._ask(call(part)) for node, part in parts.items() if node not in self._outages}
        if asked:
            try:
                await self._wait(asked.values())
            except BaseException:
                for task in asked.values():
                    task.cancel()
                raise
        return {node: self._answer(node, asked.get(node)) for node in parts}

    async def _undivided(self, call: Callable[[], Awaitable[T]]) -> T | RedisAway:
        try:
            return await self.call(call, is_divisible=True)
        except WrongType as error:
            return error

    async def each_node(
        self, items: Sequence[Part], shard_of: Callable[[Part], int], call: Callable[[list[Part]], Awaitable[T]]
    ) -> tuple[list[tuple[list[Part], T]], list[Part]]:
        """Like `each`, for `items` by the node of their shards. Returns the items of each node that has answered and its
        result, and the items of the others."""
        parts = self.split(items, shard_of)
        answered: list[tuple[list[Part], T]] = []
        missed: list[Part] = []
        for node, answer in (await self.each(parts, call)).items():
            if isinstance(answer, WrongType) and len(self.split(parts[node], shard_of)) > 1:
                others, also_missed = await self.each_node(parts[node], shard_of, call)
                answered += others
                missed += also_missed
            elif isinstance(answer, RedisAway):
                missed += parts[node]
            else:
                answered.append((parts[node], answer))
        return answered, missed

    async def _wait(self, asked: Collection[asyncio.Task[T]]) -> None:
        """Wait until all of `asked` are done, but not for longer than `PATIENCE_S`. If this replica was itself stopped for
        a while, as on a busy machine, answers may have come that it has not read, so it waits for as long again."""
        until = self._clock.monotonic() + PATIENCE_S
        await asyncio.wait(asked, timeout=PATIENCE_S)
        late_s = self._clock.monotonic() - until
        if late_s > LATE_S:
            await asyncio.wait(asked, timeout=min(late_s, PATIENCE_S))

    def _ask(self, asking: Awaitable[T]) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.ensure_future(asking)
        self._asking.add(task)
        task.add_done_callback(self._asked)
        return task

    def _asked(self, task: asyncio.Task[Any]) -> None:
        self._asking.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved by `_answer`, unless it came too late

    def _answer(self, node: str, task: asyncio.Task[T] | None) -> T | RedisAway:
        if task is None:
            return RedisAway(f"{node} is away", node)
        if not task.done():
            task.cancel()  # the store carries out what was sent
            return self._lost_in_time(TimeoutError(), node)
        error = task.exception()
        if isinstance(error, (RedisAway, RedisMisused, ShardLost)):
            return self._lost_in_time(error, node)
        return task.result()

    def _lost_in_time(self, error: Exception, node: str) -> RedisAway:
        """Record that `node` has not answered. Returns the error to report. A node that lacks replicas is not away."""
        if isinstance(error, ReplicasMissing):
            self._events.emit(ReplicasMissed(str(error), error.node))
            return error
        if isinstance(error, TimeoutError):
            error = RedisAway(f"no answer from {node} within {PATIENCE_S:g} s", node)
        self.failed(error, getattr(error, "node", "") or node)  # a repeated link may have needed another node
        return error if isinstance(error, RedisAway) else RedisAway(str(error), node)

    # outages

    def _name(self, node: str, error: Exception | None = None) -> str:
        """The node to which a result is attributed."""
        if isinstance(error, WrongType) and self._nodes is not None and (apart := self._nodes.set_apart(error.key)):
            return apart
        if not self.has_many_nodes:
            return node if node in self._outages else ANY  # it may have been one until now
        return node or getattr(error, "node", "")

    def _must_verify(self, node: str) -> bool:
        if not self.has_many_nodes:
            return True
        assert self._nodes is not None
        return node == self._nodes.crawl_node and node in self._outages

    def failed(self, error: Exception, node: str = ANY) -> None:
        """Record that a call to `node` failed. Emits RedisOutageBegan if it is the first one. Raises `error` if it means
        that the crawl cannot go on."""
        if isinstance(error, ShardLost):
            self._failed_with_loss(error)
            return
        name = self._name(node, error)
        if name not in self._outages:
            self._outages[name] = _Outage(self._clock.monotonic())
            self._events.emit(RedisOutageBegan(str(error), name))
        self._outages[name].error = str(error)
        self._outages[name].refuses_writes |= isinstance(error, WritesRefused)
        if isinstance(error, WrongType) and name != self._name(node):
            self._outages[name].is_incomplete = True
            self._outages[name].rests_until = 0.0 if error.has_type else self._clock.monotonic() + UNREADABLE_S

    def _failed_with_loss(self, error: ShardLost) -> None:
        nodes = {self.node_of(shard) for shard in error.shards}
        if not self.has_many_nodes or self._crawl_node in nodes:
            raise error
        for node in sorted(nodes.difference(self.incomplete_nodes)):
            outage = self._outages.setdefault(node, _Outage(self._clock.monotonic()))
            outage.is_incomplete, outage.error = True, str(error)
            self._events.emit(RedisOutageBegan(str(error), node, has_lost=True))

    def crawl_node_failed(self, error: Exception) -> None:
        """Record that a call to the node of the control keys failed."""
        self.failed(error, self._crawl_node)

    def answered(self, node: str = ANY, has_written: bool = False, is_replaced: bool = False) -> None:
        """Record that a call to `node` succeeded. Emits RedisOutageEnded if it ends an outage. `has_written`: it has
        written what the node had refused to write; `is_replaced`: other nodes answer in its place."""
        name = self._name(node)
        outage = self._outages.get(name)
        if outage is None or outage.is_incomplete:
            return
        if outage.refuses_writes and not has_written and (self.has_many_nodes or name in self._refused.values()):
            return  # it may have been a read
        del self._outages[name]
        outage.end.set()
        self._events.emit(RedisOutageEnded(self._clock.monotonic() - outage.since, name, is_replaced))

    async def watch(self) -> None:
        """Ask the nodes that are away whether they serve again and have their shards, until cancelled."""
        while True:
            await self._clock.sleep(WATCH_S)
            if self._nodes is None or not self.has_many_nodes:
                continue
            for node, outage in list(self._outages.items()):
                if node not in self._nodes.names:  # the cluster no longer has it, and others serve its shards
                    self._is_back(node, outage, is_replaced=True)
                elif not outage.is_watched and self._clock.monotonic() >= outage.rests_until:
                    outage.is_watched = True
                    self._ask(self._watch(self._nodes, node, outage))

    def _is_back(self, node: str, outage: _Outage, is_replaced: bool = False) -> None:
        outage.is_incomplete = False
        self.answered(node, has_written=True, is_replaced=is_replaced)

    async def _watch(self, nodes: Nodes, node: str, outage: _Outage) -> None:
        try:
            await nodes.check(node, writes=outage.refuses_writes)
        except (RedisAway, RedisMisused):
            pass  # asked again by `watch`
        except ShardLost as error:
            with contextlib.suppress(ShardLost):  # raised by whoever needs the shards
                self.failed(error)
        else:
            self._is_back(node, outage)
        finally:
            outage.is_watched = False
