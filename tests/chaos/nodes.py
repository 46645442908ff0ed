"""The nodes of a Redis Cluster, each reached by everybody through a gate of its own.

Every node announces the port of its gate (`cluster-announce-port`), so clients and replicas of the node come through it,
while the nodes' own messages to each other do not. A gate can therefore cut the clients from a node that is well, and
hold back what a replica is to receive.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from redis.crc import key_slot
from redis.exceptions import RedisError

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
