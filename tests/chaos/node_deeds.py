"""Carries out the faults of nodes, one after the other, and notes in the diary when the cluster itself was well again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from frontier.domains import shard_of
from tests.chaos.node_faults import NodeDiary, NodeFault, NodeKind
from tests.chaos.node_plan import MOVES_A_MINUTE, PlannedNodeFault
from tests.chaos.nodes import GatedCluster, GatedNode, slot_of, until

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
