"""Later visits of pages: when a page is visited again (`crawler.scope.next_visit` decides), conditional requests, and
the hints of sitemaps. Has the main text of pages compared where a rule asks for that."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from base64 import b32encode
from collections.abc import Callable, Coroutine, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from crawler.events import Event, PageSettled
from crawler.page import BROKEN_OFF, Exchange, LinkKind, Outcome, Page
from crawler.parse.child import SMALL, DocumentOffloader
from crawler.parse.text import DigestJob, is_light_body
from crawler.scope.next_visit import (
    DIGEST,
    MOVED,
    Answer,
    Headers,
    RecrawlRule,
    Visits,
    conditions_of,
    copy_age,
    decide,
    fresh_s,
    needs_text,
    served_gain_s,
    validator_of,
    visit_priority,
)
from crawler.worker.runtime import Runtime
from frontier.domains import domain_of, host_of
from frontier.entries import Entry
from frontier.errors import RedisAway, ShardLost
from frontier.known_pages import PAGES_AT_ONCE, refresh_pages
from frontier.queue import Frontier
from frontier.settle import SettledUrl, with_next_visit
from frontier.store import Store

MOST_SITES = 10_000
"""Overloaded domains that a replica remembers, the ones visited last."""

_EWMA_ALPHA = 1 / 32
_DECAY = 0.98
"""The weight of one visit in what the visits of a domain gain, and by how much less is asked of the next ones, so that
it falls when there is room again."""


class SiteGains:
    """What a visit must gain at the domains whose delay does not allow all visits in time, in seconds of freshness.

    If visits are late, each gains more than it was planned for. When the next ones are planned for that, as many are
    due as can be made, and still those that gain the most. What is known here is lost with the replica, and found again
    from visits that are late.
    """

    def __init__(self) -> None:
        self._gains: dict[str, float] = {}

    def least(self, domain: str) -> float:
        """What a visit to `domain` must gain, 0 if that is up to the rule."""
        return self._gains.get(domain, 0.0)

    def note(self, domain: str, gained_s: float, asked_s: float) -> None:
        """Record that a visit to `domain` has gained `gained_s`. `asked_s`: what its rule asks for."""
        before = max(self._gains.pop(domain, 0.0), asked_s)
        gain_s = before + (_DECAY * gained_s - before) * _EWMA_ALPHA
        if gain_s > asked_s:
            self._gains[domain] = gain_s
            if len(self._gains) > MOST_SITES:
                del self._gains[next(iter(self._gains))]


def has_moved(entry: Entry, exchange: Exchange) -> bool:
    """Whether the page of `entry` is a known one that has permanently moved to where `exchange` redirects."""
    return bool(entry.visit) and exchange.status in MOVED


async def with_text_digest(
    rules: Sequence[RecrawlRule], entry: Entry, page: Page, max_decoded: int, offload: DocumentOffloader
) -> Page:
    """Return `page`, the one of `entry`, with the fingerprint of its main text if that has to be compared. A text that
    may take long to extract is left to `offload`. Without a fingerprint, the body is compared."""
    exchange, before = page.exchange, visits_of(entry) if entry.visit else None
    if (
        exchange is None
        or not 200 <= exchange.status < 300
        or not needs_text(rules, before, _answer(page, exchange, ""))
    ):
        return page
    job = DigestJob.of(page, max_decoded)
    if job is None:
        return page
    shown = page.shown or exchange
    is_inline = is_light_body(shown.body, job.coding, job.charset)
    digest = job.run(shown.body) if is_inline else await offload.text_digest(job, shown, page.decoded_size > SMALL)
    return msgspec.structs.replace(page, text_digest=digest)


def planned(rules: Sequence[RecrawlRule], settled: SettledUrl, page: Page, gains: SiteGains) -> tuple[SettledUrl, Page]:
    """Return both with what the visit found, and with the time of the next one. Without `rules`, no page is visited
    again, and no request but GET is sent again. Unchanged for URLs that are kept with the dead letters, which have the
    state of their visits."""
    if settled.follow_up:
        return settled, page
    before = visits_of(settled.entry) if settled.entry.visit else None
    if before is not None:
        page = msgspec.structs.replace(page, previous_at=before.last_at)
    if not rules or (before is None and page.outcome is not Outcome.DONE):
        return settled, page
    request = settled.entry.request
    if (request is not None and request.method != "GET") or ":" in page.url.partition("#")[2]:
        return settled, page  # nor is the page to which the answer of such a request redirects
    exchange = page.exchange if page.outcome is Outcome.DONE else None
    digest = hashlib.sha1(exchange.body, usedforsecurity=False).digest() if exchange is not None else b""
    answer = _answer(page, exchange, digest.hex()[:DIGEST])
    if before is not None and (gained := served_gain_s(rules, before, answer.at)) is not None:
        gains.note(page.domain, *gained)
    decision = decide(rules, before, answer, gains.least(page.domain))
    if decision is None:
        return settled, page
    is_not_modified = exchange is not None and exchange.status == HTTPStatus.NOT_MODIFIED
    page = msgspec.structs.replace(
        page,
        visit="" if decision.found == "failed" else decision.found,
        digest=f"sha1:{b32encode(digest).decode()}" if digest and not is_not_modified else "",
        body_at=decision.visits.body_at if is_not_modified else 0.0,
        copy_age=copy_age(before, answer.at) if before else None,
    )
    if decision.due_at is None:
        return with_next_visit(settled, decision.found, None, str(decision.visits)), page
    due_s = -(-round(decision.due_at * 1000) // 1000)
    entry = msgspec.structs.replace(settled.entry, priority=visit_priority(due_s))
    settled = msgspec.structs.replace(settled, entry=entry)
    page = msgspec.structs.replace(page, next_at=float(due_s), visit_state=str(decision.visits))
    return with_next_visit(settled, decision.found, due_s * 1000, page.visit_state), page


def visits_of(entry: Entry) -> Visits:
    """The state of the visits of `entry`, which is not empty."""
    return Visits.parse(entry.visit)


def _answer(page: Page, exchange: Exchange | None, digest: str) -> Answer:
    host = host_of(page.url)
    if exchange is None:
        return Answer(page.url, host, page.settled_at)
    return Answer(
        page.url,
        host,
        exchange.started_at,
        exchange.status,
        page.content_type,
        digest,
        # A 304 would confirm a body of which only a part is here (RFC 9111 3.3).
        _validator(exchange) if BROKEN_OFF.isdisjoint(page.cut) else "",
        fresh_s(exchange.headers),
        page.text_digest,
    )


def conditions(rules: Sequence[RecrawlRule], entry: Entry) -> Headers:
    """The header fields that make the request for `entry` conditional. Empty if nothing is known of its page."""
    validator = visits_of(entry).validator if rules and entry.visit else ""
    return conditions_of(validator) if validator else ()


def _validator(exchange: Exchange) -> str:
    etag, modified = exchange.header(b"etag") or b"", exchange.header(b"last-modified") or b""
    return validator_of(etag.decode("latin-1"), modified.decode("latin-1"))


FIRST_CREDIT, MOST_CREDIT = 100, 10_000
"""The visits that the sitemaps of a domain may cause, at first and at most."""

EARNED = 2
"""A visit that finds a change adds this to the credit. It has used one."""

MOST_DOMAINS, MOST_AWAITED = 10_000, 100_000
"""The domains whose credit is remembered, and the pages whose visits are awaited. The oldest are forgotten."""


class LastmodTrust:
    """How far the sitemaps of each domain are trusted."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._awaited: dict[str, None] = {}

    def left(self, domain: str) -> int:
        """How many visits the sitemaps of `domain` may cause now."""
        return self._left.get(domain, FIRST_CREDIT)

    def use(self, domain: str, urls: Sequence[str]) -> None:
        """Record that the known pages `urls` of `domain` were made due, not more than were left."""
        self._left[domain] = self._left.pop(domain, FIRST_CREDIT) - len(urls)
        self._awaited.update(dict.fromkeys(urls))
        for oldest, most in ((self._left, MOST_DOMAINS), (self._awaited, MOST_AWAITED)):
            while len(oldest) > most:
                del oldest[next(iter(oldest))]

    def visited(self, domain: str, url: str, has_changed: bool) -> None:
        """Record what a visit has found. It counts if the page was one of those that `use` was given."""
        if url in self._awaited:
            del self._awaited[url]
            if has_changed:
                self._left[domain] = min(MOST_CREDIT, self._left.get(domain, 0) + EARNED)


class SitemapHints:
    """Makes known pages due at once that a sitemap says have changed since it was visited last. `spawn` starts a task.

    A `lastmod` is used, but not trusted. Each domain has a credit of visits. A known page that is made due uses one,
    and its visit adds two if it finds a change. New pages use none. So a sitemap that lies costs a limited number of
    visits. What is known here is lost with the replica.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        frontier: Frontier,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._frontier = frontier
        self._spawn = spawn
        self._trust = LastmodTrust()
        self._running: dict[str, asyncio.Task[None]] = {}  # the last one of each domain

    def observe(self, event: Event) -> None:
        """Use the hints of a sitemap that was visited again, or see whether one of a page was right."""
        if not isinstance(event, PageSettled) or not event.page.previous_at or event.page.outcome is Outcome.RETRY:
            return
        page = event.page
        self._trust.visited(page.domain, page.url, page.visit in ("changed", "gone", "back"))
        if urls := hinted(page):
            before = self._running.get(page.domain)
            task = self._running[page.domain] = self._spawn(self._refresh(page.domain, urls, before))
            task.add_done_callback(lambda ended: self._forget(page.domain, ended))

    def _forget(self, domain: str, ended: asyncio.Task[None]) -> None:
        if self._running.get(domain) is ended:
            del self._running[domain]

    async def _refresh(self, domain: str, urls: Sequence[str], before: asyncio.Task[None] | None) -> None:
        """Make the known ones of `urls` due, after `before`: each reads how much credit the one before has left."""
        if before is not None:
            await asyncio.wait([before])
        with contextlib.suppress(RedisAway, ShardLost):  # they are visited when they are due
            for at in range(0, len(urls), PAGES_AT_ONCE):
                if not (left := self._trust.left(domain)):
                    return
                part, now_ms = urls[at : at + PAGES_AT_ONCE], self._runtime.server_clock.now_ms()
                due = await refresh_pages(self._store, self._frontier.keys, part, domain, now_ms, left)
                self._trust.use(domain, due)


def hinted(page: Page) -> list[str]:
    """The pages and sitemaps of its own domain that the sitemap `page` says have changed since it was visited last, the
    latest first. What is said to change in the future does not count. Empty for what is neither a sitemap nor a feed."""
    if not page.links or page.links[0].kind not in (LinkKind.LISTED, LinkKind.SITEMAP, LinkKind.ITEM):
        return []
    new = [link for link in page.links if page.previous_at < link.lastmod <= page.settled_at]
    new.sort(key=lambda link: -link.lastmod)
    return [link.url for link in new if domain_of(host_of(link.url)) == page.domain]
