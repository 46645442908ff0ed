"""The composition root: the parts of a replica that crawl, built from their seams and settings, started and stopped.

The seams are what a part cannot do without reaching out of the process: Redis, the clock, HTTP and the sink
(`crawler.app.seams`). A simulation that passes others drives the same engine as the program.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from crawler.app.build import Plan, frontier_settings, plan_of
from crawler.app.periodic import PeriodicDuties, PeriodicDuty
from crawler.app.seams import Seams
from crawler.app.settings_reload import Follower
from crawler.app.tasks import Tasks
from crawler.events import CrawlEnded, PageSettled, RedisFound
from crawler.fetch.conditional import Validators
from crawler.logs import log
from crawler.parse.offload import DocumentOffloader
from crawler.redis_retry import RedisRetry
from crawler.scope.recent_urls import RecentUrls
from crawler.settings.model import CrawlSettings, ReplicaSettings
from crawler.settings.policies import politeness_policy, refetched, url_rules
from crawler.worker.address_limit import AddressLimiter
from crawler.worker.allowance import Allowance
from crawler.worker.commit import Committer
from crawler.worker.delay_queue import DelayQueue
from crawler.worker.foreign_domains import KEPT_MS, ForeignDomainAccess
from crawler.worker.held_leases import HeldLeases
from crawler.worker.leased_fetch import LeasedFetch
from crawler.worker.leases import LeaseManager, LeaseManagerSettings
from crawler.worker.page_builder import PageBuilder
from crawler.worker.page_visit import PageVisits
from crawler.worker.polite_fetch import PoliteFetch
from crawler.worker.pool import WorkerPool
from crawler.worker.robots import RobotsService
from crawler.worker.runtime import Runtime
from crawler.worker.throttle import Throttle
from crawler.worker.visit import Visit
from crawler.worker.worker import Worker
from frontier.budget import Budget
from frontier.control import Control
from frontier.counters import Counters
from frontier.crawls import verify_crawl
from frontier.duties import Duties
from frontier.entries import Entry
from frontier.errors import RedisAway, RedisMisused
from frontier.peers import PeerLoop, PeerSettings
from frontier.queue import Frontier, Pushed
from frontier.reservations import Reservations
from politeness.address_rate_limit import LocalRateLimiter, RateLimiter, RateLimitPolicy, SharedRateLimiter
from politeness.policy import CurrentPolicy
from politeness.robots_cache import RobotsCache

HOSTS_A_DOMAIN = 2
"""Whose robots.txt and addresses are remembered while the domain is under lease: often it has one with `www.` and one
without."""

PART_S = 2.0
"""How long one step of leaving may take. If Redis is away, our silence will say the same."""


class Engine:
    """The parts that crawl, connected. `ended` is set when the crawl is over, when an operator has stopped it, and when a
    part has failed (`tasks.failure`)."""

    def __init__(self, seams: Seams, settings: CrawlSettings, local: ReplicaSettings, recent: RecentUrls) -> None:
        self._seams = seams
        self._settings = settings
        self._local = local
        self._recent = recent
        self.tasks = Tasks()
        self.ended = asyncio.Event()
        self._hurried = False
        self._following: list[asyncio.Task[None]] = []
        self._running: list[asyncio.Task[None]] = []
        self._build_frontier(settings)
        self._build_leases(settings)
        self._build_fetch(settings)
        self._build_worker(plan_of(settings, recent))
        self.follower = Follower(seams.store, seams.crawl, settings, self._apply, seams.events)
        self.periodic = self._build_periodic(settings)

    def __repr__(self) -> str:
        return f"<Engine {self._seams.replica} {self.leases!r} {self.committer!r}>"

    # building

    def _build_frontier(self, settings: CrawlSettings) -> None:
        seams, crawl, local = self._seams, self._seams.crawl, self._local
        peer_settings = PeerSettings(local.interval, local.capacity, shards=len(crawl.keys.shards))
        self.peers = PeerLoop(seams.store, crawl.keys.peers, seams.clock, peer_settings, seams.replica, seams.rng)
        server_clock = self.peers.server_clock
        retry = RedisRetry(seams.clock, seams.events, seams.rng, self._verify)
        self.runtime = Runtime(
            replica=seams.replica,
            clock=seams.clock,
            server_clock=server_clock,
            retry=retry,
            events=seams.events,
            rng=seams.rng,
            policy=CurrentPolicy(politeness_policy(settings)),
        )
        self.frontier = Frontier(
            seams.store, crawl.keys, server_clock, frontier_settings(settings), crawl.fingerprint_key
        )
        self.counters = Counters(seams.store, crawl.keys)
        self.control = Control(seams.store, crawl.keys)
        self._budget = Budget(
            seams.store,
            crawl.keys,
            server_clock,
            seams.replica,
            settings.limits.max_pages,
            self.frontier.settings.lease_ms,
        )
        # What Redis was told last before it went away, it may have lost.
        seams.events.subscribe(lambda _: self._recent.clear(), RedisFound)

    def _build_leases(self, settings: CrawlSettings) -> None:
        self.held = HeldLeases(self.runtime)
        queue: DelayQueue[Visit] = DelayQueue(self._seams.clock)
        self.allowance = Allowance(self.runtime, self._budget, queue, self._local.concurrency)
        self.committer = Committer(self.runtime, self.frontier, self._seams.sink, self._recent, self.held)

    def _build_fetch(self, settings: CrawlSettings) -> None:
        seams, runtime, keys = self._seams, self.runtime, self._seams.crawl.keys
        hold_ms = int(1000 * (settings.fetch.connect_timeout + settings.fetch.timeout)) + KEPT_MS
        self._reservations = Reservations(
            seams.store, keys, runtime.server_clock, hold_ms, self.frontier.settings.delay_ms
        )
        self._throttle = Throttle(runtime, self.control)
        self._fetch = PoliteFetch(
            runtime,
            LeasedFetch(seams.http, seams.clock, self._validators(settings)),
            AddressLimiter(runtime, seams.http, self._rate_limiter),
            ForeignDomainAccess(runtime, self._reservations),
            self._throttle,
        )

    def _build_worker(self, plan: Plan) -> None:
        seams, runtime = self._seams, self.runtime
        cache = RobotsCache(
            seams.store, self.frontier, self._settings.fetch.user_agent, in_turn=lambda: HOSTS_A_DOMAIN * len(self.held)
        )
        self._pool = WorkerPool()
        self._offload = DocumentOffloader(self._pool.stand_in)
        self._builder = PageBuilder(plan.build, plan.links, self._offload, cache, seams.events)
        robots = RobotsService(runtime, cache, self._fetch, self._builder, self.committer)
        ahead = LeaseManagerSettings(ahead=2 * self._local.concurrency)
        self.leases = LeaseManager(runtime, self.frontier, self.committer, self.allowance, robots.prefetch, ahead)
        pages = PageVisits(runtime, self._fetch, self._builder, self.committer, self.allowance)
        self._worker = Worker(runtime, self.leases, robots, self._throttle, pages)

    def _validators(self, settings: CrawlSettings) -> Validators:
        urls = refetched(settings)
        validators = Validators(urls)
        if urls:
            self._seams.events.subscribe(validators.observe, PageSettled)
        return validators

    def _rate_limiter(self, policy: RateLimitPolicy) -> RateLimiter:
        if policy.shared:
            keys = self._seams.crawl.keys
            return SharedRateLimiter(self._seams.store, keys, self._seams.clock, self.runtime.server_clock, policy)
        return LocalRateLimiter(self._seams.clock, policy)

    def _build_periodic(self, settings: CrawlSettings) -> PeriodicDuties | None:
        duties = [PeriodicDuty(duty.every_s, duty.seeds, duty.sitemap) for duty in settings.schedule]
        if not duties:
            return None
        seams = self._seams
        claims = Duties(seams.store, seams.crawl.keys.duties, self.runtime.server_clock, seams.replica)
        return PeriodicDuties(self.runtime, claims, duties, self._seed, url_rules(settings))

    async def _seed(self, entries: Sequence[Entry]) -> Pushed:
        pushed = await self.frontier.push(entries)
        if pushed.accepted:
            await self.control.seeded()
        return pushed

    # the three verbs

    async def start(self, until_empty: bool, address: str = "") -> None:
        """Begin to crawl. `address`: where the others find this replica. `until_empty`: end by itself when nothing is left
        to do. Raises UserError if the output folder cannot be used."""
        await self.runtime.server_clock.refresh()
        await self._seams.sink.start(self.frontier.revoke)
        self.peers.advertise(address)
        await self._seams.http.start(lambda: HOSTS_A_DOMAIN * len(self.held))
        self._following = [self.tasks.spawn(self._follow_views())]
        work = [
            self.committer.run(),
            self.leases.run(),
            self.leases.keep_alive(),
            self._follow_control(),
            self.allowance.run(self._on_spent),
            self._end_on_failure(),
        ]
        if self.periodic is not None:
            work.append(self.periodic.run())
        if until_empty:
            work.append(self._find_end())
        self._running = [self.tasks.spawn(each) for each in work]
        self._pool.start(self._worker.run, self._local.concurrency, self.tasks.spawn)

    def quiet(self) -> None:
        """Take no more leases; give back those that only wait."""
        self.leases.quiet()

    async def stop(self, grace_s: float) -> None:
        """Leave the roster, let turns in flight end within `grace_s`, commit, give everything back, close the files.

        The roster comes first, so that others take up the shards while the last turns end. What Redis cannot be told
        because it is away is left to the leases' expiry.
        """
        clock = self._seams.clock
        deadline = clock.monotonic() + grace_s
        self.quiet()
        await self.tasks.cancel(self._following)  # its next tick would claim an index again
        await self.leave(self.peers.leave)
        await self._wait_for(lambda: not self.held.is_busy, deadline)
        await self._pool.stop()
        for visit in self.held:
            self.committer.give_back(visit)
        if not await self._wait_for(lambda: self.committer.is_idle, max(deadline, clock.monotonic() + 1.0)):
            log(logging.WARNING, "stopped_unsettled", replica=self._seams.replica, leases=len(self.held))
        await self.tasks.cancel(self._running)
        await self.leave(self._budget.leave)
        await self._seams.http.stop(0.0)
        await self._offload.stop()
        await self._seams.sink.stop()

    def hurry(self) -> None:
        """Do not wait for turns in flight any longer; what they would have brought is fetched again by others."""
        self._hurried = True

    async def _wait_for(self, is_done: Callable[[], bool], deadline: float) -> bool:
        """Whether `is_done` came true before `deadline`, or within a second when there is hurry or a task has failed."""
        clock = self._seams.clock
        soon = clock.monotonic() + 1.0
        while not is_done():
            now = clock.monotonic()
            if now >= deadline or (now >= soon and (self._hurried or self.tasks.failure is not None)):
                return False
            await clock.sleep(0.02)
        return True

    async def leave(self, step: Callable[[], Awaitable[None]]) -> None:
        """One step of leaving."""
        try:
            async with asyncio.timeout(PART_S):
                await step()
        except (RedisAway, RedisMisused, TimeoutError) as error:
            log(logging.WARNING, "left_without_notice", replica=self._seams.replica, error=error)

    # what runs beside the workers

    async def _end_on_failure(self) -> None:
        await self.tasks.failed.wait()
        self.ended.set()

    async def _verify(self) -> None:
        """Raises CrawlLost when this is not the Redis, or not its state, that we began with."""
        await verify_crawl(self._seams.store, self._seams.crawl)

    async def _follow_views(self) -> None:
        async for view in self.peers.views(on_away=self.runtime.retry.lost):
            await self.runtime.retry.call(self._verify)
            self.leases.adopt(view)

    async def _follow_control(self) -> None:
        retry, control = self.runtime.retry, self.control
        seedings = 0
        while True:
            await retry.call(control.refresh)
            if control.seedings != seedings:
                seedings = control.seedings
                self._recent.clear()  # of links that led out of the crawl, some may lead into it now
            if control.stopped:
                self._end("stopped")
            self.leases.pause(control.paused)
            await retry.call(lambda: self.follower.follow(control.settings_revision))
            await self._seams.clock.sleep(min(1.0, self._local.interval))

    def _apply(self, settings: CrawlSettings) -> None:
        """Go by changed settings from now on. A delay that has begun ends as it was, and so does a lease."""
        plan, policy = plan_of(settings, self._recent), politeness_policy(settings)
        self.runtime.policy.replace(policy)
        self.frontier.apply(frontier_settings(settings))
        self._budget.apply(settings.limits.max_pages, self.frontier.settings.lease_ms)
        self._reservations.apply(self.frontier.settings.delay_ms)
        self._seams.http.apply(settings.limits.max_body, settings.politeness.parallel)
        self._builder.apply(plan.build, plan.links)
        self._recent.clear()  # what was dropped before may be wanted now

    def _on_spent(self) -> None:
        if not self.held.is_busy:
            self._end("max_pages")

    async def _find_end(self) -> None:
        """End when the counters say that nothing is left. Our own leases are counted, so while we have any we need not
        ask."""
        retry = self.runtime.retry
        while True:
            await self._seams.clock.sleep(min(0.5, self._local.interval / 2))
            view = self.leases.view
            idle = not len(self.held) and view is not None and view.index
            if idle and await retry.call(self.counters.has_ended):
                await retry.call(self._verify)  # the counters of a Redis that lost everything are 0, too
                self._end("empty")

    def _end(self, reason: str) -> None:
        if not self.ended.is_set():
            self._seams.events.emit(CrawlEnded(reason))
            self.ended.set()

    def why_not_ready(self) -> str | None:
        """Why this replica cannot crawl now, or None."""
        if self.runtime.retry.is_away:
            return "Redis is away"
        if self.control.paused:
            return "paused by an operator"
        view = self.leases.view
        if view is None or not view.index:
            return "not in the view yet"
        return None
