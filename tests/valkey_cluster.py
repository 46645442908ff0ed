"""A real Valkey Cluster under a test's control: three masters with a replica each, on loopback."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import redis
from redis.crc import key_slot
from redis.exceptions import RedisError, ResponseError

from tests.ports import free_port
from tests.valkey import chosen_server

SLOTS = 16_384
MASTERS = 3
HOST = "127.0.0.1"
PATIENCE_S = 180.0

_OPTIONS = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": "2000",
    "cluster-require-full-coverage": "no",  # a shard that is away shall not stop the others
    "cluster-replica-validity-factor": "0",
    "cluster-allow-replica-migration": "no",
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
    "save": "",
}


class ClusterNode:
    """One server process. `name`: its host and port, as the cluster announces it."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.port, self.bus = free_port(), free_port()
        self.name = f"{HOST}:{self.port}"
        self.folder = folder / str(self.port)
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<ClusterNode {self.name}>"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process, with what its folder holds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        places = {"port": self.port, "cluster-port": self.bus, "bind": HOST, "dir": self.folder}
        words = [word for name, value in {**_OPTIONS, **places}.items() for word in (f"--{name}", str(value))]
        with (self.folder / "valkey.log").open("ab") as log:
            self._process = subprocess.Popen([str(chosen_server()), *words, *self._options], stdout=log, stderr=log)

    def has_its_ports(self) -> bool:
        """Whether the process listens. It ends at once if another one has taken one of its ports meanwhile."""
        log = self.folder / "valkey.log"
        _wait(lambda: not self.is_running or b"Ready to accept connections" in log.read_bytes(), f"{self} to listen")
        return self.is_running

    def kill(self) -> None:
        """As a crash would end it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def ask(self, *words: object) -> object:
        """The reply to one command. Raises RedisError."""
        with contextlib.closing(redis.Redis(host=HOST, port=self.port, socket_timeout=5)) as client:
            return client.execute_command(*words)  # type: ignore[no-untyped-call]

    def lines(self, *words: object) -> list[str]:
        """The lines of a reply that is a text, or of one that redis-py has made a dict of."""
        with contextlib.closing(redis.Redis(host=HOST, port=self.port, socket_timeout=5)) as client:
            client.response_callbacks.clear()
            reply = client.execute_command(*words)  # type: ignore[no-untyped-call]
        assert isinstance(reply, bytes)
        return reply.decode().splitlines()

    @property
    def id(self) -> str:
        return self.lines("CLUSTER", "MYID")[0]


class ValkeyCluster:
    """`masters` and `replicas` are as the test began: replica n belongs to master n. `persistent`: append-only files,
    synced at each write. `options`: more options of each server."""

    def __init__(self, persistent: bool = False, options: tuple[str, ...] = (), with_replicas: bool = True) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pc-"))
        durable = ("--appendonly", "yes", "--appendfsync", "always") if persistent else ("--appendonly", "no")
        self._options = (*durable, *options)
        self.masters = [self._node() for _ in range(MASTERS)]
        self.replicas = [self._node() for _ in range(MASTERS if with_replicas else 0)]
        self._more: list[ClusterNode] = []

    def _node(self) -> ClusterNode:
        return ClusterNode(self._folder, self._options)

    @property
    def nodes(self) -> list[ClusterNode]:
        return [*self.masters, *self.replicas, *self._more]

    @property
    def url(self) -> str:
        """With all masters as seed hosts."""
        return f"redis+cluster://{','.join(node.name for node in self.masters)}"

    def __enter__(self) -> ValkeyCluster:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            if node.is_running:
                node.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start all nodes and make them a cluster."""
        for nodes in (self.masters, self.replicas):
            for number, node in enumerate(nodes):
                node.start()
                while not node.has_its_ports():  # another test was faster to take one
                    node = nodes[number] = self._node()
                    node.start()
        for node in self.nodes:
            _wait(lambda node=node: node.ask("PING"), f"{node} to answer")  # type: ignore[misc]
        bounds = [SLOTS * number // MASTERS for number in range(MASTERS + 1)]
        for number, node in enumerate(self.nodes):
            with contextlib.suppress(ResponseError):  # the client repeats a call whose reply is late
                node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)  # refused once a node knows another
        for node in self.nodes:
            node.ask("CLUSTER", "MEET", HOST, self.masters[0].port, self.masters[0].bus)
        for node, begin, end in zip(self.masters, bounds, bounds[1:], strict=False):
            node.ask("CLUSTER", "ADDSLOTSRANGE", begin, end - 1)
        for master, replica in zip(self.masters, self.replicas, strict=False):
            _wait(lambda master=master, replica=replica: _knows(replica, master.id), "the nodes to meet")  # type: ignore[misc]
            replica.ask("CLUSTER", "REPLICATE", master.id)
        self.wait_ok()

    def wait_ok(self, seconds: float = PATIENCE_S) -> None:
        """Wait until all running nodes see all slots served, and each replica that runs has its master's data."""

        def is_ok() -> bool:
            running = [node for node in self.nodes if node.is_running]
            return (
                all("cluster_state:ok" in node.lines("CLUSTER", "INFO") for node in running)
                and all(
                    not _is_replica(node) or "master_link_status:up" in node.lines("INFO", "replication")
                    for node in running
                )
                and _agree(running)
            )

        _wait(is_ok, "the cluster to be well", seconds)

    def owner(self, key: str) -> ClusterNode | None:
        """The node that serves `key`, as the first node sees it that is not suspended. None if nobody does."""
        slot = key_slot(key.encode())
        awake = next(node for node in self.nodes if node.is_running and not _is_suspended(node))
        for line in awake.lines("CLUSTER", "NODES"):
            words = line.split()
            flags = words[2].split(",")
            if "master" in flags and "fail" not in flags and _serves(words[8:], slot):
                return self._named(words[1].partition("@")[0])
        return None

    def _named(self, name: str) -> ClusterNode:
        return next(node for node in self.nodes if node.name == name)

    def kill(self, node: ClusterNode) -> None:
        """End the process as a crash would."""
        node.kill()

    def restart(self, node: ClusterNode, empty: bool = False) -> None:
        """Start a killed node again, with its data or without (its place in the cluster is kept)."""
        if empty:
            for path in (*node.folder.glob("*.rdb"), node.folder / "appendonlydir"):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        node.start()
        _wait(lambda: node.ask("PING"), f"{node} to answer")

    def suspend(self, node: ClusterNode) -> None:
        """Stop the process without ending it: it keeps its connections and answers nothing."""
        node.send_signal(signal.SIGSTOP)
        _wait(lambda: _is_suspended(node), f"{node} to stop")

    def resume(self, node: ClusterNode) -> None:
        """Let a suspended process go on."""
        node.send_signal(signal.SIGCONT)

    def failover(self, replica: ClusterNode, how: str = "") -> None:
        """Make `replica` a master, and wait until it is one. `how`: "" with its master's consent, FORCE or TAKEOVER."""
        replica.ask("CLUSTER", "FAILOVER", *([how] if how else []))
        _wait(lambda: not _is_replica(replica), f"{replica} to become a master")

    def move_slots(self, slots: Iterable[int], source: ClusterNode, target: ClusterNode, pause_s: float = 0.0) -> None:
        """Move `slots` with their keys, as resharding does. `pause_s`: how long each slot is divided."""
        source_id, target_id = source.id, target.id
        for slot in slots:
            _set_slot(target, slot, "IMPORTING", source_id)
            _set_slot(source, slot, "MIGRATING", target_id)
            time.sleep(pause_s)
            while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
                assert isinstance(keys, list)
                source.ask("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys)
            for node in (target, source):
                _set_slot(node, slot, "NODE", target_id)

    def drop_slot(self, slot: int) -> None:
        """Let no node serve `slot`. A node that a ping of the former owner reaches late has it again, so it is asked until
        all are without it."""

        def is_dropped() -> bool:
            one_less = f"cluster_slots_assigned:{SLOTS - 1}"
            assigned = [node for node in self.nodes if one_less not in node.lines("CLUSTER", "INFO")]
            for node in assigned:
                node.ask("CLUSTER", "DELSLOTS", slot)
            return not assigned

        _wait(is_dropped, f"slot {slot} to be without a node")

    def add_node(self) -> ClusterNode:
        """Start a master without slots, and wait until all know it."""
        node = self._node()
        self._more.append(node)
        node.start()
        _wait(lambda: node.ask("PING"), f"{node} to answer")
        known = next(one for one in self.nodes if one.is_running and one is not node)
        node.ask("CLUSTER", "MEET", HOST, known.port, known.bus)
        others = [one for one in self.nodes if one.is_running]
        _wait(lambda: all(_knows(one, node.id) for one in others), f"all to know {node}")
        self.wait_ok()
        return node

    def remove_node(self, node: ClusterNode) -> None:
        """Make all others forget a node that serves no slots, and end it."""
        gone = node.id
        for one in self.nodes:
            if one.is_running and one is not node:
                one.ask("CLUSTER", "FORGET", gone)
        node.kill()


def _wait(question: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while True:
        asked_at = time.monotonic()
        with contextlib.suppress(RedisError):
            if question():
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        took_s = time.monotonic() - asked_at
        time.sleep(max(0.02, min(4 * took_s, 1.0)))  # most of the CPU is for the nodes


def _set_slot(node: ClusterNode, slot: int, *words: str) -> None:
    """Change `slot` at `node`. A master refuses this with NOREPLICAS if its replicas have not confirmed it in two seconds,
    as on a busy machine. Nothing is changed then, so it is asked again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            node.ask("CLUSTER", "SETSLOT", slot, *words)
            return
        except ResponseError as error:
            if not str(error).startswith("NOREPLICAS") or time.monotonic() > deadline:
                raise


def _knows(node: ClusterNode, other_id: str) -> bool:
    return any(line.startswith(other_id) and "handshake" not in line for line in node.lines("CLUSTER", "NODES"))


def _agree(nodes: Sequence[ClusterNode]) -> bool:
    """Whether all see the same master for each slot, and the same replicas of each master."""
    maps = {tuple(sorted(" ".join(_served(line)) for line in node.lines("CLUSTER", "NODES"))) for node in nodes}
    return len(maps) == 1


def _served(line: str) -> list[str]:
    words = line.split()
    return [words[0], words[3], *(word for word in words[8:] if not word.startswith("["))]


def _serves(ranges: Iterable[str], slot: int) -> bool:
    bounds = [(part.split("-")[0], part.split("-")[-1]) for part in ranges if not part.startswith("[")]
    return any(int(begin) <= slot <= int(end) for begin, end in bounds)


def _is_replica(node: ClusterNode) -> bool:
    return "role:slave" in node.lines("INFO", "replication")


def _is_suspended(node: ClusterNode) -> bool:
    return Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
