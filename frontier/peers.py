"""Replicas divide the work without a coordinator: the peer loop, the ring, and what belongs to them.

**The peer loop** gives each replica its ``(index, replicas)``. Crawl time (`frontier.clock`) is divided into epochs of one
interval. In each epoch every replica claims its place. The claims of the previous epoch, which is closed by then, are the
roster in effect. A replica gets a number with its first claim and keeps it. Its index is the rank of its number in the
roster, so indices run from 1 to `replicas` without gaps, and change only for those that came after a replica that left. If
nobody was left, because the loop begins or all have left it, the roster consists of the replica that opens the epoch. A
replica that stops claiming is missing from the view one epoch later. There is no election and no failover.

All views of an epoch are equal, because a claim for an epoch that is already closed counts for the open one
(`lua/claim.lua`), so a roster that any replica has read never changes. Each replica claims at a constant random moment of
the first part of the interval (`CLAIMING`), so that not all claim at once.

Any program can use it to divide tasks by number, or to assign `shards` by the ring (`PeerSettings`)::

    peers = PeerLoop(store, "{mailer}:peers", clock=SystemClock(), settings=PeerSettings(interval_s=5))
    async for view in peers.views():
        mine = [task for task in tasks if view.owns(task)]

**The ring** (`assign`) is consistent hashing with the previous assignment as input, a pure function. Each replica gets its
fair share, rounded down or up. A shard stays with its owner unless the owner is gone or has more than its share. The free
shards are then assigned along uhashring's ring, each to the next replica that has less than its share (after Mirrokni,
Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2018, with the bound at the share itself). So only the
shards of a replica that leaves move, and only the share of one that joins. No method that keeps all loads within one shard
of the fair shares moves fewer. The protocol relies on two properties:

- The result depends neither on the order of the roster nor on the machine.
- Assigning again changes nothing: `assign(roster, shards, assign(roster, shards, before))` equals the inner result. So a
  replica may start from the table before a change, or from the table that another replica computed from it.

The previous assignment is needed: with even loads, no function of the roster alone moves few shards. By Ramsey's theorem,
among enough possible ids there are rosters of which the function sees only the order, and a leave from such a roster moves
more than a fifth of all shards on average. The best such function that we found moved 1.2 times the ideal with 32 shards
per replica, and 2 to 4 times where the limit, a whole number, steps.

During a rolling deployment, replicas of two versions must agree on the owners. Both start from the same table, so they can
differ only in where free shards go. The golden test checks this.

**The table of owners** is stored in Redis from one epoch to the next. In each epoch, the first replica that finds a changed
roster computes the new owners and saves them (`lua/save_owners.lua`), which is refused once the epoch is over. All views of
an epoch are still equal, whether a replica read the table before or after that, because assigning again changes nothing.
If a table is not saved, nothing is lost: in the next epoch all replicas start from the previous one. If Redis loses the
table, all shards are assigned again from scratch. Meanwhile the fence of each shard prevents two replicas from owning it.

**Health records** of replicas expire if these stop reporting (`Health`).
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import secrets
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from operator import itemgetter

import msgspec
from uhashring import HashRing
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from frontier.clock import Clock, CrawlTime, ServerClock
from frontier.errors import BadInput, RedisAway, RedisMisused, WritesRefused
from frontier.scripts import CLAIM, LEAVE, SAVE_OWNERS, command, script_call
from frontier.store import Store, count_in, ms_in, text_in

VIRTUAL_NODES = 150
"""Virtual nodes of a replica of mean capacity. They only spread the shards of a leaving replica over the others. The
shares are even with any number of them."""


class Handoff(msgspec.Struct, frozen=True):
    """The shards that a replica gains (`take`) and loses (`drop`) when the view changes."""

    take: frozenset[int]
    drop: frozenset[int]


def assign(roster: Mapping[str, float], shards: int, before: Sequence[str] = ()) -> tuple[str, ...]:
    """The owner of each shard: item `i` of the result is the replica id that owns shard `i`.

    `roster` maps replica ids to positive capacities; only their ratios count. `before` is an earlier result.
    Its replicas need not be in the roster any more. If it is empty, all shards are free. Raises `BadInput` for an empty
    roster or id, no shards, or a `before` of another length.
    """
    if shards < 1:
        raise BadInput(f"shards must be at least 1, not {shards}")
    if not roster or "" in roster:
        raise BadInput("the roster must not be empty, and its ids must not be empty; wait for a view that has replicas")
    if len(before) not in (0, shards):
        raise BadInput(f"`before` has {len(before)} shards, but there are {shards} now; the number of shards is fixed")
    room = _shares(roster, shards, Counter(before))
    owners = [""] * shards
    for shard, owner in enumerate(before):
        if room.get(owner):
            owners[shard] = owner
            room[owner] -= 1
    free = [shard for shard, owner in enumerate(owners) if not owner]
    if free:
        _give_out(free, owners, room, _ring(roster, room))
    return tuple(owners)


def plan_handoff(owned: frozenset[int], assignment: Sequence[str], me: str) -> Handoff:
    """The shards that replica `me` gains and loses when `assignment` replaces the one that `owned` came from."""
    mine = frozenset(shard for shard, owner in enumerate(assignment) if owner == me)
    return Handoff(take=mine - owned, drop=owned - mine)


def fair_shares(roster: Mapping[str, float], shards: int) -> dict[str, float]:
    """How many shards each replica would own if fractions of a shard were possible."""
    total = math.fsum(roster.values())
    return {name: shards * capacity / total for name, capacity in roster.items()}


def _shares(roster: Mapping[str, float], shards: int, held: Mapping[str, int]) -> dict[str, int]:
    """How many shards each replica is to own. The sum is `shards`.

    Fair shares are rounded down. The remaining shards go, one each, first to replicas that already hold more than that, so
    that no shard moves unnecessarily, and then to those that lost most by rounding.
    """
    fair = fair_shares(roster, shards)
    shares = {name: math.floor(share) for name, share in fair.items()}
    by_claim = sorted(roster, key=lambda name: (held.get(name, 0) <= shares[name], shares[name] - fair[name], name))
    for name in by_claim[: shards - sum(shares.values())]:
        shares[name] += 1
    return shares


def _give_out(free: Iterable[int], owners: list[str], room: dict[str, int], points: list[tuple[int, str]]) -> None:
    """Assign each shard of `free` to the next replica along the ring that has room, and reduce its room."""
    for shard in free:
        at = bisect_left(points, _hash(f"shard {shard}"), key=itemgetter(0))
        while not room[points[at % len(points)][1]]:
            at += 1
        owners[shard] = points[at % len(points)][1]
        room[owners[shard]] -= 1


def _ring(roster: Mapping[str, float], room: Mapping[str, int]) -> list[tuple[int, str]]:
    """The virtual nodes of the replicas that have room, as (position, replica) in ring order."""
    mean = math.fsum(roster.values()) / len(roster)
    nodes = {
        name: {"vnodes": max(1, round(VIRTUAL_NODES * roster[name] / mean))} for name in sorted(roster) if room[name]
    }
    points: list[tuple[int, str]] = HashRing(nodes, hash_fn=_hash).get_points()
    return points


def _hash(key: str) -> int:
    return int(xxh3_64_intdigest(key.encode()))


class OwnerTable:
    """One replica's copy of the table. `version`: hash of its content, or empty if there is none. `owners`: by shard."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._roster: Mapping[str, float] = {}
        self.version = ""
        self.owners: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<OwnerTable {self.version or '-'} shards={self._shards} replicas={len(self._roster)}>"

    def read(self, version: str, table: bytes) -> None:
        """Use the stored table. `table`: encoded."""
        self.version, self.owners, self._roster = version, self._decoded(table), {}

    def update(self, roster: Mapping[str, float]) -> bool:
        """Assign the shards to `roster` (id -> capacity). True if the table has changed and must be saved in Redis."""
        if not (roster and self._shards) or roster == self._roster:
            return False
        before, self._roster = self.owners, roster
        self.owners = assign(roster, self._shards, before)
        if self.owners == before:
            return False
        self.version = xxh3_64_hexdigest(self.encoded())
        return True

    def encoded(self) -> bytes:
        """The table as JSON: the replicas, and for each shard the position of its owner in that list."""
        replicas = sorted(set(self.owners))
        places = {replica: place for place, replica in enumerate(replicas)}
        return json.dumps([replicas, [places[owner] for owner in self.owners]], separators=(",", ":")).encode()

    def _decoded(self, table: bytes) -> tuple[str, ...]:
        try:
            replicas, places = json.loads(table)
            return tuple(replicas[place] for place in places) if len(places) == self._shards else ()
        except (ValueError, TypeError, IndexError):  # there is none, or somebody else has written it
            return ()


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
        """Whether `me` owns `task_id` by hash modulo `replicas`; `owners` is about shards. False with index 0."""
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
    """One replica's part in a peer loop. `key`: a Redis key that ends in the name of the loop. `time` may be that of an
    earlier loop of this process under the same key, which has ended. Otherwise, if all replicas are replaced at once, none
    knows the time, and they wait for some intervals."""

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
        self._store = store
        self._key = key
        self._clock = clock
        self._rng = rng
        self._skew_s = rng.random() * settings.interval_s * CLAIMING
        self._leaving = False
        self.is_paused = False  # then the time does not count as running time (`running_ms`)
        self._table = OwnerTable(settings.shards)
        self._claimed_epoch = 0
        self._number = 0  # from the first claim
        self._roster: tuple[Member, ...] = ()
        self._roster_version = ""

    @property
    def server_clock(self) -> ServerClock:
        return self.time.server_clock

    def advertise(self, address: str) -> None:
        """Publish `address` as the address of this replica in all later claims."""
        self.settings = msgspec.structs.replace(self.settings, address=address)

    def __repr__(self) -> str:
        return f"<PeerLoop {self._key} replica={self.replica} every {self.settings.interval_s:g}s>"

    async def tick(self) -> View:
        """Claim a place in the epoch and return the view in effect. Without crawl time, it is the open epoch. Raises
        RedisAway."""
        while not await self._share_out(await self._claim()):
            pass  # the table changed between the two calls
        return View(self._claimed_epoch, self._roster, self.replica, self._table.owners if self._roster else ())

    async def _claim(self) -> str:
        """Claim, and read the roster in effect. Returns the version of the table of owners that Redis has."""
        now_ms = self.server_clock.now_ms() if await self.time.check(self._claimed_epoch) else 0
        epoch = epoch_of(now_ms, self.settings.interval_s)
        runs_ms = int(max(RUNS_EPOCHS * self.settings.interval_s, RUNS_AT_LEAST_S) * 1000)
        mine = (self.replica, self.settings.capacity, self.settings.address or "-", self._number)
        time = (now_ms, int(not self.is_paused), runs_ms, self.settings.table)
        (reply,) = await self._store.send([script_call(CLAIM, [self._key], epoch, *mine, self._roster_version, *time)])
        _, claimed_epoch, number, table_version, roster_version, roster = reply
        self._claimed_epoch, self._number = int(claimed_epoch), int(number)
        if text_in(roster_version) != self._roster_version:
            self._roster_version, self._roster = text_in(roster_version), parse_roster(roster)
        return text_in(table_version)

    async def _share_out(self, stored: str) -> bool:
        """Assign the shards from the table `stored`, computed if that is possible. False if Redis no longer has it."""
        capacities = {member.replica: member.capacity for member in self._roster}
        before = self._table.version
        has_changed = self._table.update(capacities)
        if stored not in (before, self._table.version):
            fields = owners_fields(self.settings.table)
            version, table = (await self._store.send([command("HMGET", f"{self._key}:owners", *fields)]))[0]
            if text_in(version) != stored:
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
    """How long until `until_ms` replicas have worked: without pauses, an interval less after a crash. Raises RedisAway."""
    (reply,) = await store.send([command("HMGET", f"{key}:running", "total_ms", "last_ms")])
    total_ms, last_ms = map(count_in, reply)
    return total_ms + (max(0, until_ms - last_ms) if last_ms else 0)


def parse_roster(members: bytes) -> tuple[Member, ...]:
    """The roster in a JSON list: replica, "number capacity address", ... An index is the rank of a number. What no replica
    has written is left out."""
    claims = []
    with contextlib.suppress(ValueError):
        fields = json.loads(text_in(members))
        for replica, claim in zip(fields[::2], fields[1::2], strict=True):
            with contextlib.suppress(ValueError):
                number, capacity, address = claim.split(" ", 2)
                if 0 < (weight := float(capacity)) < float("inf"):
                    claims.append((int(number), replica, weight, "" if address == "-" else address))
    claims.sort()
    return tuple(
        Member(replica, rank, capacity, address) for rank, (_, replica, capacity, address) in enumerate(claims, start=1)
    )


CALLS_A_SECOND = 500
"""The most calls of a kind that all replicas together make in a second. A call takes about 25 us of a server's CPU."""

REPORTS_A_SECOND = 250
"""The same for health records, for which nobody waits."""


def period_s(usual_s: float, replicas: int, calls_a_second: int = CALLS_A_SECOND) -> float:
    """Seconds between two calls of one of `replicas`: `usual_s`, or more if there are many."""
    return max(usual_s, replicas / calls_a_second)


LOST_SHOWN_MS = 600_000
"""Milliseconds for which a replica is remembered that stopped reporting without leaving."""


class Health:
    """Stores one expiring key per replica, and when each last reported. All methods raise RedisAway."""

    def __init__(self, store: Store, key: str, ttl_s: float) -> None:
        self._store = store
        self._key = f"{key}:health"
        self._ttl_ms = int(ttl_s * 1000)

    async def report(self, replica: str, record: bytes, ttl_s: float = 0.0, at_ms: int = 0) -> None:
        """Store `record`, in the caller's format, for at least `ttl_s` seconds. `at_ms`: now, by the crawl's clock."""
        key, ttl_ms = f"{self._key}:{replica}", max(self._ttl_ms, int(ttl_s * 1000))
        await self._store.send([command("SET", key, record, "PX", ttl_ms), command("ZADD", self._key, at_ms, replica)])

    async def withdraw(self, replica: str) -> None:
        await self._store.send([command("DEL", f"{self._key}:{replica}"), command("ZREM", self._key, replica)])

    async def records(self) -> dict[str, bytes]:
        """The record of each replica that reported within `ttl_s` seconds."""
        return (await self.read())[0]

    async def read(self) -> tuple[dict[str, bytes], dict[str, int]]:
        """Return the records as `records` does, and the replicas that stopped reporting without leaving, each with when it
        last did. They are forgotten once others have reported for `LOST_SHOWN_MS` more."""
        (listed,) = await self._store.send([command("ZRANGE", self._key, 0, -1, "WITHSCORES")])
        at_ms = {text_in(name): ms_in(score) for name, score in zip(listed[::2], listed[1::2], strict=True)}
        replicas = sorted(at_ms)
        if not replicas:
            return {}, {}
        found = await self._store.send([command("GET", f"{self._key}:{replica}") for replica in replicas])
        silent = [replica for replica, record in zip(replicas, found, strict=True) if record is None]
        lost = {name: at_ms[name] for name in silent if at_ms[name] > max(at_ms.values()) - LOST_SHOWN_MS}
        if gone := [replica for replica in silent if replica not in lost]:
            with contextlib.suppress(WritesRefused, RedisMisused):  # whoever only looks may go on
                await self._store.send([command("ZREM", self._key, *gone)])
        return {replica: record for replica, record in zip(replicas, found, strict=True) if record is not None}, lost
