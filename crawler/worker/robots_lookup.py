"""Finds the robots.txt that applies to the next URL: in the local cache, in Redis, or on the site. Each turn makes at
most one request on the way to the file. `politeness.robots_fetch` says what a response or a failure means for the origin,
and `url_verdict` what becomes of a URL whose robots.txt cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from crawler.defects import defect
from crawler.errors import FetchFailed
from crawler.events import RobotsFetchEnded
from crawler.page import Exchange
from crawler.parse.coding import decoded_start
from crawler.worker.commit import Committer
from crawler.worker.commit_group import Result
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.outcomes import FORBIDDEN, NOT_THE_URLS_FAULT, judge_status
from crawler.worker.page_builder import PageBuilder
from crawler.worker.polite_fetch import PoliteFetch
from crawler.worker.runtime import Runtime
from crawler.worker.tdmrep_lookup import TdmrepLookup
from frontier.domains import domain_of, host_of
from frontier.entries import Entry
from frontier.errors import RedisAway
from frontier.urls import origin_of
from politeness.robots_cache import OriginRobots, RobotsCache
from politeness.robots_fetch import RobotsFetch, RobotsFetchResult, RobotsRecord, next_record
from politeness.robots_syntax import MAX_BODY


class RobotsLookup:
    """Looks up and fetches robots.txt files. `builder` creates entries for the sitemaps that a file names."""

    def __init__(
        self, runtime: Runtime, cache: RobotsCache, fetch: PoliteFetch, builder: PageBuilder, committer: Committer
    ) -> None:
        self._runtime = runtime
        self._cache = cache
        self._fetch = fetch
        self._builder = builder
        self._committer = committer
        self._tdmrep = TdmrepLookup(runtime, cache, fetch, committer)

    async def prefetch(self, domains: Sequence[LeasedDomain]) -> None:
        """Read from Redis the robots.txt for the first URL of each of `domains`, in one round trip instead of one for each
        domain. With long delays, when a lease is used for a single page, this saves an eighth of the CPU time of a page."""
        asking = {origin_of(leased.pending[0].url): leased for leased in domains if leased.pending}
        wanted = {origin: leased.domain for origin, leased in asking.items() if not self._at_hand(origin)}
        if wanted:
            node = self._runtime.retry.node_of(domains[0].lease.shard)  # that of all of them
            records = await self._runtime.retry.call(lambda: self._cache.read(wanted), node)
            for origin, record in records.items():
                asking[origin].remember_robots(origin, record)

    def at_hand(self, url: str) -> OriginRobots | None:
        """Return what `robots_for` would, if that needs no waiting."""
        return None if self._runtime.policy.usage.reads_tdmrep else self._at_hand(origin_of(url))

    def _at_hand(self, origin: str) -> OriginRobots | None:
        known = self._cache.recall(origin)
        if known is None or not known.record.is_fresh(self._now_ms()) or known.record.has_unreachable:
            return None
        return known

    async def robots_for(self, leased: LeasedDomain, url: str) -> OriginRobots | None:
        """Return the robots.txt that applies to `url`. Returns None if this turn of `leased` ends without it: the turn was
        used for fetching it, or the tdmrep.json of its origin, or must wait until other requests to the domain have ended.
        Raises RedisAway if a node of a cluster that is needed is away."""
        origin = origin_of(url)
        known = await self._robots_of(leased, origin)
        return None if known is None else await self._tdmrep.complete(leased, origin, known)

    async def _robots_of(self, leased: LeasedDomain, origin: str) -> OriginRobots | None:
        now_ms = self._now_ms()
        known = cached = self._cache.recall(origin)
        if known is not None and known.record.is_fresh(now_ms):
            # An operator may have had an unreachable file asked again (`RobotsCache.forget_failures`).
            if not known.record.has_unreachable or leased.confirm_robots(origin):
                return known
        else:
            cached = None
        known = await self._load(leased, origin) or cached
        if known is not None and known.record.is_fresh(now_ms):
            await self._offer_sitemaps(leased, origin, known)
            return known
        await self._request_next_hop(leased, origin, known)
        return None

    async def _load(self, leased: LeasedDomain, origin: str) -> OriginRobots | None:
        is_read, record = leased.take_stored_robots(origin)
        if is_read:
            known = await self._cache.remember(origin, record)
        else:
            node = self._runtime.retry.node_of(leased.lease.shard)
            known = await self._runtime.retry.soon(lambda: self._cache.load(origin, leased.domain), node)
        if known is not None and known.error is not None:
            self._defect(f"{origin}/robots.txt", known.error)
        return known

    async def _request_next_hop(self, leased: LeasedDomain, origin: str, known: OriginRobots | None) -> None:
        if leased.requesting > 1:
            leased.limit_to(1)  # no other request at the same time, since the file may ask for a delay
            return
        fetch = leased.robots.setdefault(origin, RobotsFetch(origin))
        if self._fetch.throttle.is_blocked(domain_of(host_of(fetch.url))):
            # The robots.txt redirects to a domain that an operator has blocked.
            del leased.robots[origin]
            await self._save(leased, origin, known, fetch.failed("blocked"))
            return
        if await self._fetch.may_request_any_domain(leased, fetch.url):
            await self._request(leased, origin, known, fetch)

    async def _request(self, leased: LeasedDomain, origin: str, known: OriginRobots | None, fetch: RobotsFetch) -> None:
        exchange: Exchange | None = None
        result: RobotsFetchResult | None
        try:
            exchange = await self._fetch.fetch(leased, fetch.url, known)
        except FetchFailed as failure:
            if not failure.request_sent:
                self._fetch.throttle.start_delay(leased, 0.0, known)
            if failure.kind in NOT_THE_URLS_FAULT:
                await self._fetch.end_foreign_request(leased, None)
                return
            if failure.kind in FORBIDDEN and not fetch.hops:
                await self._forbidden(leased, origin, fetch, str(failure.kind))
                return
            result = fetch.failed(str(failure.kind))
        except Exception as error:
            result = self._unless_ours(leased, fetch.url, error)
        else:
            try:
                result = fetch.received(exchange, self._now_ms(), decoded_start(exchange, MAX_BODY))
                result = None if result is None else await self._cache.condense(result)
            except Exception as error:
                result = self._unless_ours(leased, fetch.url, error)
        was_foreign = await self._fetch.end_foreign_request(leased, exchange)
        if exchange is not None:
            if not was_foreign:
                # A status such as 429 applies to the whole site and not only to this file.
                self._fetch.throttle.update_backoff(leased, judge_status(exchange.status), exchange)
            await self._committer.add(Result(leased, exchange=exchange))
        if result is not None:  # None after a redirect, which the next turn follows, and after a failure that is ours
            del leased.robots[origin]
            await self._save(leased, origin, known, result)

    async def _forbidden(self, leased: LeasedDomain, origin: str, fetch: RobotsFetch, reason: str) -> None:
        """Our settings do not allow us to ask the origin at all. This is not stored, because it lasts until they change,
        which a replica notices by restarting."""
        del leased.robots[origin]
        await self._cache.keep(origin, self._next(None, fetch.failed(reason)))

    def _next(self, known: OriginRobots | None, result: RobotsFetchResult) -> RobotsRecord:
        rand, policy = self._runtime.rng.random(), self._runtime.policy.robots
        return next_record(known.record if known else None, result, self._now_ms(), rand, policy)

    async def _save(
        self, leased: LeasedDomain, origin: str, known: OriginRobots | None, result: RobotsFetchResult
    ) -> None:
        now_ms, record = self._now_ms(), self._next(known, result)
        try:
            saved = await self._cache.keep(origin, record)
        except Exception as error:  # the rules of the file cannot be built
            if self._fetch.own_failures.pauses_for(leased, error):
                return
            record = self._next(known, self._defect(f"{origin}/robots.txt", error))
            saved = await self._cache.keep(origin, record)
        node = self._runtime.retry.node_of(leased.lease.shard)
        with suppress(RedisAway):  # whoever leases the domain next may fetch the file again
            await self._runtime.retry.soon(lambda: self._cache.save(origin, leased.domain, record, now_ms), node)
        self._fetch.throttle.prolong_delay(leased, saved)
        self._runtime.events.emit(RobotsFetchEnded(origin, record.access, record.status))
        await self._offer_sitemaps(leased, origin, saved)

    async def _offer_sitemaps(self, leased: LeasedDomain, origin: str, known: OriginRobots) -> None:
        """Push the sitemaps that the file names. A replica that only loads the file from Redis does this too, because the
        one that fetched it may have crashed before the push. A second push changes nothing."""
        if known.rules is not None and known.rules.sitemaps:
            links: Sequence[Entry] = ()
            try:
                links = self._builder.sitemaps(origin, leased.domain, known.rules.sitemaps)
            except Exception as error:
                self._runtime.events.emit(defect("robots", f"{origin}/robots.txt", error))
            if links:
                await self._committer.add(Result(leased, links=links))

    def _unless_ours(self, leased: LeasedDomain, url: str, error: Exception) -> RobotsFetchResult | None:
        """What `_defect` returns, or None if this machine is at fault. `leased` then has to wait."""
        return None if self._fetch.own_failures.pauses_for(leased, error) else self._defect(url, error)

    def _defect(self, url: str, error: Exception) -> RobotsFetchResult:
        """Report the defect. A robots.txt that cannot be processed counts as unreachable."""
        self._runtime.events.emit(defect("robots", url, error))
        return RobotsFetchResult("disallow", "defect")

    def _now_ms(self) -> int:
        return self._runtime.server_clock.now_ms()
