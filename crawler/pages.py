"""From an exchange to a page: decode the body, extract links and data, choose what to crawl next."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from crawler import sitemaps
from crawler.charset import MediaType
from crawler.decode import decode
from crawler.extract import Extracted, ExtractPolicy, extract
from crawler.heavy import HeavyLane
from crawler.links import NO_HINTS, LinkFilter
from crawler.markup import is_quick
from crawler.page import Exchange, Link, LinkKind, Page
from crawler.sitemaps import SitemapLinks, is_sitemap, sitemap_links
from crawler.verdict import Verdict
from frontier.entries import Entry
from frontier.errors import BadUrl
from frontier.urls import Url, canonicalize, canonicalize_links

MAX_SITEMAPS = 500
"""Sitemaps of one robots.txt at most."""


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """`max_decoded`: octets of a decoded body at most. `sitemaps`: read them."""

    extract: ExtractPolicy
    max_decoded: int
    sitemaps: bool = True


class PageBuilder:
    """Builds pages. `on_drop` is told (reason, count) of links that are not followed; `named_for` tells which sitemaps the
    robots.txt that counts for a URL names."""

    def __init__(self, settings: BuildSettings, links: LinkFilter) -> None:
        self._settings = settings
        self._links = links
        self.lane = HeavyLane()
        self.on_drop: Callable[[str, int], None] = lambda reason, count: None
        self.named_for: Callable[[str], Container[str]] = lambda url: ()

    def sitemaps(self, origin: str, domain: str, named: Iterable[str]) -> list[Entry]:
        """The entries for the sitemaps that are `named` in the robots.txt of `origin`."""
        if not self._settings.sitemaps:
            return []
        base = f"{origin}/robots.txt"
        urls, _ = canonicalize_links(named, base, self._settings.extract.rules, MAX_SITEMAPS)
        entries, dropped = self._links.select(((url, LinkKind.SITEMAP) for url in urls), Entry(base, domain))
        for reason, count in dropped.items():
            self.on_drop(reason, count)
        return entries

    async def build(
        self,
        entry: Entry,
        verdict: Verdict,
        exchange: Exchange | None,
        settled_at: float,
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
        listed: SitemapLinks | None = None
        if target is None:
            body = await self._decoded(exchange)
            decoded_size = len(body)
            listed = await self._sitemap(body, exchange, content_type, entry.url in self.named_for(entry.url))
            found = listed.found if listed else await self._extract(body, exchange, content_type)
        else:  # the body of a redirect is a note to people whose browser does not follow it
            found = Extracted(links=(Link(target.href, LinkKind.REDIRECT),), urls=(target,))
            decoded_size = len(exchange.body)
        urls = [(url, link.kind) for url, link in zip(found.urls, found.links, strict=True)]
        entries, dropped = self._links.select(urls, entry, listed.hints if listed else NO_HINTS)
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

    async def _decoded(self, exchange: Exchange) -> bytes:
        coding = exchange.header(b"content-encoding")
        if not coding:
            return exchange.body
        return (await decode(exchange.body, coding.decode("latin-1"), self._settings.max_decoded, self.lane.run)).data

    async def _sitemap(self, body: bytes, exchange: Exchange, content_type: str, is_named: bool) -> SitemapLinks | None:
        """What the sitemap in `body` lists; None if it is none."""
        if not self._settings.sitemaps or exchange.status != HTTPStatus.OK:
            return None
        if not is_sitemap(body, content_type, is_named):
            return None
        arguments = (body, exchange.url, exchange.started_at, self._settings.extract.rules)
        if not sitemaps.is_quick(body):
            return await self.lane.run(sitemap_links, *arguments)
        return sitemap_links(*arguments)

    async def _extract(self, body: bytes, exchange: Exchange, content_type: str) -> Extracted:
        tags = [_text(value) for name, value in exchange.headers if name.lower() == b"x-robots-tag"]
        arguments = (body, exchange.url, content_type, self._settings.extract, tags)
        if not is_quick(body):
            return await self.lane.run(extract, *arguments)
        return extract(*arguments)

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
