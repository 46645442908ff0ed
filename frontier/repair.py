"""Restores lost shards from what is known elsewhere: which URLs were settled, and which were found.

While it lasts, these shards have an identity of their own. All replicas refuse them until they are complete, and a repair
that was interrupted is repeated from the start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from frontier.clock import ServerClock
from frontier.crawls import Crawl
from frontier.entries import Entry
from frontier.queue import Frontier, FrontierSettings
from frontier.redis_keys import with_identity
from frontier.scripts import RESTORE
from frontier.shard_identity import check_identity, identify_shards, lost_shards
from frontier.store import Store, command, script_call

CHUNK = 500
"""URLs per call, which then takes about 1 ms."""


class Ended(NamedTuple):
    """A URL that was settled with `outcome` (done, denied or dead) for `reason`."""

    entry: Entry
    outcome: str
    reason: str


class Repair:
    """The repair of the lost shards of `crawl`: `begin`, `restore` and `push` as often as needed, `finish`. All methods
    raise RedisAway, and may then be repeated."""

    def __init__(self, store: Store, crawl: Crawl, clock: ServerClock, domain_cap: int) -> None:
        self._store = store
        self._crawl = crawl
        self._keys = with_identity(crawl.keys, f"{crawl.keys.identity}:repair")
        settings = FrontierSettings(domain_cap=domain_cap, pack_above=0)  # `restore` looks for URLs in the queues
        self._frontier = Frontier(store, self._keys, clock, settings, crawl.fingerprint_key)
        self.shards: Sequence[int] = ()

    async def begin(self, forgotten: Collection[str] = ()) -> Sequence[int]:
        """Find the lost shards. `forgotten`: the marks of domains that were forgotten, of which the shards accept nothing;
        a mark does not tell the shard of its domain. Raises CrawlLost if one has another crawl's data."""
        self.shards = sorted(await lost_shards(self._store, self._crawl.keys))
        await identify_shards(self._store, self._keys, self.shards)
        marks = " ".join(sorted(forgotten))
        calls = [command("HSET", self._keys.shards[shard].stats, "forgotten", marks) for shard in self.shards]
        if calls and marks:
            await self._store.send(calls)
        return self.shards

    def concerns(self, domain: str) -> bool:
        """Whether `domain` belongs to a lost shard."""
        return self._frontier.shard_of(domain) in self._lost

    @property
    def _lost(self) -> frozenset[int]:
        return frozenset(self.shards)

    async def push(self, entries: Iterable[Entry]) -> int:
        """Queue those of `entries` that belong to lost shards and are not known. Returns how many were queued."""
        return (await self._frontier.push([entry for entry in entries if self.concerns(entry.domain)])).accepted

    async def restore(self, ended: Sequence[Ended]) -> int:
        """Record those of `ended` that belong to lost shards as settled. Returns how many were not known yet."""
        by_shard: dict[int, list[Ended]] = defaultdict(list)
        for one in ended:
            if self.concerns(one.entry.domain):
                by_shard[self._frontier.shard_of(one.entry.domain)].append(one)
        await self._frontier.push([one.entry for of_shard in by_shard.values() for one in of_shard])
        calls, asked = [], []
        for shard, of_shard in by_shard.items():
            keys = self._keys.shards[shard]
            for at in range(0, len(of_shard), CHUNK):
                words = [
                    word
                    for one in of_shard[at : at + CHUNK]
                    for word in (one.entry.domain, one.outcome, one.reason, one.entry.raw)
                ]
                asked.append(shard)
                calls.append(
                    script_call(RESTORE, (keys.due, keys.stats, keys.dead, keys.base), self._keys.identity, *words)
                )
        replies = await self._store.send(calls) if calls else []
        check_identity(self._crawl.name, asked, replies)
        return sum(int(reply[1]) for reply in replies)

    async def finish(self) -> None:
        """Give the shards the crawl's identity, so that replicas lease from them."""
        await identify_shards(self._store, self._crawl.keys, self.shards, former=self._keys.identity)
