"""The health record that each replica writes to Redis."""

from __future__ import annotations

import msgspec

from crawler.observe.freshness_totals import CopyAges
from frontier.keys import CrawlKeys
from frontier.peers import Health
from frontier.store import Store

HEALTH_INTERVALS = 3
"""A health record expires when its replica has not reported for this many intervals."""


class Failure(msgspec.Struct, frozen=True):
    """A URL that is retried later or was given up. `at_ms`: server time in milliseconds since 1970."""

    at_ms: int
    url: str
    outcome: str
    reason: str


class HealthRecord(msgspec.Struct, frozen=True):
    """The state of a replica. `pages` and `received_bytes` count since its start; `domains`: leased to it; `busy`:
    requests in flight; `urls`: leased URLs; `rss_mb`: peak resident memory; `cpu_s`: processor seconds of the process;
    `recent_failures`: newest first.

    `settings_revision`: the latest revision of the settings that it applies completely; `settings_waiting`: settings of a
    later revision that wait for a restart; `settings_refused`: why that revision cannot be used, or "".

    `blocked`: what keeps it from crawling, or "". `nodes_away`: the nodes of a Redis Cluster that it cannot use, while it
    can use others. `copies`: how old the copies were that it has visited again. `waits_for`: some of the domains of which a
    request has had no complete response for some seconds, those with the oldest requests first.
    """

    replica: str
    address: str
    epoch: int
    index: int
    shards: int
    domains: int
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
    blocked: str = ""
    nodes_away: list[str] = []
    cpu_s: float = 0.0
    copies: CopyAges = CopyAges()
    waits_for: list[str] = []


async def health_records(store: Store, keys: CrawlKeys) -> list[HealthRecord]:
    """Return the current health records, ordered by index, with replicas outside the view last. Raises RedisAway."""
    records = await Health(store, keys.peers, ttl_s=HEALTH_INTERVALS).records()
    decoded = [msgspec.json.decode(record, type=HealthRecord) for record in records.values()]
    return sorted(decoded, key=lambda record: (record.index or 1 << 30, record.replica))
