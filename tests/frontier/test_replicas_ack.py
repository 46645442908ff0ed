"""With `replicas_ack`, pushed URLs are accepted only when replicas of their node have received them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from frontier.clock import ServerClock, SystemClock
from frontier.cluster import slot_of
from frontier.entries import Entry
from frontier.errors import RedisAway, ReplicasMissing
from frontier.keys import CrawlKeys
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import Call, command
from frontier.shards import identify_shards
from frontier.store import RedisStore, connect
from tests.valkey_cluster import ClusterNode, ValkeyCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timed]  # replicas have half a second to acknowledge

SHARDS = 8


@pytest.fixture(scope="module")
def cluster() -> Iterator[ValkeyCluster]:
    with ValkeyCluster() as running:
        yield running


@asynccontextmanager
async def connected(cluster: ValkeyCluster) -> AsyncIterator[RedisStore]:
    store = await connect(cluster.url)
    try:
        yield store
    finally:
        await store.close()


async def frontier_on(store: RedisStore, keys: CrawlKeys) -> Frontier:
    """One whose pushes wait for one replica."""
    clock = ServerClock(SystemClock(), store.time_ms)
    await clock.refresh()
    return Frontier(store, keys, clock, FrontierSettings(replicas_ack=1), b"key")


@pytest.fixture
async def store(cluster: ValkeyCluster) -> AsyncIterator[RedisStore]:
    async with connected(cluster) as store:
        yield store


@pytest.fixture
async def frontier(store: RedisStore, crawl_name: str) -> Frontier:
    keys = CrawlKeys(crawl_name, SHARDS, "identity")
    await identify_shards(store, keys, range(SHARDS))
    return await frontier_on(store, keys)


def links(frontier: Frontier, cluster: ValkeyCluster, master: ClusterNode) -> list[Entry]:
    """One link to each of three domains whose shards `master` serves."""
    names = (f"d{number}.test" for number in range(1_000))
    there = (name for name in names if cluster.owner(frontier.keys.shards[frontier.shard_of(name)].due) is master)
    return [Entry(f"http://{name}/", name, 0.0) for name, _ in zip(there, range(3), strict=False)]


async def test_a_push_is_accepted_once_a_replica_has_it(frontier: Frontier, cluster: ValkeyCluster) -> None:
    pushed = await frontier.push(links(frontier, cluster, cluster.masters[0]))
    assert (pushed.accepted, pushed.seen) == (3, 0)


async def test_a_push_that_no_replica_has_is_refused_also_when_repeated(
    frontier: Frontier, cluster: ValkeyCluster
) -> None:
    """The repeated push has a connection of its own and writes nothing, so Redis alone would not wait for it."""
    master, replica = cluster.masters[0], cluster.replicas[0]
    entries = links(frontier, cluster, master)
    cluster.suspend(replica)
    try:
        for _ in range(2):
            async with connected(cluster) as store:
                with pytest.raises(RedisAway, match="0 of 1 replicas") as refused:
                    await (await frontier_on(store, frontier.keys)).push(entries)
            assert refused.value.node == master.name
    finally:
        cluster.resume(replica)
    pushed = await frontier.push(entries)
    assert (pushed.accepted, pushed.seen) == (0, 3)


async def test_a_server_that_has_forgotten_the_script_waits_as_well(frontier: Frontier, cluster: ValkeyCluster) -> None:
    """The script's source is sent in a second round trip, and the first one has waited for nothing."""
    master, replica = cluster.masters[0], cluster.replicas[0]
    entries = links(frontier, cluster, master)
    master.ask("SCRIPT", "FLUSH")
    cluster.suspend(replica)
    try:
        with pytest.raises(RedisAway, match="0 of 1 replicas"):
            await frontier.push(entries)
    finally:
        cluster.resume(replica)


async def test_a_node_without_replicas_holds_up_no_other_node(
    store: RedisStore, frontier: Frontier, cluster: ValkeyCluster, crawl_name: str
) -> None:
    """Its calls have been refused by half a second later, and those of the others have been answered."""
    tags = [f"{{{crawl_name}:{number}}}" for number in range(SHARDS)]
    calls = [Call(("SET", f"{tag}:x", "1"), acks=1) for tag in tags]
    away = [cluster.owner(tag) is cluster.masters[0] for tag in tags]
    assert set(away) == {True, False}
    cluster.suspend(cluster.replicas[0])
    try:
        replies = await asyncio.wait_for(store.send_each(calls), 5)
    finally:
        cluster.resume(cluster.replicas[0])
    assert [isinstance(reply, RedisAway) for reply in replies] == away
    assert [reply for reply in replies if not isinstance(reply, RedisAway)] == [b"OK"] * away.count(False)
    assert not store.is_away(cluster.masters[0].name)  # it answers, and serves what needs no replica
    assert await store.send([command("GET", f"{tags[away.index(True)]}:x")]) == [b"1"]


async def test_one_push_a_second_waits_for_replicas_that_are_missing(
    frontier: Frontier, cluster: ValkeyCluster
) -> None:
    """The others are refused at once, and pushes are accepted soon after the replica is back."""
    master, replica = cluster.masters[0], cluster.replicas[0]
    entries = links(frontier, cluster, master)
    cluster.suspend(replica)
    try:
        with pytest.raises(ReplicasMissing):
            await frontier.push(entries)
        waits = []
        for _ in range(10):
            began = time.monotonic()
            with pytest.raises(ReplicasMissing, match="0 of 1 replicas") as refused:
                await frontier.push(entries)
            assert refused.value.node == master.name
            waits.append(time.monotonic() - began)
        assert sum(wait > 0.4 for wait in waits) <= 1
    finally:
        cluster.resume(replica)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        with contextlib.suppress(ReplicasMissing):
            pushed = await frontier.push(entries)
            break
        await asyncio.sleep(0.1)
    assert (pushed.accepted, pushed.seen) == (0, 3)


async def test_a_node_without_any_replica_is_known_to_lack_them(frontier: Frontier, cluster: ValkeyCluster) -> None:
    """As one that has just taken over. A wait of half a second would hold up what follows."""
    master, replica = cluster.masters[0], cluster.replicas[0]
    cluster.suspend(replica)
    try:
        master.ask("CLIENT", "KILL", "TYPE", "replica")
        async with connected(cluster) as store:
            with pytest.raises(ReplicasMissing, match=r"no replica of Redis .* is connected"):
                await (await frontier_on(store, frontier.keys)).push(links(frontier, cluster, master))
    finally:
        cluster.resume(replica)


async def test_a_slot_that_moves_costs_only_its_own_calls_time(frontier: Frontier, cluster: ValkeyCluster) -> None:
    """Also if the key that is written for all calls to the node is in it."""
    source, target = cluster.masters[0], cluster.masters[1]
    names = [f"d{number}.test" for number in range(1_000)]
    by_shard = {frontier.shard_of(name): Entry(f"http://{name}/", name) for name in names}
    entries = [link for shard, link in by_shard.items() if cluster.owner(frontier.keys.shards[shard].due) is source]
    assert len(entries) > 1
    await frontier.push(entries[1:])  # so that the server knows the script
    slot = slot_of(frontier.keys.shards[frontier.shard_of(entries[0].domain)].due)
    moving = asyncio.create_task(asyncio.to_thread(cluster.move_slots, [slot], source, target, 0.5))
    try:
        deadline = time.monotonic() + 20
        while not any(f"[{slot}->-" in line for line in source.lines("CLUSTER", "NODES")):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        pushed = await frontier.push(entries)
    finally:
        await moving
        await asyncio.to_thread(cluster.move_slots, [slot], target, source)
    assert pushed.accepted + pushed.seen == len(entries)


async def test_the_mark_of_a_push_does_not_stay(store: RedisStore, frontier: Frontier, cluster: ValkeyCluster) -> None:
    entries = links(frontier, cluster, cluster.masters[0])
    await frontier.push(entries)
    marks = [command("PTTL", frontier.keys.shards[frontier.shard_of(entry.domain)].acked) for entry in entries]
    assert any(0 < ttl <= 1_000 for ttl in await store.send(marks))
