"""Prometheus metrics, derived from the events and the replica's state. The crawl itself does not update metrics.

Names follow https://prometheus.io/docs/practices/naming/: base units, and `_total` for counters. No label has values from
the web: reasons are words from closed lists, and statuses are classes. `docs/reference/metrics.md` lists all metrics.

Every series has the labels `crawl` and `replica`. They come from the replica and not from Prometheus' configuration, so the
dashboards and rules work with any way of finding the replicas, a static list included.

The Python client exposes classic histograms only. Prometheus stores them as native histograms if
`convert_classic_histograms_to_nhcb` is set.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from http import HTTPStatus
from types import MappingProxyType
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from crawler import __version__
from crawler import events as ev
from crawler.defects import Stage
from crawler.observe.freshness_totals import FadingAges
from crawler.page import CopyAge, Exchange, Outcome, Page
from crawler.scope.next_visit import Found

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

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which nothing here uses


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
    series; `hooks`: the page hooks. `label_names`: the labels of each counter and histogram."""

    def __init__(self, labels: Mapping[str, str] = MappingProxyType({}), hooks: Iterable[str] = ()) -> None:
        self.registry = LabelledRegistry(labels)
        self.label_names: dict[str, tuple[str, ...]] = {}
        ProcessCollector(registry=self.registry)
        build = Gauge(
            "peercrawl_build_info", "1, with versions as labels", ("version", "python"), registry=self.registry
        )
        build.labels(__version__, platform.python_version()).set(1)
        self._declare_fetching()
        self._declare_visits()
        self._declare_politeness()
        self._declare_frontier()
        self._declare_cluster()
        self._declare_storing()
        # One dictionary look-up instead of the client's validation; labels have few values.
        self._pages, self._reasons = cache(self.pages.labels), cache(self.reasons.labels)
        self._decisions, self._phases = cache(self.decisions.labels), cache(self.phases.labels)
        for stage in get_args(Stage):  # so that the first failure is an increase
            self.defects.labels(stage)
        for found in get_args(Found):  # the same
            self.visits.labels(found)
        for state in ("fresh", "outdated"):
            self.copies.labels(state)
        for hook in hooks:
            self.hook_failures.labels(hook)
        self.pages_total = 0  # pages fetched and settled, for the health record
        self.received_total = 0
        self.copy_ages = FadingAges()

    def _declare_fetching(self) -> None:
        self.pages = self._counter(
            "pages", "URLs settled or retried later, by outcome and status class", "outcome", "status"
        )
        self.reasons = self._counter("page_reasons", "URLs settled or retried later, by reason", "outcome", "reason")
        self.bytes = self._counter("received_bytes", "Bytes of response bodies as received")
        self.truncated = self._counter("bodies_truncated", "Response bodies that were truncated, by reason", "reason")
        self.cut = self._counter("pages_cut", "Pages of which a part is missing, by reason", "reason")
        self.response = self._histogram("response_seconds", "Time from the request to the last byte of the response")
        self.own_failures = self._counter(
            "own_failures", "Requests that failed because of our DNS, this machine or the operator's proxy", "kind"
        )
        phases = "Phases of a fetch; dns, connect and tls only for new connections"
        self.phases = self._histogram("fetch_phase_seconds", phases, "phase")

    def _declare_visits(self) -> None:
        self.visits = self._counter(
            "page_visits", "Visits of pages in a crawl with [recrawl], by what was found", "found"
        )
        self.ages = self._histogram(
            "copy_age_seconds", "Time since the visit before, when pages are visited again", buckets=_AGES
        )
        self.overdue = self._histogram(
            "visit_overdue_seconds", "How late pages are visited again, included in the age of the copy", buckets=_AGES
        )
        self.copies = self._counter(
            "copy_seconds",
            "Age of the copies of pages that had been compared before, by the expected state of the copy in this time",
            "state",
        )

    def _declare_politeness(self) -> None:
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

    def _declare_cluster(self) -> None:
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

    def lagged(self, lag_s: float) -> None:
        """Count a lag of the event loop, in seconds."""
        self.loop_lag.observe(lag_s)
        if lag_s > self._longest_loop_lag_s:
            self._longest_loop_lag_s = lag_s
            self.longest_loop_lag.set(lag_s)

    def _declare_storing(self) -> None:
        self.commit = self._histogram("commit_seconds", "Duration of the steps of a group commit", "step")
        self.commit_lag = self._histogram(
            "commit_lag_seconds", "Time from the first result of a group to its settlement"
        )
        self.hook_failures = self._counter("hook_failures", "Failures of page hooks", "hook")
        self.handler_failures = self._counter("handler_failures", "Pages whose handler failed or took too long")
        self.items_rejected = self._counter(
            "items_rejected", "Items that were not written: a value is missing, or of another type"
        )
        self.defects = self._counter("defects", "Unexpected errors while handling data from sites, by stage", "stage")
        self.sink_blocked = self._counter("sink_blocked", "Writes refused because the sink had no room")

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        self.label_names[f"peercrawl_{name}"] = labels
        return Counter(f"peercrawl_{name}", meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"peercrawl_{name}", meaning, registry=self.registry)

    def _histogram(self, name: str, meaning: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
        self.label_names[f"peercrawl_{name}"] = labels
        return Histogram(f"peercrawl_{name}", meaning, labels, registry=self.registry, buckets=buckets)

    def observe(self, event: ev.Event) -> None:
        """Count `event`."""
        match event:
            case ev.PageSettled(page):
                self._page(page)
            case ev.TurnTaken(late_s, waited_s):
                self.late.observe(late_s)
                if math.isfinite(waited_s):
                    self.delays.observe(waited_s)
            case ev.LinksPushed():
                self._links(event)
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
            case _:
                self._rare(event)

    def _links(self, event: ev.LinksPushed) -> None:
        self.links.labels("accepted").inc(event.accepted)
        self.links.labels("seen").inc(event.seen)
        self.links.labels("capped").inc(event.capped)
        self.links.labels("outside").inc(event.outside)
        self.links.labels("recent").inc(event.skipped)

    def _rare(self, event: ev.Event) -> None:
        match event:
            case ev.ViewAdopted():
                self._view(event)
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
            case ev.HookFailed() | ev.HandlerFailed() | ev.ItemsRejected() | ev.DefectFound():
                self._failure(event)
            case ev.SinkBlocked():
                self.sink_blocked.inc()
            case ev.OwnFailure(kind):
                self.own_failures.labels(kind).inc()
            case _:
                pass

    def _failure(self, event: ev.HookFailed | ev.HandlerFailed | ev.ItemsRejected | ev.DefectFound) -> None:
        match event:
            case ev.HookFailed(hook):
                self.hook_failures.labels(hook).inc()
            case ev.HandlerFailed():
                self.handler_failures.inc()
            case ev.ItemsRejected(_, count):
                self.items_rejected.inc(count)
            case ev.DefectFound(stage):
                self.defects.labels(stage).inc()

    def _view(self, event: ev.ViewAdopted) -> None:
        self.epoch.set(event.view.epoch)
        self.index.set(event.view.index)
        self.replicas.set(event.view.replicas)
        self.checksum.set(event.view.checksum)
        self.shards.set(event.owned)
        self.moved.labels("taken").inc(event.taken)
        self.moved.labels("dropped").inc(event.dropped)

    def _page(self, page: Page) -> None:
        exchange = page.exchange
        status = f"{exchange.status // 100}xx" if exchange and 100 <= exchange.status < 600 else "none"
        self._pages(page.outcome, status).inc()
        self._reasons(page.outcome, bounded(page.reason)).inc()
        if page.visit:
            self.visits.labels(page.visit).inc()
        if page.copy_age is not None:
            self._copy(page.copy_age, page.settled_at)
        if page.reason in ("robots", "robots_unreachable"):
            self._decisions("deny").inc()
        if exchange is not None:
            self._decisions("allow").inc()
            self.pages_total += page.outcome is not Outcome.RETRY
            self.received_total += len(exchange.body)
            self._exchange(exchange)
            for reason in page.cut:
                self.cut.labels(reason).inc()

    def _copy(self, copy: CopyAge, at: float) -> None:
        self.copy_ages.add(copy, at)
        self.ages.observe(copy.age_s)
        self.overdue.observe(copy.late_s)
        if copy.fresh_s is not None:
            self.copies.labels("fresh").inc(copy.fresh_s)
            self.copies.labels("outdated").inc(copy.age_s - copy.fresh_s)

    def _exchange(self, exchange: Exchange) -> None:
        self.bytes.inc(len(exchange.body))
        self.response.observe(exchange.elapsed)
        self._phases("first_byte").observe(exchange.first_byte)
        self._phases("body").observe(exchange.elapsed - exchange.first_byte)
        if exchange.phases is not None:
            for phase, seconds in zip(("dns", "connect", "tls"), exchange.phases, strict=True):
                if seconds is not None:
                    self._phases(phase).observe(seconds)
        if exchange.truncated:
            self.truncated.labels(exchange.truncated).inc()

    def round_trip(self, seconds: float, failed: bool) -> None:
        """Count a round trip to Redis that took `seconds`."""
        self.round_trips.observe(seconds)
        if failed:
            self.redis_errors.inc()

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


def bounded(reason: str) -> str:
    """Return `reason`, but "http_other" for all non-standard statuses, since servers may send hundreds of different
    ones."""
    return "http_other" if reason.startswith("http_") and reason not in _KNOWN_STATUSES else reason
