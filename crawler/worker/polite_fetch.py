"""The requests to leased domains: each waits for its slot, is sent within the lease, and starts the domain's delay."""

from __future__ import annotations

from crawler.errors import FetchFailed
from crawler.fetch.request_rules import Headers
from crawler.page import Exchange
from crawler.worker.address_limit import AddressLimiter
from crawler.worker.foreign_domains import ForeignDomainAccess
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.leased_fetch import LeasedFetch
from crawler.worker.outcomes import OURS
from crawler.worker.own_failures import OwnFailures
from crawler.worker.runtime import Runtime
from crawler.worker.throttle import Throttle
from politeness.robots_cache import OriginRobots


class PoliteFetch:
    """Requests pages and robots.txt files within the rate limits, leases and delays."""

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
        self.may_request = limiter.may_request
        self._foreign = foreign
        self.throttle = throttle
        self.own_failures = OwnFailures(runtime)

    async def may_request_any_domain(self, leased: LeasedDomain, url: str) -> bool:
        """Like `may_request`, which is that of the limiter, but `url` may belong to another domain. After the request,
        call `end_foreign_request`."""
        return await self._foreign.may_request(leased, url) and await self.may_request(leased, url)

    async def end_foreign_request(self, leased: LeasedDomain, exchange: Exchange | None) -> bool:
        """End the request that `may_request_any_domain` allowed. `exchange`: the response, None without one. If the request
        went to another domain, starts that domain's delay and returns True."""
        return await self._foreign.end_request(leased, exchange, leased.delay_ms)

    async def fetch(
        self, leased: LeasedDomain, url: str, known: OriginRobots | None, conditions: Headers = ()
    ) -> Exchange:
        """GET `url`. The domain's delay starts when the response ends, or when a request that was sent fails. `known`: the
        robots.txt that may set the delay, None if unknown; `conditions`: header fields that make the request conditional.
        Raises FetchFailed; after a failure that is ours, the domain has to wait."""
        began = self._runtime.now()
        try:
            exchange = await self._fetch.fetch(leased, url, conditions)
        except FetchFailed as failure:
            if failure.request_sent:
                self.throttle.start_delay(leased, self._runtime.now() - began, known)
            if failure.kind in OURS:
                self.own_failures.pause(leased, failure.kind, failure.detail)
            raise
        except BaseException:  # cancelled, or a defect; the request may have been sent nevertheless
            self.throttle.start_delay(leased, self._runtime.now() - began, known)
            raise
        if exchange.phases is not None:  # of a new connection
            self.own_failures.end()
        self.throttle.start_delay(leased, exchange.elapsed, known)
        await self._fetch.time_slice.wait()
        return exchange
