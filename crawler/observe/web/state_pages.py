"""Pages about the state of one domain, and about why one URL was fetched or not. They work without JavaScript."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from crawler.observe import explain, explanation_rows
from crawler.observe.health_record import HealthRecord, health_records
from crawler.observe.web.template import Template
from crawler.wording import count_of
from frontier.control import Control
from frontier.crawls import crawl_clock, open_crawl
from frontier.errors import BadUrl, FrontierError
from frontier.lookup import DomainStatus, UrlLookup
from frontier.queue import Frontier, FrontierSettings
from frontier.store import RedisStore
from frontier.urls import canonicalize
from politeness.backoff import BackoffState

Rows = Sequence[tuple[str, str]]

AT_ONCE = 2
"""Queries that run at the same time: searching a very long queue for a URL takes Redis a quarter of a second."""

SETTLED = "Settled. For the outcome, run `crawler why` on a machine with the output."


class StatePages:
    """The pages of the crawl named `crawl`. It does not search the output, unlike `crawler why`. `policy`: the
    Content-Security-Policy of all answers."""

    def __init__(self, store: RedisStore, crawl: str) -> None:
        self._store = store
        self._crawl = crawl
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._template = Template("answer.html")
        self.policy = self._template.policy

    async def why(self, url: str) -> str:
        """Return the HTML page for one URL. Errors are shown in the page."""
        if not url:
            return self._page("Why this URL?", "Enter a URL.", [])
        try:
            async with self._slots:
                crawl = await open_crawl(self._store, self._crawl)
                found = await explain.explain(self._store, crawl, url)
        except FrontierError as error:
            return self._page("Why this URL?", str(error), [], url)
        headline = SETTLED if found.where == "settled" else found.verdict
        return self._page(found.url, headline, explanation_rows.rows(found), found.url)

    async def domain(self, name: str) -> str:
        """Return the HTML page for one domain, given by its name or one of its hosts. Errors are shown in the page."""
        try:
            domain = canonicalize(f"https://{name}/").domain
            async with self._slots:
                status, control = await self._look(domain)
        except BadUrl:
            return self._page(name, "This is not a domain.", [])
        except FrontierError as error:
            return self._page(name, str(error), [])
        headline = "Known to the crawl." if status.accepted else "None of its URLs has been queued yet."
        if control.rules.is_blocked(domain):
            is_forgotten = control.rules.is_forgotten(domain)
            headline = "Forgotten, and blocked for good." if is_forgotten else "Blocked by an operator."
        return self._page(domain, headline, domain_rows(status, control.rules.delays.get(domain)))

    async def replica(self, name: str) -> str:
        """Return the HTML page for one replica, from its health record, so that it can be read where only this replica can
        be reached. Errors are shown in the page."""
        try:
            async with self._slots:
                crawl = await open_crawl(self._store, self._crawl)
                records = {record.replica: record for record in await health_records(self._store, crawl.keys)}
        except FrontierError as error:
            return self._page(name, str(error), [])
        if name not in records:
            return self._page(name, "No replica with this name has reported in the last intervals.", [])
        record = records[name]
        headline = record.blocked or ("In the view." if record.index else "Not in the view yet.")
        return self._page(name, f"Replica {headline}" if record.blocked else headline, replica_rows(record))

    async def _look(self, domain: str) -> tuple[DomainStatus, Control]:
        crawl = await open_crawl(self._store, self._crawl)
        clock = await crawl_clock(self._store, crawl)
        frontier = Frontier(self._store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
        control = Control(self._store, crawl.keys)
        await control.refresh()
        return await UrlLookup(self._store, frontier).domain(domain), control

    def _page(self, title: str, headline: str, rows: Rows, url: str = "") -> str:
        table = "".join(
            f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>' for name, text in rows if text
        )
        texts = {"title": title, "crawl": self._crawl, "headline": headline, "url": url}
        return self._template.fill({"rows": table} | {name: escape(text) for name, text in texts.items()})


def replica_rows(record: HealthRecord) -> Rows:
    """Return the state of a replica as pairs of name and text."""
    failures = [(f"{one.reason}, {one.outcome}", one.url) for one in record.recent_failures]
    return [
        ("index in the view", str(record.index or "")),
        ("epoch", str(record.epoch)),
        ("shards", f"{record.shards:,}"),
        ("domains leased", f"{record.domains:,}"),
        ("URLs leased", f"{record.urls:,}"),
        ("requests in flight", f"{record.busy:,}"),
        ("pages since its start", f"{record.pages:,}"),
        ("bytes received since its start", f"{record.received_bytes:,}"),
        ("pages per second", f"{record.pages_per_s:,.1f}"),
        ("peak memory", f"{record.rss_mb:.0f} MB"),
        ("settings revision", str(record.settings_revision)),
        ("settings that wait for a restart", ", ".join(record.settings_waiting)),
        ("settings refused", record.settings_refused),
        ("its own live page", f"http://{record.address}/" if record.address else ""),
        *failures,
    ]


def domain_rows(status: DomainStatus, operator_delay_s: float | None) -> Rows:
    """Return the state of a domain as pairs of name and text. `operator_delay_s`: the delay that an operator has set, None
    if none is set."""
    backoff = BackoffState.parse(status.state)
    failures = f"{count_of(backoff.failures, 'failure')} in a row, last {backoff.reason or 'unknown'}"
    delay = "" if status.delay_ms is None else f"{status.delay_ms / 1000:g} s"
    return [
        ("URLs queued", f"{status.queued:,}"),
        ("URLs in flight", f"{status.in_flight:,}"),
        ("URLs accepted so far", f"{status.accepted:,}"),
        ("due", _time(status.due_ms)),
        ("leased until", _time(status.leased_until_ms)),
        ("next request not before", _time(status.next_ms)),
        ("delay", delay),
        ("delay set by an operator", "" if operator_delay_s is None else f"{operator_delay_s:g} s"),
        ("backoff", failures if backoff.failures else ""),
        ("waited for the address rate limit until", _time(backoff.limited_until_ms or None)),
        (
            "shard",
            f"{status.shard}, last leased by {status.last_holder}"
            if status.last_holder
            else f"{status.shard}, not leased yet",
        ),
    ]


def _time(at_ms: int | None) -> str:
    return "" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
