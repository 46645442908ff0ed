"""The nodes of a Redis Cluster: who serves which slot, asked anew whenever something suggests a change.

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
from collections.abc import Callable, Collection

import hiredis

from frontier.calls import packed_words
from frontier.connection import ask, fields
from frontier.errors import FrontierError, RedisAway
from frontier.lane import Lane, LaneWatcher, TimeLimits
from frontier.redis_errors import translate
from frontier.redis_url import Address, RedisUrl
from frontier.slot_map import SLOTS, SlotMap, read_redirect, read_slots, slot_of

ASKED_AT_ONCE = 3
"""How many nodes are asked for the map: enough for a majority, few enough for a thousand replicas."""

ASK_LIMIT_S = 1.0
"""For one node's answer. It normally takes milliseconds."""

LAGGARD_S = 0.25
"""How long to wait for the others after the first answer."""

FIRST_GAP_S, LONGEST_GAP_S = 0.1, 1.0
"""Between two refreshes, doubled while nothing changes."""


class Cluster(LaneWatcher):
    """The lanes of a cluster's masters. `where`: the cluster as it is shown in messages."""

    def __init__(
        self, url: RedisUrl, limits: TimeLimits, where: str, on_round_trip: Callable[[float, bool], None]
    ) -> None:
        self._url = url
        self._limits = limits
        self._where = where
        self._on_round_trip = on_round_trip
        self._lanes: dict[Address, Lane] = {}
        self._by_slot: list[Lane | None] = [None] * SLOTS
        self._map: SlotMap = ()
        self._hints: list[Address] = []  # nodes that others have named since the last refresh
        self._refreshing: asyncio.Task[None] | None = None
        self._probes: set[asyncio.Task[None]] = set()
        self._wanted = asyncio.Event()
        self._time_key = ""

    def __repr__(self) -> str:
        return f"<Cluster {self._where} nodes={len(self._lanes)}>"

    def round_trip(self, seconds: float, failed: bool) -> None:
        self._on_round_trip(seconds, failed)

    def lane_is_silent(self, lane: Lane) -> None:
        self.refresh_soon()

    async def start(self) -> None:
        """Ask for the map and connect to the masters. Raises RedisAway or RedisMisused if no node answers."""
        await self._refresh()
        self._refreshing = asyncio.create_task(self._keep_fresh())
        if all(lane.is_away for lane in self._lanes.values()):
            raise RedisAway(f"Redis at {self._where} cannot serve now: no master can be reached", self._where)

    def lane_named(self, name: str) -> Lane | None:
        return next((lane for lane in self.lanes if lane.name == name), None)

    @property
    def lanes(self) -> Collection[Lane]:
        """Of all nodes that serve slots."""
        return self._lanes.values()

    def keep_time_by(self, key: str) -> None:
        self._time_key = key

    def lane_of(self, key: str) -> Lane:
        """The lane of the node that serves `key`. "" is the node that tells the time. Raises RedisAway if nobody serves
        it."""
        lane = self._by_slot[slot_of(key)] if key else self._time_lane()
        if lane is None:
            self.refresh_soon()
            raise RedisAway(f"Redis at {self._where} cannot serve now: no node has the slot of {key!r}", self._where)
        return lane

    def _time_lane(self) -> Lane | None:
        if self._time_key:
            return self._by_slot[slot_of(self._time_key)]
        return min(self.lanes, key=lambda lane: (lane.is_away, lane.name), default=None)

    def refresh_soon(self) -> None:
        """Have the map refreshed in the background."""
        self._wanted.set()

    async def follow(self, error: str, lane: Lane) -> Lane:
        """The lane of the node that a MOVED or ASK reply of `lane` names. Raises RedisAway unless `lane` is still a master:
        slots that move to another node take everything with them, but a failover may have lost something, so the sender
        must see the new node's run first."""
        asked = next(address for address, one in self._lanes.items() if one is lane) if lane in self.lanes else None
        slot, address = read_redirect(error, asked or self._url.hosts[0], self._url.reachable)
        is_moved = error.startswith("MOVED")
        if is_moved:
            self._hints.append(address)
            self.refresh_soon()
        info = await self._info(lane) if is_moved else {}
        target = self._lanes.get(address) or self._add(address)
        if not target.run_id:
            await target.connect(self._limits.probe_s)
        if is_moved:
            self._by_slot[slot] = target
        if info.get("role", "master") != "master":
            raise RedisAway(f"Redis at {lane.name} cannot serve now: {target.name} has taken over", lane.name)
        return target

    async def _info(self, lane: Lane) -> dict[str, str]:
        (reply,) = await lane.begin(packed_words("INFO", "replication"), 1, None)
        return fields(reply)

    def _add(self, address: Address) -> Lane:
        async def find() -> Address:
            return address

        lane = self._lanes[address] = Lane(address.name, find, self._url.access, self._limits, self)
        return lane

    async def _keep_fresh(self) -> None:
        """Refresh the map whenever that was wanted, and while a node that serves slots is away."""
        gap_s = FIRST_GAP_S
        while True:
            if not any(lane.is_away for lane in self.lanes):
                await self._wanted.wait()
            self._wanted.clear()
            before = self._map
            # Nobody answers, or all refuse: the calls report it.
            with contextlib.suppress(FrontierError):
                await self._refresh()
            for lane in self.lanes:
                self._probe(lane)
            gap_s = FIRST_GAP_S if self._map != before else min(gap_s * 2, LONGEST_GAP_S)
            if not any(lane.is_away for lane in self.lanes):
                gap_s = FIRST_GAP_S
            await asyncio.sleep(gap_s)

    def _probe(self, lane: Lane) -> None:
        """Try a node that is away in the background, so that it is found again even if nobody calls it."""
        if lane.is_away:
            probe = asyncio.create_task(lane.connect(self._limits.probe_s))
            self._probes.add(probe)
            probe.add_done_callback(self._probed)

    def _probed(self, probe: asyncio.Task[None]) -> None:
        self._probes.discard(probe)
        if not probe.cancelled():
            probe.exception()  # it is still away, which the lane remembers

    async def _refresh(self) -> None:
        """Ask for the map once. Raises RedisAway or RedisMisused if nobody answers."""
        healthy = [address for address, lane in self._lanes.items() if not lane.is_away]
        replicas = [address for one in self._map for address in one.replicas]
        known = list(dict.fromkeys([*healthy, *replicas]))
        first = list(dict.fromkeys([*self._hints, *random.sample(known, min(ASKED_AT_ONCE, len(known)))]))[
            :ASKED_AT_ONCE
        ]
        hinted = set(self._hints)
        self._hints.clear()
        rest = [address for address in dict.fromkeys([*known, *self._url.hosts, *self._lanes]) if address not in first]
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
        pending, limit_s = asking, ASK_LIMIT_S + LAGGARD_S
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

    async def _ask(self, address: Address) -> SlotMap:
        try:
            reply = await ask(address, self._url.access, packed_words("CLUSTER", "SLOTS"), ASK_LIMIT_S)
            found = read_slots(reply, address, self._url.reachable)
        except (OSError, hiredis.HiredisError, TimeoutError) as error:
            raise translate(error, address.name) from error
        if not found:
            raise RedisAway(f"Redis at {address.name} cannot serve now: it knows of no slots", address.name)
        return found

    async def _take_up(self, found: SlotMap, hinted: set[Address]) -> None:
        """Use the map `found`. New nodes are connected to first. Calls may be on their way to nodes that are `hinted`, even
        if those who were asked have not heard of their slots yet."""
        masters = {one.master for one in found}
        lanes = {address: self._lanes.get(address) or self._add(address) for address in masters}
        unknown = [lane for lane in lanes.values() if not lane.run_id and not lane.is_away]
        if unknown:
            await asyncio.gather(*(lane.connect(self._limits.probe_s) for lane in unknown), return_exceptions=True)
        by_slot: list[Lane | None] = [None] * SLOTS
        for one in found:
            by_slot[one.first : one.last + 1] = [lanes[one.master]] * (one.last + 1 - one.first)
        self._by_slot, self._map = by_slot, found
        for address in self._lanes.keys() - masters - hinted - set(self._hints):
            self._lanes.pop(address).retire()

    async def close(self) -> None:
        """Close all connections."""
        tasks = [*self._probes, *([self._refreshing] if self._refreshing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lane in self.lanes:
            lane.close()
