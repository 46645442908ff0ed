"""What a node of a Redis Cluster says about itself, so that nodes can be compared."""

from __future__ import annotations

import asyncio
import time

import hiredis
import msgspec

from frontier.calls import Reply, packed_words
from frontier.redis_connection import fields, open_connection
from frontier.redis_url import Access, Address
from frontier.slot_map import read_shards

SETTINGS = (
    *("appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy"),
    *("cluster-require-full-coverage", "cluster-node-timeout"),
)


class NodeFacts(msgspec.Struct, frozen=True):
    """`ahead_s`: how far its clock is ahead of this machine's, in seconds; `error_s`: by how much this may be wrong.
    `info`: INFO; `settings`: those in `SETTINGS`; `cluster`: CLUSTER INFO; `nodes`: all nodes of the cluster, including
    failed ones. Empty if this user may not read them."""

    ahead_s: float
    error_s: float
    info: dict[str, str]
    settings: dict[str, str]
    cluster: dict[str, str]
    nodes: tuple[Address, ...]

    @property
    def is_master(self) -> bool:
        return self.info.get("role") == "master"

    @property
    def replicas(self) -> int:
        """The number of its replicas that receive its writes."""
        return sum(name.startswith("slave") and "state=online" in value for name, value in self.info.items())


async def read_facts(address: Address, access: Access, timeout_s: float) -> NodeFacts:
    """Ask the node at `address`, over a connection of its own. Raises as `open_connection`."""
    async with asyncio.timeout(timeout_s):
        connection = await open_connection(address, access, timeout_s)
        try:
            began = time.time()
            (now,) = await connection.exchange(packed_words("TIME"), 1)
            ended = time.time()
            questions = (("CONFIG", "GET", *SETTINGS), ("CLUSTER", "INFO"), ("CLUSTER", "SHARDS"))
            asked = b"".join(packed_words(*words) for words in questions)
            settings, cluster, shards = await connection.exchange(asked, len(questions))
        finally:
            connection.close()
    if isinstance(now, hiredis.ReplyError):
        raise now
    state = {} if isinstance(cluster, hiredis.ReplyError) else fields(cluster)
    ahead_s = int(now[0]) + int(now[1]) / 1e6 - (began + ended) / 2
    nodes = () if isinstance(shards, hiredis.ReplyError) else read_shards(shards, address, access.tls is not None)
    return NodeFacts(ahead_s, (ended - began) / 2, dict(connection.info), _settings(settings), state, nodes)


def _settings(reply: Reply) -> dict[str, str]:
    if isinstance(reply, hiredis.ReplyError):
        return {}
    words = [word.decode() for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))
