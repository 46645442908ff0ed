"""Pages about the state of one domain or replica, and about why one URL was fetched or not. They work without JavaScript.

A policy keeps text from strangers from becoming a script or a style.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from crawler.observe import explain
from crawler.observe.health import HealthRecord, LatestItem, health_records
from crawler.observe.summary import limit_in_words
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


class Template:
    """An HTML file of this package with placeholders of the form `{{name}}`.

    `policy`: a Content-Security-Policy that allows only the scripts and styles of the file. It is made before anything is
    filled in, so a script that a stranger manages to insert has no hash in it and does not run.
    """

    def __init__(self, name: str) -> None:
        self._text = Path(__file__).with_name(name).read_text(encoding="utf-8")
        self.policy = (
            f"default-src 'none'; script-src {self._hashes('script')}; style-src {self._hashes('style')}; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        )

    def _hashes(self, tag: str) -> str:
        parts = re.findall(rf"<{tag}>(.*?)</{tag}>", self._text, re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts]
        return " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the page. The values must be HTML; placeholders in them are not replaced."""
        return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], self._text)


class StatePages:
    """The pages of the crawl named `crawl`. It does not search the output, unlike `crawler why`. `policy`: the
    Content-Security-Policy of all answers. Errors are shown in the pages. `items`: the latest ones of each data set that
    this replica has found, newest first."""

    def __init__(
        self, store: RedisStore, crawl: str, items: Mapping[str, Collection[LatestItem]] | None = None
    ) -> None:
        self._items = {} if items is None else items
        self._store = store
        self._crawl = crawl
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._template = Template("answer.html")
        self.policy = self._template.policy

    async def why(self, url: str) -> str:
        return await self._page("Why this URL?", self._why, url, url)

    async def domain(self, name: str) -> str:
        """Return the HTML page for one domain, given by its name or one of its hosts."""
        return await self._page(name, self._domain, name)

    async def replica(self, name: str) -> str:
        """Return the HTML page for one replica, from its health record."""
        return await self._page(name, self._replica, name)

    async def data_set(self, name: str) -> str:
        """Return the HTML page for one data set, with the latest items that this replica has found."""
        return await self._page(name, self._data_set, name)

    async def _page(
        self, title: str, answer: Callable[[str], Awaitable[tuple[str, str, Rows]]], name: str, url: str = ""
    ) -> str:
        """Return the page with the title, the headline and the rows of `answer(name)`, or with `title` and an error."""
        rows: Rows = ()
        try:
            async with self._slots:
                title, headline, rows = await answer(name)
        except FrontierError as error:
            headline = str(error)
        table = "".join(
            f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>' for name, text in rows if text
        )
        texts = {"title": title, "crawl": self._crawl, "headline": headline, "url": url}
        return self._template.fill({"rows": table} | {name: escape(text) for name, text in texts.items()})

    async def _why(self, url: str) -> tuple[str, str, Rows]:
        if not url:
            return "Why this URL?", "Enter a URL.", []
        answer = await explain.explain(self._store, await open_crawl(self._store, self._crawl), url)
        return answer.url, SETTLED if answer.where == "settled" else answer.verdict, explain.rows(answer)

    async def _domain(self, name: str) -> tuple[str, str, Rows]:
        try:
            domain = canonicalize(f"https://{name}/").domain
        except BadUrl:
            return name, "This is not a domain.", []
        crawl = await open_crawl(self._store, self._crawl)
        clock = await crawl_clock(self._store, crawl)
        frontier = Frontier(self._store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
        control = Control(self._store, crawl.keys)
        await control.refresh()
        status = await UrlLookup(self._store, frontier).domain(domain)
        headline = "Known to the crawl." if status.accepted else "None of its URLs has been queued yet."
        if control.rules.is_blocked(domain):
            is_forgotten = control.rules.is_forgotten(domain)
            headline = "Forgotten, and blocked for good." if is_forgotten else "Blocked by an operator."
        return domain, headline, domain_rows(status, control.rules.delays.get(domain))

    async def _data_set(self, name: str) -> tuple[str, str, Rows]:
        found = self._items.get(name, ())
        rows = [(f"{_time(item.at_ms)} {item.url}", item.fields) for item in found]
        crawl = await open_crawl(self._store, self._crawl)
        # Reading them elsewhere is left to the reader: a browser may not reach the other replicas.
        others = [f"http://{record.address}/" for record in await health_records(self._store, crawl.keys)]
        where = f"; those of others are at items/{name} of {', '.join(others)}" if len(others) > 1 else ""
        headline = f"The latest {count_of(len(found), 'item')}" if found else "No item so far"
        return f"Items of {name}", f"{headline} that this replica has found{where}.", rows

    async def _replica(self, name: str) -> tuple[str, str, Rows]:
        crawl = await open_crawl(self._store, self._crawl)
        for record in await health_records(self._store, crawl.keys):
            if record.replica == name:
                headline = "In the view." if record.index else "Not in the view yet."
                return name, f"Replica {record.blocked}" if record.blocked else headline, replica_rows(record)
        return name, "No replica with this name has reported in the last intervals.", []


def replica_rows(record: HealthRecord) -> Rows:
    failures = [(f"{failure.reason}, {failure.outcome}", failure.url) for failure in record.recent_failures]
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
        ("free for the output", "" if record.disk_free is None else f"{record.disk_free / 1e9:,.1f} GB"),
        ("settings revision", str(record.settings_revision)),
        ("settings that wait for a restart", ", ".join(record.settings_waiting)),
        ("settings refused", record.settings_refused),
        ("its own live page", f"http://{record.address}/" if record.address else ""),
        *failures,
    ]


def domain_rows(status: DomainStatus, operator_delay_s: float | None) -> Rows:
    """Return the state of a domain as names and texts. `operator_delay_s`: None if none is set."""
    backoff = BackoffState.parse(status.state)
    failures = f"{count_of(backoff.failures, 'failure')} in a row, last {backoff.reason or 'unknown'}"
    leased = f"last leased by {status.last_holder}" if status.last_holder else "not leased yet"
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
        (f"waits for {limit_in_words(backoff)} until", _time(backoff.limited_until_ms or None)),
        ("shard", f"{status.shard}, {leased}"),
    ]


def _time(at_ms: int | None) -> str:
    return "" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
