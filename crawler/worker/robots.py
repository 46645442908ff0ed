"""The robots.txt that counts for a visit's next URL: from here, from Redis, or from the site, one hop a turn."""

from __future__ import annotations

from collections.abc import Sequence

from crawler.defects import defect
from crawler.errors import FetchFailed
from crawler.events import RobotsSettled
from crawler.fetch.client import host_of
from crawler.page import Exchange
from crawler.parse.content_coding import decode_body
from crawler.worker.commit import Committer, Result
from crawler.worker.outcomes import NOBODYS_FAULT, judge_status
from crawler.worker.page_builder import PageBuilder
from crawler.worker.polite_fetch import PoliteFetch
from crawler.worker.runtime import Runtime
from crawler.worker.visit import Visit
from frontier.entries import Entry
from frontier.urls import domain_of, origin_of
from politeness.robots_cache import KnownRobots, RobotsCache
from politeness.robots_fetch import RobotsFetch, RobotsFetchResult, next_record
from politeness.robots_text import MAX_BODY


class RobotsService:
    """Knows, or finds out, what robots.txt says. `builder` makes entries of the sitemaps that a file names."""

    def __init__(
        self, runtime: Runtime, cache: RobotsCache, fetch: PoliteFetch, builder: PageBuilder, committer: Committer
    ) -> None:
        self._runtime = runtime
        self._cache = cache
        self._fetch = fetch
        self._builder = builder
        self._committer = committer

    async def prefetch(self, visits: Sequence[Visit]) -> None:
        """Read what Redis has of the robots.txt that counts for the first URL of each of `visits`: one round trip for all,
        where each would make one. Where a long delay leaves one page to a lease, that is an eighth of the CPU of a page."""
        asking = {origin_of(visit.pending[0].url): visit for visit in visits if visit.pending}
        domains = {origin: visit.domain for origin, visit in asking.items() if not self._is_cached(origin)}
        if domains:
            records = await self._runtime.retry.call(lambda: self._cache.read(domains))
            for origin, record in records.items():
                asking[origin].remember_robots(origin, record)

    def _is_cached(self, origin: str) -> bool:
        known = self._cache.recall(origin)
        return known is not None and known.record.is_fresh(self._now_ms())

    async def robots_for(self, visit: Visit, url: str) -> KnownRobots | None:
        """What counts for `url`, or None when this turn of `visit` went to finding out."""
        origin = origin_of(url)
        now_ms = self._now_ms()
        known = self._cache.recall(origin)
        if known is not None and known.record.is_fresh(now_ms):
            return known
        known = await self._load(visit, origin)
        if known is not None and known.record.is_fresh(now_ms):
            await self._offer_sitemaps(visit, origin, known)
            return known
        await self._request_next_hop(visit, origin, known)
        return None

    async def _load(self, visit: Visit, origin: str) -> KnownRobots | None:
        is_read, record = visit.take_stored_robots(origin)
        if is_read:
            known = await self._cache.remember(origin, record)
        else:
            known = await self._runtime.retry.call(lambda: self._cache.load(origin, visit.domain))
        self._report(origin, known)
        return known

    def _report(self, origin: str, known: KnownRobots | None) -> None:
        if known is not None and known.error is not None:
            self._runtime.events.emit(defect("robots", f"{origin}/robots.txt", known.error))

    async def _request_next_hop(self, visit: Visit, origin: str, known: KnownRobots | None) -> None:
        if visit.busy > 1:
            visit.limit_to(1)  # alone, since the file may ask for a delay
            return
        fetch = visit.robots.setdefault(origin, RobotsFetch(origin))
        if self._fetch.throttle.is_blocked(domain_of(host_of(fetch.url))):
            # A hop leads to a domain that an operator has blocked.
            del visit.robots[origin]
            await self._save(visit, origin, known, fetch.failed("blocked", self._now_ms()))
            return
        if await self._fetch.may_request_abroad(visit, fetch.url):
            await self._request(visit, origin, known, fetch)

    async def _request(self, visit: Visit, origin: str, known: KnownRobots | None, fetch: RobotsFetch) -> None:
        exchange: Exchange | None = None
        result: RobotsFetchResult | None
        try:
            exchange = await self._fetch.fetch(visit, fetch.url, known)
        except FetchFailed as failure:
            if not failure.request_sent:
                self._fetch.throttle.start_delay(visit, 0.0, known)
            if failure.kind in NOBODYS_FAULT:
                await self._fetch.ended_abroad(visit, None)
                return
            result = fetch.failed(str(failure.kind), self._now_ms())
        except Exception as error:
            result = self._defect(fetch, error)
        else:
            try:
                result = fetch.received(exchange, self._now_ms(), _decoded(exchange))
            except Exception as error:
                result = self._defect(fetch, error)
        was_abroad = await self._fetch.ended_abroad(visit, exchange)
        if exchange is not None:
            if not was_abroad:
                # Whoever answers "too many requests" means the site, and not this file.
                self._fetch.throttle.back_off(visit, judge_status(exchange.status), exchange)
            await self._committer.add(Result(visit, exchange=exchange))
        if result is not None:  # else a redirect: the next hop is the next turn
            del visit.robots[origin]
            await self._save(visit, origin, known, result)

    async def _save(self, visit: Visit, origin: str, known: KnownRobots | None, result: RobotsFetchResult) -> None:
        now_ms = self._now_ms()
        rand, policy = self._runtime.rng.random(), self._runtime.policy.robots
        record = next_record(known.record if known else None, result, now_ms, rand, policy)
        saved = await self._runtime.retry.call(lambda: self._cache.save(origin, visit.domain, record))
        self._report(origin, saved)
        self._runtime.events.emit(RobotsSettled(origin, record.access, record.status))
        await self._offer_sitemaps(visit, origin, saved)

    async def _offer_sitemaps(self, visit: Visit, origin: str, known: KnownRobots) -> None:
        """Push the sitemaps that the file names. Whoever comes to know the file does, also by loading it: who fetched it
        may have died before the push, and a second push changes nothing."""
        if known.rules is not None and known.rules.sitemaps:
            links: Sequence[Entry] = ()
            try:
                links = self._builder.sitemaps(origin, visit.domain, known.rules.sitemaps)
            except Exception as error:
                self._runtime.events.emit(defect("robots", f"{origin}/robots.txt", error))
            if links:
                await self._committer.add(Result(visit, links=links))

    def _defect(self, fetch: RobotsFetch, error: Exception) -> RobotsFetchResult:
        """A file that cannot be handled counts as unreachable."""
        self._runtime.events.emit(defect("robots", fetch.url, error))
        return fetch.failed("defect", self._now_ms())

    def _now_ms(self) -> int:
        return self._runtime.server_clock.now_ms()


def _decoded(exchange: Exchange) -> bytes | None:
    """The body without its content coding, or None if it has none or cannot be decoded."""
    coding = exchange.header_list(b"content-encoding")
    if not coding:
        return None
    # So much input holds all the output that counts, and bounds the time of input that holds none.
    decoded = decode_body(exchange.body[:MAX_BODY], coding.decode("latin-1"), MAX_BODY)
    return None if decoded.error else decoded.data
