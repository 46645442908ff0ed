"""Plans the next visits of pages when they are settled (`crawler.scope.revisits` decides), and makes requests
conditional."""

from __future__ import annotations

import hashlib
from base64 import b32encode
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from crawler.fetch.client import host_of
from crawler.page import Exchange, Outcome, Page
from crawler.scope.revisits import DIGEST, Answer, Headers, RevisitRule, Visits, decide, validator_of
from frontier.entries import Entry
from frontier.queue import SettledUrl
from frontier.settlements import revisit


def conditions(rules: Sequence[RevisitRule], entry: Entry) -> Headers:
    """The header fields that make the request for `entry` conditional. Empty for a page that is not known."""
    return visits_of(entry).conditions if rules and entry.visit else ()


def planned(rules: Sequence[RevisitRule], settled: SettledUrl, page: Page) -> tuple[SettledUrl, Page]:
    """Return both with what the visit found, and the first also with the time of the next one. Unchanged if there are
    no `rules`, because no page is visited again then, and for URLs that are kept with the dead letters."""
    if not rules or settled.again:
        return settled, page
    before = visits_of(settled.entry) if settled.entry.visit else None
    if before is None and page.outcome is not Outcome.DONE:
        return settled, page
    exchange = page.exchange if page.outcome is Outcome.DONE else None
    digest = hashlib.sha1(exchange.body, usedforsecurity=False).digest() if exchange is not None else b""
    made = decide(rules, before, _answer(page, exchange, digest.hex()[:DIGEST]))
    if made is None:
        return settled, page
    is_not_modified = exchange is not None and exchange.status == HTTPStatus.NOT_MODIFIED
    page = msgspec.structs.replace(
        page,
        visit="" if made.found == "failed" else made.found,
        digest=f"sha1:{b32encode(digest).decode()}" if digest and not is_not_modified else "",
        previous_at=before.last_at if before else 0.0,
        body_at=made.visits.body_at if is_not_modified else 0.0,
    )
    due_ms = None if made.due_at is None else round(made.due_at * 1000)
    return revisit(settled, made.found, due_ms, str(made.visits)), page


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
    )
