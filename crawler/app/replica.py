"""One replica: the engine that crawls, together with its metrics, logs, health record and status server.

Its index and the number of replicas come from `frontier.peers`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import resource
from collections import deque
from functools import partial

import msgspec

from crawler.app.build import RECENT_URLS, new_id, seams
from crawler.app.engine import Engine
from crawler.app.kept_settings import keep_settings
from crawler.app.request_setup import RequestSetup
from crawler.app.seams import Seams
from crawler.events import Event, GroupCommitted, OwnFailure, PageSettled, SettingsFollowed, SinkBlocked
from crawler.handlers.lifecycle import Lifecycle
from crawler.logs import DETAILS, LOGGED, DetailListener, LogListener, log, log_held_back, logger
from crawler.observe.collectors import MetricsCollector, ReplicaState
from crawler.observe.health_record import HEALTH_INTERVALS, HealthRecord
from crawler.observe.loop_lag import LoopLag
from crawler.observe.metrics import Metrics
from crawler.observe.obstacles import Obstacles
from crawler.observe.recent_failures import RecentFailures
from crawler.observe.summary_writer import SummaryWriter
from crawler.observe.web import Live, ServerAddress, StatePages, StatusServer
from crawler.scope.recent_urls import RecentUrls
from crawler.settings.load import CrawlSettings
from crawler.settings.tables import ReplicaTable
from frontier.clock import Clock
from frontier.crawls import Crawl
from frontier.peers import REPORTS_A_SECOND, Health, period_s
from frontier.store import RedisStore

RATE_SAMPLES = 10
"""Samples, a second or less apart, over which the reported rate is averaged: a single second fluctuates too much."""

WAITED_S, MOST_WAITED_FOR = 5.0, 10
"""Seconds without a complete response after which a domain is reported, and the most such domains."""


class Replica:
    """A replica of a crawl. `engine.ended` is set when it should stop."""

    def __init__(
        self, store: RedisStore, seams: Seams, settings: CrawlSettings, local: ReplicaTable, recent: RecentUrls
    ) -> None:
        self.id = seams.replica
        labels = {"crawl": seams.crawl.name, "replica": self.id}
        self.metrics = Metrics(labels, settings.archive.on_page)
        self.engine = engine = Engine(seams, settings, local, recent)
        self.store = store
        self._seams = seams
        self.local = local
        self._settings_warnings = settings.warnings
        self._pages_per_s = 0.0
        self._lifecycle = Lifecycle(seams.router, seams.context, settings.handlers.timeout)
        self._tasks: list[asyncio.Task[None]] = []
        keys = seams.crawl.keys
        self._health = Health(store, keys.peers, ttl_s=HEALTH_INTERVALS * max(1.0, local.interval))
        self.status = StatusServer(
            ServerAddress(local.listen, local.advertise, local.hosts),
            self.metrics.render,
            engine.readiness,
            Live(store, keys, self.id, seams.clock),
            StatePages(store, keys.crawl),
        )
        clocks = (seams.clock, engine.runtime.server_clock)
        self._summary = SummaryWriter(store, keys, clocks, engine.runtime.retry, lambda: engine.leases.view)
        self._failures = RecentFailures()
        self._obstacles = Obstacles()
        self.loop_lag = LoopLag(seams.clock, self.metrics.lagged)
        self.metrics.registry.register(MetricsCollector(self._state, lambda: self._summary.latest))
        seams.events.subscribe(self.metrics.observe)
        seams.events.subscribe(LogListener(self.id).observe, *LOGGED)
        if logger.isEnabledFor(logging.DEBUG):
            seams.events.subscribe(DetailListener(self.id).observe, *DETAILS)
        seams.events.subscribe(self._failures.observe, PageSettled)
        seams.events.subscribe(self._obstacles.observe, SinkBlocked, OwnFailure, GroupCommitted)
        seams.events.subscribe(self._keep_settings, SettingsFollowed)
        store.watch_round_trips(self.metrics.round_trip)

    def __repr__(self) -> str:
        return f"<Replica {self.id} {self.engine!r}>"

    async def start(self, until_empty: bool) -> None:
        """Start crawling. Raises UserError if the status address or the output folder cannot be used, and if a user's
        function for the start fails."""
        await self.status.start()
        try:
            await self._lifecycle.start()
            await self.engine.start(until_empty, self.status.address)
        except BaseException:
            await self._lifecycle.stop()
            await self.status.stop()
            raise
        self._keep_settings()
        spawn = self.engine.tasks.spawn
        self._tasks = [spawn(self.loop_lag.run()), spawn(self._report()), spawn(self._summary.run())]
        if self.local.progress:
            self._tasks.append(spawn(self._log_progress()))
        log(logging.INFO, "replica_started", replica=self.id, address=self.status.address)
        for warning in self._settings_warnings:
            log(logging.WARNING, "settings_warning", warning=warning)

    def next_id(self) -> str:
        """An id for the replica that continues in this process."""
        return new_id()

    def successor(self, name: str, crawl: Crawl) -> Replica:
        """The replica `name` that continues in this process with `crawl`, which has other shards, and with the settings
        that this one has applied. It has not started."""
        engine, settings = self.engine, self.engine.follower.settings
        local = msgspec.structs.replace(self.local, listen=self.status.listen)
        reaching = seams(crawl, self.store, settings, local, name, self.setup)
        made = msgspec.structs.replace(reaching, time=engine.peers.time)
        return Replica(self.store, made, settings, local, RecentUrls(RECENT_URLS))

    def _keep_settings(self, _: Event | None = None) -> None:
        keep_settings(self.local.out, self.crawl.name, self.engine.follower.settings.with_shards(self.crawl.shards))

    @property
    def crawl(self) -> Crawl:
        """The crawl, as it was opened."""
        return self._seams.crawl

    @property
    def setup(self) -> RequestSetup:
        """What its machine adds to its requests."""
        return self._seams.setup

    @property
    def clock(self) -> Clock:
        return self._seams.clock

    async def stop(self, grace_s: float) -> None:
        """Stop the engine (see `Engine.stop`), and then the reporting. `grace_s`: seconds for running turns to end."""
        try:
            await self.stop_crawling(grace_s)
        finally:
            await self.status.stop()

    async def stop_crawling(self, grace_s: float) -> None:
        """The same without the status pages."""
        try:
            await self.engine.stop(grace_s)
        finally:
            await self._lifecycle.stop()
            await self.engine.tasks.cancel(self._tasks)
            self.store.unwatch_round_trips(self.metrics.round_trip)
            await self.engine.leave(lambda: self._health.withdraw(self.id))
        log_held_back()
        log(logging.INFO, "replica_stopped", replica=self.id)

    def _state(self) -> ReplicaState:
        engine, domains = self.engine, list(self.engine.held)
        return ReplicaState(
            domains=len(domains),
            busy=sum(leased.busy for leased in domains),
            urls=sum(len(leased.pending) + leased.busy for leased in domains),
            backlog=engine.committer.backlog,
            paused=engine.control.paused,
            sink_bytes=self._seams.sink.written_bytes,
            settings_revision=engine.follower.revision,
            redis_away=engine.runtime.retry.is_away,
            nodes=engine.runtime.retry.nodes,
            parked=engine.committer.parked,
            time_corrections=engine.peers.time.corrections,
        )

    async def _log_progress(self) -> None:
        while True:
            await self._seams.clock.sleep(self.local.progress)
            now = self._record(self._pages_per_s)
            log(
                logging.INFO,
                "progress",
                replica=self.id,
                pages=now.pages,
                pages_per_s=now.pages_per_s,
                received_bytes=now.received_bytes,
                shards=now.shards,
                leased_urls=now.urls,
                in_flight=now.busy,
            )

    async def _report(self) -> None:
        clock, retry = self._seams.clock, self.engine.runtime.retry
        samples = deque([(0, clock.monotonic())], maxlen=RATE_SAMPLES)
        reported_at = -math.inf
        while True:
            samples.append((self.metrics.pages_total, clock.monotonic()))
            (pages_before, at_before), (pages, at) = samples[0], samples[-1]
            self._pages_per_s = (pages - pages_before) / max(at - at_before, 0.001)
            usual_s = min(1.0, self.local.interval)
            gap_s = period_s(usual_s, self.engine.replicas(), REPORTS_A_SECOND)
            if at >= reported_at + gap_s - usual_s / 2:
                reported_at = at
                await retry.call_crawl_node(partial(self._send_record, HEALTH_INTERVALS * gap_s))
            await clock.sleep(usual_s)

    async def _send_record(self, ttl_s: float) -> None:
        await self._health.report(self.id, msgspec.json.encode(self._record(self._pages_per_s)), ttl_s)

    def _record(self, pages_per_s: float) -> HealthRecord:
        engine, own, used = self.engine, self._state(), resource.getrusage(resource.RUSAGE_SELF)
        view = engine.leases.view
        return HealthRecord(
            replica=self.id,
            address=self.status.address,
            epoch=view.epoch if view else 0,
            index=view.index if view else 0,
            shards=len(engine.held.shards),
            domains=own.domains,
            pages=self.metrics.pages_total,
            received_bytes=self.metrics.received_total,
            pages_per_s=round(pages_per_s, 1),
            rss_mb=round(used.ru_maxrss / 1024, 1),
            redis_away=own.redis_away,
            busy=own.busy,
            urls=own.urls,
            recent_failures=self._failures.latest,
            settings_revision=engine.follower.revision,
            settings_waiting=engine.follower.waiting,
            settings_refused=engine.follower.refused,
            nodes_away=engine.runtime.retry.away_nodes,
            blocked=self._obstacles.describe(engine.allowance.is_awaited and not own.busy),
            waits_for=self._waits_for(),
            cpu_s=round(used.ru_utime + used.ru_stime, 1),
            copies=self.metrics.copy_ages.sums,
        )

    def _waits_for(self) -> list[str]:
        """The domains whose responses have not been complete for some seconds, those with the oldest requests first."""
        before = asyncio.get_running_loop().time() - WAITED_S
        late = [one for one in self.engine.held if one.timer.oldest <= before]
        return [one.domain for one in sorted(late, key=lambda one: one.timer.oldest)[:MOST_WAITED_FOR]]
