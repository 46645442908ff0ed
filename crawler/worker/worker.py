"""The workers: each takes the domain longest due off the schedule and gives it one turn.

A turn makes at most one HTTP request to the domain: a page, or one hop on the way to a robots.txt. URLs that need no
request (denied, or of an origin whose robots.txt cannot be had now) are settled on the way. Then the domain rests for
its delay, from the end of the response on, and goes back on the schedule: while it rests it holds no worker.

A domain without any delay may have several lanes (`Rests.lanes`): it goes back on the schedule as soon as a request of
it has left, as long as lanes are free, and otherwise when one of them ends.
"""

from __future__ import annotations

from collections.abc import Callable

from crawler.defects import defect
from crawler.errors import FetchFailed
from crawler.events import Events, TurnTaken, UrlPostponed
from crawler.page import Exchange, Outcome, Page
from crawler.worker.address_limit import Gatekeeper
from crawler.worker.allowance import Allowance
from crawler.worker.commit import Committer, Result
from crawler.worker.delay_queue import Schedule
from crawler.worker.leased_fetch import LeasedFetch
from crawler.worker.leases import Feeder
from crawler.worker.outcomes import DEFECT, NOBODYS_FAULT, Verdict, judge_failure, judge_status, last_try
from crawler.worker.page_builder import PageBuilder
from crawler.worker.robots import RobotsDesk
from crawler.worker.throttle import Rests
from crawler.worker.visit import Visit
from frontier.clock import Clock, ServerClock
from frontier.control import Control
from frontier.entries import Entry
from frontier.queue import Settled, postpone, retry
from politeness.robots_cache import KnownRobots

NO_SUCH_HOST_TRIES = 2
"""Look-ups of a host that the DNS says does not exist: that is an answer, and a second one is for its hiccups."""


class Turns:
    """Gives visits their turns. `tries`: requests for a URL, and for an origin's robots.txt, at most."""

    def __init__(
        self,
        schedule: Schedule[Visit],
        feeder: Feeder,
        committer: Committer,
        ways: tuple[LeasedFetch, Gatekeeper],
        robots: RobotsDesk,
        rests: Rests,
        builder: PageBuilder,
        allowance: Allowance,
        control: Control,
        events: Events,
        clocks: tuple[Clock, ServerClock],
        tries: int,
    ) -> None:
        self._schedule = schedule
        self._feeder = feeder
        self._committer = committer
        self._fetch, self._gatekeeper = ways
        self._robots = robots
        self._rests = rests
        self._builder = builder
        self._allowance = allowance
        self._control = control
        self._events = events
        self._clock, self._server_clock = clocks
        self.tries = tries
        self._surplus = 0
        self.hire: Callable[[], None] = lambda: None

    def step_aside(self) -> None:
        """A worker waits for heavy work; `hire` starts another in its place."""
        self.hire()

    def step_back(self) -> None:
        """It goes on, so that there is one worker too many: the next to end its turn leaves."""
        self._surplus += 1

    async def work(self) -> None:
        """One worker's life, until cancelled or no longer needed."""
        while True:
            visit = await self._schedule.take()
            late_s = max(0.0, self._clock.monotonic() - visit.next_at)
            self._events.emit(TurnTaken(late_s, visit.next_at - visit.ended_at))
            visit.busy += 1
            try:
                await self._turn(visit)
            finally:
                visit.busy -= 1
            self._after(visit)
            if self._surplus:
                self._surplus -= 1
                return

    def _after(self, visit: Visit) -> None:
        if visit.placed:
            return
        over = visit.closing or not visit.holds(self._clock.monotonic())
        if visit.busy >= (1 if over else visit.lanes):
            return  # until another of its requests ends
        if visit.closing:
            self._feeder.finish(visit)
        elif over:
            self._feeder.forget(visit)
        elif visit.pending:
            self._place(visit)

    def _place(self, visit: Visit) -> None:
        visit.placed = True
        if visit.wants_permit:
            visit.wants_permit = False
            self._allowance.wait(visit)
        else:
            self._schedule.put(visit, visit.next_at, visit.octets)

    async def _turn(self, visit: Visit) -> None:
        try:
            errand = await self._prepare(visit)
        finally:
            visit.placed = False
        if errand is not None:
            entry, known = errand
            visit.lanes = self._rests.lanes(visit, known)
            if visit.pending and visit.busy < visit.lanes:
                visit.next_at = max(visit.next_at, self._clock.monotonic())
                self._place(visit)
            await self._request(visit, entry, known)

    async def _prepare(self, visit: Visit) -> tuple[Entry, KnownRobots] | None:
        """The URL to request now, taken from `visit` with a permit, or None when this turn brings no request for a page.
        What needs none is settled on the way."""
        while visit.pending and not visit.closing:
            if not visit.holds(self._clock.monotonic()):
                return None
            entry = visit.pending[0]
            verdict = self._verdict_on_domain(visit)
            known = None
            if verdict is None:
                known = await self._robots.known_for(visit, entry.url)
                if known is None or self._rests.goes_on(visit, known):
                    return None  # the turn went to robots.txt, or comes too early for this origin
                verdict = self._verdict_on_robots(entry, known)
            if verdict is None:
                assert known is not None
                return (entry, known) if await self._may_leave(visit, entry, known) else None
            visit.pending.popleft()
            await self._settle_without_request(visit, entry, verdict, known)
        return None

    # URLs that need no request

    def _verdict_on_domain(self, visit: Visit) -> Verdict | None:
        if visit.domain in self._control.rules.blocked:
            return Verdict(Outcome.DENIED, "blocked")
        if self._rests.has_given_up(visit):
            return Verdict(Outcome.DEAD, f"given_up_{visit.backoff.reason}")
        return None

    def _verdict_on_robots(self, entry: Entry, known: KnownRobots) -> Verdict | None:
        record = known.record
        if known.error is not None:
            return DEFECT
        if record.access == "disallow":
            # RFC 9309 2.3.1.4: an unreachable robots.txt denies everything. The URL waits for the next attempt to
            # fetch the file, as many times as it would be tried itself.
            is_gone = record.reason == "no_such_host"
            tries = min(self.tries, NO_SUCH_HOST_TRIES) if is_gone else self.tries
            outcome = Outcome.DEAD if record.failures >= tries else Outcome.RETRY
            return Verdict(outcome, "no_such_host" if is_gone else "robots_unreachable")
        if known.rules is not None:
            try:
                decision = known.rules.decide(entry.url)
            except Exception as error:  # a file that cannot be applied counts as unreachable
                self._events.emit(defect("robots", entry.url, error))
                return DEFECT
            if not decision.allowed:
                return Verdict(Outcome.DENIED, "robots")
        if self._rests.asks_too_much(known):
            return Verdict(Outcome.DENIED, "crawl_delay")
        return None

    async def _settle_without_request(
        self, visit: Visit, entry: Entry, verdict: Verdict, known: KnownRobots | None
    ) -> None:
        if verdict.outcome is Outcome.RETRY and known is not None:
            settled = postpone(entry, verdict.reason, known.record.retry_at_ms)
            self._events.emit(UrlPostponed(verdict.reason))
            await self._committer.add(Result(visit, settled))
        else:
            await self._settle(visit, entry, verdict)

    # URLs that are requested

    async def _may_leave(self, visit: Visit, entry: Entry, known: KnownRobots) -> bool:
        """Whether the request for `entry` leaves now, with a permit, or has to wait."""
        if visit.busy > 1 and self._rests.lanes(visit, known) == 1:
            visit.lanes = 1  # until the others have ended, and their delay
            return False
        if not self._allowance.take():
            visit.wants_permit = True
            return False
        if not await self._gatekeeper.lets(visit, entry.url) or visit.closing:
            self._allowance.give_back()
            return False
        visit.pending.popleft()
        return True

    async def _request(self, visit: Visit, entry: Entry, known: KnownRobots) -> None:
        started = self._clock.monotonic()
        try:
            exchange = await self._fetch.fetch(visit, entry.url)
        except FetchFailed as failure:
            self._allowance.give_back()
            if failure.request_sent:
                self._rests.begin(visit, self._clock.monotonic() - started, known)
            await self._failed(visit, entry, failure)
        except Exception as error:
            self._allowance.give_back()
            self._rests.begin(visit, self._clock.monotonic() - started, known)
            self._events.emit(defect("fetch", entry.url, error))
            await self._settle(visit, entry, DEFECT)
        except BaseException:
            self._allowance.give_back()
            visit.pending.appendleft(entry)
            self._rests.begin(visit, self._clock.monotonic() - started, known)
            raise
        else:
            visit.octets = len(exchange.body)
            self._rests.begin(visit, exchange.elapsed, known)
            await self._fetch.pace.step()
            await self._answered(visit, entry, exchange)

    async def _answered(self, visit: Visit, entry: Entry, exchange: Exchange) -> None:
        verdict = last_try(judge_status(exchange.status), entry.tries, self.tries)
        if verdict.outcome is not Outcome.DONE:
            self._allowance.give_back()  # that of a page is used when the page is settled
        try:
            self._rests.back_off(visit, verdict, exchange)
        except Exception as error:
            self._events.emit(defect("answer", entry.url, error))
        await self._settle(visit, entry, verdict, exchange)

    async def _failed(self, visit: Visit, entry: Entry, failure: FetchFailed) -> None:
        if failure.kind in NOBODYS_FAULT:
            visit.pending.appendleft(entry)
            return
        verdict = last_try(judge_failure(failure.kind), entry.tries, self.tries)
        self._rests.back_off(visit, verdict, None)
        await self._settle(visit, entry, verdict)

    async def _settle(self, visit: Visit, entry: Entry, verdict: Verdict, exchange: Exchange | None = None) -> None:
        """Hand the end of `entry` to the commit, with the page and the links that it brought."""
        now_s = self._server_clock.now_ms() / 1000
        if verdict.outcome is Outcome.RETRY:
            page = self._bare_page(visit, entry, verdict, exchange)
            ready_ms = self._rests.retry_at_ms(visit, entry, verdict)
            settled = retry(entry, verdict.reason, ready_ms, entry.priority - 1)
            await self._committer.add(Result(visit, settled, page))
            return
        try:
            page, links = await self._builder.build(entry, verdict, exchange, now_s)
        except Exception as error:
            self._events.emit(defect("read", entry.url, error))
            if verdict.outcome is Outcome.DONE:
                self._allowance.give_back()
            verdict, links = DEFECT, ()
            page = self._bare_page(visit, entry, verdict, exchange)
        reason = str(exchange.status) if exchange and verdict.outcome is Outcome.DONE else verdict.reason
        await self._committer.add(Result(visit, Settled(entry, verdict.outcome, reason), page, links))

    def _bare_page(self, visit: Visit, entry: Entry, verdict: Verdict, exchange: Exchange | None) -> Page:
        """The page of `entry` without anything that its body says."""
        return Page(
            url=entry.url,
            domain=visit.domain,
            depth=entry.depth,
            outcome=verdict.outcome,
            reason=verdict.reason,
            settled_at=self._server_clock.now_ms() / 1000,
            tries=entry.tries,
            exchange=exchange,
            via=entry.via,
        )
