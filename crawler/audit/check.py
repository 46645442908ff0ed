"""Checks whether the crawl was polite, from its archive, independently of the counters of the crawl.

| rule | violated when |
|---|---|
| `too_close` | a request to a domain started less than the domain's delay after the end of the previous response |
| `render_parallel` | a page in a browser had more requests in flight to a domain than `render.parallel` allows |
| `address_rate` | an address got more requests than its rate and burst allow |
| `denied` | a URL was requested although the robots.txt archived before it denies it, or was unreachable |
| `unrested` | a domain was requested again before the Retry-After of its 429 or 503, up to `backoff_max`, had passed |
| `refused` | with a purpose: a page was requested although a file of its site refuses this use, or kept although it does |
| `forgotten` | a record, a line or an index names a URL of a domain that was forgotten (`crawler forget`) |

The delay of a domain is the longest of three: the configured one, and the Crawl-delay and the Request-rate of its archived
robots.txt, each up to the cap. If there is no delay, a request is too close if `politeness.parallel` others were in flight
when it started. Requests of a page in a browser belong to its visit: they need no delay, and that of the page's domain is
counted from the last of them. Machines write the times of their own clocks into the files; `tolerance_s` allows for the
differences. Only `crawler.audit.records` does I/O. `Timeline` determines which robots.txt and tdmrep.json were in force at
an origin at a given time (RFC 9309 2.3, 2.4).

"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from crawler.audit.records import UNKNOWN_ADDRESS, ArchivedRequests, Request
from crawler.parse.coding import decode_body
from frontier.domains import forgotten_mark
from frontier.urls import origin_of
from politeness.backoff import MAX_RETRY_AFTER_S, parse_retry_after
from politeness.delay import DelayPolicy, delay_ms
from politeness.rate_limit import RateLimitPolicy, network_of
from politeness.robots_fetch import DEFAULT_POLICY, MAX_REDIRECTS
from politeness.robots_match import Rules as RobotsRules
from politeness.robots_syntax import MAX_BODY
from politeness.tdmrep import NOT_STATED, SiteUsage, TdmFile

SHOWN = 20
"""Maximum number of breaches that are listed as examples. All are counted."""

LATENESS_S = 0.25
"""Seconds by which a request may start later than its slot of the rate limiter, and so closer to the next ones."""


class Rules(msgspec.Struct, frozen=True):
    """The limits that the crawl had to respect. `rate_limit`: None for no limit per address. `tolerance_s`: seconds.
    `parallel`: maximum number of requests in flight to a domain without a delay. `purpose`: the uses for which the crawl
    was made, if it obeyed preferences; `read_archive` must then be asked for `usage`. `backoff_max_s`: the longest
    Retry-After, in seconds, that the crawl respects. `render_parallel`: maximum number of requests in flight of a page in a
    browser; `render_obeys_robots`: whether each origin's robots.txt decides on them."""

    delay: DelayPolicy
    rate_limit: RateLimitPolicy | None
    user_agent: str
    tolerance_s: float = 0.01
    parallel: int = 1
    purpose: frozenset[str] = frozenset()
    backoff_max_s: float = MAX_RETRY_AFTER_S
    render_parallel: int = 2
    render_obeys_robots: bool = True


class Breach(msgspec.Struct, frozen=True):
    """A violation by the request to `url` at `at` (seconds since 1970)."""

    rule: str
    url: str
    at: float
    detail: str


class Report(msgspec.Struct):
    """`closest`: domain -> shortest delay in seconds. `unasked`: origins with requests that were not checked against their
    robots.txt, because it is not in the folder or was unreachable (`Timeline.unasked`). `unread`: records that could not be
    read, and files that could not be read to the end. `broken`: those files, each with the reason; `with_unread`: the files
    with unread records, each with how many and why."""

    files: int
    requests: int
    domains: int
    addresses: int
    robots: int
    unasked: int
    closest: dict[str, float]
    counts: dict[str, int]
    breaches: list[Breach]
    unread: int = 0
    broken: dict[str, str] = {}
    with_unread: dict[str, str] = {}

    @property
    def ok(self) -> bool:
        return not any(self.counts.values())


def audit(archive: ArchivedRequests, rules: Rules) -> Report:
    timeline = Timeline(archive.requests, rules.user_agent)
    by_domain: defaultdict[str, list[Request]] = defaultdict(list)
    by_address: defaultdict[str, list[Request]] = defaultdict(list)
    for request in archive.requests:
        by_domain[request.domain].append(request)
        if request.address != UNKNOWN_ADDRESS:
            by_address[network_of(request.address)].append(request)
    breaches: list[Breach] = []
    pages = {one.page_id: one.domain for one in archive.requests if one.page_id and not one.kind}
    own = {
        domain: [one for one in requests if not one.is_of_browser or pages.get(one.page_id) == domain]
        for domain, requests in by_domain.items()
    }
    closest = {name: _check_delays(requests, timeline, rules, breaches) for name, requests in own.items() if requests}
    for requests in by_domain.values():
        _check_browsers(requests, rules, breaches)
        _check_retry_after(requests, rules, breaches)
    for address, requests in by_address.items():
        _check_rate(address, requests, rules, breaches)
    for request in archive.requests:
        if request.is_of_browser and not rules.render_obeys_robots:
            continue
        if denial := timeline.denial(request):
            breaches.append(Breach("denied", request.url, request.start, denial))
        elif refusal := _refusal(request, timeline, rules):
            breaches.append(Breach("refused", request.url, request.start, refusal))
    named = archive.named | {request.domain: request.url for request in archive.requests}
    for domain, url in named.items() if archive.forgotten else ():
        if forgotten_mark(domain) in archive.forgotten:
            breaches.append(Breach("forgotten", url, 0.0, f"{domain} was forgotten"))
    rules_checked = (
        "too_close",
        "render_parallel",
        "address_rate",
        "denied",
        "unrested",
        "refused",
        "forgotten",
    )
    counts = dict.fromkeys(rules_checked, 0)
    for breach in breaches:
        counts[breach.rule] += 1
    return Report(
        files=archive.files,
        requests=len(archive.requests),
        domains=len(by_domain),
        addresses=len(by_address),
        robots=sum(request.is_robots for request in archive.requests),
        unasked=len(timeline.unasked),
        closest={domain: gap for domain, gap in closest.items() if gap is not None},
        counts=counts,
        breaches=breaches,
        unread=sum(one.count for one in archive.unread.values()) + len(archive.broken),
        broken={str(path): reason for path, reason in archive.broken.items()},
        with_unread={str(path): str(unread) for path, unread in archive.unread.items()},
    )


def _check_delays(
    requests: Sequence[Request], timeline: Timeline, rules: Rules, breaches: list[Breach]
) -> float | None:
    """Return the shortest delay between requests to a domain, in seconds. None if there was only one."""
    latest, shortest = requests[0], None
    in_flight = [latest]
    for request in requests[1:]:
        in_flight = [other for other in in_flight if other.end - rules.tolerance_s > request.start]
        if request.is_of_browser:
            latest = max(latest, request, key=lambda one: one.end)
            continue
        delay = request.start - latest.end
        shortest = delay if shortest is None else min(shortest, delay)
        robots = timeline.rules_at(request)
        crawl_delay, rate = (robots.crawl_delay, robots.request_rate) if robots is not None else (None, None)
        # Nothing requires the delay for slow responses (`response_share`), so it is not checked.
        needed = delay_ms(rules.delay, crawl_delay, rate, 0.0) / 1000
        if delay < needed - rules.tolerance_s and (needed or len(in_flight) >= rules.parallel):
            detail = f"{delay:.3f} s after {latest.url}; required: {needed:g} s"
            breaches.append(Breach("too_close", request.url, request.start, detail))
        if request.end >= latest.end:
            latest = request
        in_flight.append(request)
    return shortest


def _check_browsers(requests: Sequence[Request], rules: Rules, breaches: list[Breach]) -> None:
    in_flight: defaultdict[str, list[float]] = defaultdict(list)  # their ends, by page
    for request in requests:
        if request.is_of_browser:
            ends = in_flight[request.page_id]
            ends[:] = [end for end in ends if end - rules.tolerance_s > request.start]
            if len(ends) >= rules.render_parallel:
                detail = f"{len(ends)} others in flight; required: less than {rules.render_parallel}"
                breaches.append(Breach("render_parallel", request.url, request.start, detail))
            ends.append(request.end)


def _check_retry_after(requests: Sequence[Request], rules: Rules, breaches: list[Breach]) -> None:
    allowed_at, refused = -math.inf, requests[0]
    for request in requests:
        if request.start < allowed_at - rules.tolerance_s:
            wait, needed = request.start - refused.end, allowed_at - refused.end
            detail = f"{wait:.3f} s after {refused.url} had answered {refused.status} with a Retry-After"
            detail += f"; required: {needed:.3f} s"
            breaches.append(Breach("unrested", request.url, request.start, detail))
        if request.status in (429, 503) and request.retry_after is not None:
            wait_s = parse_retry_after(request.retry_after, request.end)
            until = request.end + min(wait_s or 0.0, rules.backoff_max_s)
            if until > allowed_at:
                allowed_at, refused = until, request


def _check_rate(address: str, requests: Sequence[Request], rules: Rules, breaches: list[Breach]) -> None:
    rate_limit = rules.rate_limit
    if rate_limit is None:
        return
    allowed = rate_limit.burst + rate_limit.rate_per_s * (LATENESS_S + rules.tolerance_s)
    level = 1.0
    for first, second in pairwise(requests):
        # A leaky bucket: a level above the burst means too many requests.
        level = max(0.0, level - rate_limit.rate_per_s * (second.start - first.start)) + 1
        if level > allowed:
            detail = (
                f"{address}: {level:.1f} requests above a rate of {rate_limit.rate_per_s:g} a second; required: at most "
                f"{allowed:.1f} (a burst of {rate_limit.burst}, and requests that are up to {LATENESS_S:g} s late)"
            )
            breaches.append(Breach("address_rate", second.url, second.start, detail))
            level = 0.0  # so that each burst is reported once


def _refusal(request: Request, timeline: Timeline, rules: Rules) -> str:
    """Why the owner refuses the use of a page that may be fetched, "" if he does not (draft-ietf-aipref-attach-05 3)."""
    if request.is_robots or not rules.purpose:
        return ""
    refusal = timeline.statements(request).combined().with_also(request.usage).refusal(rules.purpose)
    return f"its owner refuses {refusal.category}: {refusal.by}" if refusal is not None else ""


_SKEW_S = 0.005
"""Two replicas on one machine share a clock, but read it at different points of an exchange."""

_UNAVAILABLE_S = DEFAULT_POLICY.assume_unavailable_after_s or math.inf
"""A robots.txt that was unreachable for so long allows everything (RFC 9309 2.3.1.4)."""


class _InForce(msgspec.Struct, frozen=True):
    """The rules from `since` (seconds since 1970) on. `rules`: None if the file was unavailable: all is allowed."""

    since: float
    rules: RobotsRules | None


class Timeline:
    """The rules of all origins over time. `unasked`: requested origins whose rules are unknown: there is no archived
    robots.txt, or it was unreachable and the archive does not show that nothing was allowed."""

    def __init__(self, requests: Sequence[Request], user_agent: str) -> None:
        self._user_agent = user_agent
        self._by_url: defaultdict[str, list[Request]] = defaultdict(list)
        self._by_origin: defaultdict[str, list[_InForce]] = defaultdict(list)
        self._tdm: defaultdict[str, list[tuple[float, TdmFile]]] = defaultdict(list)
        self._unreachable: defaultdict[str, list[float]] = defaultdict(list)  # when a robots.txt was found unreachable
        self._first_page: dict[str, float] = {}  # when each origin was requested first, other than for its robots.txt
        self._began = requests[0].start if requests else 0.0
        self._hops: set[int] = set()  # requests made on the way to a robots.txt, by identity
        self._tdm_hops: set[int] = set()  # the same for a tdmrep.json, which robots.txt must allow
        self.unasked: set[str] = set()
        for request in requests:
            self._by_url[request.url].append(request)
        for request in requests:
            if request.is_robots:
                self._take(origin_of(request.url), request)
            elif request.is_tdmrep:
                self._take_tdmrep(origin_of(request.url), request)
        for request in requests:
            if id(request) not in self._hops:
                self._first_page.setdefault(origin_of(request.url), request.start)

    def _take(self, origin: str, asked: Request) -> None:
        answer = self._follow(asked, "", self._hops)
        if answer is None:
            return  # the request failed, or its record is elsewhere
        if answer.status == 429 or answer.status >= 500:
            self._unreachable[origin].append(answer.end)  # earlier rules stay in force
            return
        rules = None
        if 200 <= answer.status <= 299:
            rules = RobotsRules.parse(_decoded(answer), self._user_agent)
        self._by_origin[origin].append(_InForce(answer.end, rules))

    def _take_tdmrep(self, origin: str, asked: Request) -> None:
        answer = self._follow(asked, origin, self._tdm_hops)
        if answer is not None and (answer.status == 429 or answer.status >= 500):
            return  # unreachable: earlier rules stay in force
        body = _decoded(answer) if answer is not None and 200 <= answer.status <= 299 else b""
        self._tdm[origin].append(((answer or asked).end, TdmFile.parse(body)))

    def _follow(self, asked: Request, within: str, hops: set[int]) -> Request | None:
        """The response at the end of the redirects, or None if it is not in the archive. `within`: the only origin to
        follow them to, empty for any. Adds the requests on the way to `hops`."""
        for _ in range(MAX_REDIRECTS + 1):
            hops.add(id(asked))
            url = asked.redirects_to
            if url is None:
                return asked
            if within and origin_of(url) != within:
                return None
            found = self._first_after(url, asked.end)
            if found is None:
                return None
            asked = found
        return asked

    def _first_after(self, url: str, at: float) -> Request | None:
        return next((request for request in self._by_url.get(url, ()) if request.start >= at - _SKEW_S), None)

    def _in_force(self, request: Request) -> _InForce | None:
        known = self._by_origin.get(origin_of(request.url), [])
        place = bisect_right(known, request.start + _SKEW_S, key=lambda entry: entry.since)
        return known[place - 1] if place else None

    def rules_at(self, request: Request) -> RobotsRules | None:
        """The rules in force when `request` was made. None if there were none, or if they are unknown."""
        found = self._in_force(request)
        return found.rules if found else None

    def statements(self, request: Request) -> SiteUsage:
        """What the files of the site said about the use of the page that `request` asked for."""
        if id(request) in self._hops or id(request) in self._tdm_hops:
            return NOT_STATED
        rules = self.rules_at(request)
        stated = rules.usage.stated(request.url) if rules is not None and rules.usage is not None else ()
        known = self._tdm.get(origin_of(request.url), [])
        place = bisect_right(known, request.start + _SKEW_S, key=lambda entry: entry[0])
        return SiteUsage(stated, known[place - 1][1].reservation(request.url) if place else None)

    def denial(self, request: Request) -> str | None:
        """Why `request` was not allowed, or None. Adds the origin to `unasked` if its rules are unknown."""
        if id(request) in self._hops:
            return None
        found, origin = self._in_force(request), origin_of(request.url)
        if found is None or (found.rules is None and self._unreachable_at(request, found.since) is not None):
            return self._denial_without_rules(request, found is None)
        decision = found.rules.decide(request.url) if found.rules is not None else None
        if decision is None or decision.allowed:
            return None
        return f"line {decision.line} of {origin}/robots.txt: {decision.rule}"

    def _denial_without_rules(self, request: Request, is_first: bool) -> str | None:
        """Why `request` was not allowed although no rules are known. `is_first`: no robots.txt was found before.

        The archive may lack files, and attempts that got no response are not in it. So an earlier robots.txt is possible if
        the origin was requested before this one was found unreachable, and so are 30 days without a response.
        """
        origin = origin_of(request.url)
        since, is_early = self._unreachable_at(request), request.start - self._began < _UNAVAILABLE_S
        if is_first and is_early and since is not None and since <= self._first_page[origin]:
            return f"{origin}/robots.txt was unreachable, and no earlier one is known"
        self.unasked.add(origin)
        return None

    def _unreachable_at(self, request: Request, after: float = 0.0) -> float | None:
        """When robots.txt was first found unreachable between `after` and `request`. None if it was not."""
        times = self._unreachable.get(origin_of(request.url), [])
        return next((at for at in times if after < at <= request.start), None)


def _decoded(answer: Request) -> bytes:
    return decode_body(answer.body, answer.coding, MAX_BODY).data if answer.coding else answer.body
