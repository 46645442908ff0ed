"""How long a crawl stood still while it was given another number of shards."""

from __future__ import annotations

from frontier.clock import Clock
from frontier.counters import Counters
from frontier.key_pages import asked
from frontier.redis_keys import CrawlKeys
from frontier.store import Store, command

RECENT_MS, AGAIN_S = 60_000, 30.0
"""Replicas work if they have settled a URL within so many milliseconds before the reshard. Their next one is awaited for so
many seconds after it."""

LOOK_S = 0.1
"""Seconds between two looks."""


async def standstill_ms(store: Store, clock: Clock, layouts: tuple[CrawlKeys, CrawlKeys], began_ms: int) -> int | None:
    """How long no replica settled a URL, in milliseconds: from the last one with the first of `layouts` to the first one
    with the second, for which this waits. `began_ms`: when the reshard began, in crawl time. None if no replica worked
    before, none does within `AGAIN_S`, or nothing is left to settle. Raises RedisAway and ShardLost."""
    old, new = layouts
    before = max(await _settled_ms(store, old))
    if before < began_ms - RECENT_MS:
        return None
    deadline, counters = clock.monotonic() + AGAIN_S, Counters(store, new)
    while True:
        is_last = await counters.has_ended() or clock.monotonic() >= deadline
        if later := [ms for ms in await _settled_ms(store, new) if ms > before]:
            return min(later) - before
        if is_last:
            return None
        await clock.sleep(LOOK_S)


async def _settled_ms(store: Store, keys: CrawlKeys) -> list[int]:
    """When a URL of each shard was settled last; 0 for never."""
    found = await asked(store, [command("HGET", of.stats, "last_ms") for of in keys.shards])
    return [int(ms or 0) for ms in found]
