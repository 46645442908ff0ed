"""The node of each shard is read again when the slot map has changed, and only then."""

from __future__ import annotations

from typing import cast

from frontier.keys import MOST_SHARDS, CrawlKeys
from frontier.nodes import Nodes
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


def test_the_map_of_all_shards_is_read_once_for_each_change() -> None:
    store = Moving()
    nodes = Nodes(cast(Store, store), CrawlKeys("crawl", MOST_SHARDS))
    for _ in range(3):
        assert nodes.of(MOST_SHARDS - 1) == nodes.crawl_node == "node 0"
        assert not nodes.has_many_nodes
    assert store.read == MOST_SHARDS + 1
    store.moves = 1
    assert nodes.names == {"node 1"}
    assert store.read == 2 * (MOST_SHARDS + 1)
