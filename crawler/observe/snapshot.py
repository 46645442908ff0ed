"""The state of a crawl as its observers see it: on the live page, and in `crawler status`, `top` and `crawl`."""

from __future__ import annotations

import msgspec

from crawler.observe import summary
from crawler.observe.health_record import HealthRecord, health_records
from crawler.observe.summary import Summary
from crawler.settings.loading import CrawlSettings
from frontier.crawls import Crawl
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


class Status(Summary, frozen=True, kw_only=True):
    """A summary together with the replicas and the settings of the crawl. `max_pages`: 0 for no limit."""

    state: str
    replicas: list[HealthRecord]
    settings_revision: int
    max_pages: int


async def read(store: RedisStore, keys: CrawlKeys, served_by: str) -> Snapshot:
    """Read what the replicas have written. The cost grows only with the number of replicas. Raises RedisAway."""
    records = await health_records(store, keys)
    (state,) = await store.send([command("HGET", keys.control, "state")])
    return Snapshot(
        crawl=keys.crawl,
        served_by=served_by,
        state=state.decode() if state else "run",
        replicas=records,
        summary=await summary.load(store, keys),
    )


async def complete(store: RedisStore, keys: CrawlKeys, exact: bool = False) -> Snapshot:
    """Read a snapshot with a summary. If it must be `exact`, or no replica has written one, the shards are surveyed.
    Raises RedisAway."""
    found = await read(store, keys, "")
    if found.summary is not None and not exact:
        return found
    live = {record.replica for record in found.replicas}
    return msgspec.structs.replace(found, summary=await summary.take(store, keys, int(await store.time_ms()), "", live))


async def status(store: RedisStore, crawl: Crawl, exact: bool = True) -> Status:
    """Read the status of `crawl`. If not `exact`, its numbers may be some seconds old. Raises RedisAway."""
    found = await complete(store, crawl.keys, exact)
    assert found.summary is not None
    return Status(
        **msgspec.structs.asdict(found.summary),
        state=found.state,
        replicas=found.replicas,
        settings_revision=crawl.revision,
        max_pages=CrawlSettings.from_json(crawl.settings).limits.max_pages,
    )
