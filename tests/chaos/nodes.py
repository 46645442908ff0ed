"""The nodes of a Redis Cluster, each reached by everybody through a gate of its own.

Every node announces the port of its gate (`cluster-announce-port`), so clients and replicas of the node come through it,
while the nodes' own messages to each other do not. A gate can therefore cut the clients from a node that is well, and
hold back what a replica is to receive.

Carries out the faults of nodes, one after the other, and notes in the diary when the cluster itself was well again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from redis.crc import key_slot
from redis.exceptions import RedisError

from frontier.domains import shard_of
from tests.chaos.diary import NodeDiary, NodeFault, NodeKind
from tests.chaos.plan import MOVES_A_MINUTE, PlannedNodeFault
from tests.chaos.proxy import Link
from tests.ports import free_port
from tests.valkey_cluster import HOST, ClusterNode, ValkeyCluster

PATIENCE_S = 180.0
"""Far longer than the cluster needs for anything, so that a busy machine does not end a run."""


class GatedNode(ClusterNode):
    """A node that announces the port of its gate."""

    def __init__(self, folder: Path, options: tuple[str, ...]) -> None:
        gate_port = free_port()
        super().__init__(folder, (*options, "--cluster-announce-port", str(gate_port)))
        self.name = f"{HOST}:{gate_port}"
        self.gate = Link(self.port)
        self.is_suspended = False

    async def open(self) -> None:
        """Let clients in."""
        await self.gate.start(HOST, int(self.name.rpartition(":")[2]))

    @property
    def is_up(self) -> bool:
        """Whether the process runs and is not suspended."""
        return self.is_running and not self.is_suspended


class GatedCluster(ValkeyCluster):
    """A cluster of gated nodes. Not for the event loop's thread, except where a method is asynchronous.

    `is_durable`: sync at every write, otherwise once a second.
    """

    nodes: list[GatedNode]  # type: ignore[assignment]

    def __init__(self, folder: Path, is_durable: bool) -> None:
        self._kept = folder
        self.is_durable = is_durable
        super().__init__(persistent=is_durable, options=() if is_durable else EVERYSEC)

    def _node(self) -> GatedNode:
        return GatedNode(self._kept, self._options)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[GatedCluster]:
        """The cluster is well at the beginning of the block, and all its processes have ended after it."""
        try:
            for node in self.nodes:
                await node.open()
            await asyncio.to_thread(self.start)
            yield self
        finally:
            await asyncio.to_thread(self.__exit__)
            for node in self.nodes:
                await node.gate.stop()

    def suspend(self, node: ClusterNode) -> None:
        super().suspend(node)
        self._gated(node.name).is_suspended = True

    def resume(self, node: ClusterNode) -> None:
        super().resume(node)
        self._gated(node.name).is_suspended = False

    def masters_now(self) -> dict[GatedNode, frozenset[int]]:
        """The nodes that serve slots, each with these slots."""
        asked = next(node for node in self.nodes if node.is_up)
        found = {}
        for line in asked.lines("CLUSTER", "NODES"):
            words = line.split()
            slots = frozenset(_slots(words[8:]))
            if "master" in words[2] and slots:
                found[self._gated(words[1].partition("@")[0])] = slots
        return found

    def replica_of(self, master: GatedNode) -> GatedNode:
        """A replica of `master`."""
        id = master.id
        asked = next(node for node in self.nodes if node.is_up)
        lines = (line.split() for line in asked.lines("CLUSTER", "NODES"))
        return next(self._gated(words[1].partition("@")[0]) for words in lines if words[3] == id)

    def _gated(self, name: str) -> GatedNode:
        return next(node for node in self.nodes if node.name == name)

    async def is_served(self, key: str) -> bool:
        """Whether a node that is up serves `key`, by its own word."""

        def by(node: GatedNode) -> bool:
            with contextlib.suppress(RedisError):
                return isinstance(node.ask("EXISTS", key), int)
            return False

        return any(await asyncio.gather(*(asyncio.to_thread(by, node) for node in self.nodes if node.is_up)))

    async def add_pair(self) -> list[GatedNode]:
        """A master without slots and its replica join."""
        pair = []
        for _ in range(2):
            name = (await asyncio.to_thread(self.add_node)).name
            pair.append(self._gated(name))
            await pair[-1].open()
        await asyncio.to_thread(lambda: pair[1].ask("CLUSTER", "REPLICATE", pair[0].id))
        await self.wait_whole()
        return pair

    async def wait_whole(self) -> None:
        """Wait until all nodes agree, and each master has a replica with its data."""
        await asyncio.to_thread(self.wait_ok, PATIENCE_S)


EVERYSEC = ("--appendonly", "yes", "--appendfsync", "everysec")


async def until(happens: Callable[[], Awaitable[object]], what: str, step_s: float = 0.02) -> float:
    """Await `happens` until it returns true. Returns the monotonic time."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(RedisError):
            if await happens():
                return time.monotonic()
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s without success for {what}"
        await asyncio.sleep(step_s)


def slot_of(tag: str) -> int:
    """The slot of all keys with the hash tag `tag`."""
    return key_slot(tag.encode())


def _slots(words: Collection[str]) -> Iterator[int]:
    for word in words:
        if not word.startswith("["):
            first, _, last = word.partition("-")
            yield from range(int(first), int(last or first) + 1)


LAG_S = 1.0
"""What the replica of a master lacks when that one is killed: as much as `everysec` may lose."""

SHARE_OF_NEW_NODE = 4
"""A node that joins takes over one in so many slots of each other node."""

DIVIDED_S = 0.05
"""How long a slot is divided between two nodes before its keys move."""


@dataclass(slots=True)
class NodeDeeds:
    """What is done to `cluster`. `domains_of`: slot -> the domains whose shards are there. `tag_of`: slot -> the hash
    tag of a shard there, with or without domains."""

    cluster: GatedCluster
    diary: NodeDiary
    rng: random.Random
    domains_of: Mapping[int, frozenset[str]]
    tag_of: Mapping[int, str]
    joined: list[GatedNode] = field(default_factory=list)  # a master and its replica
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)  # with a fault, or with a slot that moves

    async def do(self, planned: PlannedNodeFault) -> None:
        """Carry out `planned` as soon as the cluster is whole. Returns when it is whole again."""
        async with self._busy:
            await self.cluster.wait_whole()
            if planned.kind is NodeKind.JOIN:
                await self._join()
            elif planned.kind is NodeKind.LEAVE:
                await self._leave()
            else:
                await self._outage(planned)

    async def _outage(self, planned: PlannedNodeFault) -> None:
        masters = await asyncio.to_thread(self.cluster.masters_now)
        victim = self.rng.choice(sorted(masters, key=lambda node: node.name))
        domains = {node.name: self._domains(slots) for node, slots in masters.items()}
        replica = await asyncio.to_thread(self.cluster.replica_of, victim)
        tag = next(tag for slot, tag in self.tag_of.items() if slot in masters[victim])
        asked_at = time.monotonic()
        if planned.kind is NodeKind.KILL and not self.cluster.is_durable:
            victim.gate.hold_replicas()
            await asyncio.sleep(LAG_S)
        begin = time.monotonic()
        served_at = await self._suffer(planned, victim, replica, tag)
        await self.cluster.wait_whole()
        times = (begin, served_at, time.monotonic())
        self.diary.nodes.append(NodeFault(planned.kind, victim.name, *times, domains, forgets_s=begin - asked_at))

    async def _suffer(self, planned: PlannedNodeFault, victim: GatedNode, replica: GatedNode, tag: str) -> float:
        """Do to `victim` what was planned. Returns when the slot of `tag`, one of its own, answered again."""
        if planned.kind is NodeKind.CUT:
            victim.gate.swallow(True)
            await asyncio.sleep(planned.seconds)
            victim.gate.swallow(False)
            return time.monotonic()
        if planned.kind is NodeKind.FAILOVER:
            await asyncio.to_thread(self.cluster.failover, replica)
            return await self._until_served(tag)
        if planned.kind is NodeKind.KILL:
            await asyncio.to_thread(victim.kill)
            victim.gate.lose_held()
        else:
            self.cluster.suspend(victim)
        served_at, _ = await asyncio.gather(self._until_served(tag), asyncio.sleep(planned.seconds))
        if planned.kind is NodeKind.KILL:
            await asyncio.to_thread(self.cluster.restart, victim)
        else:
            self.cluster.resume(victim)
        return served_at

    async def _until_served(self, tag: str) -> float:
        return await until(lambda: self.cluster.is_served(tag), f"an answer for {tag}")

    async def keep_moving(self) -> None:
        """Move slots of shards with domains, some a minute, until cancelled. While a fault lasts none moves: where a node
        dies in the middle of a move, the slot is split until an operator repairs the cluster (`valkey-cli --cluster fix`).
        """
        began, moved = time.monotonic(), 0
        while True:
            due_at = began + (moved + self.rng.random()) * 60 / MOVES_A_MINUTE
            await asyncio.sleep(max(0.0, due_at - time.monotonic()))
            moved += 1
            async with self._busy:
                await self.cluster.wait_whole()
                masters = await asyncio.to_thread(self.cluster.masters_now)
                source = max(masters, key=lambda node: len(self._slots_in_use(masters[node])))
                target = self.rng.choice(sorted(masters.keys() - {source}, key=lambda node: node.name))
                await self._move([self.rng.choice(self._slots_in_use(masters[source]))], source, target)

    async def _move(self, slots: Iterable[int], source: GatedNode, target: GatedNode) -> None:
        """Move `slots` one after the other, each of them divided for a moment."""
        for slot in slots:
            begin = time.monotonic()
            await asyncio.to_thread(self.cluster.move_slots, [slot], source, target, DIVIDED_S)
            end = time.monotonic()
            domains = {source.name: self._domains([slot])}
            self.diary.nodes.append(NodeFault(NodeKind.MOVE, source.name, begin, end, end, domains))

    async def _join(self) -> None:
        """A master and its replica join, and take over their share."""
        begin = time.monotonic()
        self.joined = await self.cluster.add_pair()
        for source, slots in (await asyncio.to_thread(self.cluster.masters_now)).items():
            await self._move(self._slots_in_use(slots)[::SHARE_OF_NEW_NODE], source, self.joined[0])
        end = time.monotonic()
        self.diary.nodes.append(NodeFault(NodeKind.JOIN, self.joined[0].name, begin, end, end))

    async def _leave(self) -> None:
        """Whoever of the two is master by now gives its slots away, and both leave."""
        begin = time.monotonic()
        masters = await asyncio.to_thread(self.cluster.masters_now)
        (source,) = [node for node in masters if node in self.joined]
        others = [node for node in masters if node is not source]
        for number, slot in enumerate(sorted(masters[source])):  # whether a shard is there or not
            await self._move([slot], source, others[number % len(others)])
        for node in sorted(self.joined, key=lambda node: node is source):
            await asyncio.to_thread(self.cluster.remove_node, node)
        await self.cluster.wait_whole()
        end = time.monotonic()
        self.diary.nodes.append(NodeFault(NodeKind.LEAVE, source.name, begin, end, end))

    def _slots_in_use(self, slots: frozenset[int]) -> list[int]:
        return sorted(self.domains_of.keys() & slots)

    def _domains(self, slots: Iterable[int]) -> frozenset[str]:
        return frozenset[str]().union(*(self.domains_of.get(slot, ()) for slot in slots))


def shards_by_slot(crawl: str, shards: int) -> dict[int, str]:
    """Slot -> the hash tag, in braces, of a shard in it."""
    tags = [f"{crawl}:{shard}" for shard in range(shards)]
    return {slot_of(tag): f"{{{tag}}}" for tag in tags}


def domains_by_slot(crawl: str, shards: int, domains: Iterable[str]) -> dict[int, frozenset[str]]:
    """Slot -> the domains whose keys are there."""
    found: dict[int, set[str]] = {}
    for domain in domains:
        found.setdefault(slot_of(f"{crawl}:{shard_of(domain, shards)}"), set()).add(domain)
    return {slot: frozenset(names) for slot, names in found.items()}
