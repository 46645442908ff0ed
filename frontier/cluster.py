"""The servers of a Redis Cluster: which one serves which hash slot, asked again whenever something suggests a change.

The map of slots is asked for when a node redirects us, breaks or goes silent, and then again and again while a node that
serves slots is away. Several nodes are asked at once, and what most of them say counts: one that hangs holds nothing
up, and one that has missed a failover decides nothing. New nodes are connected to before they serve, so that
their run ID is known. So a node that is away costs only its own slots. `frontier.store` sends calls to the nodes, and
`frontier.shards` knows the node of each shard of a crawl.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from binascii import crc_hqx
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import hiredis
import msgspec

from frontier.connection import (
    LAGGARD_S,
    OnRoundTrip,
    RedisServer,
    Servers,
    TimeLimits,
    ask,
    fields,
    open_connection,
    translate,
)
from frontier.errors import FrontierError, RedisAway
from frontier.redis_url import Access, Address, RedisUrl
from frontier.scripts import packed_words

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


def read_slots(reply: Sequence[Any], asked: Address, url: RedisUrl) -> SlotMap:
    """Read the reply to CLUSTER SLOTS of the node at `asked`."""
    ranges = []
    for first, last, *nodes in reply:
        master, *replicas = (url.reach(Address(_host(node[0], asked), node[1])) for node in nodes)
        ranges.append(SlotRange(first, last, master, tuple(sorted(replicas))))
    return tuple(sorted(ranges, key=lambda slots: slots.first))


def read_shards(reply: Sequence[Any], asked: Address, has_tls: bool) -> tuple[Address, ...]:
    """Read the reply to CLUSTER SHARDS of the node at `asked`: all nodes, as they announce themselves. It names replicas
    that have failed, which CLUSTER SLOTS omits. `has_tls`: whether connections use TLS, which has a port of its own."""
    port = b"tls-port" if has_tls else b"port"
    nodes = [_dict(node) for shard in reply for node in _dict(shard)[b"nodes"]]
    return tuple(Address(_host(node[b"endpoint"], asked), node[port]) for node in nodes if port in node)


def _dict(flat: Sequence[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _host(announced: bytes | None, asked: Address) -> str:
    """A node that does not know its own address, or shall not tell it, leaves it out; it is then the one that was asked."""
    host = (announced or b"").decode()
    return host if host not in ("", "?") else asked.host


SETTINGS = (
    *("appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy"),
    *("cluster-require-full-coverage", "cluster-node-timeout"),
)


class NodeFacts(msgspec.Struct, frozen=True):
    """`ahead_s`: how far its clock is ahead of this machine's, in seconds; `error_s`: by how much this may be wrong.
    `info`: INFO; `settings`: those in `SETTINGS`; `nodes`: all of the cluster, also failed ones. Empty if this user may
    not read them."""

    ahead_s: float
    error_s: float
    info: dict[str, str]
    settings: dict[str, str]
    nodes: tuple[Address, ...]

    @property
    def version(self) -> str:
        return self.info.get("valkey_version", self.info.get("redis_version", "?"))

    @property
    def is_master(self) -> bool:
        return self.info.get("role") == "master"

    @property
    def replicas(self) -> int:
        """The number of its replicas that receive its writes."""
        return sum(name.startswith("slave") and "state=online" in value for name, value in self.info.items())


async def read_facts(address: Address, access: Access, timeout_s: float) -> NodeFacts:
    """Ask the node at `address`, over a connection of its own. Raises as `open_connection`."""
    questions = (("TIME",), ("CONFIG", "GET", *SETTINGS), ("CLUSTER", "SHARDS"))
    async with asyncio.timeout(timeout_s):
        connection = await open_connection(address, access, timeout_s)
        try:
            began = time.time()
            (now,) = await connection.exchange(packed_words(*questions[0]), 1)
            ended = time.time()
            asked = b"".join(packed_words(*words) for words in questions[1:])
            settings, shards = await connection.exchange(asked, len(questions) - 1)
        finally:
            connection.close()
    if isinstance(now, hiredis.ReplyError):
        raise now
    ahead_s = int(now[0]) + int(now[1]) / 1e6 - (began + ended) / 2
    named = {} if isinstance(settings, hiredis.ReplyError) else _dict(settings)
    return NodeFacts(
        ahead_s,
        (ended - began) / 2,
        dict(connection.info),
        {name.decode(): value.decode() for name, value in named.items()},
        () if isinstance(shards, hiredis.ReplyError) else read_shards(shards, address, access.tls is not None),
    )


ASKED_AT_ONCE = 3
"""How many nodes are asked for the map: enough for a majority, few enough for a thousand replicas."""

ASK_LIMIT_S = 1.0
"""For one node's answer. It normally takes milliseconds."""

FIRST_CONNECT_S = 2.0
"""For the first connections, to all nodes side by side: a busy machine may be slow, but a node that hangs should not delay
a start for long."""

FIRST_GAP_S, LONGEST_GAP_S, LONGER = 0.1, 1.0, 1.1
"""Between two refreshes, and how many times longer each is than the one before while nothing changes. Three seconds later,
when most failovers end, it is 0.4 s."""


class Cluster(Servers):
    """The masters of a cluster. `where`: the cluster as it is shown in messages."""

    def __init__(self, url: RedisUrl, limits: TimeLimits, where: str, on_round_trip: OnRoundTrip) -> None:
        super().__init__(url, limits, where, on_round_trip)
        self._by_slot: list[RedisServer | None] = [None] * SLOTS
        self._map: SlotMap = ()
        self._moves = 0  # changes of `_by_slot`
        self._hints: list[Address] = []  # nodes that others have named since the last refresh
        self._refreshing: asyncio.Task[None] | None = None
        self._probes: set[asyncio.Task[None]] = set()
        self._wanted = asyncio.Event()
        self._time_key = ""

    def __repr__(self) -> str:
        return f"<Cluster {self.where} nodes={len(self.members)}>"

    async def start(self) -> None:
        """Ask for the map and connect to the masters. Raises RedisAway or RedisMisused if no node answers."""
        await self._refresh()
        self._refreshing = asyncio.create_task(self._keep_fresh())
        if all(server.is_away for server in self.members.values()):
            raise RedisAway(f"Redis at {self.where} cannot serve now: no master can be reached", self.where)

    def runs(self) -> Hashable:
        return (self._moves, *(server.run_id for server in self.members.values()))

    def keep_time_by(self, key: str) -> None:
        self._time_key = key

    def server_of(self, key: str) -> RedisServer:
        """The node that serves `key`, for "" the one that tells the time. Raises RedisAway if nobody does."""
        server = self._by_slot[slot_of(key)] if key else self._time_server()
        if server is None:
            self.refresh_soon()
            raise RedisAway(f"Redis at {self.where} cannot serve now: no node has the slot of {key!r}", UNSERVED)
        return server

    def _time_server(self) -> RedisServer | None:
        if self._time_key:
            return self._by_slot[slot_of(self._time_key)]
        return min(self.members.values(), key=lambda server: (server.is_away, server.name), default=None)

    def refresh_soon(self) -> None:
        """Have the map refreshed in the background."""
        self._wanted.set()

    async def follow(self, error: str, server: RedisServer) -> RedisServer:
        """The node that a MOVED or ASK reply of `server` names. Raises RedisAway unless `server` is still a master:
        slots that move to another node take everything with them, but a failover may have lost something, so the sender
        must see the new node's run first."""
        asked = next((address for address, one in self.members.items() if one is server), self.url.hosts[0])
        word, slot, endpoint = error.split()[:3]
        host, _, port = endpoint.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        address = self.url.reach(Address(_host(host.encode(), asked), int(port)))
        info: dict[str, str] = {}
        if word == "MOVED":
            self._hints.append(address)
            self.refresh_soon()
            info = fields((await server.begin(packed_words("INFO", "replication"), 1, None))[0])
        target = self.members.get(address) or self._add(address)
        if not target.run_id:
            await target.connect(self.limits.probe_s)
        if word == "MOVED":
            self._by_slot[int(slot)] = target
            self._moves += 1
        if info.get("role", "master") != "master":
            raise RedisAway(f"Redis at {server.name} cannot serve now: {target.name} has taken over", server.name)
        return target

    def _add(self, address: Address) -> RedisServer:
        async def find() -> Address:
            return address

        server = self.members[address] = RedisServer(
            address.name, find, self.url.access, self.limits, self.on_round_trip, self.refresh_soon
        )
        return server

    async def _keep_fresh(self) -> None:
        gap_s = FIRST_GAP_S
        while True:
            if not any(server.is_away for server in self.members.values()):
                await self._wanted.wait()
            self._wanted.clear()
            before = self._map
            # Nobody answers, or all refuse: the calls report it.
            with contextlib.suppress(FrontierError):
                await self._refresh()
            for server in filter(attrgetter("is_away"), self.members.values()):
                # In the background, so that it is found again even if nobody calls it.
                probe = asyncio.create_task(self._probe(server))
                self._probes.add(probe)
                probe.add_done_callback(self._probes.discard)
            gap_s = FIRST_GAP_S if self._map != before else min(gap_s * LONGER, LONGEST_GAP_S)
            if not any(server.is_away for server in self.members.values()):
                gap_s = FIRST_GAP_S
            await asyncio.sleep(gap_s)

    async def _probe(self, server: RedisServer) -> None:
        with contextlib.suppress(FrontierError):  # it is still away, which the server remembers
            await server.connect(self.limits.probe_s)

    async def _refresh(self) -> None:
        """Ask for the map once. Raises RedisAway or RedisMisused if nobody answers."""
        healthy = [address for address, server in self.members.items() if not server.is_away]
        replicas = [address for one in self._map for address in one.replicas]
        known = list(dict.fromkeys([*healthy, *replicas]))
        first = list(dict.fromkeys([*self._hints, *random.sample(known, min(ASKED_AT_ONCE, len(known)))]))[
            :ASKED_AT_ONCE
        ]
        hinted = set(self._hints)
        self._hints.clear()
        rest = [address for address in dict.fromkeys([*known, *self.url.hosts, *self.members]) if address not in first]
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
        error: FrontierError = RedisAway(f"Redis at {self.where} cannot serve now: no node is known", self.where)
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
        return ASK_LIMIT_S if self._map else self.limits.connect_s

    async def _ask(self, address: Address) -> SlotMap:
        try:
            reply = await ask(address, self.url.access, packed_words("CLUSTER", "SLOTS"), self._ask_limit_s)
            found = read_slots(reply, address, self.url)
        except (OSError, hiredis.HiredisError) as error:
            raise translate(error, address.name) from error
        if not found:
            raise RedisAway(f"Redis at {address.name} cannot serve now: it knows of no slots", address.name)
        return found

    async def _take_up(self, found: SlotMap, hinted: set[Address]) -> None:
        """Use the map `found`. New nodes are connected to first. Calls may be on their way to nodes that are `hinted`, even
        if those who were asked have not heard of their slots yet."""
        masters = {one.master for one in found}
        servers = {address: self.members.get(address) or self._add(address) for address in masters}
        unknown = [server for server in servers.values() if not server.run_id and not server.is_away]
        if unknown:
            limit_s = self.limits.probe_s if self._map else FIRST_CONNECT_S
            await asyncio.gather(*(server.connect(limit_s) for server in unknown), return_exceptions=True)
        by_slot: list[RedisServer | None] = [None] * SLOTS
        for one in found:
            by_slot[one.first : one.last + 1] = [servers[one.master]] * (one.last + 1 - one.first)
        if by_slot != self._by_slot:
            self._by_slot = by_slot
            self._moves += 1
        self._map = found
        for address in self.members.keys() - masters - hinted - set(self._hints):
            self.members.pop(address).retire()

    async def node_facts(self) -> dict[str, NodeFacts | FrontierError]:
        """What each node says about itself, replicas and failed nodes included, or its error, by name."""
        facts: dict[Address, NodeFacts | FrontierError] = {}
        unasked = {address for one in self._map for address in (one.master, *one.replicas)}
        while unasked:
            facts |= zip(unasked, await asyncio.gather(*map(self._facts, unasked)), strict=True)
            named = {node for one in facts.values() if isinstance(one, NodeFacts) for node in one.nodes}
            unasked = {self.url.reach(node) for node in named} - facts.keys()
        return {node.name: facts[node] for node in sorted(facts)}

    async def silent_hosts(self) -> dict[str, FrontierError]:
        """The nodes in the URL that do not answer, with their errors."""
        found = await asyncio.gather(*map(self._facts, self.url.hosts))
        facts = zip(self.url.hosts, found, strict=True)
        return {address.name: error for address, error in facts if isinstance(error, FrontierError)}

    async def _facts(self, address: Address) -> NodeFacts | FrontierError:
        try:
            return await read_facts(address, self.url.access, self.limits.reply_s)
        except (OSError, hiredis.HiredisError, TimeoutError) as error:
            return translate(error, address.name)
        except FrontierError as error:
            return error

    async def close(self) -> None:
        tasks = [*self._probes, *([self._refreshing] if self._refreshing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self.members.values():
            server.close()
