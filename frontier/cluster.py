"""The servers of a Redis Cluster: which one serves which hash slot, asked anew whenever something suggests a change.

The map of slots is asked for when a node redirects us, breaks or goes silent, and then again and again while a node that
serves slots is away. Several nodes are asked at once, and what most of them say counts: one that hangs holds nothing
up, and one that has missed a failover decides nothing. New nodes are connected to before they serve, so that
their run ID is known.

Which node serves which slot, and which slot a key is in. Pure functions: Redis Cluster specification, "Key distribution
model".

What a node of a Redis Cluster says about itself, so that nodes can be compared.

Asks Redis Sentinels for the address of the master that they watch: Redis documentation, "Sentinel client spec".

The servers of a store: what a store asks of them, and a single server, at a fixed address or named by Sentinels.

Sends calls to their nodes side by side, and again where a node answers that another one, or a later time, is right.

| reply | what follows |
|---|---|
| NOSCRIPT | the script's source is sent, once for all calls of it |
| MOVED | the call goes to the node that is named, which has the slot now |
| ASK | a plain command goes to the node that is named, for this once; a script waits |
| TRYAGAIN, or a script that finds its slot moving | it waits until the slot has moved |
| READONLY, LOADING, MASTERDOWN | the connections to this server are closed |

While a slot moves, its keys are on two nodes, and no script may run: it would take a key that has left for one that does
not exist. So scripts begin with a look at a key that never exists (`calls.GUARD`), which fails on a node that hands over
its slot, and are never sent to the node that receives it before it owns the slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from binascii import crc_hqx
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import hiredis
import msgspec
from hiredis import ReplyError

from frontier.connection import (
    WRONG_SERVER,
    RedisServer,
    ServerWatcher,
    TimeLimits,
    ask,
    fields,
    first_word,
    open_connection,
    translate,
)
from frontier.errors import FrontierError, RedisAway, RedisMisused, ReplicasMissing
from frontier.redis_url import Access, Address, RedisUrl
from frontier.scripts import Acks, Call, Reply, packed, packed_by_source, packed_words

SLOTS = 16_384

UNSERVED = "unserved slots"
"""The name, in place of a node's, of all slots that no node serves."""


@lru_cache(maxsize=1 << 15)
def slot_of(key: str) -> int:
    """The slot of `key`: the CRC16 (XMODEM) of its hash tag, or of the whole key if it has none."""
    begin = key.find("{")
    if begin >= 0:
        end = key.find("}", begin + 1)
        if end > begin + 1:
            key = key[begin + 1 : end]
    return crc_hqx(key.encode(), 0) % SLOTS


class SlotRange(msgspec.Struct, frozen=True):
    """Slots `first` to `last` are served by `master`. `replicas` have copies."""

    first: int
    last: int
    master: Address
    replicas: tuple[Address, ...] = ()


SlotMap = tuple[SlotRange, ...]


def read_slots(reply: Sequence[Any], asked: Address, reachable: Mapping[str, Address]) -> SlotMap:
    """Read the reply to CLUSTER SLOTS of the node at `asked`. `reachable`: as in RedisUrl.

    A node that does not know its own address, or shall not tell it, leaves it out; it is then the one that was asked.
    """
    ranges = []
    for first, last, *nodes in reply:
        master, *replicas = (_endpoint(node, asked, reachable) for node in nodes)
        ranges.append(SlotRange(first, last, master, tuple(sorted(replicas))))
    return tuple(sorted(ranges, key=lambda one: one.first))


def read_shards(reply: Sequence[Any], asked: Address, has_tls: bool) -> tuple[Address, ...]:
    """Read the reply to CLUSTER SHARDS of the node at `asked`: all nodes, as they announce themselves. It names replicas
    that have failed, which CLUSTER SLOTS omits. `has_tls`: whether connections use TLS, which has a port of its own."""
    port = "tls-port" if has_tls else "port"
    nodes = [_by_name(node) for shard in reply for node in _by_name(shard)["nodes"]]
    return tuple(Address(_host(node["endpoint"], asked), node[port]) for node in nodes if port in node)


def _by_name(reply: Sequence[Any]) -> dict[str, Any]:
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _endpoint(node: Sequence[Any], asked: Address, reachable: Mapping[str, Address]) -> Address:
    return translated(Address(_host(node[0], asked), node[1]), reachable)


def _host(announced: bytes | None, asked: Address) -> str:
    host = (announced or b"").decode()
    return host if host not in ("", "?") else asked.host


def translated(announced: Address, reachable: Mapping[str, Address]) -> Address:
    """Where a node can be reached that announces itself as `announced`."""
    return reachable.get(announced.name, announced)


def read_redirect(error: str, asked: Address, reachable: Mapping[str, Address]) -> tuple[int, Address]:
    """The slot and the node that a MOVED or ASK error names."""
    _, slot, endpoint = error.split()[:3]
    host, _, port = endpoint.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    return int(slot), translated(Address(host if host not in ("", "?") else asked.host, int(port)), reachable)


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


class Sentinels:
    """Those in `url`. `timeout_s`: for each one's answer."""

    def __init__(self, url: RedisUrl, timeout_s: float, where: str) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._where = where

    async def find(self) -> Address:
        """The address of the master now. All Sentinels are asked at once, and the first answer counts.

        Raises RedisAway if no Sentinel answers, and RedisMisused if none that answers knows the name.
        """
        error: FrontierError = RedisAway(f"no Sentinel of {self._where} answers", self._where)
        asking = [asyncio.create_task(self._ask(host)) for host in self._url.hosts]
        try:
            for first in asyncio.as_completed(asking):
                try:
                    return await first
                except FrontierError as failed:
                    error = failed
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        raise error

    async def _ask(self, host: Address) -> Address:
        question = packed_words("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._url.master)
        try:
            reply = await ask(host, self._url.sentinel_access, question, self._timeout_s)
        except (OSError, TimeoutError, hiredis.HiredisError) as error:
            raise translate(error, host.name, self._where) from error
        if reply is None:
            raise RedisMisused(f"the Sentinel at {host.name} knows no master {self._url.master!r}")
        name, port = reply
        return translated(Address(name.decode(), int(port)), self._url.reachable)


class Servers(Protocol):
    """The servers of a store. Implemented by `SingleServer` and `Cluster`."""

    def server_of(self, key: str) -> RedisServer:
        """The server that carries out calls with `key`; "": that tells the time. Raises RedisAway."""

    @property
    def members(self) -> Collection[RedisServer]:
        """All servers that serve keys."""

    def server_named(self, name: str) -> RedisServer | None:
        """The server `name`, if it serves keys."""

    def runs(self) -> Hashable:
        """What changes whenever another server, or another process of it, serves a key."""

    def keep_time_by(self, key: str) -> None:
        """Take the time from the server of `key`."""

    def refresh_soon(self) -> None:
        """Find out again who serves which key."""

    async def follow(self, error: str, server: RedisServer) -> RedisServer:
        """The server that a MOVED or ASK reply of `server` names. Raises RedisAway."""

    async def node_facts(self) -> dict[str, NodeFacts | FrontierError]:
        """What each node of a cluster says about itself, or its error, by name."""

    async def silent_hosts(self) -> dict[str, FrontierError]:
        """The nodes in the URL of a cluster that do not answer, with their errors."""

    async def start(self) -> None:
        """Connect. Raises RedisAway or RedisMisused."""

    async def close(self) -> None:
        """Close all connections."""


class SingleServer(ServerWatcher):
    """One server, which carries out all calls. `where`: as it is shown in messages, and its name."""

    def __init__(
        self, url: RedisUrl, limits: TimeLimits, where: str, on_round_trip: Callable[[float, bool], None]
    ) -> None:
        (self._address, *_) = url.hosts
        self._limits = limits
        self._on_round_trip = on_round_trip
        find = Sentinels(url, limits.probe_s, where).find if url.kind == "sentinel" else self._find
        self._server = RedisServer(where, find, url.access, limits, self)

    async def _find(self) -> Address:
        return self._address

    def round_trip(self, seconds: float, failed: bool) -> None:
        self._on_round_trip(seconds, failed)

    def server_of(self, key: str) -> RedisServer:
        return self._server

    @property
    def members(self) -> Collection[RedisServer]:
        return (self._server,)

    def server_named(self, name: str) -> RedisServer | None:
        return self._server if name == self._server.name else None

    def runs(self) -> Hashable:
        return self._server.run_id

    def keep_time_by(self, key: str) -> None:
        """There is only one clock."""

    def refresh_soon(self) -> None:
        """Each new connection asks for the address."""

    async def follow(self, error: str, server: RedisServer) -> RedisServer:
        raise RedisMisused(
            f"Redis at {server.name} is a node of a cluster; write its URL as redis+cluster:// ({error})"
        )

    async def node_facts(self) -> dict[str, NodeFacts | FrontierError]:
        return {}

    async def silent_hosts(self) -> dict[str, FrontierError]:
        return {}

    async def start(self) -> None:
        await self._server.connect(self._limits.connect_s)

    async def close(self) -> None:
        self._server.close()


ASKED_AT_ONCE = 3
"""How many nodes are asked for the map: enough for a majority, few enough for a thousand replicas."""

ASK_LIMIT_S = 1.0
"""For one node's answer. It normally takes milliseconds."""

FIRST_CONNECT_S = 2.0
"""For the first connections, to all nodes side by side: a busy machine may be slow, but a node that hangs should not delay
a start for long."""

LAGGARD_S = 0.25
"""How long to wait for the others after the first answer."""

FIRST_GAP_S, LONGEST_GAP_S, LONGER = 0.1, 1.0, 1.1
"""Between two refreshes, and how many times longer each is than the one before while nothing changes. Three seconds later,
when most failovers end, it is 0.4 s."""


class Cluster(ServerWatcher):
    """The masters of a cluster. `where`: the cluster as it is shown in messages."""

    def __init__(
        self, url: RedisUrl, limits: TimeLimits, where: str, on_round_trip: Callable[[float, bool], None]
    ) -> None:
        self._url = url
        self._limits = limits
        self._where = where
        self._on_round_trip = on_round_trip
        self._by_address: dict[Address, RedisServer] = {}
        self._by_slot: list[RedisServer | None] = [None] * SLOTS
        self._map: SlotMap = ()
        self._moves = 0  # changes of `_by_slot`
        self._hints: list[Address] = []  # nodes that others have named since the last refresh
        self._refreshing: asyncio.Task[None] | None = None
        self._probes: set[asyncio.Task[None]] = set()
        self._wanted = asyncio.Event()
        self._time_key = ""

    def __repr__(self) -> str:
        return f"<Cluster {self._where} nodes={len(self._by_address)}>"

    def round_trip(self, seconds: float, failed: bool) -> None:
        self._on_round_trip(seconds, failed)

    def server_is_silent(self, server: RedisServer) -> None:
        self.refresh_soon()

    async def start(self) -> None:
        """Ask for the map and connect to the masters. Raises RedisAway or RedisMisused if no node answers."""
        await self._refresh()
        self._refreshing = asyncio.create_task(self._keep_fresh())
        if all(server.is_away for server in self._by_address.values()):
            raise RedisAway(f"Redis at {self._where} cannot serve now: no master can be reached", self._where)

    def server_named(self, name: str) -> RedisServer | None:
        return next((server for server in self.members if server.name == name), None)

    @property
    def members(self) -> Collection[RedisServer]:
        """All nodes that serve slots."""
        return self._by_address.values()

    def runs(self) -> Hashable:
        return (self._moves, *(server.run_id for server in self.members))

    def keep_time_by(self, key: str) -> None:
        self._time_key = key

    def server_of(self, key: str) -> RedisServer:
        """The node that serves `key`. "" is the node that tells the time. Raises RedisAway if nobody serves
        it."""
        server = self._by_slot[slot_of(key)] if key else self._time_server()
        if server is None:
            self.refresh_soon()
            raise RedisAway(f"Redis at {self._where} cannot serve now: no node has the slot of {key!r}", UNSERVED)
        return server

    def _time_server(self) -> RedisServer | None:
        if self._time_key:
            return self._by_slot[slot_of(self._time_key)]
        return min(self.members, key=lambda server: (server.is_away, server.name), default=None)

    def refresh_soon(self) -> None:
        """Have the map refreshed in the background."""
        self._wanted.set()

    async def follow(self, error: str, server: RedisServer) -> RedisServer:
        """The node that a MOVED or ASK reply of `server` names. Raises RedisAway unless `server` is still a master:
        slots that move to another node take everything with them, but a failover may have lost something, so the sender
        must see the new node's run first."""
        asked = next((address for address, one in self._by_address.items() if one is server), None)
        slot, address = read_redirect(error, asked or self._url.hosts[0], self._url.reachable)
        is_moved = error.startswith("MOVED")
        if is_moved:
            self._hints.append(address)
            self.refresh_soon()
        info = await self._info(server) if is_moved else {}
        target = self._by_address.get(address) or self._add(address)
        if not target.run_id:
            await target.connect(self._limits.probe_s)
        if is_moved:
            self._by_slot[slot] = target
            self._moves += 1
        if info.get("role", "master") != "master":
            raise RedisAway(f"Redis at {server.name} cannot serve now: {target.name} has taken over", server.name)
        return target

    async def _info(self, server: RedisServer) -> dict[str, str]:
        (reply,) = await server.begin(packed_words("INFO", "replication"), 1, None)
        return fields(reply)

    def _add(self, address: Address) -> RedisServer:
        async def find() -> Address:
            return address

        server = self._by_address[address] = RedisServer(address.name, find, self._url.access, self._limits, self)
        return server

    async def _keep_fresh(self) -> None:
        """Refresh the map whenever that was wanted, and while a node that serves slots is away."""
        gap_s = FIRST_GAP_S
        while True:
            if not any(server.is_away for server in self.members):
                await self._wanted.wait()
            self._wanted.clear()
            before = self._map
            # Nobody answers, or all refuse: the calls report it.
            with contextlib.suppress(FrontierError):
                await self._refresh()
            for server in self.members:
                self._probe(server)
            gap_s = FIRST_GAP_S if self._map != before else min(gap_s * LONGER, LONGEST_GAP_S)
            if not any(server.is_away for server in self.members):
                gap_s = FIRST_GAP_S
            await asyncio.sleep(gap_s)

    def _probe(self, server: RedisServer) -> None:
        """Try a node that is away in the background, so that it is found again even if nobody calls it."""
        if server.is_away:
            probe = asyncio.create_task(server.connect(self._limits.probe_s))
            self._probes.add(probe)
            probe.add_done_callback(self._probed)

    def _probed(self, probe: asyncio.Task[None]) -> None:
        self._probes.discard(probe)
        if not probe.cancelled():
            probe.exception()  # it is still away, which the server remembers

    async def _refresh(self) -> None:
        """Ask for the map once. Raises RedisAway or RedisMisused if nobody answers."""
        healthy = [address for address, server in self._by_address.items() if not server.is_away]
        replicas = [address for one in self._map for address in one.replicas]
        known = list(dict.fromkeys([*healthy, *replicas]))
        first = list(dict.fromkeys([*self._hints, *random.sample(known, min(ASKED_AT_ONCE, len(known)))]))[
            :ASKED_AT_ONCE
        ]
        hinted = set(self._hints)
        self._hints.clear()
        rest = [
            address for address in dict.fromkeys([*known, *self._url.hosts, *self._by_address]) if address not in first
        ]
        try:
            found = await self._most_say(first or rest)
        except FrontierError:
            if not first or not rest:
                raise
            found = await self._most_say(rest)
        await self._take_up(found, hinted)

    async def _most_say(self, addresses: list[Address]) -> SlotMap:
        """The map that most of `addresses` tell. Raises the error of one if all fail."""
        asking = {asyncio.create_task(self._ask(address)) for address in addresses}
        heard: Counter[SlotMap] = Counter()
        error: FrontierError = RedisAway(f"Redis at {self._where} cannot serve now: no node is known", self._where)
        pending, limit_s = asking, self._ask_limit_s + LAGGARD_S
        try:
            while pending:
                done, pending = await asyncio.wait(
                    pending, timeout=LAGGARD_S if heard else limit_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                for task in done:
                    try:
                        heard[task.result()] += 1
                    except FrontierError as failed:
                        error = failed
                if heard and heard.most_common(1)[0][1] * 2 > len(addresses):
                    break
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        if not heard:
            raise error
        return heard.most_common(1)[0][0]

    @property
    def _ask_limit_s(self) -> float:
        """At first, there is nothing else to do meanwhile, and a busy machine may be slow."""
        return ASK_LIMIT_S if self._map else self._limits.connect_s

    async def _ask(self, address: Address) -> SlotMap:
        try:
            reply = await ask(address, self._url.access, packed_words("CLUSTER", "SLOTS"), self._ask_limit_s)
            found = read_slots(reply, address, self._url.reachable)
        except TimeoutError as error:
            raise translate(TimeoutError(f"no reply within {self._ask_limit_s:g} s"), address.name) from error
        except (OSError, hiredis.HiredisError) as error:
            raise translate(error, address.name) from error
        if not found:
            raise RedisAway(f"Redis at {address.name} cannot serve now: it knows of no slots", address.name)
        return found

    async def _take_up(self, found: SlotMap, hinted: set[Address]) -> None:
        """Use the map `found`. New nodes are connected to first. Calls may be on their way to nodes that are `hinted`, even
        if those who were asked have not heard of their slots yet."""
        masters = {one.master for one in found}
        servers = {address: self._by_address.get(address) or self._add(address) for address in masters}
        unknown = [server for server in servers.values() if not server.run_id and not server.is_away]
        if unknown:
            limit_s = self._limits.probe_s if self._map else FIRST_CONNECT_S
            await asyncio.gather(*(server.connect(limit_s) for server in unknown), return_exceptions=True)
        by_slot: list[RedisServer | None] = [None] * SLOTS
        for one in found:
            by_slot[one.first : one.last + 1] = [servers[one.master]] * (one.last + 1 - one.first)
        if by_slot != self._by_slot:
            self._by_slot = by_slot
            self._moves += 1
        self._map = found
        for address in self._by_address.keys() - masters - hinted - set(self._hints):
            self._by_address.pop(address).retire()

    async def node_facts(self) -> dict[str, NodeFacts | FrontierError]:
        """What each node says about itself, replicas and failed nodes included, or its error, by name."""
        facts: dict[Address, NodeFacts | FrontierError] = {}
        unasked = {address for one in self._map for address in (one.master, *one.replicas)}
        while unasked:
            facts |= zip(unasked, await asyncio.gather(*map(self._facts, unasked)), strict=True)
            named = {node for one in facts.values() if isinstance(one, NodeFacts) for node in one.nodes}
            unasked = {translated(node, self._url.reachable) for node in named} - facts.keys()
        return {node.name: facts[node] for node in sorted(facts)}

    async def silent_hosts(self) -> dict[str, FrontierError]:
        """The nodes in the URL that do not answer, with their errors."""
        found = await asyncio.gather(*map(self._facts, self._url.hosts))
        facts = zip(self._url.hosts, found, strict=True)
        return {address.name: error for address, error in facts if isinstance(error, FrontierError)}

    async def _facts(self, address: Address) -> NodeFacts | FrontierError:
        try:
            return await read_facts(address, self._url.access, self._limits.reply_s)
        except (OSError, hiredis.HiredisError, TimeoutError) as error:
            return translate(error, address.name)
        except FrontierError as error:
            return error

    async def close(self) -> None:
        """Close all connections."""
        tasks = [*self._probes, *([self._refreshing] if self._refreshing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self.members:
            server.close()


FIRST_WAIT_S, LONGEST_WAIT_S = 0.002, 0.1
"""For a slot that moves. Most move within milliseconds."""

PATIENT_ROUNDS = 2
"""After so many redirects in a row, wait between them: the nodes disagree for a moment."""

_MOVING = "non local key"
"""In the error of a script that finds its slot moving (script.c of Redis 7 and Valkey)."""


_NOWHERE = -1
"""The place of a reply that is not wanted, the one to ASKING."""


ACK_LIMIT_MS = 500
"""How long a node waits for its replicas. They acknowledge within milliseconds, unless one is away or falls behind."""

ACK_KEY_MS = 1_000
"""How long the key of `Acks` lives."""


class Batch(NamedTuple):
    """Calls for one server. `run_id`: that must carry them out, None for any. `at`: their places among all calls. `acks`:
    of each call, empty if no replicas have to acknowledge them."""

    server: RedisServer
    run_id: str | None
    at: Sequence[int]
    data: bytes
    acks: Sequence[Acks] = ()

    def begin(self) -> asyncio.Future[list[Reply]]:
        """Send the calls, and two commands more if replicas have to acknowledge them."""
        if not self.acks:
            return self.server.begin(self.data, len(self.at), self.run_id)
        self.server.check_replicas()
        return self.server.begin(self.data + _mark(self.acks[0]), len(self.at) + 2, self.run_id)

    async def check_acks(self, replies: list[Reply]) -> None:
        """Remove the replies to the two commands. Raises ReplicasMissing if too few replicas have acknowledged the calls: a
        failover could undo them, so they have to be repeated."""
        if not self.acks:
            return
        acknowledged, marked = replies.pop(), replies.pop()
        carried_out = [number for number, reply in enumerate(replies) if type(reply) is not ReplyError]
        if not carried_out:
            return  # nothing was written; each call goes to another node, or fails for its own reason
        if type(marked) is ReplyError:  # its slot moves or has moved, but not that of a call that was carried out
            mark = _mark(self.acks[carried_out[0]])
            marked, acknowledged = await self.server.begin(mark, 2, self.run_id)
        for reply in (marked, acknowledged):
            if type(reply) is ReplyError:
                raise translate(reply, self.server.name)
        name, wanted = self.server.name, self.acks[0].replicas
        if acknowledged < wanted:
            text = f"{acknowledged} of {wanted} replicas of Redis at {name} have acknowledged a write"
            raise self.server.lacks_replicas(ReplicasMissing(text, name))
        self.server.has_replicas()


def _mark(acks: Acks) -> bytes:
    """The two commands that wait until replicas have what was written before."""
    mark = packed_words("SET", acks.key, "", "PX", ACK_KEY_MS)
    return mark + packed_words("WAIT", acks.replicas, ACK_LIMIT_MS)


class Refused(NamedTuple):
    """A call that was answered with an error."""

    at: int
    batch: Batch
    error: ReplyError


def acks_of(calls: Sequence[Call]) -> list[Acks]:
    """The acks of `calls`, of which all have some, or none."""
    return [call.acks for call in calls if call.acks is not None]


async def exchange(batches: Sequence[Batch], replies: list[Reply | FrontierError]) -> list[Refused]:
    """Send `batches` side by side and put the replies into their places, an error that concerns a whole server into all of
    its. Returns the calls that were answered with an error."""
    started: list[tuple[Batch, asyncio.Future[list[Reply]]]] = []
    refused: list[Refused] = []
    for batch in batches:
        try:
            started.append((batch, batch.begin()))
        except FrontierError as error:
            _fill(replies, batch.at, error)
    for batch, future in started:
        try:
            found = await future
            await batch.check_acks(found)
        except FrontierError as error:
            _fill(replies, batch.at, error)
            continue
        for at, reply in zip(batch.at, found, strict=True):
            if at == _NOWHERE:
                continue
            replies[at] = reply
            if type(reply) is ReplyError:
                refused.append(Refused(at, batch, reply))
    return refused


def _fill(replies: list[Reply | FrontierError], at: Iterable[int], error: FrontierError) -> None:
    for place in at:
        if place != _NOWHERE:
            replies[place] = error


def _joined(batches: Iterable[Batch]) -> list[Batch]:
    """One batch for each server and run, with the calls in the same order."""
    joined: dict[tuple[RedisServer, str | None], list[Batch]] = {}
    for batch in batches:
        joined.setdefault((batch.server, batch.run_id), []).append(batch)
    return [
        Batch(
            server,
            run_id,
            [at for part in parts for at in part.at],
            b"".join(part.data for part in parts),
            [acks for part in parts for acks in part.acks],
        )
        for (server, run_id), parts in joined.items()
    ]


class Redirects:
    """Finds out what to do about refused calls. `timeout_s`: how long calls may wait for slots that move."""

    def __init__(self, servers: Servers, is_cluster: bool, timeout_s: float) -> None:
        self._servers = servers
        self._is_cluster = is_cluster
        self._timeout_s = timeout_s
        # In this round:
        self._followed: dict[tuple[RedisServer, str], RedisServer] = {}
        self._taught: set[tuple[RedisServer, str | None, bytes]] = set()

    async def resolve(
        self, calls: Sequence[Call], replies: list[Reply | FrontierError], refused: Sequence[Refused]
    ) -> None:
        """Replace the errors of `refused` in `replies` by what the calls come to."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        wait_s, rounds = FIRST_WAIT_S, 0
        while refused:
            again: list[Batch] = []
            late: list[Refused] = []
            self._followed.clear()
            self._taught.clear()
            for one in refused:
                try:
                    batch = await self._next(calls[one.at], one)
                except FrontierError as error:
                    replies[one.at] = error
                    continue
                if batch is not None:
                    again.append(batch)
                else:
                    late.append(one)
            rounds += 1
            if late or rounds > PATIENT_ROUNDS:
                if asyncio.get_running_loop().time() > deadline:
                    for one in refused:
                        if replies[one.at] is one.error:
                            replies[one.at] = translate(one.error, one.batch.server.name)
                    return
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)
                again += self._anew(calls, replies, late)
            refused = sorted(await exchange(_joined(again), replies))

    def _anew(
        self, calls: Sequence[Call], replies: list[Reply | FrontierError], late: Sequence[Refused]
    ) -> list[Batch]:
        """The calls of `late`, for the nodes that have their slots by now."""
        batches = []
        for one in late:
            try:
                server = self._servers.server_of(calls[one.at].key)
            except RedisAway as away:
                replies[one.at] = away
                continue
            run_id = one.batch.run_id if server is one.batch.server else None
            batches.append(self._batch(calls[one.at], one.at, server, run_id))
        return batches

    def _batch(self, call: Call, at: int, server: RedisServer, run_id: str | None) -> Batch:
        return Batch(server, run_id, [at], packed([call], guarded=self._is_cluster), acks_of([call]))

    async def _next(self, call: Call, refused: Refused) -> Batch | None:
        """How to send a refused call again, or None if it has to wait. Raises the error that it comes to."""
        at, batch, error = refused
        word = first_word(error)
        if word == "NOSCRIPT" and call.script is not None:
            lesson = (batch.server, batch.run_id, call.script.sha)
            if lesson in self._taught:  # the source is sent right before
                return self._batch(call, at, batch.server, batch.run_id)
            self._taught.add(lesson)
            source = packed_by_source(call, guarded=self._is_cluster)
            return Batch(batch.server, batch.run_id, [at], source, acks_of([call]))
        if word == "MOVED":
            return self._batch(call, at, await self._follow(error, batch.server), None)
        if word == "ASK" and call.script is None:
            server = await self._follow(error, batch.server)
            return Batch(server, None, [_NOWHERE, at], packed_words("ASKING") + packed([call]))
        if word in ("TRYAGAIN", "ASK") or (self._is_cluster and call.script is not None and _MOVING in str(error)):
            return None
        if word == "CLUSTERDOWN":
            self._servers.refresh_soon()
        translated = translate(error, batch.server.name)
        if word in WRONG_SERVER:
            batch.server.drop(translated)
        raise translated

    async def _follow(self, error: ReplyError, server: RedisServer) -> RedisServer:
        target = self._followed.get((server, str(error)))
        if target is None:
            target = self._followed[server, str(error)] = await self._servers.follow(str(error), server)
        return target
