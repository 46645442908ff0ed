"""Requests that a visit makes: each waits for its slot, leaves within the lease, and starts the domain's delay."""

from __future__ import annotations

from crawler.errors import FetchFailed
from crawler.page import Exchange
from crawler.worker.address_limit import AddressLimiter
from crawler.worker.foreign_domains import ForeignDomainAccess
from crawler.worker.leased_fetch import LeasedFetch
from crawler.worker.runtime import Runtime
from crawler.worker.throttle import Throttle
from crawler.worker.visit import Visit
from politeness.robots_cache import KnownRobots


class PoliteFetch:
    """What pages and robots.txt files are requested through."""

    def __init__(
        self,
        runtime: Runtime,
        fetch: LeasedFetch,
        limiter: AddressLimiter,
        foreign: ForeignDomainAccess,
        throttle: Throttle,
    ) -> None:
        self._runtime = runtime
        self._fetch = fetch
        self._limiter = limiter
        self._foreign = foreign
        self.throttle = throttle

    async def may_request(self, visit: Visit, url: str) -> bool:
        """Whether `visit` may request `url`, of its own domain, now. If not, its next turn is set to when it may, or it is
        closing."""
        return await self._limiter.may_request(visit, url)

    async def may_request_abroad(self, visit: Visit, url: str) -> bool:
        """The same where `url` may be of another domain. After the request `ended_abroad` must be called."""
        return await self._foreign.may_request(visit, url) and await self._limiter.may_request(visit, url)

    async def ended_abroad(self, visit: Visit, exchange: Exchange | None) -> bool:
        """The request that `may_request_abroad` allowed has ended, without an answer if `exchange` is None. Returns whether
        it went to another domain, whose delay has begun now."""
        return await self._foreign.end_request(visit, exchange, visit.delay_ms)

    async def fetch(self, visit: Visit, url: str, known: KnownRobots | None) -> Exchange:
        """GET `url`. The delay of the domain starts when the response ends, or when a request that was sent fails; `known`
        is the robots.txt that it depends on. Raises FetchFailed."""
        began = self._runtime.now()
        try:
            exchange = await self._fetch.fetch(visit, url)
        except FetchFailed as failure:
            if failure.request_sent:
                self.throttle.start_delay(visit, self._runtime.now() - began, known)
            raise
        except BaseException:  # cut off, or a defect; the site may have been asked all the same
            self.throttle.start_delay(visit, self._runtime.now() - began, known)
            raise
        self.throttle.start_delay(visit, exchange.elapsed, known)
        await self._fetch.time_slice.wait()
        return exchange
