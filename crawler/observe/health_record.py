"""What a replica tells about itself: the content of its health record in Redis."""

from __future__ import annotations

import msgspec

from frontier.health import Health
from frontier.keys import CrawlKeys
from frontier.store import Store

HEALTH_INTERVALS = 3
"""A health record outlives this many intervals of silence."""


class Failure(msgspec.Struct, frozen=True):
    """A URL that was put off or given up. `at_ms`: server time in milliseconds since 1970."""

    at_ms: int
    url: str
    outcome: str
    reason: str


class HealthRecord(msgspec.Struct, frozen=True):
    """`pages` and `received_bytes` count since the replica's start; `visits` are domains under lease, `busy` those of
    them with a request in flight, `urls` the URLs leased with them; `failures` newest first. `settings_revision`: the
    latest that it obeys as a whole; `settings_waiting`: what of a later one waits for its restart; `settings_refused`:
    why it cannot use that one, or ""."""

    replica: str
    address: str
    epoch: int
    index: int
    shards: int
    visits: int
    pages: int
    received_bytes: int
    pages_per_s: float
    rss_mb: float
    redis_away: bool
    busy: int = 0
    urls: int = 0
    recent_failures: list[Failure] = []
    settings_revision: int = 0
    settings_waiting: tuple[str, ...] = ()
    settings_refused: str = ""


async def health_records(store: Store, keys: CrawlKeys) -> list[HealthRecord]:
    """The replicas that reported lately, by index, those outside the view last. Raises RedisAway."""
    records = await Health(store, keys.peers, ttl_s=HEALTH_INTERVALS).records()
    decoded = [msgspec.json.decode(record, type=HealthRecord) for record in records.values()]
    return sorted(decoded, key=lambda record: (record.index or 1 << 30, record.replica))
