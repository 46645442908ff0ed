"""The servers of a Redis Cluster: which one serves which hash slot, asked anew whenever something suggests a change.

The map of slots is asked for when a node redirects us, breaks or goes silent, and then again and again while a node that
serves slots is away. Several nodes are asked at once, and what most of them say counts: one that hangs holds nothing
up, and one that has missed a failover decides nothing. New nodes are connected to before they serve, so that
their run ID is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Collection, Hashable

import hiredis

from frontier.calls import packed_words
from frontier.errors import FrontierError, RedisAway
from frontier.node_facts import NodeFacts, read_facts
from frontier.redis_connection import ask, fields
from frontier.redis_errors import translate
from frontier.redis_server import RedisServer, ServerWatcher, TimeLimits
from frontier.redis_url import Address, RedisUrl
from frontier.slot_map import SLOTS, UNSERVED, SlotMap, read_redirect, read_slots, slot_of, translated

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
