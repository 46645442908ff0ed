"""Gives a crawl another number of shards.

The shards of each layout have keys of their own, so the old ones stay as they are until the new ones are complete:

1. `begin`: nobody opens the crawl from now on. All old shards are frozen: leases end, and every script refuses them.
2. `copy`: the contents are copied to the new shards, and compared.
3. `switch`: one script lets the crawl use the new shards.
4. `clean`: the old keys are removed. Replicas may run meanwhile, because they do not use these keys.

A command that was killed is run again. Up to the switch, it copies again from the start, which changes nothing that was
copied. After it, it continues. Fingerprints do not tell their domain: see the decision 0015.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from frontier.clock import ServerClock
from frontier.crawls import Crawl
from frontier.errors import BadInput, CrawlLost, CrawlResharded, RedisAway, ShardLost
from frontier.keys import CrawlKeys, ShardKeys, with_identity
from frontier.pipelining import send_in_parts
from frontier.scripts import ARRIVE, BEGIN_RESHARD, END_RESHARD, FORGET, FREEZE_SHARD, SWITCH_LAYOUT
from frontier.shard_contents import CHUNK, LEFT_BEHIND, Division, Key, Part, stats_of
from frontier.shards import check_identity, identify_shards, lost_shards
from frontier.store import Argument, Call, Reply, Store, command, script_call

MOST_SHARDS = 16_384

PAGE = 200
"""Keys found in one step."""

AT_ONCE = 128
"""Calls in one round trip."""

FILL = 208
"""The mean number of members of a bucket, as in `lua/push.lua`."""

TOKENS_AHEAD = 10_000
"""How far the tokens of old leases may be above those in the shards: see `lua/lost_tail.lua`."""

DURABLE_S = 1.5
"""How long before the switch all copies were written, in seconds: servers write to disk once a second by default."""

KEPT_MS = 3 * 86_400_000 + 3_600_000
"""How long it stays known what was settled under old leases, as in `lua/lost_tail.lua`, and an hour."""

Tell = Callable[[str, int, int], None]
"""Is called with the step, and how many of how many keys are done."""


def check_numbers(before: int, after: int) -> None:
    """Raises BadInput unless a crawl with `before` shards can get `after`."""
    if not 1 <= after <= MOST_SHARDS:
        raise BadInput(f"{after} shards: use 1 to {MOST_SHARDS}")
    if after == before:
        raise BadInput(f"the crawl has {before} shards already")
    if before % after and after % before:
        raise BadInput(f"{after} shards: use a multiple of {before}, or a number that divides {before}")


class Reshard:
    """Gives `crawl` `shards` shards. All methods raise RedisAway, and may then be repeated. `delay_ms`: delay of domains
    that have none of their own."""

    def __init__(self, store: Store, crawl: Crawl, clock: ServerClock, shards: int, delay_ms: int) -> None:
        self._store = store
        self._crawl = crawl
        self._clock = clock
        self._delay_ms = delay_ms
        is_switched = bool(crawl.former)
        self._tokens = crawl.last_tokens[:-1] if is_switched else crawl.last_tokens
        self._old = crawl.keys_of(self._tokens, crawl.former or crawl.shards)
        self._after = crawl.shards if is_switched else shards
        self._frozen = with_identity(self._old, f"{self._old.identity}:moved")

    def _new(self, last_token: int) -> CrawlKeys:
        return self._crawl.keys_of((*self._tokens, last_token), self._after)

    async def begin(self) -> None:
        """Freeze the crawl. Raises ShardLost, and CrawlResharded if another command is changing its number of shards."""
        lost = await lost_shards(self._store, self._old)
        if gone := [shard for shard, found in lost.items() if found != self._frozen.identity]:
            raise ShardLost(self._crawl.name, gone)
        call = script_call(BEGIN_RESHARD, [self._old.meta], _field(self._tokens), self._after)
        self._check_meta(await self._store.send([call]))
        left = list(range(len(self._old.shards)))
        while left:
            part = left[:AT_ONCE]
            replies = await self._store.send([self._freeze(self._old.shards[shard]) for shard in part])
            check_identity(self._crawl.name, part, replies)
            left = [shard for shard, reply in zip(part, replies, strict=True) if reply[1]] + left[AT_ONCE:]

    def _freeze(self, of: ShardKeys) -> Call:
        keys = (of.stats, of.due, of.leases, of.dead, of.lost, of.base)
        return script_call(
            FREEZE_SHARD, keys, self._old.identity, self._frozen.identity, self._clock.now_ms(), self._delay_ms
        )

    async def copy(self, tell: Tell) -> int:
        """Copy everything, compare, and return the last token of the old layout. Raises CrawlLost if the copy is not
        equal."""
        old, new = self._old.shards, self._new(0)
        filled = with_identity(new, f"{new.identity}:filling")
        await identify_shards(self._store, filled, range(self._after))
        servers = await self._servers([*old, *new.shards])
        seen = await self._sizes([self._seen_keys(one) for one in await self._buckets(old)])
        division = Division(len(old), self._after, self._buckets_of(seen))
        total = await self._key_count(old)
        done = 0
        async for page in self._pages(old, len(self._tokens) + 1):
            await self._copy_page(filled, division, [key for key in page if key.name not in LEFT_BEHIND])
            done += len(page)
            tell("copied", done, total)
            await self._store.send([command("HSET", self._old.meta, "reshard_progress", f"{done} {total}")])
        counted = await self._compared(filled, division, seen)
        last_token = await self._write_stats(filled, division, counted)
        await asyncio.sleep(DURABLE_S)
        if await self._servers([*old, *new.shards]) != servers:
            raise RedisAway(
                "a Redis server was restarted or replaced while the crawl was copied; run the command again"
            )
        return last_token

    def _buckets_of(self, seen: Sequence[int]) -> dict[int, int]:
        division = Division(len(seen), self._after, {})
        return {
            target: max(1, -(-sum(seen[shard] for shard in division.sources_of(target)) // FILL))
            for target in range(self._after)
        }

    async def _servers(self, shards: Sequence[ShardKeys]) -> list[tuple[str, str]]:
        """The node of each shard, and its run."""
        ends = {self._store.node_of(of.base): of.base for of in shards}
        await self._store.send([command("EXISTS", base) for base in ends.values()])
        return [(self._store.node_of(of.base), self._store.run_of(of.base)) for of in shards]

    async def _key_count(self, shards: Sequence[ShardKeys]) -> int:
        ends = {self._store.node_of(of.base): of.base for of in shards}
        return sum(await self._store.send([Call(("DBSIZE",), at=base) for base in ends.values()]))

    async def _pages(self, shards: Sequence[ShardKeys], layout: int) -> AsyncIterator[list[Key]]:
        """All keys of `shards`, which are those of `layout`, some of them more than once."""
        crawl = self._crawl.name
        suffix = "" if layout == 1 else f"@{layout}"
        form = re.compile(rf"\{{{re.escape(crawl)}:(\d+){suffix}\}}:(.*)".encode(), re.DOTALL)
        ends = {self._store.node_of(of.base): of.base for of in shards}
        pattern = f"{{{crawl}:*}}:*"
        for base in ends.values():
            cursor: int | None = None
            while cursor != 0:
                ((following, found),) = await self._store.send(
                    [Call(("SCAN", cursor or 0, "MATCH", pattern, "COUNT", PAGE), at=base)]
                )
                cursor = int(following)
                matches = ((form.fullmatch(key), key) for key in found)
                yield [Key(int(match[1]), match[2].decode(), key.decode()) for match, key in matches if match]

    async def _copy_page(self, filled: CrawlKeys, division: Division, page: Sequence[Key]) -> None:
        reads = [(key, 0) for key in page]
        expiries = await self._store.send([command("PEXPIRETIME", key.whole) for key in page]) if page else []
        expires = {key: max(0, ms) for key, ms in zip(page, expiries, strict=True)}
        while reads:
            replies = await self._store.send([key.read(cursor) for key, cursor in reads])
            parts: list[Part] = []
            following = []
            for (key, cursor), reply in zip(reads, replies, strict=True):
                rows, next_cursor = key.parsed(cursor, reply)
                parts += division.parts(key, rows, expires[key])
                if next_cursor:
                    following.append((key, next_cursor))
            await self._write(filled, parts)
            reads = following

    async def _write(self, filled: CrawlKeys, parts: Iterable[Part]) -> None:
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
            keys = [filled.shards[target] for target, _ in some]
            replies = await self._store.send(
                [
                    script_call(ARRIVE, (of.stats, of.base), filled.identity, *words)
                    for of, (_, words) in zip(keys, some, strict=True)
                ]
            )
            self._check_filled(replies)

    # comparing

    async def _buckets(self, shards: Sequence[ShardKeys]) -> list[tuple[ShardKeys, int]]:
        replies = await self._asked([command("HGET", of.stats, "buckets") for of in shards])
        return [(of, int(reply or 1)) for of, reply in zip(shards, replies, strict=True)]

    def _seen_keys(self, one: tuple[ShardKeys, int]) -> list[Call]:
        of, buckets = one
        return [command("SCARD", of.seen(bucket)) for bucket in range(buckets)]

    async def _sizes(self, calls: Sequence[Sequence[Call]]) -> list[int]:
        """The sum of the replies to each of `calls`."""
        replies = iter(await self._asked([call for of in calls for call in of]))
        return [sum(next(replies) for _ in of) for of in calls]

    async def _asked(self, calls: Sequence[Call]) -> list[Reply]:
        replies: list[Reply] = []
        parts = (calls[at : at + AT_ONCE] for at in range(0, len(calls), AT_ONCE))
        await send_in_parts(self._store.send, parts, replies.extend)
        return replies

    async def _compared(self, filled: CrawlKeys, division: Division, seen: Sequence[int]) -> list[dict[str, int]]:
        """The numbers of open and seen URLs of each new shard. Raises CrawlLost if the copy is not complete."""
        old, new = self._old.shards, filled.shards
        for verb, name in (("ZCARD", "due"), ("ZCARD", "waiting"), ("HLEN", "dead"), ("ZCARD", "outbox")):
            before = sum(await self._asked([command(verb, of.base + name) for of in old]))
            if before != sum(await self._asked([command(verb, of.base + name) for of in new])):
                raise self._unequal(name)
        opened = await self._asked([command("ZCARD", of.waiting) for of in new])
        queued = [await self._queued(of) for of in old]
        arrived = [await self._queued(of) for of in new]
        if sum(queued) != sum(arrived):
            raise self._unequal("q")
        totals = await self._stats(old)
        settled = sum(int(stats.get(name, 0)) for stats in totals for name in (b"done", b"denied", b"dead"))
        if sum(int(stats.get(b"accepted", 0)) for stats in totals) != settled + sum(arrived) + sum(opened):
            raise self._unequal("accepted")
        copied = await self._sizes([self._seen_keys((of, division.buckets[at])) for at, of in enumerate(new)])
        for target, size in enumerate(copied):
            sources = [seen[shard] for shard in division.sources_of(target)]
            if not max(sources) <= size <= sum(sources):
                raise self._unequal("seen")
        return [
            {"open": waiting + here, "seen": size, "buckets": division.buckets[target]}
            for target, (waiting, here, size) in enumerate(zip(opened, arrived, copied, strict=True))
        ]

    def _unequal(self, name: str) -> CrawlLost:
        return CrawlLost(
            f"crawl {self._crawl.name!r}: the copy of {name!r} is not equal to the original, so nothing was switched; "
            "check whether a Redis server was restarted, and run the command again"
        )

    async def _queued(self, of: ShardKeys) -> int:
        """The number of queued URLs of a shard."""
        total, cursor = 0, 0
        while True:
            (domains,) = await self._store.send([command("ZRANGE", of.due, cursor, cursor + CHUNK - 1)])
            total += sum(await self._asked([command("ZCARD", of.queue(domain.decode())) for domain in domains]))
            cursor += CHUNK
            if len(domains) < CHUNK:
                return total

    async def _stats(self, shards: Sequence[ShardKeys]) -> list[dict[bytes, bytes]]:
        replies = await self._asked([command("HGETALL", of.stats) for of in shards])
        return [
            reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True)) for reply in replies
        ]

    async def _write_stats(self, filled: CrawlKeys, division: Division, counted: Sequence[dict[str, int]]) -> int:
        old = self._old.shards
        tokens = await self._asked([command("HGET", of.owner, "token") for of in old])
        last_token = max(self._clock.now_ms(), *(int(token or 0) for token in tokens)) + TOKENS_AHEAD
        sources: dict[int, list[dict[bytes, bytes]]] = defaultdict(list)
        for shard, stats in enumerate(await self._stats(old)):
            sources[shard % self._after].append(stats)
        parts = []
        for target in range(self._after):
            fields = stats_of(sources[target], counted[target])
            words = [word for pair in fields.items() for word in pair]
            parts += [Part(target, "stats", "HSET", 0, words), Part(target, "owner", "HSET", 0, ("token", last_token))]
        await self._write(filled, parts)
        return last_token

    # the end

    async def switch(self, last_token: int) -> None:
        """Let the crawl use the new shards, which `copy` has filled."""
        call = script_call(SWITCH_LAYOUT, [self._old.meta], _field(self._tokens), self._after, last_token)
        self._check_meta(await self._store.send([call]))

    async def open(self, last_token: int) -> None:
        """Let replicas open the crawl again."""
        new = self._new(last_token)
        known = (new.identity, f"{new.identity}:filling")
        lost = await lost_shards(self._store, new)
        if gone := [shard for shard, found in lost.items() if found not in known]:
            raise ShardLost(self._crawl.name, gone)
        await identify_shards(self._store, new, range(self._after), former=f"{new.identity}:filling")
        await self._end_step(last_token, "resharding", "reshard_progress")

    async def clean(self, last_token: int, tell: Tell) -> None:
        """Remove the old keys, except those that tell what was settled under old leases; they expire."""
        old = self._old.shards
        done, total = 0, await self._key_count(old)
        async for page in self._pages(old, len(self._tokens) + 1):
            names: dict[int, list[str]] = defaultdict(list)
            for key in page:
                if key.name not in LEFT_BEHIND - {"acked"}:
                    names[key.shard].append(key.name)
            await self._asked(
                [
                    script_call(FORGET, (old[shard].stats, old[shard].base), self._frozen.identity, *some)
                    for shard, some in names.items()
                ]
            )
            done += len(page)
            tell("removed", done, total)
        await self._asked([command("PEXPIRE", key, KEPT_MS) for of in old for key in (of.owner, of.lost, of.stats)])
        await self._end_step(last_token, "former")

    async def _end_step(self, last_token: int, *fields: str) -> None:
        call = script_call(END_RESHARD, [self._old.meta], _field((*self._tokens, last_token)), *fields)
        self._check_meta(await self._store.send([call]))

    def _check_meta(self, replies: Sequence[Reply]) -> None:
        if replies[0][0] == b"other":
            raise CrawlResharded(
                f"another command is changing or has changed the number of shards of crawl {self._crawl.name!r}"
            )

    def _check_filled(self, replies: Sequence[Reply]) -> None:
        if any(reply[0] == b"lost" for reply in replies):
            raise CrawlResharded(
                f"another command has resharded crawl {self._crawl.name!r} meanwhile, or a Redis server has lost its data; "
                "run the command again"
            )


def _field(last_tokens: Sequence[int]) -> str:
    return " ".join(map(str, last_tokens))


async def reshard_crawl(work: Reshard, crawl: Crawl, tell: Tell) -> None:
    """Carry out `work`, or what is left of it, on `crawl`."""
    if crawl.former:
        last_token = crawl.last_tokens[-1]
    else:
        await work.begin()
        last_token = await work.copy(tell)
        await work.switch(last_token)
    await work.open(last_token)
    await work.clean(last_token, tell)
