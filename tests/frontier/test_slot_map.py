"""Reads what the nodes of a cluster say about each other."""

from __future__ import annotations

import pytest

from frontier.cluster import read_shards
from frontier.redis_url import Address

ASKED = Address("10.0.0.1", 7000)
SHARDS = [
    [b"slots", [0, 16383], b"nodes", [[b"port", 7000, b"tls-port", 7443, b"endpoint", b"", b"health", b"online"]]],
    [b"slots", [], b"nodes", [[b"port", 7001, b"endpoint", b"redis-1", b"health", b"fail"]]],
    [b"slots", [], b"nodes", [[b"tls-port", 7444, b"endpoint", None, b"health", b"loading"]]],
]


@pytest.mark.parametrize(
    ("has_tls", "nodes"),
    [
        (False, (Address("10.0.0.1", 7000), Address("redis-1", 7001))),
        (True, (Address("10.0.0.1", 7443), Address("10.0.0.1", 7444))),
    ],
)
def test_shards_name_all_nodes_that_can_be_reached(has_tls: bool, nodes: tuple[Address, ...]) -> None:
    """A node that does not tell its own address is the one that was asked."""
    assert read_shards(SHARDS, ASKED, has_tls) == nodes
