"""Judges a crawl by the server's log: what a perfect crawl fetches, how polite it was, and how fresh its copies were.

The expectation comes from the world's own data about its links: nothing here parses HTML or robots.txt, or shares code with
the crawler under test. The judge reads only the server's log, so errors in the crawler's counters do not affect it. All
times are the server's. It records the start of a request after the client sent it, and the end of a response before the
client can have all of it, so a gap measured here is never shorter than the client's. Only when the client aborts a
response does the server record the end late; `abort_tolerance` allows for that.

A copy is fresh from a visit until the next change. J. Cho and H. Garcia-Molina, "Effective page refresh policies for Web
crawlers", ACM Transactions on Database Systems 28(4), 2003: of all policies that know the rates of the pages, but not their
next changes, the best visits each page at equal intervals, and so often that one visit more would gain the same at each
page.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.simweb.features import Change, Changing, Hazard
from tests.simweb.resource import Resource, absolute, split
from tests.simweb.server import Record
from tests.simweb.world import World, domain_of

ROUNDS = 3
"""How often a URL is requested again because a detour leads back to it. Six redirects in a row are three rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The settings of the crawl under test."""

    tries: int = 4  # requests for a URL at most
    max_hops: int = 20  # redirects in a row at most: the target of one more is not fetched
    max_depth: int | None = None  # links from a seed at most
    sitemaps: bool = True  # follow those that robots.txt name; what they list has depth 1


@dataclass(frozen=True, slots=True)
class Visit:
    """The expectation for one URL: between `least` and `most` requests, and `status` for the last one."""

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
        """Add a link, unless it is too deep or the end of too many redirects."""
        policy = self._policy
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
        if resource and resource.redirect and self._leads_back(resource):
            most += ROUNDS
        self.expected.visits[url] = Visit(status, least, most, depth)
        if resource is None or status >= 400:
            return
        if resource.redirect:
            self.push(resource.redirect, depth, hops + 1)
        for link in resource.links:
            if not (link.nofollow or resource.nofollow):
                self.push(link.url, depth + 1, 0)
        for listed in resource.listed:
            self.push(listed, 1, 0)

    def _leads_back(self, resource: Resource) -> bool:
        """Whether the target of this redirect redirects to it, as sites do that set a cookie on a detour."""
        target = self._world.resource(resource.redirect)
        return target is not None and target.redirect == resource.url

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
    """Minimum and maximum number of requests for the URL, and the final status."""
    if resource is None:
        return 1, 1, 404
    if resource.hazard is not None:
        return 1, policy.tries, 301 if resource.hazard is Hazard.HUGE_LOCATION else 200
    requests, status = _requests(resource, policy)
    return requests, requests, status


def _requests(resource: Resource, policy: Policy) -> tuple[int, int]:
    if resource.is_cut:
        return 1, resource.status
    trouble = resource.trouble
    if trouble is None:
        return 1, resource.status
    if trouble.succeeds_at == 0 or trouble.succeeds_at > policy.tries:
        return policy.tries, trouble.status
    return trouble.succeeds_at, resource.status


_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeLimits:
    """The limits that the crawl had to respect."""

    delay: float = 0.0  # seconds from the end of a domain's answer to its next request
    in_flight: int = 1  # requests to a domain at once, where it has no delay
    address_in_flight: int | None = None  # requests to an address at once; None for any number
    repeats: int = 0  # requests beyond the expected ones in all; each kill -9 may cost some
    tolerance: float = 0.002  # seconds
    abort_tolerance: float = 0.05  # seconds; after an answer that the client broke off, as its end is when we noticed


@dataclass(frozen=True, slots=True)
class TooClose:
    """Two requests, `gap` seconds apart instead of `needed`. They overlapped if `gap` is below 0."""

    first: Record
    second: Record
    gap: float
    needed: float

    def __str__(self) -> str:
        return f"{self.gap:.4f} s instead of {self.needed:.4f} s: {self.first.url} then {self.second.url}"


@dataclass(slots=True)
class JudgeReport:
    """The result. All fields except the figures at the end are violations."""

    missing: list[str] = field(default_factory=list)  # expected, never fetched
    unexpected: list[str] = field(default_factory=list)  # fetched, not expected
    denied: list[str] = field(default_factory=list)  # fetched, though robots.txt denies it
    unasked: list[str] = field(default_factory=list)  # first URL of an origin whose robots.txt was not answered before
    too_often: dict[str, tuple[int, int]] = field(default_factory=dict)  # URL -> requests, and at most expected
    too_seldom: dict[str, tuple[int, int]] = field(default_factory=dict)  # URL -> requests, and at least expected
    wrong_status: dict[str, tuple[int, int]] = field(default_factory=dict)  # URL -> last status, and the expected one
    overlaps: list[TooClose] = field(
        default_factory=list
    )  # more requests to a domain in flight at once than it may have
    too_close: list[TooClose] = field(default_factory=list)  # less than the domain's delay between two requests
    unrested: list[TooClose] = field(default_factory=list)  # a request to a domain before its Retry-After had passed
    address_too_many: dict[str, int] = field(default_factory=dict)  # address -> requests in flight at once

    requests: int = 0
    repeats_allowed: int = 0
    closest: dict[str, float] = field(default_factory=dict)  # domain -> shortest gap in seconds
    peak_by_address: dict[str, int] = field(default_factory=dict)
    peak_by_domain: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the crawl was perfect, except for the allowed number of repeats."""
        return not any(found for name, found in self.findings() if name != "too_often" or self._too_many_repeats)

    @property
    def repeats(self) -> int:
        """The number of requests beyond the expected ones."""
        return sum(count - most for count, most in self.too_often.values())

    @property
    def _too_many_repeats(self) -> bool:
        return self.repeats > self.repeats_allowed

    def findings(self) -> Iterator[tuple[str, Any]]:
        """Each kind of violation, with a list or mapping of those found."""
        for name in _FINDINGS:
            yield name, getattr(self, name)

    def __str__(self) -> str:
        shortest = min(self.closest.values(), default=float("inf"))
        lines = [
            f"{'OK' if self.ok else 'NOT OK'}: {self.requests} requests to {len(self.closest)} domains, "
            f"{self.repeats} repeated, shortest gap {shortest:.4f} s"
        ]
        for name, found in self.findings():
            lines.append(f"  {name.replace('_', ' '):<18} {len(found):>7}")
            examples = list(found.items() if isinstance(found, dict) else found)[:_SHOWN]
            lines.extend(f"      {_told(example)}" for example in examples)
        return "\n".join(lines)


_FINDINGS = (
    *("missing", "unexpected", "denied", "unasked", "too_often", "too_seldom", "wrong_status"),
    *("overlaps", "too_close", "unrested", "address_too_many"),
)


def _told(example: object) -> str:
    if not isinstance(example, tuple):
        return str(example)
    key, value = example
    return f"{key}: {value[0]} instead of {value[1]}" if isinstance(value, tuple) else f"{key}: {value}"


def judge(records: Iterable[Record], expected: Expected, limits: JudgeLimits | None = None) -> JudgeReport:
    """Compare the server's records, in any order, with the expectation and the limits."""
    limits = limits or JudgeLimits()
    in_order = sorted(records, key=lambda record: record.start)
    result = JudgeReport(requests=len(in_order), repeats_allowed=limits.repeats)
    _judge_urls(in_order, expected, result)
    _judge_strays(in_order, expected, result)
    _judge_robots(in_order, expected.auxiliary, result)
    for domain, requests in _grouped(in_order, lambda record: record.domain).items():
        _judge_domain(requests, expected.crawl_delays.get(domain, 0.0), limits, result)
        _judge_rest(requests, limits, result)
    for address, requests in _grouped(in_order, lambda record: record.address).items():
        _judge_address(address, requests, limits, result)
    return result


def _grouped(records: list[Record], key: Callable[[Record], str]) -> dict[str, list[Record]]:
    groups: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[key(record)].append(record)
    return groups


def _judge_urls(records: list[Record], expected: Expected, result: JudgeReport) -> None:
    """Checks which URLs were requested, how often, and the last status."""
    counts = Counter(record.url for record in records)
    last = {record.url: record.status for record in records}
    for url, visit in expected.visits.items():
        count = counts[url]
        if count == 0:
            result.missing.append(url)
        elif count > visit.most:
            result.too_often[url] = (count, visit.most)
        elif count < visit.least:
            result.too_seldom[url] = (count, visit.least)
        if count and last[url] != visit.status:
            result.wrong_status[url] = (last[url], visit.status)


def _judge_strays(records: list[Record], expected: Expected, result: JudgeReport) -> None:
    """Classifies URLs that were not expected: denied, or otherwise unexpected. Traps may have any number of pages."""
    strays = {record.url: record.domain for record in records if record.url not in expected.visits}
    for url, domain in strays.items():
        if url in expected.denied:
            result.denied.append(url)
        elif url not in expected.auxiliary and domain not in expected.traps:
            result.unexpected.append(url)


def _judge_robots(records: list[Record], auxiliary: set[str], result: JudgeReport) -> None:
    """A URL may be requested only after a response to its origin's robots.txt, with any status (RFC 9309 section 2.3)."""
    asked: set[str] = set()
    answered: dict[str, float] = {}
    for record in records:
        if record.path == "/robots.txt":
            answered.setdefault(record.host, record.end)
        elif record.host not in asked and record.url not in auxiliary:
            asked.add(record.host)
            if answered.get(record.host, record.start) >= record.start:
                result.unasked.append(record.url)


def _judge_domain(records: list[Record], crawl_delay: float, limits: JudgeLimits, result: JudgeReport) -> None:
    """Checks the delay between any two requests, and the number in flight: one, or without a delay as many as the limits
    allow. Crawl-delay applies once a robots.txt has been read."""
    latest = records[0]
    in_flight = [latest]
    needed = limits.delay
    closest = float("inf")
    for record in records[1:]:
        if latest.path == "/robots.txt" and latest.status == 200:
            needed = max(limits.delay, crawl_delay)
        in_flight = [other for other in in_flight if other.end > record.start]
        gap = record.start - latest.end
        closest = min(closest, gap)
        tolerance = limits.abort_tolerance if latest.aborted else limits.tolerance
        if not needed and len(in_flight) < limits.in_flight:
            pass
        elif gap < (-tolerance if latest.aborted else 0.0):
            result.overlaps.append(TooClose(latest, record, gap, needed))
        elif gap < needed - tolerance:
            result.too_close.append(TooClose(latest, record, gap, needed))
        if record.end >= latest.end:
            latest = record
        in_flight.append(record)
    result.closest[records[0].domain] = closest
    result.peak_by_domain[records[0].domain] = _peak(records)


def _judge_rest(records: list[Record], limits: JudgeLimits, result: JudgeReport) -> None:
    """After 429 or 503 with Retry-After, the whole domain must not be requested (RFC 9110 section 10.2.3)."""
    resting = records[0]
    for record in records[1:]:
        if resting.retry_after is not None and record.start < _rested_at(resting) - limits.tolerance:
            gap = record.start - resting.end
            result.unrested.append(TooClose(resting, record, gap, resting.retry_after))
        if _rested_at(record) > _rested_at(resting):
            resting = record


def _rested_at(record: Record) -> float:
    return record.end + (record.retry_after or 0.0)


def _judge_address(address: str, records: list[Record], limits: JudgeLimits, result: JudgeReport) -> None:
    peak = _peak(records)
    result.peak_by_address[address] = peak
    if limits.address_in_flight is not None and peak > limits.address_in_flight:
        result.address_too_many[address] = peak


def _peak(records: list[Record]) -> int:
    """The maximum number of requests in flight. A request that ends when another starts does not overlap it."""
    changes = [(record.start, 1) for record in records] + [(record.end, -1) for record in records]
    now = peak = 0
    for _, change in sorted(changes):
        now += change
        peak = max(peak, now)
    return peak


_STEPS = 40
_MOST_CHANGES = 800.0  # between two visits: with more, a visit gains all that it can


@dataclass(frozen=True, slots=True)
class Freshness:
    """Shares of the time in which a copy was fresh, on average of all pages: as it was (`reached`), at best and with equal
    intervals for all pages (`uniform`) by as many `visits`."""

    reached: float
    optimum: float
    uniform: float
    visits: int

    def __str__(self) -> str:
        return (
            f"freshness {self.reached:.3f} with {self.visits} visits: {self.reached / self.optimum:.3f} of the optimum "
            f"{self.optimum:.3f}, {self.reached / self.uniform:.3f} times that of equal intervals {self.uniform:.3f}"
        )


def judge_freshness(
    pages: Collection[Changing], visits: Mapping[str, Sequence[float]], begin: float, end: float
) -> Freshness:
    """How fresh the copies of `pages` were from `begin` to `end`. `visits`: the times of the responses of each URL, in
    order; those before `begin` have made its first copy."""
    counted = sum(begin <= at < end for page in pages for at in visits.get(page.url, ()))
    rate = counted / (end - begin)
    reached = sum(_fresh_s(page, visits.get(page.url, ()), begin, end) for page in pages) / (end - begin)
    gain_s = gain_of(pages, rate)
    at_best = sum(freshness(page, best_rate(page, gain_s)) for page in pages)
    equally = sum(freshness(page, rate / len(pages)) for page in pages)
    return Freshness(reached / len(pages), at_best / len(pages), equally / len(pages), counted)


def _fresh_s(page: Changing, visits: Sequence[float], begin: float, end: float) -> float:
    """How many seconds the copy was fresh."""
    fresh_s = 0.0
    for at, until in pairwise([*visits, end]):
        fresh_s += max(0.0, min(page.next_change(at), until, end) - max(at, begin))
    return fresh_s


def freshness(page: Changing, rate: float) -> float:
    """The share of the time in which the copy of `page` is fresh with `rate` visits per second at equal intervals."""
    if page.change in (Change.NEVER, Change.ALWAYS):
        return float(page.change is Change.NEVER)
    changes = 1 / (rate * page.mean_s) if rate else math.inf  # between two visits
    if page.change is Change.PERIODIC:
        return 1 - changes / 2 if changes <= 1 else 1 / (2 * changes)
    return -math.expm1(-changes) / changes if 0 < changes < math.inf else float(not changes)


def best_rate(page: Changing, gain_s: float) -> float:
    """How many visits per second to make, so that one more would gain `gain_s` seconds of freshness; 0 if none gains it."""
    if page.change in (Change.NEVER, Change.ALWAYS):
        return 0.0
    if page.change is Change.PERIODIC:
        return 1 / math.sqrt(2 * page.mean_s * gain_s) if gain_s < page.mean_s / 2 else 0.0
    if gain_s >= page.mean_s:
        return 0.0
    changes = _root(
        lambda changes: (1 - (1 + changes) * math.exp(-changes)) * page.mean_s - gain_s, 1e-9, _MOST_CHANGES
    )
    return 1 / (changes * page.mean_s)


def gain_of(pages: Collection[Changing], rate: float) -> float:
    """What each visit gains, in seconds, if `rate` visits per second, or hardly more, are shared in the best way."""
    return _root(lambda gain_s: rate - sum(best_rate(page, gain_s) for page in pages), 1e-3, 1e10)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return low
