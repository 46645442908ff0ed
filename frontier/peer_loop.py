"""The peer loop: each replica learns its ``(index, replicas)`` without a coordinator.

Crawl time (`frontier.crawl_time`) is divided into epochs of one interval. In each epoch every replica claims its place.
The claims of the previous epoch, which is closed by then, are the roster in effect. A replica gets a number with its first
claim and keeps it. Its index is the rank of its number in the roster, so indices run from 1 to `replicas` without gaps, and
change only for those that came after a replica that left. If nobody was left, because the loop begins or all have left it,
the roster consists of the replica that opens the epoch. A replica that stops claiming is missing from the view one epoch
later. There is no election and no failover.

All views of an epoch are equal, because a claim for an epoch that is already closed counts for the open one
(`lua/claim.lua`), so a roster that any replica has read never changes. Each replica claims at a constant random moment of
the first part of the interval (`CLAIMING`), so that not all claim at once.

Any program can use it to divide tasks by number, or to assign `shards` by the ring (`PeerSettings`)::

    peers = PeerLoop(store, "{mailer}:peers", clock=SystemClock(), settings=PeerSettings(interval_s=5))
    async for view in peers.views():
        mine = [task for task in tasks if view.owns(task)]
"""

from __future__ import annotations

import json
import math
import random
import secrets
from collections.abc import AsyncIterator, Callable

import msgspec
from xxhash import xxh3_64_intdigest

from frontier.clock import Clock
from frontier.crawl_time import CrawlTime
from frontier.errors import RedisAway, RedisMisused
from frontier.owners import OwnerTable
from frontier.scripts import CLAIM, LEAVE, SAVE_OWNERS
from frontier.store import Store, command, script_call

RUNS_EPOCHS, RUNS_AT_LEAST_S = 3, 60
"""Replicas count as running (`running_ms`) between two claims that are at most so many intervals and seconds apart."""

CLAIMING = 1 / 8
"""The part of an interval in which all replicas claim. Two intervals and this part of a third after a death, no view
contains the dead replica."""

LOOKS = 8
"""How often in an interval a replica that does not know the time looks for an answer to its question."""


class Member(msgspec.Struct, frozen=True):
    """A replica in a roster. `index` starts at 1; `capacity`: its weight; `address`: where it serves its status."""

    replica: str
    index: int
    capacity: float = 1.0
    address: str = ""


class View(msgspec.Struct, frozen=True):
    """The replicas that take part in an epoch. Equal on all replicas, except for `me`, the replica that received it."""

    epoch: int
    roster: tuple[Member, ...]
    me: str
    owners: tuple[str, ...] = ()
    """The replica that owns each shard. Empty if the roster is empty or there are no shards."""

    @property
    def replicas(self) -> int:
        return len(self.roster)

    @property
    def index(self) -> int:
        """The rank of `me` in the roster, from 1 to `replicas`; 0 if it is not in it (new, or late in the last epoch)."""
        return next((member.index for member in self.roster if member.replica == self.me), 0)

    def owns(self, task_id: str) -> bool:
        """Whether `me` owns `task_id` when tasks are divided by hash modulo `replicas`; `owners` is about shards only.
        Always False with index 0."""
        index = self.index
        return index > 0 and xxh3_64_intdigest(task_id.encode()) % self.replicas == index - 1

    @property
    def checksum(self) -> int:
        """A 32-bit hash of the view. It is equal on two replicas if and only if (almost certainly) their views are."""
        roster = ",".join(f"{m.replica}={m.index}/{m.capacity}" for m in self.roster)
        text = f"{self.epoch}:{roster}:{','.join(self.owners)}"
        return xxh3_64_intdigest(text.encode()) & 0xFFFFFFFF


class PeerSettings(msgspec.Struct, frozen=True):
    """`interval_s`: seconds between two claims; a dead replica leaves all views after one to two intervals and an eighth.
    `shards`: number of shards that views assign, the same for all replicas; 0 for none. `table`: names the table of their
    owners, if replicas may assign other shards under the same key."""

    interval_s: float = 5.0
    capacity: float = 1.0
    address: str = ""
    shards: int = 0
    table: str = ""


def owners_fields(table: str) -> tuple[str, str]:
    """The fields of the key `owners` with this table."""
    return f"version{table}", f"table{table}"


def new_replica_id(name: str) -> str:
    """An id for a replica called `name` (host, pod). It has a random part, so that a restarted replica has a new id."""
    return f"{name}-{secrets.token_hex(4)}"


def epoch_of(now_ms: int, interval_s: float) -> int:
    """The number of the interval that contains `now_ms`."""
    return math.ceil(now_ms / (interval_s * 1000))


class PeerLoop:
    """One replica's part in a peer loop. `key`: a Redis key that ends in the name of the loop."""

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
        self.time = CrawlTime(store, key, clock, self.replica, settings.interval_s)
        self.server_clock = self.time.server_clock
        self._store = store
        self._key = key
        self._clock = clock
        self._rng = rng
        self._skew_s = rng.random() * settings.interval_s * CLAIMING
        self._leaving = False
        self._working = True
        self._table = OwnerTable(settings.shards)
        self._claimed_epoch = 0
        self._number = 0  # from the first claim
        self._roster: tuple[Member, ...] = ()
        self._roster_version = ""

    def continue_time(self, time: CrawlTime) -> None:
        """Use `time` of an earlier loop of this process under the same key, which has ended. Otherwise, if all replicas are
        replaced at once, none knows the time, and they wait for some intervals."""
        self.time, self.server_clock = time, time.server_clock

    def advertise(self, address: str) -> None:
        """Publish `address` as the address of this replica in all later claims."""
        self.settings = msgspec.structs.replace(self.settings, address=address)

    def set_paused(self, paused: bool) -> None:
        """While `paused`, the time does not count as running time (`running_ms`)."""
        self._working = not paused

    def __repr__(self) -> str:
        return f"<PeerLoop {self._key} replica={self.replica} every {self.settings.interval_s:g}s>"

    async def tick(self) -> View:
        """Claim a place in the current epoch and return the view in effect. A replica that does not know crawl time yet
        (`time.is_known`) claims in the open epoch. Raises RedisAway."""
        while not await self._share_out(await self._claim()):
            pass  # the table changed between the two calls
        return View(self._claimed_epoch, self._roster, self.replica, self._table.owners if self._roster else ())

    async def _claim(self) -> str:
        """Claim, and read the roster in effect. Returns the version of the table of owners that Redis has."""
        now_ms = self.server_clock.now_ms() if await self.time.check(self._claimed_epoch) else 0
        epoch = epoch_of(now_ms, self.settings.interval_s)
        runs_ms = int(max(RUNS_EPOCHS * self.settings.interval_s, RUNS_AT_LEAST_S) * 1000)
        mine = (self.replica, self.settings.capacity, self.settings.address or "-", self._number)
        time = (now_ms, int(self._working), runs_ms, self.settings.table)
        (reply,) = await self._store.send([script_call(CLAIM, [self._key], epoch, *mine, self._roster_version, *time)])
        _, claimed_epoch, number, table_version, roster_version, roster = reply
        self._claimed_epoch, self._number = int(claimed_epoch), int(number)
        if roster_version.decode() != self._roster_version:
            self._roster_version, self._roster = roster_version.decode(), parse_roster(roster)
        return str(table_version.decode())

    async def _share_out(self, stored: str) -> bool:
        """Assign the shards to the roster, starting from the table whose version is `stored`. False if Redis no longer has
        that table. A replica that has the table that `stored` was computed from does not read it, but computes it."""
        capacities = {member.replica: member.capacity for member in self._roster}
        before = self._table.version
        has_changed = self._table.update(capacities)
        if stored not in (before, self._table.version):
            fields = owners_fields(self.settings.table)
            version, table = (await self._store.send([command("HMGET", f"{self._key}:owners", *fields)]))[0]
            if (version or b"").decode() != stored:
                return False
            self._table.read(stored, table or b"")
            has_changed = self._table.update(capacities)
        if has_changed and self._table.version != stored:
            # Saved before any replica acts on it, so that the next change starts from it. If the epoch is over, Redis
            # refuses the table, and the next epoch starts from the same table as this one did.
            kept = (self._claimed_epoch, self._table.version, self._table.encoded(), self.settings.table)
            await self._store.send([script_call(SAVE_OWNERS, [self._key], *kept)])
        return True

    async def views(self, on_away: Callable[[Exception], None] | None = None) -> AsyncIterator[View]:
        """Yield a view as soon as crawl time is known, and then one per interval until `leave` is called.

        While Redis is away, no view is yielded. `on_away` is called with each error, and the loop retries by itself.
        """
        while not self._leaving:
            try:
                view = await self.tick()
                if self.time.is_known:
                    yield view
                    wait_s = self.until_next_tick_s()
                else:
                    wait_s = self.settings.interval_s / LOOKS
            except (RedisAway, RedisMisused) as error:
                if on_away is not None:
                    on_away(error)
                wait_s = self.settings.interval_s * self._rng.uniform(0.25, 0.75)
            await self._clock.sleep(wait_s)

    def until_next_tick_s(self) -> float:
        """Seconds until this replica claims in the next epoch."""
        now_ms, interval_s = self.server_clock.now_ms(), self.settings.interval_s
        return epoch_of(now_ms, interval_s) * interval_s + self._skew_s + 0.001 - now_ms / 1000

    async def leave(self) -> None:
        """Remove this replica from the open epoch, so that the next view no longer includes it. Raises RedisAway."""
        self._leaving = True
        now_ms = self.server_clock.now_ms() if self.time.is_known else 0
        await self._store.send([script_call(LEAVE, [self._key], self.replica, now_ms)])


async def running_ms(store: Store, key: str, until_ms: int) -> int:
    """For how long, up to `until_ms`, replicas of the loop `key` have worked: without the time in which none ran, or all
    were paused. If the last replica crashes, up to an interval is missing. Raises RedisAway."""
    (reply,) = await store.send([command("HMGET", f"{key}:running", "total_ms", "last_ms")])
    total_ms, last_ms = int(reply[0] or 0), int(reply[1] or 0)
    return total_ms + (max(0, until_ms - last_ms) if last_ms else 0)


def parse_roster(members: bytes) -> tuple[Member, ...]:
    """The roster in a JSON list: replica, "number capacity address", ... An index is the rank of a number."""
    fields = json.loads(members)
    claims = []
    for replica, claim in zip(fields[::2], fields[1::2], strict=True):
        number, capacity, address = claim.split(" ", 2)
        claims.append((int(number), replica, float(capacity), "" if address == "-" else address))
    claims.sort()
    return tuple(
        Member(replica, rank, capacity, address) for rank, (_, replica, capacity, address) in enumerate(claims, start=1)
    )
