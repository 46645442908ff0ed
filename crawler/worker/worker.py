"""The workers: each takes the leased domain that has been due the longest from the queue and gives it one turn.

A turn makes at most one HTTP request to the domain: for a page, or for a robots.txt or one of its redirects. URLs that
need no request are reported during the turn. After the response the domain returns to the queue and waits for its
delay; it occupies no worker while it waits. A domain without a delay may have several requests in flight
(`Throttle.concurrency`), and returns as soon as one was sent if further ones are allowed.

While the page of a turn waits for a handler of users, the domain also returns to the queue. The turn stays open until
the handler has ended, so that the lease does not end before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from crawler.defects import defect
from crawler.events import TurnTaken
from crawler.worker.commit import Committer
from crawler.worker.lease_manager import LeaseManager, PagePermits
from crawler.worker.leases import DelayQueue, HeldLeases, LeasedDomain
from crawler.worker.request import AddressLimiter, Throttle, return_until
from crawler.worker.robots import RobotsLookup
from crawler.worker.runtime import Runtime, TimeSlice
from crawler.worker.verdict import (
    DEAD_HTTPS_TRIES,
    ROBOTS_UNREACHABLE,
    UrlResult,
    lacks_https,
    last_try,
    verdict_by_robots,
)
from crawler.worker.visit import UrlVisits
from frontier.clock import Clock
from frontier.entries import Entry
from frontier.errors import RedisAway
from politeness.robots_cache import OriginRobots

REST_S = 0.5
"""How long a domain rests if a node of a cluster that it needs is away. It then occupies no worker."""

HANDED_ON = 8
"""Pages of a domain that may wait for handlers while its next page is requested: with a delay of a second, enough for
handlers that take eight."""


SPENT_S = 5.0
"""How long a domain rests whose next URL is a page although the crawl has reached its page limit. Requisites of the last
pages may be queued behind it."""

LOOK_AGAIN_S = 0.1
"""Seconds between two looks at how many requests only wait, and at whether a reader wants more pages."""


class WorkerPool:
    """Runs `work` repeatedly in a number of tasks, from `start` until `stop`: one for each request that may be in
    flight, plus additional workers while some wait for other work, or for servers that are slow to answer."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}  # a set that keeps its order, so that a run can be repeated
        self._surplus = 0
        self._begin: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<WorkerPool workers={len(self._tasks)}>"

    def start(
        self,
        work: Callable[[], Awaitable[None]],
        count: int,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """Start `count` workers, each of which awaits `work()` in a loop. `spawn` starts a task and reports its
        failure."""

        def begin() -> None:
            if self._surplus:
                self._surplus -= 1
                return
            worker = spawn(self._run(work))
            self._tasks[worker] = None
            worker.add_done_callback(self._tasks.pop)

        self._begin = begin
        for _ in range(count):
            begin()

    async def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await work()
            if self._surplus:
                self._surplus -= 1
                return

    async def replace_waiting(self, clock: Clock, waiting: Callable[[], int], most: int) -> None:
        """Until cancelled, run an additional worker, but at most `most`, for each request that has been `waiting` for
        long: slow servers then hold up no others."""
        extra = 0
        while True:
            await clock.sleep(LOOK_AGAIN_S)
            wanted = min(waiting(), most)
            if self._begin is not None:
                for _ in range(wanted - extra):
                    self._begin()
            self._surplus += max(0, extra - wanted)
            extra = wanted

    @asynccontextmanager
    async def extra_worker(self) -> AsyncIterator[None]:
        """Run an additional worker while the calling worker waits in this block. After the block there is one worker
        too many, so the next one that finishes its work ends."""
        if self._begin is not None:
            self._begin()
        try:
            yield
        finally:
            self._surplus += self._begin is not None

    async def stop(self) -> None:
        """Cancel the workers, and wait until they have ended."""
        self._begin = None
        workers = list(self._tasks)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


@dataclass(eq=False, repr=False)
class Turns:
    """Decides what follows a turn of a leased domain: its next turn, or the end of its lease."""

    runtime: Runtime
    leases: LeaseManager
    held: HeldLeases
    queue: DelayQueue
    permits: PagePermits
    pool: WorkerPool

    def next(self, leased: LeasedDomain) -> None:
        """Decide what follows after a turn of `leased`, or while its page waits for a handler."""
        if leased.waiters:
            leased.turn_ended()
        if leased.is_queued:
            return
        over = leased.closing or not leased.holds(self.runtime.now())
        if leased.busy >= 1 if over else leased.occupied >= leased.concurrency:
            return  # continues when another of its requests ends
        if leased.closing:
            self.leases.finish(leased)
        elif over:
            self.held.forget(leased)
        elif leased.pending and not leased.waits_for_extras:
            self.enqueue(leased)

    def enqueue(self, leased: LeasedDomain) -> None:
        """Let `leased` wait for its next turn, or for a permit."""
        leased.is_queued = True
        if leased.wants_permit:
            leased.pages_next = False  # foreign extras do not wait for permits, which pages that wait for them may hold
            self.permits.wait(leased)
        else:
            self.queue.put(leased)

    @asynccontextmanager
    async def while_waiting(self, leased: LeasedDomain, is_crowded: bool) -> AsyncIterator[None]:
        """A block in which the turn of `leased` only waits for a handler. Another worker has the slot meanwhile. With
        `is_crowded`, only one page of the domain waits while the next one is requested."""
        is_handed_on = leased.handling < (1 if is_crowded else HANDED_ON)
        leased.handling += is_handed_on
        leased.held_back += not is_handed_on
        try:
            self.queue.end_trial(leased)
            self.next(leased)
            async with self.pool.extra_worker():
                yield
        finally:
            leased.handling -= is_handed_on
            leased.held_back -= not is_handed_on

    @asynccontextmanager
    async def while_rendering(self, leased: LeasedDomain) -> AsyncIterator[None]:
        """A block in which the page of a turn of `leased` is in a browser. Another worker has the slot meanwhile, but the
        next page of the domain has to wait."""
        leased.held_back += 1
        self.queue.end_trial(leased)
        try:
            async with self.pool.extra_worker():
                yield
        finally:
            leased.held_back -= 1


@dataclass(eq=False, repr=False)
class Worker:
    """Gives leased domains their turns. `run` may run in many tasks at once."""

    runtime: Runtime
    queue: DelayQueue
    held: HeldLeases
    turns: Turns
    committer: Committer
    robots: RobotsLookup
    permits: PagePermits
    throttle: Throttle
    limiter: AddressLimiter
    visits: UrlVisits

    async def run(self) -> None:
        """Wait until a leased domain is due, and give it one turn."""
        leased = await self.queue.take()
        is_trial = not leased.is_quick
        try:
            await self._give_turn(leased)
        finally:
            if is_trial:
                self.queue.end_trial(leased)

    async def _give_turn(self, leased: LeasedDomain) -> None:
        now = self.runtime.now()
        if leased.waits_for_extras or (leased.extras and leased.requesting >= leased.concurrency):
            leased.is_queued = False
            leased.turn_ended()
            return
        leased.pages_next = False
        if self.committer.holds_up(leased):
            leased.wait_at_least_until(now + (LOOK_AGAIN_S if self.committer.is_reader_behind() else REST_S))
            if leased.holds(now):
                self.turns.enqueue(leased)
            else:
                leased.is_queued = False
                self.held.forget(leased)
            return
        self.runtime.events.emit(TurnTaken(max(0.0, now - leased.next_at), leased.next_at - leased.ended_at))
        leased.busy += 1
        try:
            await self._take_turn(leased)
        except RedisAway:
            leased.wait_at_least_until(self.runtime.now() + REST_S)
        finally:
            leased.busy -= 1
        self.turns.next(leased)

    async def _take_turn(self, leased: LeasedDomain) -> None:
        try:
            request = await self._prepare(leased)
        finally:
            leased.is_queued = False
        if request is not None:
            if leased.pending and leased.occupied < leased.concurrency:
                leased.wait_at_least_until(self.runtime.now())
                self.turns.enqueue(leased)
            await self.visits.request(leased, *request)

    async def _prepare(self, leased: LeasedDomain) -> tuple[Entry, OriginRobots] | None:
        """Return the URL to request now, after taking it from `leased` with a permit; None if this turn requests no
        page. URLs that need no request are settled here."""
        time_slice: TimeSlice | None = None
        while leased.pending and not leased.closing and leased.holds(self.runtime.now()):
            entry = leased.pending[0]
            result, known = self.throttle.verdict(leased) or self.visits.builder.out_of_scope(entry), None
            if result is None:
                known = self.robots.at_hand(entry.url) or await self.robots.robots_for(leased, entry.url)
                if known is None or self.throttle.put_off_if_early(leased, known):
                    return None  # robots.txt was requested, or it is too early for this origin
                result = self._verdict_by_robots(entry, leased.written(entry), known)
                result = result or await self.visits.verdict(leased, entry)
            if result is None:
                assert known is not None
                leased.concurrency = self.throttle.concurrency(leased, known)
                if leased.requesting > 1 == leased.concurrency:
                    return None  # until the other requests and their delay have ended
                return (entry, known) if await self._may_request(leased, entry) else None
            leased.pending.popleft()
            time_slice = time_slice or TimeSlice(self.runtime.clock)
            await self.visits.settle_without_request(leased, entry, result, known)
            await time_slice.end_if_over()
        return None

    def _verdict_by_robots(self, entry: Entry, url: str, known: OriginRobots) -> UrlResult | None:
        tries = self.runtime.policy.tries
        if lacks_https(url, known, self.robots.cache.recall):
            tries = min(tries, DEAD_HTTPS_TRIES)
        try:
            return verdict_by_robots(url, known, tries, self.runtime.policy.usage.purpose)
        except Exception as error:  # the file, which counts as unreachable for this URL, cannot be applied to it
            self.runtime.events.emit(defect("robots", entry.url, error))
            return last_try(ROBOTS_UNREACHABLE, entry.tries, tries)

    async def _may_request(self, leased: LeasedDomain, entry: Entry) -> bool:
        """Return whether `entry`, the next URL of `leased`, may be requested now. If so, takes a permit and removes the
        URL from the pending ones. If not, the domain has to wait."""
        if not self.permits.take(entry):
            if self.permits.are_spent and self.visits.builder.settings.extract.requisites:
                return_until(leased, self.runtime, self.runtime.now() + SPENT_S, "permits")
            else:
                leased.wants_permit = True
            return False
        if not await self.limiter.may_request(leased, entry.url) or leased.closing:
            self.permits.give_back(entry)
            return False
        leased.pending.popleft()
        return True
