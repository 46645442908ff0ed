"""The moving parts of a replica, built from its settings: frontier side first, then the workers' side.

Whatever of the settings may change while the replica runs is held by one part each, and replaced in `Engine.obey`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from crawler.app.periodic import Scheduled, ScheduledDuty
from crawler.events import Events, PageSettled
from crawler.fetch.client import Fetcher
from crawler.fetch.conditional import Validators
from crawler.hooks import PageHooks
from crawler.redis_retry import Patience
from crawler.scope.link_filter import LinkFilter
from crawler.scope.recent_urls import RecentUrls
from crawler.settings.model import CrawlSettings, ReplicaSettings
from crawler.settings.policies import Manners
from crawler.sinks.sink import Keeper
from crawler.worker.address_limit import Gatekeeper
from crawler.worker.allowance import Allowance
from crawler.worker.commit import Committer
from crawler.worker.delay_queue import Schedule
from crawler.worker.foreign_domains import KEPT_MS, Passage
from crawler.worker.leased_fetch import LeasedFetch
from crawler.worker.leases import Feeder, FeedSettings
from crawler.worker.page_builder import BuildSettings, PageBuilder
from crawler.worker.robots import RobotsDesk
from crawler.worker.throttle import Rests
from crawler.worker.visit import Visit
from crawler.worker.worker import Turns
from frontier.budget import Budget
from frontier.clock import Clock, ServerClock
from frontier.control import Control
from frontier.counters import Books
from frontier.crawls import Crawl
from frontier.duties import Duties
from frontier.entries import Entry
from frontier.peers import PeerLoop, PeerSettings
from frontier.queue import Frontier, FrontierSettings, Pushed
from frontier.reservations import Reservations
from frontier.store import RedisStore
from frontier.urls import UrlRules
from politeness.address_rate_limit import AddressGate, Gate, GatePolicy, LocalGate
from politeness.robots_cache import RobotsCache

HOSTS_A_DOMAIN = 2
"""Whose robots.txt and addresses are remembered while the domain is under lease: often it has one with `www.` and one
without."""


class Parts(msgspec.Struct, frozen=True):
    """What a replica is built with besides Redis: made by `crawler.app.build` from the settings, by tests as they like."""

    replica: str
    sink: Keeper
    fetcher: Fetcher
    builder: PageBuilder
    manners: Manners
    recent: RecentUrls
    rules: UrlRules
    hooks: PageHooks = msgspec.field(default_factory=PageHooks)
    refetched: frozenset[str] = frozenset()
    events: Events = msgspec.field(default_factory=Events)


class Changed(msgspec.Struct, frozen=True):
    """What `crawler.app.build` makes anew when settings change under way."""

    settings: CrawlSettings
    manners: Manners
    build: BuildSettings
    links: LinkFilter


class Base(msgspec.Struct, frozen=True):
    """What the parts of a replica share."""

    store: RedisStore
    crawl: Crawl
    events: Events
    patience: Patience
    clock: Clock
    rng: random.Random


class Engine:
    """The parts, wired to one another. `crawler.app.replica` starts and stops them."""

    def __init__(self, base: Base, settings: CrawlSettings, local: ReplicaSettings, parts: Parts) -> None:
        self._base = base
        self._parts = parts
        self._build_frontier(settings, local)
        self._build_commit(local)
        self._build_politeness(settings)
        self._build_turns()
        self.scheduled = self._scheduled(settings)
        base.patience.on_return.append(parts.recent.clear)

    @property
    def _clocks(self) -> tuple[Clock, ServerClock]:
        return self._base.clock, self.peers.server_clock

    def _build_frontier(self, settings: CrawlSettings, local: ReplicaSettings) -> None:
        store, keys, replica = self._base.store, self._base.crawl.keys, self._parts.replica
        peer_settings = PeerSettings(local.interval, local.capacity, shards=len(keys.shards))
        self.peers = PeerLoop(store, keys.peers, self._base.clock, peer_settings, replica, self._base.rng)
        server_clock = self.peers.server_clock
        key = self._base.crawl.fingerprint_key
        self.frontier = Frontier(store, keys, server_clock, frontier_settings(settings), key)
        self.books = Books(store, keys)
        self.control = Control(store, keys)
        lease_ms = self.frontier.settings.lease_ms
        self._budget = Budget(store, keys, server_clock, replica, settings.limits.max_pages, lease_ms)

    def _build_commit(self, local: ReplicaSettings) -> None:
        base, parts = self._base, self._parts
        self.schedule: Schedule[Visit] = Schedule(base.clock)
        self.committer = Committer(self.frontier, parts.sink, parts.recent, base.patience, base.events, base.clock)
        self.feeder = Feeder(
            self.frontier,
            self.schedule,
            self.committer,
            base.patience,
            base.events,
            self._clocks,
            parts.replica,
            FeedSettings(ahead=2 * local.concurrency),
        )
        allowance = Allowance(self._budget, self.schedule, base.patience, base.clock, local.concurrency)
        self.allowance = allowance
        self.committer.on_done, self.feeder.may_lease = allowance.used, lambda: not allowance.is_awaited

    def _build_politeness(self, settings: CrawlSettings) -> None:
        base, parts, manners = self._base, self._parts, self._parts.manners
        self._rests = Rests(manners.rests, self.control, base.events, self._clocks, base.rng)
        self._gate_policy = manners.gate
        self._gatekeeper = Gatekeeper(self._gate(manners.gate), parts.fetcher, base.patience, base.clock)
        self._passage = self._build_passage(settings)
        self._fetch = LeasedFetch(parts.fetcher, base.clock, self._validators())
        robots_cache = RobotsCache(base.store, self.frontier, settings.fetch.user_agent)
        robots_cache.in_turn = parts.fetcher.in_turn = lambda: HOSTS_A_DOMAIN * len(self.feeder.visits)
        self._robots = RobotsDesk(
            robots_cache,
            manners.robots,
            (self._fetch, self._gatekeeper, self._passage),
            self._rests,
            self.committer,
            base.patience,
            base.events,
            self._clocks,
            base.rng,
        )

    def _build_turns(self) -> None:
        base, parts = self._base, self._parts
        self.feeder.prepare = self._robots.foresee
        parts.hooks.on_failure = base.events.emit
        self._robots.sitemaps, parts.builder.named_for = parts.builder.sitemaps, self._robots.named_for
        self.turns = Turns(
            self.schedule,
            self.feeder,
            self.committer,
            (self._fetch, self._gatekeeper),
            self._robots,
            self._rests,
            parts.builder,
            self.allowance,
            self.control,
            base.events,
            self._clocks,
            parts.manners.tries,
        )
        parts.builder.lane.step_aside, parts.builder.lane.step_back = self.turns.step_aside, self.turns.step_back

    def _validators(self) -> Validators:
        validators = Validators(self._parts.refetched)
        if self._parts.refetched:
            self._base.events.subscribe(validators.observe, PageSettled)
        return validators

    def _gate(self, policy: GatePolicy | None) -> Gate | None:
        if policy is None:
            return None
        if policy.shared:
            return AddressGate(self._base.store, self.frontier.keys, *self._clocks, policy)
        return LocalGate(self._base.clock, policy)

    def _build_passage(self, settings: CrawlSettings) -> Passage:
        hold_ms = int(1000 * (settings.fetch.connect_timeout + settings.fetch.timeout)) + KEPT_MS
        delay_ms = self.frontier.settings.delay_ms
        reservations = Reservations(self._base.store, self.frontier.keys, self.peers.server_clock, hold_ms, delay_ms)
        backoff = self._parts.manners.rests.backoff
        return Passage(reservations, self._base.patience, self._clocks, backoff, self._base.rng)

    def _scheduled(self, settings: CrawlSettings) -> Scheduled | None:
        duties = [ScheduledDuty(duty.every_s, duty.seeds, duty.sitemap) for duty in settings.schedule]
        if not duties:
            return None
        claims = Duties(self._base.store, self._base.crawl.keys.duties, self.peers.server_clock, self._parts.replica)
        return Scheduled(claims, duties, self._seed, self._base.patience, self._base.clock, self._parts.rules)

    async def _seed(self, entries: Sequence[Entry]) -> Pushed:
        pushed = await self.frontier.push(entries)
        if pushed.accepted:
            await self.control.seeded()
        return pushed

    def obey(self, changed: Changed) -> None:
        """Go by changed settings from now on. A rest that has begun ends as it was, and so does a lease."""
        settings, manners = changed.settings, changed.manners
        self.frontier.settings = frontier_settings(settings)
        self._budget.limit, self._budget.lease_ms = settings.limits.max_pages, self.frontier.settings.lease_ms
        self._rests.policy, self._robots.policy, self.turns.tries = manners.rests, manners.robots, manners.tries
        self._passage.backoff = manners.rests.backoff
        self._passage.reservations.delay_ms = self.frontier.settings.delay_ms
        if manners.gate != self._gate_policy:
            self._gate_policy, self._gatekeeper.gate = manners.gate, self._gate(manners.gate)
        self._parts.fetcher.cut_off_at(settings.limits.max_body)
        self._parts.fetcher.keep_idle(settings.politeness.parallel)
        self._parts.builder.obey(changed.build, changed.links)
        self._parts.recent.clear()  # what was dropped before may be wanted now


def frontier_settings(settings: CrawlSettings) -> FrontierSettings:
    """Those of the settings that the frontier goes by."""
    return FrontierSettings(
        lease_ms=int(settings.frontier.lease * 1000),
        batch=settings.frontier.batch,
        domain_cap=settings.limits.domain_cap,
        delay_ms=int(settings.politeness.delay * 1000),
    )
