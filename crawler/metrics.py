"""Prometheus metrics: read off the events and the replica's state, never written by the crawl itself."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from crawler import events as ev
from crawler.page import Outcome, Page

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The metrics of one replica, in a registry of their own. `observe` is an event listener."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.pages = Counter(
            "peercrawl_pages",
            "URLs settled or put off, by outcome and status class",
            ["outcome", "status"],
            registry=registry,
        )
        self.reasons = Counter(
            "peercrawl_page_reasons",
            "URLs settled or put off, by outcome and reason",
            ["outcome", "reason"],
            registry=registry,
        )
        self.bytes = Counter("peercrawl_received_bytes", "Octets of bodies as received", registry=registry)
        self.truncated = Counter("peercrawl_truncated", "Bodies cut off, by reason", ["reason"], registry=registry)
        self.response = Histogram(
            "peercrawl_response_seconds", "Request to last octet", buckets=_SECONDS, registry=registry
        )
        self.first_byte = Histogram(
            "peercrawl_first_byte_seconds", "Request to response head", buckets=_SECONDS, registry=registry
        )
        self.robots = Counter("peercrawl_robots", "robots.txt files settled, by access", ["access"], registry=registry)
        self.late = Histogram(
            "peercrawl_turn_late_seconds", "How late domains had their turn", buckets=_SECONDS, registry=registry
        )
        self.links = Counter("peercrawl_links", "Links offered, by what became of them", ["fate"], registry=registry)
        self.dropped = Counter("peercrawl_links_dropped", "Links not offered, by reason", ["reason"], registry=registry)
        self.leases = Counter("peercrawl_domains_leased", "Domains that came under lease", registry=registry)
        self.fenced = Counter("peercrawl_leases_fenced", "Lease calls refused for a newer view", registry=registry)
        self.stale = Counter("peercrawl_leases_lost", "Leases found stale when settling", registry=registry)
        self.commit = Histogram(
            "peercrawl_commit_seconds", "Steps of the commit", ["step"], buckets=_SECONDS, registry=registry
        )
        self.epoch = Gauge("peercrawl_epoch", "Epoch of the view in force", registry=registry)
        self.index = Gauge("peercrawl_peer_index", "This replica's index in the view, 0 if absent", registry=registry)
        self.replicas = Gauge("peercrawl_replicas", "Replicas in the view", registry=registry)
        self.checksum = Gauge(
            "peercrawl_view_checksum", "32 bits over the view; equal on all replicas", registry=registry
        )
        self.shards = Gauge("peercrawl_shards_owned", "Shards owned in the view", registry=registry)
        self.moved = Counter("peercrawl_shards_moved", "Shards that came or went", ["direction"], registry=registry)
        self.away = Gauge("peercrawl_redis_away", "1 while Redis cannot serve", registry=registry)
        self.losses = Counter("peercrawl_redis_losses", "Times that Redis went away", registry=registry)
        self.sink_blocked = Counter("peercrawl_sink_blocked", "Groups that the sink had no room for", registry=registry)
        self.visits = Gauge("peercrawl_visits", "Domains under lease here", registry=registry)
        self.pages_total = 0  # fetched and settled, for the health record
        self.received_total = 0

    def observe(self, event: ev.Event) -> None:
        """Count `event`."""
        match event:
            case ev.PageSettled(page):
                self._page(page)
            case ev.TurnTaken(late_s):
                self.late.observe(late_s)
            case ev.LinksPushed(accepted, known, capped, skipped):
                for fate, count in (("accepted", accepted), ("known", known), ("capped", capped), ("recent", skipped)):
                    self.links.labels(fate).inc(count)
            case ev.LinkDropped(reason, count):
                self.dropped.labels(reason).inc(count)
            case ev.GroupCommitted(_, push_s, sink_s, settle_s, stale):
                for step, seconds in (("push", push_s), ("sink", sink_s), ("settle", settle_s)):
                    self.commit.labels(step).observe(seconds)
                self.stale.inc(stale)
            case ev.DomainsLeased(domains):
                self.leases.inc(domains)
            case _:
                self._rare(event)

    def _rare(self, event: ev.Event) -> None:
        match event:
            case ev.ViewAdopted(view, owned, taken, dropped):
                self.epoch.set(view.epoch)
                self.index.set(view.index)
                self.replicas.set(view.replicas)
                self.checksum.set(view.checksum)
                self.shards.set(owned)
                self.moved.labels("taken").inc(taken)
                self.moved.labels("dropped").inc(dropped)
            case ev.RobotsSettled(_, access):
                self.robots.labels(access).inc()
            case ev.ShardFenced():
                self.fenced.inc()
            case ev.RedisLost():
                self.away.set(1)
                self.losses.inc()
            case ev.RedisFound():
                self.away.set(0)
            case ev.SinkBlocked():
                self.sink_blocked.inc()
            case _:
                pass

    def _page(self, page: Page) -> None:
        exchange = page.exchange
        status = f"{exchange.status // 100}xx" if exchange else "none"
        self.pages.labels(page.outcome, status).inc()
        self.reasons.labels(page.outcome, page.reason).inc()
        if exchange is not None:
            self.pages_total += page.outcome is not Outcome.RETRY
            self.received_total += len(exchange.body)
            self.bytes.inc(len(exchange.body))
            self.response.observe(exchange.elapsed)
            self.first_byte.observe(exchange.first_byte)
            if exchange.truncated:
                self.truncated.labels(exchange.truncated).inc()

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self.registry)
