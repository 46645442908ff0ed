"""The summary of a crawl: one record about the whole crawl, written to Redis by one replica and read by all observers.

Without it, each scrape, each open live page and `crawler top` would query every shard. With it, the shards are queried at
a fixed interval, however many observers there are, and all observers see the same values. `crawler status` takes a new
one, because its numbers must be exact.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from heapq import nlargest, nsmallest
from itertools import chain
from operator import attrgetter

import msgspec

from crawler.errors import FailureKind
from crawler.logs import log
from crawler.observe.health import health_records
from crawler.redis_retry import RedisRetry
from crawler.wording import eviction_warning
from frontier.clock import Clock, ServerClock
from frontier.counters import Counts, DomainDelay, DomainSample, counts_of, domain_delays, survey
from frontier.crawls import evicted_keys
from frontier.keys import CrawlKeys, prefix_of
from frontier.peers import View, running_ms
from frontier.scripts import command
from frontier.store import RedisStore, sound_replies, wrong_keys
from politeness.backoff import BackoffState
from politeness.robots_cache import next_unreachable

WRONG_TYPE_REMEDY = "stop the crawl, and run `crawler repair --evicted` with its seeds"
"""What an operator does about a key of a wrong type."""

LIMITS = {
    "address": "the rate limit of its address",
    FailureKind.OUR_DNS: "a DNS that answers its replica",
    FailureKind.MACHINE: "its replica's machine to work again",
    FailureKind.PROXY: "its replica's proxy to work again",
    "function": "a function of the crawl's code",
    "crawl": "another crawl on this Redis",
    "permits": "a free page of the page limit",
}
"""For what a domain waits that has not failed (`BackoffState.limited_by`)."""

LISTED = 20
"""Domains in each list."""

SAMPLES = 240
"""How many samples are kept: four minutes of a crawl with 100 shards or fewer."""

NAMED = 256
"""Domains that all shards together return for each of the three lists."""


class DomainLine(DomainSample, frozen=True):
    """A domain in a list. `failures`: in a row, the last one for `reason`. `limit`: why it waits without a failure of its
    own. `robots`: why the robots.txt of its `origin` is unreachable."""

    delay_ms: int | None
    failures: int
    reason: str
    limit: str = ""
    robots: str = ""
    origin: str = ""


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """Rates per second until server time `at_ms`. `errors`: attempts retried later, and URLs given up."""

    at_ms: int
    pages: float
    errors: float
    received_bytes: int


class Summary(Counts, frozen=True, kw_only=True):
    """The counters of a crawl, and what a survey of its shards adds to them, at server time `at_ms`.

    `shards_lost`: shards whose data Redis has lost. `shards_away`: those that could not be read, because their nodes
    are away; the numbers are without them. `owned`: the number of shards that each replica was the last to lease from.
    `leased`: URLs leased to replicas. `oldest_due_ms`: when the longest-overdue domain became due, 0 if none is due.
    `domains_due`, `domains_resting`: the unleased domains that may be fetched from now and those that may be later, the
    first of them at `next_due_ms`, 0 if a domain is due now or none rests. `busiest`, `overdue`, `resting`: some
    domains with the most queued URLs, the longest-overdue ones, and those due last. `samples`: the rates between
    summaries, latest last. `running_ms`: how long replicas have worked, until the last settled page. `visits_due`:
    visits after the first that are queued, leased or waiting for a retry. `wrong_types`: some of the keys of a wrong
    type, whose domains are not crawled.
    """

    crawl: str
    at_ms: int
    writer: str
    shards: int
    shards_lost: int = 0
    shards_unowned: int
    owned: dict[str, int]
    open: int  # a field, so that the JSON has it
    leased: int
    domains_due: int
    domains_resting: int
    next_due_ms: int = 0
    oldest_due_ms: int
    busiest: list[DomainLine]
    overdue: list[DomainLine]
    resting: list[DomainLine]
    samples: list[Sample] = msgspec.field(default_factory=list)
    running_ms: int = 0
    redis_bytes: int = 0
    redis_max_bytes: int = 0
    visits_due: int = 0
    shards_away: int = 0
    wrong_types: list[str] = msgspec.field(default_factory=list)

    @property
    def queued(self) -> int:
        return max(0, self.open - self.leased - self.waiting)

    @property
    def is_stranded(self) -> bool:
        """Whether URLs are open although no domain has any: the scripts change both at once, so somebody else has."""
        domains = self.domains_unleased or self.domains_leased or self.waiting
        return self.open > 0 and not (domains or self.outbox or self.shards_away or self.wrong_types)

    @property
    def hindered(self) -> list[DomainLine]:
        """The domains whose failures keep the whole crawl waiting: nothing is leased, and nothing is due."""
        if not self.open or self.domains_due or self.domains_leased or self.leased:
            return []
        waiting = sorted(self.resting, key=attrgetter("at_ms"))
        return [line for line in waiting if line.at_ms > self.at_ms and (line.robots or line.failures)]

    @property
    def crawled_s(self) -> float:
        """Seconds from the first settled page to the last, without the time in which no replica worked."""
        span_ms = self.last_ms - self.first_ms
        return max(1, min(span_ms, self.running_ms or span_ms)) / 1000

    @property
    def pages_per_s(self) -> float:
        """Pages a second after the first one. With it, a crawl of few pages would seem faster than its delay allows."""
        return max(0, self.fetched - 1) / self.crawled_s


async def take(store: RedisStore, keys: CrawlKeys, now_ms: int, writer: str, live: Collection[str]) -> Summary:
    """Survey the crawl. `live`: replicas in the view; a shard with work that none of them has is unowned. Raises
    RedisAway."""
    count = len(keys.shards)
    surveys = await survey(store, keys, range(count), now_ms, max(1, NAMED // count))
    memory = await store.info("memory")
    records = await health_records(store, keys)
    counts, due = counts_of(shard.counters for shard in surveys), sum(shard.ready for shard in surveys)
    holders = [(shard.last_holder.replica if shard.last_holder else "", shard) for shard in surveys]
    listed = _listed([sample for shard in surveys for sample in shard.domains], now_ms)
    delays = await domain_delays(store, keys, chain.from_iterable(listed))
    busiest, overdue, resting = (
        [_line(sample, delays[sample.domain], now_ms) for sample in samples] for samples in listed
    )
    unread = set(range(count)).difference(shard.shard for shard in surveys)
    wrong_types = await wrong_keys(store, [prefix_of(keys.meta), *(keys.shards[shard].base for shard in unread)])
    wrong_types += [keys.shards[shard.shard].base + name for shard in surveys for name in shard.wrong_types]
    oldest = min((shard.oldest_due_ms for shard in surveys if shard.oldest_due_ms is not None), default=0)
    return Summary(
        **msgspec.structs.asdict(counts),
        open=counts.open,
        crawl=keys.crawl,
        at_ms=now_ms,
        writer=writer,
        shards=count,
        shards_lost=sum(shard.identity != keys.identity for shard in surveys) if keys.identity else 0,
        shards_away=count - len(surveys),
        shards_unowned=sum(bool(holder not in live and shard.counters.open) for holder, shard in holders),
        owned=dict(Counter(holder for holder, _ in holders if holder)),
        leased=sum(record.urls for record in records),
        domains_due=due,
        domains_resting=counts.domains_unleased - due,
        next_due_ms=oldest if oldest > now_ms else 0,
        oldest_due_ms=oldest if 0 < oldest <= now_ms else 0,
        busiest=busiest,
        overdue=overdue,
        resting=resting,
        running_ms=await running_ms(store, keys.peers, counts.last_ms),
        redis_bytes=int(memory.get("used_memory", 0)),
        redis_max_bytes=int(memory.get("maxmemory", 0)),
        visits_due=visits_due(counts),
        wrong_types=wrong_types[:LISTED],
    )


def visits_due(counts: Counts) -> int:
    """The visits after the first that were queued and have not been made yet. A visit that is denied and kept with the dead
    letters, ends as a defect, or is removed with its domain is not counted as made, so there may be fewer; never more than
    open URLs."""
    made = sum(counts.visits.values()) - counts.visits.get("new", 0)
    return min(counts.open, max(0, counts.later_visits - made))


def _listed(samples: list[DomainSample], now_ms: int) -> tuple[list[DomainSample], ...]:
    """Return the domains with the most queued URLs, the longest-overdue ones, and those due last."""
    overdue = [sample for sample in samples if sample.held != "leased" and sample.at_ms <= now_ms]
    resting = [sample for sample in samples if sample.held != "leased" and sample.at_ms > now_ms]
    return (
        nlargest(LISTED, samples, key=attrgetter("queued")),
        nsmallest(LISTED, overdue, key=attrgetter("at_ms")),
        nlargest(LISTED, resting, key=attrgetter("at_ms")),
    )


def _line(sample: DomainSample, delays: DomainDelay, now_ms: int) -> DomainLine:
    backoff = BackoffState.parse(delays.state)
    origin, record = next_unreachable(delays.robots)
    if record is not None and sample.held != "waiting" and record.reason != backoff.reason:
        record = None  # the domain has URLs of other origins
    if record is not None:
        sample = msgspec.structs.replace(sample, at_ms=max(sample.at_ms, record.retry_at_ms))
    return DomainLine(
        **msgspec.structs.asdict(sample),
        delay_ms=delays.delay_ms,
        failures=backoff.failures,
        reason=backoff.reason,
        limit=limit_in_words(backoff) if backoff.until_ms <= now_ms < backoff.limited_until_ms else "",
        robots=record.reason if record is not None else "",
        origin=origin if record is not None else "",
    )


def limit_in_words(backoff: BackoffState) -> str:
    """Return for what a domain waits until `backoff.limited_until_ms`."""
    return LIMITS.get(backoff.limited_by, LIMITS["address"])


def followed(summary: Summary, before: Summary | None) -> Summary:
    """Return `summary` with the samples of the one `before` it and a sample of the time since then."""
    if before is None or before.at_ms >= summary.at_ms:
        return summary
    if before.shards_away != summary.shards_away:  # the counters are not those of the same shards
        return msgspec.structs.replace(summary, samples=before.samples)
    elapsed_s = (summary.at_ms - before.at_ms) / 1000
    errors = summary.retried + summary.dead - before.retried - before.dead
    sample = Sample(
        summary.at_ms,
        pages=round(max(0, summary.done - before.done) / elapsed_s, 1),
        errors=round(max(0, errors) / elapsed_s, 1),
        received_bytes=int(max(0, summary.received_bytes - before.received_bytes) / elapsed_s),
    )
    return msgspec.structs.replace(summary, samples=[*before.samples[1 - SAMPLES :], sample])


async def save(store: RedisStore, keys: CrawlKeys, summary: Summary, ttl_s: float) -> None:
    """Store `summary` for `ttl_s` seconds. Raises RedisAway."""
    await store.send([command("SET", keys.summary, msgspec.json.encode(summary), "PX", int(ttl_s * 1000))])


async def load(store: RedisStore, keys: CrawlKeys) -> Summary | None:
    """Return the latest summary, or None if it has expired or none was written. Raises RedisAway."""
    (reply,) = await sound_replies(store, [command("GET", keys.summary)])
    try:
        return msgspec.json.decode(reply, type=Summary) if reply else None
    except msgspec.MsgspecError:  # somebody else has written it
        return None


SHORTEST_S, LONGEST_S, SECONDS_A_SHARD = 1.0, 120.0, 0.01
"""The period of the summary: `SECONDS_A_SHARD` for each shard, within these limits. Surveying a shard takes about 50 us of
CPU time, so this uses half a percent of a core, and three percent with the most shards."""

KEPT_PERIODS = 3
"""A summary expires after this many periods."""


class SummaryWriter:
    """Writes the summary while this replica has index 1. `latest`: if this replica wrote it, otherwise None."""

    def __init__(
        self,
        store: RedisStore,
        keys: CrawlKeys,
        clocks: tuple[Clock, ServerClock],
        redis_retry: RedisRetry,
        view: Callable[[], View | None],
    ) -> None:
        self._store = store
        self._keys = keys
        self._clock, self._server_clock = clocks
        self._redis_retry = redis_retry
        self._view = view
        self._period_s = min(max(SHORTEST_S, len(keys.shards) * SECONDS_A_SHARD), LONGEST_S)
        self._has_evicted = False
        self.latest: Summary | None = None

    async def run(self) -> None:
        while True:
            view = self._view()
            if view is not None and view.index == 1:
                self.latest = await self._redis_retry.call(partial(self._write, view))
            else:
                self.latest = None
            await self._clock.sleep(self._period_s)

    async def _write(self, view: View) -> Summary:
        evicted = await evicted_keys(self._store, self._keys)
        if evicted and not self._has_evicted:
            warning = eviction_warning(self._store.eviction_policy, evicted)
            log(logging.WARNING, "redis_has_evicted", replica=view.me, warning=warning)
        self._has_evicted = evicted > 0
        before = self.latest or await load(self._store, self._keys)
        live = {member.replica for member in view.roster}
        summary = followed(await take(self._store, self._keys, self._server_clock.now_ms(), view.me, live), before)
        await save(self._store, self._keys, summary, KEPT_PERIODS * self._period_s)
        if new := [key for key in summary.wrong_types if before is None or key not in before.wrong_types]:
            log(logging.ERROR, "wrong_type", replica=view.me, keys=" ".join(new), remedy=WRONG_TYPE_REMEDY)
        return summary
