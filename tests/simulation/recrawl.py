"""Thirty days of pages that are visited again, by the program's own engine on a simulated clock.

Replicas come and go, two are killed each day, and Redis is away twice. The referee sees each request that a site received
and each call that the server ran. It computes how fresh the copies were, and how fresh the same number of requests could
have made them (`tests.simweb.judge`). A day is shortened to ten minutes, and so are the rates, the limits and
the gain of the rule; delays, leases and the other times of the engine are not.

    python -m tests.simulation.recrawl                              200 domains, 20,000 pages, 30 days
    python -m tests.simulation.recrawl --pages 2000 --domains 20 --seed 3

The web of a simulation in which pages are visited again: pages that change at known rates, and the referee of visits.

Their rates are skewed: three pages in five change within minutes or at each request, and most others in days. Where visits
go matters most on such a web.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
import sys
import tempfile
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from crawler.settings.tables import RecrawlTable
from frontier.domains import domain_of
from frontier.entries import parse_entry
from frontier.keys import CrawlKeys
from frontier.scripts import Call, Reply
from tests.simulation.loop import Breach, History, SimLoop, Universe
from tests.simulation.network import EPOCH_MS, SEEDER, Network
from tests.simulation.replica import SimReplica, Surroundings, crawl_settings
from tests.simulation.run import NAME, seeded_crawl
from tests.simulation.scenario import HTML, Scenario, World
from tests.simulation.sites import TEXT, Answer, Sites
from tests.simulation.views import Views
from tests.simulation.wire import Wire, bytes_of, each_end
from tests.simweb.features import Change, Changing, Validity
from tests.simweb.judge import Freshness, judge_freshness
from tests.valkey import ValkeyProcess

KINDS = (
    *(Change.ALWAYS,) * 30,
    *(Change.NEVER,) * 2,
    *(Change.PERIODIC,) * 10,
    *(Change.POISSON,) * 58,
)
FAST = 0.5
"""Of the pages that change at random, this share does so every few minutes."""

VALIDITIES = (*(Validity.ETAG,) * 40, *(Validity.DATE,) * 25, *(Validity.NONE,) * 20)
DISHONEST = (*(Validity.RESTLESS,) * 8, *(Validity.STUCK,) * 2, *(Validity.WORDY,) * 5)

SLOW_EVERY = 20
"""Of so many domains, one has a Crawl-delay that does not allow all visits."""


class RecrawlWeb:
    """`pages` pages over `domains` domains, larger and smaller ones. `day_s`: for how many seconds a day stands; `all`: by
    URL; `slow`: the domains with a Crawl-delay."""

    def __init__(self, seed: int, domains: int, pages: int, day_s: float) -> None:
        rng = random.Random(f"revisit web {seed}")
        names = [f"d{number}.test" for number in range(domains)]
        weights = [1 / math.sqrt(rank) for rank in range(1, domains + 1)]
        homes = names + rng.choices(names, weights, k=pages - domains)
        self.all: dict[str, Changing] = {}
        for number, name in enumerate(homes):
            change = rng.choice(KINDS)
            fast = change is Change.POISSON and rng.random() < FAST
            days = math.exp(rng.uniform(math.log(1 / 1440), math.log(1 / 48)) if fast else rng.gauss(0.0, 0.7))
            url = f"https://{name}/{number}"
            self.all[url] = Changing(seed, url, change, days * day_s, rng.choice(VALIDITIES + DISHONEST))
        self.slow = frozenset(names[SLOW_EVERY // 2 :: SLOW_EVERY])
        self.crawl_delay_s = day_s / 60

    @property
    def judged(self) -> list[Changing]:
        """The pages whose freshness is judged: nobody can know that a page has changed whose server denies it."""
        return [page for page in self.all.values() if page.validity is not Validity.STUCK]

    def answer(self, url: str, now: float, fields: Mapping[str, str]) -> Answer:
        """What `url` answers to a request at `now` with these header fields."""
        domain = domain_of(url.split("/")[2])
        if url.endswith("/robots.txt"):
            rules = f"User-agent: *\nCrawl-delay: {self.crawl_delay_s}\n".encode()
            return (200, TEXT, rules) if domain in self.slow else (404, (), b"")
        page = self.all[url]
        body = f"<title>{url}</title><p>{page.text(now)}</p>".encode()
        headers = (*HTML, *((name.encode(), value.encode()) for name, value in page.fields(now).items()))
        if page.is_not_modified(now, fields):
            return 304, headers, b"a body that should not be here" if page.validity is Validity.WORDY else b""
        return 200, headers, body


BUSY_S = 2.0
"""Beyond its delay, this long after a request a domain still counts as busy: for the response, and for the next turn."""


class IdleTime:
    """How long a domain has been idle: neither answering nor waiting for its delay."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._idle_s: list[float] = []  # until each of these times

    def note(self, now: float, delay_s: float) -> None:
        """A request was sent `now`; the delay before it was `delay_s`."""
        gap_s = now - self._times[-1] - delay_s - BUSY_S if self._times else 0.0
        self._idle_s.append((self._idle_s[-1] if self._idle_s else 0.0) + max(0.0, gap_s))
        self._times.append(now)

    def since(self, at: float) -> float:
        """Seconds that it was idle from `at` until what was noted last, at most."""
        before = bisect_right(self._times, at) - 1
        return min(self._idle_s[-1] - self._idle_s[before], self._times[-1] - at) if before >= 0 else 0.0


class RecrawlSites(Sites):
    """The sites of a `RecrawlWeb`, and the referee of when its pages are visited, by the true time.

    `visits`: the times of the visits of each URL that were settled; `latest_s`: how long a domain was idle while one of
    its visits was due, at most. A domain whose delay does not allow all visits makes those that gain most.
    `limits`: the shortest and the longest time between two visits.
    """

    web: RecrawlWeb
    limits: tuple[float, float]

    def watch(self, web: RecrawlWeb, limits: tuple[float, float]) -> None:
        """Serve `web`, and hold its visits against `limits`."""
        self.web, self.limits = web, limits
        self.visits: defaultdict[str, list[float]] = defaultdict(list)
        self.asked: dict[str, float] = {}  # when each URL was requested last
        self.due: dict[str, float] = {}  # when each settled page is to be visited again
        self.delays: dict[str, int] = {}  # ms, as settled
        self._idle: defaultdict[str, IdleTime] = defaultdict(IdleTime)
        self.latest_s = 0.0

    def _answer(self, url: str, domain: str, fields: Mapping[str, str]) -> Answer:
        now = self.now_s()
        if not url.endswith("/robots.txt"):
            late_s = now - self.due.get(url, now)
            if late_s < -self._slack_s - 1:  # Redis counts whole seconds here
                raise Breach("early", f"{url} is requested {-late_s:.3f} s before it is due", domain)
            self._idle[domain].note(now, self.delays.get(domain, 0) / 1000)
            if late_s > self.latest_s:
                self.latest_s = max(self.latest_s, self.idle_s(domain, now - late_s))
            self.asked[url] = now
        return self.web.answer(url, now, fields)

    def idle_s(self, domain: str, since: float) -> float:
        """Seconds that `domain` was idle since then, until its last request or the end."""
        return self._idle[domain].since(since)

    def end(self) -> None:
        """The run ends now: a domain that was left is idle until then."""
        for domain, idle in self._idle.items():
            idle.note(self.now_s(), self.delays.get(domain, 0) / 1000)

    def observe(self, replica: str, call: Call, reply: Reply) -> None:
        """Note the visits that a call settles."""
        if call.script is None or call.script.name != "settle":
            return
        words, at = [bytes_of(word).decode("latin-1") for word in call.arguments], 4  # states are not text
        for said in reply[1::2]:
            end = at + 9 + int(words[at + 8])
            if said != b"stale":
                if words[at + 3]:
                    self.delays[words[at]] = int(words[at + 3])
                for _, again, raw in each_end(words[at + 9 : end]):
                    self._settled(parse_entry(raw, words[at], 0.0).url, again)
            at = end

    def _settled(self, url: str, again: str) -> None:
        kind, *more = again.split("\n", 3)
        if kind != "visit" or not more[1]:
            raise Breach("I1", f"{url} is settled, and not visited again: {again!r}", url)
        asked_at, due_at = self.asked[url], float(more[1])  # in whole seconds
        wait_s, (least_s, most_s) = due_at - asked_at, self.limits
        if not least_s - 1 <= wait_s <= most_s + 1:
            raise Breach("limits", f"{url} is due {wait_s:.3f} s after its last visit", url)
        if not self.visits[url] or self.visits[url][-1] < asked_at:  # a call may be repeated
            self.visits[url].append(asked_at)
        self.due[url] = due_at


def true_s(simulated_s: float) -> float:
    """Seconds since 1970 by the clock of the sites."""
    return EPOCH_MS / 1000 + simulated_s


REPLICAS = 5
KILLS_A_DAY = 2
OUTAGES = 2
KEPT_LINES = 5_000

OPTIMUM_SHARE, UNIFORM_RATIO = 0.9, 1.2
"""What must be reached of the optimum, and compared with equal intervals."""

WARM_UP_DAYS = 1.0
"""The first visits are made in this time, which does not count."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run. `gain_h`, `least_h` and `most_d`: what a visit must gain, and the limits of the rule, in hours and
    days, of which one takes `day_s` seconds."""

    seed: int = 1
    domains: int = 200
    pages: int = 20_000
    days: float = 30.0
    day_s: float = 600.0
    gain_h: float = 2.0
    least_h: float = 1.0
    most_d: float = 10.0

    @property
    def hour_s(self) -> float:
        return self.day_s / 24

    @property
    def rule(self) -> str:
        least_s, gain_s = self.least_h * self.hour_s, self.gain_h * self.hour_s
        return f"adaptive min={least_s}s max={self.most_d * self.day_s}s start={self.day_s}s gain={gain_s}s"

    @property
    def scenario(self) -> Scenario:
        return replace(
            Scenario.draw(self.seed, faulty_s=self.days * self.day_s, replicas=REPLICAS, nodes=1, restarts=0),
            shards=16,
            domains=1,
            urls=1,
            interval_s=5.0,
            lease_ms=10_000,
            delay_ms=200,
            batch=32,
            domain_cap=0,
            exchange_fault=0.002,
            slow=0.002,
            lateness=0.002,
            drift=1e-5,
            parallel=1,
            max_pages=0,
            scope="seeds",
            limited_at_s=0.0,
            pack_above=0,
            workers=64,  # so that politeness limits the visits, and not the replicas
        )


class RecrawlRun:
    """A run of `plan` on the server behind `wire`, which is emptied first."""

    def __init__(self, plan: Plan, wire: Wire) -> None:
        self.plan, self.scenario = plan, plan.scenario
        self.universe = Universe()
        self.history = History(self.universe, KEPT_LINES)
        self.replicas: list[SimReplica] = []
        self._wire = wire
        self._rng = random.Random(f"revisits {plan.seed}")
        self._network = Network(self.universe, wire, self.scenario, self.history)
        self.web = RecrawlWeb(plan.seed, plan.domains, plan.pages, plan.day_s)
        world = World(self.scenario)  # which is not asked for any page
        self.sites = RecrawlSites(self.universe, world, self.history, self._delay_of, self.scenario)
        self.sites.watch(self.web, (plan.least_h * plan.hour_s, plan.most_d * plan.day_s))
        self._recorded: dict[str, int] = {}
        views = Views(self.scenario.shards)
        self._network.observers += [self.sites.observe, views.observe]
        self._see_view = views.see

    def _delay_of(self, domain: str) -> int:
        return max(self.scenario.delay_ms, self.sites.delays.get(domain, 0))

    def go(self) -> Freshness:
        """Run to the end. Raises Breach."""
        self._wire.command("FLUSHDB")
        settings = crawl_settings(self.scenario, (), 0)
        settings = msgspec.structs.replace(settings, recrawl=RecrawlTable(rules=(self.plan.rule,)))
        identity = self._rng.randbytes(16).hex()  # the same seed shall give the same run
        self._wire.command("SET", CrawlKeys(NAME, self.scenario.shards, identity).draft, identity)
        crawl = seeded_crawl(self.universe, self._network, self._loop(SEEDER), settings, self.web.all)
        self._here = Surroundings(
            self.scenario,
            crawl,
            lambda: crawl.keys,
            settings,
            self._network,
            self.sites,
            self.history,
            self._recorded,
            self._see_view,
            self._judge_end,
        )
        try:
            self._plan_faults()
            end = self.plan.days * self.plan.day_s
            self._run_until(end)
            self._judge_visits(end)
            self._stop()
            self._judge_records()
        finally:
            for replica in self.replicas:
                replica.loop.close()
        return self.freshness()

    def freshness(self) -> Freshness:
        """How fresh the copies were, after the first visits."""
        since, until = (true_s(days * self.plan.day_s) for days in (WARM_UP_DAYS, self.plan.days))
        return judge_freshness(self.web.judged, self.sites.visits, since, until)

    # the course of a run

    def _loop(self, name: str) -> SimLoop:
        rng = random.Random(f"{self.plan.seed} {name} loop")
        return SimLoop(self.universe, name, rng, self.scenario.lateness, self.scenario.drift)

    def _plan_faults(self) -> None:
        rng, end = self._rng, self.plan.days * self.plan.day_s
        for _ in range(REPLICAS):
            self._join()
        for _ in range(round(KILLS_A_DAY * self.plan.days)):
            self.universe.at(rng.uniform(0.0, end), self._kill)
            self.universe.at(rng.uniform(0.0, end), self._swap)
        for number in range(OUTAGES):
            at = end * (number + rng.uniform(0.3, 0.7)) / OUTAGES
            self.universe.at(at, partial(self._cut_off, at + self.outage_s))

    @property
    def outage_s(self) -> float:
        """How long Redis is away each time."""
        return self.plan.hour_s

    def _cut_off(self, until: float) -> None:
        self._network.cut[""] = until

    def _alive(self) -> list[SimReplica]:
        return [replica for replica in self.replicas if not (replica.loop.is_dead or replica.has_left)]

    def _join(self) -> None:
        replica = SimReplica(self._here, self._loop(f"r{len(self.replicas) + 1}"), until_empty=False)
        self.replicas.append(replica)
        self.universe.at(self.universe.now + self._rng.uniform(0.0, 2.0), replica.begin, replica.loop)

    def _kill(self) -> None:
        """A replica dies. Another is started, and looks after what it has left."""
        replica = self._rng.choice(self._alive())
        self.history.note(replica.name, "killed")
        replica.loop.is_dead = True
        self.universe.at(self.universe.now + self._rng.uniform(0.0, 20.0), replica.recover)
        self.universe.at(self.universe.now + self._rng.uniform(0.0, 60.0), self._join)

    def _swap(self) -> None:
        """A replica leaves, and another comes, before or after it."""
        alive = self._alive()
        if len(alive) > 2:
            self._rng.choice(alive).leave(grace_s=5.0)
        self.universe.at(self.universe.now + self._rng.uniform(0.0, 60.0), self._join)

    def _run_until(self, end: float) -> None:
        while self.universe.now < end:
            for _ in range(1_000):
                self.universe.step()
            self._look_for_failures()

    def _look_for_failures(self) -> None:
        for replica in self.replicas:
            if replica.failure is not None:
                raise Breach("I8", f"{replica.name} is broken: {replica.failure!r}", replica.name)

    def _judge_end(self, replica: str, reason: str) -> None:
        raise Breach("I7", f"{replica} says that the crawl is over: {reason}", replica)

    def _stop(self) -> None:
        """All replicas leave, without faults."""
        self._network.is_faulty = False
        for replica in self._alive():
            replica.leave(grace_s=30.0)
        while self._alive():
            self.universe.step()
        for replica in self.replicas:
            replica.recover()

    # judging

    @property
    def late_s(self) -> float:
        """For how long a domain with a due visit may be idle: an outage, or the lease of a killed replica and the time
        until its shards have another owner."""
        return self.outage_s + 2 * self.scenario.lease_ms / 1000 + 60.0

    def _judge_visits(self, end: float) -> None:
        """No page is lost: each has been visited, and its next visit is not overdue."""
        if self.sites.latest_s > self.late_s:
            raise Breach("late", f"a domain was idle for {self.sites.latest_s:.0f} s while a visit was due")
        self.sites.end()
        for url in self.web.all:
            due_at = self.sites.due.get(url)
            if due_at is None:
                raise Breach("I1", f"{url} was never visited", url)
            late_s = true_s(end) - due_at
            if (
                late_s > self.plan.most_d * self.plan.day_s
                or self.sites.idle_s(url.split("/")[2], due_at) > self.late_s
            ):
                raise Breach("I1", f"{url} was due {late_s:.0f} s before the end", url)

    def _judge_records(self) -> None:
        """Each settled visit has one record."""
        for url, times in self.sites.visits.items():
            if self._recorded.get(url, 0) != len(times):
                raise Breach("I1", f"{url} has {self._recorded.get(url, 0)} records of {len(times)} visits", url)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.recrawl", description=__doc__.split("\n")[0])
    defaults = Plan()
    for name in Plan.__dataclass_fields__:
        kind = type(getattr(defaults, name))
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=getattr(defaults, name))
    plan = Plan(**vars(parser.parse_args()))
    logging.disable()  # what replicas have to warn of is what is done to them
    with tempfile.TemporaryDirectory() as folder, ValkeyProcess(Path(folder), persistent=False) as server:
        wire = Wire(server.socket)
        run, started = RecrawlRun(plan, wire), time.process_time()
        try:
            found = run.go()
        except Breach as breach:
            print("\n".join(run.history.told(breach.about)[-60:]), f"\nBREACH {breach}\n  {plan}\n{run.freshness()}")
            return 1
        finally:
            wire.close()
        requests, replicas = sum(run.sites.requests.values()), len(run.replicas)
        print(f"{plan}\n{found}")
        idle_s = run.sites.latest_s
        print(f"{requests} requests, {replicas} replicas, a domain was idle for {idle_s:.1f} s while a visit was due")
        print(f"{time.process_time() - started:.0f} s of CPU here")
    return 0 if found.reached >= OPTIMUM_SHARE * found.optimum and found.reached >= UNIFORM_RATIO * found.uniform else 1


if __name__ == "__main__":
    sys.exit(main())
