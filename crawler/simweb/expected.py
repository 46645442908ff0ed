"""Computes what a perfect crawl of a world fetches, from the world's own data about its links.

It parses neither HTML nor robots.txt, and shares no code with the crawler under test.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from crawler.simweb.hazards import Hazard
from crawler.simweb.links import absolute, split
from crawler.simweb.resource import HEADLESS, Resource
from crawler.simweb.site import domain_of
from crawler.simweb.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The settings of the crawl under test."""

    tries: int = 4  # requests for a URL at most
    max_hops: int = 10  # redirects in a row at most: the target of one more is not fetched
    max_depth: int | None = None  # links from a seed at most
    obey_nofollow: bool = True
    scope: frozenset[str] | None = None  # registrable domains; None for any
    sitemaps: bool = True  # follow those that robots.txt name; what they list has depth 1
    retry_cut: bool = False  # whether a truncated body is requested again


@dataclass(frozen=True, slots=True)
class Visit:
    """The expectation for one URL: between `least` and `most` requests, and `status` for the last one (0: no response)."""

    status: int
    least: int
    most: int
    depth: int


@dataclass(frozen=True, slots=True)
class Expected:
    """The URLs that are fetched, and those that are found but denied by robots.txt.

    `auxiliary`: URLs that may be fetched any number of times, which are the robots.txt of each origin and their redirect
    targets. `crawl_delays`: Crawl-delay in seconds by domain. `traps`: domains where any number of other pages may be
    fetched, because only the crawler's own limits apply.
    """

    visits: dict[str, Visit] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    auxiliary: set[str] = field(default_factory=set)
    crawl_delays: dict[str, float] = field(default_factory=dict)
    traps: set[str] = field(default_factory=set)

    @property
    def urls(self) -> frozenset[str]:
        """All URLs that must be fetched."""
        return frozenset(self.visits)


def expect(world: World, seeds: Iterable[str], policy: Policy | None = None) -> Expected:
    """Follow the links of the world from `seeds` (canonical URLs), breadth first, as a perfect crawl with `policy` does.

    If a URL can be reached in several ways, the lowest depth counts, and then the fewest redirects.
    """
    walk = _Walk(world, policy or Policy())
    for seed in seeds:
        walk.push(seed, 0, 0)
    walk.run()
    return walk.expected


class _Walk:
    def __init__(self, world: World, policy: Policy) -> None:
        self.expected = Expected()
        self._world = world
        self._policy = policy
        self._queue: list[tuple[int, int, str]] = []  # a heap of depth, redirects so far, URL
        self._origins: set[str] = set()

    def push(self, url: str, depth: int, hops: int) -> None:
        """Add a link if it is in scope."""
        policy = self._policy
        if policy.scope is not None and domain_of(split(url)[0]) not in policy.scope:
            return
        if hops > policy.max_hops or (policy.max_depth is not None and depth > policy.max_depth):
            return
        heapq.heappush(self._queue, (depth, hops, url))

    def run(self) -> None:
        """Visit URLs until none are left."""
        while self._queue:
            depth, hops, url = heapq.heappop(self._queue)
            if url not in self.expected.visits and url not in self.expected.denied:
                self._visit(url, depth, hops)

    def _visit(self, url: str, depth: int, hops: int) -> None:
        self._meet_origin(split(url)[0])
        if self._world.is_denied(url):
            self.expected.denied.add(url)
            return
        resource = self._world.resource(url)
        least, most, status = _outcome(resource, self._policy)
        self.expected.visits[url] = Visit(status, least, most, depth)
        if resource is None or status == 0 or status >= 400:
            return
        if resource.redirect:
            self.push(resource.redirect, depth, hops + 1)
        for link in resource.links:
            if not (self._policy.obey_nofollow and (link.nofollow or resource.nofollow)):
                self.push(link.url, depth + 1, 0)
        for listed in resource.listed:
            self.push(listed, 1, 0)

    def _meet_origin(self, host: str) -> None:
        """Add the robots.txt of an origin with its first URL, denied or not."""
        if host in self._origins:
            return
        self._origins.add(host)
        domain = domain_of(host)
        if delay := self._world.crawl_delay(domain):
            self.expected.crawl_delays[domain] = delay
        url = absolute(host, "/robots.txt")
        while url:
            self.expected.auxiliary.add(url)
            resource = self._world.resource(url)
            url = resource.redirect if resource else ""
        if self._world.is_trap(host):
            self.expected.traps.add(domain)
        if self._policy.sitemaps and self._world.names_sitemap(host):
            self.push(absolute(host, "/sitemap.xml"), 1, 0)


def _outcome(resource: Resource | None, policy: Policy) -> tuple[int, int, int]:
    """Minimum and maximum number of requests for the URL, and the final status (0: never a response)."""
    if resource is None:
        return 1, 1, 404
    if resource.hazard is not None:
        return 1, policy.tries, 301 if resource.hazard is Hazard.HUGE_LOCATION else 200
    requests, status = _requests(resource, policy)
    return requests, requests, status


def _requests(resource: Resource, policy: Policy) -> tuple[int, int]:
    if resource.fault in HEADLESS:
        return policy.tries, 0
    if resource.fault is not None:
        return (policy.tries if policy.retry_cut else 1), resource.status
    trouble = resource.trouble
    if trouble is None:
        return 1, resource.status
    if trouble.succeeds_at == 0 or trouble.succeeds_at > policy.tries:
        return policy.tries, trouble.status
    return trouble.succeeds_at, resource.status
