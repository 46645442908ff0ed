"""A replica: the program's own engine on its own loop. Only its external dependencies (`Dependencies`) are simulated.

The program's own `Run` starts it, runs it until the crawl has ended or it is told to stop, and stops it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import msgspec

from crawler.app.engine import Dependencies, Engine
from crawler.app.replica import Replica, Run
from crawler.errors import SinkFull
from crawler.events import CrawlEnded, DefectFound, Event, Events, ViewAdopted
from crawler.handlers.parsed_page import Handle, ParsedPage
from crawler.handlers.router import Router
from crawler.hooks import HttpRequest
from crawler.observe.health import HEALTH_INTERVALS, HealthRecord
from crawler.page import Exchange, Outcome, Page, Rendered, Written
from crawler.scope.page_steps import Step
from crawler.scope.scope import RecentUrls
from crawler.settings.load import CrawlSettings
from crawler.settings.tables import (
    FetchTable,
    FrontierTable,
    HandlersTable,
    LimitsTable,
    PolitenessTable,
    RenderTable,
    ReplicaTable,
    ScopeTable,
)
from crawler.sinks.sink import MayRepeat, Revoke, SettleLater
from frontier.clock import CrawlTime
from frontier.crawls import Crawl, open_crawl
from frontier.domains import domain_of
from frontier.errors import CrawlResharded, RedisAway, Resharding, ShardLost
from frontier.keys import CrawlKeys, layout_of, shard_keys
from frontier.peers import REPORTS_A_SECOND, Health, View, period_s
from frontier.scripts import REVOKE, script_call
from frontier.settle import LeasedUrl
from tests.simulation.loop import Breach, History, SimClock, SimLoop
from tests.simulation.network import Network, SimStore
from tests.simulation.scenario import Scenario
from tests.simulation.sites import BY_BROWSER, SimFetcher, Sites

RESTART_S = 1.0
GRACE_S = 5.0
FETCHES_S = 20.0
"""After which a handler makes no more requests."""
ADDRESS = "10.0.0.1:8080"
JOURNAL_S = 30.0
"""As `crawler.sinks.journal` has it."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all replicas of a run share. `crawl`: as it was created, with the revision of `settings`; `keys`: those of the
    layout in use. `recorded`: url -> how often its record was made durable. `on_end` is told why a replica says that the
    crawl is over, and its name."""

    scenario: Scenario
    crawl: Crawl
    keys: Callable[[], CrawlKeys]
    settings: CrawlSettings
    network: Network
    sites: Sites
    history: History
    recorded: dict[str, int]
    on_view: Callable[[View], None]
    on_end: Callable[[str, str], None]


class Told:
    """What the history says of a view. Its checksum is computed when somebody reads it."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __str__(self) -> str:
        view = self._view
        return str((view.epoch, view.index, view.replicas, view.checksum))


class SimSink:
    """A sink that makes records durable after a while, and whose disk is sometimes full."""

    def __init__(self, here: Surroundings, clock: SimClock, rng: random.Random) -> None:
        self._here = here
        self._clock = clock
        self._rng = rng
        self.written_bytes = 0
        self._doubt: list[LeasedUrl] = []  # of the last group, in the order of `_kept`, its numbers in it
        self._kept: list[int] = []
        self._settled: list[tuple[float, LeasedUrl]] = []  # of the groups before, and when they were settled
        self._may_repeat: MayRepeat = lambda url: False
        self._aside: list[list[tuple[int, LeasedUrl]]] = []  # of groups that were set aside

    async def start(self, revoke: Revoke | None = None, may_repeat: MayRepeat | None = None) -> None:
        """Recover what the replica before left in doubt, when it stopped for a reshard. What dead replicas leave,
        `SimReplica.recover` sees to."""
        self._may_repeat = may_repeat or self._may_repeat
        if revoke is not None and (doubt := self.journaled):
            answers = await revoke(doubt)
            self.remove([one for one, was_not_settled in zip(doubt, answers, strict=True) if was_not_settled])
            self._settled, self._doubt, self._kept, self._aside = [], [], [], []

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> Written:
        await self._clock.sleep(self._rng.uniform(0.0, 0.05))
        if self._here.network.is_faulty and self._rng.random() < 0.02:
            raise SinkFull("simulated: the disk is full")
        for page in pages:
            if page.outcome is not Outcome.RETRY:
                self._here.recorded[page.url] = self._here.recorded.get(page.url, 0) + 1
        self._doubt = [one for one, page in zip(leased, pages, strict=True) if page.outcome is not Outcome.RETRY]
        self._kept = [number for number, page in enumerate(pages) if page.outcome is not Outcome.RETRY]
        return Written()

    async def settled(self, unsettled: Collection[int] = ()) -> None:
        self._settle(zip(self._kept, self._doubt, strict=True), unsettled)
        self._doubt, self._kept = [], []

    def _settle(self, doubt: Iterable[tuple[int, LeasedUrl]], unsettled: Collection[int]) -> None:
        now = self._clock.monotonic()
        self._settled = [(at, one) for at, one in self._settled if at > now - JOURNAL_S or self._may_repeat(one)]
        for number, one in doubt:
            if number in unsettled:
                self._here.recorded[one.entry.url] -= 1
            else:
                self._settled.append((now, one))

    async def set_aside(self) -> SettleLater:
        doubt = list(zip(self._kept, self._doubt, strict=True))
        self._doubt, self._kept = [], []
        self._aside.append(doubt)

        async def settled(unsettled: Collection[int]) -> None:
            self._aside[:] = [group for group in self._aside if group is not doubt]
            self._settle(doubt, unsettled)

        return settled

    @property
    def journaled(self) -> list[LeasedUrl]:
        """The pages of the last seconds, as a journal has them."""
        aside = [one for group in self._aside for _, one in group]
        return [*(one for _, one in self._settled), *self._doubt, *aside]

    async def take_back(self, urls: Sequence[LeasedUrl]) -> None:
        self.remove(urls)

    def remove(self, urls: Sequence[LeasedUrl]) -> None:
        """Remove those of `urls` that are in the journal."""
        for one in set(self.journaled).intersection(urls):
            self._here.recorded[one.entry.url] -= 1
        self._settled = [(at, one) for at, one in self._settled if one not in urls]
        self._kept = [number for number, one in zip(self._kept, self._doubt, strict=True) if one not in urls]
        self._doubt = [one for one in self._doubt if one not in urls]
        for group in self._aside:
            group[:] = [(number, one) for number, one in group if one not in urls]

    async def stop(self, is_in_doubt: bool = False) -> int:
        """The files are finished, so nobody looks at their journal, unless they are in doubt."""
        if not is_in_doubt:
            self._settled = []
        return 0


class _NoStatus:
    """In place of the status pages."""

    address = listen = ""

    async def stop(self) -> None: ...


class SimRenderer:
    """A browser that makes requests, and fills the shells of pages."""

    def __init__(self, replica: SimReplica, sites: Sites) -> None:
        self._replica = replica
        self._sites = sites

    async def render(
        self,
        exchange: Exchange,
        answer: Callable[[HttpRequest], Awaitable[Exchange]],
        *,
        takes_screenshot: bool = False,
        steps: tuple[Step, ...] = (),
    ) -> Rendered:
        await self._replica.load_parts(exchange, answer)
        dom = msgspec.structs.replace(exchange, body=self._sites.shown(exchange.url))
        return Rendered("done", 1.0, dom, exchange.url, requests=100)

    async def stop(self) -> None: ...


class SimReplica:
    """One process, in which one replica follows another when the crawl has got other shards. `id`: of the replica that runs
    there now. `ended`: why it says that the crawl is over, "" while it does not; `has_left`: it was stopped."""

    def __init__(self, here: Surroundings, loop: SimLoop, until_empty: bool = True) -> None:
        self.loop = loop
        self.name = self.id = loop.name
        self.ended = ""
        self.has_left = False
        self.status = _NoStatus()
        self._here = here
        self._grace_s = GRACE_S
        self._leaves = False
        self._run = Run(cast(Replica, self), until_empty)
        self._rng = rng = random.Random(f"{here.scenario.seed} {loop.name}")
        self.clock = SimClock(loop)
        self._ids = 1
        # As long as the margin between the end of a lease for its holder and its expiry. A longer one is broken off at
        # that end (tests/worker/test_request.py), but not by a process that is stopped at that moment.
        longest_s = min(1.0, here.scenario.lease_ms / 20_000)
        self.local = ReplicaTable(
            redis="redis://simulated",
            concurrency=here.scenario.workers,
            interval=here.scenario.interval_s,
            capacity=rng.choice((1.0, 1.0, 0.5, 2.0)),
            grace=GRACE_S,
        )
        self._sink = SimSink(here, self.clock, rng)
        self.store = SimStore(here.network, loop)
        self._http = SimFetcher(here.sites, loop, self.clock, longest_s)
        self.crawl = here.crawl
        self.engine = self._built(here.settings, None)

    def __repr__(self) -> str:
        return f"<SimReplica {self.id} {self.engine!r}>"

    def _built(self, settings: CrawlSettings, time: CrawlTime | None) -> Engine:
        deps = Dependencies(
            replica=self.id,
            crawl=self.crawl,
            store=self.store,
            clock=self.clock,
            rng=self._rng,
            http=self._http,
            sink=self._sink,
            events=Events(),
            time=time,
            router=self._router() if self._here.scenario.fetches else None,
            recent=RecentUrls(1_000),
            renderer=SimRenderer(self, self._here.sites) if self._here.scenario.renders else None,
        )
        deps.events.subscribe(self._observe, ViewAdopted, CrawlEnded, DefectFound)
        return Engine(deps, settings, self.local)

    def _router(self) -> Router:
        """A handler that requests pages of the crawl, for so long that it never takes too long."""
        router, scenario, urls = Router(), self._here.scenario, self._here.sites.urls

        @router.handler()
        async def fetch(page: ParsedPage, crawl: Handle) -> None:
            rng = random.Random(f"{scenario.seed} fetches of {page.url}")
            wanted = (crawl.fetch(url) for url in rng.choices(urls, k=scenario.fetches))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FETCHES_S):
                    await asyncio.gather(*wanted, return_exceptions=True)

        return router

    async def load_parts(self, page: Exchange, answer: Callable[[HttpRequest], Awaitable[Exchange]]) -> None:
        """Make the requests of `page` in a browser, for so long that they never take too long."""
        scenario, urls = self._here.scenario, self._here.sites.urls
        rng, domain = random.Random(f"{scenario.seed} parts of {page.url}"), domain_of(page.url.split("/")[2])
        own = [url for url in urls if domain_of(url.split("/")[2]) == domain]
        wanted = [*rng.choices(own, k=scenario.renders), *rng.choices(urls, k=1)]
        fields = ((BY_BROWSER, domain),)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FETCHES_S):
                requests = (answer(HttpRequest(url, fields=fields, kind="xhr")) for url in wanted)
                await asyncio.gather(*requests, return_exceptions=True)

    @property
    def failure(self) -> object:
        """The exception that ended one of its tasks, or None. During a reshard, all shards refuse it."""
        failure = self.engine.tasks.failure
        if self._here.scenario.reshards and isinstance(failure, (CrawlResharded, Resharding, ShardLost)):
            failure = None
        return failure or next(iter(self.loop.failures), None)

    @property
    def keeps_time(self) -> bool:
        """Whether it knows crawl time, and stays to correct it when the server's clock steps."""
        return self.engine.peers.time.is_known and not self.is_leaving

    @property
    def is_leaving(self) -> bool:
        return self._leaves or self.engine.ended.is_set()

    @property
    def epoch(self) -> int:
        """That of its last view, 0 if it has none."""
        view = self.engine.leases.view
        return 0 if view is None else view.epoch

    def begin(self) -> None:
        """Start the process."""
        self.loop.spawn(self._live())
        if self._here.scenario.deaths:
            self.loop.spawn(self._report())

    async def _report(self) -> None:
        """Write the health record, as `crawler.app.replica` does."""
        engine = self.engine
        health = Health(self.store, self._here.crawl.keys.peers, HEALTH_INTERVALS * self._here.scenario.interval_s)
        while not self.is_leaving:
            view, gap_s = engine.leases.view, period_s(1.0, engine.replicas(), REPORTS_A_SECOND)
            place = (view.epoch, view.index) if view else (0, 0)
            if engine.runtime.server_clock.reading is None:
                await self.clock.sleep(gap_s)
                continue
            record = HealthRecord(self.name, ADDRESS, *place, len(engine.held.shards), 0, 0, 0, 0.0, 99.9, False)
            now_ms = int(engine.runtime.server_clock.now_ms())
            report = partial(health.report, self.name, msgspec.json.encode(record), HEALTH_INTERVALS * gap_s, now_ms)
            await engine.runtime.retry.call_crawl_node(report)
            await self.clock.sleep(gap_s)

    async def _live(self) -> None:
        while not self._leaves:
            try:
                await self._open()
                if await self._run.until_ended() == 1:
                    assert self.engine.tasks.failure is not None
                    raise self.engine.tasks.failure
                break
            except (RedisAway, Resharding):
                if self.engine.tasks.failure is not None:
                    raise
                await self.clock.sleep(RESTART_S)  # its supervisor starts it again
        self._here.history.note(self.name, "has left")
        self.has_left = True

    async def _open(self) -> None:
        """Open the crawl, if it may have other shards by now than those that it was created with."""
        if self._here.scenario.reshards and self.id == self.name:
            crawl = await open_crawl(self.store, self.crawl.name)
            if crawl.last_tokens != self.crawl.last_tokens:
                self.crawl = msgspec.structs.replace(crawl, revision=self._here.crawl.revision)
                self.engine = self._built(self._here.settings, None)

    # what `Run` asks of `crawler.app.replica.Replica`

    def next_id(self) -> str:
        self._ids += 1
        return f"{self.name}.{self._ids}"

    async def start(self, until_empty: bool) -> None:
        await self.engine.start(until_empty)

    async def stop(self) -> None:
        await self.engine.stop(self._grace_s)

    async def stop_crawling(self, grace_s: float) -> None:
        await self.engine.stop(grace_s)

    def successor(self, name: str, crawl: Crawl) -> SimReplica:
        """The same process, in which another replica runs from now on."""
        self._here.history.note(self.name, "continues", (name, crawl.shards))
        self.id = self.store.sender = name
        self.crawl = crawl
        self.engine = self._built(self.engine.follower.settings, self.engine.peers.time)
        return self

    def _observe(self, event: Event) -> None:
        with self.loop.universe.judging():
            match event:
                case ViewAdopted(view):
                    self._here.history.note(self.name, "view", Told(view))
                    self._here.on_view(view)
                case CrawlEnded(reason):
                    self._here.history.note(self.name, "ended", reason)
                    self.ended = reason
                    self._here.on_end(self.name, reason)
                case DefectFound():
                    raise Breach("I8", f"{self.name}: {event.stage} of {event.url}: {event.traceback}", event.url)

    def recover(self) -> None:
        """Recover the last pages that a dead replica wrote, as another process would."""
        doubt, network = self._sink.journaled, self._here.network
        calls = []
        for one in doubt:
            layout = layout_of(one.token, self._here.keys().last_tokens)  # as `Frontier.revoke`
            keys = shard_keys(self._here.crawl.name, one.shard, layout)
            of = (keys.lost, keys.inflight(one.domain), keys.domain(one.domain), keys.owner, keys.stats)
            identity = self._here.keys().identity if layout == self._here.keys().layout else ""
            what = (identity, network.run_id, one.token, int(network.now_ms()), one.entry.raw)
            calls.append(script_call(REVOKE, of, *what))
        replies = network.carry_out(f"heir of {self.name}", calls)
        self._sink.remove([one for one, reply in zip(doubt, replies, strict=True) if reply[1] == 1])

    def leave(self, grace_s: float) -> None:
        """Stop cleanly within about `grace_s` seconds, as after a signal."""
        if not self._leaves:
            self._leaves = True
            self._grace_s = grace_s
            self._here.history.note(self.name, "leaves")
            self.loop.call_soon(self._run.stop)


def crawl_settings(scenario: Scenario, named: tuple[str, ...], max_pages: int) -> CrawlSettings:
    """The settings of the crawl that a scenario names, `named` being its domains, with a limit of `max_pages`."""
    return CrawlSettings(
        politeness=PolitenessTable(
            delay=scenario.delay_ms / 1000,
            parallel=scenario.parallel,
            response_share=0.0,
            backoff_base=1.0,
            backoff_max=8.0,
            address_rate_limit="off",
            tries=3,
        ),
        scope=ScopeTable(kind=scenario.scope, domains=named, guess_sitemaps=False),
        limits=LimitsTable(max_pages=max_pages, domain_cap=scenario.domain_cap),
        frontier=FrontierTable(
            shards=scenario.shards, lease=scenario.lease_ms / 1000, batch=scenario.batch, pack_above=scenario.pack_above
        ),
        fetch=FetchTable(user_agent="simulated"),
        handlers=HandlersTable(timeout=3_600.0),
        render=RenderTable(mode="auto" if scenario.renders else "off", time=25.0),
    )
