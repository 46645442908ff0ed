"""Has items extracted from fetched pages, passes these to the handlers of users, and applies what those ask for. Has texts
that take long extracted before the page is written, so that no other page waits for them.

While a handler runs, or such a text is extracted, another worker has the slot of the one that waits for it, and the next
request to the domain need not wait (`crawler.worker.next_turn`). If too many pages wait, both wait for them, which slows
fetching.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec

from crawler.events import Events, HandlerFailed, LinkDropped
from crawler.hooks import Handled, PageHandlers
from crawler.page import Outcome, Page
from crawler.scope.scope import LinkFilter
from crawler.worker.content_extractor import ContentExtractor
from crawler.worker.extractor import ExtractSettings
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.outcomes import DEFECT
from crawler.worker.page_builder import BuildSettings, PageBuilder
from crawler.worker.page_items import PageItems
from frontier.entries import Entry

MAX_WAITING = 100
MAX_WAITING_BYTES = 128 << 20
"""The most pages that may wait for handlers and texts while the workers lend their slots, and the bytes of their bodies."""

Waiting = Callable[[LeasedDomain], AbstractAsyncContextManager[None]]
"""While its block runs, the turn of the domain holds up nobody."""


class PageHandling:
    """Has pages handled. `builder` builds them, and checks the links that `handlers` add; None if there are none.
    `items`: extracts and checks items. `contents`: extracts texts that take long. `waiting`: the block in which a handler
    or such a text is awaited."""

    def __init__(
        self,
        builder: PageBuilder,
        items: PageItems,
        contents: ContentExtractor,
        handlers: PageHandlers | None,
        waiting: Waiting,
        events: Events,
    ) -> None:
        self.builder = builder
        self._items = items
        self._contents = contents
        self._handlers = handlers
        self._waits = waiting
        self._events = events
        self._waiting = self._waiting_bytes = 0

    def apply(self, build: BuildSettings, links: LinkFilter, extract: ExtractSettings) -> None:
        """Use these settings and this link filter from now on."""
        self.builder.apply(build, links)
        self._items.apply(extract)

    async def handle(
        self, leased: LeasedDomain, entry: Entry, page: Page, links: Sequence[Entry]
    ) -> tuple[Page, Sequence[Entry]]:
        """Return `page`, the one of `entry` of `leased`, with its items, and its `links` as its handler wants them. If
        the handler fails, the page is dead and has no links. When it is fetched again, its handler can still choose and
        label them: a URL that was queued before keeps its label."""
        exchange = page.exchange
        if exchange is None or not 200 <= exchange.status < 300:
            return page, links
        page = await self._items.extracted(page)
        if self._handlers is None or not self._handlers.wants(page):
            return await self._items.checked(page) if page.items else page, links
        handled = await self._handled(self._handlers, leased, page)
        if handled.reason:
            self._events.emit(HandlerFailed(handled.handler, page.url, handled.error, handled.reason))
            failed = msgspec.structs.replace(
                page, outcome=Outcome.DEAD, reason=handled.reason, handler_error=handled.error, items=(), followed={}
            )
            self._report_dropped(handled.reason, links)
            return failed, ()
        if handled.items:
            page = msgspec.structs.replace(page, items=(*page.items, *handled.items))
        if handled.added or handled.dropped:
            links = self.builder.relinked(entry, links, handled)
            page = msgspec.structs.replace(page, followed=_by_tag(links))
        return await self._items.checked(page), links

    def links_after_defect(self, links: Sequence[Entry]) -> Sequence[Entry]:
        """Return those of the `links` of a page that are followed although an unexpected exception ended its handling: none
        that a handler could have chosen and labelled."""
        if self._handlers is None:
            return links
        self._report_dropped(DEFECT.reason, links)
        return ()

    def _report_dropped(self, reason: str, links: Sequence[Entry]) -> None:
        if links:
            self._events.emit(LinkDropped(reason, len(links)))

    async def _handled(self, handlers: PageHandlers, leased: LeasedDomain, page: Page) -> Handled:
        async with self._awaiting(leased, page):
            return await handlers.handle(page)

    async def with_content(self, leased: LeasedDomain, page: Page) -> Page:
        """Return `page` of `leased` with its text and data, if extracting them takes long."""
        if not self._contents.takes_long(page):
            return page
        async with self._awaiting(leased, page):
            return await self._contents.with_content(page)

    @asynccontextmanager
    async def _awaiting(self, leased: LeasedDomain, page: Page) -> AsyncIterator[None]:
        """A block in which `page` waits. It holds up nobody, unless too much is waiting already."""
        size = len(page.exchange.body) if page.exchange else 0
        if self._waiting >= MAX_WAITING or self._waiting_bytes + size > MAX_WAITING_BYTES:
            yield
            return
        self._waiting, self._waiting_bytes = self._waiting + 1, self._waiting_bytes + size
        try:
            async with self._waits(leased):
                yield
        finally:
            self._waiting, self._waiting_bytes = self._waiting - 1, self._waiting_bytes - size


def _by_tag(links: Sequence[Entry]) -> dict[str, tuple[str, ...]]:
    """The URLs of `links` by their tags."""
    found: dict[str, list[str]] = {}
    for link in links:
        found.setdefault(link.tag, []).append(link.url)
    return {tag: tuple(urls) for tag, urls in found.items()}
