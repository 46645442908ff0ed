"""Fetches the tdmrep.json of an origin (`politeness.tdmrep`), if the settings ask for it: once for each robots.txt, with
which it is stored, and as a page would be: its delay passed, and allowed by robots.txt. A site without the file, or one
that does not give it out, does not implement the protocol."""

from __future__ import annotations

import msgspec

from crawler.defects import defect
from crawler.errors import FetchFailed
from crawler.fetch.client import host_of
from crawler.page import Exchange
from crawler.parse.content_coding import decode_body
from crawler.worker.commit import Committer
from crawler.worker.outcomes import NOT_THE_URLS_FAULT, judge_status
from crawler.worker.polite_fetch import PoliteFetch
from crawler.worker.results import Result
from crawler.worker.runtime import Runtime
from crawler.worker.visit import Visit
from frontier.errors import RedisAway
from frontier.urls import domain_of
from politeness.robots_cache import KnownRobots, RobotsCache
from politeness.robots_syntax import MAX_BODY
from politeness.tdmrep import PATH, TdmFetch, TdmFile

NO_RULES = TdmFile(())


class TdmrepLookup:
    """Completes what is known of an origin by its tdmrep.json."""

    def __init__(self, runtime: Runtime, cache: RobotsCache, fetch: PoliteFetch, committer: Committer) -> None:
        self._runtime = runtime
        self._cache = cache
        self._fetch = fetch
        self._committer = committer

    async def complete(self, visit: Visit, origin: str, known: KnownRobots) -> KnownRobots | None:
        """Return what is known of `origin`, with its tdmrep.json if it is wanted. Returns None if this turn of `visit` was
        used for fetching it, or if this has to wait."""
        record = known.record
        if not self._runtime.policy.usage.reads_tdmrep or record.tdm is not None or record.access == "disallow":
            return known
        if known.error is not None:
            return known
        if known.rules is not None and not known.rules.decide(origin + PATH).allowed:
            return await self._save(visit, origin, known, NO_RULES)
        if self._fetch.throttle.must_wait_longer(visit, known):
            return None
        if visit.busy > 1:
            visit.limit_to(1)
            return None
        return await self._request_next_hop(visit, origin, known)

    async def _request_next_hop(self, visit: Visit, origin: str, known: KnownRobots) -> KnownRobots | None:
        fetch = visit.tdm.setdefault(origin, TdmFetch(origin))
        if self._fetch.throttle.is_blocked(domain_of(host_of(fetch.url))):
            return await self._save(visit, origin, known, NO_RULES)
        if not await self._fetch.may_request_any_domain(visit, fetch.url):
            return None
        exchange: Exchange | None = None
        found: TdmFile | None
        try:
            exchange = await self._fetch.fetch(visit, fetch.url, known)
        except FetchFailed as failure:
            await self._fetch.end_foreign_request(visit, None)
            if not failure.request_sent:
                self._fetch.throttle.start_delay(visit, 0.0, known)
            found = None if failure.kind in NOT_THE_URLS_FAULT else NO_RULES
        except Exception as error:
            self._runtime.events.emit(defect("robots", fetch.url, error))
            await self._fetch.end_foreign_request(visit, None)
            found = NO_RULES
        else:
            found = await self._received(visit, fetch, exchange)
        if found is not None:  # None after a redirect, which the next turn follows
            await self._save(visit, origin, known, found)
        return None

    async def _received(self, visit: Visit, fetch: TdmFetch, exchange: Exchange) -> TdmFile | None:
        found: TdmFile | None
        try:
            found = fetch.found(exchange, self._runtime.server_clock.now_ms(), decoded(exchange))
        except Exception as error:
            self._runtime.events.emit(defect("robots", fetch.url, error))
            found = NO_RULES
        if not await self._fetch.end_foreign_request(visit, exchange):
            self._fetch.throttle.back_off(visit, judge_status(exchange.status), exchange)
        await self._committer.add(Result(visit, exchange=exchange))
        return found

    async def _save(self, visit: Visit, origin: str, known: KnownRobots, found: TdmFile) -> KnownRobots:
        visit.tdm.pop(origin, None)
        record = msgspec.structs.replace(known.record, tdm=found.pack() if len(found) else b"")
        now_ms = self._runtime.server_clock.now_ms()
        node = self._runtime.retry.node_of(visit.lease.shard)
        try:
            return await self._runtime.retry.soon(lambda: self._cache.save(origin, visit.domain, record, now_ms), node)
        except RedisAway:
            return await self._cache.keep(origin, record)  # whoever leases the domain next may fetch the file again


def decoded(exchange: Exchange) -> bytes | None:
    """Return the decoded body, or None if it has no content coding or cannot be decoded."""
    coding = exchange.header_list(b"content-encoding")
    if not coding:
        return None
    # MAX_BODY bytes of input suffice for the output that is used, and bound the time for input that decodes to nothing.
    decoded = decode_body(exchange.body[:MAX_BODY], coding.decode("latin-1"), MAX_BODY, max_work=MAX_BODY)
    return None if decoded.error else decoded.data
