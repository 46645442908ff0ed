"""The order of work on the items of a page: rules find some, handlers add others, and all are checked."""

from __future__ import annotations

from crawler.page import Page
from crawler.scope.extract_rules import declared
from crawler.worker.extractor import Extractor, ExtractSettings
from crawler.worker.item_type_check import ItemTypes


class PageItems:
    """Extracts items with `extractor`, and has these and those of handlers checked by `types`."""

    def __init__(self, extractor: Extractor, types: ItemTypes, settings: ExtractSettings) -> None:
        self._extractor = extractor
        self._types = types
        self.apply(settings)

    def apply(self, settings: ExtractSettings) -> None:
        """Use these settings from now on."""
        self._extracts = bool(settings.rules)
        self._extractor.apply(settings)
        self._types.apply(declared(settings.rules))

    async def extracted(self, page: Page) -> Page:
        """Return `page`, which has an exchange, with the items that rules find."""
        return await self._extractor.with_items(page) if self._extracts else page

    async def checked(self, page: Page) -> Page:
        """Return `page` without items that do not fit the types of their data sets."""
        return await self._types.checked(page)
