"""A snapshot of a crawl from the reports of its replicas, for the live page and `crawler top`."""

from __future__ import annotations

import msgspec

from crawler.observe import summary
from crawler.observe.health_record import HealthRecord, health_records
from crawler.observe.summary import Summary
from frontier.keys import CrawlKeys
from frontier.store import RedisStore, command


class Snapshot(msgspec.Struct, frozen=True):
    """The state of a crawl at one time. `summary` is None while no replica writes one; `error` says why nothing could be
    read, or is empty."""

    crawl: str
    served_by: str
    state: str = "run"
    replicas: list[HealthRecord] = []
    summary: Summary | None = None
    error: str = ""


async def read(store: RedisStore, keys: CrawlKeys, served_by: str) -> Snapshot:
    """Read a snapshot. The cost grows only with the number of replicas. Raises RedisAway."""
    records = await health_records(store, keys)
    (state,) = await store.send([command("HGET", keys.control, "state")])
    return Snapshot(
        crawl=keys.crawl,
        served_by=served_by,
        state=state.decode() if state else "run",
        replicas=records,
        summary=await summary.load(store, keys),
    )
