"""Restores lost shards from what is known elsewhere: which URLs were settled, when they are visited again, and which were
found.

While it lasts, these shards have an identity of their own. All replicas refuse them until they are complete, and a repair
that was interrupted is repeated from the start.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from frontier.clock import ServerClock
from frontier.crawls import Crawl
from frontier.entries import Entry
from frontier.keys import CrawlKeys, meta_key, prefix_of, with_identity
from frontier.known_pages import KnownPage, rest_of_record
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import RESTORE, RESTORE_VISITS, Argument, Script, command
from frontier.shard_contents import CHUNK
from frontier.shards import (
    check_not_frozen,
    found_keys,
    frozen,
    identify_shards,
    lost_shards,
    send_to_shards,
    shard_call,
)
from frontier.store import Store, batched, wrong_keys

QUIET_MS = 1_000
"""The longest time for which a shard can be told to grant no leases."""

PAGES = 100
"""Known pages per call, which then takes 2 to 3 ms."""


Item = tuple[str, tuple[Argument, ...]]
"""A domain, and what a script needs of one of its URLs."""


class Ended(NamedTuple):
    """A URL that was settled with `outcome` (done, denied or dead) for `reason`. `follow_up`: `KEEP` for a denied one that
    is kept with the dead letters."""

    entry: Entry
    outcome: str
    reason: str
    follow_up: str = ""


async def clear_shards(store: Store, keys: CrawlKeys) -> None:
    """Remove all that the shards of a crawl have, so that all count as lost. No replica may run. Raises RedisAway."""
    for shards in batched(keys.shards, CHUNK):  # first, so that what is half removed counts as lost
        await store.send([command("DEL", of.stats) for of in shards])
    async for page in found_keys(store, keys):
        await store.send([command("UNLINK", key) for key in page])


async def remove_wrong_keys(store: Store, name: str) -> list[str]:
    """Remove those keys of the crawl `name`, apart from those of its shards, that have a wrong type. Returns them. Raises
    RedisAway."""
    if keys := await wrong_keys(store, [prefix_of(meta_key(name))]):
        await store.send([command("UNLINK", key) for key in keys])
    return keys


class Repair:
    """The repair of the lost shards of `crawl`: `begin`, then as often as needed `restore`, `restore_visits` and `push`,
    `finish`. What was settled is restored before anything is pushed. All methods that await raise RedisAway, and may then
    be repeated."""

    def __init__(
        self, store: Store, crawl: Crawl, clock: ServerClock, domain_cap: int, in_use: Iterable[int] | None = None
    ) -> None:
        """`in_use`: shards that are in use and came back in an old state, for which `begin` and `finish` are not called."""
        self._store = store
        self._crawl = crawl
        self._clock = clock
        self._keys = crawl.keys
        if in_use is None:
            self._keys = with_identity(crawl.keys, f"{crawl.keys.identity}:repair")
        # What was settled was accepted before, perhaps with a higher cap. `restore` looks for it in the queues.
        settled, found = (FrontierSettings(domain_cap=cap, pack_above=0) for cap in (0, domain_cap))
        self._settled = Frontier(store, self._keys, clock, settled, crawl.fingerprint_key)
        self._frontier = Frontier(store, self._keys, clock, found, crawl.fingerprint_key)
        self.shards = frozenset(in_use or ())  # those that are lost
        self._items: dict[int, Counter[str]] = defaultdict(Counter)

    async def begin(self, forgotten: Collection[str] = ()) -> Sequence[int]:
        """Find the lost shards. `forgotten`: the marks of domains that were forgotten, of which the shards accept nothing;
        a mark does not tell the shard of its domain. Raises CrawlLost if one has another crawl's data, and CrawlResharded
        if all of them are complete, and were frozen by a reshard."""
        found = await lost_shards(self._store, self._crawl.keys)
        check_not_frozen(self._crawl.keys, found)
        self.shards = frozenset(shard for shard, of in found.items() if of != frozen(self._crawl.keys))
        await identify_shards(self._store, self._keys, sorted(self.shards))
        lost, calls = [self._keys.shards[shard] for shard in self.shards], []
        if self._keys.last_tokens:  # tokens must be above those of the layouts before: see `keys.layout_of`
            calls += [command("HSETNX", of.owner, "token", self._keys.last_tokens[-1]) for of in lost]
        if claims := self._crawl.reshard_claims:  # suspended commands that were undone must not freeze them
            calls += [command("HSET", of.owner, "cancelled", claims) for of in lost]
        if marks := " ".join(sorted(forgotten)):
            calls += [command("HSET", of.stats, "forgotten", marks) for of in lost]
        await self._store.send(calls)
        return sorted(self.shards)

    def shard_of(self, domain: str) -> int:
        return self._keys.shard_of(domain)

    def concerns(self, domain: str) -> bool:
        return self.shard_of(domain) in self.shards

    async def keep_quiet(self) -> None:
        """Have the shards grant no leases for a second (`lost_writes.lua`)."""
        until_ms = self._clock.now_ms() + QUIET_MS
        shards = [self._keys.shards[shard] for shard in self.shards]
        await self._store.send([command("HSET", of.owner, "quiet_ms", until_ms) for of in shards])

    def count_items(self, domain: str, numbers: Mapping[str, int]) -> None:
        """Count the items of a visit to a page of `domain` in a lost shard, by data set. `finish` stores the sums."""
        self._items[self._keys.shard_of(domain)].update(numbers)

    async def push(self, entries: Iterable[Entry], everywhere: bool = False) -> int:
        """Queue those of `entries` that are not known, in lost shards unless `everywhere`. Returns how many."""
        wanted = [entry for entry in entries if everywhere or self.concerns(entry.domain)]
        return (await self._frontier.push(wanted)).accepted

    async def restore(self, ended: Sequence[Ended]) -> int:
        """Record those of `ended` that belong to lost shards as settled. Returns how many were not known yet."""
        concerned = [one for one in ended if self.concerns(one.entry.domain)]
        await self._settled.push([one.entry for one in concerned])
        words = ((one.entry.domain, (one.outcome, one.reason, one.follow_up, one.entry.raw)) for one in concerned)
        return await self._restore(words, CHUNK, RESTORE)

    async def restore_visits(self, pages: Iterable[KnownPage]) -> int:
        """Have restored `pages` of lost shards visited again, unless a later visit is stored. Returns how many."""
        concerned = (page for page in pages if self.concerns(page.entry.domain))
        words = ((page.entry.domain, (page.due_s, rest_of_record(page.entry))) for page in concerned)
        return await self._restore(words, PAGES, RESTORE_VISITS)

    async def _restore(self, items: Iterable[Item], size: int, script: Script) -> int:
        by_shard: dict[int, list[Item]] = defaultdict(list)
        for item in items:
            by_shard[self._keys.shard_of(item[0])].append(item)
        calls = []
        for shard, of_shard in by_shard.items():
            for part in batched(of_shard, size):
                words = [word for domain, about in part for word in (domain, *about)]
                calls.append((shard, shard_call(script, self._keys, shard, *words)))
        replies = await send_to_shards(self._store, self._keys, calls)
        return sum(int(reply[1]) for reply in replies)

    async def finish(self) -> None:
        """Give the shards the crawl's identity, so that replicas lease from them."""
        for shard, items in self._items.items():
            fields: list[str | int] = [word for name, number in items.items() for word in (f"items:{name}", number)]
            await self._store.send([command("HSET", self._keys.shards[shard].stats, *fields)])
        await identify_shards(self._store, self._crawl.keys, sorted(self.shards), former=self._keys.identity)
