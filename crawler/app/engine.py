"""The composition root: builds the parts of a replica that crawl from their dependencies and the settings, and starts
and stops them. A simulation passes other dependencies and runs the same engine.

A replica that stops waits until the servers have synced its last writes, because nobody would repeat them after a
restart of a server. If they cannot be known to be safe, its files stay open: the next start removes the pages that are
not settled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any

import msgspec

from crawler import processes
from crawler.app.crawl_settings import Follower
from crawler.app.requests import RequestSetup, fetch_settings
from crawler.app.restore import OldState
from crawler.events import CrawlEnded, Event, Events, HandlerStopsCrawl, PageSettled, RedisOutageBegan, RedisOutageEnded
from crawler.fetch import library_privates
from crawler.fetch.client import Fetcher, HttpClient
from crawler.fetch.request_rules import Origin, RequestRules
from crawler.handlers.requests import FILES
from crawler.handlers.router import Context, Router, app_settings, load_router
from crawler.handlers.runner import HandlerRunner
from crawler.handlers.values import SharedValues, in_redis
from crawler.hooks import SINKS, PageHooks, load
from crawler.logs import log
from crawler.page import Action
from crawler.parse.child import DocumentOffloader
from crawler.parse.html import ExtractPolicy
from crawler.redis_retry import RedisRetry
from crawler.scope.actions import action_of, comes_last
from crawler.scope.next_visit import parse_rules
from crawler.scope.page_steps import PageSteps
from crawler.scope.scope import LinkFilter, RecentUrls, TrapPolicy
from crawler.scope.shapes import Shapes
from crawler.settings.load import CrawlSettings
from crawler.settings.policies import (
    extract_rules,
    politeness_policy,
    scope,
    scorer,
    url_rules,
)
from crawler.settings.tables import ReplicaTable
from crawler.sinks import SinkContext
from crawler.sinks.archive import Archive
from crawler.sinks.archive_settings import Fields, archive_settings
from crawler.sinks.items import save_types
from crawler.sinks.sink import CombinedSink, DurableSink
from crawler.wording import count_of, with_remedy
from crawler.worker.commit import Committer
from crawler.worker.extra import ExtraRequests
from crawler.worker.items import ItemTypes
from crawler.worker.lease_manager import LeaseManager, LeaseManagerSettings, PagePermits
from crawler.worker.leases import DelayQueue, HeldLeases
from crawler.worker.outbox import OutboxDelivery
from crawler.worker.page import BuildSettings, PageBuilder, PageHandling
from crawler.worker.rendering import BrowserRequestPolicy, PageRenderer, PageRendering, RenderPolicy
from crawler.worker.request import (
    KEPT_MS,
    AddressLimiter,
    DividedRateLimiter,
    ForeignDomains,
    PoliteFetch,
    SharedTurns,
    Throttle,
)
from crawler.worker.revisits import SitemapHints
from crawler.worker.robots import RobotsLookup
from crawler.worker.runtime import Runtime
from crawler.worker.visit import UrlVisits
from crawler.worker.worker import Turns, Worker, WorkerPool
from frontier.budget import Budget, PageLimit, leased_ms
from frontier.clock import Clock, CrawlTime, SystemClock
from frontier.control import Control
from frontier.counters import Counters
from frontier.crawls import Crawl, FieldTypes, verify_crawl
from frontier.errors import RedisAway, RedisMisused
from frontier.keys import owners_table
from frontier.peers import PeerLoop, PeerSettings, new_replica_id, period_s, running_ms
from frontier.queue import Frontier, FrontierSettings
from frontier.reservations import Reservations
from frontier.shards import Nodes
from frontier.store import Store
from frontier.urls import UrlPattern, origin_of
from politeness.policy import CurrentPolicy
from politeness.rate_limit import LocalRateLimiter, RateLimiter, RateLimitPolicy, SharedRateLimiter
from politeness.robots_cache import RobotsCache

HOSTS_A_DOMAIN = 2
"""Hosts for each leased domain whose robots.txt and addresses are cached. Many domains have two, with and without
`www.`."""

REPEATED_S = 3.0
"""Within this time after a restart of a server, all replicas have normally repeated their last writes."""

REDIS_STEP_S = 2.0
"""How long one step of leaving the cluster, or a look for restarts of servers, may take, in seconds. If Redis is
unavailable, the other replicas notice the missing claims instead."""

WAIT_S = 5.0
"""How long to wait for servers to sync the last writes. If a server is restarted meanwhile, they are repeated, and the
wait starts again."""

POLL_S = 0.1

OUTSIDE = 2
"""Views without a replica that are normal after its start. After more, its claims are late: its interval is too short for
the way to Redis, or it hangs."""

LAST_REQUISITES_S = 60.0
"""Seconds without a settled requisite after which a crawl at its page limit ends although some are left, such as those of a
site that does not answer."""

LIMIT_S_A_SHARD = 0.004
"""Seconds for each shard between two readings of the counters for limits such as `limits.max_bytes`: a hundredth of the
time of a server."""

RECENT_URLS = 200_000
"""URLs that are remembered to avoid pushing them to Redis again; typical ones take about 30 MB."""


class Dependencies(msgspec.Struct, frozen=True):
    """The external dependencies of the engine of the replica `replica`. `time`: that of the engine before, if it
    continues the work of another one of this process. `setup`: what the machine adds to requests. `router`: the
    handlers of pages, None if there are none; `context`: what they share. `renderer`: renders
    pages in browsers, None if that is off. `recent`: URLs that need not be pushed to
    Redis again."""

    replica: str
    crawl: Crawl
    store: Store
    clock: Clock
    rng: random.Random
    http: HttpClient
    sink: DurableSink
    events: Events
    time: CrawlTime | None = None
    setup: RequestSetup = RequestSetup()
    router: Router | None = None
    context: Context = msgspec.field(default_factory=Context)
    renderer: PageRenderer | None = None
    recent: RecentUrls = msgspec.field(default_factory=lambda: RecentUrls(RECENT_URLS))


class Engine:
    """The connected parts that crawl. `ended`: the crawl has ended, was stopped or `has_other_shards`, or a task has
    failed."""

    def __init__(self, deps: Dependencies, settings: CrawlSettings, local: ReplicaTable) -> None:
        self._deps = deps
        self._settings, self._revision = settings, deps.crawl.revision
        self._local = local
        self._recent = deps.recent
        self.ended = asyncio.Event()
        self.tasks = Tasks(self.ended)
        self.has_other_shards = False  # or is being given another number of them
        self._outside = 0  # views in a row that did not contain this replica
        self.uploads_left = 0  # files that could not be uploaded, after `stop`
        self.skips_grace = False  # set to stop without waiting for running turns; their URLs are fetched again later
        self.following: list[asyncio.Task[None]] = []
        self._running: list[asyncio.Task[None]] = []
        self._finishing: asyncio.Task[None] | None = None
        self._build_frontier(settings)
        self._build_leases()
        self._build_fetch(settings)
        self._build_worker(settings)
        self.follower = Follower(deps.store, deps.crawl, settings, self._apply, deps.events, local.accept)

    def __repr__(self) -> str:
        return f"<Engine {self._deps.replica} {self.leases!r} {self.committer!r}>"

    def _build_frontier(self, settings: CrawlSettings) -> None:
        deps, crawl, local = self._deps, self._deps.crawl, self._local
        shards, table = len(crawl.keys.shards), owners_table(crawl.keys.layout)
        peer_settings = PeerSettings(local.interval, local.capacity, shards=shards, table=table)
        self.peers = PeerLoop(deps.store, crawl.keys.peers, deps.clock, peer_settings, deps.replica, deps.rng)
        if deps.time is not None:
            self.peers.time = deps.time
        server_clock = self.peers.server_clock
        retry = RedisRetry(deps.clock, deps.events, deps.rng, self._verify, Nodes(deps.store, crawl.keys))
        self.runtime = Runtime(
            replica=deps.replica,
            clock=deps.clock,
            server_clock=server_clock,
            retry=retry,
            events=deps.events,
            rng=deps.rng,
            policy=CurrentPolicy(politeness_policy(settings)),
        )
        self.frontier = Frontier(
            deps.store, crawl.keys, server_clock, frontier_settings(settings), crawl.fingerprint_key
        )
        self.counters = Counters(deps.store, crawl.keys)
        self.control = Control(deps.store, crawl.keys, deps.replica)
        self._budget = Budget(
            deps.store,
            crawl.keys,
            server_clock,
            deps.replica,
            PageLimit(settings.limits.max_pages, crawl.revision),
            leased_ms(self.frontier.settings.lease_ms, local.interval),
        )
        # Redis may have lost its last writes in the outage.
        deps.events.subscribe(lambda _: self._recent.clear(), RedisOutageEnded)

    def _build_leases(self) -> None:
        self.held = HeldLeases(self.runtime, self._budget)
        self._deps.events.subscribe(self._void_lost, RedisOutageBegan)
        self._is_stopped_by_handler = False
        self._deps.events.subscribe(self._stop, HandlerStopsCrawl)
        workers = self._local.concurrency
        self._most_waiting = processes.most_waiting(workers)
        self._queue = DelayQueue(self._deps.clock, max(workers, self._most_waiting + workers // 2))
        self.permits = PagePermits(self.runtime, self._budget, self._queue, self._local.concurrency, self.replicas)
        self.committer = Committer(self.runtime, self.frontier, self._deps.sink, self._recent, self.held)
        self.old_state: OldState | None = None
        # With visits, a page that is planned again would be taken for one that was fetched since.
        if not self._settings.recrawl.rules:
            deps, settings = self._deps, self._settings
            links, cap = link_filter(settings, RecentUrls(1)), settings.limits.domain_cap
            clock, out, policy = self.runtime.server_clock, self._local.out, build_settings(settings).extract
            self.old_state = OldState(deps.store, deps.crawl, clock, [out], links, policy, cap)
            self.committer.restore_old = partial(self.old_state.restore, replica=deps.replica)
        self._outbox = OutboxDelivery(self.runtime, self.frontier, self.held)

    def _build_fetch(self, settings: CrawlSettings) -> None:
        deps, runtime, keys = self._deps, self.runtime, self._deps.crawl.keys
        hold_ms = int(1000 * (settings.fetch.connect_timeout + settings.fetch.timeout)) + KEPT_MS
        self._reservations = Reservations(
            deps.store, keys, runtime.server_clock, hold_ms, self.frontier.settings.delay_ms, deps.replica
        )
        self._throttle = Throttle(runtime, self.control)
        turns = SharedTurns(runtime, deps.store, deps.crawl.name, hold_ms)
        self._limiter = AddressLimiter(runtime, deps.http, self._rate_limiter, turns)
        self._fetch = PoliteFetch(runtime, deps.http, self._throttle, turns)

    def _build_worker(self, settings: CrawlSettings) -> None:
        deps, runtime = self._deps, self.runtime
        cache = RobotsCache(
            deps.store, self.frontier, settings.fetch.user_agent, in_turn=lambda: HOSTS_A_DOMAIN * len(self.held)
        )
        self._pool = WorkerPool()
        self.committer.stand_in = self._pool.extra_worker
        content = archive_settings(deps.crawl.name, deps.replica, settings, self._local).content
        self._offload = DocumentOffloader(
            self._pool.extra_worker,
            events=deps.events,
            processes=self._local.text_processes,
            makes_texts=content.text != "off",
            folder=self._local.out,
        )
        fetch, throttle, limiter = self._fetch, self._throttle, self._limiter
        held, queue, permits = self.held, self._queue, self.permits
        self._shapes = Shapes(settings.limits.put_off_share)
        self._avoids_actions = settings.scope.actions == "avoid"
        self._rules = RequestRules(deps.setup.rules, ()) if deps.setup.rules else None
        links = link_filter(settings, self._recent, self._shapes)
        builder = PageBuilder(
            runtime, build_settings(settings), links, self._offload, cache, self.control, self._shapes
        )
        foreign = ForeignDomains(runtime, self._reservations)
        robots = RobotsLookup(runtime, cache, fetch, throttle, limiter, foreign, builder, self.committer)
        ahead = LeaseManagerSettings(ahead=2 * self._local.concurrency)
        self.leases = LeaseManager(runtime, self.frontier, self.committer, held, queue, permits, robots.prefetch, ahead)
        turns = Turns(runtime, self.leases, held, queue, permits, self._pool)
        save = partial(save_types, self._local.out, deps.crawl.name)
        types = ItemTypes(runtime, FieldTypes(deps.store, deps.crawl.keys), save)
        handlers = None
        deps.context.files.max_decoded = settings.limits.max_decoded
        deps.context.files.read = self._offload.contents
        deps.context.store = SharedValues(in_redis(deps.store, deps.crawl.keys.values, runtime.retry))
        if deps.router is not None:
            handlers = HandlerRunner(deps.router, settings.handlers, deps.context)
            self._fetch.functions = handlers if handlers.sees_requests else None
        self.extra = ExtraRequests(runtime, held, turns, fetch, throttle, limiter, robots, foreign, self._reservations)
        self._handling = PageHandling(
            builder, types, content, self._offload, handlers, turns.while_waiting, runtime, self.extra.begin_visit
        )
        rendering = None
        if deps.renderer is not None and settings.render.mode != "off":
            rendering = PageRendering(
                runtime,
                deps.renderer,
                render_policy(settings),
                self.extra.begin_visit,
                turns.while_rendering,
                self._action_of,
            )
        visits = UrlVisits(
            runtime,
            permits,
            fetch,
            throttle,
            builder,
            self._handling,
            self.committer,
            self._action_of,
            rendering,
            self._has_session,
        )
        hints = SitemapHints(runtime, deps.store, self.frontier, self.tasks.spawn).observe
        deps.events.subscribe(hints, PageSettled)
        self._worker = Worker(runtime, queue, held, turns, self.committer, robots, permits, throttle, limiter, visits)

    def _action_of(self, url: str) -> Action | None:
        """Return what `url` does that nobody wants who is logged in. None if the request has no secret and no cookie."""
        return action_of(url) if self._avoids_actions and self._has_session(url) else None

    def _has_session(self, url: str) -> bool:
        if self._rules is None:
            return False
        handling = self._rules.of(Origin.parse(origin_of(url)), url)
        return bool(handling.cookies or handling.secret_fields.text)

    def _rate_limiter(self, policy: RateLimitPolicy) -> RateLimiter:
        if policy.shared:
            clocks = (self._deps.clock, self.runtime.server_clock)
            shared = SharedRateLimiter(self._deps.store, self._deps.crawl.keys, *clocks, policy, self.replicas)
            return DividedRateLimiter(self.runtime, shared, policy, self.replicas)
        return LocalRateLimiter(self._deps.clock, policy)

    def replicas(self) -> int:
        return 0 if self.leases.view is None else self.leases.view.replicas

    async def start(self, until_empty: bool, address: str = "") -> None:
        """Start crawling. `address`: where others reach this one. Raises UserError if the output folder cannot be used."""
        await self.peers.time.check(0)
        await self.runtime.retry.call_crawl_node(self.control.refresh)  # no page may name a domain that was forgotten
        await self._deps.sink.start(self.frontier.revoke, self.frontier.may_repeat)
        self.peers.advertise(address)
        await self._deps.http.start(lambda: HOSTS_A_DOMAIN * len(self.held))
        self.following = [self.tasks.spawn(self._follow_views())]
        work = [
            self.committer.run(),
            self.committer.watch_runs(),
            self.leases.run(),
            self.leases.keep_alive(),
            self._follow_control(),
            self._watch_limits(),
            self.permits.run(self._on_spent),
            self.runtime.retry.watch(),
            self._outbox.run(),
            self._pool.replace_waiting(self._deps.clock, self._fetch.waiting, self._most_waiting),
            self._offload.start(),
        ]
        self._running = [self.tasks.spawn(each) for each in work]
        if until_empty:
            self.end_when_empty()
        self._pool.start(self._worker.run, self._local.concurrency, self.tasks.spawn)

    def end_when_empty(self) -> None:
        self._running.append(self.tasks.spawn(self._find_end()))

    async def stop(self, grace_s: float) -> None:
        """Take no more leases, leave the roster, let running turns end within `grace_s` seconds, commit, return all
        leases, wait until Redis has synced its writes, and close the files. The replica leaves the roster before it
        waits, so that others can take over its shards while the last turns end. Leases that cannot be returned because
        Redis is unavailable expire."""
        clock, deadline = self._deps.clock, self._deps.clock.monotonic() + grace_s
        self.leases.drain()
        await self.tasks.cancel(self.following)  # otherwise its next claim would put it into the roster again
        await self.leave(self.peers.leave)
        await self._wait_for(lambda: not self.held.is_busy, deadline)
        await self._pool.stop()
        await self._repeat_lost_writes(deadline)
        for leased in self.held:
            self.committer.give_back(leased)
        if not await self._wait_for(lambda: self.committer.is_idle, max(deadline, clock.monotonic() + 1.0)):
            log(logging.WARNING, "stopped_unsettled", replica=self._deps.replica, leases=len(self.held))
        # The embedded server loses nothing unless this machine crashes, and a small crawl should end at once.
        are_safe = not self._local.redis or await self._wait_until_safe()
        await self.tasks.cancel(self._running)
        has_left = await self.leave(self._budget.leave)
        if self._deps.renderer is not None:
            await self._deps.renderer.stop()
        await self._deps.http.stop(0.0)
        await self._offload.stop()
        # A server may have been restarted, may not answer, or may refuse writes and lose the last ones, as on a full disk.
        has_answered = has_left and await self._look_for_new_runs()
        if is_in_doubt := not (are_safe and has_answered) or self.frontier.is_in_doubt:
            log(logging.WARNING, "stopped_in_doubt", replica=self._deps.replica)
        self.uploads_left = await self._deps.sink.stop(is_in_doubt)

    async def _repeat_lost_writes(self, deadline: float) -> None:
        """Wait until the last writes are repeated if the server was restarted just now. This has to come before the
        leases are returned: afterwards, Redis cannot tell that their pages were settled."""
        await self._look_for_new_runs()
        until = max(deadline, self._deps.clock.monotonic() + 1.0)
        await self._wait_for(lambda: not self.frontier.replaced_runs(), until)

    async def _wait_until_safe(self) -> bool:
        """Return whether the servers have synced the last writes within `WAIT_S` seconds."""
        until = self._deps.clock.monotonic() + WAIT_S
        while not self.frontier.are_writes_safe:
            if self._deps.clock.monotonic() >= until:
                return False
            await self._deps.clock.sleep(POLL_S)
        return True

    async def _look_for_new_runs(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REDIS_STEP_S):
                while True:
                    with contextlib.suppress(RedisAway, RedisMisused):  # it may be starting
                        await self.frontier.look_for_new_runs()
                        return True
                    await self._deps.clock.sleep(POLL_S)
        return False

    async def _wait_for(self, is_done: Callable[[], bool], deadline: float) -> bool:
        """Wait for `is_done` until `deadline` (monotonic), a second at most after a failure or with `skips_grace`."""
        clock, soon = self._deps.clock, self._deps.clock.monotonic() + 1.0
        while not is_done():
            now = clock.monotonic()
            if now >= deadline or (now >= soon and (self.skips_grace or self.tasks.failure is not None)):
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
            log(logging.WARNING, "left_without_notice", replica=self._deps.replica, error=error)
            return False

    # background tasks

    def _void_lost(self, event: Event) -> None:
        if isinstance(event, RedisOutageBegan) and event.has_lost:
            self.held.void(event.node)

    def _stop(self, event: Event) -> None:
        self._is_stopped_by_handler = True

    async def _verify(self) -> None:
        """Raise CrawlLost if Redis no longer has the state of the crawl that this replica joined."""
        await verify_crawl(self._deps.store, self._deps.crawl)

    async def _follow_views(self) -> None:
        async for view in self.peers.views(on_away=self.runtime.retry.crawl_node_failed):
            self._outside = 0 if view.index else self._outside + 1
            if self._outside == OUTSIDE + 1:
                log(logging.WARNING, "claims_too_late", replica=self._deps.replica, interval=self._local.interval)
            await self.runtime.retry.call_crawl_node(self._verify)
            self.leases.adopt(view)

    async def _follow_control(self) -> None:
        retry, control, seedings = self.runtime.retry, self.control, 0
        while True:
            if self._is_stopped_by_handler:
                await retry.call_crawl_node(partial(control.set, "stop"))
            await retry.call_crawl_node(control.refresh)
            if control.has_other_shards:
                self.has_other_shards = True
                self.ended.set()
                return
            if control.seedings != seedings:
                seedings = control.seedings
                self._recent.clear()  # links that were out of scope may be in scope now
                self.leases.note_seeds()
            if control.stopped:
                self._end("stopped")
            if control.limit:
                self._end(control.limit)
            self.leases.set_paused(control.paused)
            self.peers.is_paused = control.paused or self.committer.lacks_room
            await self.extra.make_way(control.wanted)
            await retry.call_crawl_node(lambda: self.follower.follow(control.settings_revision))
            await self._deps.clock.sleep(period_s(min(1.0, self._local.interval), self.replicas()))

    def _apply(self, settings: CrawlSettings, revision: int) -> None:
        """Apply changed settings of `revision`. Delays and leases that have begun keep their length."""
        self._settings, self._revision = settings, revision
        build, links = build_settings(settings), link_filter(settings, self._recent, self._shapes)
        self._shapes.apply(settings.limits.put_off_share)
        self._avoids_actions = settings.scope.actions == "avoid"
        policy = politeness_policy(settings)
        self.runtime.policy.replace(policy)
        self.frontier.settings = frontier_settings(settings)
        lease_ms = leased_ms(self.frontier.settings.lease_ms, self._local.interval)
        self._budget.apply(PageLimit(settings.limits.max_pages, revision), lease_ms)
        self.permits.note_need()
        self._reservations.apply(self.frontier.settings.delay_ms)
        self._deps.http.apply(settings.limits.max_body, settings.politeness.parallel)
        self._deps.context.files.max_decoded = settings.limits.max_decoded
        self._handling.apply(build, links)
        self._recent.clear()  # links that were dropped before may be followed now

    async def _watch_limits(self) -> None:
        """As the first replica of the view, find out whether the crawl has reached a limit but that of pages, and
        notify all."""
        retry, peers_key, read_at = self.runtime.retry, self._deps.crawl.keys.peers, -math.inf
        while True:
            await self._deps.clock.sleep(1.0)
            view, limits, revision = self.leases.view, self._settings.limits, self._revision
            has_counted = limits.max_bytes or limits.max_failed or limits.max_requests or limits.max_items
            if view is None or view.index != 1 or not (limits.max_time or has_counted):
                continue
            reached = ""
            if limits.max_time:
                now_ms = self.runtime.server_clock.now_ms()
                run_ms = await retry.call_crawl_node(partial(running_ms, self._deps.store, peers_key, now_ms))
                reached = "max_time" if run_ms >= limits.max_time * 1000 else ""
            now = self._deps.clock.monotonic()
            if has_counted and now >= read_at + LIMIT_S_A_SHARD * self._deps.crawl.shards:
                read_at, counts = now, await retry.call(self.counters.counts)
                found = {
                    "max_bytes": counts.received_bytes,
                    "max_failed": counts.dead,
                    "max_requests": counts.requests,
                    "max_items": sum(counts.items.values()),
                }
                reached = next((name for name, number in found.items() if 0 < getattr(limits, name) <= number), reached)
            if reached:
                await retry.call_crawl_node(partial(self.control.reach_limit, reached, revision))

    def _on_spent(self) -> None:
        if self._settings.archive.requisites:
            if self._finishing is None or self._finishing.done():
                self._finishing = self.tasks.spawn(self._finish_requisites())
                self._running.append(self._finishing)
        elif not self.held.is_busy:
            self._end("max_pages")

    async def _finish_requisites(self) -> None:
        """End the crawl at its page limit, once all requisites are settled or none has been for some time."""
        settled, since = -1, 0.0
        while self.permits.are_spent:
            self.permits.wake_all()
            counts = await self.runtime.retry.call(self.counters.counts)
            now = self._deps.clock.monotonic()
            if counts.requisites_settled != settled:
                settled, since = counts.requisites_settled, now
            is_over = settled >= counts.requisites_found or now > since + LAST_REQUISITES_S
            if is_over and not self.held.is_busy:
                self._end("max_pages")
                return
            await self._deps.clock.sleep(max(1.0, LIMIT_S_A_SHARD * self._deps.crawl.shards))

    async def _find_end(self) -> None:
        """End the crawl when the counters show that nothing is left. They are read only while this replica holds no
        lease. They do not count soon after a restart of a server, which may lack links that others are about to push
        again."""
        retry, clock = self.runtime.retry, self._deps.clock
        runs, changed_at = self.frontier.runs(), -math.inf
        while True:
            await clock.sleep(period_s(min(0.5, self._local.interval / 2), self.replicas()))
            view = self.leases.view
            # A replica that always claims too late is in no view, and owns nothing.
            idle = not len(self.held) and view is not None and (view.index or self._outside > OUTSIDE)
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
            self._deps.events.emit(CrawlEnded(reason))
            self.ended.set()

    def readiness(self) -> tuple[bool, str]:
        """Return whether this replica can crawl now, at least the shards of some nodes, and what it lacks."""
        view, retry = self.leases.view, self.runtime.retry
        away, incomplete, node = retry.away_nodes, retry.incomplete_nodes, retry.away_crawl_node
        if self.has_other_shards:
            return False, "the crawl is being given another number of shards"
        if retry.is_away:
            return False, with_remedy(retry.errors[0]) if retry.errors else "Redis is away"
        if self.control.paused:
            return False, "paused by an operator"
        if view is None or not view.index:
            return False, f"not in the view: {node} is away, with the control keys" if node else "not in the view yet"
        if incomplete:
            return True, f"ready, but {'; '.join(retry.errors)}"
        if away:
            waiting = count_of(self.committer.parked, "result")
            return True, f"ready, but Redis is away at {', '.join(away)}; waiting for it: {waiting}"
        return True, "ready"


class Tasks:
    """The background tasks of a replica. If one fails, the replica ends with an error and others take over its leases.
    `ended` is set when one has failed, and `failure` is the exception of the first one that did. The others go on: what
    is in flight can still be committed, so an `asyncio.TaskGroup` will not do."""

    def __init__(self, ended: asyncio.Event) -> None:
        self._ended = ended
        self.failure: BaseException | None = None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.failure = self.failure or task.exception()
            self._ended.set()

    @staticmethod
    async def cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
        cancelled = list(tasks)
        for task in cancelled:
            task.cancel()
        await asyncio.gather(*cancelled, return_exceptions=True)


def production_dependencies(
    crawl: Crawl,
    store: Store,
    settings: CrawlSettings,
    local: ReplicaTable,
    setup: RequestSetup = RequestSetup(),
    *,
    replica: str = "",
    router: Router | None = None,
    time: CrawlTime | None = None,
) -> Dependencies:
    """Return the external dependencies of the replica `replica`, or of a new one, in production. `setup`: what its
    machine adds to requests. `router`: handlers that replace those in the settings. `time`: as in `Dependencies`; it
    also dates what is archived, because the clock of a machine may be wrong. Raises UserError if a hook, a
    sink or a router in the settings cannot be loaded, and if `[app]` does not fit."""
    library_privates.install()
    replica = replica or new_id()
    clock, events = SystemClock(), Events()
    if router is None and settings.handlers.app:
        router = load_router(settings.handlers.app)
    signer, about = (setup.identity.signer, setup.identity.about) if setup.identity else (None, ())
    time = time or CrawlTime(store, crawl.keys.peers, clock, replica, local.interval)
    processes.give_back_large_blocks()
    fetch = fetch_settings(settings, max_idle=processes.raise_fd_limit(local.concurrency))
    return Dependencies(
        replica=replica,
        crawl=crawl,
        store=store,
        clock=clock,
        rng=random.Random(),
        http=Fetcher(
            msgspec.structs.replace(fetch, rules=setup.rules), clock, signer=signer, wall=time.server_clock.time_s
        ),
        sink=sink(crawl.name, replica, settings, local, events, about),
        events=events,
        time=time,
        setup=setup,
        router=router,
        renderer=page_renderer(settings, local),
        context=Context(app_settings(router, settings.app) if router else None, crawl.name, replica, local.out / FILES),
    )


def page_renderer(settings: CrawlSettings, local: ReplicaTable) -> PageRenderer | None:
    table = settings.render
    if table.mode == "off":
        return None
    from crawler.browser import Renderer, RenderLimits  # noqa: PLC0415 - few crawls need it

    limits = RenderLimits(
        time_s=table.time,
        settle_s=table.settle,
        grow=table.grow,
        load=frozenset(table.load),
        posts=table.post,
        requests=table.requests,
        bytes=table.max_bytes,
        memory=table.memory,
    )
    user_agent = settings.fetch.user_agent_header
    return Renderer(limits, user_agent, slots=local.browsers, program=local.browser, isolation=local.browser_isolation)


def render_policy(settings: CrawlSettings) -> RenderPolicy:
    table = settings.render
    assert table.mode != "off"
    return RenderPolicy(
        table.mode,
        tuple(map(UrlPattern, table.always)),
        tuple(map(UrlPattern, table.never)),
        BrowserRequestPolicy(table.parallel, table.delay_share, table.robots == "all"),
        table.time,
        table.screenshot,
        table.without == "wait",
        PageSteps(table.steps),
    )


def new_id() -> str:
    return new_replica_id(socket.gethostname().partition(".")[0])


def build_settings(settings: CrawlSettings) -> BuildSettings:
    links = ExtractPolicy(
        obey_nofollow=settings.scope.nofollow,
        user_agent=settings.fetch.user_agent,
        link_kinds=frozenset(settings.scope.links),
        max_links=settings.limits.max_links,
        max_link_bytes=settings.limits.max_link_bytes,
        rules=url_rules(settings),
        requisites=settings.archive.requisites,
    )
    return BuildSettings(
        links,
        settings.limits.max_decoded,
        settings.scope.sitemaps,
        settings.archive.via,
        parse_rules(settings.recrawl.rules),
        extract_rules(settings),
        settings.scope.guess_sitemaps,
        settings.handlers.tries,
        settings.archive.noarchive,
    )


def link_filter(settings: CrawlSettings, recent: RecentUrls, shapes: Shapes | None = None) -> LinkFilter:
    """Return which links are followed. Raises UserError if the scorer cannot be loaded."""
    last = comes_last if settings.scope.actions == "avoid" else None
    has_cap = settings.limits.domain_cap > 0
    return LinkFilter(scope(settings), TrapPolicy(), scorer(settings.frontier.scorer), recent, shapes, last, has_cap)


def sink(
    crawl: str, replica: str, settings: CrawlSettings, local: ReplicaTable, events: Events, about: Fields = ()
) -> DurableSink:
    """Return the archive with the additional sinks. `about`: more warcinfo fields. Raises UserError for a sink."""
    hooks = PageHooks.named(settings.archive.on_page)
    archive = Archive(archive_settings(crawl, replica, settings, local, about), hooks=hooks, events=events)
    if not settings.archive.sinks:
        return archive
    context = SinkContext(local.out, crawl, replica)
    return CombinedSink(archive, [load(name, SINKS)(context) for name in settings.archive.sinks], events)


def frontier_settings(settings: CrawlSettings) -> FrontierSettings:
    return FrontierSettings(
        lease_ms=int(settings.frontier.lease * 1000),
        batch=settings.frontier.batch,
        domain_cap=settings.limits.domain_cap,
        delay_ms=int(settings.politeness.delay * 1000),
        replicas_ack=settings.frontier.replicas_ack,
        pack_above=settings.frontier.pack_above,
        known_share=settings.recrawl.share if settings.recrawl.rules else None,
    )
