"""Reading a crawl's books: how much is queued, leased, waiting, done; whether it has ended; its dead letters.

Nothing here changes state. All numbers are derived from the sets and from counters that the transitions keep in the
same step as the state, so none can drift.

**The end of a crawl.** A URL is *open* from the push that accepted it to the settle that ended it, and the links of a
page are pushed before the page is settled. So the crawl has ended exactly when nothing is open in any shard at one
moment. The shards cannot be read at one moment; two readings do instead (Mattern 1987, "Algorithms for distributed
termination detection", the four-counter method): if the second reading, begun after the first was complete, finds
the same total accepted as the first and all of it settled by the first, then nothing was open in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from frontier.keys import CrawlKeys, ShardKeys
from frontier.store import Reply, Store, command, pairs

_OUTCOMES = frozenset({"done", "denied", "dead", "retry"})


@dataclass(frozen=True, slots=True)
class Counts:
    """The books of one or all shards. URLs, unless a name says domains."""

    accepted: int = 0
    done: int = 0
    denied: int = 0
    dead: int = 0
    retried: int = 0
    waiting: int = 0
    domains_due: int = 0
    domains_leased: int = 0
    leases_expired: int = 0
    seen: int = 0
    domains: int = 0
    octets: int = 0
    duplicates: int = 0
    requeued: int = 0  # dead letters that were queued again: counted in accepted and in dead
    first_ms: int = 0  # server time of the first settle of a URL, 0 before it
    last_ms: int = 0  # of the last one
    reasons: Counter[str] = field(default_factory=Counter)  # "outcome:reason"
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def settled(self) -> int:
        return self.done + self.denied + self.dead

    @property
    def open(self) -> int:
        """Queued, leased or waiting."""
        return self.accepted - self.settled

    def __add__(self, other: Counts) -> Counts:
        summed = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        summed["first_ms"] = min(filter(None, (self.first_ms, other.first_ms)), default=0)
        summed["last_ms"] = max(self.last_ms, other.last_ms)
        return Counts(**summed)


@dataclass(frozen=True, slots=True)
class ShardOwner:
    """Who last leased from a shard: `epoch` of the view, and since when (server ms) without a break."""

    shard: int
    replica: str
    epoch: int
    since_ms: int


class Books:
    """The books of the crawl that `keys` name."""

    def __init__(self, store: Store, keys: CrawlKeys) -> None:
        self._store = store
        self._keys = keys

    async def counts(self) -> Counts:
        """The books of all shards together: one round trip, four small calls a shard."""
        calls = [
            call
            for shard in self._keys.shards
            for call in (
                command("HGETALL", shard.stats),
                command("ZCARD", shard.waiting),
                command("ZCARD", shard.due),
                command("ZCARD", shard.leases),
            )
        ]
        replies = await self._store.send(calls)
        return sum((counts_of(*replies[at : at + 4]) for at in range(0, len(replies), 4)), Counts())

    async def totals(self) -> tuple[int, int]:
        """(accepted, settled) over all shards: one call a shard, what the end of a crawl is found from."""
        calls = [command("HMGET", shard.stats, "accepted", "done", "denied", "dead") for shard in self._keys.shards]
        replies = await self._store.send(calls)
        numbers = [[int(number or 0) for number in reply] for reply in replies]
        return sum(row[0] for row in numbers), sum(sum(row[1:]) for row in numbers)

    async def has_ended(self) -> bool:
        """Whether nothing is queued, leased or waiting. Never True while a page in flight can still bring links."""
        first = await self.totals()
        return first[0] == first[1] and await self.totals() == first

    async def owners(self) -> list[ShardOwner]:
        """The owner table: for each shard that was ever leased from, who did so last."""
        calls = [command("HMGET", shard.owner, "replica", "epoch", "since") for shard in self._keys.shards]
        replies = await self._store.send(calls)
        return [
            ShardOwner(number, replica.decode(), int(epoch), int(since or 0))
            for number, (replica, epoch, since) in enumerate(replies)
            if replica is not None
        ]

    async def dead_letters(self, limit: int) -> list[tuple[str, str, str]]:
        """Up to `limit` dead letters: (domain, entry, reason)."""
        letters: list[tuple[str, str, str]] = []
        for shard in self._keys.shards:
            letters += await self._dead_letters_of(shard, limit - len(letters))
            if len(letters) >= limit:
                break
        return letters

    async def _dead_letters_of(self, shard: ShardKeys, limit: int) -> list[tuple[str, str, str]]:
        letters: list[tuple[str, str, str]] = []
        cursor: bytes | int = 0
        while len(letters) < limit:
            (reply,) = await self._store.send([command("HSCAN", shard.dead, cursor, "COUNT", 200)])
            cursor, found = reply
            flat = [item for pair in found.items() for item in pair] if isinstance(found, dict) else found
            for key, reason in pairs(flat).items():
                domain, _, entry = key.partition("\n")
                letters.append((domain, entry, reason))
            if int(cursor) == 0:
                break
        return letters[:limit]


def counts_of(stats: Reply, waiting: int, due: int, leased: int) -> Counts:
    """The books of one shard, from its `stats` and the sizes of its sets."""
    flat: Sequence[bytes] = [item for pair in stats.items() for item in pair] if isinstance(stats, dict) else stats
    numbers = {name: int(value) for name, value in pairs(flat).items()}
    dropped = Counter({name[5:]: value for name, value in numbers.items() if name.startswith("drop:")})
    reasons = Counter(
        {name: value for name, value in numbers.items() if ":" in name and name.partition(":")[0] in _OUTCOMES}
    )
    return Counts(
        accepted=numbers.get("accepted", 0),
        done=numbers.get("done", 0),
        denied=numbers.get("denied", 0),
        dead=numbers.get("dead", 0),
        retried=numbers.get("retry", 0),
        waiting=waiting,
        domains_due=due,
        domains_leased=leased,
        leases_expired=numbers.get("expired", 0),
        seen=numbers.get("seen", 0),
        domains=numbers.get("domains", 0),
        octets=numbers.get("octets", 0),
        duplicates=numbers.get("duplicates", 0),
        requeued=numbers.get("requeued", 0),
        first_ms=numbers.get("first_ms", 0),
        last_ms=numbers.get("last_ms", 0),
        reasons=reasons,
        dropped=dropped,
    )
