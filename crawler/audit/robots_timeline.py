"""Determines which robots.txt and tdmrep.json were in force at an origin at a given time, from the archive (RFC 9309 2.3,
2.4). Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from crawler.audit.records import Request
from crawler.parse.content_coding import decode_body
from frontier.urls import origin_of
from politeness.robots_fetch import MAX_REDIRECTS
from politeness.robots_rules import Rules
from politeness.robots_syntax import MAX_BODY
from politeness.site_usage import NOT_STATED, SiteUsage
from politeness.tdmrep import TdmFile

_SKEW_S = 0.005
"""Two replicas on one machine share a clock, but read it at different points of an exchange."""


class _InForce(msgspec.Struct, frozen=True):
    """The rules in force from `since` (seconds since 1970) on. `rules`: None if the file was unavailable, which allows
    everything."""

    since: float
    rules: Rules | None


class Timeline:
    """The rules of all origins over time. `unasked`: requested origins without an archived robots.txt."""

    def __init__(self, requests: Sequence[Request], user_agent: str) -> None:
        self._user_agent = user_agent
        self._by_url: defaultdict[str, list[Request]] = defaultdict(list)
        self._by_origin: defaultdict[str, list[_InForce]] = defaultdict(list)
        self._tdm: defaultdict[str, list[tuple[float, TdmFile]]] = defaultdict(list)
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

    def _take(self, origin: str, asked: Request) -> None:
        answer = self._follow(asked, "", self._hops)
        if answer is None or answer.status == 429 or answer.status >= 500:
            return  # unreachable: earlier rules stay in force; if there are none, the origin is reported as `unasked`
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
        """The line that denies `request`, or None. Adds the origin to `unasked` if its rules are unknown."""
        if id(request) in self._hops:
            return None
        found = self._in_force(request)
        if found is None:
            self.unasked.add(origin_of(request.url))
            return None
        decision = found.rules.decide(request.url) if found.rules is not None else None
        if decision is None or decision.allowed:
            return None
        return f"line {decision.line} of {origin_of(request.url)}/robots.txt: {decision.rule}"


def _decoded(answer: Request) -> bytes:
    return decode_body(answer.body, answer.coding, MAX_BODY).data if answer.coding else answer.body
