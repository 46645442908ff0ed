"""Failover behind a fixed address, by Sentinels, and of nodes that announce addresses which cannot be reached."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from frontier.cluster import slot_of
from frontier.connection import WATCH_S
from frontier.errors import RedisAway
from frontier.scripts import command
from frontier.store import RedisStore, connect
from tests.frontier.test_servers import running
from tests.ports import free_port
from tests.tcp_proxy import TcpProxy
from tests.valkey import chosen_server
from tests.valkey_cluster import ClusterNode, ValkeyCluster

pytestmark = [pytest.mark.e2e, pytest.mark.long]


@contextlib.contextmanager
def pair(folder: Path) -> Iterator[tuple[int, int]]:
    """The ports of a master and its replica."""
    master, replica = free_port(), free_port()
    more = {master: [], replica: ["--replicaof", "127.0.0.1", str(master)]}
    with contextlib.ExitStack() as servers:
        for port, options in more.items():
            (folder / str(port)).mkdir()
            words = ["--port", str(port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0", *options]
            servers.enter_context(running(chosen_server(), folder / str(port), words, port))
        deadline = time.monotonic() + 20
        with redis.Redis(port=replica) as client:
            while client.info("replication")["master_link_status"] != "up":
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield master, replica


async def until_it_serves(store: RedisStore, seconds: float = 5) -> int:
    """How many times a write failed before one succeeded."""
    deadline = time.monotonic() + seconds
    failed = 0
    while True:
        try:
            await store.send([command("SET", "x", "y")])
        except RedisAway:
            failed += 1
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        else:
            return failed


async def test_a_failover_behind_a_fixed_address_is_followed(tmp_path: Path) -> None:
    """The old master stays reachable, as a replica: only a new connection finds its successor."""
    with pair(tmp_path) as (first, second):
        async with TcpProxy(first) as proxy:
            store = await connect(f"redis://127.0.0.1:{proxy.port}")
            await asyncio.gather(*(store.send([command("SET", "x", 1)]) for _ in range(16)))
            run_id = store.run_of("x")
            with redis.Redis(port=first) as old, redis.Redis(port=second) as new:
                new.replicaof("NO", "ONE")
                old.replicaof("127.0.0.1", second)
            proxy.target = second
            assert await until_it_serves(store) <= 3
            await asyncio.gather(*(store.send([command("SET", "x", 2)]) for _ in range(16)))
            assert store.run_of("x") != run_id
            await store.close()


async def test_a_replica_behind_the_address_is_not_taken_for_the_server(tmp_path: Path) -> None:
    with pair(tmp_path) as (first, second):
        with pytest.raises(RedisAway, match="replica"):
            await connect(f"redis://127.0.0.1:{second}")
        await (await connect(f"redis://127.0.0.1:{first}")).close()


async def until_replaced(store: RedisStore, run_id: str, seconds: float) -> None:
    """Wait until `store` serves another run than `run_id`, though nothing tells it but its own watch."""
    deadline = time.monotonic() + seconds
    while store.run_of("x") == run_id:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
        with contextlib.suppress(RedisAway):
            await store.send([command("GET", "x")])


async def test_a_server_promoted_by_hand_is_found_while_the_old_master_still_takes_writes(tmp_path: Path) -> None:
    """Connections to the old master keep working, and what is written over them is lost."""
    with pair(tmp_path) as (first, second):
        async with TcpProxy(first) as proxy:
            store = await connect(f"redis://127.0.0.1:{proxy.port}")
            run_id = store.run_of("x")
            await asyncio.sleep(2 * WATCH_S)  # it has seen the replica
            with redis.Redis(port=second) as new:
                new.replicaof("NO", "ONE")
            proxy.target = second
            await until_replaced(store, run_id, 3 * WATCH_S)
            with redis.Redis(port=first) as old:
                assert old.role()[0] == b"master"
            await store.close()


async def test_a_master_that_lacks_its_replicas_is_asked_for_over_a_new_connection(tmp_path: Path) -> None:
    with pair(tmp_path) as (first, second):
        async with TcpProxy(first) as proxy:
            store = await connect(f"redis://127.0.0.1:{proxy.port}")
            run_id = store.run_of("x")
            with redis.Redis(port=first) as old, redis.Redis(port=second) as new:
                old.config_set("min-replicas-to-write", 1)
                new.replicaof("NO", "ONE")
            proxy.target = second
            with pytest.raises(RedisAway, match="NOREPLICAS"):
                await store.send([command("SET", "x", 1)])
            assert await until_it_serves(store, 1) <= 2
            assert store.run_of("x") != run_id
            await store.close()


@pytest.mark.parametrize("how", ["hangs", "is killed", "hands over"])
async def test_sentinels_name_the_new_master(tmp_path: Path, how: str) -> None:
    with pair(tmp_path) as (first, second), contextlib.ExitStack() as stack:
        ports = [free_port() for _ in range(3)]
        for port in ports:
            config = tmp_path / f"sentinel-{port}.conf"
            config.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nrequirepass watch\nsentinel sentinel-pass watch\n"
                f"sentinel monitor main 127.0.0.1 {first} 2\nsentinel down-after-milliseconds main 1000\n"
                "sentinel failover-timeout main 3000\n"
                "user crawler on >watch -@all +auth +sentinel|get-master-addr-by-name +sentinel|master\n"
            )
            log = stack.enter_context((tmp_path / f"{port}.log").open("wb"))
            words = [str(chosen_server()), str(config), "--sentinel"]
            process = subprocess.Popen(words, stdout=log, stderr=log)  # noqa: ASYNC220
            stack.callback(process.wait)
            stack.callback(process.kill)
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        url = f"redis+sentinel://{hosts}/main/0?sentinel_username=crawler&sentinel_password=watch&socket_timeout=2"
        for port in ports:
            await _all_known(port)
        store = await connect(url)
        await store.send([command("SET", "x", "y")])
        run_id = store.run_of("x")
        with redis.Redis(port=first) as old, redis.Redis(port=ports[1], password="watch") as sentinel:
            if how == "hands over":
                sentinel.execute_command("SENTINEL FAILOVER", "main")
                await until_replaced(store, run_id, 10)
                assert old.role()[0] == b"master"  # Sentinels make it a replica ten seconds later
            else:
                pid = int(old.info("server")["process_id"])
                os.kill(pid, signal.SIGSTOP if how == "hangs" else signal.SIGKILL)
        await until_it_serves(store, 30)
        assert store.run_of("x") != run_id
        with redis.Redis(port=second) as new:
            assert new.role()[0] == b"master"
        await store.close()


async def _all_known(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        with redis.Redis(port=port, password="watch") as sentinel, contextlib.suppress(redis.RedisError):
            state = sentinel.sentinel_master("main")
            if state["num-other-sentinels"] == 2 and state["num-slaves"] == 1:
                return
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


def _from_and_to(cluster: ValkeyCluster, key: str) -> tuple[ClusterNode, ClusterNode]:
    """The owner of `key`, and another master."""
    owner = next(node for node in cluster.masters if node is cluster.owner(key))
    return owner, next(node for node in cluster.masters if node is not owner)


async def test_nodes_that_announce_other_addresses_are_reached_by_the_map() -> None:
    announced = ("--cluster-announce-hostname", "inside.invalid", "--cluster-preferred-endpoint-type", "hostname")
    with ValkeyCluster(options=announced, with_replicas=False) as cluster:
        async with contextlib.AsyncExitStack() as stack:
            proxies = [await stack.enter_async_context(TcpProxy(node.port)) for node in cluster.masters]
            pairs = zip(cluster.masters, proxies, strict=True)
            mapped = ",".join(f"inside.invalid:{node.port}=127.0.0.1:{proxy.port}" for node, proxy in pairs)
            store = await connect(f"redis+cluster://127.0.0.1:{proxies[0].port}?address_map={mapped}")
            keys = [f"{{{number}}}:k" for number in range(32)]
            assert await store.send([command("SET", key, 1) for key in keys]) == [b"OK"] * 32
            assert {store.node_of(key) for key in keys} == {f"127.0.0.1:{proxy.port}" for proxy in proxies}
            await asyncio.to_thread(cluster.move_slots, [slot_of(keys[0])], *_from_and_to(cluster, keys[0]))
            assert (
                await store.send([command("GET", key) for key in keys]) == [b"1"] * 32
            )  # a redirect names an address, too
            await store.close()
