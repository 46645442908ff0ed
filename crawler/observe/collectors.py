"""Metrics that are computed at each scrape: the state of this replica, and the crawl's summary if this replica writes it.

Only one replica exports the metrics of the whole crawl, so both `sum` and `max` over replicas give the right value. A
scrape makes no calls to Redis; it uses values that the replica already has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from crawler.observe.summary import Summary

DEAD_LETTERS_A_SHARD = 10_000
"""The most that a shard keeps (frontier/lua/dead_letter.lua)."""

BYTES_A_SEEN_URL, BYTES_A_QUEUED_URL, BYTES_A_DOMAIN, BYTES_A_SHARD = 12, 150, 1_200, 3_000
"""Bytes of Redis memory, rounded up from measurements with Valkey 9: 8.8 for a seen URL, more in small crawls; 58
(up to 128 URLs in a domain's queue) to 121 for a queued URL; 160 for a domain and a kilobyte for its robots.txt.
docs/how-to/size-a-crawl.md has the formula, docs/explanation/speed.md the measurements."""


class ReplicaState(msgspec.Struct, frozen=True):
    """The state of a replica. `domains`: leased to it; `busy`: requests in flight; `urls`: leased URLs; `backlog`: results
    that wait for the commit; `settings_revision`: the latest revision of the crawl's settings that it applies completely;
    `redis_away`: nothing of Redis can be used; `nodes`: whether each node of a cluster is away; `parked`: results that wait
    for a node; `time_corrections`: how often this replica has corrected crawl time."""

    domains: int
    busy: int
    urls: int
    backlog: int
    paused: bool
    sink_bytes: int
    settings_revision: int
    redis_away: bool = False
    nodes: dict[str, bool] = {}
    parked: int = 0
    time_corrections: int = 0


class MetricsCollector(Collector):
    """Exports the metrics of `own()`, and those of `summary()` unless it is None."""

    def __init__(self, own: Callable[[], ReplicaState], summary: Callable[[], Summary | None]):
        self._own = own
        self._summary = summary

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not collect before the replica is fully built."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from replica_families(self._own())
        summary = self._summary()
        if summary is not None:
            yield from crawl_families(summary)


def replica_families(own: ReplicaState) -> Iterator[Metric]:
    """Yield the metrics of one replica."""
    yield _gauge("leased_domains", "Domains leased to this replica", own.domains)
    yield _gauge("requests_in_flight", "Requests in flight, including the steps right before and after them", own.busy)
    yield _gauge("leased_urls", "URLs leased to this replica", own.urls)
    yield _gauge("commit_backlog_pages", "Results that wait for the next commit", own.backlog)
    yield _gauge("parked_pages", "Results that wait for a node of the Redis Cluster that is away", own.parked)
    yield _gauge("redis_away", "1 while Redis is unavailable", own.redis_away)
    nodes = GaugeMetricFamily("peercrawl_redis_node_away", "1 while a node of Redis is away", labels=["node"])
    for node, is_away in own.nodes.items():
        nodes.add_metric([node], float(is_away))
    yield nodes
    yield _counter(
        "crawl_time_corrections", "Steps of the Redis server's clock that this replica corrected", own.time_corrections
    )
    yield _gauge("paused", "1 while an operator has paused the crawl", own.paused)
    yield _gauge(
        "settings_revision", "Revision of the crawl's settings that this replica fully applies", own.settings_revision
    )
    yield CounterMetricFamily("peercrawl_sink_bytes", "Bytes written to the archive", own.sink_bytes)


def crawl_families(summary: Summary) -> Iterator[Metric]:
    """Yield the metrics of the whole crawl."""
    urls = {"queued": summary.queued, "leased": summary.leased, "waiting": summary.waiting, "dead": summary.dead}
    domains = {
        "due": summary.domains_due,
        "resting": summary.domains_resting,
        "leased": summary.domains_leased,
    }
    # Counters of Prometheus never go down, so they keep what was queued again.
    requeued = summary.requeued
    settled = {outcome: getattr(summary, outcome) + requeued.get(outcome, 0) for outcome in ("done", "denied", "dead")}
    accepted = summary.accepted + sum(requeued.values())
    yield _states("queue_urls", "URLs of the crawl by state", urls)
    yield _states("queue_domains", "Domains of the crawl with open URLs, by state", domains)
    waited_ms = summary.at_ms - summary.oldest_due_ms if summary.oldest_due_ms else 0
    yield _gauge("oldest_due_seconds", "Time since the longest-overdue domain became due", waited_ms / 1000)
    yield _gauge("seen_urls", "URLs in the seen-set of the crawl", summary.seen)
    yield _gauge("seen_domains", "Domains that the crawl has seen", summary.domains)
    yield _states(
        "known_pages",
        "Pages that are visited again, by whether they wait for their interval to end, or their visit is due",
        {"waiting": summary.known, "due": summary.visits_due},
    )
    yield _gauge("shards", "Shards of the crawl", summary.shards)
    yield _gauge("shards_lost", "Shards whose data Redis has lost", summary.shards_lost)
    yield _gauge("shards_away", "Shards that could not be read, because their nodes are away", summary.shards_away)
    yield _gauge("outbox_links", "Links that wait for the nodes of their shards", summary.outbox)
    yield _gauge("shards_unowned", "Shards with work that no replica in the view leases from", summary.shards_unowned)
    yield _counter("crawl_urls_accepted", "URLs accepted by the frontier, those queued again each time", accepted)
    counted = CounterMetricFamily(
        "peercrawl_crawl_urls_settled", "URLs settled, those queued again each time", labels=["outcome"]
    )
    for outcome, number in settled.items():
        counted.add_metric([outcome], number)
    yield counted
    yield _counter("leases_expired", "Leases that expired, from the crawl's counters", summary.leases_expired)
    yield _gauge("redis_memory_bytes", "Memory that Redis uses", summary.redis_bytes)
    yield _gauge("redis_max_memory_bytes", "Memory limit of Redis, 0 if there is none", summary.redis_max_bytes)
    yield _gauge("redis_expected_memory_bytes", "Redis memory expected by the sizing formula", expected_bytes(summary))


def expected_bytes(summary: Summary) -> int:
    """Return the bytes that the crawl should take in Redis according to the formula."""
    return (
        summary.seen * BYTES_A_SEEN_URL
        + (summary.open + min(summary.dead, summary.shards * DEAD_LETTERS_A_SHARD)) * BYTES_A_QUEUED_URL
        + summary.domains * BYTES_A_DOMAIN
        + summary.shards * BYTES_A_SHARD
    )


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"peercrawl_{name}", meaning, float(value))


def _counter(name: str, meaning: str, value: float) -> Metric:
    return CounterMetricFamily(f"peercrawl_{name}", meaning, float(value))


def _states(name: str, meaning: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(f"peercrawl_{name}", meaning, labels=["state"])
    for state, value in values.items():
        family.add_metric([state], value)
    return family
