"""One run: build everything from the seed, run it, and check it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crawler.app.engine import frontier_settings
from crawler.settings.load import CrawlSettings
from frontier.clock import ServerClock
from frontier.counters import Counters
from frontier.crawls import Crawl, create_crawl
from frontier.entries import Entry
from frontier.errors import RedisAway, ShardLost
from frontier.peers import CLAIMING, View
from frontier.queue import Frontier
from frontier.scripts import SAVE_SETTINGS, script_call
from frontier.urls import canonicalize
from tests.shared_views import shared_views
from tests.simulation.audit import EndJudge, audit
from tests.simulation.crowd import INTERVALS, Agreement, ControlLoad, Crowd, judge
from tests.simulation.faults import SOON_S, Faults, timekeepers
from tests.simulation.ledger import Ledger
from tests.simulation.loop import Breach, History, SimClock, SimLoop, Universe
from tests.simulation.network import SEEDER, Network, SimStore
from tests.simulation.replica import SimReplica, Surroundings, crawl_settings
from tests.simulation.reshards import Layouts, Operators
from tests.simulation.scenario import Scenario, World
from tests.simulation.sites import Sites
from tests.simulation.views import Views
from tests.simulation.wire import ScriptFailed, Wire

PACE_EVERY, PACE_S, PACED = 50_000, 0.1, 200
"""This many events of so many replicas or fewer take at least so many simulated seconds; otherwise a replica repeats
something without a pause."""

WATCHED_SHARDS = 9_600
"""Replicas from whose machines the counters are asked for the end of the crawl at any moment, times the shards that each of
them reads: 300 replicas with 32 shards, and a few with thousands."""

KEPT_OF_CROWD = 200_000
"""Lines of history that are kept of a crowd, which has some millions."""

CALM_S = 5.0
"""How long nothing happens to a crowd before the deaths, and after."""

MORE_FAULTS_S = 17.0
"""For so long there are faults again after the deaths."""

NAME = "sim"

END_S = 60.0
"""How long, in addition to a lease, a replica may continue when nothing is left to do."""

DRAIN_S = 7_200.0
"""A crawl of this size ends much earlier without faults: fifteen losses of the longest lease take 450 s."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a run did. `agreements`: of the views of a crowd, after the joins and after the deaths."""

    events: int
    simulated_s: float
    calls: int
    requests: int
    refetched: int
    replicas: int
    agreements: tuple[Agreement, ...] = ()


def seeded_crawl(
    universe: Universe, network: Network, loop: SimLoop, settings: CrawlSettings, urls: Iterable[str]
) -> Crawl:
    """Create a crawl with the seeds `urls` over `network`, which is not faulty meanwhile."""
    store = SimStore(network, loop)
    clock = ServerClock(SimClock(loop), store.time_ms)

    async def seed() -> Crawl:
        await clock.refresh()
        crawl = await create_crawl(store, NAME, settings.frontier.shards, settings.to_json())
        frontier = Frontier(store, crawl.keys, clock, frontier_settings(settings), crawl.fingerprint_key)
        await frontier.push([Entry(url.href, url.domain) for url in map(canonicalize, urls)])
        return crawl

    network.is_faulty = False
    task = loop.spawn(seed())
    while not task.done():
        universe.step()
    network.is_faulty = True
    return task.result()


class Run:
    """A run of `scenario` on the server behind `wire`, which is emptied first."""

    def __init__(self, scenario: Scenario, wire: Wire) -> None:
        self.scenario = scenario
        self.universe = Universe()
        self.history = History(self.universe, KEPT_OF_CROWD if scenario.deaths else None)
        self.replicas: list[SimReplica] = []
        self._wire = wire
        self._rng = random.Random(f"run {scenario.seed}")
        self._joined = 0
        self._last_start = 0.0  # of a replica: seeding the crawl comes before, and takes some seconds
        self._paced_at = 0.0
        self._is_over = False  # a replica has said so
        self._world = World(scenario)
        self._identity = self._rng.randbytes(16).hex()
        self._recorded: dict[str, int] = {}
        self._network = Network(self.universe, wire, scenario, self.history)
        self.ledger = Ledger(self._world, self.history, scenario, self._recorded, self._network.now_ms)
        self._end = EndJudge(self.ledger, self._network.now_ms)
        self._views = Views(scenario.shards)
        created = Crawl(NAME, scenario.shards, bytes.fromhex(self._identity), b"", 0, created=False)
        self._layouts = Layouts(self.history, self.ledger, created, self._views.switch)
        self._network.observers += (self._end.observe, self._layouts.observe)
        self._network.senders.append(self.ledger.time.observe_sending)
        self._sites = Sites(self.universe, self._world, self.history, self.ledger.delay_of, scenario)
        self._network.observers.append(self._views.observe)
        self._settings = crawl_settings(scenario, self._world.named, 0 if scenario.limited_at_s else scenario.max_pages)
        self._crowd = Crowd(scenario.interval_s)
        self._operators = Operators(self.universe, self._network, scenario, self.history, self._loop, NAME)
        self.load = ControlLoad(self.universe, lambda: self._network.exchange)
        if scenario.deaths:
            self._network.observers.append(self.load.observe)

    def go(self) -> Result:
        """Run to the end. Raises Breach."""
        with shared_views():
            return self._go()

    def _go(self) -> Result:
        self._wire.command("FLUSHDB")
        before = self._wire.calls
        try:
            self._here = Surroundings(
                self.scenario,
                self._seed(),
                lambda: self._layouts.keys,
                self._settings,
                self._network,
                self._sites,
                self.history,
                self._recorded,
                self._see,
                self._judge_end,
            )
            self.load.begin(f"{self.scenario.replicas:,} replicas join")
            for _ in range(self.scenario.replicas):
                self._join(self.scenario.joined_s)
            if self.scenario.max_pages and self.scenario.limited_at_s:
                self.universe.at(self.scenario.limited_at_s, self._limit)
            self._operators.plan()
            self._suffer(self.scenario.faulty_s)
            agreements = self._lose_many() if self.scenario.deaths else ()
            self._drain()
            self._judge()
        except ScriptFailed as error:
            raise Breach("I1", f"a script failed: {error}") from error
        finally:
            for replica in self.replicas:
                replica.loop.close()
            self._operators.close()
        requests = self._sites.requests
        refetched = sum(count - 1 for count in self._recorded.values())
        return Result(
            self.universe.events,
            self.universe.now,
            self._wire.calls - before,
            sum(requests.values()),
            refetched,
            len(self.replicas),
            agreements,
        )

    def _see(self, view: View) -> None:
        self._views.see(view)
        self._crowd.see(view, self.universe.now)

    def _seed(self) -> Crawl:
        """The crawl, made and seeded before anything goes wrong."""
        # The key is drawn by chance, and the same seed shall give the same run.
        self._wire.command("SET", self._layouts.keys.draft, self._identity)
        return seeded_crawl(self.universe, self._network, self._loop(SEEDER), self._settings, self._world.seeds)

    def _loop(self, name: str) -> SimLoop:
        rng = random.Random(f"{self.scenario.seed} {name} loop")
        return SimLoop(self.universe, name, rng, self.scenario.lateness, self.scenario.drift)

    def _join(self, within_s: float) -> None:
        """Let another replica start within so many seconds."""
        self._joined += 1
        replica = SimReplica(self._here, self._loop(f"r{self._joined}"))
        self.replicas.append(replica)
        start = self.universe.now + self._rng.uniform(0.0, within_s)
        self._last_start = max(self._last_start, start)
        self.universe.at(start, replica.begin, replica.loop)
        if self._joined * self.scenario.shards <= WATCHED_SHARDS:
            replica.loop.spawn(self._watch_end(replica))

    def _alive(self) -> list[SimReplica]:
        return list(self._each_alive())

    def _each_alive(self) -> Iterator[SimReplica]:
        return (replica for replica in self.replicas if not (replica.loop.is_dead or replica.has_left))

    def _limit(self) -> None:
        """Set a limit on the pages, as an operator does during the crawl."""
        pages = self.ledger.pages + self.scenario.max_pages
        settings = crawl_settings(self.scenario, self._world.named, pages).to_json()
        self.ledger.permits.set_limit(pages)
        self._network.carry_out("operator", [script_call(SAVE_SETTINGS, [self._layouts.keys.meta], settings, 1)])

    def _judge_end(self, replica: str, reason: str) -> None:
        """`replica` says that the crawl is over (I7)."""
        self._is_over = True
        ledger = self.ledger
        others = [one for one in self._alive() if one.name != replica]
        if not (self._network.is_step_noticed or timekeepers(self._network, self.universe.now, others)):
            ledger.time.follow_step()
        if reason == "max_pages":
            limit, most = ledger.permits.limit, ledger.permits.most
            if not 0 < limit <= ledger.pages <= most:
                raise Breach("limit", f"the crawl is said to end with {ledger.pages} pages, not {limit}", replica)
        else:
            self._end.check_report(replica)

    async def _watch_end(self, replica: SimReplica) -> None:
        """Ask the counters from the machine of `replica` whether the crawl is over, and hold the answer against the ledger
        (I7). The engine asks only while it holds nothing; who asks at any moment sees more of what others do meanwhile."""
        clock, store = SimClock(replica.loop), SimStore(self._network, replica.loop)
        while not (replica.ended or replica.has_left):
            # A wrong answer is likeliest when little is left.
            await clock.sleep(self._rng.uniform(0.1, 0.5) if self.ledger.open < 6 else self._rng.uniform(0.5, 20.0))
            question, run, keys = self._end.ask(), self._network.run_id, self._layouts.keys
            with contextlib.suppress(RedisAway, ShardLost), self.universe.judging():
                # Counters that have asked before begin with the shard that was open then, and are less often wrong.
                has_ended = await Counters(store, keys).has_ended()
                if run == self._network.run_id:  # a restart may open what was settled
                    self._end.check_answer(question, has_ended, replica.name)

    # the course of a run

    def _suffer(self, until: float) -> None:
        self._network.is_faulty = True
        faults = Faults(
            self.universe, self._network, self.scenario, self.history, self._join, self._alive, self._restart
        )
        while self.universe.now < until and not self._is_over:
            self._step()
        faults.stop()  # pauses go on until their end: what was deferred meanwhile cannot be brought forward
        self.history.note("", "healed")

    def _lose_many(self) -> tuple[Agreement, ...]:
        """The views of a crowd come to agree after the last join. Then some replicas die at once, at a random moment of an
        interval, and the views of the others come to agree again. Then there are other faults as before."""
        self._proceed(self._last_start - self.universe.now)
        joined = self._agree("after the joins", INTERVALS)
        self.load.begin(f"{joined.replicas:,} replicas")
        self._proceed(self._rng.uniform(CALM_S, CALM_S + self.scenario.interval_s))
        for replica in self._rng.sample(self._awake(), self.scenario.deaths):
            replica.loop.is_dead = True
            self.universe.at(self.universe.now + self.scenario.lease_ms / 1000, replica.recover)
        self.load.begin(f"{self.scenario.deaths:,} have died")
        died = self._agree("after the deaths", INTERVALS + CLAIMING)
        self._proceed(CALM_S)
        self.load.begin("")
        self._suffer(self.universe.now + MORE_FAULTS_S)
        return joined, died

    def _agree(self, what: str, adopted_within: float) -> Agreement:
        """Let replicas run until their views agree, or should."""
        living = {replica.name for replica in self._awake()}
        gone = {replica.name for replica in self.replicas} - {replica.name for replica in self._alive()}
        self._crowd.expect(living, gone, self.universe.now)
        until = self.universe.now + adopted_within * self.scenario.interval_s
        while self._crowd.agreement is None and self.universe.now < until:
            self._step()
        return judge(self._crowd.agreement, what, adopted_within)

    def _awake(self) -> list[SimReplica]:
        now = self.universe.now
        return [one for one in self._alive() if one.loop.paused_until <= now and not one.is_leaving]

    def _proceed(self, seconds: float) -> None:
        until = self.universe.now + seconds
        while self.universe.now < until:
            self._step()

    def _restart(self, lost_s: float) -> None:
        self._layouts.rebuild(self._network.restart(lost_s))
        self._end.forget()
        lease_s, delay_s = self.scenario.lease_ms / 1000, self.scenario.delay_ms / 1000
        self._sites.doubt(lease_s + delay_s + 1.0)
        self.ledger.unsure_until_ms = self._network.now_ms() + 60_000  # a paused replica repeats its writes late

    def _drain(self) -> None:
        """Without faults: the crawl ends, and each replica notices it and stops."""
        self._operators.finish()
        until = self.universe.now + DRAIN_S
        while not self._is_over:
            if not any(self._each_alive()):
                self._join(SOON_S)
            if self.universe.now > until:
                raise Breach("I8", f"{self.ledger.open} URLs are open {DRAIN_S:g} s after all was well again")
            self._steps()
        since = self.universe.now
        while alive := self._alive():
            if self.ledger.open:
                # A page that was fetched under a lease lost long ago may bring a link that did not count before.
                since = self.universe.now
            since = max(since, *(replica.loop.paused_until for replica in alive))
            if self.universe.now > since + self.scenario.lease_ms / 1000 + END_S:
                raise Breach("I7", f"the crawl is over, and {alive} go on", alive[0].name)
            self._steps()

    @property
    def _is_spent(self) -> bool:
        return any(replica.ended == "max_pages" for replica in self.replicas)

    def _steps(self) -> None:
        for _ in range(max(50, len(self.replicas))):  # so that looking at all replicas in between costs little
            self._step()

    def _step(self) -> None:
        self.universe.step()
        # There is one after each stray settle call, too, in a crowd only of its shard.
        strays = self._network.stray_settles
        if self.universe.events % self.scenario.audit_every == 0 or (strays and not self.scenario.deaths):
            self._audit()
        elif strays:
            audit(self._wire, self._layouts.keys, self.ledger, strays)
        strays.clear()
        if self.universe.events % PACE_EVERY == 0:
            replicas = max(PACED, self.scenario.replicas)  # those of a crowd may all act within one moment
            if self.universe.now < self._paced_at + PACE_S * PACED / replicas:
                raise Breach("I8", f"{PACE_EVERY} events in {self.universe.now - self._paced_at:.6f} s")
            self._paced_at = self.universe.now

    def _audit(self) -> None:
        audit(self._wire, self._layouts.keys, self.ledger)
        for replica in self.replicas:
            if replica.failure is not None:
                raise Breach("I8", f"{replica.name} is broken: {replica.failure!r}", replica.name)
        self._operators.check()

    def _judge(self) -> None:
        """Check what must hold at the end."""
        self._audit()
        ledger, world = self.ledger, self._world
        reached, pending = set[str](), list(world.seeds)
        while pending:
            url = pending.pop()
            if url not in reached:
                reached.add(url)
                if ledger.settled.get(url) == "done":
                    pending += world.resources[url].links
        strange = [url for url in sorted(ledger.accepted) if not world.may_hold(url.split("/")[2])]
        if strange:
            raise Breach("I1", f"accepted, and not of the crawl: {strange}")
        lost = reached - ledger.settled.keys() - ledger.capped
        if lost and not self._is_spent:
            raise Breach("I1", f"never settled: {sorted(lost)}")
        for replica in self.replicas:
            replica.recover()
        for url in sorted(ledger.settled.keys() - ledger.lost_with_holder):
            if self._recorded.get(url, 0) != 1:
                raise Breach("I1", f"{url} is settled, and has {self._recorded.get(url, 0)} records", url)
