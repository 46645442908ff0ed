"""Makes known pages due now, for an operator who wants a fresh copy."""

from __future__ import annotations

from collections.abc import Sequence

from frontier.domains import shard_of
from frontier.keys import CrawlKeys
from frontier.scripts import REFRESH
from frontier.shards import check_identity
from frontier.store import Argument, Reply, Store, script_call

AT_ONCE = 1_000
"""Pages per call, which then takes about 2 ms."""


async def refresh_domain(store: Store, keys: CrawlKeys, domain: str, now_ms: int) -> int:
    """Make all known pages of `domain` due. Returns how many were not. Raises RedisAway and ShardLost."""
    refreshed = 0
    while True:
        found = await _refresh(store, keys, domain, (now_ms, AT_ONCE))
        refreshed += found
        if found < AT_ONCE:
            return refreshed


async def refresh_page(store: Store, keys: CrawlKeys, domain: str, fingerprint: int, now_ms: int) -> int:
    """Make the page of `domain` with this `fingerprint` due. Returns 0 if it is not known, or is due. Raises RedisAway and
    ShardLost."""
    return await _refresh(store, keys, domain, (now_ms, 1, fingerprint))


async def refresh_pages(store: Store, keys: CrawlKeys, domain: str, fingerprints: Sequence[int], now_ms: int) -> int:
    """Make the pages of `domain` with these `fingerprints` due. Returns how many were known and not due. Raises RedisAway
    and ShardLost."""
    parts = (fingerprints[at : at + AT_ONCE] for at in range(0, len(fingerprints), AT_ONCE))
    return sum([await _refresh(store, keys, domain, (now_ms, 1, *part)) for part in parts])


async def _refresh(store: Store, keys: CrawlKeys, domain: str, words: Sequence[Argument]) -> int:
    number = shard_of(domain, len(keys.shards))
    of = keys.shards[number]
    reply: Reply
    (reply,) = await store.send([script_call(REFRESH, (of.stats, of.base), keys.identity, domain, *words)])
    check_identity(keys.crawl, [number], [reply])
    return int(reply[1])
