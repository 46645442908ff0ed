"""The robots.txt that counts for a visit's next URL: from here, from Redis, or from the site, one hop a turn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from crawler.defects import defect
from crawler.errors import FetchFailed
from crawler.events import Events, RobotsSettled
from crawler.fetch.client import host_of
from crawler.page import Exchange
from crawler.parse.content_coding import decode_body
from crawler.redis_retry import Patience
from crawler.worker.address_limit import Gatekeeper
from crawler.worker.commit import Committer, Result
from crawler.worker.foreign_domains import Passage
from crawler.worker.leased_fetch import LeasedFetch
from crawler.worker.outcomes import NOBODYS_FAULT, judge_status
from crawler.worker.throttle import Rests
from crawler.worker.visit import Visit
from frontier.clock import Clock, ServerClock
from frontier.entries import Entry
from frontier.urls import domain_of, origin_of
from politeness.robots_cache import KnownRobots, RobotsCache
from politeness.robots_fetch import RobotsFetch, RobotsPolicy, Verdict, next_record
from politeness.robots_text import MAX_BODY


class RobotsDesk:
    """Knows, or finds out, what robots.txt says. `sitemaps` makes entries of those that the file of an origin names."""

    def __init__(
        self,
        cache: RobotsCache,
        policy: RobotsPolicy,
        ways: tuple[LeasedFetch, Gatekeeper, Passage],
        rests: Rests,
        committer: Committer,
        patience: Patience,
        events: Events,
        clocks: tuple[Clock, ServerClock],
        rng: random.Random,
    ) -> None:
        self._cache = cache
        self.policy = policy
        self._fetch, self._gatekeeper, self._passage = ways
        self._rests = rests
        self._committer = committer
        self._patience = patience
        self._events = events
        self._clock, self._server_clock = clocks
        self._rng = rng
        self.sitemaps: Callable[[str, str, Iterable[str]], Sequence[Entry]] = lambda origin, domain, named: ()

    async def foresee(self, visits: Sequence[Visit]) -> None:
        """Read what Redis has of the robots.txt that counts for the first URL of each of `visits`: one round trip for all,
        where each would make one. Where a long delay leaves one page to a lease, that is an eighth of the CPU of a page."""
        asking = {origin_of(visit.pending[0].url): visit for visit in visits if visit.pending}
        domains = {origin: visit.domain for origin, visit in asking.items() if not self._is_at_hand(origin)}
        if domains:
            records = await self._patience.insist(lambda: self._cache.read(domains))
            for origin, record in records.items():
                asking[origin].stored_robots = origin, record

    def _is_at_hand(self, origin: str) -> bool:
        known = self._cache.recall(origin)
        return known is not None and known.record.is_fresh(self._server_clock.now_ms())

    async def known_for(self, visit: Visit, url: str) -> KnownRobots | None:
        """What counts for `url`, or None when this turn of `visit` went to finding out."""
        origin = origin_of(url)
        now_ms = self._server_clock.now_ms()
        known = self._cache.recall(origin)
        if known is not None and known.record.is_fresh(now_ms):
            return known
        known = await self._load(visit, origin)
        if known is not None and known.record.is_fresh(now_ms):
            await self._offer_sitemaps(visit, origin, known)
            return known
        await self._ask(visit, origin, known)
        return None

    async def _load(self, visit: Visit, origin: str) -> KnownRobots | None:
        stored, visit.stored_robots = visit.stored_robots, None
        if stored is not None and stored[0] == origin:
            known = await self._cache.know(*stored)
        else:
            known = await self._patience.insist(lambda: self._cache.load(origin, visit.domain))
        self._report(origin, known)
        return known

    def _report(self, origin: str, known: KnownRobots | None) -> None:
        if known is not None and known.error is not None:
            self._events.emit(defect("robots", f"{origin}/robots.txt", known.error))

    async def _ask(self, visit: Visit, origin: str, known: KnownRobots | None) -> None:
        if visit.busy > 1:
            visit.lanes = 1  # alone, since the file may ask for a delay
            return
        fetch = visit.robots.setdefault(origin, RobotsFetch(origin))
        if self._rests.is_blocked(
            domain_of(host_of(fetch.url))
        ):  # a hop that leads to where an operator lets nobody go
            del visit.robots[origin]
            await self._keep(visit, origin, known, fetch.failed("blocked", self._server_clock.now_ms()))
            return
        if not await self._passage.lets(visit, fetch.url) or not await self._gatekeeper.lets(visit, fetch.url):
            return
        exchange: Exchange | None = None
        started = self._clock.monotonic()
        try:
            exchange = await self._fetch.fetch(visit, fetch.url)
        except FetchFailed as failure:
            if failure.kind in NOBODYS_FAULT:
                self._rests.begin(visit, 0.0, known)
                await self._passage.ended(visit, None, visit.delay_ms)
                return
            verdict: Verdict | None = fetch.failed(str(failure.kind), self._server_clock.now_ms())
        except Exception as error:
            verdict = self._defect(fetch, error)
        except BaseException:
            self._rests.begin(
                visit, self._clock.monotonic() - started, known
            )  # cut off; it has been asked all the same
            raise
        else:
            try:
                verdict = fetch.received(exchange, self._server_clock.now_ms(), _decoded(exchange))
            except Exception as error:
                verdict = self._defect(fetch, error)
        self._rests.begin(visit, self._clock.monotonic() - started, known)
        await self._fetch.pace.step()
        was_abroad = await self._passage.ended(visit, exchange, visit.delay_ms)
        if exchange is not None:
            if not was_abroad:
                # Whoever answers "too many requests" means the site, and not this file.
                self._rests.back_off(visit, judge_status(exchange.status), exchange)
            await self._committer.add(Result(visit, exchange=exchange))
        if verdict is not None:  # else a redirect: the next hop is the next turn
            del visit.robots[origin]
            await self._keep(visit, origin, known, verdict)

    async def _keep(self, visit: Visit, origin: str, known: KnownRobots | None, verdict: Verdict) -> None:
        now_ms = self._server_clock.now_ms()
        record = next_record(known.record if known else None, verdict, now_ms, self._rng.random(), self.policy)
        saved = await self._patience.insist(lambda: self._cache.save(origin, visit.domain, record))
        self._report(origin, saved)
        self._events.emit(RobotsSettled(origin, record.access, record.status))
        await self._offer_sitemaps(visit, origin, saved)

    async def _offer_sitemaps(self, visit: Visit, origin: str, known: KnownRobots) -> None:
        """Push the sitemaps that the file names. Whoever comes to know the file does, also by loading it: who fetched it
        may have died before the push, and a second push changes nothing."""
        if known.rules is not None and known.rules.sitemaps:
            links: Sequence[Entry] = ()
            try:
                links = self.sitemaps(origin, visit.domain, known.rules.sitemaps)
            except Exception as error:
                self._events.emit(defect("robots", f"{origin}/robots.txt", error))
            if links:
                await self._committer.add(Result(visit, links=links))

    def _defect(self, fetch: RobotsFetch, error: Exception) -> Verdict:
        """A file that cannot be handled counts as unreachable."""
        self._events.emit(defect("robots", fetch.url, error))
        return fetch.failed("defect", self._server_clock.now_ms())

    def named_for(self, url: str) -> tuple[str, ...]:
        """The sitemaps, as written, in the file that counts for `url`, if it is known here."""
        known = self._cache.recall(origin_of(url))
        return known.rules.sitemaps if known is not None and known.rules is not None else ()


def _decoded(exchange: Exchange) -> bytes | None:
    """The body without its content coding, or None if it has none or cannot be decoded."""
    coding = exchange.header(b"content-encoding")
    if not coding:
        return None
    # So much input holds all the output that counts, and bounds the time of input that holds none.
    decoded = decode_body(exchange.body[:MAX_BODY], coding.decode("latin-1"), MAX_BODY)
    return None if decoded.error else decoded.data
