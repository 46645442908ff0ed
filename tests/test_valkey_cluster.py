"""The cluster of the tests does what its methods say."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis.crc import key_slot
from redis.exceptions import ResponseError

from tests.valkey_cluster import ValkeyCluster


@pytest.mark.e2e
def test_a_cluster_fails_over_moves_slots_and_changes_its_nodes() -> None:
    with ValkeyCluster() as cluster:
        first = cluster.masters[0]
        key = next(key for key in map(str, range(100)) if cluster.owner(key) is first)
        assert first.ask("SET", key, "kept")

        added = cluster.add_node()
        cluster.move_slots([key_slot(key.encode())], first, added)
        cluster.wait_ok()
        assert cluster.owner(key) is added
        assert added.ask("GET", key) == b"kept"
        cluster.move_slots([key_slot(key.encode())], added, first)
        cluster.wait_ok()
        cluster.remove_node(added)
        assert first.ask("GET", key) == b"kept"

        cluster.failover(cluster.replicas[0])
        cluster.wait_ok()
        assert cluster.owner(key) is cluster.replicas[0]

        cluster.suspend(cluster.replicas[0])
        deadline = time.monotonic() + 180
        while cluster.owner(key) is not first:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert first.ask("GET", key) == b"kept"
        cluster.resume(cluster.replicas[0])
        cluster.wait_ok()

        cluster.kill(first)
        while cluster.owner(key) is not cluster.replicas[0]:
            assert time.monotonic() < deadline + 180
            time.sleep(0.1)
        cluster.restart(first)
        cluster.wait_ok()
        assert first.lines("INFO", "replication")[1] == "role:slave"


@pytest.mark.e2e
def test_a_slot_moves_when_a_replica_is_late() -> None:
    """As on a busy machine. Its master then refuses to change the slot."""
    with ValkeyCluster() as cluster, ThreadPoolExecutor() as threads:
        source, target, late = cluster.masters[0], cluster.masters[1], cluster.replicas[1]
        key = next(key for key in map(str, range(100)) if cluster.owner(key) is source)
        cluster.suspend(late)
        moving = threads.submit(cluster.move_slots, [key_slot(key.encode())], source, target)
        with pytest.raises(ResponseError, match="NOREPLICAS"):
            target.ask("CLUSTER", "SETSLOT", 0, "IMPORTING", source.id)
        cluster.resume(late)
        moving.result(timeout=180)
        cluster.wait_ok()
        assert cluster.owner(key) is target
