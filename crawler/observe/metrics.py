"""Prometheus metrics, derived from the events and the replica's state. The crawl itself does not update metrics.
`docs/reference/metrics.md` lists them all.

`Metrics` counts events. `MetricsCollector` adds what is computed at each scrape, without calls to Redis: the state of
this replica, and the crawl's summary if this replica writes it. Only one replica exports the metrics of the whole
crawl, so both `sum` and `max` over replicas give the right value.

No label has values from the web: reasons are words from closed lists, and statuses are classes. The labels `crawl` and
`replica` come from the replica and not from Prometheus' configuration, so the dashboards and rules work with any way of
finding the replicas.
"""

from __future__ import annotations

import math
import platform
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from itertools import accumulate
from types import MappingProxyType
from typing import get_args

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Gauge,
    Metric,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from crawler import __version__
from crawler import events as ev
from crawler.defects import Stage
from crawler.errors import OURS
from crawler.observe.summary import Summary
from crawler.page import Exchange, Outcome, Page, Repaired
from crawler.scope.next_visit import Found
from frontier.clock import Clock

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_LONG_SECONDS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0)
_AGES = (
    60.0,
    600.0,
    3_600.0,
    10_800.0,
    21_600.0,
    43_200.0,
    *(86_400.0 * days for days in (1, 2, 4, 7, 14, 30, 60, 180, 365)),
)
"""The intervals between visits, in seconds: from a minute to the longest."""
_KNOWN_STATUSES = frozenset(f"http_{status.value}" for status in HTTPStatus)


class Series:
    """The value of a counter, or of a histogram with `bounds`, for some values of its labels."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * len(bounds)
        self.total = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.total += amount

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Tally(Collector):
    """A counter, or with `buckets` a histogram. Only the event loop changes it, so it has none of the locks and checks of
    the client's classes, which took a thirtieth of the time of a page."""

    def __init__(self, name: str, meaning: str, labels: tuple[str, ...], buckets: tuple[float, ...] = ()) -> None:
        self._family = f"peercrawl_{name}", meaning
        self._label_names = labels
        self._bounds = (*buckets, math.inf) if buckets else ()
        self._series: dict[tuple[str, ...], Series] = {}
        if not labels:
            self.inc, self.observe = self.labels().inc, self.labels().observe

    def labels(self, *values: str) -> Series:
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = Series(self._bounds)
        return series

    def collect(self) -> Iterator[Metric]:
        if not self._bounds:
            counter = CounterMetricFamily(*self._family, labels=self._label_names)
            for values, series in self._series.items():
                counter.add_metric(values, series.total)
            yield counter
            return
        names = [floatToGoString(bound) for bound in self._bounds]  # type: ignore[no-untyped-call]
        histogram = HistogramMetricFamily(*self._family, labels=self._label_names)
        for values, series in self._series.items():
            counts = zip(names, accumulate(series.counts), strict=True)
            histogram.add_metric(values, list(counts), series.total)
        yield histogram


class LabelledRegistry(CollectorRegistry):
    """A registry that adds `labels` to each sample."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__()
        self._labels = dict(labels)

    def collect(self) -> Iterator[Metric]:
        for family in super().collect():
            family.samples[:] = [one._replace(labels={**one.labels, **self._labels}) for one in family.samples]
            yield family


class Metrics:
    """The metrics of one replica, in a registry of their own. `observe` is an event listener. `labels`: labels of every
    series; `hooks`: the page hooks; `name`: the replica's name. `label_names`: the labels of each counter and histogram."""

    def __init__(
        self, labels: Mapping[str, str] = MappingProxyType({}), hooks: Iterable[str] = (), name: str = ""
    ) -> None:
        self.registry = LabelledRegistry(labels)
        self.label_names: dict[str, tuple[str, ...]] = {}
        ProcessCollector(registry=self.registry)
        meaning = "1, with versions and the name of the replica (`replica.name`) as labels"
        build = Gauge("peercrawl_build_info", meaning, ("version", "python", "name"), registry=self.registry)
        build.labels(__version__, platform.python_version(), name).set(1)
        self._declare_fetching()
        self._declare_frontier()
        self._declare_storing()
        for stage in get_args(Stage):  # so that the first failure is an increase
            self.defects.labels(stage)
        for kind in OURS:
            self.own_failures.labels(kind)
        for part in get_args(Repaired):
            self.repaired.labels(part)
        self._data_sets: set[str] = set()
        for items in (self.items, self.items_rejected):
            items.labels(OTHER)
        for found in get_args(Found):  # the same
            self.visits.labels(found)
        for hook in hooks:
            self.hook_failures.labels(hook)
        self.pages_total = 0  # pages fetched and settled, for the health record
        self.received_total = 0

    def _declare_fetching(self) -> None:
        self.pages = self._counter(
            "pages", "URLs settled or retried later, by outcome and status class", "outcome", "status"
        )
        self.reasons = self._counter("page_reasons", "URLs settled or retried later, by reason", "outcome", "reason")
        self.extra_requests = self._counter(
            "extra_requests",
            "Requests of handlers and browsers, by kind, and status class or why there was none",
            "kind",
            "result",
        )
        self.rendered_pages = self._counter(
            "rendered_pages", "Pages in a browser, by what became of them and why", "outcome", "why"
        )
        self.render_seconds = self._counter("render_seconds", "Seconds that pages were in a browser")
        self.render_refused = self._counter(
            "render_refused", "Requests of pages in a browser that were refused, by reason", "reason"
        )
        self.requisites = self._counter(
            "requisites", "Page requisites settled or retried later, by outcome and reason", "outcome", "reason"
        )
        self.bytes = self._counter("received_bytes", "Bytes of response bodies as received")
        self.truncated = self._counter("bodies_truncated", "Response bodies that were truncated, by reason", "reason")
        self.repaired = self._counter(
            "pages_repaired", "Pages with a malformed response that was read, by part", "part"
        )
        self.cut = self._counter("pages_cut", "Pages of which a part is missing, by reason", "reason")
        self.response = self._histogram("response_seconds", "Time from the request to the last byte of the response")
        self.own_failures = self._counter(
            "own_failures", "Requests that failed because of our DNS, this machine or the operator's proxy", "kind"
        )
        phases = "Phases of a fetch; dns, connect and tls only for new connections"
        self.phases = self._histogram("fetch_phase_seconds", phases, "phase")

        self.visits = self._counter(
            "page_visits", "Visits of pages in a crawl with [recrawl], by what was found", "found"
        )
        self.ages = self._histogram(
            "copy_age_seconds", "Time since the visit before, when pages are visited again", buckets=_AGES
        )
        self.overdue = self._histogram(
            "visit_overdue_seconds", "How late pages are visited again, included in the age of the copy", buckets=_AGES
        )

        self.robots = self._counter("robots_files", "robots.txt files fetched or failed, by resulting access", "access")
        self.decisions = self._counter("robots_decisions", "URLs checked against robots.txt, by verdict", "verdict")
        self.delays = self._histogram(
            "politeness_delay_seconds", "Delays between two requests to a domain", buckets=_LONG_SECONDS
        )
        self.backoffs = self._counter("backoffs", "Backoffs of domains, by reason", "reason")
        self.backoff_delays = self._histogram("backoff_seconds", "Duration of backoffs", buckets=_LONG_SECONDS)
        self.late = self._histogram("turn_late_seconds", "How late the turns of leased domains began")

    def _declare_frontier(self) -> None:
        self.links = self._counter("links", "Links offered to the frontier, by result", "result")
        self.dropped = self._counter("links_dropped", "Links not offered to the frontier, by reason", "reason")
        self.leases = self._counter("domains_leased", "Domains leased")
        self.lease_calls = self._histogram("lease_call_seconds", "Round trips that asked for leases")
        self.fenced = self._counter("leases_fenced", "Lease calls refused because of a newer view")
        self.stale = self._counter("stale_leases", "Leases that ended before their results were settled")

        self.epoch = self._gauge("view_epoch", "Epoch of the current view")
        self.index = self._gauge("peer_index", "Index of this replica in the view, 0 if it is not in it")
        self.replicas = self._gauge("replicas", "Replicas in the view")
        self.checksum = self._gauge("view_checksum", "32-bit checksum of the view, equal on all replicas in an epoch")
        self.shards = self._gauge("shards_owned", "Shards that the view assigns to this replica")
        self.moved = self._counter("shards_moved", "Shards gained or lost with a new view", "direction")
        self.handovers = self._histogram(
            "handover_seconds", "Time from a view that removes shards to the return of their last lease"
        )
        self.outages = self._counter("redis_outages", "Outages of Redis")
        self.repeated = self._counter(
            "shards_repeated", "Shards whose server was restarted or replaced, and got the last writes again"
        )
        self.taken_back = self._counter(
            "urls_unsettled", "URLs whose settlement such a server had lost, and which others had leased meanwhile"
        )
        self.round_trips = self._histogram(
            "redis_round_trip_seconds", "Round trips to Redis, each with a batch of calls"
        )
        self.redis_errors = self._counter("redis_errors", "Round trips to Redis that failed")

        self.loop_lag = self._histogram("event_loop_lag_seconds", "Lag of the event loop", buckets=_LAG_SECONDS)
        self.longest_loop_lag = self._gauge("event_loop_lag_max_seconds", "Longest lag of the event loop so far")
        self._longest_loop_lag_s = 0.0

    def _declare_storing(self) -> None:
        self.commit = self._histogram("commit_seconds", "Duration of the steps of a group commit", "step")
        self.commit_lag = self._histogram(
            "commit_lag_seconds", "Time from the first result of a group to its settlement"
        )
        self.hook_failures = self._counter("hook_failures", "Failures of page hooks", "hook")
        self.handler_failures = self._counter("handler_failures", "Pages whose handler failed or took too long")
        self.items = self._counter("items", "Items that were found, by data set", "data_set")
        self.items_rejected = self._counter(
            "items_rejected", "Items that were not written: a value is missing, or of another type", "data_set"
        )
        self.defects = self._counter("defects", "Unexpected errors while handling data from sites, by stage", "stage")
        self.sink_blocked = self._counter("sink_blocked", "Writes refused because the sink had no room")

    def _counter(self, name: str, meaning: str, *labels: str, buckets: tuple[float, ...] = ()) -> Tally:
        self.label_names[f"peercrawl_{name}"] = labels
        tally = Tally(name, meaning, labels, buckets)
        self.registry.register(tally)
        return tally

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"peercrawl_{name}", meaning, registry=self.registry)

    def _histogram(self, name: str, meaning: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Tally:
        return self._counter(name, meaning, *labels, buckets=buckets)

    def observe(self, event: ev.Event) -> None:
        match event:
            case ev.PageSettled(page):
                self._page(page)
            case ev.RequisiteSettled(page):
                self.requisites.labels(page.outcome, bounded(page.reason)).inc()
                if page.exchange is not None:
                    self.received_total += len(page.exchange.body)
                    self._exchange(page.exchange)
            case ev.TurnTaken(late_s, waited_s):
                self.late.observe(late_s)
                if math.isfinite(waited_s):
                    self.delays.observe(waited_s)
            case ev.LinksPushed():
                for result in ("accepted", "seen", "capped", "outside"):
                    self.links.labels(result).inc(getattr(event, result))
                self.links.labels("recent").inc(event.skipped)
            case ev.LinkDropped(reason, count):
                self.dropped.labels(reason).inc(count)
            case ev.GroupCommitted(_, _, push_s, sink_s, settle_s, stale, lag_s):
                for step, seconds in (("push", push_s), ("sink", sink_s), ("settle", settle_s)):
                    self.commit.labels(step).observe(seconds)
                self.commit_lag.observe(lag_s)
                self.stale.inc(stale)
            case ev.DomainsLeased(domains, _, seconds):
                self.leases.inc(domains)
                self.lease_calls.observe(seconds)
            case ev.ViewAdopted(view):
                self.epoch.set(view.epoch)
                self.index.set(view.index)
                self.replicas.set(view.replicas)
                self.checksum.set(view.checksum)
                self.shards.set(event.owned)
                self.moved.labels("taken").inc(event.taken)
                self.moved.labels("dropped").inc(event.dropped)
            case ev.HandedOver(seconds):
                self.handovers.observe(seconds)
            case ev.RobotsFetchEnded(_, access):
                self.robots.labels(access).inc()
            case ev.UrlPostponed():
                self.decisions.labels("postpone").inc()
            case ev.BackedOff(reason, delay_s):
                self.backoffs.labels(reason).inc()
                self.backoff_delays.observe(delay_s)
            case ev.ShardFenced():
                self.fenced.inc()
            case ev.RedisOutageBegan():
                self.outages.inc()
            case ev.WritesRepeated(shards, unsettled):
                self.repeated.inc(shards)
                self.taken_back.inc(unsettled)
            case ev.HookFailed(hook):
                self.hook_failures.labels(hook).inc()
            case ev.ExtraRequested(kind, result):
                self.extra_requests.labels(kind, result).inc()
            case ev.PageRendered(_, rendered):
                self.rendered_pages.labels(rendered.outcome, rendered.why).inc()
                self.render_seconds.inc(rendered.elapsed)
                for reason, count in rendered.refused.items():
                    self.render_refused.labels(reason).inc(count)
            case ev.HandlerFailed():
                self.handler_failures.inc()
            case ev.DefectFound(stage):
                self.defects.labels(stage).inc()
            case ev.SinkBlocked():
                self.sink_blocked.inc()
            case ev.OwnFailure(kind):
                self.own_failures.labels(kind).inc()
            case _:
                pass

    def _page(self, page: Page) -> None:
        exchange = page.exchange
        status = f"{exchange.status // 100}xx" if exchange and 100 <= exchange.status < 600 else "none"
        self.pages.labels(page.outcome, status).inc()
        self.reasons.labels(page.outcome, bounded(page.reason)).inc()
        if page.visit:
            self.visits.labels(page.visit).inc()
        if page.copy_age is not None:
            self.ages.observe(page.copy_age.age_s)
            self.overdue.observe(page.copy_age.late_s)
        if page.reason in ("robots", "robots_unreachable"):
            self.decisions.labels("deny").inc()
        if exchange is not None:
            self.decisions.labels("allow").inc()
            self.pages_total += page.outcome is not Outcome.RETRY
            self.received_total += page.received_bytes
            for one in (exchange, *(extra.exchange for extra in page.extras)):
                self._exchange(one)
            for reason in page.cut:
                self.cut.labels(reason).inc()
            for part in page.repaired:
                self.repaired.labels(part).inc()

        for item in page.items:
            self.items.labels(self._data_set(item.name)).inc()
        for word, number in page.rejected_by.items():
            self.items_rejected.labels(self._data_set(word.partition(":")[0])).inc(number)

    def _data_set(self, name: str) -> str:
        if len(self._data_sets) < MOST_DATA_SETS:
            self._data_sets.add(name)
        return name if name in self._data_sets else OTHER

    def _exchange(self, exchange: Exchange) -> None:
        self.bytes.inc(len(exchange.body))
        self.response.observe(exchange.elapsed)
        self.phases.labels("first_byte").observe(exchange.first_byte)
        self.phases.labels("body").observe(exchange.elapsed - exchange.first_byte)
        if exchange.phases is not None:
            for phase, seconds in zip(("dns", "connect", "tls"), exchange.phases, strict=True):
                if seconds is not None:
                    self.phases.labels(phase).observe(seconds)
        if exchange.truncated:
            self.truncated.labels(exchange.truncated).inc()

    def round_trip(self, seconds: float, failed: bool) -> None:
        self.round_trips.observe(seconds)
        if failed:
            self.redis_errors.inc()

    def lagged(self, lag_s: float) -> None:
        self.loop_lag.observe(lag_s)
        if lag_s > self._longest_loop_lag_s:
            self._longest_loop_lag_s = lag_s
            self.longest_loop_lag.set(lag_s)

    def render(self) -> bytes:
        return generate_latest(self.registry)


MOST_DATA_SETS, OTHER = 20, "other"
"""The data sets with a label of their own, and the label of all others: a handler may make up names."""


def bounded(reason: str) -> str:
    """Return `reason`, but "http_other" for non-standard statuses, of which there may be hundreds."""
    return "http_other" if reason.startswith("http_") and reason not in _KNOWN_STATUSES else reason


# at each scrape

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
    for a node; `time_corrections`: how often this replica has corrected crawl time; `disk_free`: bytes that are free for
    its output, None if it is unknown."""

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
    disk_free: int | None = None


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
    yield _gauge("leased_domains", "Domains leased to this replica", own.domains)
    yield _gauge("requests_in_flight", "Requests in flight, including the steps right before and after them", own.busy)
    yield _gauge("leased_urls", "URLs leased to this replica", own.urls)
    yield _gauge("commit_backlog_pages", "Results that wait for the next commit", own.backlog)
    yield _gauge("parked_pages", "Results that wait for a node of the Redis Cluster that is away", own.parked)
    yield _gauge("redis_away", "1 while Redis is unavailable", own.redis_away)
    yield _gauges("redis_node_away", "1 while a node of Redis is away", own.nodes, "node")
    corrections = "Steps of the Redis server's clock that this replica corrected"
    yield _counter("crawl_time_corrections", corrections, own.time_corrections)
    yield _gauge("paused", "1 while an operator has paused or stopped the crawl", own.paused)
    revision = "Revision of the crawl's settings that this replica fully applies"
    yield _gauge("settings_revision", revision, own.settings_revision)
    yield _counter("sink_bytes", "Bytes written to the archive", own.sink_bytes)
    if own.disk_free is not None:
        yield _gauge("disk_free_bytes", "Bytes that are free for the output of this replica", own.disk_free)


def crawl_families(summary: Summary) -> Iterator[Metric]:
    urls = {name: getattr(summary, name) for name in ("queued", "leased", "waiting", "dead")}
    yield _gauges("queue_urls", "URLs of the crawl by state", urls)
    domains = {name: getattr(summary, f"domains_{name}") for name in ("due", "resting", "leased")}
    yield _gauges("queue_domains", "Domains of the crawl with open URLs, by state", domains)
    waited_ms = summary.at_ms - summary.oldest_due_ms if summary.oldest_due_ms else 0
    yield _gauge("oldest_due_seconds", "Time since the longest-overdue domain became due", waited_ms / 1000)
    yield _gauge("seen_urls", "URLs in the seen-set of the crawl", summary.seen)
    yield _gauge("seen_domains", "Domains that the crawl has seen", summary.domains)
    yield _gauges(
        "known_pages",
        "Pages that are visited again, by whether they wait for their interval to end, or their visit is due",
        {"waiting": summary.known, "due": summary.visits_due},
    )
    yield _gauge("shards", "Shards of the crawl", summary.shards)
    yield _gauge("shards_lost", "Shards whose data Redis has lost", summary.shards_lost)
    yield _gauge("shards_away", "Shards that could not be read, because their nodes are away", summary.shards_away)
    yield _gauge("outbox_links", "Links that wait for the nodes of their shards", summary.outbox)
    yield _gauge("shards_unowned", "Shards with work that no replica in the view leases from", summary.shards_unowned)
    # Counters of Prometheus never go down, so they keep what was queued again.
    requeued = summary.requeued
    accepted = summary.accepted + sum(requeued.values())
    yield _counter("crawl_urls_accepted", "URLs accepted by the frontier, those queued again each time", accepted)
    settled = "URLs settled, those queued again each time"
    family = CounterMetricFamily("peercrawl_crawl_urls_settled", settled, labels=["outcome"])
    for outcome in ("done", "denied", "dead"):
        family.add_metric([outcome], getattr(summary, outcome) + requeued.get(outcome, 0))
    family.add_metric(["requisite"], summary.requisites_settled + requeued.get("requisite", 0))
    yield family
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


def _gauges(name: str, meaning: str, values: Mapping[str, float], label: str = "state") -> Metric:
    family = GaugeMetricFamily(f"peercrawl_{name}", meaning, labels=[label])
    for text, value in values.items():
        family.add_metric([text], float(value))
    return family


# the event loop

PERIOD_S = 0.02
"""Seconds between two measurements of the lag of the event loop."""


class LoopLag:
    """Measures the lag of the event loop, which delays every request of a replica, and calls `observe` with each value, in
    seconds. Nothing should block the loop: parsing is bounded or done in a separate process, whatever a site sends.

    `longest_own_s`: the longest lag so far, with each lag limited to the CPU time that this process used during it, since
    the rest was caused by other processes. The CPU time of all threads is included, because each may hold the interpreter's
    lock or the core. The value may be too high if a thread ran in parallel with the loop, or if the loop ran before the lag
    began.
    """

    def __init__(
        self, clock: Clock, observe: Callable[[float], None], cpu: Callable[[], float] = time.process_time
    ) -> None:
        self._clock = clock
        self._observe = observe
        self._cpu = cpu
        self.longest_own_s = 0.0

    async def run(self) -> None:
        while True:
            at, used = self._clock.monotonic(), self._cpu()
            await self._clock.sleep(PERIOD_S)
            lag_s = max(0.0, self._clock.monotonic() - at - PERIOD_S)
            self._observe(lag_s)
            self.longest_own_s = max(self.longest_own_s, min(lag_s, self._cpu() - used))
