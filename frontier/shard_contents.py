"""What a shard contains, and how to find all of it.

A new key of a shard belongs in one of these tables. One that is in none of them stops the reshard, so nothing is left
behind unnoticed. What is compared after the copy is listed in `LayoutCopy`, and what of the old keys is kept for a while in
`Reshard.clean`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal, NamedTuple

from frontier.counters import SETTLED
from frontier.crawls import Crawl
from frontier.domains import shard_of
from frontier.errors import RedisMisused
from frontier.keys import ShardKeys, shard_keys
from frontier.scripts import Argument, Call, Reply, command
from frontier.store import Store, count_in, scan

Kind = Literal["zset", "hash", "string"]

SEEN, OUTBOX, BLOCK = "seen", "outbox", "block"

DOMAIN_KEYS: Mapping[str, Kind] = {
    **dict.fromkeys(("q", "blocks", "visits"), "zset"),
    **dict.fromkeys(("d", "robots", "known"), "hash"),
    BLOCK: "string",
}
"""Keys named after a domain, which move as they are: first part of the name -> type."""

EXPIRING = frozenset({"robots", "d"})
"""The first parts of the names of keys that may expire."""

SHARD_KEYS: Mapping[str, tuple[Kind, Callable[[bytes], bytes]]] = {
    "due": ("zset", lambda member: member),
    "urgent": ("zset", lambda member: member),
    "revisits": ("zset", lambda member: member),
    "waiting": ("zset", lambda member: member.partition(b"\n")[0]),
    "dead": ("hash", lambda field: field.partition(b"\n")[0]),
}
"""Keys whose members each belong to a domain: name -> type, and the domain of a member."""

LEFT_BEHIND = frozenset({"owner", "stats", "lost", "acked"})
"""Keys that do not move. `stats` is computed again. `owner` and `lost` tell later what was settled under the old leases."""

CHUNK = 500
"""Members or URLs in one call, which then takes about 1 ms."""

BUCKETS = 20
"""Buckets of known pages read in one call. Each has about 5 KB."""

_VERBS: Mapping[Kind, str] = {"zset": "ZADD", "hash": "HSET", "string": "SET"}


class Key(NamedTuple):
    """A key of the old layout: its shard, its name without prefix, and the whole. Seen-sets are copied otherwise."""

    shard: int
    name: str
    whole: str

    @property
    def first(self) -> str:
        return self.name.partition(":")[0]

    @property
    def domain(self) -> str:
        """The domain that the key is named after."""
        return self.name.split(":", 2)[2] if self.first == BLOCK else self.name.partition(":")[2]

    @property
    def kind(self) -> Kind:
        if self.first == OUTBOX:
            return "zset"
        if self.first in DOMAIN_KEYS:
            return DOMAIN_KEYS[self.first]
        if self.name in SHARD_KEYS:
            return SHARD_KEYS[self.name][0]
        raise RedisMisused(f"{self.whole}: this version does not know the key; reshard with the version that wrote it")

    def read(self, cursor: int) -> Call:
        """Read some members from `cursor` on, which is 0 at first."""
        if self.kind == "zset":
            return command("ZRANGE", self.whole, cursor, cursor + CHUNK - 1, "WITHSCORES")
        if self.kind == "hash":
            return command("HSCAN", self.whole, cursor, "COUNT", BUCKETS if self.first == "known" else CHUNK)
        return command("GET", self.whole)

    def parsed(self, cursor: int, reply: Reply) -> tuple[list[tuple[bytes, ...]], int]:
        """The words of each member in the reply to `read(cursor)`, as they are written, and the next cursor, or 0."""
        if self.kind == "string":
            return [] if reply is None else [(reply,)], 0  # another command may have completed the reshard
        if self.kind == "hash":
            following, flat = reply
            return _rows(flat[::2], flat[1::2]), int(following)
        rows = _rows(reply[1::2], reply[::2])
        return rows, cursor + CHUNK if len(rows) == CHUNK else 0


def _rows(first: Reply, second: Reply) -> list[tuple[bytes, ...]]:
    return list(zip(first, second, strict=True))


class Part(NamedTuple):
    """Words of a command that adds to a key of the new layout. `expires_ms`: 0 for never."""

    target: int
    name: str
    verb: str
    expires_ms: int
    words: Sequence[Argument]


class Division(NamedTuple):
    """How the contents of `before` shards are divided among `after`. One of the two is a multiple of the other."""

    before: int
    after: int

    def targets_of(self, shard: int) -> range:
        """The new shards of the domains of `shard`."""
        return range(shard % self.after, self.after, self.before)

    def sources_of(self, target: int) -> range:
        """The old shards of the domains of `target`."""
        return range(target % self.before, self.before, self.after)

    def families(self) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        """Old and new shards such that each new one needs all fingerprints of each old one."""
        for shard in range(min(self.before, self.after)):
            yield self.sources_of(shard), self.targets_of(shard)

    def parts(self, key: Key, rows: Iterable[tuple[bytes, ...]], expires_ms: int) -> Iterator[Part]:
        """Where the members `rows` of `key`, which is not one of the seen-set, belong."""
        divided = defaultdict[tuple[int, str], list[Argument]](list)
        if key.first == OUTBOX:
            for _, member in rows:
                home = shard_of(member.split(b"\n", 2)[1].decode(), self.after)
                divided[key.shard % self.after, OUTBOX] += (home, member)
        elif key.name in SHARD_KEYS:
            for row in rows:
                divided[self._home(key, row), key.name] += row
        elif moved := list(chain.from_iterable(rows)):
            divided[shard_of(key.domain, self.after), key.name] += moved
        for (target, name), words in divided.items():
            yield Part(target, name, _VERBS[key.kind], expires_ms, words)

    def _home(self, key: Key, row: tuple[bytes, ...]) -> int:
        domain = SHARD_KEYS[key.name][1](row[1] if key.kind == "zset" else row[0])
        return shard_of(domain.decode(), self.after)


def stats_of(sources: Sequence[Mapping[bytes, bytes]], counted: Mapping[str, int]) -> dict[str, int | str]:
    """The counters of a new shard that continues those of `sources`. `counted`: its `open` URLs, the links in its `outbox`,
    and `seen` and `buckets` of its seen-set. Accepted minus settled is the number of open URLs, and outboxed minus
    delivered that of links, as in each shard (`frontier.counters`)."""
    stats: dict[str, int] = defaultdict(int)
    for source in sources:
        for name, number in ((name.decode(errors="replace"), count_in(value)) for name, value in source.items()):
            if name in ("crawl", "seen", "buckets", "accepted", "forgotten", "wrong_type"):
                continue
            if name == "first_ms":
                stats[name] = min(stats.get(name, number), number)
            elif name == "last_ms":
                stats[name] = max(stats[name], number)
            else:
                stats[name] += number
    settled = sum(stats.get(name, 0) for name in SETTLED)
    outboxed = stats.get("delivered", 0) + counted["outbox"]
    made: dict[str, int | str] = {**stats, "accepted": settled + counted["open"]}
    if outboxed:
        made["outboxed"] = outboxed  # two sources may have kept the same link
    # A mark does not tell the shard of its domain, so each new shard gets those of all its sources.
    if marks := {mark.decode() for source in sources for mark in source.get(b"forgotten", b"").split()}:
        made["forgotten"] = " ".join(sorted(marks))
    return {**made, "seen": counted["seen"], "buckets": counted["buckets"]}


PAGE = 200
"""Keys found in one step."""

PROBES = 4096
"""Names of shards by which the nodes of a cluster are found: enough for some hundred nodes."""


def nodes_of(store: Store, shards: Sequence[ShardKeys] | None = None) -> list[str]:
    """A key of each node that serves some of `shards`; without these, of all nodes."""
    if shards is None:
        shards = [shard_keys("", number) for number in range(PROBES)]
    return list({store.node_of(of.base): of.base for of in shards}.values())


async def key_count(store: Store, shards: Sequence[ShardKeys]) -> int:
    """How many keys the nodes of `shards` have."""
    return sum(await store.send([Call(("DBSIZE",), at=base) for base in nodes_of(store, shards)]))


async def pages(store: Store, crawl: str, shards: Sequence[ShardKeys], layout: int) -> AsyncIterator[list[Key]]:
    """All keys of `shards`, which are those of `layout`, some of them more than once."""
    async for page in pages_of_all(store, crawl, shards):
        yield [key for number, key in page if number == layout]


async def pages_of_all(
    store: Store, crawl: str, shards: Sequence[ShardKeys] | None = None
) -> AsyncIterator[list[tuple[int, Key]]]:
    """All keys of the shards on the nodes of `shards`, or on all, with the number of their layout, some repeated."""
    form = re.compile(rf"\{{{re.escape(crawl)}:(\d+)(?:@(\d+))?\}}:(.*)".encode(), re.DOTALL)
    pattern = f"{{{crawl}:*}}:*"
    for base in nodes_of(store, shards):
        async for found in scan(store, "SCAN", "", "MATCH", pattern, "COUNT", PAGE, at=base):
            matches = ((form.fullmatch(key), key) for key in found)
            yield [
                (int(match[2] or 0), Key(int(match[1]), match[3].decode(), key.decode()))
                for match, key in matches
                if match
            ]


async def remove_crawl(store: Store, crawl: Crawl) -> int:
    """Remove all keys of `crawl`, a few hundred in each step, those by which it is found last. Returns their number. An
    interrupted call may be repeated. Raises RedisAway."""
    removed = 0
    for base in nodes_of(store):
        async for page in scan(store, "SCAN", "", "MATCH", f"{{{crawl.name}[:}}]*", "COUNT", CHUNK, at=base):
            keys = [key.decode() for key in page if key.decode() != crawl.keys.meta]
            removed += sum(await store.send([command("UNLINK", key) for key in keys]))
    return removed + sum(await store.send([command("UNLINK", crawl.keys.meta)]))
