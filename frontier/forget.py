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
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import msgspec

from frontier.control import Control
from frontier.crawls import Crawl
from frontier.domains import is_of, shard_of
from frontier.entries import parse_entry
from frontier.errors import StillAdded
from frontier.keys import CrawlKeys, ShardKeys, shard_keys
from frontier.known_pages import pages_in, without_via
from frontier.lookup import escaped, seen_bucket
from frontier.packing import block_of, rows_of
from frontier.queue import Frontier
from frontier.scripts import (
    FORGET_DOMAIN,
    FORGET_URLS,
    FORGET_VIA,
    REMOVE_FROM_OUTBOX,
    Argument,
    Call,
    Reply,
    command,
    script_call,
)
from frontier.shard_contents import Key, asked, pages, pages_of_all
from frontier.shards import DURABLE_S, check_identity, frozen
from frontier.store import Store

CHUNK = 500
"""URLs per call, which then takes about 1 ms."""

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
        """Count what was removed, by its place."""
        for name, number in found.items():
            setattr(self, name, getattr(self, name) + number)

    @property
    def total(self) -> int:
        """How many things were removed."""
        return sum(int(value) for value in msgspec.structs.astuple(self))


class Forgetting:
    """Removes `domain` from `crawl`. `frontier`: of that crawl; `is_dry`: only count. All methods raise RedisAway and
    ShardLost, and may then be repeated."""

    def __init__(self, store: Store, crawl: Crawl, frontier: Frontier, domain: str, is_dry: bool = False) -> None:
        self._store = store
        self._crawl = crawl
        self._keys: CrawlKeys = crawl.keys
        self._fingerprint: Callable[[str], int] = frontier.fingerprint
        self._domain = domain
        self._is_dry = is_dry
        self._number = shard_of(domain, len(crawl.keys.shards))
        self._shard: ShardKeys = crawl.keys.shards[self._number]
        self._counted: set[str] = set()  # URLs whose fingerprints a dry run has found
        self._lost: set[bytes] = set()  # members of `lost` that are of the domain
        self.removed = Removed()

    async def mark(self) -> None:
        """Have the crawl accept nothing of the domain from now on, and end its lease."""
        if not self._is_dry:
            await Control(self._store, self._keys).forget(self._domain)
        of = self._shard
        keys = (of.due, of.leases, of.stats, of.owner, of.base)
        dry = "dry" if self._is_dry else ""
        reply = await self._ask(script_call(FORGET_DOMAIN, keys, self._keys.identity, self._domain, dry))
        self.removed.add(leases=int(reply[1]), records=int(reply[2]))

    async def purge(self, durable_s: float = DURABLE_S) -> None:
        """Remove what Redis has of the domain, and look again until nothing is left: `durable_s` later, when what was
        removed is gone from disk, too."""
        for _ in range(_ROUNDS):
            before = self.removed.total
            await self.mark()
            await self._purge_lost()
            await self._purge_queue()
            await self._purge_blocks()
            await self._purge_known()
            await self._purge_listed()
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

    async def _ask(self, call: Call) -> Reply:
        (reply,) = await self._store.send([call])
        check_identity(self._crawl.name, [self._number], [reply])
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
            reply = await self._ask(self._call(self._shard, self._keys.identity, place, [len(some), *some, *prints]))
            gone += int(reply[1])
            self.removed.add(seen=int(reply[2]))
        return gone

    def _call(self, of: ShardKeys, identity: str, place: str, words: Sequence[Argument]) -> Call:
        keys = (of.stats, of.waiting, of.dead, of.lost, of.base)
        return script_call(FORGET_URLS, keys, identity, self._domain, place, *words)

    async def _seen(self, urls: Sequence[str]) -> list[bool]:
        """Whether the seen-set has each of `urls`."""
        if not urls:
            return []
        (buckets,) = await self._store.send([command("HGET", self._shard.stats, "buckets")])
        prints = [self._fingerprint(url) for url in urls]
        names = (self._shard.seen(seen_bucket(one, int(buckets or 1))) for one in prints)
        calls = [command("SISMEMBER", name, one) for name, one in zip(names, prints, strict=True)]
        return [bool(reply) for reply in await asked(self._store, calls)]

    def _url(self, raw: bytes) -> str:
        return parse_entry(raw.decode(), self._domain, 0.0).url

    # what is named after the domain

    async def _purge_queue(self) -> None:
        for place, key in (("q", self._shard.queue(self._domain)), ("inflight", self._shard.inflight(self._domain))):
            at = gone = 0
            while True:
                (entries,) = await self._store.send([command("ZRANGE", key, at, at + CHUNK - 1)])
                if not entries:
                    break
                gone += await self._remove(place, entries, [self._url(entry) for entry in entries])
                at += CHUNK if self._is_dry else 0
            if place == "q":
                self.removed.add(queued=gone)
            else:
                self.removed.add(leased=gone)

    async def _purge_blocks(self) -> None:
        (names,) = await self._store.send([command("ZRANGE", self._shard.blocks(self._domain), 0, -1)])
        for name in names:
            (contents,) = await self._store.send([command("GET", self._shard.block(name.decode(), self._domain))])
            urls = [self._url(entry) for _, entry in rows_of(contents)] if contents is not None else []
            if self._is_dry:
                await self._remove("", [], urls)
                self.removed.add(queued=len(urls))
                continue
            prints = [self._fingerprint(url) for url in urls]
            reply = await self._ask(self._call(self._shard, self._keys.identity, "block", [1, name, *prints]))
            self.removed.add(queued=int(reply[1]))
            self.removed.add(seen=int(reply[2]))

    async def _purge_known(self) -> None:
        async for buckets in self._known(self._shard.known(self._domain)):
            urls = [page.entry.url for _, records in buckets for page in pages_in(records, self._domain)]
            await self._remove("", [], urls)
            gone = len(urls)
            if not self._is_dry:
                names = [bucket for bucket, _ in buckets]
                reply = await self._ask(self._call(self._shard, self._keys.identity, "known", [len(names), *names]))
                gone = int(reply[1])
            self.removed.add(known=gone)

    async def _known(self, key: str) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        """The buckets of known pages of a domain, some at a time, with their names; some of them perhaps more than once."""
        cursor: int | None = None
        while cursor != 0:
            ((following, flat),) = await self._store.send([command("HSCAN", key, cursor or 0, "COUNT", BUCKETS)])
            cursor = int(following)
            yield list(flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True))

    # what is listed among others

    async def _purge_listed(self) -> None:
        pattern = f"{escaped(self._domain)}\n*"
        async for members in self._scan("ZSCAN", self._shard.waiting, pattern):
            gone = await self._remove("waiting", members, [self._url(member.split(b"\n", 2)[2]) for member in members])
            self.removed.add(waiting=gone)
        async for members in self._scan("HSCAN", self._shard.dead, pattern):
            gone = await self._remove("dead", members, [self._url(member.partition(b"\n")[2]) for member in members])
            self.removed.add(dead=gone)

    async def _purge_lost(self) -> None:
        """`lost` has "token LF entry". Most entries do not name their domain; of those, the ones are removed whose URL
        at this domain was seen. After a reshard, the shards of former layouts still have theirs, until they expire."""
        shards = [(self._shard, self._keys.identity)]
        tokens = self._crawl.last_tokens
        layouts = (self._crawl.keys_of(tokens[:number], self._crawl.shards) for number in range(len(tokens)))
        former = {of.layout: frozen(of) for of in layouts}
        if former:
            async for page in pages_of_all(self._store, self._crawl.name, self._keys.shards):
                lost = ((number, key.shard) for number, key in page if key.name == "lost" and number in former)
                shards += [(shard_keys(self._crawl.name, at, number), former[number]) for number, at in lost]
        for of, its_identity in shards:
            async for members in self._scan("ZSCAN", of.lost, "*"):
                urls = [self._url(member.partition(b"\n")[2]) for member in members]
                ours = [
                    member
                    for member, url, is_seen in zip(members, urls, await self._seen(urls), strict=True)
                    if is_seen and is_of(url, self._domain)
                ]
                for at in range(0, len(ours), CHUNK):
                    some = ours[at : at + CHUNK]
                    self.removed.add(lost=len(some))
                    self._lost.update(some)
                    if not self._is_dry:
                        await self._store.send([self._call(of, its_identity, "lost", [len(some), *some])])

    async def _purge_outboxes(self) -> None:
        for number, of in enumerate(self._keys.shards):
            async for members in self._scan("ZSCAN", of.outbox, f"*\n{escaped(self._domain)}\n*"):
                self.removed.add(outbox=len(members))
                if not self._is_dry:
                    call = script_call(REMOVE_FROM_OUTBOX, (of.outbox, of.stats), self._keys.identity, *members)
                    check_identity(self._crawl.name, [number], await self._store.send([call]))

    async def _scan(self, verb: str, key: str, pattern: str) -> AsyncIterator[list[bytes]]:
        """The members of `key` that match `pattern`, some at a time; some of them perhaps more than once."""
        cursor: int | None = None
        while cursor != 0:
            words = (verb, key, cursor or 0, "MATCH", pattern, "COUNT", SCAN_COUNT)
            ((following, found),) = await self._store.send([command(*words)])
            cursor = int(following)
            members = list(found.keys() if isinstance(found, dict) else found[::2])
            for at in range(0, len(members), CHUNK):
                yield members[at : at + CHUNK]

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
            if changes := sum(before != after for before, after in zip(rows, stripped, strict=True)):
                self.removed.add(found_on=changes - 1)
                # The name stays: it tells the number of entries, and the hash in it only has to be unique.
                await self._replace(key, [(contents, block_of(stripped, 0).contents)])
            return
        if key.first == "known":
            async for buckets in self._known(key.whole):
                for bucket, records in buckets:
                    after, found_on = without_via(records, lambda via: is_of(via, self._domain))
                    await self._replace(key, [(bucket + b"\n" + records, after)] if found_on else [])
                    self.removed.add(found_on=found_on - 1 if found_on else 0)
            return
        verb = "HSCAN" if key.first == "dead" else "ZSCAN"
        async for members in self._scan(verb, key.whole, f"* *{escaped(self._domain)}*"):
            others = (member for member in members if self._domain.encode() not in member.split(b"\n")[:2])
            others = (member for member in others if member not in self._lost)
            changed = [(member, after) for member in others if (after := self._without_via(member)) != member]
            await self._replace(key, changed)

    def _without_via(self, member: bytes) -> bytes:
        """`member`, which ends in an entry, without the page where its URL was found, if that is of the domain."""
        rest, _, more = member.partition(b" ")
        origin, _, visit = more.partition(b" ")
        via, tab, tag = origin.partition(b"\t")
        if not via or not is_of(via.decode(), self._domain):
            return member
        kept = tab + tag
        return b"%b %b %b" % (rest, kept, visit) if visit else b"%b %b" % (rest, kept) if kept else rest

    async def _replace(self, key: Key, changed: Sequence[tuple[bytes, bytes]]) -> None:
        of = self._keys.shards[key.shard]
        self.removed.add(found_on=len(changed))
        if changed and not self._is_dry:
            words = [word for before, after in changed for word in (key.name, before, after)]
            call = script_call(FORGET_VIA, (of.stats, of.base), self._keys.identity, *words)
            check_identity(self._crawl.name, [key.shard], await self._store.send([call]))
