"""Plans the next visits of pages when they are settled (`crawler.scope.next_visit` decides), and makes requests
conditional. Has the main text of pages compared where a rule asks for that."""

from __future__ import annotations

import hashlib
from base64 import b32encode
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from crawler.page import Exchange, Outcome, Page
from crawler.parse.child import DocumentOffloader
from crawler.parse.text import TextJob, is_light_body
from crawler.scope.next_visit import (
    DIGEST,
    MOVED,
    Answer,
    Headers,
    RecrawlRule,
    Visits,
    copy_age,
    decide,
    fresh_s,
    needs_text,
    served_gain_s,
    validator_of,
    visit_priority,
)
from frontier.domains import host_of
from frontier.entries import Entry
from frontier.settle import SettledUrl, with_next_visit

MOST_SITES = 10_000
"""Overloaded domains that a replica remembers, the ones visited last."""

_WEIGHT = 1 / 32
_CREEP = 0.98
"""The weight of one visit in what the visits of a domain gain, and by how much less is asked of the next ones, so that it
falls when there is room again."""


class SiteGains:
    """What a visit must gain at the domains whose delay does not allow all visits in time, in seconds of freshness.

    If visits are late, each gains more than it was planned for. When the next ones are planned for that, as many are due
    as can be made, and still those that gain the most. What is known here is lost with the replica, and found again from
    visits that are late.
    """

    def __init__(self) -> None:
        self._gains: dict[str, float] = {}

    def least(self, domain: str) -> float:
        """What a visit to `domain` must gain, 0 if that is up to the rule."""
        return self._gains.get(domain, 0.0)

    def note(self, domain: str, gained_s: float, asked_s: float) -> None:
        """Record that a visit to `domain` has gained `gained_s`. `asked_s`: what its rule asks for."""
        before = max(self._gains.pop(domain, 0.0), asked_s)
        gain_s = before + (_CREEP * gained_s - before) * _WEIGHT
        if gain_s > asked_s:
            self._gains[domain] = gain_s
            if len(self._gains) > MOST_SITES:
                del self._gains[next(iter(self._gains))]


def conditions(rules: Sequence[RecrawlRule], entry: Entry) -> Headers:
    """The header fields that make the request for `entry` conditional. Empty for a page that is not known."""
    return visits_of(entry).conditions if rules and entry.visit else ()


def has_moved(entry: Entry, exchange: Exchange) -> bool:
    """Whether the page of `entry` is a known one that has permanently moved to where `exchange` redirects."""
    return bool(entry.visit) and exchange.status in MOVED


async def with_text_digest(
    rules: Sequence[RecrawlRule], entry: Entry, page: Page, max_decoded: int, offload: DocumentOffloader
) -> Page:
    """Return `page`, the one of `entry`, with the fingerprint of its main text if that has to be compared. A text that may
    take long to extract is left to `offload`. Without a fingerprint, the body is compared."""
    exchange, before = page.exchange, visits_of(entry) if entry.visit else None
    if (
        exchange is None
        or not 200 <= exchange.status < 300
        or not needs_text(rules, before, _answer(page, exchange, ""))
    ):
        return page
    job = TextJob.of(page, max_decoded)
    if job is None:
        return page
    is_inline = is_light_body(exchange.body, job.coding, job.charset)
    digest = job.run(exchange.body) if is_inline else await offload.text_digest(job, exchange.body)
    return msgspec.structs.replace(page, text_digest=digest)


def planned(rules: Sequence[RecrawlRule], settled: SettledUrl, page: Page, gains: SiteGains) -> tuple[SettledUrl, Page]:
    """Return both with what the visit found, and with the time of the next one. Without `rules`, no page is visited again.
    Unchanged for URLs that are kept with the dead letters, which have the state of their visits."""
    if settled.follow_up:
        return settled, page
    before = visits_of(settled.entry) if settled.entry.visit else None
    if before is not None:
        page = msgspec.structs.replace(page, previous_at=before.last_at)
    if not rules or (before is None and page.outcome is not Outcome.DONE):
        return settled, page
    exchange = page.exchange if page.outcome is Outcome.DONE else None
    digest = hashlib.sha1(exchange.body, usedforsecurity=False).digest() if exchange is not None else b""
    answer = _answer(page, exchange, digest.hex()[:DIGEST])
    if before is not None and (gained := served_gain_s(rules, before, answer.at)) is not None:
        gains.note(page.domain, *gained)
    made = decide(rules, before, answer, gains.least(page.domain))
    if made is None:
        return settled, page
    is_not_modified = exchange is not None and exchange.status == HTTPStatus.NOT_MODIFIED
    page = msgspec.structs.replace(
        page,
        visit="" if made.found == "failed" else made.found,
        digest=f"sha1:{b32encode(digest).decode()}" if digest and not is_not_modified else "",
        body_at=made.visits.body_at if is_not_modified else 0.0,
        copy_age=copy_age(before, answer.at) if before else None,
    )
    if made.due_at is None:
        return with_next_visit(settled, made.found, None, str(made.visits)), page
    due_s = -(-round(made.due_at * 1000) // 1000)
    entry = msgspec.structs.replace(settled.entry, priority=visit_priority(due_s))
    settled = msgspec.structs.replace(settled, entry=entry)
    page = msgspec.structs.replace(page, next_at=float(due_s), visit_state=str(made.visits))
    return with_next_visit(settled, made.found, due_s * 1000, page.visit_state), page


def visits_of(entry: Entry) -> Visits:
    """The state of the visits of `entry`, which is not empty."""
    return Visits.parse(entry.visit)


def _answer(page: Page, exchange: Exchange | None, digest: str) -> Answer:
    host = host_of(page.url)
    if exchange is None:
        return Answer(page.url, host, page.settled_at)
    etag, modified = exchange.header(b"etag") or b"", exchange.header(b"last-modified") or b""
    return Answer(
        page.url,
        host,
        exchange.started_at,
        exchange.status,
        page.content_type,
        digest,
        validator_of(etag.decode("latin-1"), modified.decode("latin-1")),
        fresh_s(exchange.headers),
        page.text_digest,
    )
