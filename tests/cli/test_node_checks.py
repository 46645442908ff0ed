"""`crawler doctor` compares the nodes of a real cluster, and says what to do about each difference."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.cli.doctor import Finding, compare
from frontier.cluster import NodeFacts
from frontier.errors import FrontierError
from frontier.store import connect
from tests.ports import free_port
from tests.typed import Typed
from tests.valkey import ValkeyProcess
from tests.valkey_cluster import ClusterNode, ValkeyCluster

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster() -> Iterator[ValkeyCluster]:
    with ValkeyCluster() as running:
        # Replicas have to have copied the data of their masters.
        wait_for(lambda: [*asyncio.run(check(running))] == ["Redis nodes"])
        yield running


async def ask(cluster: ValkeyCluster) -> dict[str, NodeFacts | FrontierError]:
    store = await connect(cluster.url, timeout_s=5)
    try:
        return await store.node_facts()
    finally:
        await store.close()


async def check(cluster: ValkeyCluster, replicas_ack: int = 1) -> dict[str, Finding]:
    return {finding.check: finding for finding in compare(await ask(cluster), replicas_ack)}


async def test_nodes_that_are_alike_are_good(cluster: ValkeyCluster) -> None:
    found = await check(cluster)
    assert list(found) == ["Redis nodes"]
    assert found["Redis nodes"].result == "good"
    assert found["Redis nodes"].found.startswith("3 masters and 3 replicas")


def test_the_doctor_compares_them(cluster: ValkeyCluster, typed: Typed) -> None:
    done = typed("doctor", "--json", "--redis", cluster.url)
    assert {"check": "Redis nodes", "result": "good"}.items() <= json.loads(done.out)[-1].items()


@pytest.mark.parametrize(
    ("setting", "value", "result"),
    [
        ("appendonly", "yes", "bad"),
        ("appendfsync", "always", "doubtful"),
        ("save", "60 1", "doubtful"),
        ("maxmemory-policy", "allkeys-lru", "bad"),
        ("maxmemory", str(64 << 20), "doubtful"),
    ],
)
async def test_each_setting_that_differs_is_named(
    cluster: ValkeyCluster, setting: str, value: str, result: str
) -> None:
    """Also at a replica, because it may become a master."""
    node = cluster.replicas[1]
    before = node.ask("CONFIG", "GET", setting)
    assert isinstance(before, dict)
    node.ask("CONFIG", "SET", setting, value)
    try:
        found = await check(cluster)
    finally:
        node.ask("CONFIG", "SET", setting, *before.values())
    assert list(found) == [f"Redis nodes: {setting}"]
    (finding,) = found.values()
    assert finding.result == result
    assert f" at {node.name}; " in finding.found
    assert finding.found.endswith(" at 5 others")
    assert setting in finding.remedy


@pytest.mark.parametrize(
    ("what", "setting", "value", "found"),
    [
        ("coverage", "cluster-require-full-coverage", "yes", "cluster-require-full-coverage yes at all nodes"),
        ("failover", "cluster-node-timeout", "15000", "cluster-node-timeout 15000 at all nodes"),
    ],
)
async def test_settings_that_make_faults_worse_are_named(
    cluster: ValkeyCluster, what: str, setting: str, value: str, found: str
) -> None:
    before = [node.ask("CONFIG", "GET", setting) for node in cluster.nodes]
    for node in cluster.nodes:
        node.ask("CONFIG", "SET", setting, value)
    try:
        findings = await check(cluster)
    finally:
        for node, values in zip(cluster.nodes, before, strict=True):
            assert isinstance(values, dict)
            node.ask("CONFIG", "SET", setting, *values.values())
    assert list(findings) == [f"Redis nodes: {what}"]
    assert (findings[f"Redis nodes: {what}"].result, findings[f"Redis nodes: {what}"].found) == ("doubtful", found)


def test_the_doctor_finds_mistakes_in_the_url(cluster: ValkeyCluster, typed: Typed) -> None:
    single = typed("doctor", "--json", "--redis", f"redis://{cluster.masters[0].name}/0")
    assert single.code == 1
    assert (
        "redis+cluster://" in next(one for one in json.loads(single.out) if one["check"] == "Redis version")["remedy"]
    )
    closed = f"127.0.0.1:{free_port()}"
    wrong = typed("doctor", "--json", "--redis", f"{cluster.url},{closed}")
    assert closed in next(one for one in json.loads(wrong.out) if one["check"] == "Redis URL")["found"]


def test_the_doctor_says_how_to_reach_a_single_server(tmp_path: Path, typed: Typed) -> None:
    port = free_port()
    with ValkeyProcess(tmp_path, persistent=False, options=("--port", str(port))):
        done = typed("doctor", "--json", "--redis", f"redis+cluster://127.0.0.1:{port}")
    assert done.code == 1
    assert "write its URL as redis://" in json.loads(done.out)[-1]["found"]
    closed = json.loads(typed("doctor", "--json", "--redis", f"rediss://127.0.0.1:{port}").out)[-1]
    assert closed["remedy"] == "start it, or correct --redis; rediss:// needs a port with TLS"


async def test_clocks_and_versions_are_compared(cluster: ValkeyCluster) -> None:
    facts = {name: one for name, one in (await ask(cluster)).items() if isinstance(one, NodeFacts)}
    assert len(facts) == 6
    assert all(abs(one.ahead_s) <= one.error_s + 0.001 for one in facts.values())  # it is this machine's clock
    name, one = next(iter(facts.items()))
    (late,) = compare({**facts, name: replace(one, ahead_s=one.ahead_s - 3)}, 1)
    assert (late.check, late.result) == ("Redis nodes: clocks", "doubtful")
    assert late.found.partition(" s apart: ")[2].startswith(f"{name} is behind ")
    (old,) = compare({**facts, name: replace(one, info={**one.info, "valkey_version": "7.2.4"})}, 1)
    assert (old.check, old.found.partition(";")[0]) == ("Redis nodes: version", f"7.2.4 at {name}")


async def test_a_master_with_too_few_replicas_is_named(cluster: ValkeyCluster) -> None:
    master, replica = cluster.masters[0], cluster.replicas[0]
    cluster.kill(replica)
    try:
        wait_for(lambda: "connected_slaves:0" in master.lines("INFO", "replication"))
        wanted, unequal = await check(cluster, replicas_ack=1), await check(cluster, replicas_ack=0)
    finally:
        cluster.restart(replica)
        cluster.wait_ok()
    assert wanted["Redis nodes: replicas"].result == "bad"
    assert wanted["Redis nodes: replicas"].found.startswith(f"0 at {master.name}; 1 at 2 others")
    assert unequal["Redis nodes: replicas"].result == "doubtful"


@pytest.mark.parametrize("is_noticed", [False, True])
async def test_a_node_that_does_not_answer_is_named(cluster: ValkeyCluster, is_noticed: bool) -> None:
    """`is_noticed`: whether the other nodes take it for failed already."""
    node, silent = cluster.masters[2], cluster.replicas[1]
    cluster.suspend(silent)
    try:
        wait_for(lambda: not is_noticed or takes_for_failed(node, silent))
        found = await check(cluster, replicas_ack=0)
    finally:
        cluster.resume(silent)
        cluster.wait_ok()
    assert found["Redis nodes"].found.startswith(f"no answer from {silent.name}: ")


def wait_for(question: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not question():
        assert time.monotonic() < deadline


def takes_for_failed(node: ClusterNode, other: ClusterNode) -> bool:
    (line,) = [line for line in node.lines("CLUSTER", "NODES") if f" {other.name}@" in line]
    return "fail" in line.split()[2].split(",")
