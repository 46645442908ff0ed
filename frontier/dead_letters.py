"""Dead letters: URLs that the crawl failed to fetch, and denied URLs that were kept (`frontier.settle.KEEP`). They can be
listed and queued again (`crawler dead`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from frontier.entries import parse_entry
from frontier.errors import RedisAway
from frontier.keys import CrawlKeys
from frontier.scripts import REQUEUE, command, script_call
from frontier.shards import send_to_shards
from frontier.store import Store, batched, pairs

SCAN_COUNT = 200
SHARDS_AT_ONCE = 64
"""Shards scanned in one round trip. Most have few dead letters or none."""
REQUEUE_CHUNK = 500
"""Dead letters per call, which then takes about 1 ms."""


class DeadLetter(msgspec.Struct, frozen=True):
    """A dead or kept URL. `reason`: one word, as in the crawl's counters; `entry`: its text in the frontier."""

    shard: int
    domain: str
    entry: str
    reason: str

    @property
    def url(self) -> str:
        return parse_entry(self.entry, self.domain, 0.0).url

    @property
    def is_requisite(self) -> bool:
        return parse_entry(self.entry, self.domain, 0.0).is_requisite


class DeadLetters:
    def __init__(self, store: Store, keys: CrawlKeys) -> None:
        self._store = store
        self._keys = keys
        self._unread: set[int] = set()

    @property
    def unread(self) -> int:
        """The number of shards that the last `find` has left out, because their nodes are away."""
        return len(self._unread)

    async def find(
        self, domain: str | None = None, reason: str | None = None, skips_away: bool = False
    ) -> AsyncIterator[DeadLetter]:
        """All dead letters, or those of `domain` or with `reason`, in no particular order. They are read in small parts, so
        one that is added or removed meanwhile may be missed or returned twice. `skips_away`: leave out the shards of
        nodes of a cluster that are away, unless all are. Raises RedisAway."""
        self._unread.clear()
        for shards in batched(range(len(self._keys.shards)), SHARDS_AT_ONCE):
            places = [(shard, 0) for shard in shards]
            while places:
                places, letters = await self._scan(places, skips_away)
                for letter in letters:
                    if domain in (None, letter.domain) and reason in (None, letter.reason):
                        yield letter

    async def _scan(
        self, places: Sequence[tuple[int, int]], skips_away: bool
    ) -> tuple[list[tuple[int, int]], list[DeadLetter]]:
        """The next dead letters at each of `places` (shard, cursor), and the places where there are more."""
        calls = [
            command("HSCAN", self._keys.shards[shard].dead, cursor, "COUNT", SCAN_COUNT) for shard, cursor in places
        ]
        more, letters = [], []
        replies = await (self._store.send_each if skips_away else self._store.send)(calls)
        for (shard, _), reply in zip(places, replies, strict=True):
            if isinstance(reply, RedisAway):
                self._unread.add(shard)
                if len(self._unread) == len(self._keys.shards):
                    raise reply
                continue
            for key, why in pairs(reply[1]).items():
                domain, _, entry = key.partition("\n")
                letters.append(DeadLetter(shard, domain, entry, why))
            if int(reply[0]):
                more.append((shard, int(reply[0])))
        return more, letters

    async def requeue(self, letters: Iterable[DeadLetter], now_ms: int, priority: float = 0.0) -> int:
        """Queue `letters` again, and return how many were dead. May be repeated. Raises RedisAway and ShardLost."""
        by_shard: dict[int, list[DeadLetter]] = defaultdict(list)
        for letter in letters:
            by_shard[letter.shard].append(letter)
        calls = []
        for shard, of_shard in by_shard.items():
            of = self._keys.shards[shard]
            keys = (of.due, of.leases, of.stats, of.dead, of.base)
            for part in batched(of_shard, REQUEUE_CHUNK):
                words = [word for letter in part for word in (letter.domain, letter.entry)]
                calls.append((shard, script_call(REQUEUE, keys, self._keys.identity, now_ms, priority, *words)))
        replies = await send_to_shards(self._store, self._keys, calls)
        return sum(int(reply[1]) for reply in replies)
