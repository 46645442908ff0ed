"""The workers: each takes the leased domain that has been due the longest from the queue and gives it one turn.

A turn makes at most one HTTP request to the domain: for a page, or for a robots.txt or one of its redirects. URLs that
need no request (denied, or of an origin whose robots.txt is unreachable) are reported during the turn. After the response
the domain returns to the queue and waits for its delay; it occupies no worker while it waits.

A domain without a delay may have several requests in flight (`Throttle.concurrency`). It returns to the queue as soon
as a request was sent if further ones are allowed, and otherwise when a request ends. `crawler.worker.next_turn` decides
what follows a turn.
"""

from __future__ import annotations

import asyncio

from crawler.defects import defect
from crawler.events import TurnTaken
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.next_turn import Turns
from crawler.worker.outcomes import UrlResult, last_try
from crawler.worker.robots_lookup import RobotsLookup
from crawler.worker.runtime import Runtime
from crawler.worker.throttle import Throttle
from crawler.worker.url_handler import UrlHandler
from crawler.worker.url_verdict import ROBOTS_UNREACHABLE, verdict_by_domain, verdict_by_robots
from frontier.entries import Entry
from frontier.errors import RedisAway
from politeness.robots_cache import OriginRobots

REST_S = 0.5
"""How long a domain rests if a node of a cluster that it needs is away. It then occupies no worker."""

SLICE_S = 0.005
"""For how long URLs are settled without a request before yielding to the event loop. Each may take milliseconds."""


class Worker:
    """Gives leased domains their turns. `run` may run in many tasks at once."""

    def __init__(
        self, runtime: Runtime, turns: Turns, robots: RobotsLookup, throttle: Throttle, urls: UrlHandler
    ) -> None:
        self._runtime = runtime
        self._turns = turns
        self._leases = turns.leases
        self._queue = turns.leases.queue
        self._robots = robots
        self._throttle = throttle
        self._urls = urls

    async def run(self) -> None:
        """Wait until a leased domain is due, and give it one turn."""
        leased = await self._queue.take()
        if self._leases.is_held_up(leased):
            self._rest(leased)
            return
        late_s = max(0.0, self._runtime.now() - leased.next_at)
        self._runtime.events.emit(TurnTaken(late_s, leased.next_at - leased.ended_at))
        leased.taken()
        try:
            await self._take_turn(leased)
        except RedisAway:
            leased.wait_at_least_until(self._runtime.now() + REST_S)
        finally:
            leased.left()
        self._turns.go_on(leased)

    def _rest(self, leased: LeasedDomain) -> None:
        """Put `leased` back into the queue, unless its lease has ended meanwhile."""
        if leased.holds(self._runtime.now()):
            leased.wait_at_least_until(self._runtime.now() + REST_S)
            self._turns.enqueue(leased)
        else:
            leased.queued(False)
            self._leases.held.forget(leased)

    async def _take_turn(self, leased: LeasedDomain) -> None:
        try:
            request = await self._prepare(leased)
        finally:
            leased.queued(False)
        if request is not None:
            if leased.pending and leased.requesting < leased.concurrency:
                leased.wait_at_least_until(self._runtime.now())
                self._turns.enqueue(leased)
            await self._urls.request(leased, *request)

    async def _prepare(self, leased: LeasedDomain) -> tuple[Entry, OriginRobots] | None:
        """Return the URL to request now, after taking it from `leased` with a permit; None if this turn requests no page.
        URLs that need no request are settled here."""
        since = self._runtime.now()
        while leased.pending and not leased.closing:
            if not leased.holds(self._runtime.now()):
                return None
            entry = leased.pending[0]
            result = self._verdict_by_domain(leased)
            known = None
            if result is None:
                known = self._robots.at_hand(entry.url) or await self._robots.robots_for(leased, entry.url)
                if known is None or self._throttle.put_off_if_early(leased, known):
                    return None  # robots.txt was requested, or it is too early for this origin
                result = self._verdict_by_robots(entry, leased.written(entry), known)
            if result is None:
                assert known is not None
                leased.limit_to(self._throttle.concurrency(leased, known))
                if leased.requesting > 1 == leased.concurrency:
                    return None  # until the other requests and their delay have ended
                return (entry, known) if await self._urls.may_request(leased, entry) else None
            leased.pending.popleft()
            await self._urls.settle_without_request(leased, entry, result, known)
            if self._runtime.now() - since > SLICE_S:
                await asyncio.sleep(0)
                since = self._runtime.now()
        return None

    def _verdict_by_domain(self, leased: LeasedDomain) -> UrlResult | None:
        given_up_reason = leased.backoff.reason if self._throttle.has_given_up(leased) else None
        return verdict_by_domain(self._throttle.is_blocked(leased.domain), given_up_reason)

    def _verdict_by_robots(self, entry: Entry, url: str, known: OriginRobots) -> UrlResult | None:
        exceeds_cap, tries = self._throttle.exceeds_cap(known), self._runtime.policy.tries
        try:
            return verdict_by_robots(url, known, tries, exceeds_cap, self._runtime.policy.usage.purpose)
        except Exception as error:  # the file, which counts as unreachable for this URL, cannot be applied to it
            self._runtime.events.emit(defect("robots", entry.url, error))
            return last_try(ROBOTS_UNREACHABLE, entry.tries, tries)
