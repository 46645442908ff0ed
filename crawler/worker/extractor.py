"""Has items extracted from fetched pages by the rules of the settings (`crawler.parse.extraction`): in the event loop, or
in the process for large documents."""

from __future__ import annotations

import msgspec

from crawler.events import Events, ItemsRejected
from crawler.page import Page
from crawler.parse.child import DocumentOffloader
from crawler.parse.coding import DEFAULT_LIMIT
from crawler.parse.document import INLINE_INPUT
from crawler.parse.extraction import Extraction, ExtractionJob
from crawler.parse.tags import INLINE_TREE, TakesLong
from crawler.scope.extract_rules import ExtractRule


class ExtractSettings(msgspec.Struct, frozen=True):
    """`max_decoded`: the most bytes of a decoded body."""

    rules: tuple[ExtractRule, ...] = ()
    max_decoded: int = DEFAULT_LIMIT


class Extractor:
    """Applies extraction rules to pages."""

    def __init__(self, settings: ExtractSettings, offload: DocumentOffloader, events: Events) -> None:
        self.apply(settings)
        self._offload = offload
        self._events = events

    def apply(self, settings: ExtractSettings) -> None:
        """Use these settings from now on."""
        self._settings = settings

    async def with_items(self, page: Page) -> Page:
        """Return `page`, which has an exchange, with the items that the rules find. Those that are rejected are
        reported."""
        rules = tuple(rule for rule in self._settings.rules if rule.applies(page))
        if not rules:
            return page
        found = await self._extracted(page, rules)
        if found.rejected_count:
            first = found.rejected[0]
            self._events.emit(ItemsRejected(page.url, found.rejected_count, str(first)))
        return msgspec.structs.replace(page, items=found.items, rejected=found.rejected, rejected_by=found.rejected_by)

    async def _extracted(self, page: Page, rules: tuple[ExtractRule, ...]) -> Extraction:
        assert page.exchange is not None
        job, body = ExtractionJob.of(page, rules, self._settings.max_decoded), page.exchange.body
        if page.decoded_size <= INLINE_TREE and len(body) <= INLINE_INPUT and "unread" not in page.cut:
            try:
                return job.run(body, is_inline=True)
            except TakesLong:
                pass
        return await self._offload.extract(job, body)
