"""The workers: each takes the domain longest due off the schedule and gives it one turn.

A turn makes at most one HTTP request to the domain: a page, or one hop on the way to a robots.txt. URLs that need no
request (denied, or of an origin whose robots.txt cannot be had now) are settled on the way. Then the domain rests for
its delay, from the end of the response on, and goes back on the schedule: while it rests it holds no worker.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from crawler.commit import Committer, Result
from crawler.control import Control
from crawler.decode import decode
from crawler.errors import FetchFailed
from crawler.events import BackedOff, Events, RobotsSettled, TurnTaken, UrlPostponed
from crawler.feed import Feeder
from crawler.fetch import Fetcher
from crawler.gatekeeper import Gatekeeper
from crawler.page import Exchange, Outcome, Page
from crawler.pages import PageBuilder
from crawler.passage import Passage
from crawler.patience import Patience
from crawler.schedule import Schedule
from crawler.verdict import NOBODYS_FAULT, Verdict, judge_failure, judge_status, last_try
from crawler.visit import Visit
from frontier.budget import Budget
from frontier.clock import Clock, ServerClock
from frontier.entries import Entry
from frontier.queue import Settled, postpone, retry
from frontier.urls import origin_of
from politeness.address_gate import GatePolicy
from politeness.backoff import BackoffPolicy, after_failure, after_success, is_given_up, parse_retry_after
from politeness.delay import DelayPolicy, delay_ms
from politeness.robots_cache import KnownRobots, RobotsCache
from politeness.robots_fetch import RobotsFetch, RobotsPolicy, next_record
from politeness.robots_fetch import Verdict as RobotsVerdict
from politeness.robots_text import MAX_BODY

BUDGET_PAUSE_S = 0.2
"""How long a domain waits when all permits are in use: one of them may come back."""


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """`tries`: requests for a URL at most. `gate`: the rate that the domains behind an address share; None: no limit."""

    delay: DelayPolicy
    backoff: BackoffPolicy
    robots: RobotsPolicy
    tries: int
    gate: GatePolicy | None = None


class Turns:
    """Gives visits their turns."""

    def __init__(
        self,
        schedule: Schedule[Visit],
        feeder: Feeder,
        committer: Committer,
        fetcher: Fetcher,
        gatekeeper: Gatekeeper,
        passage: Passage,
        robots: RobotsCache,
        builder: PageBuilder,
        budget: Budget,
        control: Control,
        patience: Patience,
        events: Events,
        clocks: tuple[Clock, ServerClock],
        settings: TurnSettings,
        rng: random.Random,
    ) -> None:
        self._schedule = schedule
        self._feeder = feeder
        self._committer = committer
        self._fetcher = fetcher
        self._gatekeeper = gatekeeper
        self._passage = passage
        self._robots = robots
        self._builder = builder
        self._budget = budget
        self._control = control
        self._patience = patience
        self._events = events
        self._clock, self._server_clock = clocks
        self._settings = settings
        self._rng = rng

    async def work(self) -> None:
        """One worker's life, until cancelled."""
        while True:
            visit = await self._schedule.take()
            late_s = max(0.0, self._clock.monotonic() - visit.next_at)
            self._events.emit(TurnTaken(late_s, visit.next_at - visit.ended_at))
            visit.busy = True
            try:
                await self._turn(visit)
            finally:
                visit.busy = False
            self._after(visit)

    def _after(self, visit: Visit) -> None:
        if visit.closing:
            self._feeder.finish(visit)
        elif not visit.holds(self._clock.monotonic()):
            self._feeder.forget(visit)
        elif visit.pending:
            self._schedule.put(visit, visit.next_at)

    async def _turn(self, visit: Visit) -> None:
        while visit.pending and not visit.closing:
            if not visit.holds(self._clock.monotonic()):
                return
            entry = visit.pending[0]
            if visit.domain in self._control.rules.blocked:
                visit.pending.popleft()
                await self._settle(visit, entry, Verdict(Outcome.DENIED, "blocked"))
                continue
            known = await self._known_robots(visit, entry)
            if known is None:
                return  # the turn went to robots.txt
            if self._must_rest(visit, known):
                return
            if await self._settled_without_request(visit, entry, known):
                continue
            if not self._budget.take():
                visit.next_at = self._clock.monotonic() + BUDGET_PAUSE_S
                return
            if not await self._gatekeeper.lets(visit, entry.url):
                self._budget.give_back()
                return
            visit.pending.popleft()
            await self._fetch_page(visit, entry, known)
            return

    def _must_rest(self, visit: Visit, known: KnownRobots) -> bool:
        """Whether this origin asks for a longer delay than the one that the domain has just waited."""
        due = visit.ended_at + self._delay_ms(visit, known, 0.0) / 1000
        if self._clock.monotonic() >= due:
            return False
        visit.next_at = due
        return True

    async def _settled_without_request(self, visit: Visit, entry: Entry, known: KnownRobots) -> bool:
        if is_given_up(visit.backoff, self._settings.backoff):
            visit.pending.popleft()
            await self._settle(visit, entry, Verdict(Outcome.DEAD, f"given_up_{visit.backoff.reason}"))
            return True
        if known.record.access == "disallow":
            visit.pending.popleft()
            await self._without_robots(visit, entry, known)
            return True
        if known.rules is not None and not known.rules.decide(entry.url).allowed:
            visit.pending.popleft()
            await self._settle(visit, entry, Verdict(Outcome.DENIED, "robots"))
            return True
        return False

    # robots.txt

    async def _without_robots(self, visit: Visit, entry: Entry, known: KnownRobots) -> None:
        """RFC 9309 2.3.1.4: an unreachable robots.txt denies everything. The URL waits for the next attempt to fetch the
        file, as many times as it would be tried itself."""
        if known.record.failures >= self._settings.tries:
            await self._settle(visit, entry, Verdict(Outcome.DEAD, "robots_unreachable"))
            return
        settled = postpone(entry, "robots_unreachable", known.record.retry_at_ms)
        self._events.emit(UrlPostponed("robots_unreachable"))
        await self._committer.add(Result(visit, settled))

    async def _known_robots(self, visit: Visit, entry: Entry) -> KnownRobots | None:
        """The robots.txt that counts for `entry`, or None when this turn had to ask for it."""
        origin = origin_of(entry.url)
        now_ms = self._server_clock.now_ms()
        known = self._robots.recall(origin)
        if known is not None and known.record.is_fresh(now_ms):
            return known
        known = await self._patience.insist(lambda: self._robots.load(origin, visit.domain))
        if known is not None and known.record.is_fresh(now_ms):
            return known
        await self._ask_robots(visit, origin, known)
        return None

    async def _ask_robots(self, visit: Visit, origin: str, known: KnownRobots | None) -> None:
        fetch = visit.robots.setdefault(origin, RobotsFetch(origin))
        if not await self._passage.lets(visit, fetch.url) or not await self._gatekeeper.lets(visit, fetch.url):
            return
        exchange: Exchange | None = None
        started = self._clock.monotonic()
        try:
            exchange = await self._fetcher.fetch(fetch.url, deadline=lambda: not visit.holds(self._clock.monotonic()))
        except FetchFailed as failure:
            if failure.kind in NOBODYS_FAULT:
                self._rest(visit, 0.0, known)
                await self._passage.ended(visit, None, visit.delay_ms)
                return
            verdict: RobotsVerdict | None = fetch.failed(str(failure.kind), self._server_clock.now_ms())
        else:
            coding = exchange.header(b"content-encoding")
            decoded = await decode(exchange.body, coding.decode("latin-1"), MAX_BODY) if coding else None
            body = decoded.data if decoded and not decoded.error else None
            verdict = fetch.received(exchange, self._server_clock.now_ms(), body)
        self._rest(visit, self._clock.monotonic() - started, known)
        was_abroad = await self._passage.ended(visit, exchange, visit.delay_ms)
        if exchange is not None:
            if not was_abroad:
                # Whoever answers "too many requests" means the site, and not this file.
                self._back_off(visit, judge_status(exchange.status), exchange)
            await self._committer.add(Result(visit, exchange=exchange))
        if verdict is None:
            return  # a redirect: the next hop is the next turn
        del visit.robots[origin]
        now_ms = self._server_clock.now_ms()
        record = next_record(
            known.record if known else None, verdict, now_ms, self._rng.random(), self._settings.robots
        )
        await self._patience.insist(lambda: self._robots.save(origin, visit.domain, record))
        self._events.emit(RobotsSettled(origin, record.access, record.status))

    # pages

    async def _fetch_page(self, visit: Visit, entry: Entry, known: KnownRobots) -> None:
        started = self._clock.monotonic()
        try:
            exchange = await self._fetcher.fetch(entry.url, deadline=lambda: not visit.holds(self._clock.monotonic()))
        except FetchFailed as failure:
            self._budget.give_back()
            if failure.request_sent:
                self._rest(visit, self._clock.monotonic() - started, known)
            await self._failed(visit, entry, failure)
            return
        except BaseException:
            self._budget.give_back()
            visit.pending.appendleft(entry)
            self._rest(visit, self._clock.monotonic() - started, known)
            raise
        self._rest(visit, exchange.elapsed, known)
        verdict = last_try(judge_status(exchange.status), entry.tries, self._settings.tries)
        if verdict.outcome is Outcome.RETRY:
            self._budget.give_back()
        else:
            self._budget.used()
        self._back_off(visit, verdict, exchange)
        await self._settle(visit, entry, verdict, exchange)

    async def _failed(self, visit: Visit, entry: Entry, failure: FetchFailed) -> None:
        if failure.kind in NOBODYS_FAULT:
            visit.pending.appendleft(entry)
            return
        verdict = last_try(judge_failure(failure.kind), entry.tries, self._settings.tries)
        self._back_off(visit, verdict, None)
        await self._settle(visit, entry, verdict)

    def _rest(self, visit: Visit, response_s: float, known: KnownRobots | None) -> None:
        ended_at = self._clock.monotonic()
        visit.delay_ms = self._delay_ms(visit, known, response_s)
        visit.rest(ended_at + visit.delay_ms / 1000, ended_at)

    def _delay_ms(self, visit: Visit, known: KnownRobots | None, response_s: float) -> int:
        rules = known.rules if known else None
        policy = self._settings.delay
        told_s = self._control.rules.delays.get(visit.domain)
        if told_s is not None:
            share = policy.response_share if told_s else 0.0  # no delay at all is for one's own site
            policy = replace(policy, min_delay_s=told_s, response_share=share)
        return delay_ms(
            policy,
            rules.crawl_delay if rules else None,
            rules.request_rate if rules else None,
            response_s,
        )

    def _back_off(self, visit: Visit, verdict: Verdict, exchange: Exchange | None) -> None:
        """Keep the domain's backoff. A domain that must rest long gives its lease back."""
        now_ms = self._server_clock.now_ms()
        if not verdict.backs_off:
            visit.backoff = after_success(visit.backoff, self._settings.backoff, now_ms)
            return
        retry_after = exchange.header(b"retry-after") if exchange else None
        wait_s = parse_retry_after(retry_after, now_ms / 1000) if retry_after else None
        visit.backoff = after_failure(
            visit.backoff,
            self._settings.backoff,
            now_ms,
            None if wait_s is None else int(wait_s * 1000),
            self._rng.random(),
            verdict.reason,
        )
        rest_s = (visit.backoff.until_ms - now_ms) / 1000
        visit.next_at = max(visit.next_at, self._clock.monotonic() + rest_s)
        visit.closing = True
        self._events.emit(BackedOff(verdict.reason, rest_s))

    async def _settle(
        self,
        visit: Visit,
        entry: Entry,
        verdict: Verdict,
        exchange: Exchange | None = None,
    ) -> None:
        """Hand the end of `entry` to the commit, with the page and the links that it brought."""
        now_ms = self._server_clock.now_ms()
        if verdict.outcome is Outcome.RETRY:
            page = Page(
                entry.url,
                visit.domain,
                entry.depth,
                verdict.outcome,
                verdict.reason,
                now_ms / 1000,
                entry.tries,
                exchange,
            )
            ready_ms = visit.backoff.until_ms if verdict.backs_off else self._retry_at_ms(entry, now_ms)
            settled = retry(entry, verdict.reason, ready_ms, entry.priority - 1)
            await self._committer.add(Result(visit, settled, page))
            return
        page, links = await self._builder.build(entry, verdict, exchange, now_ms / 1000)
        reason = str(exchange.status) if exchange and verdict.outcome is Outcome.DONE else verdict.reason
        await self._committer.add(Result(visit, Settled(entry, verdict.outcome, reason), page, links))

    def _retry_at_ms(self, entry: Entry, now_ms: int) -> int:
        """A URL's own retry, when its domain need not back off: the same schedule, by its tries."""
        policy = self._settings.backoff
        rest_s = min(policy.max_s, policy.base_s * 2**entry.tries) * (1 + policy.jitter * self._rng.uniform(-1, 1))
        return now_ms + int(rest_s * 1000)
