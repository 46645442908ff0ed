"""A replica of the crawler's own parts, on a loop of its own; only the web, the page builder and the sink are simulated.

It is put together and stopped as `crawler.app.replica.Replica` does it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, cast

from crawler.errors import SinkFull
from crawler.events import Events
from crawler.fetch.client import Fetcher
from crawler.page import Exchange, Outcome, Page
from crawler.redis_retry import RedisRetry
from crawler.scope.recent_urls import RecentUrls
from crawler.worker.address_limit import AddressLimiter
from crawler.worker.allowance import Allowance
from crawler.worker.commit import Committer
from crawler.worker.delay_queue import DelayQueue
from crawler.worker.foreign_domains import ForeignDomainAccess
from crawler.worker.leased_fetch import LeasedFetch
from crawler.worker.leases import Feeder, LeaseManagerSettings
from crawler.worker.outcomes import UrlResult
from crawler.worker.page_builder import PageBuilder
from crawler.worker.robots import RobotsService
from crawler.worker.throttle import Throttle
from crawler.worker.visit import Visit
from crawler.worker.worker import Turns
from frontier.budget import Budget
from frontier.control import Control
from frontier.counters import Counters
from frontier.entries import Entry
from frontier.errors import RedisAway
from frontier.keys import CrawlKeys, shard_keys
from frontier.peers import PeerLoop, PeerSettings, View
from frontier.queue import Frontier, FrontierSettings, LeasedUrl
from frontier.reservations import Reservations
from frontier.scripts import REVOKE
from frontier.store import run
from politeness.backoff import BackoffPolicy
from politeness.delay import DelayPolicy, ThrottlePolicy
from politeness.robots_cache import RobotsCache
from politeness.robots_fetch import RobotsPolicy
from tests.simulation.history import History
from tests.simulation.loop import SimClock, SimLoop
from tests.simulation.network import Network, SimStore
from tests.simulation.scenario import Scenario
from tests.simulation.sites import SimFetcher, Sites
from tests.simulation.world import USER_AGENT, World

WORKERS = 8
TRIES = 3
QUICK = BackoffPolicy(base_s=1.0, max_s=8.0)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all replicas of a run share. `recorded`: url -> how often its record was made durable."""

    scenario: Scenario
    world: World
    network: Network
    sites: Sites
    history: History
    keys: CrawlKeys
    recorded: dict[str, int]
    on_view: Callable[[View], None]


class SimBuilder:
    """Stands for `crawler.worker.page_builder.PageBuilder`: links come from the world's graph instead of a body."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def build(
        self, entry: Entry, result: UrlResult, exchange: Exchange | None, settled_at: float
    ) -> tuple[Page, Sequence[Entry]]:
        page = Page(entry.url, entry.domain, entry.depth, result.outcome, result.reason, settled_at, entry.tries)
        if result.outcome is not Outcome.DONE:
            return page, ()
        found, depth = self._world.resources[entry.url], entry.depth + 1
        links = [Entry(url, _domain(url), float(-depth), depth) for url in found.links]
        asides = [Entry(url, _domain(url), float(-depth), depth, mode="known") for url in found.asides]
        return page, [*asides, *links]


def _domain(url: str) -> str:
    return url.split("/")[2]


class SimSink:
    """Makes records durable after a while; now and then its disk is full."""

    def __init__(self, here: Surroundings, clock: SimClock, rng: random.Random) -> None:
        self._here = here
        self._clock = clock
        self._rng = rng
        self.doubt: list[LeasedUrl] = []  # of the last group, in the order of `_kept`, its numbers in it
        self._kept: list[int] = []

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> frozenset[str]:
        await self._clock.sleep(self._rng.uniform(0.0, 0.05))
        if self._here.network.is_faulty and self._rng.random() < 0.02:
            raise SinkFull("simulated: the disk is full")
        for page in pages:
            if page.outcome is not Outcome.RETRY:
                self._here.recorded[page.url] = self._here.recorded.get(page.url, 0) + 1
        self.doubt = [one for one, page in zip(leased, pages, strict=True) if page.outcome is not Outcome.RETRY]
        self._kept = [number for number, page in enumerate(pages) if page.outcome is not Outcome.RETRY]
        return frozenset()

    async def settled(self, unsettled: Collection[int] = ()) -> None:
        self.take_back([number in unsettled for number in self._kept])

    def take_back(self, unsettled: Sequence[bool]) -> None:
        """The pages in doubt for which `unsettled` is true are not kept, the others are."""
        for one in compress(self.doubt, unsettled):
            self._here.recorded[one.entry.url] -= 1
        self.doubt = []


class SimReplica:
    """One process. `ended`: it has found the crawl to be over; `spent`: or to have all the pages that it may have."""

    def __init__(self, here: Surroundings, loop: SimLoop) -> None:
        self.loop = loop
        self.name = loop.name
        self.ended = self.spent = False
        self.has_left = False
        self._is_leaving = False
        self._here = here
        self._rng = random.Random(f"{here.scenario.seed} {loop.name}")
        self._clock = SimClock(loop)
        self._tasks: list[asyncio.Task[Any]] = []
        self._workers: list[asyncio.Task[Any]] = []
        self._build_frontier(SimStore(here.network, loop))
        self._build_workers(SimStore(here.network, loop))

    def __repr__(self) -> str:
        return f"<SimReplica {self.name} {self._feeder!r}>"

    def _build_frontier(self, store: SimStore) -> None:
        here, scenario = self._here, self._here.scenario
        capacity = self._rng.choice((1.0, 1.0, 0.5, 2.0))
        settings = PeerSettings(scenario.interval_s, capacity, shards=scenario.shards)
        self.peers = PeerLoop(store, here.keys.peers, self._clock, settings, self.name, self._rng)
        self._frontier = Frontier(
            store, here.keys, self.peers.server_clock, frontier_settings(scenario), fingerprint_key=b"key"
        )
        self.counters = Counters(store, here.keys)

    def _build_workers(self, store: SimStore) -> None:
        here, scenario, events = self._here, self._here.scenario, Events()
        clocks = (self._clock, self.peers.server_clock)
        self._redis_retry = RedisRetry(self._clock, events, self._rng)
        self._queue: DelayQueue[Visit] = DelayQueue(self._clock)
        recent = RecentUrls(1_000)
        self._sink = SimSink(here, self._clock, self._rng)
        self._committer = Committer(self._frontier, self._sink, recent, self._redis_retry, events, self._clock)
        feed = LeaseManagerSettings(ahead=2 * WORKERS, poll_s=2.0)
        self._feeder = Feeder(
            self._frontier, self._queue, self._committer, self._redis_retry, events, clocks, self.name, feed
        )
        delay = DelayPolicy(min_delay_s=scenario.delay_ms / 1000, response_share=0.0)
        # As long as the margin between a holder's deadline and the expiry of its lease. A longer one is broken off at
        # the deadline (tests/worker/test_leased_fetch.py), but not by a process that is stopped at that moment.
        fetcher = SimFetcher(here.sites, self.loop, self._clock, longest_s=min(1.0, scenario.lease_ms / 20_000))
        reservations = Reservations(store, here.keys, self.peers.server_clock, 10_000, scenario.delay_ms)
        control = Control(store, here.keys)
        throttle = Throttle(ThrottlePolicy(delay, QUICK, scenario.parallel), control, events, clocks, self._rng)
        address_limiter = AddressLimiter(None, cast(Fetcher, fetcher), self._redis_retry, self._clock)
        fetch = LeasedFetch(cast(Fetcher, fetcher), self._clock)
        robots = RobotsService(
            RobotsCache(store, self._frontier, USER_AGENT),
            RobotsPolicy(retry=QUICK),
            (fetch, address_limiter, ForeignDomainAccess(reservations, self._redis_retry, clocks, QUICK, self._rng)),
            throttle,
            self._committer,
            self._redis_retry,
            events,
            clocks,
            self._rng,
        )
        self._feeder.prepare = robots.prefetch
        budget = Budget(store, here.keys, self.peers.server_clock, self.name, scenario.max_pages, scenario.lease_ms)
        self._allowance = Allowance(budget, self._queue, self._redis_retry, self._clock, WORKERS)
        self._allowance.on_exhausted = self._on_exhausted
        self._committer.on_done = self._allowance.used
        self._feeder.may_lease = lambda: not self._allowance.is_awaited
        self._turns = Turns(
            self._queue,
            self._feeder,
            self._committer,
            (fetch, address_limiter),
            robots,
            throttle,
            cast(PageBuilder, SimBuilder(here.world)),
            self._allowance,
            control,
            events,
            clocks,
            TRIES,
        )
        self._redis_retry.on_return.append(recent.clear)

    def _on_exhausted(self) -> None:
        self.spent = True

    def start(self) -> None:
        """Begin to crawl, as a process of its own."""
        self._tasks = [self.loop.spawn(self._start())]

    async def _start(self) -> None:
        while True:
            try:
                await self.peers.server_clock.refresh()
            except RedisAway:
                await self._clock.sleep(1.0)  # its supervisor starts it again
            else:
                break
        work = (self._follow_views(), self._committer.run(), self._feeder.run(), self._feeder.keep_alive())
        self._tasks = [self.loop.spawn(task) for task in work]
        if self._here.scenario.max_pages:
            self._tasks.append(self.loop.spawn(self._allowance.run()))
        self._workers = [self.loop.spawn(self._turns.work()) for _ in range(WORKERS)]

    async def _follow_views(self) -> None:
        async for view in self.peers.views(on_away=self._redis_retry.lost):
            self._redis_retry.found()
            self._here.history.note(self.name, "view", (view.epoch, view.index, view.replicas, view.checksum))
            self._here.on_view(view)
            self._feeder.adopt(view)

    def recover(self) -> None:
        """What somebody else does with the pages that a dead replica wrote last."""
        doubt, now_ms = self._sink.doubt, int(self._here.network.now_ms())
        calls = [
            run(REVOKE, (shard_keys("sim", one.shard).lost,), one.domain, one.token, now_ms, one.entry.raw)
            for one in doubt
        ]
        replies = self._here.network.carry_out(f"heir of {self.name}", calls)
        self._sink.take_back([bool(reply[1]) for reply in replies])

    def leave(self, grace_s: float) -> None:
        """Stop in good order, within about `grace_s`."""
        if not self._is_leaving:
            self._is_leaving = True
            self._here.history.note(self.name, "leaves")
            self.loop.spawn(self._stop(grace_s))

    async def _stop(self, grace_s: float) -> None:
        self._feeder.quiet()
        deadline = self._clock.monotonic() + grace_s
        while any(visit.busy for visit in self._feeder.visits) and self._clock.monotonic() < deadline:
            await self._clock.sleep(0.02)
        await self._cancel(self._workers)
        for visit in list(self._feeder.visits):
            self._committer.give_back(visit)
        try:
            async with asyncio.timeout(max(1.0, deadline - self._clock.monotonic())):
                await self._committer.flush()
        except TimeoutError:
            self._here.history.note(self.name, "unsettled")
        await self._cancel(self._tasks)
        try:
            async with asyncio.timeout(2.0):
                await self.peers.leave()
                await self._allowance.budget.leave()
        except (RedisAway, TimeoutError):
            self._here.history.note(self.name, "unnoticed")
        self.has_left = True

    @staticmethod
    async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def frontier_settings(scenario: Scenario) -> FrontierSettings:
    """The settings of the crawl that a scenario names."""
    return FrontierSettings(scenario.lease_ms, scenario.batch, scenario.domain_cap, scenario.delay_ms)
