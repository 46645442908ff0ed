"""The rules of robots.txt files, kept where all replicas find them.

A record stands in Redis with the domain's shard (`robots` hash: origin -> packed record), so it survives restarts and
hand-overs, and each origin is asked once for the whole cluster. Parsed rules are kept here, for the origins used last.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from frontier.queue import Frontier
from frontier.store import Store, command
from politeness.errors import BadRecord
from politeness.robots import Rules
from politeness.robots_fetch import RobotsRecord

PARSED_AT_ONCE = 8_192
"""Bytes of a file that are parsed in one go. Nearly all files are shorter; 16 KiB of patterns took 13 ms on a slow
machine."""

MAX_BYTES = 64 << 20
"""Of memory that the parsed files take, about: 500 KiB of short rules take 13 MB. What is forgotten costs a call to Redis
and the parsing."""

RECORD_BYTES = 500
"""Of memory a record without rules."""

RULE_BYTES = 520
"""Of memory a rule, at most: 260 for a plain path, 510 for one with several `*` among hundreds of such."""


class KnownRobots(msgspec.Struct, frozen=True):
    """An origin's robots.txt as it stands in Redis, and its rules. `rules` is None unless the record has any. `error`: what
    was raised when they were parsed, which should not be; then nothing of the origin may be fetched."""

    record: RobotsRecord
    rules: Rules | None
    error: Exception | None = None

    @property
    def size(self) -> int:
        """What it takes in memory, about."""
        return RECORD_BYTES + len(self.record.body) + RULE_BYTES * (len(self.rules) if self.rules is not None else 0)


class RobotsCache:
    """The rules for `product_token`. Those of the `capacity` origins used last are kept parsed, or of as many as take
    turns, if they take no more than `max_bytes` together: 17 KB for a file of 60 rules.

    `in_turn` tells how many origins take turns. With room for fewer, each would be forgotten right before its next one.
    """

    def __init__(
        self,
        store: Store,
        frontier: Frontier,
        product_token: str,
        capacity: int = 4_096,
        max_bytes: int = MAX_BYTES,
        in_turn: Callable[[], int] = lambda: 0,
    ) -> None:
        self._store = store
        self._frontier = frontier
        self._product_token = product_token
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._in_turn = in_turn
        self._parsed: OrderedDict[str, KnownRobots] = OrderedDict()
        self._bytes = 0
        self._parsing = asyncio.Lock()

    def recall(self, origin: str) -> KnownRobots | None:
        """What is known here, without asking Redis."""
        known = self._parsed.get(origin)
        if known is not None:
            self._parsed.move_to_end(origin)
        return known

    async def load(self, origin: str, domain: str) -> KnownRobots | None:
        """What is known in Redis, or None if nobody has asked the origin yet. Raises RedisAway."""
        return await self.remember(origin, (await self.read({origin: domain}))[origin])

    async def read(self, domains: Mapping[str, str]) -> dict[str, bytes | None]:
        """The records of some origins as they stand in Redis, None where there is none, in one round trip. `domains`: that
        of each origin. Raises RedisAway."""
        keys = self._frontier.keys.shards
        calls = [
            command("HGET", keys[self._frontier.shard_of(domain)].robots, origin) for origin, domain in domains.items()
        ]
        return dict(zip(domains, await self._store.send(calls), strict=True))

    async def remember(self, origin: str, packed: bytes | None) -> KnownRobots | None:
        """Take up a record that was read.

        One that cannot be unpacked counts as none: to ask the origin again is what mends it.
        """
        if packed is None:
            return None
        try:
            return await self._keep(origin, RobotsRecord.unpack(packed))
        except BadRecord:
            return None

    async def save(self, origin: str, domain: str, record: RobotsRecord) -> KnownRobots:
        """Make `record` known to all replicas. Raises RedisAway."""
        key = self._frontier.keys.shards[self._frontier.shard_of(domain)].robots
        await self._store.send([command("HSET", key, origin, record.pack())])
        return await self._keep(origin, record)

    async def _keep(self, origin: str, record: RobotsRecord) -> KnownRobots:
        rules = error = None
        try:
            rules = await self._parse(record.body) if record.access == "rules" else None
        except Exception as raised:
            error = raised
        known = KnownRobots(record, rules, error)
        before = self._parsed.pop(origin, None)
        self._bytes += known.size - (before.size if before is not None else 0)
        self._parsed[origin] = known
        capacity = max(self._capacity, self._in_turn())
        while len(self._parsed) > 1 and (len(self._parsed) > capacity or self._bytes > self._max_bytes):
            _, forgotten = self._parsed.popitem(last=False)
            self._bytes -= forgotten.size
        return known

    async def _parse(self, body: bytes) -> Rules:
        """The rules in `body`. The event loop goes on between the parts of a long file, of which one is parsed at a time; a
        thread would hold the interpreter's lock for 5 ms each time that the loop has to do with a socket."""
        if len(body) <= PARSED_AT_ONCE:
            return Rules.parse(body, self._product_token)
        async with self._parsing:
            parsing = Rules.parse_cooperatively(body, self._product_token)
            while True:
                try:
                    next(parsing)
                except StopIteration as parsed:
                    return cast(Rules, parsed.value)
                await asyncio.sleep(0)
