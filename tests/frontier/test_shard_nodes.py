"""The node of each shard is read again when the slot map has changed, and only then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from frontier.keys import MOST_SHARDS, CrawlKeys
from frontier.scripts import Call, Reply
from frontier.shards import Nodes
from frontier.store import Store


class Moving:
    """A cluster in which all shards move to another node. `read`: how often a node was asked for."""

    def __init__(self) -> None:
        self.moves = 0
        self.read = 0

    def node_of(self, key: str) -> str:
        self.read += 1
        return f"node {self.moves}"

    def runs(self) -> int:
        return self.moves


class Apart:
    """A cluster whose node "c" has only the control keys. `sent`: the verbs of the calls."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def node_of(self, key: str) -> str:
        return "a" if ":0}" in key else "c"

    def runs(self) -> int:
        return 0

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        self.sent += [str(call.arguments[0]) for call in calls]
        return [0] * len(calls)


async def test_a_node_with_only_control_keys_is_asked_to_write() -> None:
    store = Apart()
    nodes = Nodes(cast(Store, store), CrawlKeys("crawl", 1))
    await nodes.check("c")
    await nodes.check("c", writes=True)
    assert store.sent == ["EXISTS", "HDEL"]


def test_the_map_of_all_shards_is_read_once_for_each_change() -> None:
    store = Moving()
    nodes = Nodes(cast(Store, store), CrawlKeys("crawl", MOST_SHARDS))
    for _ in range(3):
        assert nodes.of(MOST_SHARDS - 1) == "node 0"
        assert not nodes.has_many_nodes
    assert store.read == MOST_SHARDS + 1
    store.moves = 1
    assert nodes.names == {"node 1"}
    assert store.read == 2 * (MOST_SHARDS + 1)
