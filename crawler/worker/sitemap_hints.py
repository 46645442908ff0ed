"""Makes known pages due at once that a sitemap says have changed since it was visited last.

A `lastmod` is used, but not trusted. Each domain has a credit of visits. A known page that is made due uses one, and its
visit adds two if it finds a change. New pages use none. So a sitemap that lies costs a limited number of visits. What is
known here is lost with the replica.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from crawler.events import Event, PageSettled
from crawler.page import LinkKind, Outcome, Page
from crawler.worker.runtime import Runtime
from frontier.domains import domain_of, host_of
from frontier.errors import RedisAway, ShardLost
from frontier.known_pages import PAGES_AT_ONCE, refresh_pages
from frontier.queue import Frontier
from frontier.store import Store

FIRST_CREDIT, MOST_CREDIT = 100, 10_000
"""The visits that the sitemaps of a domain may cause, at first and at most."""

EARNED = 2
"""What a visit that finds a change adds to the credit, of which it has used one."""

MOST_DOMAINS, MOST_AWAITED = 10_000, 100_000
"""The domains whose credit is remembered, and the pages whose visits are awaited. The oldest are forgotten."""


Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Credits:
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
    """Follows the settled pages. `spawn` starts a task."""

    def __init__(self, runtime: Runtime, store: Store, frontier: Frontier, spawn: Spawn) -> None:
        self._runtime = runtime
        self._store = store
        self._frontier = frontier
        self._spawn = spawn
        self._credits = Credits()
        self._running: dict[str, asyncio.Task[None]] = {}  # the last one of each domain

    def observe(self, event: Event) -> None:
        """Use the hints of a sitemap that was visited again, or see whether one of a page was right."""
        if not isinstance(event, PageSettled) or not event.page.previous_at or event.page.outcome is Outcome.RETRY:
            return
        page = event.page
        self._credits.visited(page.domain, page.url, page.visit in ("changed", "gone", "back"))
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
                if not (left := self._credits.left(domain)):
                    return
                part, now_ms = urls[at : at + PAGES_AT_ONCE], self._runtime.server_clock.now_ms()
                due = await refresh_pages(self._store, self._frontier.keys, part, domain, now_ms, left)
                self._credits.use(domain, due)


def hinted(page: Page) -> list[str]:
    """The pages and sitemaps of its own domain that the sitemap `page` says have changed since it was visited last, the
    latest first. What is said to change in the future does not count. Empty for what is not a sitemap."""
    if not page.links or page.links[0].kind not in (LinkKind.LISTED, LinkKind.SITEMAP):
        return []
    new = [link for link in page.links if page.previous_at < link.lastmod <= page.settled_at]
    new.sort(key=lambda link: -link.lastmod)
    return [link.url for link in new if domain_of(host_of(link.url)) == page.domain]
