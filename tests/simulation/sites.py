"""The sites and their log, by the true time: the HTTP client of the simulated replicas, and the referee of politeness."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from crawler.errors import FailureKind, FetchFailed
from crawler.page import Exchange
from frontier.domains import domain_of
from tests.simulation.loop import Breach, History, SimClock, SimLoop, Universe
from tests.simulation.network import EPOCH_MS
from tests.simulation.scenario import SHELL, Scenario, World

BY_BROWSER, BROWSER_AT_ONCE = "x-browser-of", 2
"""The field of requests of pages in browsers, with the domain of the page; and how many may be in flight."""

TEXT = ((b"Content-Type", b"text/plain"),)

Answer = tuple[int, tuple[tuple[bytes, bytes], ...], bytes]
"""Status, headers and body."""


@dataclass(slots=True)
class Response:
    """A response to `replica` that ends at `ends_at`."""

    replica: str
    ends_at: float
    answer: Answer
    is_of_browser: bool = False


class Sites:
    """All sites together. `delay_ms`: what must lie between two requests to a domain, as far as the counters knew."""

    def __init__(
        self, universe: Universe, world: World, history: History, delay_ms: Callable[[str], int], scenario: Scenario
    ) -> None:
        self._universe = universe
        self._world = world
        self._history = history
        self._delay_ms = delay_ms
        self._slack_s = scenario.slack_s
        self.rng = random.Random(f"sites {scenario.seed}")
        self.requests: Counter[str] = Counter()
        self._parallel = scenario.parallel
        self._has_shells = scenario.renders > 0
        self._latest: dict[str, list[Response]] = {}  # domain -> its latest responses
        self.unsure_until = 0.0  # until then, leases and delays may be unknown to the server, which has lost writes

    @property
    def urls(self) -> list[str]:
        """All pages of domains of the crawl."""
        resources = self._world.resources.values()
        return [one.url for one in resources if self._world.may_hold(one.domain)]

    def shown(self, url: str) -> bytes:
        """The DOM of the page at `url`."""
        return self._world.resources[url].answer[2]

    def receive(self, replica: str, url: str, lasting_s: float, fields: Mapping[str, str]) -> Response:
        """A request with these header `fields` (in lower case) arrives now and is answered after `lasting_s`."""
        domain, now = domain_of(url.split("/")[2]), self._universe.now
        self._history.note(replica, "request", f"{url} for {lasting_s:.3f} s")
        latest = self._latest.get(domain, [])
        if (page_domain := fields.get(BY_BROWSER)) is not None:
            return self._of_browser(replica, url, domain, lasting_s, fields, page_domain)
        under_way = [other for other in latest if other.ends_at > now]
        rest_s = self._delay_ms(domain) / 1000
        concurrency = 1 if rest_s else self._parallel + sum(other.is_of_browser for other in under_way)
        is_sure = now >= self.unsure_until
        if is_sure and (len(under_way) >= concurrency or any(other.replica != replica for other in under_way)):
            raise Breach("I2", f"{replica} asks for {url} while answering {under_way}", domain)
        ended = max((other.ends_at for other in latest), default=float("-inf"))
        if is_sure and now - ended < rest_s - self._slack_s and rest_s:
            message = f"{replica} asks for {url} {now - ended:.3f} s after {latest}, and not {rest_s:.3f} s"
            raise Breach("I2", message, domain)
        self.requests[url] += 1
        response = Response(replica, now + lasting_s, self._answer(url, domain, fields))
        self._latest[domain] = [*under_way, response]
        return response

    def _of_browser(
        self, replica: str, url: str, domain: str, lasting_s: float, fields: Mapping[str, str], page_domain: str
    ) -> Response:
        """The same for a request of a page of `page_domain` in a browser: it needs no delay, but its domain belongs to the
        page's replica, which makes two at a time. What comes after them has to wait."""
        now = self._universe.now
        response = Response(replica, now + lasting_s, self._answer(url, domain, fields), is_of_browser=True)
        self.requests[url] += 1
        if domain == page_domain:
            under_way = [other for other in self._latest.get(domain, []) if other.ends_at > now]
            others = [other for other in under_way if other.replica != replica]
            most = BROWSER_AT_ONCE + (0 if self._delay_ms(domain) else self._parallel)
            if now >= self.unsure_until and (len(under_way) >= most or others):
                raise Breach("I2", f"{replica} loads {url} while answering {under_way}", domain)
            self._latest[domain] = [*under_way, response]
        return response

    def now_s(self) -> float:
        """The true time in seconds since 1970."""
        return EPOCH_MS / 1000 + self._universe.now

    def doubt(self, lasting_s: float) -> None:
        """The server has lost writes. For `lasting_s` seconds, two replicas may believe that they hold a domain."""
        self.unsure_until = max(self.unsure_until, self._universe.now + lasting_s)

    def hang_up(self, response: Response) -> None:
        """End the response now, because the client has disconnected."""
        response.ends_at = min(response.ends_at, self._universe.now)

    def _answer(self, url: str, domain: str, fields: Mapping[str, str]) -> Answer:
        if not self._world.may_hold(domain):
            raise Breach("I1", f"{url} is requested, which is not of the crawl", domain)
        if url.endswith("/robots.txt"):
            failures, body = self._world.robots[domain]
            if self.requests[url] <= failures:
                return 503, (), b""
            return (404, (), b"") if body is None else (200, TEXT, body)
        if "/private/" in url and self._world.robots[domain][1] is not None:
            raise Breach("I3", f"{url} is requested, which robots.txt denies", domain)
        resource = self._world.resources[url]
        if self.requests[url] <= resource.fails:
            return resource.status, (), b""
        return SHELL if self._has_shells and resource.is_shell else resource.answer


class SimFetcher:
    """The HTTP client of one replica. `longest_s`: no response takes longer."""

    def __init__(self, sites: Sites, loop: SimLoop, clock: SimClock, longest_s: float) -> None:
        self._sites = sites
        self._loop = loop
        self._clock = clock
        self._longest_s = longest_s

    async def fetch(
        self,
        url: str,
        *,
        is_too_late: Callable[[], bool] | None = None,
        extra_headers: Iterable[tuple[str, str]] = (),
        network: str | None = None,
        method: str = "GET",
        body: bytes = b"",
        is_private: bool = False,
        proxy: object = None,
    ) -> Exchange:
        """As `crawler.fetch.client.Fetcher.fetch`: the lease is looked at once more when a connection has been made."""
        rng = self._sites.rng
        await self._clock.sleep(rng.uniform(0.0, 0.3))
        if is_too_late is not None and is_too_late():
            raise FetchFailed(FailureKind.LEASE_EXPIRED)
        lasting_s = rng.choice((0.05, 0.3, 1.0)) * rng.random() * self._longest_s
        fields, started_at = {name.lower(): value for name, value in extra_headers}, self._sites.now_s()
        with self._loop.universe.judging():
            response = self._sites.receive(self._loop.name, url, lasting_s, fields)
        try:
            await self._clock.sleep(lasting_s * 1.002)  # a fast clock must not see the end before the site does
        except asyncio.CancelledError:
            self._sites.hang_up(response)
            raise
        status, headers, body = response.answer
        return Exchange(url, status, "", headers, b"", b"", body, "", started_at, lasting_s, lasting_s)

    async def start(self, hosts_in_turn: Callable[[], int]) -> None: ...

    async def locate(self, url: str) -> str:
        raise NotImplementedError("no domains share an address here")

    def remember(self, host: str, age_s: float) -> None: ...

    def apply(self, max_body_bytes: int, parallel: int) -> None: ...

    async def stop(self, grace_s: float) -> None: ...
