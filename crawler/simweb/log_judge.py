"""Judges a crawl: compares the server's log with what a perfect crawl does.

It reads only the server's log, so errors in the crawler's counters do not affect it. All times are the server's. It
records the start of a request after the client sent it, and the end of a response before the client can have all of it.
So a gap measured here is never shorter than the client's. Only when the client aborts a response does the server record
the end late; `abort_tolerance` allows for that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from crawler.simweb.expected import Expected
from crawler.simweb.log import Record

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeLimits:
    """The limits that the crawl had to respect."""

    delay: float = 0.0  # seconds from the end of a domain's answer to its next request
    in_flight: int = 1  # requests to a domain at once, where it has no delay
    address_delay: float = 0.0  # seconds from one request to an address to the next one
    address_in_flight: int | None = None  # requests to an address at once; None for any number
    crawl_delay_cap: float = 300.0  # seconds
    trapped: int | None = None  # pages of a trap at most; None for any number
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
    address_too_close: list[TooClose] = field(default_factory=list)
    address_too_many: dict[str, int] = field(default_factory=dict)  # address -> requests in flight at once

    trapped: dict[str, int] = field(default_factory=dict)  # domain of a trap -> pages fetched, if too many

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
    *("overlaps", "too_close", "unrested", "address_too_close", "address_too_many", "trapped"),
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
    _judge_strays(in_order, expected, limits, result)
    _judge_robots(in_order, expected.auxiliary, result)
    for domain, requests in _grouped(in_order, lambda record: record.domain).items():
        crawl_delay = min(expected.crawl_delays.get(domain, 0.0), limits.crawl_delay_cap)
        _judge_domain(requests, crawl_delay, limits, result)
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


def _judge_strays(records: list[Record], expected: Expected, limits: JudgeLimits, result: JudgeReport) -> None:
    """Classifies URLs that were not expected: denied, pages of a trap, or otherwise unexpected."""
    trapped: Counter[str] = Counter()
    strays = {record.url: record.domain for record in records if record.url not in expected.visits}
    for url, domain in strays.items():
        if url in expected.denied:
            result.denied.append(url)
        elif url in expected.auxiliary:
            continue
        elif domain in expected.traps:
            trapped[domain] += 1
        else:
            result.unexpected.append(url)
    if limits.trapped is not None:
        result.trapped.update({domain: count for domain, count in trapped.items() if count > limits.trapped})


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
    for first, second in pairwise(records):
        gap = second.start - first.start
        if gap < limits.address_delay - limits.tolerance:
            result.address_too_close.append(TooClose(first, second, gap, limits.address_delay))


def _peak(records: list[Record]) -> int:
    """The maximum number of requests in flight. A request that ends when another starts does not overlap it."""
    changes = [(record.start, 1) for record in records] + [(record.end, -1) for record in records]
    now = peak = 0
    for _, change in sorted(changes):
        now += change
        peak = max(peak, now)
    return peak
