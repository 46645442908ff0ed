"""Which node of a Redis Cluster serves each shard. On a single server, one node serves them all. `slot_map` and
`cluster_servers` know the hash slots.

The slot map of a cluster changes with failovers and slot moves, and is then read again. A part that is sorted by an older
map costs nothing but time: the store sends each call to the node that serves it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from frontier.errors import ShardLost
from frontier.redis_keys import CrawlKeys
from frontier.shard_identity import lost_shards
from frontier.store import Store, command

T = TypeVar("T")


class Nodes:
    """The nodes of the crawl with `keys`."""

    def __init__(self, store: Store, keys: CrawlKeys) -> None:
        self._store = store
        self._keys = keys
        self._of_shard: tuple[str, ...] = ()
        self._crawl_node = ""
        self._names: frozenset[str] = frozenset()
        self._runs: Hashable = None

    def __repr__(self) -> str:
        return f"<Nodes {sorted(self._names)}>"

    def _read(self) -> None:
        runs = self._store.runs()
        if self._runs != runs or not self._names:  # to read it for a thousand shards takes about a millisecond
            self._runs = runs
            self._of_shard = tuple(self._store.node_of(shard.base) for shard in self._keys.shards)
            self._crawl_node = self._store.node_of(self._keys.meta)
            self._names = frozenset((*self._of_shard, self._crawl_node))

    @property
    def has_many_nodes(self) -> bool:
        """Whether some nodes may serve while others cannot."""
        self._read()
        return len(self._names) > 1

    @property
    def names(self) -> frozenset[str]:
        """The nodes that serve anything of this crawl."""
        self._read()
        return self._names

    @property
    def crawl_node(self) -> str:
        """The node of the keys of the whole crawl: roster, settings, commands, page limit."""
        self._read()
        return self._crawl_node

    def of(self, shard: int) -> str:
        """The node of `shard`."""
        self._read()
        return self._of_shard[shard]

    def split(self, items: Iterable[T], shard_of: Callable[[T], int]) -> dict[str, list[T]]:
        """`items` by the node of their shards, in their order."""
        self._read()
        parts: dict[str, list[T]] = {}
        for item in items:
            parts.setdefault(self._of_shard[shard_of(item)], []).append(item)
        return parts

    async def check(self, node: str, writes: bool = False) -> None:
        """Ask `node` whether it serves and has its shards, and with `writes` whether it takes writes,
        too. Raises RedisAway, RedisMisused and ShardLost."""
        self._read()
        shards = [shard for shard, name in enumerate(self._of_shard) if name == node]
        if not shards:  # nobody creates the field ""
            verb = ("HDEL", self._keys.control, "") if writes else ("EXISTS", self._keys.meta)
            await self._store.send([command(*verb)])
        elif lost := await lost_shards(self._store, self._keys, shards):
            raise ShardLost(self._keys.crawl, lost)
        elif writes:  # a write that changes nothing: XX adds no member
            await self._store.send([command("ZADD", self._keys.shards[shards[0]].due, "XX", 0, "")])
