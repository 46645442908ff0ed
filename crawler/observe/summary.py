"""The summary of a crawl: one record that says how the whole stands, written by one replica and read by all who watch.

Whoever looks at a crawl (each scrape, each open page, `crawler top`) would otherwise ask every shard; this way the
shards are asked once in a while however many look, and all of them see the same figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from heapq import nlargest, nsmallest
from itertools import chain
from operator import attrgetter

import msgspec

from crawler.observe.health_record import health_records
from frontier.counters import counts_of
from frontier.keys import CrawlKeys
from frontier.store import RedisStore, command
from frontier.survey import DomainDelay, DomainSample, domain_delays, survey
from politeness.backoff import BackoffState

LISTED = 20
"""Domains in each list."""

RATES = 120
"""How many rates are remembered."""

NAMED = 256
"""Domains named by all shards together, at each of three ends."""


class DomainLine(msgspec.Struct, frozen=True):
    """A domain worth a look. `at_ms`: when it is due, or when its lease ends; `failures` in a row, the last for
    `reason`."""

    domain: str
    shard: int
    held: str
    at_ms: int
    queued: int
    delay_ms: int | None
    failures: int
    reason: str


class Summary(msgspec.Struct, frozen=True):
    """How a crawl stands, at server time `at_ms`. URLs, unless a name says otherwise.

    `leased`: with replicas. `oldest_due_ms`: since when the domain longest due has been so, 0 if none is. `busiest`,
    `overdue`, `resting`: domains with most URLs queued, longest due, and due last; among those that a survey names.
    `rates`: pages done a second, from summary to summary, the latest last.
    """

    crawl: str
    at_ms: int
    writer: str
    shards: int
    shards_unowned: int
    owned: dict[str, int]
    accepted: int
    done: int
    denied: int
    dead: int
    retried: int
    requeued: int
    open: int
    leased: int
    waiting: int
    seen: int
    received_bytes: int
    duplicates: int
    domains: int
    domains_ready: int
    domains_due: int
    domains_leased: int
    oldest_due_ms: int
    leases_expired: int
    first_ms: int
    last_ms: int
    reasons: dict[str, int]
    dropped: dict[str, int]
    cut: dict[str, int]  # reason -> pages of which something was left out
    busiest: list[DomainLine]
    overdue: list[DomainLine]
    resting: list[DomainLine]
    rates: list[float] = []
    redis_bytes: int = 0
    redis_max_bytes: int = 0

    @property
    def queued(self) -> int:
        return max(0, self.open - self.leased - self.waiting)


async def take(store: RedisStore, keys: CrawlKeys, now_ms: int, writer: str, live: Collection[str]) -> Summary:
    """Survey the crawl. `live`: the replicas in the view; a shard with work that none of them leases from is unowned.
    Raises RedisAway."""
    count = len(keys.shards)
    surveys = await survey(store, keys, range(count), now_ms, max(1, NAMED // count))
    memory = await store.info("memory")
    leased = sum(record.urls for record in await health_records(store, keys))
    counts = counts_of(one.counters for one in surveys)
    owned = Counter(one.owner.replica for one in surveys if one.owner is not None)
    orphans = [one for one in surveys if (one.owner is None or one.owner.replica not in live) and one.counters.open]
    listed = _listed([sample for one in surveys for sample in one.domains], now_ms)
    delays = await domain_delays(store, keys, chain.from_iterable(listed))
    busiest, overdue, resting = ([_line(sample, delays[sample.domain]) for sample in samples] for samples in listed)
    oldest = min((one.oldest_due_ms for one in surveys if one.oldest_due_ms is not None), default=0)
    return Summary(
        crawl=keys.crawl,
        at_ms=now_ms,
        writer=writer,
        shards=len(surveys),
        shards_unowned=len(orphans),
        owned=dict(owned),
        accepted=counts.accepted,
        done=counts.done,
        denied=counts.denied,
        dead=counts.dead,
        retried=counts.retried,
        requeued=counts.requeued,
        open=counts.open,
        leased=leased,
        waiting=counts.waiting,
        seen=counts.seen,
        received_bytes=counts.received_bytes,
        duplicates=counts.duplicates,
        domains=counts.domains,
        domains_ready=sum(one.ready for one in surveys),
        domains_due=counts.domains_due,
        domains_leased=counts.domains_leased,
        oldest_due_ms=oldest if 0 < oldest <= now_ms else 0,
        leases_expired=counts.leases_expired,
        first_ms=counts.first_ms,
        last_ms=counts.last_ms,
        reasons=dict(counts.reasons),
        dropped=dict(counts.dropped),
        cut=dict(counts.cut),
        busiest=busiest,
        overdue=overdue,
        resting=resting,
        redis_bytes=int(memory.get("used_memory", 0)),
        redis_max_bytes=int(memory.get("maxmemory", 0)),
    )


def _listed(samples: list[DomainSample], now_ms: int) -> tuple[list[DomainSample], ...]:
    """The busiest, the longest overdue, and those that rest longest."""
    overdue = [sample for sample in samples if sample.held == "due" and sample.at_ms <= now_ms]
    resting = [sample for sample in samples if sample.held == "due" and sample.at_ms > now_ms]
    return (
        nlargest(LISTED, samples, key=attrgetter("queued")),
        nsmallest(LISTED, overdue, key=attrgetter("at_ms")),
        nlargest(LISTED, resting, key=attrgetter("at_ms")),
    )


def _line(sample: DomainSample, delays: DomainDelay) -> DomainLine:
    backoff = BackoffState.parse(delays.state)
    return DomainLine(
        sample.domain,
        sample.shard,
        sample.held,
        sample.at_ms,
        sample.queued,
        delays.delay_ms,
        backoff.failures,
        backoff.reason,
    )


def followed(summary: Summary, before: Summary | None) -> Summary:
    """`summary` with the rates of the one `before` it, and its own."""
    if before is None or before.at_ms >= summary.at_ms:
        return summary
    rate = max(0.0, (summary.done - before.done) / (summary.at_ms - before.at_ms) * 1000)
    return msgspec.structs.replace(summary, rates=[*before.rates[1 - RATES :], round(rate, 1)])


async def save(store: RedisStore, keys: CrawlKeys, summary: Summary, ttl_s: float) -> None:
    """Keep `summary` for `ttl_s`, so that an old one passes for no present one."""
    await store.send([command("SET", keys.summary, msgspec.json.encode(summary), "PX", int(ttl_s * 1000))])


async def load(store: RedisStore, keys: CrawlKeys) -> Summary | None:
    """The summary that a replica wrote last, or None if none has for a while."""
    (reply,) = await store.send([command("GET", keys.summary)])
    return msgspec.json.decode(reply, type=Summary) if reply else None
