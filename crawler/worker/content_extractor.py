"""Has the text and data of those pages extracted that would hold up the archive's thread, in the process for large
documents. The archive extracts those of others (`crawler.parse.text`)."""

from __future__ import annotations

import msgspec

from crawler.page import NO_CONTENT, Page
from crawler.parse.child import DocumentOffloader
from crawler.parse.text import ContentJob, ContentWanted, is_light


class ContentExtractor:
    """Extracts what is `wanted`."""

    def __init__(self, wanted: ContentWanted, offload: DocumentOffloader) -> None:
        self._wanted = wanted
        self._offload = offload

    def takes_long(self, page: Page) -> bool:
        """Return whether `with_content` has anything to do for `page`."""
        return not is_light(page, self._wanted)

    async def with_content(self, page: Page) -> Page:
        """Return `page`, which `takes_long`, with its content. It has none if its domain has used up its budget."""
        assert page.exchange is not None
        content = await self._offload.content(ContentJob.of(page, self._wanted), page.exchange.body)
        if content is None:
            return msgspec.structs.replace(page, content=NO_CONTENT, cut=(*page.cut, "budget"))
        return msgspec.structs.replace(page, content=content)
