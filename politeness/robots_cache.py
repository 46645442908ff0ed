"""Stores robots.txt records where all replicas find them, and caches the parsed rules.

A record is in Redis with its domain's shard (`robots:<domain>` hash: origin -> record). So it survives restarts and
takeovers, and each origin is asked once for the whole cluster. It contains no more of the file than decisions depend on
(`robots_syntax.Excerpt`), and expires. The records of a domain share `DOMAIN_BYTES`, however many hosts the domain has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TypeVar, cast

import msgspec

from frontier.queue import Frontier
from frontier.scripts import SAVE_ROBOTS, Call, command, script_call
from frontier.store import Store, sound_replies
from politeness.robots_fetch import RobotsFetchResult, RobotsRecord
from politeness.robots_match import Rules
from politeness.robots_syntax import BadRecord, Excerpt, extract
from politeness.tdmrep import NOT_STATED, SiteUsage, TdmFile

T = TypeVar("T")

DOMAIN_BYTES = 65_536
"""Bytes in Redis for the records of a domain, besides the one saved last: about 250 hosts with files of 60 rules. Beyond
this, the largest records are removed, and their origins are asked again when a replica has not cached their rules."""

KEPT_STALE_MS = 3_600_000
"""How long a record is kept after it stopped being fresh. Until then, its rules still apply if the file has become
unreachable (RFC 9309 2.4), and its count of failures still lengthens the time between attempts."""

_EXPIRY_DIGITS = 13
"""Each record in Redis begins with its expiry in milliseconds, which the script reads."""

MAX_BYTES = 64 << 20
"""Approximate memory for parsed files: 500 KiB of short rules take 13 MB. To load a file again costs a call to Redis and
the parsing."""

RECORD_BYTES = 500
"""Memory for a record without rules."""

RULE_BYTES = 520
"""Memory for a rule, at most: 260 for a plain path, 510 for one with several `*` among hundreds of such rules."""


class OriginRobots(msgspec.Struct, frozen=True):
    """An origin's record, and its rules. `rules` is None unless the record has any. `error`: the exception that the rules
    raised when they were built, which is a defect; the `record` then says that the file is unreachable and to be fetched
    now. `tdm`: the rules of its tdmrep.json, None if there are none."""

    record: RobotsRecord
    rules: Rules | None
    error: Exception | None = None
    tdm: TdmFile | None = None

    @property
    def size(self) -> int:
        """Approximate memory in bytes."""
        rules = (len(self.rules) if self.rules is not None else 0) + (len(self.tdm) if self.tdm is not None else 0)
        return RECORD_BYTES + len(self.record.excerpt) + len(self.record.tdm or b"") + RULE_BYTES * rules

    def usage(self, url: str) -> SiteUsage:
        """What robots.txt, which must allow `url`, and tdmrep.json say about its use."""
        rules = self.rules.usage if self.rules is not None else None
        if rules is None and self.tdm is None:
            return NOT_STATED
        statements = rules.stated(url) if rules is not None else ()
        return SiteUsage(statements, self.tdm.reservation(url) if self.tdm is not None else None)


class RobotsCache:
    """The rules for `product_token`. The parsed rules of the `capacity` origins used last are cached, as long as they take
    no more than `max_bytes`: 17 KB for a file of 60 rules.

    `in_turn` returns the number of origins that are visited in turn. If it is greater than `capacity` it counts instead;
    otherwise each origin would be evicted right before its next visit.
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
        self._parsed: OrderedDict[str, OriginRobots] = OrderedDict()
        self._bytes = 0
        self._working = asyncio.Lock()

    def recall(self, origin: str) -> OriginRobots | None:
        """What is cached here, without asking Redis."""
        known = self._parsed.get(origin)
        if known is not None:
            self._parsed.move_to_end(origin)
        return known

    async def load(self, origin: str, domain: str) -> OriginRobots | None:
        """What is stored in Redis, or None if nothing is. Raises RedisAway."""
        return await self.remember(origin, (await self.read({origin: domain}))[origin])

    async def read(self, domains: Mapping[str, str]) -> dict[str, bytes | None]:
        """Read the stored records of origins at once, None without one. `domains`: of each origin. Raises RedisAway."""
        calls = [command("HGET", self._key(domain), origin) for origin, domain in domains.items()]
        return dict(zip(domains, await sound_replies(self._store, calls), strict=True))

    async def remember(self, origin: str, stored: bytes | None) -> OriginRobots | None:
        """Cache a record that was read. One that cannot be unpacked, or whose rules fail, counts as missing."""
        record = _unpacked(stored)
        if record is None:
            return None
        try:
            return await self.keep(origin, record)
        except BadRecord:
            return None
        except Exception as error:
            unreachable = {"access": "disallow", "reason": "defect", "excerpt": b"", "tdm": None}
            record = msgspec.structs.replace(record, retry_at_ms=0, tdm_retry_at_ms=0, **unreachable)
            return self._keep(origin, OriginRobots(record, None, error))

    async def condense(self, result: RobotsFetchResult) -> RobotsFetchResult:
        """Replace the file in `result`, if it has one, by its excerpt."""
        if result.access != "rules":
            return result
        excerpt = await self._finish(extract(result.body, self._product_token))
        return msgspec.structs.replace(result, body=b"", excerpt=excerpt.pack())

    async def save(self, origin: str, domain: str, record: RobotsRecord, now_ms: int) -> None:
        """Store `record`, which is kept here (`keep`), for all replicas. Raises RedisAway."""
        await self._store.send([self._save_call(origin, domain, record, now_ms)])

    async def forget_failures(self, domains: Mapping[str, str], now_ms: int) -> None:
        """Have those of some origins whose robots.txt or tdmrep.json was unreachable asked again, as if it had not failed.
        `domains`: the domain of each origin. Other replicas notice with their next leases. Raises RedisAway."""
        calls = []
        for origin, stored in (await self.read(domains)).items():
            record = _unpacked(stored)
            if record is not None and record.has_unreachable:
                fresh = msgspec.structs.replace(record, tdm_failures=0, tdm_retry_at_ms=0)
                if record.access == "disallow":
                    # Not deleted, because it also says since when the file is unreachable (RFC 9309 2.3.1.4).
                    fresh = msgspec.structs.replace(fresh, failures=0, retry_at_ms=now_ms)
                calls.append(self._save_call(origin, domains[origin], fresh, now_ms))
        if calls:
            await self._store.send(calls)

    def _save_call(self, origin: str, domain: str, record: RobotsRecord, now_ms: int) -> Call:
        expiry_ms = record.retry_at_ms + KEPT_STALE_MS
        stored = b"%0*d" % (_EXPIRY_DIGITS, expiry_ms) + record.pack()
        return script_call(SAVE_ROBOTS, [self._key(domain)], now_ms, origin, stored, DOMAIN_BYTES)

    def _key(self, domain: str) -> str:
        return self._frontier.keys.shards[self._frontier.shard_of(domain)].robots(domain)

    async def keep(self, origin: str, record: RobotsRecord) -> OriginRobots:
        """Cache `record` in this process only. Raises what the rules of a file raise when they cannot be built."""
        tdm = TdmFile.unpack(record.tdm) if record.tdm else None
        rules = None
        if record.access == "rules":
            rules = await self._finish(Rules.build(Excerpt.unpack(record.excerpt)))
        return self._keep(origin, OriginRobots(record, rules, None, tdm if tdm is not None and len(tdm) else None))

    def _keep(self, origin: str, known: OriginRobots) -> OriginRobots:
        before = self._parsed.pop(origin, None)
        self._bytes += known.size - (before.size if before is not None else 0)
        self._parsed[origin] = known
        capacity = max(self._capacity, self._in_turn())
        while len(self._parsed) > 1 and (len(self._parsed) > capacity or self._bytes > self._max_bytes):
            _, evicted = self._parsed.popitem(last=False)
            self._bytes -= evicted.size
        return known

    async def _finish(self, work: Generator[None, None, T]) -> T:
        """Run `work` to its end and return its result. Other tasks run between its parts. One long file is processed at a
        time. A thread would instead hold the interpreter lock for 5 ms each time that the event loop needs it."""
        async with self._working:
            while True:
                try:
                    next(work)
                except StopIteration as finished:
                    return cast(T, finished.value)
                await asyncio.sleep(0)


def next_unreachable(stored: Mapping[bytes, bytes]) -> tuple[str, RobotsRecord | None]:
    """The origin and the record of an unreachable file that is to be fetched first, None if there is none in `stored`."""
    records = ((origin.decode(), record) for origin, one in stored.items() if (record := _unpacked(one)) is not None)
    unreachable = [found for found in records if found[1].access == "disallow"]
    return min(unreachable, key=lambda found: found[1].retry_at_ms, default=("", None))


def longest_asked_delay(stored: Iterable[bytes]) -> float:
    """The longest Crawl-delay or Request-rate, in seconds per request, of the records `stored` for a domain. 0 for none."""
    longest = 0.0
    for record in map(_unpacked, stored):
        if record is not None and record.access == "rules":
            with contextlib.suppress(BadRecord):  # a damaged record counts as missing
                excerpt = Excerpt.unpack(record.excerpt)
                longest = max(longest, excerpt.crawl_delay or 0.0, excerpt.request_rate or 0.0)
    return longest


def _unpacked(stored: bytes | None) -> RobotsRecord | None:
    try:
        return None if stored is None else RobotsRecord.unpack(stored[_EXPIRY_DIGITS:])
    except BadRecord:
        return None
