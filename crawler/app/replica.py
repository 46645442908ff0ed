"""One replica: the engine that crawls, together with its metrics, logs, health record and status server; and `crawler
run`, which runs replicas until the crawl ends or a signal arrives.

When `crawler reshard` gives the crawl another number of shards, a replica ends its leases, waits, and continues as a
new replica in the same process. One that did not notice in time finds that all shards refuse it. Its files stay open,
and the new replica asks which of its last pages are settled, as after a crash (`crawler.sinks.recovery`). The status
pages of the old one stay until the new one starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import math
import resource
import shutil
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import msgspec

from crawler.app.crawl_settings import OnDifference, check_installed, choose_and_adopt, keep_settings
from crawler.app.embedded_valkey import open_store
from crawler.app.engine import Dependencies, Engine, new_id, production_dependencies
from crawler.app.requests import local_tables, request_setup
from crawler.app.signals import INTERRUPTED, on_end_of_supervisor, on_stop_signal
from crawler.app.supervisor import local_settings, progress_logged, progress_s, supervise
from crawler.errors import UPLOADS_LEFT, SinkFull, UserError
from crawler.events import Event, GroupCommitted, SettingsFollowed
from crawler.handlers.runner import Lifecycle
from crawler.logs import DETAILS, LOGGED, DetailListener, LogListener, log, log_held_back, logger
from crawler.observe.health import HEALTH_INTERVALS, HealthRecord, Troubles
from crawler.observe.metrics import LoopLag, Metrics, MetricsCollector, ReplicaState
from crawler.observe.summary import SummaryWriter
from crawler.observe.web import Live, ServerAddress, StatePages, StatusServer
from crawler.settings.guarded import accepted, check_guarded
from crawler.settings.load import CrawlSettings, Settings
from crawler.settings.tables import ReplicaTable
from crawler.sinks.forget import marks_in
from crawler.wording import eviction_warning
from frontier.crawls import Crawl, compare_suffix_list, evicted_keys, mark_local, open_crawl, verify_crawl
from frontier.errors import (
    CrawlLost,
    CrawlResharded,
    FrontierError,
    NoSuchCrawl,
    RedisAway,
    RedisMisused,
    Resharding,
    ShardLost,
)
from frontier.forget import forget_again
from frontier.peers import CLAIMING, REPORTS_A_SECOND, Health, PeerLoop, PeerSettings, period_s
from frontier.shards import lost_shards
from frontier.store import RedisStore

GRACE_S = 5.0
"""How long requests in flight may take before a reshard, in seconds: less than `frontier.reshard.LEASES_END_S`, by the
two seconds in which a replica notices the reshard, and one in which it settles."""

RESHARD_POLL_S, RESHARD_LOGGED_S = 0.5, 10.0
"""Seconds between two looks whether the reshard has ended, and between two lines of the log about it."""

RATE_SAMPLES = 10
"""Samples, a second or less apart, over which the reported rate is averaged: a single second fluctuates too much."""

READINGS, CLAIM_ROUND_TRIPS = 3, 3
"""Round trips of which the fastest counts, and those that a claim takes, with its readings of the clock."""

CLOCK_OFF_S = 2.0
"""Seconds by which a machine's clock may differ from that of the crawl. Below, NTP is at work."""

DISK_S = 10.0
"""Seconds between two measurements of the free disk space."""

WAITED_S, MOST_WAITED_FOR = 5.0, 10
"""Seconds without a complete response after which a domain is reported, and the most such domains."""


class Replica:
    """A replica of a crawl. `engine.ended` is set when it should stop."""

    def __init__(self, store: RedisStore, deps: Dependencies, settings: CrawlSettings, local: ReplicaTable) -> None:
        self.id = deps.replica
        labels = {"crawl": deps.crawl.name, "replica": self.id}
        self.name = local.name or socket.gethostname()
        self.metrics = Metrics(labels, settings.archive.on_page, name=self.name)
        self.engine = engine = Engine(deps, settings, local)
        self.store, self.crawl, self.clock = store, deps.crawl, deps.clock
        self._deps = deps
        self.local = local
        self._settings_warnings = settings.warnings
        self._pages_per_s = 0.0
        self._is_clock_off = False
        self._lifecycle = Lifecycle(deps.router, deps.context, settings.handlers.timeout)
        self._tasks: list[asyncio.Task[None]] = []
        keys = deps.crawl.keys
        self._health = Health(store, keys.peers, ttl_s=HEALTH_INTERVALS * max(1.0, local.interval))
        self._troubles = Troubles()
        self.status = StatusServer(
            ServerAddress(local.listen, local.advertise, local.hosts),
            self.metrics.render,
            self._readiness,
            Live(store, keys, self.id, deps.clock),
            StatePages(store, keys.crawl, self._troubles.items),
        )
        clocks = (deps.clock, engine.runtime.server_clock)
        self._summary = SummaryWriter(store, keys, clocks, engine.runtime.retry, lambda: engine.leases.view)
        self._disk_free: int | None = None
        self.loop_lag = LoopLag(deps.clock, self.metrics.lagged)
        self.metrics.registry.register(MetricsCollector(self._state, lambda: self._summary.latest))
        deps.events.subscribe(self.metrics.observe)
        deps.events.subscribe(LogListener(self.id).observe, *LOGGED)
        if logger.isEnabledFor(logging.DEBUG):
            deps.events.subscribe(DetailListener(self.id).observe, *DETAILS)
        deps.events.subscribe(self._troubles.observe, *Troubles.EVENTS)
        self._are_settings_kept = True
        deps.events.subscribe(self._keep_settings, SettingsFollowed, GroupCommitted)
        store.watch_round_trips(self.metrics.round_trip)

    def __repr__(self) -> str:
        return f"<Replica {self.id} {self.engine!r}>"

    async def start(self, until_empty: bool) -> None:
        """Start crawling. Raises UserError for the status address, the output folder and functions for the start."""
        await self._check_interval()
        if not await self._health.records():
            marks = marks_in(self.local.out)
            if domains := await forget_again(self.store, self.crawl, self.engine.frontier, marks):
                log(logging.WARNING, "forgotten_again", domains=domains)
            if self.engine.old_state is not None:
                await self.engine.old_state.restore_ended()
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
        self._tasks.append(spawn(self._measure_disk()))
        if self.local.progress:
            self._tasks.append(spawn(self._log_progress()))
        log(logging.INFO, "replica_started", replica=self.id, name=self.name, address=self.status.address)
        for warning in self._settings_warnings:
            log(logging.WARNING, "settings_warning", warning=warning)
        if warning := eviction_warning(self.store.eviction_policy):
            log(logging.WARNING, "redis_may_evict", warning=warning)
        if warning := await compare_suffix_list(self.store, self.crawl):
            log(logging.WARNING, "suffix_list_differs", warning=warning)

    async def _check_interval(self) -> None:
        """Raises UserError if Redis is so far away that no claim could arrive within its interval."""
        round_trips_s = [(await self.engine.peers.server_clock.read()).round_trip_ms / 1000 for _ in range(READINGS)]
        needed_s = CLAIM_ROUND_TRIPS * min(round_trips_s) / (1 - CLAIMING)
        if needed_s > self.local.interval:
            raise UserError(
                f"replica.interval is {self.local.interval:g} s, but a round trip to Redis takes {min(round_trips_s):.2f} "
                f"s, so this replica would own nothing: set it to {math.ceil(2 * needed_s)} or more for all replicas"
            )

    def next_id(self) -> str:
        """An id for the replica that continues in this process."""
        return new_id()

    def successor(self, name: str, crawl: Crawl) -> Replica:
        """The replica `name` that continues in this process with `crawl` and its other shards. It has not started."""
        engine, settings = self.engine, self.engine.follower.settings
        local = msgspec.structs.replace(self.local, listen=self.status.listen)
        setup, time = self._deps.setup, engine.peers.time
        deps = production_dependencies(crawl, self.store, settings, local, setup, replica=name, time=time)
        return Replica(self.store, deps, settings, local)

    def _keep_settings(self, event: Event | None = None) -> None:
        if isinstance(event, GroupCommitted) and (self._are_settings_kept or not event.pages):
            return
        settings = self.engine.follower.settings.with_shards(self.crawl.shards)
        self._are_settings_kept = keep_settings(self.local.out, self.crawl.name, settings)

    async def stop(self) -> None:
        """Stop the engine, whose running turns have `replica.grace` seconds to end, and then the reporting."""
        try:
            await self.stop_crawling(self.local.grace)
        finally:
            await self.status.stop()

    async def stop_crawling(self, grace_s: float) -> None:
        """Stop the engine within `grace_s` seconds (see `Engine.stop`), but keep serving the status pages."""
        try:
            await self.engine.stop(grace_s)
        finally:
            await self._lifecycle.stop()
            await self.engine.tasks.cancel(self._tasks)
            self.store.unwatch_round_trips(self.metrics.round_trip)
            await self.engine.leave(lambda: self._health.withdraw(self.id))
        log_held_back()
        log(logging.INFO, "replica_stopped", replica=self.id)

    def _readiness(self) -> tuple[bool, str]:
        """See `Engine.readiness`. A replica that cannot write its output cannot crawl either."""
        if obstacle := self._troubles.of_output:
            return False, obstacle
        return self.engine.readiness()

    def _state(self) -> ReplicaState:
        engine, domains = self.engine, list(self.engine.held)
        return ReplicaState(
            domains=len(domains),
            busy=sum(leased.busy for leased in domains),
            urls=sum(len(leased.pending) + leased.busy for leased in domains),
            backlog=engine.committer.backlog,
            paused=engine.control.paused or engine.control.stopped,
            sink_bytes=self._deps.sink.written_bytes,
            settings_revision=engine.follower.revision,
            redis_away=engine.runtime.retry.is_away,
            nodes=engine.runtime.retry.nodes,
            parked=engine.committer.parked,
            time_corrections=engine.peers.time.corrections,
            disk_free=self._disk_free,
        )

    async def _log_progress(self) -> None:
        while True:
            await self.clock.sleep(self.local.progress)
            now = self._record()
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
        clock, retry = self.clock, self.engine.runtime.retry
        samples = deque([(0, clock.monotonic())], maxlen=RATE_SAMPLES)
        reported_at = -math.inf
        while True:
            samples.append((self.metrics.pages_total, clock.monotonic()))
            (pages_before, at_before), (pages, at) = samples[0], samples[-1]
            self._pages_per_s = (pages - pages_before) / max(at - at_before, 0.001)
            usual_s = min(1.0, self.local.interval)
            gap_s = period_s(usual_s, self.engine.replicas(), REPORTS_A_SECOND)
            if at >= reported_at + gap_s - usual_s / 2 and self.engine.runtime.server_clock.reading is not None:
                reported_at = at
                record = msgspec.json.encode(self._record())
                now_ms = int(self.engine.runtime.server_clock.now_ms())
                report = partial(self._health.report, self.id, record, HEALTH_INTERVALS * gap_s, now_ms)
                await retry.call_crawl_node(report)
            await clock.sleep(usual_s)

    def _record(self) -> HealthRecord:
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
            pages_per_s=round(self._pages_per_s, 1),
            rss_mb=round(used.ru_maxrss / 1024, 1),
            redis_away=own.redis_away,
            busy=own.busy,
            urls=own.urls,
            recent_failures=list(self._troubles.failures),
            recent_pages=list(self._troubles.pages),
            settings_revision=engine.follower.revision,
            settings_waiting=engine.follower.waiting,
            settings_refused=engine.follower.refused,
            nodes_away=engine.runtime.retry.away_nodes,
            blocked=self._troubles.obstacle(engine.permits.is_awaited and not own.busy),
            waits_for=self._waits_for(),
            cpu_s=round(used.ru_utime + used.ru_stime, 1),
            clock_off_s=self._clock_off_s(),
            disk_free=self._disk_free,
        )

    async def _measure_disk(self) -> None:
        """Measure the free space for the output. A network disk may not answer, which must not hold up the replica."""
        while True:
            with contextlib.suppress(OSError):
                self._disk_free = (await asyncio.to_thread(shutil.disk_usage, self.local.out)).free
            await self.clock.sleep(DISK_S)

    def _clock_off_s(self) -> float:
        """By how many seconds this machine's clock is ahead of that of the crawl, 0 for little. Logs changes."""
        off_s = time.time() - self.engine.runtime.server_clock.time_s()
        is_off = abs(off_s) > CLOCK_OFF_S
        if is_off and not self._is_clock_off:
            log(logging.WARNING, "clock_is_off", replica=self.id, ahead_s=round(off_s, 1))
        self._is_clock_off = is_off
        return round(off_s, 1) if is_off else 0.0

    def _waits_for(self) -> list[str]:
        """The domains whose responses have not been complete for some seconds, those with the oldest requests first."""
        before = asyncio.get_running_loop().time() - WAITED_S
        late = [one for one in self.engine.held if one.oldest_request <= before]
        return [one.domain for one in sorted(late, key=lambda one: one.oldest_request)[:MOST_WAITED_FOR]]


class Run:
    """Runs `replica` until the crawl ends or `stop` is called. While the crawl is given another number of shards, it
    waits, and continues as another replica. `until_empty`: the crawl ends when nothing is left."""

    def __init__(self, replica: Replica, until_empty: bool) -> None:
        self._replica = replica
        self._until_empty = until_empty
        self._stopping = asyncio.Event()
        self._stops = 0

    def stop(self) -> None:
        """Stop the replica. Running turns have `replica.grace` seconds to end; a second call stops the wait."""
        self._stops += 1
        engine, grace_s = self._replica.engine, self._replica.local.grace if self._stops == 1 else 0
        log(logging.INFO, "stopping", replica=self._replica.id, waits_s=grace_s)
        self._stopping.set()
        engine.ended.set()
        engine.skips_grace = self._stops > 1

    async def until_ended(self) -> int:
        """Run, and return the exit code, which is 130 after a second call of `stop`. Raises UserError and
        FrontierError."""
        while await self._start():
            if self._stops:
                self._replica.engine.ended.set()
            await self._replica.engine.ended.wait()
            if self._stops or not await self._was_resharded():
                await self._replica.stop()
                return await self._exit_code()
            if not await self._continue():
                break
        if self._stops:  # while it waited; what its engine has failed with is the reshard
            return INTERRUPTED if self._stops > 1 else 0
        return await self._exit_code()

    async def _exit_code(self) -> int:
        engine = self._replica.engine
        failure = engine.tasks.failure
        if await self._was_frozen(failure, waits=False):  # while it was stopping, or the crawl had ended
            failure = None
        if isinstance(failure, CrawlLost):
            await self._name_evictions(failure)
        if isinstance(failure, (UserError, FrontierError, SinkFull)):
            raise failure
        if failure is not None:
            logger.error("replica_failed", exc_info=failure, extra={"fields": {"replica": self._replica.id}})
            return 1
        if self._stops > 1:
            return INTERRUPTED
        return UPLOADS_LEFT if engine.uploads_left else 0

    async def _name_evictions(self, failure: CrawlLost) -> None:
        """Add to `failure` that Redis has evicted keys, if it has."""
        store = self._replica.store
        with contextlib.suppress(FrontierError):
            evicted = await evicted_keys(store, self._replica.crawl.keys)
            if evicted and (warning := eviction_warning(store.eviction_policy, evicted)):
                failure.reword(f"{failure}. {warning}")

    async def _start(self) -> bool:
        """Start the replica, or if the crawl has other shards by now, the one that continues. False after `stop`."""
        while True:
            try:
                await self._replica.start(self._until_empty)
            except CrawlResharded:
                if (crawl := await self._resharded()) is None:
                    return False
                self._continue_as(self._replica.next_id(), crawl)
            else:
                return True

    async def _was_resharded(self) -> bool:
        """Whether the engine has ended because of a reshard. False if `stop` is called before this is known."""
        engine = self._replica.engine
        if engine.tasks.failure is None:
            return engine.has_other_shards
        return await self._was_frozen(engine.tasks.failure, waits=True)

    async def _was_frozen(self, failure: BaseException | None, waits: bool) -> bool:
        """Whether shards refused the replica because of a reshard, and are not lost. `waits`: ask until Redis or `stop`
        answers."""
        while isinstance(failure, ShardLost):
            store, crawl = self._replica.store, self._replica.crawl
            try:
                await verify_crawl(store, crawl)
                return not await lost_shards(store, crawl.keys, sorted(failure.shards))
            except CrawlLost as error:
                return isinstance(error, CrawlResharded)
            except (RedisAway, RedisMisused):
                if not waits or self._stopping.is_set():
                    return False
                await self._pause()
        return isinstance(failure, (CrawlResharded, Resharding))

    async def _continue(self) -> bool:
        """Stop the engine, wait for the end of the reshard, and take the replica that continues. False after `stop` or
        a failure."""
        replica, engine, local = self._replica, self._replica.engine, self._replica.local
        name, settings = replica.next_id(), PeerSettings(local.interval, local.capacity, replica.status.address)
        place = PeerLoop(replica.store, replica.crawl.keys.peers, replica.clock, settings, name, engine.runtime.rng)
        await engine.tasks.cancel(engine.following)
        place.time = engine.peers.time
        claiming = asyncio.create_task(_claim(place))
        crawl = None
        try:
            await replica.stop_crawling(min(local.grace, GRACE_S))
            if isinstance(engine.tasks.failure, (CrawlLost, Resharding, type(None))):
                crawl = await self._resharded()
        finally:
            claiming.cancel()
            await asyncio.wait([claiming])
            if crawl is None:
                await engine.leave(place.leave)
            await replica.status.stop()
        if crawl is not None:
            self._continue_as(name, crawl)
        return crawl is not None

    def _continue_as(self, name: str, crawl: Crawl) -> None:
        # With the revision that it has applied: a change that it has missed, or that waits for a restart, is seen again.
        revision = self._replica.engine.follower.revision
        self._replica = self._replica.successor(name, msgspec.structs.replace(crawl, revision=revision))

    async def _resharded(self) -> Crawl | None:
        """The crawl with its new shards, once it can be opened. None after `stop`. Raises CrawlLost if it is gone."""
        replica, logged_at = self._replica, -math.inf
        while not self._stopping.is_set():
            try:
                crawl = await open_crawl(replica.store, replica.crawl.name)
            except Resharding as error:
                now = replica.clock.monotonic()
                if now >= logged_at + RESHARD_LOGGED_S:
                    logged_at = now
                    log(logging.INFO, "resharding", replica=replica.id, message=f"the crawl is {error.progress}")
            except (RedisAway, RedisMisused):
                pass  # as long as it takes, as for every other call
            except NoSuchCrawl as error:
                raise CrawlLost(str(error)) from error
            else:
                log(logging.INFO, "resharded", replica=replica.id, shards=crawl.shards)
                return crawl
            await self._pause()
        return None

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), RESHARD_POLL_S)


async def _claim(place: PeerLoop) -> None:
    async for _ in place.views():
        pass


async def run_until_stopped(replica: Replica, until_empty: bool, supervised: bool = False) -> int:
    """Run until the crawl, a signal or the supervisor (`supervised`) ends it, and return the exit code."""
    run = Run(replica, until_empty)
    on_stop_signal(run.stop)
    if supervised:
        on_end_of_supervisor(run.stop)
    return await run.until_ended()


async def run_replicas(
    crawl: str,
    settings: Settings,
    replicas: int = 1,
    *,
    until_empty: bool,
    on_difference: OnDifference = "stop",
    supervised: bool = False,
    before_start: Callable[[RedisStore, Crawl], Awaitable[None]] | None = None,
) -> int:
    """Run `replicas` replicas of an existing crawl, and return the exit code. `supervised`: stop when the process at
    the other end of standard input has ended. Before starting anything, it raises SettingsDiffer if the settings differ
    from those of the crawl and `on_difference` is "stop", UserError if this machine does not accept them, and what
    `before_start` raises, which is called with the crawl."""
    setup = request_setup(settings)  # so that a key that cannot be used is reported before anything starts
    supervisor = supervise(crawl, settings, replicas, until_empty) if replicas > 1 else None
    # With several replicas, it keeps the embedded server running while a crashed one is replaced.
    async with open_store(settings.replica) as store:
        opened = await choose_and_adopt(store, await open_crawl(store, crawl), settings, on_difference)
        stored = CrawlSettings.from_json(opened.settings)
        check_guarded(stored, accepted(settings))
        check_installed(stored)
        if before_start is not None:
            await before_start(store, opened)
        if supervisor is not None:
            on_stop_signal(supervisor.stop)
            async with progress_logged(store, crawl, progress_s(settings)):
                return await supervisor.run()
        await mark_local(store, opened, local_tables(settings))
        local = local_settings(settings)
        replica = Replica(store, production_dependencies(opened, store, stored, local, setup), stored, local)
        every_s = 0.0 if supervised else progress_s(settings)
        async with paced_collection(), progress_logged(store, crawl, every_s):
            return await run_until_stopped(replica, until_empty, supervised)


YOUNG_S = 0.5
"""Seconds between collections of the young generations."""

ALL_STEPS = 1_200
"""These collections per full one (ten minutes). A full collection cannot be split, and takes longer the larger the
state of the crawl is."""


@contextlib.asynccontextmanager
async def paced_collection() -> AsyncIterator[None]:
    """Collect garbage on a schedule, in small steps, within the context.

    By default the interpreter collects when allocations exceed deallocations, also of old objects, by a threshold.
    There may be hundreds of thousands of live young objects by then, and the event loop pauses for tens of
    milliseconds. Both young generations are collected at once: the youngest alone takes more than twice the time. What
    exists when the crawl starts is frozen and never scanned again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    collecting = asyncio.create_task(_collect())
    try:
        yield
    finally:
        collecting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await collecting
        gc.unfreeze()  # otherwise C libraries report leaks when the interpreter exits
        if was_enabled:
            gc.enable()


async def _collect() -> None:
    for step in itertools.count(1):
        await asyncio.sleep(YOUNG_S)
        gc.collect(2 if step % ALL_STEPS == 0 else 1)
