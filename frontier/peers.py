"""The peer loop: each replica learns its ``(index, replicas)`` without a coordinator.

Time is cut into epochs of one interval by the Redis server's clock. In each epoch every replica claims an index; the
claims of the epoch before, closed by then, are the roster in effect. The index of a replica is the rank of its claim
in that roster, so indices run 1..replicas without holes. A replica that stops claiming is gone from the view one
epoch later; there is nobody to elect and nothing to fail over.

Two rules make all views of an epoch equal. A claim for an epoch that has been followed by another is counted for the
open one (`lua/claim.lua`), so a roster that anybody has read never changes. And each replica claims at a constant
random moment within the first half of the interval, which keeps the order of claims, and so the indices, steady.

It serves any job that wants to share work by number, or `shards` by the ring (`PeerSettings`)::

    peers = PeerLoop(store, "mailer", clock=SystemClock(), settings=PeerSettings(interval_s=5))
    async for view in peers.views():
        mine = [task for task in tasks if view.owns(task)]
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import AsyncIterator, Callable

import msgspec
from xxhash import xxh3_64_intdigest

from frontier.clock import Clock, ServerClock
from frontier.errors import RedisAway, RedisMisused
from frontier.owners import OwnerTable
from frontier.scripts import CLAIM, LEAVE, SAVE_OWNERS
from frontier.store import Store, run

KEPT_EPOCHS, KEPT_AT_LEAST_S = 3, 60
"""For how many intervals a roster is kept: the open one, the one in effect, and one for a late reader; and for how many
seconds, since a call may reach a server that was busy long after its sender has given up, however short the interval."""


class Member(msgspec.Struct, frozen=True):
    """A replica in a roster. `index` runs from 1; `capacity` is its weight; `address` is where it serves its status."""

    replica: str
    index: int
    capacity: float = 1.0
    address: str = ""


class View(msgspec.Struct, frozen=True):
    """Who takes part in an epoch. Equal on all replicas, but for `me`, the replica that it was emitted to."""

    epoch: int
    roster: tuple[Member, ...]
    me: str
    owners: tuple[str, ...] = ()
    """The replica that owns each shard; empty if nobody is in the roster, or there are no shards to share."""

    @property
    def replicas(self) -> int:
        return len(self.roster)

    @property
    def index(self) -> int:
        """My number, from 1 to `replicas`; 0 when I am not in the roster (new, or too late in the last epoch)."""
        return next((member.index for member in self.roster if member.replica == self.me), 0)

    def owns(self, task_id: str) -> bool:
        """Whether `task_id` is mine when tasks are shared out by plain modulo. Always False with index 0."""
        index = self.index
        return index > 0 and xxh3_64_intdigest(task_id.encode()) % self.replicas == index - 1

    @property
    def checksum(self) -> int:
        """32 bits that are equal on all replicas if and only if (nearly surely) their views are."""
        roster = ",".join(f"{m.replica}={m.index}/{m.capacity}" for m in self.roster)
        text = f"{self.epoch}:{roster}:{','.join(self.owners)}"
        return xxh3_64_intdigest(text.encode()) & 0xFFFFFFFF


class PeerSettings(msgspec.Struct, frozen=True):
    """`interval_s`: seconds between two claims; a dead replica is out of the view after one to two of them. `shards`: how
    many shards the views share out, the same for all replicas; 0 for none."""

    interval_s: float = 5.0
    capacity: float = 1.0
    address: str = ""
    shards: int = 0


def new_replica_id(name: str) -> str:
    """An id for a replica called `name` (host, pod). The random part makes a restarted replica a new one."""
    return f"{name}-{secrets.token_hex(4)}"


def epoch_of(now_ms: int, interval_s: float) -> int:
    """The ordinal number of the interval that `now_ms` falls into."""
    return math.ceil(now_ms / (interval_s * 1000))


class PeerLoop:
    """One replica's part in the peer loop of `name` (a Redis key that ends in the loop's name)."""

    def __init__(
        self,
        store: Store,
        key: str,
        clock: Clock,
        settings: PeerSettings,
        replica: str | None = None,
        rng: random.Random | None = None,
    ) -> None:
        rng = rng or random.Random()
        self.replica = replica or new_replica_id("replica")
        self.settings = settings
        self.server_clock = ServerClock(clock, store.time_ms)
        self._store = store
        self._key = key
        self._clock = clock
        self._rng = rng
        self._skew_s = rng.random() * settings.interval_s / 2
        self._leaving = False
        self._table = OwnerTable(settings.shards)

    def advertise(self, address: str) -> None:
        """Claims from now on name `address` as where this replica is found."""
        self.settings = msgspec.structs.replace(self.settings, address=address)

    def __repr__(self) -> str:
        return f"<PeerLoop {self._key} replica={self.replica} every {self.settings.interval_s:g}s>"

    async def tick(self) -> View:
        """Claim an index in the current epoch and return the view in effect. Raises RedisAway."""
        await self.server_clock.refresh()
        epoch = epoch_of(self.server_clock.now_ms(), self.settings.interval_s)
        ttl_ms = int(max(KEPT_EPOCHS * self.settings.interval_s, KEPT_AT_LEAST_S) * 1000)
        mine = (self.replica, self.settings.capacity, self.settings.address or "-")
        (reply,) = await self._store.send([run(CLAIM, [self._key], epoch, *mine, self._table.version, ttl_ms)])
        _, claimed_epoch, _, version, table, *fields = reply
        roster = parse_roster(fields)
        self._table.read(version.decode(), table)
        if self._table.update({member.replica: member.capacity for member in roster}):
            # Before anybody acts on it, so that the next change starts from it. Refused if the epoch is over: then its
            # successor starts from the same table as we did.
            kept = (claimed_epoch, self._table.version, self._table.encoded())
            await self._store.send([run(SAVE_OWNERS, [self._key], *kept)])
        return View(int(claimed_epoch), roster, self.replica, self._table.owners if roster else ())

    async def views(self, on_away: Callable[[Exception], None] | None = None) -> AsyncIterator[View]:
        """A view at once and then one each interval, until `leave` is called.

        While Redis is away nothing is emitted: `on_away` is told each error, and the loop goes on by itself.
        """
        while not self._leaving:
            try:
                yield await self.tick()
                wait_s = self.until_next_tick_s()
            except (RedisAway, RedisMisused) as error:
                if on_away is not None:
                    on_away(error)
                wait_s = self.settings.interval_s * self._rng.uniform(0.25, 0.75)
            await self._clock.sleep(wait_s)

    def until_next_tick_s(self) -> float:
        """Seconds until this replica's moment in the next epoch."""
        interval_ms = self.settings.interval_s * 1000
        now_ms = self.server_clock.now_ms()
        epoch_end_ms = epoch_of(now_ms, self.settings.interval_s) * interval_ms
        return (epoch_end_ms + self._skew_s * 1000 - now_ms) / 1000 + 0.001

    async def leave(self) -> None:
        """Take this replica out of the epoch still open: the next view is without it. Raises RedisAway."""
        self._leaving = True
        await self._store.send([run(LEAVE, [self._key], self.replica)])


def parse_roster(fields: list[bytes]) -> tuple[Member, ...]:
    """The roster from a flat reply of replica, "index capacity address", ...; ranks replace the claimed indices."""
    claims = []
    for replica, claim in zip(fields[::2], fields[1::2], strict=True):
        index, capacity, address = claim.decode().split(" ", 2)
        claims.append((int(index), replica.decode(), float(capacity), "" if address == "-" else address))
    claims.sort()
    return tuple(
        Member(replica, rank, capacity, address) for rank, (_, replica, capacity, address) in enumerate(claims, start=1)
    )
