"""Packs long queues, so that a domain with a million URLs takes little of the memory of Redis.

The URLs of the lowest priority are packed into blocks, which are compressed here and stored in Redis.
`lua/push.lua` reports long queues to the replica that has pushed to them, and `lua/lease.lua` reports queues that need the
next block to the one that leases from them. Each of these packs or unpacks. `lua/pack.lua` and `lua/unpack.lua` refuse what
has changed since it was read, so it does not matter who calls them, how often, or whether the caller dies.

Blocks grow in steps and are given back in steps. So what is not packed is 64 URLs or a thirty-second of the packed ones,
whichever is more, at most 500, and up to twice that between steps.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

import msgspec

from frontier.entries import QUEUED_VISIT, Entry
from frontier.errors import RedisAway
from frontier.keys import CrawlKeys
from frontier.scripts import PACK, UNPACK, Call, command
from frontier.shards import shard_call
from frontier.store import Store, batched

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Row = tuple[bytes, bytes]
"""A priority, as Redis writes it, and an entry."""

LARGEST = 1_000
"""The most entries in a block. The decision 0016 has the sizes of smaller and larger ones."""

LEVEL, REST_LEVEL = 9, 3
"""Of zstd, as measured for the decision 0016. The rest of a block is packed each time that some of its URLs are unpacked,
and most of it is soon unpacked, too."""


class Block(msgspec.Struct, frozen=True):
    """`order`: minus the highest priority in it, so the first of several blocks has the lowest number."""

    name: str
    order: float
    contents: bytes


def block_of(rows: Sequence[Row], now_ms: int) -> Block:
    """A block of `rows`, 1 to `LARGEST`, in any order."""
    return _packed(sorted(rows, key=lambda row: (-float(row[0]), row[1])), now_ms, LEVEL)


def rest_of(rows: Sequence[Row], now_ms: int) -> Block:
    """A block of the last `rows` of another one, in their order."""
    return _packed(rows, now_ms, REST_LEVEL)


def _packed(rows: Sequence[Row], now_ms: int, level: int) -> Block:
    lines = [b"%d" % now_ms]
    for priority, same in groupby(rows, key=itemgetter(0)):
        lines.append(b"=" + priority)
        lines += [entry for _, entry in same]
    contents = zstd.compress(b"\n".join(lines), level)
    kind = "s" if any(entry[1:3] == b"00" for _, entry in rows) else "-"
    # Only entries of depth 0 are queued again while they may be packed: the name tells whether there are any.
    name = f"{len(rows):04}{kind}{hashlib.sha1(contents).hexdigest()[:20]}"
    return Block(name, -float(rows[0][0]), contents)


def rows_of(contents: bytes) -> list[Row]:
    """The entries of a block, those of the highest priority first."""
    rows: list[Row] = []
    priority = b""
    for line in zstd.decompress(contents).split(b"\n")[1:]:
        if line.startswith(b"="):
            priority = line[1:]
        else:
            rows.append((priority, line))
    return rows


def size_of(name: str) -> int:
    return int(name[:4])


SHARE = 32
"""A step is this part of the packed URLs of a domain."""

MOST_MOVED = 500
"""URLs that one script packs or unpacks at most. It takes about 1 ms for them, now and then four times that."""

ROUNDS = 8
"""Steps that are packed after one push at most, so that a queue that is long already delays no push for long."""

CANDIDATES = 8
"""How many blocks are considered for further entries."""

SEED_BLOCKS = 16
"""Blocks read in one round trip."""

NO_BLOCK = Block("", 0, b"")


class Sizes(msgspec.Struct, frozen=True):
    """How queues are packed. `above`: how many URLs make a queue long, 0 if nothing is packed; `batch`: URLs in a lease."""

    above: int
    batch: int

    @property
    def block(self) -> int:
        return min(LARGEST, self.above)

    @property
    def least_step(self) -> int:
        """The fewest entries that are packed or unpacked at a time. Each time takes about 1 ms."""
        return max(1, min(64, self.above // 16)) if self.above else 0

    def step(self, packed: int) -> int:
        """How many entries are packed or unpacked at a time, of a domain with `packed` packed ones."""
        return min(max(self.least_step, packed // SHARE), self.block, MOST_MOVED)

    def surplus(self, queued: int, packed: int) -> int:
        """How many entries to pack of a queue of `queued`. What stays is enough for two leases, and for the next step."""
        if not self.above:
            return 0
        step = self.step(packed)
        kept = max(step, 2 * self.batch)
        most = kept + step if packed else max(self.above, kept + step)
        return min(queued - kept, self.block, MOST_MOVED) if queued >= most else 0


class Queue(msgspec.Struct, frozen=True):
    """A domain with `queued` unpacked and `packed` packed URLs."""

    shard: int
    domain: str
    queued: int
    packed: int


class First(msgspec.Struct, frozen=True):
    """The first block of a domain, whose URLs are needed soon, and the number of its packed URLs."""

    shard: int
    domain: str
    packed: int
    name: str
    contents: bytes


class Packer:
    """Packs and unpacks queues. It raises no RedisAway for what the next push or lease reports again."""

    def __init__(self, store: Store, keys: CrawlKeys, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._keys = keys
        self._now_ms = now_ms

    async def pack(self, queues: Iterable[Queue], sizes: Sizes) -> None:
        """Pack those of `queues` that are long. Of several reports of a queue, the last one counts."""
        long = list({(queue.shard, queue.domain): queue for queue in queues}.values())
        for _ in range(ROUNDS):
            long = [queue for queue in long if sizes.surplus(queue.queued, queue.packed)]
            if not long:
                return
            try:
                long = await self._pack_once(long, sizes)
            except RedisAway:
                return

    async def _pack_once(self, long: Sequence[Queue], sizes: Sizes) -> list[Queue]:
        """Pack one step of each of `long`. Returns those that were packed."""
        reads = []
        for queue in long:
            of, last = self._keys.shards[queue.shard], sizes.surplus(queue.queued, queue.packed) - 1
            reads.append(command("ZRANGE", of.queue(queue.domain), 0, last, "WITHSCORES"))
            reads.append(command("ZRANGE", of.blocks(queue.domain), -1, -1, "WITHSCORES"))
        replies = await self._store.send(reads)
        read = [(queue, tail, end) for queue, tail, end in zip(long, replies[::2], replies[1::2], strict=True) if tail]
        near = await self._store.send([self._near_call(*of_queue) for of_queue in read])
        calls, packed = [], []
        for (queue, tail, _), names in zip(read, near, strict=True):
            # The smallest of the blocks that can take the entries.
            fitting = [name for name in map(bytes.decode, names) if size_of(name) + len(tail) // 2 <= sizes.block]
            former = min(fitting, default="")
            rows = list(zip(tail[1::2], tail[::2], strict=True))
            if former:
                (contents,) = await self._read(queue.shard, queue.domain, [former])
                if contents is None:
                    continue  # it was unpacked meanwhile
                block = block_of(rows + rows_of(contents), self._now_ms())
            else:
                block = block_of(rows, self._now_ms())
            digest = hashlib.sha1(b"\n".join(tail)).hexdigest()
            words = (queue.domain, len(rows), digest, block.name, block.order, block.contents, former)
            calls.append(shard_call(PACK, self._keys, queue.shard, *words))
            packed.append(Queue(queue.shard, queue.domain, queue.queued - len(rows), queue.packed + len(rows)))
            await asyncio.sleep(0)
        answers = await self._store.send(calls)
        return [queue for queue, answer in zip(packed, answers, strict=True) if answer[0] == b"packed"]

    def _near_call(self, queue: Queue, tail: Sequence[bytes], end: Sequence[bytes]) -> Call:
        """Reads the names of the blocks whose highest priority is that of `tail` or the next lower ones, those with the
        fewest entries of a priority first; of the lowest priority, that of the last block `end`, if `tail` is below."""
        order = min([-float(tail[-1]), *map(float, end[1:])])
        blocks = self._keys.shards[queue.shard].blocks(queue.domain)
        return command("ZRANGE", blocks, order, "+inf", "BYSCORE", "LIMIT", 0, CANDIDATES)

    async def _read(self, shard: int, domain: str, names: Sequence[str]) -> list[bytes | None]:
        return await self._store.send([command("GET", self._keys.shards[shard].block(name, domain)) for name in names])

    async def unpack(self, blocks: Sequence[First], sizes: Sizes) -> None:
        """Queue the first URLs of each of `blocks`."""
        calls = []
        for first in blocks:
            rows = rows_of(first.contents)
            step = sizes.step(first.packed) or MOST_MOVED
            rest = rest_of(rows[step:], self._now_ms()) if rows[step:] else NO_BLOCK
            calls.append(self._unpack_call(first.shard, first.domain, first.name, rows[:step], rest))
            await asyncio.sleep(0)
        try:
            await self._store.send(calls)
        except RedisAway:
            return

    def _unpack_call(self, shard: int, domain: str, name: str, rows: Sequence[Row], rest: Block) -> Call:
        words = (word for row in rows for word in row)
        return shard_call(UNPACK, self._keys, shard, domain, name, rest.name, rest.order, rest.contents, *words)

    async def unpack_seeds(self, seeds: Mapping[tuple[int, str], Sequence[Entry]]) -> list[tuple[int, str]]:
        """Unpack the blocks that contain one of `seeds`, by shard and domain, so that seeds which are queued again are
        found. Returns the domains of these blocks. Raises RedisAway."""
        calls = [command("ZRANGE", self._keys.shards[shard].blocks(domain), 0, -1) for shard, domain in seeds]
        unpacked = []
        blocks = await self._store.send(calls)
        for ((shard, domain), again), names in zip(seeds.items(), blocks, strict=True):
            wanted = {_url_of(entry.raw.encode()) for entry in again}
            with_seeds = [name for name in map(bytes.decode, names) if name[4] == "s"]
            for part in batched(with_seeds, SEED_BLOCKS):
                contents = await self._read(shard, domain, part)
                for name, text in zip(part, contents, strict=True):
                    rows = rows_of(text) if text is not None else []
                    if any(_url_of(entry) in wanted for _, entry in rows):
                        await self._unpack_all(shard, domain, name, rows)
                        unpacked.append((shard, domain))
                    await asyncio.sleep(0)
        return list(dict.fromkeys(unpacked))

    async def _unpack_all(self, shard: int, domain: str, name: str, rows: Sequence[Row]) -> None:
        while rows:
            rest = rest_of(rows[MOST_MOVED:], self._now_ms()) if len(rows) > MOST_MOVED else NO_BLOCK
            await self._store.send([self._unpack_call(shard, domain, name, rows[:MOST_MOVED], rest)])
            name, rows = rest.name, rows[MOST_MOVED:]

    async def repack(self, domains: Sequence[tuple[int, str]], sizes: Sizes) -> None:
        """Pack the long queues among those of `domains` (shard, domain), after blocks of them were unpacked."""
        calls = []
        for shard, domain in domains:
            of = self._keys.shards[shard]
            calls.append(command("ZCOUNT", of.queue(domain), "-inf", f"({QUEUED_VISIT / 2:g}"))
            calls.append(command("HGET", of.domain(domain), "packed"))
        try:
            replies = await self._store.send(calls)
        except RedisAway:
            return
        found = zip(domains, replies[::2], replies[1::2], strict=True)
        await self.pack((Queue(*domain, queued, int(packed or 0)) for domain, queued, packed in found), sizes)


def _url_of(entry: bytes) -> bytes:
    return entry[:1] + entry[6:].partition(b" ")[0]
