"""Fetches the tdmrep.json of an origin (`politeness.tdmrep`), if the settings ask for it: after each robots.txt, with whose
record it is stored. It is fetched as a page would be: after the delay, and only if robots.txt allows it, which also holds
for each redirect. A site whose file may not be fetched does not implement the protocol; one that is unreachable may do so,
and `url_verdict` says what this means for its URLs."""

from __future__ import annotations

from contextlib import suppress

from crawler.defects import defect
from crawler.errors import FetchFailed
from crawler.page import Exchange
from crawler.parse.coding import decoded_start
from crawler.worker.commit import Committer
from crawler.worker.commit_group import Result
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.outcomes import NOT_THE_URLS_FAULT, judge_status
from crawler.worker.polite_fetch import PoliteFetch
from crawler.worker.runtime import Runtime
from frontier.errors import RedisAway
from politeness.robots_cache import OriginRobots, RobotsCache
from politeness.robots_fetch import RobotsFetchResult
from politeness.robots_syntax import MAX_BODY
from politeness.tdmrep import PATH, TdmFetch, with_tdm


class TdmrepLookup:
    """Completes what is known of an origin by its tdmrep.json."""

    def __init__(self, runtime: Runtime, cache: RobotsCache, fetch: PoliteFetch, committer: Committer) -> None:
        self._runtime = runtime
        self._cache = cache
        self._fetch = fetch
        self._committer = committer

    async def complete(self, leased: LeasedDomain, origin: str, known: OriginRobots) -> OriginRobots | None:
        """Return what is known of `origin`, with its tdmrep.json if it is wanted. Returns None if this turn of `leased` was
        used for fetching it, or if this has to wait."""
        record = known.record
        if not self._runtime.policy.usage.reads_tdmrep or record.access == "disallow":
            return known
        if self._now_ms() < record.tdm_retry_at_ms:
            return known
        fetch = leased.tdm.setdefault(origin, TdmFetch(origin))
        try:
            is_allowed = known.rules is None or known.rules.decide(fetch.url).allowed  # the file, or its redirect
        except Exception as error:
            return await self._save(leased, origin, known, self._defect(fetch.url, error))
        if not is_allowed:
            return await self._save(leased, origin, known, RobotsFetchResult("allow", "robots"))
        if self._fetch.throttle.put_off_if_early(leased, known):
            return None
        if leased.requesting > 1:
            leased.limit_to(1)
            return None
        if await self._fetch.may_request(leased, fetch.url):
            await self._request(leased, origin, known, fetch)
        return None

    async def _request(self, leased: LeasedDomain, origin: str, known: OriginRobots, fetch: TdmFetch) -> None:
        exchange: Exchange | None = None
        result: RobotsFetchResult | None
        try:
            exchange = await self._fetch.fetch(leased, fetch.url, known)
        except FetchFailed as failure:
            if not failure.request_sent:
                self._fetch.throttle.start_delay(leased, 0.0, known)
            if failure.kind in NOT_THE_URLS_FAULT:
                return
            result = fetch.failed(str(failure.kind))
        except Exception as error:
            result = self._unless_ours(leased, fetch.url, error)
        else:
            try:
                result = fetch.received(exchange, self._now_ms(), decoded_start(exchange, MAX_BODY))
            except Exception as error:
                result = self._unless_ours(leased, fetch.url, error)
            self._fetch.throttle.update_backoff(leased, judge_status(exchange.status), exchange)
            await self._committer.add(Result(leased, exchange=exchange))
        if result is not None:  # None after a redirect, which the next turn follows, and after a failure that is ours
            await self._save(leased, origin, known, result)

    def _unless_ours(self, leased: LeasedDomain, url: str, error: Exception) -> RobotsFetchResult | None:
        """What `_defect` returns, or None if this machine is at fault. `leased` then has to wait."""
        return None if self._fetch.own_failures.pauses_for(leased, error) else self._defect(url, error)

    def _defect(self, url: str, error: Exception) -> RobotsFetchResult:
        """Report the defect. A tdmrep.json that cannot be processed counts as unreachable."""
        self._runtime.events.emit(defect("usage", url, error))
        return RobotsFetchResult("disallow", "defect")

    async def _save(
        self, leased: LeasedDomain, origin: str, known: OriginRobots, result: RobotsFetchResult
    ) -> OriginRobots:
        leased.tdm.pop(origin, None)
        now_ms, rand, policy = self._now_ms(), self._runtime.rng.random(), self._runtime.policy.robots
        try:
            record = with_tdm(known.record, result, now_ms, rand, policy)
            saved = await self._cache.keep(origin, record)
        except Exception as error:
            record = with_tdm(known.record, self._defect(origin + PATH, error), now_ms, rand, policy)
            saved = await self._cache.keep(origin, record)
        node = self._runtime.retry.node_of(leased.lease.shard)
        with suppress(RedisAway):  # whoever leases the domain next may fetch the file again
            await self._runtime.retry.soon(lambda: self._cache.save(origin, leased.domain, record, now_ms), node)
        return saved

    def _now_ms(self) -> int:
        return self._runtime.server_clock.now_ms()
