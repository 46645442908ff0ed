"""One replica: starts everything, and stops it in good order.

The order of stopping: take no more leases and give back those that wait; leave the roster; let turns in flight end,
until the deadline; commit what they brought; close the files.
"""

from __future__ import annotations

import asyncio
import logging
import random
import resource
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import msgspec

from crawler.app.build import changed
from crawler.app.engine import Base, Engine, Parts
from crawler.app.settings_reload import Follower
from crawler.events import CrawlEnded, PageSettled
from crawler.logs import LOGGED, LogListener, tell
from crawler.observe.collectors import Own, Readings
from crawler.observe.health_record import HEALTH_INTERVALS, HealthRecord
from crawler.observe.loop_lag import LoopLag
from crawler.observe.metrics import Metrics
from crawler.observe.recent_failures import Mishaps
from crawler.observe.summary_writer import Ledger
from crawler.observe.web import Answers, Live, StatusServer
from crawler.redis_retry import Patience
from crawler.settings.model import CrawlSettings, ReplicaSettings
from frontier.clock import Clock, SystemClock
from frontier.crawls import Crawl, verify_crawl
from frontier.errors import RedisAway, RedisMisused
from frontier.health import Health
from frontier.store import RedisStore

RATE_LOOKS = 10
"""Over how many looks, a second or less apart, the rate that is reported reaches: a single second is too jumpy to read."""


class Replica:
    """A crawler process of the crawl `crawl`. `until_empty`: end by itself when nothing is left to do."""

    def __init__(
        self,
        store: RedisStore,
        crawl: Crawl,
        settings: CrawlSettings,
        local: ReplicaSettings,
        parts: Parts,
    ) -> None:
        self.id = parts.replica
        self.events = parts.events
        self.metrics = Metrics()
        self._store = store
        self._crawl = crawl
        self._local = local
        self._doubts = settings.doubts
        self._parts = parts
        self._clock: Clock = SystemClock()
        self._rng = random.Random()
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: set[asyncio.Task[None]] = set()
        self._following: list[asyncio.Task[None]] = []
        self.ended = asyncio.Event()
        self.failure: BaseException | None = None
        self._hurried = False
        self._patience = Patience(self._clock, self.events, self._rng)
        self._patience.verify = self._verify
        base = Base(store, crawl, self.events, self._patience, self._clock, self._rng)
        engine = self._engine = Engine(base, settings, local, parts)
        self.peers, self.books = engine.peers, engine.books
        self._feeder, self._committer, self._turns = engine.feeder, engine.committer, engine.turns
        self._control, self._allowance = engine.control, engine.allowance
        self._follower = Follower(store, crawl, settings, self._obey, self.events)
        self._health = Health(store, crawl.keys.peers, ttl_s=HEALTH_INTERVALS * max(1.0, local.interval))
        self._build_watching(crawl)

    def __repr__(self) -> str:
        return f"<Replica {self.id} {self._feeder!r} {self._committer!r}>"

    def _build_watching(self, crawl: Crawl) -> None:
        """What tells how the crawl goes. It reads; the parts above do not know of it."""
        store, keys = self._store, crawl.keys
        live, answers = Live(store, keys, self.id, self._clock), Answers(store, keys.crawl)
        local = self._local
        self.status = StatusServer(
            local.listen, local.advertise, self.metrics.render, self.why_not_ready, live, answers
        )
        clocks = (self._clock, self.peers.server_clock)
        self._ledger = Ledger(store, keys, clocks, self._patience, lambda: self._feeder.view)
        self._parts.builder.on_drop = self._on_drop
        self.events.subscribe(self.metrics.observe)
        self.events.subscribe(LogListener(self.id).observe, *LOGGED)
        self._mishaps = Mishaps()
        self.events.subscribe(self._mishaps.observe, PageSettled)
        store.on_round_trip = self.metrics.round_trip
        self.loop_lag = LoopLag(self._clock, self.metrics.lagged)
        self.metrics.registry.register(Readings(self._own, lambda: self._ledger.latest))

    def _own(self) -> Own:
        visits = self._feeder.visits
        return Own(
            visits=len(visits),
            busy=sum(visit.busy for visit in visits),
            urls=sum(len(visit.pending) + visit.busy for visit in visits),
            backlog=self._committer.backlog,
            paused=self._control.paused,
            sink_bytes=self._parts.sink.written_bytes,
            settings_revision=self._follower.revision,
        )

    def _on_drop(self, reason: str, count: int) -> None:
        self.metrics.dropped.count(reason, by=count)

    # the three verbs

    async def start(self, until_empty: bool) -> None:
        """Begin to crawl. Raises UserError if the status address or the output folder cannot be used."""
        await self.peers.server_clock.refresh()
        await self._parts.sink.start(self._engine.frontier.disown)
        await self.status.start()
        self.peers.settings = msgspec.structs.replace(self.peers.settings, address=self.status.address)
        self._spawn(self.loop_lag.run())
        await self._parts.fetcher.start()
        self._following = [self._spawn(self._follow_views())]
        self._spawn(self._committer.run())
        self._spawn(self._feeder.run())
        self._spawn(self._feeder.keep_alive())
        self._spawn(self._report())
        self._spawn(self._follow_control())
        self._spawn(self._ledger.run())
        self._allowance.on_spent = self._on_spent
        self._spawn(self._allowance.run())
        if self._engine.scheduled is not None:
            self._spawn(self._engine.scheduled.run())
        if until_empty:
            self._spawn(self._find_end())
        self._turns.hire = self._hire
        for _ in range(self._local.concurrency):
            self._hire()
        tell(logging.INFO, "replica_started", replica=self.id, address=self.status.address)
        for doubt in self._doubts:
            tell(logging.WARNING, "settings_doubtful", told=doubt)

    def _hire(self) -> None:
        worker = asyncio.create_task(self._turns.work())
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)
        worker.add_done_callback(self._on_task_done)

    def quiet(self) -> None:
        """Take no more leases; give back those that only wait."""
        self._feeder.quiet()

    async def stop(self, grace_s: float) -> None:
        """Leave the roster, let turns in flight end within `grace_s`, commit, give everything back, close the files.

        The roster comes first, so that others take up the shards while the last turns end. What Redis cannot be told
        because it is away is left to the leases' expiry.
        """
        deadline = self._clock.monotonic() + grace_s
        self.quiet()
        await self._cancel(self._following)  # its next tick would claim an index again
        await self._part(self.peers.leave)
        await self._wait_for(lambda: not self._is_busy, deadline)
        await self._cancel(self._workers)
        for visit in list(self._feeder.visits):
            self._committer.give_back(visit)
        if not await self._wait_for(lambda: self._committer.is_idle, max(deadline, self._clock.monotonic() + 1.0)):
            tell(logging.WARNING, "stopped_unsettled", replica=self.id, leases=len(self._feeder.visits))
        await self._cancel(self._tasks)
        await self._part(lambda: self._health.withdraw(self.id))
        await self._part(self._allowance.budget.leave)
        await self._parts.fetcher.stop(0.0)
        await self._parts.builder.lane.stop()
        await self._parts.sink.stop()
        await self.status.stop()
        tell(logging.INFO, "replica_stopped", replica=self.id)

    async def _wait_for(self, is_done: Callable[[], bool], deadline: float) -> bool:
        """Whether `is_done` came true before `deadline`, or within a second when there is hurry or a task has failed."""
        soon = self._clock.monotonic() + 1.0
        while not is_done():
            now = self._clock.monotonic()
            if now >= deadline or (now >= soon and (self._hurried or self.failure is not None)):
                return False
            await self._clock.sleep(0.02)
        return True

    def hurry(self) -> None:
        """Do not wait for turns in flight any longer; what they would have brought is fetched again by others."""
        self._hurried = True

    @property
    def _is_busy(self) -> bool:
        return any(visit.busy for visit in self._feeder.visits)

    async def _part(self, step: Callable[[], Awaitable[None]]) -> None:
        """One step of leaving. If Redis is away our silence will say the same."""
        try:
            async with asyncio.timeout(2.0):
                await step()
        except (RedisAway, RedisMisused, TimeoutError) as error:
            tell(logging.WARNING, "left_without_notice", replica=self.id, error=error)

    # what runs beside the workers

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._on_task_done)
        self._tasks.append(task)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """A task that fails is a defect: the replica ends, loudly, and its leases go to the others."""
        if not task.cancelled() and task.exception() is not None:
            self.failure = self.failure or task.exception()
            self.ended.set()

    @staticmethod
    async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
        cancelled = list(tasks)
        for task in cancelled:
            task.cancel()
        await asyncio.gather(*cancelled, return_exceptions=True)

    async def _verify(self) -> None:
        """Raises CrawlLost when this is not the Redis, or not its state, that we began with."""
        await verify_crawl(self._store, self._crawl)

    async def _follow_views(self) -> None:
        async for view in self.peers.views(on_away=self._patience.lost):
            await self._patience.insist(self._verify)
            self._feeder.adopt(view)

    async def _follow_control(self) -> None:
        seedings = 0
        while True:
            await self._patience.insist(self._control.refresh)
            if self._control.seedings != seedings:
                seedings = self._control.seedings
                self._parts.recent.clear()  # of links that led out of the crawl, some may lead into it now
            if self._control.stopped:
                self._end("stopped")
            self._feeder.pause(self._control.paused)
            await self._patience.insist(lambda: self._follower.follow(self._control.settings_revision))
            await self._clock.sleep(min(1.0, self._local.interval))

    def _obey(self, settings: CrawlSettings) -> None:
        self._engine.obey(changed(settings, self._parts.recent))

    def _on_spent(self) -> None:
        if not self._is_busy:
            self._end("max_pages")

    async def _find_end(self) -> None:
        """End when the books say that nothing is left. Our own visits are in the books, so while we have any we need not
        ask."""
        while True:
            await self._clock.sleep(min(0.5, self._local.interval / 2))
            view = self._feeder.view
            idle = not self._feeder.visits and view is not None and view.index
            if idle and await self._patience.insist(self.books.has_ended):
                await self._patience.insist(self._verify)  # the books of a Redis that lost everything are empty, too
                self._end("empty")

    def _end(self, reason: str) -> None:
        if not self.ended.is_set():
            self.events.emit(CrawlEnded(reason))
            self.ended.set()

    async def _report(self) -> None:
        looks = deque([(0, self._clock.monotonic())], maxlen=RATE_LOOKS)
        while True:
            looks.append((self.metrics.pages_total, self._clock.monotonic()))
            (pages_before, at_before), (pages, at) = looks[0], looks[-1]
            rate = (pages - pages_before) / max(at - at_before, 0.001)
            record = msgspec.json.encode(self._record(rate))
            await self._patience.insist(lambda record=record: self._health.report(self.id, record))  # type: ignore[misc]
            await self._clock.sleep(min(1.0, self._local.interval))

    def _record(self, pages_per_s: float) -> HealthRecord:
        view, own = self._feeder.view, self._own()
        return HealthRecord(
            replica=self.id,
            address=self.status.address,
            epoch=view.epoch if view else 0,
            index=view.index if view else 0,
            shards=len(self._feeder.shards),
            visits=own.visits,
            pages=self.metrics.pages_total,
            received_bytes=self.metrics.received_total,
            pages_per_s=round(pages_per_s, 1),
            rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            redis_away=self._patience.is_away,
            busy=own.busy,
            urls=own.urls,
            mishaps=self._mishaps.latest,
            settings_revision=self._follower.revision,
            settings_waiting=self._follower.waiting,
            settings_refused=self._follower.refused,
        )

    def why_not_ready(self) -> str | None:
        """Why this replica cannot crawl now, or None."""
        if self._patience.is_away:
            return "Redis is away"
        if self._control.paused:
            return "paused by an operator"
        view = self._feeder.view
        if view is None or not view.index:
            return "not in the view yet"
        return None
