"""The sites and their log: the fetcher of the simulated replicas, and the referee of politeness, by the true time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable

from crawler.errors import FailureKind, FetchFailed
from crawler.page import Exchange
from frontier.domains import domain_of
from tests.simulation.history import Breach, History
from tests.simulation.loop import SimClock, SimLoop, Universe
from tests.simulation.scenario import Scenario
from tests.simulation.world import World

SLACK_S = 0.003
"""Redis counts whole milliseconds, so a rest may come out one shorter at either end."""

STALE_S = 100.0
"""For so long a replica that is paused or cut off may go by its last reading of the server's clock, and drift."""


class Sites:
    """All sites together. `delay_ms`: what must lie between two requests to a domain, as far as the books knew."""

    def __init__(
        self, universe: Universe, world: World, history: History, delay_ms: Callable[[str], int], scenario: Scenario
    ) -> None:
        self._universe = universe
        self._world = world
        self._history = history
        self._delay_ms = delay_ms
        self._slack_s = SLACK_S + scenario.drift * STALE_S
        self.rng = random.Random(f"sites {scenario.seed}")
        self.requests: Counter[str] = Counter()
        self._ended: dict[str, tuple[float, str]] = {}  # domain -> end of the last response, who asked

    def receive(self, replica: str, url: str, lasting_s: float) -> tuple[int, bytes]:
        """A request arrives now and is answered after `lasting_s`. Status and body of the response."""
        domain, now = domain_of(url.split("/")[2]), self._universe.now
        self._history.note(replica, "request", f"{url} for {lasting_s:.3f} s")
        ended, who = self._ended.get(domain, (float("-inf"), ""))
        if now < ended:
            raise Breach("I2", f"{replica} asks for {url} while {who} is being answered", domain)
        rest_s = self._delay_ms(domain) / 1000
        if now - ended < rest_s - self._slack_s:
            message = f"{replica} asks for {url} {now - ended:.3f} s after {who}, and not {rest_s:.3f} s"
            raise Breach("I2", message, domain)
        self._ended[domain] = (now + lasting_s, replica)
        self.requests[url] += 1
        return self._answer(url, domain)

    def hang_up(self, url: str) -> None:
        """The request for `url` is broken off now."""
        domain = domain_of(url.split("/")[2])
        ended, who = self._ended[domain]
        self._ended[domain] = (min(ended, self._universe.now), who)

    def _answer(self, url: str, domain: str) -> tuple[int, bytes]:
        if url.endswith("/robots.txt"):
            failures, body = self._world.robots[domain]
            if self.requests[url] <= failures:
                return 503, b""
            return (404, b"") if body is None else (200, body)
        if "/private/" in url and self._world.robots[domain][1] is not None:
            raise Breach("I3", f"{url} is requested, which robots.txt denies", domain)
        resource = self._world.resources[url]
        return (resource.status, b"") if self.requests[url] <= resource.fails else (200, b"")


class SimFetcher:
    """The fetcher of one replica. `longest_s`: no response takes longer."""

    def __init__(self, sites: Sites, loop: SimLoop, clock: SimClock, longest_s: float) -> None:
        self._sites = sites
        self._loop = loop
        self._clock = clock
        self._longest_s = longest_s

    async def fetch(
        self, url: str, *, deadline: Callable[[], bool] | None = None, extra_headers: Iterable[tuple[str, str]] = ()
    ) -> Exchange:
        """As `crawler.fetch.Fetcher.fetch`: the lease is looked at once more when a connection has been made. These sites
        do not look at headers."""
        rng = self._sites.rng
        await self._clock.sleep(rng.uniform(0.0, 0.3))
        if deadline is not None and deadline():
            raise FetchFailed(FailureKind.LEASE_EXPIRED)
        lasting_s = rng.choice((0.05, 0.3, 1.0)) * rng.random() * self._longest_s
        status, body = self._sites.receive(self._loop.name, url, lasting_s)
        try:
            await self._clock.sleep(lasting_s * 1.002)  # a fast clock must not see the end before the site does
        except asyncio.CancelledError:
            self._sites.hang_up(url)
            raise
        return Exchange(url, status, "", (), b"", b"", body, "", 0.0, lasting_s, lasting_s)
