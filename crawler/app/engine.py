"""The composition root: builds the parts of a replica that crawl from seams and settings, and starts and stops them.

The seams are the interfaces to everything outside the engine: Redis, the clock, HTTP and the sink (`crawler.app.seams`).
A simulation passes different ones and runs the same engine as production.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence

from crawler.app.archive_setup import archive_settings
from crawler.app.background_tasks import Tasks
from crawler.app.build import PageRules, frontier_settings, page_handling, page_items, page_rules
from crawler.app.last_writes import REDIS_STEP_S, look_for_new_runs, wait_until_safe
from crawler.app.scheduled_duties import PeriodicDuties, PeriodicDuty
from crawler.app.seams import Seams
from crawler.app.settings_reload import Follower
from crawler.events import CrawlEnded, Event, PageSettled, RedisOutageBegan, RedisOutageEnded
from crawler.fetch.scheduled_validators import Validators
from crawler.logs import log
from crawler.parse.offload import DocumentOffloader
from crawler.redis_retry import RedisRetry
from crawler.scope.recent_urls import RecentUrls
from crawler.settings.load import CrawlSettings
from crawler.settings.policies import politeness_policy, refetched, url_rules
from crawler.settings.tables import ReplicaTable
from crawler.wording import count_of
from crawler.worker.address_limit import AddressLimiter, DividedRateLimiter
from crawler.worker.allowance import Allowance
from crawler.worker.commit import Committer
from crawler.worker.content_extractor import ContentExtractor
from crawler.worker.delay_queue import DelayQueue
from crawler.worker.foreign_domains import KEPT_MS, ForeignDomainAccess
from crawler.worker.held_leases import HeldLeases
from crawler.worker.lease_manager import LeaseManager, LeaseManagerSettings
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.leased_fetch import LeasedFetch
from crawler.worker.next_turn import Turns
from crawler.worker.outbox_delivery import OutboxDelivery
from crawler.worker.page_builder import PageBuilder
from crawler.worker.polite_fetch import PoliteFetch
from crawler.worker.pool import WorkerPool
from crawler.worker.robots_lookup import RobotsLookup
from crawler.worker.runtime import Runtime
from crawler.worker.sitemap_hints import SitemapHints
from crawler.worker.throttle import Throttle
from crawler.worker.url_handler import UrlHandler
from crawler.worker.worker import Worker
from frontier.budget import Budget, PageLimit, leased_ms
from frontier.control import Control
from frontier.counters import Counters
from frontier.crawls import verify_crawl
from frontier.entries import Entry
from frontier.errors import RedisAway, RedisMisused
from frontier.keys import owners_table
from frontier.peers import Duties, PeerLoop, PeerSettings, period_s
from frontier.queue import Frontier, PushReply
from frontier.reservations import Reservations
from frontier.shards import Nodes
from politeness.address_rate_limit import LocalRateLimiter, RateLimiter, RateLimitPolicy, SharedRateLimiter
from politeness.policy import CurrentPolicy
from politeness.robots_cache import RobotsCache

HOSTS_A_DOMAIN = 2
"""Hosts for each leased domain whose robots.txt and addresses are cached. Many domains have two, with and without
`www.`."""

REPEATED_S = 3.0
"""Within this time after a restart of a server, all replicas have normally repeated their last writes."""


class Engine:
    """The connected parts that crawl. `ended` is set when the crawl has ended, when an operator has stopped it, when it
    `has_other_shards`, and when a task has failed (`tasks.failure`)."""

    def __init__(self, seams: Seams, settings: CrawlSettings, local: ReplicaTable, recent: RecentUrls) -> None:
        self._seams = seams
        self._settings = settings
        self._local = local
        self._recent = recent
        self.tasks = Tasks()
        self.ended = asyncio.Event()
        self.has_other_shards = False  # or is being given another number of them
        self.uploads_left = 0  # files that could not be uploaded, after `stop`
        self._skips_grace = False
        self.following: list[asyncio.Task[None]] = []
        self._running: list[asyncio.Task[None]] = []
        self._build_frontier(settings)
        self._build_leases(settings)
        self._build_fetch(settings)
        self._build_worker(page_rules(settings, recent))
        self.follower = Follower(seams.store, seams.crawl, settings, self._apply, seams.events, local.accept)
        self.periodic = self._build_periodic(settings)

    def __repr__(self) -> str:
        return f"<Engine {self._seams.replica} {self.leases!r} {self.committer!r}>"

    def _build_frontier(self, settings: CrawlSettings) -> None:
        seams, crawl, local = self._seams, self._seams.crawl, self._local
        shards, table = len(crawl.keys.shards), owners_table(crawl.keys.layout)
        peer_settings = PeerSettings(local.interval, local.capacity, shards=shards, table=table)
        self.peers = PeerLoop(seams.store, crawl.keys.peers, seams.clock, peer_settings, seams.replica, seams.rng)
        if seams.time is not None:
            self.peers.continue_time(seams.time)
        server_clock = self.peers.server_clock
        retry = RedisRetry(seams.clock, seams.events, seams.rng, self._verify, Nodes(seams.store, crawl.keys))
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
            PageLimit(settings.limits.max_pages, crawl.revision),
            leased_ms(self.frontier.settings.lease_ms, local.interval),
        )
        # Redis may have lost its last writes in the outage.
        seams.events.subscribe(lambda _: self._recent.clear(), RedisOutageEnded)

    def _build_leases(self, settings: CrawlSettings) -> None:
        self.held = HeldLeases(self.runtime, self._budget)
        self._seams.events.subscribe(self._void_lost, RedisOutageBegan)
        queue, concurrency = DelayQueue[LeasedDomain](self._seams.clock), self._local.concurrency
        self.allowance = Allowance(self.runtime, self._budget, queue, concurrency, self.replicas)
        self.committer = Committer(self.runtime, self.frontier, self._seams.sink, self._recent, self.held)
        self._outbox = OutboxDelivery(self.runtime, self.frontier, self.held)

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

    def _build_worker(self, rules: PageRules) -> None:
        seams, runtime = self._seams, self.runtime
        cache = RobotsCache(
            seams.store, self.frontier, self._settings.fetch.user_agent, in_turn=lambda: HOSTS_A_DOMAIN * len(self.held)
        )
        self._pool = WorkerPool()
        self._offload = DocumentOffloader(self._pool.stand_in, events=seams.events)
        self._builder = PageBuilder(rules.build, rules.links, self._offload, cache, seams.events, self.control)
        robots = RobotsLookup(runtime, cache, self._fetch, self._builder, self.committer)
        ahead = LeaseManagerSettings(ahead=2 * self._local.concurrency)
        self.leases = LeaseManager(runtime, self.frontier, self.committer, self.allowance, robots.prefetch, ahead)
        turns = Turns(runtime, self.leases, self.allowance, self._pool.stand_in)
        contents = ContentExtractor(
            archive_settings(seams.crawl.name, seams.replica, self._settings, self._local).content, self._offload
        )
        items = page_items(seams, runtime, self._settings, self._local.out, self._offload)
        self._handling = page_handling(seams, self._settings, self._builder, items, contents, turns)
        pages = UrlHandler(runtime, self._fetch, self._handling, self.committer, self.allowance)
        hints = SitemapHints(runtime, seams.store, self.frontier, self.tasks.spawn).observe
        seams.events.subscribe(hints, PageSettled)
        self._worker = Worker(runtime, turns, robots, self._throttle, pages)

    def _validators(self, settings: CrawlSettings) -> Validators:
        validators = Validators(urls := refetched(settings))
        if urls:
            self._seams.events.subscribe(validators.observe, PageSettled)
        return validators

    def _rate_limiter(self, policy: RateLimitPolicy) -> RateLimiter:
        if policy.shared:
            clocks = (self._seams.clock, self.runtime.server_clock)
            shared = SharedRateLimiter(self._seams.store, self._seams.crawl.keys, *clocks, policy)
            return DividedRateLimiter(self.runtime, shared, policy, self.replicas)
        return LocalRateLimiter(self._seams.clock, policy)

    def replicas(self) -> int:
        """The number of replicas in the view, 0 before the first one."""
        return 0 if self.leases.view is None else self.leases.view.replicas

    def _build_periodic(self, settings: CrawlSettings) -> PeriodicDuties | None:
        duties = [PeriodicDuty(duty.every_s, duty.seeds, duty.sitemap) for duty in settings.schedule]
        if not duties:
            return None
        seams = self._seams
        claims = Duties(seams.store, seams.crawl.keys.duties, self.runtime.server_clock, seams.replica)
        return PeriodicDuties(self.runtime, claims, duties, self._seed, url_rules(settings))

    async def _seed(self, entries: Sequence[Entry]) -> PushReply:
        pushed = await self.frontier.push(entries)
        if pushed.accepted:
            await self.control.seeded()
        return pushed

    async def start(self, until_empty: bool, address: str = "") -> None:
        """Start crawling. `address`: where other replicas and users reach this one. `until_empty`: end when the crawl is
        empty. Raises UserError if the output folder cannot be used."""
        await self.peers.time.check(0)
        await self.runtime.retry.call_crawl_node(self.control.refresh)  # no page may name a domain that was forgotten
        await self._seams.sink.start(self.frontier.revoke, self.frontier.may_repeat)
        self.peers.advertise(address)
        await self._seams.http.start(lambda: HOSTS_A_DOMAIN * len(self.held))
        self.following = [self.tasks.spawn(self._follow_views())]
        work = [
            self.committer.run(),
            self.committer.watch_runs(),
            self.leases.run(),
            self.leases.keep_alive(),
            self._follow_control(),
            self.allowance.run(self._on_spent),
            self._end_on_failure(),
            self.runtime.retry.watch(),
            self._outbox.run(),
        ]
        if self.periodic is not None:
            work.append(self.periodic.run())
        if until_empty:
            work.append(self._find_end())
        self._running = [self.tasks.spawn(each) for each in work]
        self._pool.start(self._worker.run, self._local.concurrency, self.tasks.spawn)

    def drain(self) -> None:
        """Take no more leases, and return those of waiting domains."""
        self.leases.drain()

    async def stop(self, grace_s: float) -> None:
        """Take no more leases, leave the roster, let running turns end within `grace_s` seconds, commit, return all leases,
        wait until Redis has synced its writes, and close the files. The replica leaves the roster before it waits, so that
        others can take over its shards while the last turns end. Leases that cannot be returned because Redis is
        unavailable expire."""
        clock, deadline = self._seams.clock, self._seams.clock.monotonic() + grace_s
        self.drain()
        await self.tasks.cancel(self.following)  # otherwise its next claim would put it into the roster again
        await self.leave(self.peers.leave)
        await self._wait_for(lambda: not self.held.is_busy, deadline)
        await self._pool.stop()
        await self._repeat_lost_writes(deadline)
        for leased in self.held:
            self.committer.give_back(leased)
        if not await self._wait_for(lambda: self.committer.is_idle, max(deadline, clock.monotonic() + 1.0)):
            log(logging.WARNING, "stopped_unsettled", replica=self._seams.replica, leases=len(self.held))
        # The embedded server loses nothing unless this machine crashes, and a small crawl should end at once.
        are_safe = not self._local.redis or await wait_until_safe(self.frontier, clock)
        await self.tasks.cancel(self._running)
        has_left = await self.leave(self._budget.leave)
        await self._seams.http.stop(0.0)
        await self._offload.stop()
        # A server may have been restarted, may not answer, or may refuse writes and lose the last ones, as on a full disk.
        has_answered = has_left and await look_for_new_runs(self.frontier, clock)
        if is_in_doubt := not (are_safe and has_answered) or self.frontier.is_in_doubt:
            log(logging.WARNING, "stopped_in_doubt", replica=self._seams.replica)
        self.uploads_left = await self._seams.sink.stop(is_in_doubt)

    async def _repeat_lost_writes(self, deadline: float) -> None:
        """Wait until the last writes are repeated if the server was restarted just now. This has to come before the leases
        are returned: afterwards, Redis cannot tell that their pages were settled."""
        await look_for_new_runs(self.frontier, self._seams.clock)
        until = max(deadline, self._seams.clock.monotonic() + 1.0)
        await self._wait_for(lambda: not self.frontier.replaced_runs(), until)

    def skip_grace(self) -> None:
        """Stop waiting for running turns. Their URLs are fetched again later."""
        self._skips_grace = True

    async def _wait_for(self, is_done: Callable[[], bool], deadline: float) -> bool:
        """Wait for `is_done` until `deadline` (monotonic seconds), but only for a second after `skip_grace` or the
        failure of a task. Returns False on timeout."""
        clock, soon = self._seams.clock, self._seams.clock.monotonic() + 1.0
        while not is_done():
            now = clock.monotonic()
            if now >= deadline or (now >= soon and (self._skips_grace or self.tasks.failure is not None)):
                return False
            await clock.sleep(0.02)
        return True

    async def leave(self, step: Callable[[], Awaitable[None]]) -> bool:
        """Run one step of leaving the cluster. Failures and timeouts are logged. Returns whether it succeeded."""
        try:
            async with asyncio.timeout(REDIS_STEP_S):
                await step()
                return True
        except (RedisAway, RedisMisused, TimeoutError) as error:
            log(logging.WARNING, "left_without_notice", replica=self._seams.replica, error=error)
            return False

    # background tasks

    async def _end_on_failure(self) -> None:
        await self.tasks.failed.wait()
        self.ended.set()

    def _void_lost(self, event: Event) -> None:
        if isinstance(event, RedisOutageBegan) and event.has_lost:
            self.held.void(event.node)

    async def _verify(self) -> None:
        """Raise CrawlLost if Redis no longer has the state of the crawl that this replica joined."""
        await verify_crawl(self._seams.store, self._seams.crawl)

    async def _follow_views(self) -> None:
        async for view in self.peers.views(on_away=self.runtime.retry.crawl_node_failed):
            await self.runtime.retry.call_crawl_node(self._verify)
            self.leases.adopt(view)

    async def _follow_control(self) -> None:
        retry, control, seedings = self.runtime.retry, self.control, 0
        while True:
            await retry.call_crawl_node(control.refresh)
            if control.has_other_shards:
                self.has_other_shards = True
                self.ended.set()
                return
            if control.seedings != seedings:
                seedings = control.seedings
                self._recent.clear()  # links that were out of scope may be in scope now
            if control.stopped:
                self._end("stopped")
            self.leases.set_paused(control.paused)
            self.peers.set_paused(control.paused)
            await retry.call_crawl_node(lambda: self.follower.follow(control.settings_revision))
            await self._seams.clock.sleep(period_s(min(1.0, self._local.interval), self.replicas()))

    def _apply(self, settings: CrawlSettings, revision: int) -> None:
        """Apply changed settings of `revision`. Delays and leases that have begun keep their length."""
        rules, policy = page_rules(settings, self._recent), politeness_policy(settings)
        self.runtime.policy.replace(policy)
        self.frontier.settings = frontier_settings(settings)
        lease_ms = leased_ms(self.frontier.settings.lease_ms, self._local.interval)
        self.allowance.apply(PageLimit(settings.limits.max_pages, revision), lease_ms)
        self._reservations.apply(self.frontier.settings.delay_ms)
        self._seams.http.apply(settings.limits.max_body, settings.politeness.parallel)
        self._handling.apply(rules.build, rules.links, rules.extract)
        self._recent.clear()  # links that were dropped before may be followed now

    def _on_spent(self) -> None:
        if not self.held.is_busy:
            self._end("max_pages")

    async def _find_end(self) -> None:
        """End the crawl when the counters show that nothing is left. They are read only while this replica holds no lease.
        They do not count soon after a restart of a server, which may lack links that others are about to push again."""
        retry, clock = self.runtime.retry, self._seams.clock
        runs, changed_at = self.frontier.runs(), -math.inf
        while True:
            await clock.sleep(period_s(min(0.5, self._local.interval / 2), self.replicas()))
            view = self.leases.view
            idle = not len(self.held) and view is not None and view.index
            if idle and await retry.call(lambda: self.counters.has_ended(self.frontier.visits_by_ms)):
                await retry.call_crawl_node(self._verify)  # a Redis that lost all data has counters of 0, too
                latest = self.frontier.runs()  # a server may have been restarted since the counters were read
                if any(runs.get(shard, run) != run for shard, run in latest.items()):
                    changed_at = clock.monotonic()
                runs |= latest
                if clock.monotonic() < changed_at + REPEATED_S:
                    continue
                self._end("empty")

    def _end(self, reason: str) -> None:
        if not self.ended.is_set():
            self._seams.events.emit(CrawlEnded(reason))
            self.ended.set()

    def readiness(self) -> tuple[bool, str]:
        """Return whether this replica can crawl now, at least the shards of some nodes of a cluster, and what it lacks."""
        view, retry = self.leases.view, self.runtime.retry
        away, incomplete, node = retry.away_nodes, retry.incomplete_nodes, retry.away_crawl_node
        if self.has_other_shards:
            return False, "the crawl is being given another number of shards"
        if retry.is_away:
            return False, "Redis is away"
        if self.control.paused:
            return False, "paused by an operator"
        if view is None or not view.index:
            return False, f"not in the view: {node} is away, with the control keys" if node else "not in the view yet"
        if incomplete:
            return True, f"ready, but shards have lost their data at {', '.join(incomplete)}; run `crawler repair`"
        if away:
            waiting = count_of(self.committer.parked, "result")
            return True, f"ready, but Redis is away at {', '.join(away)}; waiting for it: {waiting}"
        return True, "ready"
