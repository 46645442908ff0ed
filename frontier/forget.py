"""Removes a domain from the state of a crawl, because the domain's owner wants no trace of it (`crawler forget`).

No replica may run meanwhile: a replica has names and URLs in its memory, and in files that are not finished. Each of these
steps can be repeated, so a command that was killed is run again:

1. The domain gets a mark (`domains.forgotten_mark`) in the operator's rules and in its shard. From then on, the shard
   refuses its URLs, whoever pushes them, and a lease on it is void.
2. What was taken back from expired leases (`lost`) does not name its domain. Its URLs are those that the seen-set knows, so
   they are removed first.
3. Its queue, its blocks, its known pages, and what waits, is leased or dead are removed, each with the fingerprints of
   its URLs.
4. Links to it are removed from all outboxes, and its pages from entries of other domains, which may tell where their URLs
   were found.
5. The fingerprints of other URLs of it are removed if the caller knows them, from the archive.

Counters stay: they are numbers. Open URLs count as denied, with the reason `forgotten`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence

import msgspec

from frontier.control import Control
from frontier.crawls import Crawl
from frontier.domains import forgotten_mark, is_of
from frontier.entries import Entry, parse_entry
from frontier.errors import StillAdded
from frontier.keys import shard_keys
from frontier.known_pages import pages_in, without_via
from frontier.lookup import escaped
from frontier.packing import block_of, rows_of
from frontier.queue import Frontier, seen_bucket
from frontier.scripts import (
    FORGET_DOMAIN,
    FORGET_URLS,
    FORGET_VIA,
    REMOVE_FROM_OUTBOX,
    Argument,
    Reply,
    Script,
    command,
    script_call,
)
from frontier.shard_contents import CHUNK, DOMAIN_KEYS, Key, pages, pages_of_all
from frontier.shards import DURABLE_S, frozen, send_to_shards, shard_call
from frontier.store import Store, ask, batched, fields_of, scan

SCAN_COUNT = 2_000
"""Members of a key that are searched in one call, which takes about 2 ms."""

BUCKETS = 20
"""Buckets of known pages that are read in one call."""

_ROUNDS = 5
"""How often the state is searched again if something of the domain is found."""

_WITH_VIA = frozenset({"q", "inflight", "waiting", "dead", "lost", "outbox", "block", "known"})
"""The first parts of the names of keys whose members may tell where a URL was found."""


class Removed(msgspec.Struct):
    """What was removed: URLs by place, `records` (of robots.txt files, and of the domain itself), `seen`: fingerprints;
    `found_on`: entries of other domains that named a page of the domain."""

    queued: int = 0
    leased: int = 0
    waiting: int = 0
    dead: int = 0
    lost: int = 0
    known: int = 0
    outbox: int = 0
    found_on: int = 0
    records: int = 0
    seen: int = 0
    leases: int = 0

    def add(self, **found: int) -> None:
        for name, number in found.items():
            setattr(self, name, getattr(self, name) + number)

    @property
    def total(self) -> int:
        return sum(int(value) for value in msgspec.structs.astuple(self))


class Forgetting:
    """Removes `domain` from `crawl`. `frontier`: of that crawl; `is_dry`: only count. All methods raise RedisAway and
    ShardLost, and may then be repeated."""

    def __init__(self, store: Store, crawl: Crawl, frontier: Frontier, domain: str, is_dry: bool = False) -> None:
        self._store = store
        self._crawl = crawl
        self._keys = crawl.keys
        self._fingerprint = frontier.fingerprint
        self._domain = domain
        self._is_dry = is_dry
        self._number = crawl.keys.shard_of(domain)
        self._shard = crawl.keys.shards[self._number]
        self._counted: set[str] = set()  # URLs whose fingerprints a dry run has found
        self._lost: set[bytes] = set()  # members of `lost` that are of the domain
        self.removed = Removed()

    async def mark(self) -> None:
        """Have the crawl accept nothing of the domain from now on, and end its lease."""
        if not self._is_dry:
            await Control(self._store, self._keys).forget(self._domain)
        reply = await self._ask(FORGET_DOMAIN, "dry" if self._is_dry else "")
        self.removed.add(leases=int(reply[1]), records=int(reply[2]))

    async def purge(self, durable_s: float = DURABLE_S) -> None:
        """Remove what Redis has of the domain, and look again until nothing is left: `durable_s` later, it is gone from
        disk."""
        for _ in range(_ROUNDS):
            before = self.removed.total
            await self.mark()
            await self._purge_lost()
            await self._purge_listed()
            await self._purge_blocks()
            await self._purge_known()
            await self._purge_outboxes()
            await self._purge_found_on()
            if self._is_dry or self.removed.total == before:
                break
            await asyncio.sleep(durable_s)
        else:
            raise StillAdded(f"something adds URLs of {self._domain} again and again; stop it, and repeat the command")
        if not self._is_dry:
            await self._store.send([command("DEL", self._keys.summary)])  # it names domains; replicas write it again
            await Control(self._store, self._keys).forgot(self._domain)

    async def forget_seen(self, urls: Iterable[str]) -> None:
        """Remove the fingerprints of these `urls` of the domain."""
        await self._remove("", [], list(urls))

    async def _ask(self, script: Script, *words: Argument) -> Reply:
        call = shard_call(script, self._keys, self._number, self._domain, *words)
        (reply,) = await send_to_shards(self._store, self._keys, [(self._number, call)])
        return reply

    async def _remove(self, place: str, members: Sequence[Argument], urls: Sequence[str]) -> int:
        """Remove `members` from `place`, and the fingerprints of `urls`. Returns how many URLs were there."""
        if self._is_dry:
            found = {url for url, is_seen in zip(urls, await self._seen(urls), strict=True) if is_seen}
            self.removed.add(seen=len(found - self._counted))
            self._counted |= found
            return len(members)
        gone = 0
        for at in range(0, max(len(members), len(urls)), CHUNK):
            some = members[at : at + CHUNK]
            prints = [self._fingerprint(url) for url in urls[at : at + CHUNK]]
            prints += [-one for one in prints]  # of requisites
            reply = await self._ask(FORGET_URLS, place, len(some), *some, *prints)
            gone += int(reply[1])
            self.removed.add(seen=int(reply[2]))
        return gone

    async def _seen(self, urls: Sequence[str]) -> list[bool]:
        (buckets,) = await self._store.send([command("HGET", self._shard.stats, "buckets")])
        prints = [mark for url in urls for mark in (self._fingerprint(url), -self._fingerprint(url))]
        names = (self._shard.seen(seen_bucket(one, int(buckets or 1))) for one in prints)
        calls = [command("SISMEMBER", name, one) for name, one in zip(names, prints, strict=True)]
        replies = await ask(self._store, calls)
        return [bool(page or requisite) for page, requisite in zip(replies[::2], replies[1::2], strict=True)]

    def _entry(self, raw: bytes) -> Entry:
        return parse_entry(raw.decode(), self._domain, 0.0)

    async def _purge_listed(self) -> None:
        """Remove what is in a set of its own, or listed among that of others, behind so many fields."""
        of, ours = self._shard, f"{escaped(self._domain)}\n*"
        for name, place, key, pattern, fields in (
            ("queued", "q", of.queue(self._domain), "*", 0),
            ("leased", "inflight", of.inflight(self._domain), "*", 0),
            ("waiting", "waiting", of.waiting, ours, 2),
            ("dead", "dead", of.dead, ours, 1),
        ):
            async for members in self._members(key, pattern, "HSCAN" if place == "dead" else "ZSCAN"):
                entries = [self._entry(member.split(b"\n", fields)[fields]) for member in members]
                urls = [url for entry in entries for url in entry.seen_as]
                self.removed.add(**{name: await self._remove(place, members, urls)})

    async def _purge_blocks(self) -> None:
        (names,) = await self._store.send([command("ZRANGE", self._shard.blocks(self._domain), 0, -1)])
        for name in names:
            (contents,) = await self._store.send([command("GET", self._shard.block(name.decode(), self._domain))])
            entries = [self._entry(entry) for _, entry in rows_of(contents)] if contents is not None else []
            await self._remove("", [], [url for entry in entries for url in entry.seen_as])
            gone = await self._remove("block", [name], [])
            self.removed.add(queued=len(entries) if self._is_dry else gone)

    async def _purge_known(self) -> None:
        async for buckets in self._known(self._shard.known(self._domain)):
            entries = [page.entry for records in buckets.values() for page in pages_in(records, self._domain)]
            await self._remove("", [], [url for entry in entries for url in entry.seen_as])
            gone = await self._remove("known", list(buckets), [])
            self.removed.add(known=len(entries) if self._is_dry else gone)

    async def _known(self, key: str) -> AsyncIterator[dict[bytes, bytes]]:
        """The buckets of known pages of a domain by name, some at a time, and some of them perhaps more than once."""
        async for flat in scan(self._store, "HSCAN", key, "COUNT", BUCKETS):
            yield fields_of(flat)

    async def _purge_lost(self) -> None:
        """`lost` has "token LF entry". Most entries do not name their domain; of those, the ones are removed whose URL
        at this domain was seen. After a reshard, the shards of former layouts still have theirs, until they expire."""
        shards = [(self._shard, self._keys.identity)]
        tokens = self._crawl.last_tokens
        layouts = (self._crawl.keys_of(tokens[:number], self._crawl.shards) for number in range(len(tokens)))
        if former := {of.layout: frozen(of) for of in layouts}:
            async for page in pages_of_all(self._store, self._crawl.name, self._keys.shards):
                lost = ((number, key.shard) for number, key in page if key.name == "lost" and number in former)
                shards += [(shard_keys(self._crawl.name, at, number), former[number]) for number, at in lost]
        for of, identity in shards:
            async for members in self._members(of.lost, "*"):
                urls = [self._entry(member.partition(b"\n")[2]).url for member in members]
                seen = zip(members, urls, await self._seen(urls), strict=True)
                ours = [member for member, url, is_seen in seen if is_seen and is_of(url, self._domain)]
                self.removed.add(lost=len(ours))
                self._lost.update(ours)
                if ours and not self._is_dry:
                    words: tuple[Argument, ...] = (identity, self._domain, "lost", len(ours), *ours)
                    await self._store.send([script_call(FORGET_URLS, (of.stats, of.base), *words)])

    async def _purge_outboxes(self) -> None:
        for shard, of in enumerate(self._keys.shards):
            async for members in self._members(of.outbox, f"*\n{escaped(self._domain)}\n*"):
                self.removed.add(outbox=len(members))
                if not self._is_dry:
                    call = shard_call(REMOVE_FROM_OUTBOX, self._keys, shard, *members)
                    await send_to_shards(self._store, self._keys, [(shard, call)])

    async def _members(self, key: str, pattern: str, verb: str = "ZSCAN") -> AsyncIterator[Sequence[bytes]]:
        """The members of `key` that match `pattern`, some at a time; some of them perhaps more than once."""
        async for page in scan(self._store, verb, key, "MATCH", pattern, "COUNT", SCAN_COUNT):
            for members in batched(page[::2], CHUNK):
                yield members

    # where other domains' URLs were found

    async def _purge_found_on(self) -> None:
        """Entries of other domains may end in " URL", the page where they were found (`archive.via`)."""
        async for page in pages(self._store, self._crawl.name, self._keys.shards, self._keys.layout):
            for key in page:
                is_ours = key.name.endswith(f":{self._domain}")
                if key.first in _WITH_VIA and key.shard < len(self._keys.shards) and not is_ours:
                    await self._strip(key)

    async def _strip(self, key: Key) -> None:
        if key.first == "block":
            (contents,) = await self._store.send([command("GET", key.whole)])
            rows = rows_of(contents) if contents is not None else []
            stripped = [(priority, self._without_via(entry)) for priority, entry in rows]
            # The name stays: it tells the number of entries, and the hash in it only has to be unique.
            changes = sum(before != after for before, after in zip(rows, stripped, strict=True))
            if changes:
                await self._replace(key, [(contents, block_of(stripped, 0).contents)], changes)
        elif key.first == "known":
            async for buckets in self._known(key.whole):
                for bucket, records in buckets.items():
                    after, changes = without_via(records, lambda via: is_of(via, self._domain))
                    if changes:
                        await self._replace(key, [(bucket + b"\n" + records, after)], changes)
        else:
            pattern = f"* *{escaped(self._domain)}*"
            async for members in self._members(key.whole, pattern, "HSCAN" if key.first == "dead" else "ZSCAN"):
                others = (member for member in members if self._domain.encode() not in member.split(b"\n")[:2])
                others = (member for member in others if member not in self._lost)
                changed = [(member, after) for member in others if (after := self._without_via(member)) != member]
                await self._replace(key, changed, len(changed))

    def _without_via(self, member: bytes) -> bytes:
        """`member`, which ends in an entry, without the page where its URL was found, if that is of the domain."""
        rest, _, more = member.partition(b" ")
        origin, _, visit = more.partition(b" ")
        via, tab, tag = origin.partition(b"\t")
        if not via or not is_of(via.decode(), self._domain):
            return member
        kept = tab + tag
        return b"%b %b %b" % (rest, kept, visit) if visit else b"%b %b" % (rest, kept) if kept else rest

    async def _replace(self, key: Key, changed: Sequence[tuple[bytes, bytes]], found_on: int) -> None:
        self.removed.add(found_on=found_on)
        if changed and not self._is_dry:
            words = [word for before, after in changed for word in (key.name, before, after)]
            call = shard_call(FORGET_VIA, self._keys, key.shard, *words)
            await send_to_shards(self._store, self._keys, [(key.shard, call)])


async def forget_again(store: Store, crawl: Crawl, frontier: Frontier, marks: Collection[str]) -> int:
    """Forget the domains with `marks` of which Redis has forgotten that, as after it was restored from a snapshot. No
    replica may run. Returns how many. Raises RedisAway and ShardLost, and may then be repeated."""
    control = Control(store, crawl.keys)
    if marks:
        await control.refresh()
    unknown = frozenset(marks) - control.rules.forgotten
    if not unknown:
        return 0
    # A mark does not tell the shard of its domain, so each shard gets all of them, unless it is lost.
    replies = await ask(store, [command("HMGET", of.stats, "crawl", "forgotten") for of in crawl.keys.shards])
    calls = []
    for of, (identity, before) in zip(crawl.keys.shards, replies, strict=True):
        if identity:
            known = (before or b"").decode().split()
            calls.append(command("HSET", of.stats, "forgotten", " ".join(sorted(unknown.union(known)))))
    await store.send(calls)
    named = set[str]()
    async for page in pages(store, crawl.name, crawl.keys.shards, crawl.keys.layout):
        named.update(key.domain for key in page if key.first in DOMAIN_KEYS)
    for domain in sorted(named):
        if forgotten_mark(domain) in unknown:
            await Forgetting(store, crawl, frontier, domain).purge(durable_s=0.0)
    await control.restore_forgotten(unknown)  # last, so that what was interrupted is repeated
    return len(unknown)
