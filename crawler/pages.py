"""From an exchange to a page: decode the body, extract links and data, choose what to crawl next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crawler.charset import MediaType
from crawler.decode import decode
from crawler.extract import Extracted, ExtractPolicy, extract
from crawler.links import LinkFilter
from crawler.markup import is_quick
from crawler.page import Exchange, Link, LinkKind, Page
from crawler.verdict import Verdict
from frontier.entries import Entry
from frontier.errors import BadUrl
from frontier.urls import Url, canonicalize


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """`max_decoded`: octets of a decoded body at most."""

    extract: ExtractPolicy
    max_decoded: int


class PageBuilder:
    """Builds pages. `on_drop` is told (reason, count) of links that are not followed."""

    def __init__(self, settings: BuildSettings, links: LinkFilter) -> None:
        self._settings = settings
        self._links = links
        self.on_drop: Callable[[str, int], None] = lambda reason, count: None

    async def build(
        self, entry: Entry, verdict: Verdict, exchange: Exchange | None, settled_at: float
    ) -> tuple[Page, Sequence[Entry]]:
        """The page of `entry`, and the entries for the links to push."""
        if exchange is None:
            page = Page(
                entry.url,
                entry.domain,
                entry.depth,
                verdict.outcome,
                verdict.reason,
                settled_at,
                entry.tries,
            )
            return page, ()
        content_type = _text(exchange.header(b"content-type"))
        target = self._redirect(exchange)
        if target is None:
            decoded_size, found = await self._extract(exchange, content_type)
        else:  # the body of a redirect is a note to people whose browser does not follow it
            found = Extracted(links=(Link(target.href, LinkKind.REDIRECT),), urls=(target,))
            decoded_size = len(exchange.body)
        urls = [(url, link.kind) for url, link in zip(found.urls, found.links, strict=True)]
        entries, dropped = self._links.select(urls, entry)
        for reason, count in (*dropped.items(), *found.dropped.items()):
            self.on_drop(reason, count)
        page = Page(
            url=entry.url,
            domain=entry.domain,
            depth=entry.depth,
            outcome=verdict.outcome,
            reason=verdict.reason,
            settled_at=settled_at,
            tries=entry.tries,
            exchange=exchange,
            content_type=MediaType.parse(content_type).essence,
            charset=found.charset,
            title=found.title,
            lang=found.lang,
            canonical=found.canonical,
            links=found.links,
            decoded_size=decoded_size,
            noarchive=found.noarchive,
        )
        return page, entries

    async def _extract(self, exchange: Exchange, content_type: str) -> tuple[int, Extracted]:
        body = exchange.body
        coding = exchange.header(b"content-encoding")
        if coding:
            body = (await decode(body, coding.decode("latin-1"), self._settings.max_decoded)).data
        tags = [_text(value) for name, value in exchange.headers if name.lower() == b"x-robots-tag"]
        arguments = (body, exchange.url, content_type, self._settings.extract, tags)
        if not is_quick(body):
            return len(body), await asyncio.to_thread(extract, *arguments)
        return len(body), extract(*arguments)

    def _redirect(self, exchange: Exchange) -> Url | None:
        """The target of a redirect (RFC 9110 10.2.2)."""
        location = exchange.header(b"location")
        if location is None or not 300 <= exchange.status < 400:
            return None
        try:
            # Octets beyond ASCII are UTF-8 in practice; the URL standard percent-encodes them.
            return canonicalize(location.decode("utf-8", "replace"), exchange.url, self._settings.extract.rules)
        except BadUrl as error:
            self.on_drop(error.reason, 1)
            return None


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("latin-1")
