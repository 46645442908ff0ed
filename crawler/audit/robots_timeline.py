"""Determines which robots.txt and tdmrep.json were in force at an origin at a given time, from the archive (RFC 9309 2.3,
2.4). Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from crawler.audit.records import Request
from crawler.parse.coding import decode_body
from frontier.urls import origin_of
from politeness.robots_fetch import DEFAULT_POLICY, MAX_REDIRECTS
from politeness.robots_match import Rules
from politeness.robots_syntax import MAX_BODY
from politeness.tdmrep import NOT_STATED, SiteUsage, TdmFile

_SKEW_S = 0.005
"""Two replicas on one machine share a clock, but read it at different points of an exchange."""

_UNAVAILABLE_S = DEFAULT_POLICY.assume_unavailable_after_s or math.inf
"""A robots.txt that was unreachable for so long allows everything (RFC 9309 2.3.1.4)."""


class _InForce(msgspec.Struct, frozen=True):
    """The rules in force from `since` (seconds since 1970) on. `rules`: None if the file was unavailable, which allows
    everything."""

    since: float
    rules: Rules | None


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
            rules = Rules.parse(_decoded(answer), self._user_agent)
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

    def rules_at(self, request: Request) -> Rules | None:
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
        """When the robots.txt was found unreachable first, after this time and before `request` was made. None if it was
        not."""
        times = self._unreachable.get(origin_of(request.url), [])
        return next((at for at in times if after < at <= request.start), None)


def _decoded(answer: Request) -> bytes:
    return decode_body(answer.body, answer.coding, MAX_BODY).data if answer.coding else answer.body
