"""Builds a page from an exchange: decodes the body, extracts links and data, and selects the links to crawl."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from operator import attrgetter
from weakref import WeakKeyDictionary

import msgspec

from crawler.events import Events, LinkDropped
from crawler.hooks import Handled, Wanted
from crawler.page import Exchange, Link, LinkKind, Page
from crawler.parse.child import DocumentOffloader
from crawler.parse.document import (
    NOTED,
    Document,
    Fields,
    ParsedDocument,
    ParseLimits,
    noted_fields,
    read_if_small,
    robots_tags,
    usage_of,
)
from crawler.parse.html import Extracted, ExtractPolicy
from crawler.parse.sitemaps import named_sitemaps
from crawler.scope.next_visit import RecrawlRule
from crawler.scope.scope import NO_HINTS, LinkFilter, leads_back
from crawler.worker.outcomes import UrlResult
from crawler.worker.visit_planning import has_moved, with_text_digest
from frontier.control import Control, DomainRules
from frontier.domains import domain_of, host_of
from frontier.entries import Entry, PushMode
from frontier.errors import BadUrl
from frontier.urls import Url, as_written, canonicalize, canonicalize_links, origin_of
from politeness.robots_cache import RobotsCache
from politeness.robots_match import Rules
from politeness.tdmrep import NOT_STATED, SiteUsage
from politeness.usage import NO_USAGE

MAX_SITEMAPS = 500
"""The most sitemaps that are taken from one robots.txt."""

SLICE = 500
"""Links that are filtered before yielding to the event loop: about 4 ms."""


class BuildSettings(msgspec.Struct, frozen=True):
    """`max_decoded`: the most bytes of a decoded body. `sitemaps`: whether to read sitemaps. `via`: whether to store in
    each entry the page where its URL was found; `recrawl_rules`: which pages are visited again."""

    extract: ExtractPolicy
    max_decoded: int
    sitemaps: bool = True
    via: bool = False
    recrawl_rules: tuple[RecrawlRule, ...] = ()


def bare_page(entry: Entry, result: UrlResult, exchange: Exchange | None, settled_at: float) -> Page:
    """Return the page of `entry` without any data from its body. `exchange`: None without a response; `settled_at`: seconds
    since 1970."""
    return Page(
        url=entry.url,
        domain=entry.domain,
        depth=entry.depth,
        outcome=result.outcome,
        reason=result.reason,
        settled_at=settled_at,
        tries=entry.tries,
        exchange=exchange,
        via=entry.via,
        tag=entry.tag,
    )


class PageBuilder:
    """Builds pages. It emits an event for links that are not followed. `robots` has the sitemaps that a robots.txt
    names, `control` the domains that were forgotten: no page names a URL of one."""

    def __init__(
        self,
        settings: BuildSettings,
        links: LinkFilter,
        offload: DocumentOffloader,
        robots: RobotsCache,
        events: Events,
        control: Control | None = None,
    ) -> None:
        self.apply(settings, links)
        self._control = control
        self._offload = offload
        self._robots = robots
        self._events = events

    def apply(self, settings: BuildSettings, links: LinkFilter) -> None:
        """Use these settings and this link filter from now on."""
        self._settings = settings
        self._links = links
        self._limits = ParseLimits(settings.extract, settings.max_decoded)
        # Up to 500 names take milliseconds, and are asked for at each page of the site.
        self._named = WeakKeyDictionary[Rules, frozenset[str]]()

    @property
    def recrawl_rules(self) -> tuple[RecrawlRule, ...]:
        """Which pages are visited again; empty for none."""
        return self._settings.recrawl_rules

    def _report_dropped(self, dropped: Mapping[str, int]) -> None:
        for reason, count in dropped.items():
            self._events.emit(LinkDropped(reason, count))

    def sitemaps(self, origin: str, domain: str, named: Iterable[str]) -> list[Entry]:
        """Return the entries for the sitemaps that the robots.txt of `origin` names."""
        if not self._settings.sitemaps:
            return []
        base = f"{origin}/robots.txt"
        urls, _ = canonicalize_links(named, base, self._settings.extract.rules, MAX_SITEMAPS)
        entries, dropped = self._links.select(((url, LinkKind.SITEMAP) for url in urls.values()), Entry(base, domain))
        self._report_dropped(dropped)
        return self._found_on(base, entries)

    async def build(
        self,
        entry: Entry,
        result: UrlResult,
        exchange: Exchange | None,
        settled_at: float,
        site: SiteUsage = NOT_STATED,
    ) -> tuple[Page, Sequence[Entry]]:
        """Return the page of `entry`, and the entries for the links to push. `exchange`: None without a response;
        `settled_at`: seconds since 1970; `site`: what files of the site say about the use of the page."""
        page = bare_page(entry, result, exchange, settled_at)
        origin = origin_of(entry.url)
        known = self._robots.recall(origin)
        rules = known.rules if known is not None else None
        if rules is not None and rules.licenses:
            page = msgspec.structs.replace(page, licenses=rules.licenses)
        if exchange is None:
            return (page if site is NOT_STATED else msgspec.structs.replace(page, usage=site.combined())), ()
        fields = [(name, value) for key, value in exchange.headers if (name := key.lower()) in _READ]
        content_type, coding = _text(fields, b"content-type"), _text(fields, b"content-encoding")
        noted = noted_fields(fields)
        target = self._redirect(exchange) if 300 <= exchange.status < 400 else None
        if target is None:
            is_named = rules is not None and bool(rules.sitemaps) and self._is_named_sitemap(entry.url, origin, rules)
            tags = robots_tags(noted) if noted else ()
            has_sitemaps = self._settings.sitemaps and exchange.status == HTTPStatus.OK
            document = Document(
                exchange.body, exchange.url, coding, content_type, tags, has_sitemaps, is_named, exchange.started_at
            )
            reading = read_if_small(document, self._limits) or await self._offload.read(document, self._limits)
        else:  # the body of a redirect is only for browsers that do not follow it
            found = Extracted(links=(Link(target.href, LinkKind.REDIRECT),), urls=(target,))
            reading = ParsedDocument(found, NO_HINTS, len(exchange.body))
        if self._control is not None and self._control.rules.forgotten:
            reading = reading._replace(found=_without_forgotten(reading.found, self._control.rules))
        mode: PushMode = "new"
        if target is not None:
            back = leads_back(entry, target.href)
            mode = "again" if back else "moved" if has_moved(entry, exchange) else "new"
        entries = await self._select(entry, reading, mode)
        self._report_dropped(reading.found.dropped)
        page = reading.describe(page, content_type, exchange.truncated)
        if recrawled := self._settings.recrawl_rules:
            page = await with_text_digest(recrawled, entry, page, self._limits.max_decoded, self._offload)
        usage = usage_of(site, noted, reading.found, page.content_type.startswith("image/"))
        return (page if usage is NO_USAGE else msgspec.structs.replace(page, usage=usage)), entries

    def redirect_to_itself(self, entry: Entry, exchange: Exchange) -> str | None:
        """How the redirect in `exchange` writes the URL of `entry`, or None if it leads elsewhere."""
        location, rules = _location(exchange), self._settings.extract.rules
        if location is None:
            return None
        try:
            is_same = canonicalize(location, exchange.url, rules).href == entry.url
            return as_written(location, exchange.url, rules) if is_same else None
        except BadUrl:
            return None

    def relinked(self, entry: Entry, links: Sequence[Entry], handled: Handled) -> Sequence[Entry]:
        """Return the `links` of `entry` with the changes that its handler asks for. Added URLs that are malformed, or that
        the crawl does not follow, are dropped and counted."""
        kept = {link.url: link for link in links if not any(pattern.is_in(link.url) for pattern in handled.dropped)}
        wanted: dict[str, Wanted] = {}
        found: dict[str, Url] = {}
        for one in handled.added:
            try:
                target = canonicalize(one.url, entry.url, self._settings.extract.rules)
            except BadUrl as error:
                self._report_dropped({error.reason: 1})
                continue
            wanted[target.href], found[target.href] = one, target
        if self._control is not None:
            rules = self._control.rules
            gone = [href for href, url in found.items() if rules.is_forgotten(url.domain)]
            self._report_dropped({"forgotten": len(gone)} if gone else {})
            found = {href: url for href, url in found.items() if href not in gone}
        new = [(url, LinkKind.ANCHOR) for href, url in found.items() if href not in kept]
        entries, dropped = self._links.select(new, entry)
        self._report_dropped(dropped)
        kept |= {one.url: one for one in self._found_on(entry.url, entries)}
        for href, one in wanted.items():
            if (link := kept.get(href)) is not None:
                priority = link.priority if one.priority is None else one.priority
                kept[href] = msgspec.structs.replace(link, priority=priority, tag=one.tag)
        return list(kept.values())

    def _is_named_sitemap(self, url: str, origin: str, rules: Rules) -> bool:
        """Whether `rules`, the robots.txt of `origin`, names `url` as a sitemap."""
        if rules not in self._named:
            self._named[rules] = named_sitemaps(rules.sitemaps, origin, self._settings.extract.rules)
        return url in self._named[rules]

    async def _select(self, entry: Entry, reading: ParsedDocument, mode: PushMode) -> list[Entry]:
        """Return the entries for the links to follow. Emits an event for those that are dropped. `mode`: how they are
        pushed."""
        found = reading.found
        selected: list[Entry] = []
        for at in range(0, len(found.urls), SLICE):
            if at:
                await asyncio.sleep(0)
            links = zip(found.urls[at : at + SLICE], map(_kind_of, found.links[at : at + SLICE]), strict=True)
            entries, dropped = self._links.select(links, entry, reading.hints, mode)
            selected += entries
            self._report_dropped(dropped)
        return self._found_on(entry.url, selected)

    def _found_on(self, via: str, entries: list[Entry]) -> list[Entry]:
        """Return `entries` with the page where they were found, if `via` is set."""
        return [msgspec.structs.replace(entry, via=via) for entry in entries] if self._settings.via else entries

    def _redirect(self, exchange: Exchange) -> Url | None:
        """Return where `exchange` redirects (RFC 9110 10.2.2), or None."""
        if (location := _location(exchange)) is None:
            return None
        try:
            return canonicalize(location, exchange.url, self._settings.extract.rules)
        except BadUrl as error:
            self._events.emit(LinkDropped(error.reason, 1))
            return None


def _location(exchange: Exchange) -> str | None:
    location = exchange.header(b"location")
    # Non-ASCII bytes are UTF-8 in practice; the URL standard percent-encodes them.
    return None if location is None else location.decode("utf-8", "replace")


_kind_of: Callable[[Link], LinkKind] = attrgetter("kind")


def _without_forgotten(found: Extracted, rules: DomainRules) -> Extracted:
    """Return `found` without the URLs of forgotten domains, which count as dropped."""
    gone = {domain for domain in {url.domain for url in found.urls} if rules.is_forgotten(domain)}
    canonical = found.canonical
    if canonical and rules.is_forgotten(domain_of(host_of(canonical))):
        canonical = ""
    kept = [(link, url) for link, url in zip(found.links, found.urls, strict=True) if url.domain not in gone]
    dropped = len(found.urls) - len(kept)
    return msgspec.structs.replace(
        found,
        links=tuple(link for link, _ in kept),
        urls=tuple(url for _, url in kept),
        canonical=canonical,
        dropped={**found.dropped, "forgotten": dropped} if dropped else found.dropped,
    )


_READ = NOTED | {b"content-type", b"content-encoding"}


def _text(fields: Fields, name: bytes) -> str:
    """All values of the field `name` as one list, as `Exchange.header_list` gives them."""
    return b", ".join([value for key, value in fields if key == name]).decode("latin-1")
