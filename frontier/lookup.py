"""Looks up the state of one URL or one domain, for `crawler why`. Read-only.

The frontier has no index by URL: a URL is a member of a sorted set, in a text that also contains its depth and tries. So
the most likely texts are looked up first, in one call. Only a URL that was retried or lost before needs a scan of its
domain's queue, and one that is packed needs its blocks read. Both are bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Literal

import msgspec

from frontier.entries import HOPS, MAX_DEPTH, Entry, parse_entry
from frontier.keys import ShardKeys
from frontier.known_pages import find_page
from frontier.outboxes import OUTBOX_LINKS
from frontier.packing import rows_of
from frontier.queue import Frontier
from frontier.scripts import command
from frontier.store import Store, batched, count_in, ms_in, pairs, scan, text_in

Where = Literal["unseen", "outbox", "queued", "leased", "waiting", "dead", "settled", "queued_or_settled"]

SCAN_STEP, SCAN_LIMIT = 2_000, 200_000
"""Members scanned per call, and in total. A call takes about 2 ms of the server's time, all of them 0.25 s."""


SCAN_BLOCKS, BLOCKS_AT_ONCE = 2_000, 8
"""Blocks read in total, and per round trip. All of them take about a second of this process, and little of the server."""


class UrlStatus(msgspec.Struct, frozen=True):
    """The state of a URL. `entry`: with its depth, tries and priority, if it is queued, leased or waiting. `ready_ms`: when
    a waiting URL is ready, in server time. `reason`: why a dead URL is dead. `outbox`: the URL is not in its own shard
    yet, because the node was away. `queued_or_settled`: the URL was seen, but its queue is too long to tell which.
    `next_ms`: when a known page is due for its next visit, in server time; its `entry` has the state of its visits."""

    where: Where
    entry: Entry | None = None
    ready_ms: int | None = None
    reason: str = ""
    next_ms: int | None = None


class DomainStatus(msgspec.Struct, frozen=True):
    """The state of a domain. Times are in server milliseconds, None if they do not apply. `last_holder`: the replica that
    last leased from the shard, or "" if none has; the current view may have another owner. `state`: the politeness
    layer's text."""

    domain: str
    shard: int
    last_holder: str
    epoch: int
    due_ms: int | None
    leased_until_ms: int | None
    next_ms: int | None
    delay_ms: int | None
    state: str
    accepted: int
    queued: int
    in_flight: int


class UrlLookup:
    def __init__(self, store: Store, frontier: Frontier) -> None:
        self._store = store
        self._frontier = frontier

    async def domain(self, domain: str) -> DomainStatus:
        """The state of `domain`, which need not have been queued. Raises RedisAway."""
        shard = self._frontier.shard_of(domain)
        keys = self._frontier.keys.shards[shard]
        holder, due, leased, state, queued, in_flight = await self._store.send(
            [
                command("HMGET", keys.owner, "replica", "epoch"),
                command("ZSCORE", keys.due, domain),
                command("ZSCORE", keys.leases, domain),
                command("HMGET", keys.domain(domain), "next", "delay", "state", "accepted", "packed"),
                command("ZCARD", keys.queue(domain)),
                command("ZCARD", keys.inflight(domain)),
            ]
        )
        return DomainStatus(
            domain=domain,
            shard=shard,
            last_holder=text_in(holder[0]),
            epoch=count_in(holder[1]),
            due_ms=_whole(due),
            leased_until_ms=_whole(leased),
            next_ms=_whole(state[0]),
            delay_ms=_whole(state[1]),
            state=text_in(state[2]),
            accepted=count_in(state[3]),
            queued=queued + count_in(state[4]),
            in_flight=in_flight,
        )

    async def url(self, url: str, domain: str) -> UrlStatus:
        """The state of the canonical `url` of `domain`. Raises RedisAway."""
        keys = self._frontier.keys.of(domain)
        bare = Entry(url, domain)
        if not await self._frontier.is_seen(bare):
            bare = Entry(url, domain, mode="requisite")
            if not await self._frontier.is_seen(bare):
                return await self._in_outboxes(bare) or UrlStatus("unseen")
        for find in (
            self._among_known,
            self._among_leased,
            self._among_waiting_and_dead,
            self._among_likely,
            self._among_queued,
        ):
            status = await find(keys, bare)
            if status is not None:
                return status
        return UrlStatus("settled")

    async def _in_outboxes(self, bare: Entry) -> UrlStatus | None:
        target, outboxes = self._frontier.shard_of(bare.domain), self._frontier.outboxes
        for shard in await outboxes.filled(range(len(self._frontier.keys.shards))):
            (links,) = await outboxes.read({shard: target}, OUTBOX_LINKS)
            for link in links:
                if link.target == target and link.entry.url == bare.url:
                    return UrlStatus("outbox", link.entry)
        return None

    async def _among_known(self, keys: ShardKeys, bare: Entry) -> UrlStatus | None:
        known = await find_page(self._store, self._frontier.keys, keys, bare)
        return known and UrlStatus("settled", known.entry, next_ms=known.due_s * 1000)

    async def _among_leased(self, keys: ShardKeys, bare: Entry) -> UrlStatus | None:
        (flat,) = await self._store.send([command("ZRANGE", keys.inflight(bare.domain), 0, -1, "WITHSCORES")])
        for raw, priority in zip(flat[::2], flat[1::2], strict=True):
            if _is_of(raw.decode(), bare):
                return UrlStatus("leased", parse_entry(raw.decode(), bare.domain, float(priority)))
        return None

    async def _among_waiting_and_dead(self, keys: ShardKeys, bare: Entry) -> UrlStatus | None:
        """Looks where an entry stands behind its domain, and a waiting one behind its priority, too."""
        url = f"??????{escaped(bare.raw[6:])}*"
        pattern = f"{escaped(bare.domain)}\n*\n{url}"
        found, _ = await self._scan("ZSCAN", keys.waiting, pattern, lambda member: _is_of(member.split("\n")[2], bare))
        if found is not None:
            _, priority, raw = found[0].split("\n")
            entry = parse_entry(raw, bare.domain, float(priority))
            return UrlStatus("waiting", entry, ready_ms=int(float(found[1])))
        pattern = f"{escaped(bare.domain)}\n{url}"
        found, _ = await self._scan("HSCAN", keys.dead, pattern, lambda member: _is_of(member.split("\n")[1], bare))
        if found is None:
            return None
        return UrlStatus("dead", parse_entry(found[0].split("\n")[1], bare.domain, 0.0), reason=found[1])

    async def _among_likely(self, keys: ShardKeys, bare: Entry) -> UrlStatus | None:
        """Looks for a queued URL that was never retried or lost, at any depth and with any number of redirect hops."""
        heads = product(range(MAX_DEPTH + 1), HOPS)
        texts = [f"{bare.raw[0]}{depth:02x}0{hops}0{bare.raw[6:]}" for depth, hops in heads]
        (scores,) = await self._store.send([command("ZMSCORE", keys.queue(bare.domain), *texts)])
        for raw, priority in zip(texts, scores, strict=True):
            if priority is not None:
                return UrlStatus("queued", parse_entry(raw, bare.domain, float(priority)))
        return None

    async def _among_queued(self, keys: ShardKeys, bare: Entry) -> UrlStatus | None:
        pattern = f"??????{escaped(bare.raw[6:])}*"
        found, whole = await self._scan("ZSCAN", keys.queue(bare.domain), pattern, lambda member: _is_of(member, bare))
        if found is not None:
            return UrlStatus("queued", parse_entry(found[0], bare.domain, float(found[1])))
        packed, all_packed = await self._among_packed(keys, bare)
        return packed or (None if whole and all_packed else UrlStatus("queued_or_settled"))

    async def _among_packed(self, keys: ShardKeys, bare: Entry) -> tuple[UrlStatus | None, bool]:
        """The status of a packed URL, and whether all blocks were read. A block may be unpacked meanwhile."""
        (names,) = await self._store.send([command("ZRANGE", keys.blocks(bare.domain), 0, SCAN_BLOCKS)])
        text = bare.raw[6:].encode()
        for part in batched(names[:SCAN_BLOCKS], BLOCKS_AT_ONCE):
            reads = [command("GET", keys.block(name.decode(), bare.domain)) for name in part]
            for contents in await self._store.send(reads):
                for priority, raw in rows_of(contents) if contents else ():
                    if text in raw and _is_of(raw.decode(), bare):
                        return UrlStatus("queued", parse_entry(raw.decode(), bare.domain, float(priority))), True
            await asyncio.sleep(0)
        return None, len(names) <= SCAN_BLOCKS

    async def _scan(
        self, verb: str, key: str, pattern: str, wanted: Callable[[str], bool]
    ) -> tuple[tuple[str, str] | None, bool]:
        """The first member that is `wanted`, with its value, and whether the scan was complete."""
        pages = 0
        async for page in scan(self._store, verb, key, "MATCH", pattern, "COUNT", SCAN_STEP):
            for member, value in pairs(page).items():
                if wanted(member):
                    return (member, value), True
            pages += 1
            if pages == SCAN_LIMIT // SCAN_STEP:
                return None, False
        return None, True


def _is_of(raw: str, bare: Entry) -> bool:
    """Whether the entry `raw` has the same URL as `bare`. Depth, tries and the other fields may differ."""
    return raw[0] == bare.raw[0] and raw[6:].partition(" ")[0] == bare.raw[6:]


def escaped(text: str) -> str:
    """`text` as a Redis glob pattern that matches only `text`."""
    return "".join(f"\\{char}" if char in "*?[]^\\-" else char for char in text)


def _whole(value: bytes | None) -> int | None:
    return None if value is None else ms_in(value)
