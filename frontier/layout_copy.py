"""Copies the contents of frozen shards to the shards of a new layout, and compares how many there are: the long step of a
reshard.

The seen-sets are copied by the names of their buckets. A single server copies whole buckets by itself if a crawl gets more
shards, and sends their union if it gets fewer. All other keys are found page by page with SCAN. Of these, a single
server copies most queues by itself. Up to four pages are copied at the same time, so that the server reads and writes while
this process divides what it has read. Copying again what was copied before changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from itertools import chain, islice

from frontier.blocks import size_of
from frontier.crawls import Crawl
from frontier.domains import shard_of
from frontier.errors import CrawlLost, CrawlResharded, RedisMisused
from frontier.key_pages import AT_ONCE, asked, key_count, pages
from frontier.lookup import seen_bucket
from frontier.redis_keys import CrawlKeys, ShardKeys
from frontier.scripts import ADD_COPIED, COPY_KEYS
from frontier.shard_contents import CHUNK, EXPIRING, LEFT_BEHIND, SEEN, Division, Key, Part, stats_of
from frontier.store import Argument, Call, Store, command, script_call

PAGES_AT_ONCE = 4
"""Pages, or parts of seen-sets, that are copied at a time. Each may hold some megabytes."""

BUCKETS_AT_ONCE = 64
"""Buckets of seen-sets that are read in one round trip, or copied in one call. Each has about 5 KB as text, and 2 KB in the
server."""

UNITED = 32
"""Buckets of which a server sends the union in one call, which takes about 1 ms."""

LONGEST = 4_000
"""URLs of the longest queue that the server copies in one call, because it does nothing else meanwhile."""

SAMPLED, MOST_SAMPLED = 4, 10_000
"""To estimate how many different fingerprints there are: buckets that are read of the largest shard, and the most
fingerprints that are kept of all that are read."""

ESTIMATED_AT_ONCE = 64
"""New shards whose number of buckets is estimated at a time."""

FILL = 208
"""The mean number of members of a bucket, as in `lua/push.lua`."""

Tell = Callable[[str, int, int], None]
"""Is called with the step, and how many of how many keys are done. The steps: "begun" (the crawl stands still from now on),
"waiting" (so many leases are left), "copied", "comparing", "switched", "removed" (old keys), "undone" (keys of a copy)."""


class LayoutCopy:
    """Copies the shards of `old`, which are frozen, to those of `filled`, which have the identity of shards that are being
    filled. All methods raise RedisAway."""

    def __init__(self, store: Store, crawl: Crawl, old: CrawlKeys, filled: CrawlKeys) -> None:
        self._store = store
        self._crawl = crawl
        self._old = old.shards
        self._layout = old.layout
        self._filled = filled
        self._division = Division(len(old.shards), len(filled.shards), {})
        self._can_copy = False

    async def run(self, last_token: int, tell: Tell) -> None:
        """Copy everything, and compare. The new shards give out tokens above `last_token`. Raises CrawlLost if the copy is
        not equal, and CrawlResharded if the reshard was undone, or another command continues it."""
        buckets = await self._buckets(self._old)
        seen = await self._sizes(buckets)
        self._division = self._division._replace(buckets=await self._buckets_of(buckets))
        total, done = await key_count(self._store, self._old), 0

        def note(keys: int) -> None:
            nonlocal done
            done += keys
            tell("copied", min(done, total), total)

        self._can_copy = await self._try_to_copy()
        has_more = self._division.after > self._division.before
        copies = self._bucket_copies if self._can_copy and has_more else self._seen_copies
        await self._side_by_side(copies(dict(buckets)), note)
        await self._side_by_side(self._page_copies(), note)
        tell("copied", done, done)
        tell("comparing", 0, 0)
        await self._write_stats(await self._compared(seen), last_token)

    async def _side_by_side(
        self, copies: AsyncIterator[Coroutine[None, None, int]], note: Callable[[int], None]
    ) -> None:
        """Carry out `copies`, some at a time, and note how many keys each has copied."""
        at_work: set[asyncio.Task[int]] = set()
        try:
            async for one in copies:
                at_work.add(asyncio.create_task(one))
                while len(at_work) >= PAGES_AT_ONCE:
                    finished, at_work = await asyncio.wait(at_work, return_when=asyncio.FIRST_COMPLETED)
                    note(sum(await asyncio.gather(*finished)))
            note(sum(await asyncio.gather(*at_work)))
        finally:
            for task in at_work:
                task.cancel()
            await asyncio.gather(*at_work, return_exceptions=True)

    # the seen-sets

    async def _try_to_copy(self) -> bool:
        """Whether the servers of all old shards can copy their keys to the new ones. The nodes of a cluster cannot, nor can
        some services that look like a single server. Some of these shards may have the same slot, so all are tried."""
        pairs = [(shard, target) for shard in range(len(self._old)) for target in self._division.targets_of(shard)]
        try:
            await self._call([self._key_copy(shard, target, ["none"]) for shard, target in pairs])
        except RedisMisused:  # CROSSSLOT, or a user that may not call COPY
            return False
        return True

    async def _buckets_of(self, buckets: Sequence[tuple[ShardKeys, int]]) -> Mapping[int, int]:
        """The number of buckets of each new shard. One that has a single old shard gets the same buckets as that. Several
        old shards may have most fingerprints in common, so it is estimated how many different ones they have."""
        families = [*self._division.families()]
        if self._division.after > self._division.before:
            return {target: buckets[shard][1] for (shard,), targets in families for target in targets}
        made: dict[int, int] = {}
        for at in range(0, len(families), ESTIMATED_AT_ONCE):
            some = families[at : at + ESTIMATED_AT_ONCE]
            counts = await asyncio.gather(*(self._different([buckets[shard] for shard in of]) for of, _ in some))
            made |= {target: max(1, -(-count // FILL)) for (_, (target,)), count in zip(some, counts, strict=True)}
        return made

    async def _different(self, sets: Sequence[tuple[ShardKeys, int]]) -> int:
        """About how many different fingerprints are in `sets` (shard, number of its buckets), mostly within a tenth. Only
        those count that would be in the first of `step` buckets. If these are more than `MOST_SAMPLED`, `step` doubles
        (adaptive sampling, Flajolet 1990)."""
        step = max(1, _power_of_two(max(count for _, count in sets)) // SAMPLED)
        names = [of.seen(at) for of, count in sets for at in range(0, count, min(step, _power_of_two(count)))]
        found: set[bytes] = set()
        for at in range(0, len(names), AT_ONCE):
            for members in await self._store.send([command("SMEMBERS", name) for name in names[at : at + AT_ONCE]]):
                found |= _one_in(step, members)
            while len(found) > MOST_SAMPLED:
                step *= 2
                found = _one_in(step, found)
        return len(found) * step

    async def _bucket_copies(self, buckets: Mapping[ShardKeys, int]) -> AsyncIterator[Coroutine[None, None, int]]:
        """Copies of all seen-sets by whole buckets."""
        for shard, of in enumerate(self._old):
            for first in range(0, buckets[of], BUCKETS_AT_ONCE):
                yield self._copy_buckets(shard, range(first, min(first + BUCKETS_AT_ONCE, buckets[of])))

    async def _copy_buckets(self, shard: int, numbers: range) -> int:
        """Copy the buckets `numbers` of the old `shard`, and return how many there are."""
        names = [f"{SEEN}:{number}" for number in numbers]
        await self._call([self._key_copy(shard, target, names) for target in self._division.targets_of(shard)])
        return len(numbers)

    def _key_copy(self, shard: int, target: int, names: Sequence[str]) -> Call:
        of = self._filled.shards[target]
        keys = (of.stats, of.base, self._old[shard].base)
        return script_call(COPY_KEYS, keys, self._filled.identity, *names)

    async def _can_unite(self) -> bool:
        """Whether a server can send the union of buckets of several shards. The nodes of a cluster cannot."""
        try:
            await self._store.send([command("SUNION", *(of.seen(0) for of in self._old[:UNITED]))])
        except RedisMisused:  # CROSSSLOT, or a user that may not call SUNION
            return False
        return True

    async def _seen_copies(self, buckets: Mapping[ShardKeys, int]) -> AsyncIterator[Coroutine[None, None, int]]:
        """Copies of all seen-sets. Old shards that were one shard before have most fingerprints in common. So buckets that
        may have the same ones are read together, and these are written once."""
        united = UNITED if await self._can_unite() else 1
        for sources, targets in self._division.families():
            sets = [(self._old[shard], buckets[self._old[shard]]) for shard in sources]
            common = _power_of_two(min(count for _, count in sets))
            alike: dict[int, list[str]] = defaultdict(list)
            for of, count in sets:
                for bucket in range(count):
                    alike[bucket % common].append(of.seen(bucket))
            groups = [names[at : at + united] for names in alike.values() for at in range(0, len(names), united)]
            at_once = BUCKETS_AT_ONCE // len(groups[0])
            for at in range(0, len(groups), at_once):
                yield self._copy_seen(groups[at : at + at_once], targets)

    async def _copy_seen(self, groups: Sequence[Sequence[str]], targets: Sequence[int]) -> int:
        """Copy the buckets with the names in `groups` to all `targets`, and return their number."""
        calls = [command("SUNION" if len(names) > 1 else "SMEMBERS", *names) for names in groups]
        members = await self._store.send(calls)
        different = dict.fromkeys(chain.from_iterable(members))  # in order: a server adds ascending integers fastest
        await self._write(self._division.seen_parts(targets, different))
        return sum(map(len, groups))

    # all other keys

    async def _page_copies(self) -> AsyncIterator[Coroutine[None, None, int]]:
        async for page in pages(self._store, self._crawl.name, self._old, self._layout):
            yield self._copy_page([key for key in page if key.first != SEEN and key.shard < len(self._old)])

    async def _copy_queues(self, page: Sequence[Key]) -> frozenset[Key]:
        """Have the server copy those queues of `page` that are not too long for one call, and return these."""
        queues = [key for key in page if key.first == "q"]
        sizes = await asked(self._store, [command("ZCARD", key.whole) for key in queues])
        whole = [key for key, size in zip(queues, sizes, strict=True) if size <= LONGEST]
        places = ((key, shard_of(key.domain, self._division.after)) for key in whole)
        await self._call([self._key_copy(key.shard, target, [key.name]) for key, target in places])
        return frozenset(whole)

    async def _copy_page(self, page: Sequence[Key]) -> int:
        """Copy the keys of `page`, and return their number."""
        whole = await self._copy_queues(page) if self._can_copy else frozenset()
        reads = [(key, 0) for key in page if key.name not in LEFT_BEHIND and key not in whole]
        expiring = [key for key, _ in reads if key.first in EXPIRING]
        calls = [command("PEXPIRETIME", key.whole) for key in expiring]
        expires: dict[Key, int] = {}
        while reads:
            replies = await self._store.send([*calls, *(key.read(cursor) for key, cursor in reads)])
            if calls:
                expires = {key: max(0, ms) for key, ms in zip(expiring, replies, strict=False)}
            parts: list[Part] = []
            following = []
            for (key, cursor), reply in zip(reads, replies[len(calls) :], strict=True):
                rows, next_cursor = key.parsed(cursor, reply)
                parts += self._division.parts(key, rows, expires.get(key, 0))
                if next_cursor:
                    following.append((key, next_cursor))
            await self._write(parts)
            reads, calls = following, []
        return len(page)

    async def _write(self, parts: Iterable[Part]) -> None:
        calls: list[tuple[int, list[Argument]]] = []
        for part in sorted(parts, key=lambda part: part.target):
            for at in range(0, len(part.words), 2 * CHUNK):
                words = part.words[at : at + 2 * CHUNK]
                section = (part.name, part.verb, part.expires_ms, len(words), *words)
                if not calls or calls[-1][0] != part.target or len(calls[-1][1]) > 2 * CHUNK:
                    calls.append((part.target, []))
                calls[-1][1].extend(section)
        for start in range(0, len(calls), AT_ONCE):
            some = calls[start : start + AT_ONCE]
            keys = [self._filled.shards[target] for target, _ in some]
            await self._call(
                [
                    script_call(ADD_COPIED, (of.stats, of.base), self._filled.identity, *words)
                    for of, (_, words) in zip(keys, some, strict=True)
                ]
            )

    async def _call(self, calls: Sequence[Call]) -> None:
        """Carry out `calls` of scripts that write to new shards. Raises CrawlResharded if one was refused."""
        if any(reply[0] == b"lost" for reply in await asked(self._store, calls)):
            raise CrawlResharded(
                f"the reshard of crawl {self._crawl.name!r} was undone or taken over by another command meanwhile, or a "
                "Redis server has lost its data"
            )

    # comparing

    async def _buckets(self, shards: Sequence[ShardKeys]) -> list[tuple[ShardKeys, int]]:
        replies = await asked(self._store, [command("HGET", of.stats, "buckets") for of in shards])
        return [(of, int(reply or 1)) for of, reply in zip(shards, replies, strict=True)]

    async def _sizes(self, buckets: Sequence[tuple[ShardKeys, int]]) -> list[int]:
        """The number of fingerprints in each shard with so many buckets."""
        sizes: list[int] = []
        for at in range(0, len(buckets), AT_ONCE):  # all calls at once could take a gigabyte
            part = buckets[at : at + AT_ONCE]
            calls = [command("SCARD", of.seen(bucket)) for of, count in part for bucket in range(count)]
            replies = iter(await asked(self._store, calls))
            sizes += (sum(islice(replies, count)) for _, count in part)
        return sizes

    async def _compared(self, seen: Sequence[int]) -> list[dict[str, int]]:
        """The numbers of open and seen URLs of each new shard. Raises CrawlLost if the numbers of URLs are not those of the
        old shards. Where old shards may have the same fingerprint or link, only bounds are known. Files of robots.txt,
        delays and records of known pages are not compared."""
        old, new = self._old, self._filled.shards
        for verb, name in (("ZCARD", "due"), ("ZCARD", "waiting"), ("HLEN", "dead"), ("ZCARD", "revisits")):
            before = sum(await asked(self._store, [command(verb, of.base + name) for of in old]))
            if before != sum(await asked(self._store, [command(verb, of.base + name) for of in new])):
                raise self._unequal(name)
        waiting = await asked(self._store, [command("ZCARD", of.waiting) for of in new])
        queued, arrived = await self._queued(old), await self._queued(new)
        if sum(queued) != sum(arrived):
            raise self._unequal("q")
        totals = await self._stats()
        settled = sum(int(stats.get(name, 0)) for stats in totals for name in (b"done", b"denied", b"dead"))
        if sum(int(stats.get(b"accepted", 0)) for stats in totals) != settled + sum(arrived) + sum(waiting):
            raise self._unequal("accepted")
        buckets = self._division.buckets
        copied = await self._sizes([(of, buckets[at]) for at, of in enumerate(new)])
        for target, size in enumerate(copied):
            sources = [seen[shard] for shard in self._division.sources_of(target)]
            if not max(sources) <= size <= sum(sources):
                raise self._unequal("seen")
        outboxes = await self._compared_outboxes()
        return [
            {"open": later + here, "seen": size, "buckets": buckets[target], "outbox": links}
            for target, (later, here, size, links) in enumerate(zip(waiting, arrived, copied, outboxes, strict=True))
        ]

    async def _compared_outboxes(self) -> list[int]:
        """The number of links in the outbox of each new shard. Old shards may have kept the same links."""
        kept, arrived = [
            await asked(self._store, [command("ZCARD", of.outbox) for of in shards])
            for shards in (self._old, self._filled.shards)
        ]
        for target, size in enumerate(arrived):
            sources = kept[target :: self._division.after]
            if not max(sources, default=0) <= size <= sum(sources):
                raise self._unequal("outbox")
        return arrived

    def _unequal(self, name: str) -> CrawlLost:
        return CrawlLost(
            f"crawl {self._crawl.name!r}: the copy of {name!r} is not equal to the original, so nothing was switched; "
            "undo it with `crawler reshard --cancel`, and run the command again"
        )

    async def _packed(self, shards: Sequence[ShardKeys], domains: Sequence[tuple[int, str]]) -> list[tuple[int, int]]:
        """For each block of `domains` (number of the shard, domain): the number of its shard, and of the URLs in it, 0 if
        it is not there."""
        listed = await asked(
            self._store, [command("ZRANGE", shards[number].blocks(domain), 0, -1) for number, domain in domains]
        )
        blocks = [
            (number, domain, name.decode())
            for (number, domain), names in zip(domains, listed, strict=True)
            for name in names
        ]
        there = await asked(
            self._store, [command("EXISTS", shards[number].block(name, domain)) for number, domain, name in blocks]
        )
        return [(number, size_of(name) * is_there) for (number, _, name), is_there in zip(blocks, there, strict=True)]

    async def _queued(self, shards: Sequence[ShardKeys]) -> list[int]:
        """The number of queued URLs of each of `shards`."""
        totals = [0] * len(shards)
        left = [(number, 0) for number in range(len(shards))]
        while left:
            some, left = left[:AT_ONCE], left[AT_ONCE:]
            replies = await self._store.send(
                [command("ZRANGE", shards[number].due, at, at + CHUNK - 1) for number, at in some]
            )
            found = [(number, domain) for (number, _), reply in zip(some, replies, strict=True) for domain in reply]
            sizes = await asked(
                self._store, [command("ZCARD", shards[number].queue(domain.decode())) for number, domain in found]
            )
            for (number, _), size in zip(found, sizes, strict=True):
                totals[number] += size
            for number, size in await self._packed(shards, [(number, domain.decode()) for number, domain in found]):
                totals[number] += size
            left += [(n, at + CHUNK) for (n, at), reply in zip(some, replies, strict=True) if len(reply) == CHUNK]
        return totals

    async def _stats(self) -> list[dict[bytes, bytes]]:
        replies = await asked(self._store, [command("HGETALL", of.stats) for of in self._old])
        return [
            reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True)) for reply in replies
        ]

    async def _write_stats(self, counted: Sequence[dict[str, int]], last_token: int) -> None:
        sources: dict[int, list[dict[bytes, bytes]]] = defaultdict(list)
        for shard, stats in enumerate(await self._stats()):
            sources[shard % self._division.after].append(stats)
        parts = []
        for target in range(self._division.after):
            fields = stats_of(sources[target], counted[target])
            words = [word for pair in fields.items() for word in pair]
            parts += [Part(target, "stats", "HSET", 0, words), Part(target, "owner", "HSET", 0, ("token", last_token))]
        await self._write(parts)


def _power_of_two(number: int) -> int:
    """The largest power of two that is not above `number`. Linear hashing (`lua/push.lua`) puts fingerprints that are equal
    modulo it into buckets whose numbers are equal modulo it, whatever the number of buckets."""
    return int(1 << (number.bit_length() - 1))


def _one_in(step: int, fingerprints: Iterable[bytes]) -> set[bytes]:
    """Those of `fingerprints` that are in the first of `step` buckets, a power of two."""
    return {one for one in fingerprints if not seen_bucket(int(one), step)}
