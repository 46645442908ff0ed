"""What a replica tells about itself: the content of its health record in Redis."""

from __future__ import annotations

import msgspec

HEALTH_INTERVALS = 3
"""A health record outlives this many intervals of silence."""


class HealthRecord(msgspec.Struct, frozen=True):
    """`pages` and `received_bytes` count since the replica's start; `visits` are domains under lease."""

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
