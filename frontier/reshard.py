"""Gives a crawl another number of shards (`crawler reshard`).

The shards of each layout have keys of their own, so the old ones stay as they are until the new ones are complete:

1. `begin`: nobody opens the crawl from now on. Replicas return their leases, which takes some seconds, and wait. Then all
   old shards are frozen: leases that are left end, and nothing is queued, leased or settled in them any more.
2. `copy`: the contents are copied to the new shards, and their numbers compared (`LayoutCopy`). Then the new
   shards get the identity with which replicas use them, and the servers sync all this.
3. `switch`: one script lets the crawl use the new shards.
4. `open`: replicas may open the crawl again. They do so by themselves.
5. `clean`: the old keys are removed. Replicas do not use them.

A command that was killed is run again. Before the switch, the next command removes what was copied, and copies again, since
the old shards stay frozen. After it, the next command continues. Until the switch, the reshard can be cancelled.

Any call may arrive late, when its command has given it up, and in the middle of a later reshard. So each command claims
its reshard and gets a number. The shards that it fills have that number in their keys, so no two commands write to the
same ones. Other calls that could do harm name the claim, too, and are refused if it is not the last one
(`lua/begin_reshard.lua`). Fingerprints do not tell their domain: see the decision 0015.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from itertools import chain, islice

from frontier import scripts
from frontier.clock import Clock, ServerClock
from frontier.control import Control
from frontier.counters import SETTLED, Counters
from frontier.crawls import Crawl
from frontier.domains import shard_of
from frontier.errors import BadInput, CrawlLost, CrawlResharded, RedisAway, RedisMisused, ShardLost
from frontier.keys import (
    ATTEMPTS,
    CrawlKeys,
    ShardKeys,
    layout_number,
    owners_table,
    tokens_of,
    was_made_until,
    with_identity,
)
from frontier.packing import size_of
from frontier.peers import owners_fields
from frontier.queue import seen_bucket
from frontier.scripts import ADD_COPIED, COPY_KEYS, Argument, Call, Reply, command, script_call
from frontier.shard_contents import (
    CHUNK,
    EXPIRING,
    LEFT_BEHIND,
    SEEN,
    Division,
    Key,
    Part,
    key_count,
    pages,
    pages_of_all,
    stats_of,
)
from frontier.shards import check_identity, frozen, identify_shards, lost_shards, shard_call, until_synced
from frontier.store import AT_ONCE, Store, ask, batched, fields_of

PAGES_AT_ONCE = 4
"""Pages, or parts of seen-sets, that are copied at a time. Each may hold some megabytes."""

BUCKETS_AT_ONCE = 64
"""Buckets of seen-sets that are read in one round trip, or copied in one call. Each has about 5 KB as text, and 2 KB in the
server."""

LONGEST = 4_000
"""URLs of the longest queue that the server copies in one call, because it does nothing else meanwhile."""

SAMPLED = 4
"""Buckets of the largest shard that are read to estimate how many different fingerprints there are."""

FILL = 208
"""The mean number of members of a bucket, as in `lua/push.lua`."""

Tell = Callable[[str, int, int], None]
"""Is called with the step, and how many of how many keys are done. The steps: "begun" (the crawl stands still from now on),
"waiting" (so many leases are left), "copied", "comparing", "switched", "removed" (old keys), "undone" (keys of a copy)."""


class LayoutCopy:
    """Copies the shards of `old`, which are frozen, to those of `filled`. All methods raise RedisAway."""

    def __init__(self, store: Store, crawl: Crawl, old: CrawlKeys, filled: CrawlKeys) -> None:
        self._store = store
        self._crawl = crawl
        self._old = old.shards
        self._layout = old.layout
        self._filled = filled
        self._division = Division(len(old.shards), len(filled.shards))
        self._buckets: Mapping[int, int] = {}  # of each new shard
        self._can_copy = False

    async def run(self, last_token: int, tell: Tell) -> None:
        """Copy everything, and compare. The new shards give out tokens above `last_token`. Raises CrawlLost if the copy is
        not equal, and CrawlResharded if the reshard was undone, or another command continues it."""
        buckets = await self._bucket_counts()
        seen = await self._sizes(buckets)
        self._buckets = await self._buckets_of(buckets)
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
        return {
            target: max(1, -(-await self._different([buckets[shard] for shard in sources]) // FILL))
            for sources, (target,) in families
        }

    async def _different(self, sets: Sequence[tuple[ShardKeys, int]]) -> int:
        """About how many fingerprints differ in `sets` (shard, number of buckets), mostly within a tenth, in one of
        `step`."""
        step = max(1, _power_of_two(max(count for _, count in sets)) // SAMPLED)
        names = [of.seen(at) for of, count in sets for at in range(0, count, min(step, _power_of_two(count)))]
        found: set[bytes] = set()
        for part in batched(names, AT_ONCE):
            for members in await self._store.send([command("SMEMBERS", name) for name in part]):
                found.update(one for one in members if not seen_bucket(int(one), step))
        return len(found) * step

    async def _bucket_copies(self, buckets: Mapping[ShardKeys, int]) -> AsyncIterator[Coroutine[None, None, int]]:
        for shard, of in enumerate(self._old):
            for numbers in batched(range(buckets[of]), BUCKETS_AT_ONCE):
                yield self._copy_buckets(shard, [f"{SEEN}:{number}" for number in numbers])

    async def _copy_buckets(self, shard: int, names: Sequence[str]) -> int:
        await self._call([self._key_copy(shard, target, names) for target in self._division.targets_of(shard)])
        return len(names)

    def _key_copy(self, shard: int, target: int, names: Sequence[str]) -> Call:
        of = self._filled.shards[target]
        keys = (of.stats, of.base, self._old[shard].base)
        return script_call(COPY_KEYS, keys, self._filled.identity, *names)

    async def _seen_copies(self, buckets: Mapping[ShardKeys, int]) -> AsyncIterator[Coroutine[None, None, int]]:
        """Copies of all seen-sets. Old shards that were one shard before have most fingerprints in common. So buckets that
        may have the same ones are read together, and these are written once."""
        for sources, targets in self._division.families():
            sets = [(self._old[shard], buckets[self._old[shard]]) for shard in sources]
            common = _power_of_two(min(count for _, count in sets))
            alike: dict[int, list[str]] = defaultdict(list)
            for of, count in sets:
                for bucket in range(count):
                    alike[bucket % common].append(of.seen(bucket))
            together: list[str] = []
            for names in alike.values():
                together += names
                if len(together) >= BUCKETS_AT_ONCE:
                    yield self._copy_seen(together, targets)
                    together = []
            yield self._copy_seen(together, targets)

    async def _copy_seen(self, names: Sequence[str], targets: Sequence[int]) -> int:
        """Copy the buckets `names` to all `targets`, which get nothing else, so that theirs are the same."""
        divided = defaultdict[int, list[Argument]](list)
        for part in batched(names, AT_ONCE):
            members = await self._store.send([command("SMEMBERS", name) for name in part])
            for fingerprint in dict.fromkeys(chain.from_iterable(members)):  # a server adds ascending integers fastest
                divided[seen_bucket(int(fingerprint), self._buckets[targets[0]])].append(fingerprint)
        await self._write(
            Part(target, f"{SEEN}:{bucket}", "SADD", 0, words)
            for bucket, words in divided.items()
            for target in targets
        )
        return len(names)

    # all other keys

    async def _page_copies(self) -> AsyncIterator[Coroutine[None, None, int]]:
        async for page in pages(self._store, self._crawl.name, self._old, self._layout):
            yield self._copy_page([key for key in page if key.first != SEEN and key.shard < len(self._old)])

    async def _copy_queues(self, page: Sequence[Key]) -> frozenset[Key]:
        """Have the server copy those queues of `page` that are not too long for one call, and return these."""
        queues = [key for key in page if key.first == "q"]
        sizes = await ask(self._store, [command("ZCARD", key.whole) for key in queues])
        whole = [key for key, size in zip(queues, sizes, strict=True) if size <= LONGEST]
        places = ((key, shard_of(key.domain, self._division.after)) for key in whole)
        await self._call([self._key_copy(key.shard, target, [key.name]) for key, target in places])
        return frozenset(whole)

    async def _copy_page(self, page: Sequence[Key]) -> int:
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
            for words in batched(part.words, 2 * CHUNK):
                if not calls or calls[-1][0] != part.target or len(calls[-1][1]) > 2 * CHUNK:
                    calls.append((part.target, []))
                calls[-1][1].extend((part.name, part.verb, part.expires_ms, len(words), *words))
        for some in batched(calls, AT_ONCE):
            await self._call([shard_call(ADD_COPIED, self._filled, target, *words) for target, words in some])

    async def _call(self, calls: Sequence[Call]) -> None:
        """Carry out `calls` of scripts that write to new shards. Raises CrawlResharded if one was refused."""
        if any(reply[0] == b"lost" for reply in await ask(self._store, calls)):
            raise CrawlResharded(
                f"the reshard of crawl {self._crawl.name!r} was undone or taken over by another command meanwhile, or a "
                "Redis server has lost its data"
            )

    # comparing

    async def _bucket_counts(self) -> list[tuple[ShardKeys, int]]:
        replies = await ask(self._store, [command("HGET", of.stats, "buckets") for of in self._old])
        return [(of, int(reply or 1)) for of, reply in zip(self._old, replies, strict=True)]

    async def _sizes(self, buckets: Sequence[tuple[ShardKeys, int]]) -> list[int]:
        sizes: list[int] = []
        for part in batched(buckets, AT_ONCE):  # all calls at once could take a gigabyte
            calls = [command("SCARD", of.seen(bucket)) for of, count in part for bucket in range(count)]
            replies = iter(await ask(self._store, calls))
            sizes += (sum(islice(replies, count)) for _, count in part)
        return sizes

    async def _compared(self, seen: Sequence[int]) -> list[dict[str, int]]:
        """The numbers of open and seen URLs of each new shard. Raises CrawlLost if the numbers of URLs are not those of the
        old shards. Where old shards may have the same fingerprint or link, only bounds are known. Files of robots.txt,
        delays and records of known pages are not compared."""
        old, new = self._old, self._filled.shards
        for verb, name in (("ZCARD", "due"), ("ZCARD", "waiting"), ("HLEN", "dead"), ("ZCARD", "revisits")):
            before = sum(await ask(self._store, [command(verb, of.base + name) for of in old]))
            if before != sum(await ask(self._store, [command(verb, of.base + name) for of in new])):
                raise self._unequal(name)
        waiting = await ask(self._store, [command("ZCARD", of.waiting) for of in new])
        queued, arrived = await self._queued(old), await self._queued(new)
        if sum(queued) != sum(arrived):
            raise self._unequal("q")
        totals = await self._stats()
        settled = sum(int(stats.get(name.encode(), 0)) for stats in totals for name in SETTLED)
        if sum(int(stats.get(b"accepted", 0)) for stats in totals) != settled + sum(arrived) + sum(waiting):
            raise self._unequal("accepted")
        buckets = self._buckets
        copied = await self._sizes([(of, buckets[at]) for at, of in enumerate(new)])
        for target, size in enumerate(copied):
            sources = [seen[shard] for shard in self._division.sources_of(target)]
            if not max(sources) <= size <= sum(sources):
                raise self._unequal("seen")
        kept, outboxes = [
            await ask(self._store, [command("ZCARD", of.outbox) for of in shards]) for shards in (old, new)
        ]
        for target, links in enumerate(outboxes):  # old shards may have kept the same links
            sources = kept[target :: self._division.after]
            if not max(sources, default=0) <= links <= sum(sources):
                raise self._unequal("outbox")
        return [
            {"open": later + here, "seen": size, "buckets": buckets[target], "outbox": links}
            for target, (later, here, size, links) in enumerate(zip(waiting, arrived, copied, outboxes, strict=True))
        ]

    def _unequal(self, name: str) -> CrawlLost:
        return CrawlLost(
            f"crawl {self._crawl.name!r}: the copy of {name!r} is not equal to the original, so nothing was switched; "
            "undo it with `crawler reshard --cancel`, and run the command again"
        )

    async def _queued(self, shards: Sequence[ShardKeys]) -> list[int]:
        totals = [0] * len(shards)
        left = [(number, 0) for number in range(len(shards))]
        while left:
            some, left = left[:AT_ONCE], left[AT_ONCE:]
            pages = await self._store.send(
                [command("ZRANGE", shards[number].due, at, at + CHUNK - 1) for number, at in some]
            )
            due = [(number, name.decode()) for (number, _), page in zip(some, pages, strict=True) for name in page]
            sizes = await ask(self._store, [command("ZCARD", shards[number].queue(domain)) for number, domain in due])
            listed = await ask(
                self._store, [command("ZRANGE", shards[number].blocks(domain), 0, -1) for number, domain in due]
            )
            blocks = [(*of, name.decode()) for of, names in zip(due, listed, strict=True) for name in names]
            there = await ask(
                self._store, [command("EXISTS", shards[number].block(name, domain)) for number, domain, name in blocks]
            )
            for (number, _), size in zip(due, sizes, strict=True):
                totals[number] += size
            for (number, _, name), is_there in zip(blocks, there, strict=True):
                totals[number] += size_of(name) * is_there
            left += [(n, at + CHUNK) for (n, at), page in zip(some, pages, strict=True) if len(page) == CHUNK]
        return totals

    async def _stats(self) -> list[dict[bytes, bytes]]:
        return [
            fields_of(reply) for reply in await ask(self._store, [command("HGETALL", of.stats) for of in self._old])
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


RECENT_MS, AGAIN_S = 60_000, 30.0
"""Replicas work if they have settled a URL within so many milliseconds before the reshard. Their next one is awaited for so
many seconds after it."""


LEASES_END_S = 8.0
"""How long the command waits for leases to end, in seconds: up to two until replicas notice the reshard, five for their
requests in flight (`crawler.app.replica`), and one to settle them."""

QUIET_S = 3.0
"""How long after the restart of a server nothing is frozen, in seconds: replicas repeat their last writes meanwhile."""

LOOK_S = 0.1
"""Seconds between two looks whether all leases have ended."""

REPORT_S = 1.0
"""Seconds between two reports of the progress, by which other commands know that this one is alive (BUSY_MS in
`lua/begin_reshard.lua`)."""

KEPT_MS = 3 * 86_400_000 + 3_600_000
"""How long it stays known what was settled under old leases, as in `lua/lost_writes.lua`, and an hour."""


TOKENS_AHEAD = 10_000
"""How far the tokens of old leases may be above those in the shards: see `lua/lost_writes.lua`."""

RESHARD_STEP = ("resharding", "reshard_may_switch", "reshard_progress")
"""The fields of the key `meta` that are there during a reshard."""


class Reshard:
    """Gives `crawl` another number of `shards`. `clocks`: of this machine, and crawl time; `delay_ms`: of domains that have
    none of their own. All methods raise RedisAway. Then open the crawl again, and make another object
    from it, as `crawler reshard` does when it is run again: a step may have been carried out."""

    def __init__(
        self, store: Store, crawl: Crawl, clocks: tuple[Clock, ServerClock], shards: int, delay_ms: int
    ) -> None:
        self._store = store
        self._crawl = crawl
        self._local_clock, self._clock = clocks
        self._delay_ms = delay_ms
        is_switched = bool(crawl.former)
        self._tokens = crawl.last_tokens[:-1] if is_switched else crawl.last_tokens
        self._old = crawl.keys_of(self._tokens, crawl.former or crawl.shards)
        self._after = crawl.shards if is_switched else shards
        self._frozen = with_identity(self._old, frozen(self._old))
        self._command = secrets.token_hex(8)
        self._claimed = crawl.reshard_claims
        self._progress = (0, 0)
        self._runs: list[tuple[str, str]] = []  # before the shards were frozen
        self._began_ms = self._clock.now_ms()

    def _new(self, last_token: int) -> CrawlKeys:
        return self._crawl.keys_of((*self._tokens, last_token), self._after)

    @property
    def _shards(self) -> Sequence[ShardKeys]:
        return [*self._old.shards, *self._new(self._claimed).shards]

    # until the shards are frozen

    async def begin(self, tell: Tell) -> None:
        """Let replicas end their leases, and freeze the crawl. Raises ShardLost, and CrawlResharded for another
        command."""
        lost = await lost_shards(self._store, self._old)
        if gone := [shard for shard, found in lost.items() if found != self._frozen.identity]:
            raise ShardLost(self._crawl.name, gone)
        await self._check_forgotten()
        await self._claim()
        tell("begun", 0, 0)
        await self._until_synced()
        await self._check_claim()  # a server may have lost it; then nobody may freeze for it
        await self._until_leases_end(tell)
        self._runs = await self._servers()
        left = list(range(len(self._old.shards)))
        while left:
            part = left[:AT_ONCE]
            replies = await self._store.send([self._freeze(shard) for shard in part])
            check_identity(self._crawl.name, part, replies)
            if any(reply[0] == b"cancelled" for reply in replies):
                raise self._overtaken()
            left = [shard for shard, reply in zip(part, replies, strict=True) if reply[1]] + left[AT_ONCE:]

    async def _check_forgotten(self) -> None:
        """Raises BadInput if a domain is being forgotten: its URLs are in some keys of its shard, and not in others."""
        control = Control(self._store, self._old)
        await control.refresh()
        if control.rules.half_forgotten:
            undo = "undo the reshard with `crawler reshard --cancel`, and " if self._crawl.resharding else ""
            raise BadInput(
                f"a domain of crawl {self._crawl.name!r} is being forgotten, or `crawler forget` was interrupted: {undo}"
                "repeat that command, which completes it, before the crawl gets other shards"
            )

    async def _claim(self) -> None:
        first: int | None = None
        while True:
            words = (_field(self._tokens), self._after, self._command, self._clock.now_ms(), self._claimed)
            (reply,) = await self._store.send([script_call(scripts.BEGIN_RESHARD, [self._old.meta], *words)])
            if reply[0] != b"busy":
                self._check_meta(reply)
                self._claimed = int(reply[1])
                return
            if first is not None and int(reply[1]) != first:
                raise CrawlResharded(f"another command is resharding crawl {self._crawl.name!r}; see `crawler status`")
            first = int(reply[1])  # its command may have been killed just now
            await self._local_clock.sleep(REPORT_S)

    async def _until_leases_end(self, tell: Tell) -> None:
        now = self._local_clock.monotonic
        deadline, quiet_at = now() + LEASES_END_S, 0.0
        runs = await self._servers()
        while True:
            leases = sum(await ask(self._store, [command("ZCARD", of.leases) for of in self._old.shards]))
            tell("waiting", leases, 0)
            latest = await self._servers()
            if latest != runs:
                runs, quiet_at = latest, now() + QUIET_S
            if now() >= quiet_at and (not leases or now() >= deadline):
                return
            await self._local_clock.sleep(LOOK_S)

    def _freeze(self, shard: int) -> Call:
        what = (self._frozen.identity, self._clock.now_ms(), self._delay_ms, self._claimed)
        return shard_call(scripts.FREEZE_SHARD, self._old, shard, *what)

    async def _servers(self) -> list[tuple[str, str]]:
        keys = [self._old.meta, *(of.base for of in self._shards)]
        nodes = {self._store.node_of(key): key for key in keys}
        await self._store.send([command("EXISTS", key) for key in nodes.values()])
        return [(self._store.node_of(key), self._store.run_of(key)) for key in keys]

    # the copy

    async def copy(self, tell: Tell) -> int:
        """Copy everything, compare, and return the last token of the old layout. Raises CrawlLost if they differ."""

        def note(step: str, done: int, total: int) -> None:
            if step == "copied":
                self._progress = done, total
            tell(step, done, total)

        await self._remove_attempts(self._claimed - 1, _tell_nobody)
        last_token = await self._last_token()
        new = self._new(last_token)
        filled = with_identity(new, f"{new.identity}:filling")
        await identify_shards(self._store, filled, range(self._after))
        await self._check_claim()  # if this attempt has ended, removes that identity; later, whoever ends it does
        try:
            await LayoutCopy(self._store, self._crawl, self._old, filled).run(last_token, note)
            await identify_shards(self._store, new, range(self._after), former=filled.identity)
            await self._until_synced()
        except CrawlLost:
            await self._check_servers()  # otherwise the copy would be equal
            await self._check_claim()
            raise
        await self._check_servers()
        return last_token

    async def _last_token(self) -> int:
        """A token above those of all old leases, which tells the claim (`keys.ATTEMPTS`)."""
        tokens = await ask(self._store, [command("HGET", of.owner, "token") for of in self._old.shards])
        least = max(self._clock.now_ms(), *(int(token or 0) for token in tokens)) + TOKENS_AHEAD
        return (least // ATTEMPTS + 1) * ATTEMPTS + self._claimed % ATTEMPTS

    async def _remove_attempts(self, last: int, tell: Tell) -> None:
        """Remove what commands with claims up to `last` left in new shards. They can switch no more."""
        tokens = self._crawl.last_tokens
        used = {layout_number(tokens[:number]) for number in range(1 + len(tokens))}
        if last < 1 or (tokens and not 0 < (last - tokens[-1]) % ATTEMPTS < ATTEMPTS // 2):
            return  # no other command has begun since the present layout was made
        removed = 0
        # The identities first: without them, nothing more arrives from a command that is still at work.
        for removes_all in (False, True):
            async for page in pages_of_all(self._store, self._crawl.name):
                keys = [key for number, key in page if number not in used and was_made_until(number, last)]
                gone = [key.whole for key in keys if removes_all or key.name == "stats"]
                await ask(self._store, [command("UNLINK", key) for key in gone])
                removed += len(gone)
                tell("undone", removed, removed)

    async def _check_servers(self) -> None:
        """Raises RedisAway if a server was replaced since the shards were frozen, or since a cancel began."""
        if await self._servers() != self._runs:
            raise RedisAway("a Redis server was restarted or replaced meanwhile; run the command again")

    async def _check_claim(self) -> None:
        """Raises CrawlResharded if the reshard was undone, or if another command has claimed it. If the crawl still has the
        old layout, what this command has copied is removed. If not, a server may have lost this claim, and another
        command have got its number, and the crawl uses what that one has copied."""
        fields = command("HMGET", self._old.meta, "reshard_may_switch", "reshard_claims", "last_tokens")
        ((may_switch, claims, tokens),) = await self._store.send([fields])
        has_not_switched = tokens_of(tokens) == self._tokens
        if not has_not_switched or not may_switch or int(claims) != self._claimed:
            if has_not_switched:
                await self._remove_attempts(self._claimed, _tell_nobody)
            raise self._overtaken()

    async def _until_synced(self) -> None:
        await until_synced(self._store, self._local_clock, self._old, [of.base for of in self._shards])

    @contextlib.asynccontextmanager
    async def reported(self) -> AsyncIterator[None]:
        """Report the progress every `REPORT_S` inside the block, once `begin` has begun."""
        task = asyncio.create_task(self._report())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            done, total = self._progress
            text = f"{done} {total} {self._clock.now_ms()} {self._command}"
            with contextlib.suppress(RedisAway, RedisMisused):  # the command itself reports it
                await self._store.send([script_call(scripts.REPORT_RESHARD, [self._old.meta], text)])

    # the end

    async def switch(self, last_token: int) -> None:
        """Let the crawl use the new shards, which `copy` has filled."""
        words = (_field(self._tokens), self._after, last_token, self._claimed)
        call = script_call(scripts.SWITCH_LAYOUT, [self._old.meta], *words)
        self._check_meta((await self._store.send([call]))[0])

    async def open(self, last_token: int) -> None:
        """Let replicas open the crawl again, once the servers keep the switch: what is leased from the new shards must not
        outlive it. Raises ShardLost for shards that were lost since they were filled, which `crawler repair` can restore
        from then on."""
        await self._until_synced()
        (known,) = await self._store.send([command("HGET", self._old.meta, "last_tokens")])
        ours, found = (*self._tokens, last_token), tokens_of(known)
        if found[: len(ours)] != ours:
            raise RedisAway("a Redis server was restarted, and has lost the last step; run the command again")
        lost = await lost_shards(self._store, self._new(last_token))
        await self._end_step((*self._tokens, last_token), *RESHARD_STEP)
        if lost:
            raise ShardLost(self._crawl.name, lost.keys())

    async def clean(self, last_token: int, tell: Tell) -> None:
        """Remove the old keys, except those that tell what was settled under old leases; they expire."""
        old, self._runs = self._old.shards, await self._servers()
        await self._remove_old(tell)
        calls = [command("PEXPIRE", key, KEPT_MS) for of in old for key in (of.owner, of.lost, of.stats)]
        calls += [command("HDEL", of.owner, "granted") for of in old]  # it names domains, and nobody leases here again
        calls.append(command("HDEL", f"{self._old.peers}:owners", *owners_fields(owners_table(self._old.layout))))
        await ask(self._store, calls)
        await self._remove_attempts(self._claimed - 1, _tell_nobody)
        await self._until_synced()  # otherwise the old keys could come back, and nobody would know of them
        # SCAN does not find all keys of a server that was replaced, or of a slot that moves.
        await self._check_servers()
        # Also the fields of the step before: a server may have lost that it had ended.
        await self._end_step((*self._tokens, last_token), *RESHARD_STEP, "former")

    async def standstill_ms(self, last_token: int) -> int | None:
        """How long no replica settled a URL, in milliseconds: from the last one with the old shards to the first one with
        the new shards, for which this waits. None if no replica worked before, none does within `AGAIN_S`, or nothing is
        left to settle. Raises ShardLost."""
        clock, new = self._local_clock, self._new(last_token)
        before = max(await self._settled_ms(self._old))
        if before < self._began_ms - RECENT_MS:
            return None
        deadline, counters = clock.monotonic() + AGAIN_S, Counters(self._store, new)
        while True:
            is_last = await counters.has_ended() or clock.monotonic() >= deadline
            if later := [ms for ms in await self._settled_ms(new) if ms > before]:
                return min(later) - before
            if is_last:
                return None
            await clock.sleep(LOOK_S)

    async def _settled_ms(self, keys: CrawlKeys) -> list[int]:
        return [
            int(ms or 0) for ms in await ask(self._store, [command("HGET", of.stats, "last_ms") for of in keys.shards])
        ]

    async def cancel(self, tell: Tell) -> None:
        """Undo a reshard. Raises CrawlResharded if there is none, or it has switched."""
        call = script_call(scripts.CANCEL_RESHARD, [self._old.meta], _field(self._tokens), self._claimed)
        (reply,) = await self._store.send([call])
        self._check_meta(reply)
        self._after, self._claimed = int(reply[1]), int(reply[2])
        self._runs = await self._servers()
        await self._remove_attempts(self._claimed, tell)
        lost = await lost_shards(self._store, self._old)
        gone = {shard for shard, found in lost.items() if found != self._frozen.identity}
        whole = [shard for shard in range(len(self._old.shards)) if shard not in gone]
        await identify_shards(self._store, self._old, whole, self._frozen.identity, cancelled=reply[2].decode())
        await self._until_synced()
        await self._check_servers()
        await self._end_step(self._tokens, *RESHARD_STEP)
        await self._until_synced()  # otherwise the crawl could stand still again, and nobody would know why

    async def _remove_old(self, tell: Tell) -> None:
        keys, kept = self._frozen, LEFT_BEHIND - {"acked"}
        done, total = 0, await key_count(self._store, keys.shards)
        async for page in pages(self._store, keys.crawl, keys.shards, keys.layout):
            names: dict[int, list[str]] = defaultdict(list)
            for key in page:
                if key.name not in kept and key.shard < len(keys.shards):
                    names[key.shard].append(key.name)
            calls = [shard_call(scripts.REMOVE_COPIED, keys, shard, *some) for shard, some in names.items()]
            await ask(self._store, calls)
            done += len(page)
            tell("removed", min(done, total), total)
        tell("removed", total, total)

    async def _end_step(self, tokens: Sequence[int], *fields: str) -> None:
        call = script_call(scripts.END_RESHARD, [self._old.meta], _field(tokens), self._claimed, *fields)
        self._check_meta((await self._store.send([call]))[0])

    def _check_meta(self, reply: Reply) -> None:
        if reply[0] == b"other":
            raise self._overtaken()

    def _overtaken(self) -> CrawlResharded:
        return CrawlResharded(
            f"the reshard of crawl {self._crawl.name!r} was undone, or another command continues it or has completed it; "
            "see `crawler status`"
        )


def _tell_nobody(step: str, done: int, total: int) -> None: ...


def _field(last_tokens: Sequence[int]) -> str:
    return " ".join(map(str, last_tokens))


async def open_with_new_shards(work: Reshard, crawl: Crawl, tell: Tell) -> int:
    """Carry out `work` or what is left of it, without `Reshard.clean`. Returns the last token of the old shards."""
    if crawl.former:
        last_token = crawl.last_tokens[-1]
    else:
        async with work.reported():
            await work.begin(tell)
            last_token = await work.copy(tell)
            await work.switch(last_token)
    if not crawl.former or crawl.resharding:
        tell("switched", 0, 0)
    await work.open(last_token)
    return last_token
