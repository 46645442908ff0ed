"""Pages: `PageBuilder` makes one from an exchange. It decodes the body, extracts links and data, and selects the links
to crawl. `PageHandling` has items extracted, passes the page to the handlers of users, and applies what those ask for.
It has texts that take long extracted before the page is written, so that no other page waits for them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from operator import attrgetter
from weakref import WeakKeyDictionary

import msgspec

from crawler.events import Event, HandlerFailed, HandlerLinkDropped, HandlerStopsCrawl, LinkDropped, LinksPushed
from crawler.hooks import NOTHING, Handled, PageHandlers, Wanted
from crawler.page import NO_CONTENT, Exchange, Extra, Link, LinkKind, Outcome, Page, content_coding
from crawler.parse.child import DocumentOffloader
from crawler.parse.coding import decode_body
from crawler.parse.document import (
    INLINE_INPUT,
    INLINE_OUTPUT,
    Document,
    ParsedDocument,
    ParseLimits,
    noted_fields,
    robots_tags,
    usage_of,
)
from crawler.parse.encoding import MediaType
from crawler.parse.html import Extracted, ExtractPolicy, refresh_target
from crawler.parse.sitemaps import named_sitemaps
from crawler.parse.text import ContentJob, ContentWanted, is_light
from crawler.scope.extract_rules import ExtractRule, declared
from crawler.scope.next_visit import RecrawlRule
from crawler.scope.scope import NO_HINTS, LinkFilter, leads_back
from crawler.scope.shapes import Shapes
from crawler.worker.items import ItemTypes, extract_items, with_items
from crawler.worker.leases import LeasedDomain
from crawler.worker.rendering import RenderTurn, united
from crawler.worker.revisits import has_moved, with_text_digest
from crawler.worker.runtime import OpenVisit, Runtime, TimeSlice
from crawler.worker.verdict import DEFECT, NO_SITEMAP, UrlResult, last_try
from frontier.control import Control, DomainRules
from frontier.domains import domain_of, host_of
from frontier.entries import GUESSED_SITEMAP, Entry, PushMode, label_of, redirected
from frontier.errors import BadUrl
from frontier.store import batched
from frontier.urls import (
    EXCESS,
    Url,
    as_written,
    canonicalize,
    canonicalize_links,
    decoded_reference,
    origin_of,
    with_key,
)
from politeness.robots_cache import RobotsCache
from politeness.robots_match import Rules
from politeness.tdmrep import NOT_STATED, SiteUsage
from politeness.usage import NO_USAGE, Usage

_kind_of = attrgetter("kind")

LINKS_AT_ONCE = 20
"""Links that are filtered before the event loop may have to go on: about 0.2 ms, but 9 ms if the patterns of an operator
take long."""

MAX_DOUBTFUL = 10_000
"""Domains of which it is remembered that they may be, or are, outside of the crawl."""

MAX_WAITING = 100
MAX_LENT = 1_000
MAX_WAITING_BYTES = 128 << 20
"""Pages that wait for handlers and texts, from which on each domain may only have one; and the most that may wait while the
workers lend their slots, and the bytes of their bodies."""


class BuildSettings(msgspec.Struct, frozen=True):
    """`max_decoded`: the most bytes of a decoded body. `sitemaps`: whether to read sitemaps; `guess_sitemaps`: also those
    at the usual place that no robots.txt names. `via`: whether to store in
    each entry the page where its URL was found; `recrawl_rules`: which pages are visited again; `item_rules`: which
    items are extracted; `handler_tries`: requests after which a page is dead whose handler fails;
    `noarchive`: whether pages that say so are archived without their bodies, and so without what they embed."""

    extract: ExtractPolicy
    max_decoded: int
    sitemaps: bool = True
    via: bool = False
    recrawl_rules: tuple[RecrawlRule, ...] = ()
    item_rules: tuple[ExtractRule, ...] = ()
    guess_sitemaps: bool = False
    handler_tries: int = 1
    noarchive: bool = True


def bare_page(entry: Entry, result: UrlResult, exchange: Exchange | None, settled_at: float, detail: str = "") -> Page:
    """Return the page of `entry` without any data from its body. `exchange`: None without a response; `settled_at`:
    seconds since 1970; `detail`: see `Page`."""
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
        detail=detail,
        is_requisite=entry.is_requisite,
    )


class PageBuilder:
    """Builds pages. It emits an event for links that are not followed. `robots` has the sitemaps that a robots.txt
    names, `control` the domains that were forgotten: no page names a URL of one."""

    def __init__(
        self,
        runtime: Runtime,
        settings: BuildSettings,
        links: LinkFilter,
        offload: DocumentOffloader,
        robots: RobotsCache,
        control: Control,
        shapes: Shapes | None = None,
    ) -> None:
        self.shapes = shapes or Shapes()
        self.apply(settings, links)
        self._runtime = runtime
        self._control = control
        self._offload = offload
        self._robots = robots
        self._told: set[tuple[str, str]] = set()  # handlers, and reasons for which their links are not followed
        self._doubtful: dict[str, tuple[str, str]] = {}  # domain -> handler and link to report if it is unknown
        self._unknown: set[str] = set()  # domains to which links were not followed
        runtime.events.subscribe(self._note_unknown, LinksPushed)

    def apply(self, settings: BuildSettings, links: LinkFilter) -> None:
        """Use these settings and this link filter from now on."""
        self.settings = settings
        self._links = links
        self._limits = ParseLimits(settings.extract, settings.max_decoded)
        # Up to 500 names take milliseconds, and are asked for at each page of the site.
        self._named = WeakKeyDictionary[Rules, frozenset[str]]()

    def out_of_scope(self, entry: Entry) -> UrlResult | None:
        """Return the result for `entry` if it is no longer in scope, otherwise None."""
        reason = self._links.scope.judge_queued(entry)
        return UrlResult(Outcome.DENIED, reason) if reason else None

    def report_dropped(self, dropped: Mapping[str, int]) -> None:
        """Count links that are not followed, by reason."""
        for reason, count in dropped.items():
            if count:
                self._runtime.events.emit(LinkDropped(reason, count))

    async def sitemaps(self, origin: str, domain: str, named: Iterable[str]) -> list[Entry]:
        """Return the entries for the sitemaps that the robots.txt of `origin` names."""
        if not self.settings.sitemaps:
            return []
        base, rules, selected = f"{origin}/robots.txt", self.settings.extract.rules, list[Entry]()
        time_slice = TimeSlice(self._runtime.clock)
        for part in batched(tuple(named), LINKS_AT_ONCE):
            urls, _ = canonicalize_links(part, base, rules, LINKS_AT_ONCE)
            links = ((url, LinkKind.SITEMAP) for url in urls.values())
            entries, dropped = self._links.select(links, Entry(base, domain))
            selected += entries
            self.report_dropped(dropped)
            await time_slice.end_if_over()
        return self._found_on(base, selected)

    async def build(
        self,
        entry: Entry,
        result: UrlResult,
        exchange: Exchange | None,
        settled_at: float,
        site: SiteUsage = NOT_STATED,
        detail: str = "",
        render: RenderTurn | None = None,
    ) -> tuple[Page, Sequence[Entry]]:
        """Return the page of `entry`, and the entries for the links to push. `exchange`: None without a response;
        `settled_at`: seconds since 1970; `site`: what files of the site say about the use of the page; `detail`: see
        `Page`; `render`: renders the page in a browser if it needs that. Raises what that does."""
        page = bare_page(entry, result, exchange, settled_at, detail)
        origin = origin_of(entry.url)
        known = self._robots.recall(origin)
        rules = known.rules if known is not None else None
        if rules is not None and rules.licenses:
            page = msgspec.structs.replace(page, licenses=rules.licenses)
        if exchange is None:
            return (page if site is NOT_STATED else msgspec.structs.replace(page, usage=site.combined())), ()
        content_type, link = exchange.header_text(b"content-type"), exchange.header_text(b"link")
        noted = noted_fields(exchange.headers)
        is_ok = exchange.status == 200
        target = self._redirect(exchange) if 300 <= exchange.status < 400 else None
        if target is None:
            # A robots.txt or an index led here, or it is a redirect's target that is visited again, which does no harm.
            is_named = entry.hops > 0 and not entry.chain
            if not is_named and rules is not None and rules.sitemaps:
                is_named = self._is_named_sitemap(entry.url, origin, rules)
            coding = content_coding(exchange.header_text(b"content-encoding"), content_type, exchange.body)
            if exchange.encoding:
                content_type = f"{MediaType.parse(content_type).essence or 'text/html'}; charset={exchange.encoding}"
            document = Document(
                b"",
                exchange.url,
                coding,
                content_type,
                robots_tags(noted) if noted else (),
                self.settings.sitemaps and is_ok and not page.is_requisite,
                is_named,
                exchange.started_at,
                is_ok and "feed" in self.settings.extract.link_kinds,
                link,
            )
            reading = await self._offload.contents(document, self._limits, exchange)
            if refresh := exchange.header_text(b"refresh"):
                reading = reading._replace(found=self._refreshed(reading.found, refresh, exchange.url))
            if render is not None and is_ok and reading.found.error is None:
                purpose = self._runtime.policy.usage.purpose
                may_use = not purpose or not usage_of(site, noted, reading.found, is_image=False).refusal(purpose)
                if may_use and not reading.is_list:
                    page, reading = await self._rendered(page, exchange, reading, document, rules, render)
        else:  # the body of a redirect is only for browsers that do not follow it
            tag, key = entry.tag, entry.url.partition("#")[2]
            if key or tag:
                tag, key = redirected(tag, key, exchange.status, target.origin == origin)
            found = Extracted(links=(Link(target.href, LinkKind.REDIRECT),), urls=(with_key(target, key),))
            reading = ParsedDocument(found, NO_HINTS, len(exchange.body))
            page = msgspec.structs.replace(page, detail=f"to {target.href}")
        if self._control.rules.forgotten:
            reading = reading._replace(found=_without_forgotten(reading.found, self._control.rules))
        if page.is_requisite:
            return self._requisite(
                entry, page, reading, target, content_type, usage_of(site, noted, reading.found, False)
            )
        mode: PushMode = "new"
        if target is not None:
            back = leads_back(entry, with_key(target, key).href)
            mode = "again" if back else "moved" if has_moved(entry, exchange) else "new"
        of_copy: Collection[str] = ()
        if is_ok and "#" not in entry.url:
            # Error pages are alike, and say nothing of others. Nor do answers to different requests to a URL.
            sent = link + exchange.header_text(b"refresh")
            page, of_copy = self._compared(entry, page, exchange, reading.found, sent)
        entries = await self._select(entry, reading, mode, of_copy)
        if self.settings.extract.requisites and 200 <= exchange.status < 300:
            entries += self._embedded(entry, reading.found)
        if target is not None and (key or tag != entry.tag):
            entries = [msgspec.structs.replace(link, tag=tag) for link in entries]
            page = msgspec.structs.replace(page, followed=_by_tag(entries))  # for a repair
        is_guess = self.settings.guess_sitemaps and entry.depth == 0 and target is None
        if is_guess and not (rules is not None and rules.sitemaps):
            # Docusaurus, Hugo, Jekyll and others write a sitemap, but no robots.txt that names it.
            guessed = await self.sitemaps(origin, entry.domain, ["/sitemap.xml"])
            entries += [msgspec.structs.replace(sitemap, chain=GUESSED_SITEMAP) for sitemap in guessed]
        self.report_dropped(reading.found.dropped)
        page = reading.describe(page, content_type, exchange.truncated)
        if entry.chain == GUESSED_SITEMAP and target is None and not reading.is_list and exchange.status != 304:
            page = msgspec.structs.replace(page, outcome=NO_SITEMAP.outcome, reason=NO_SITEMAP.reason)
        if recrawled := self.settings.recrawl_rules:
            page = await with_text_digest(recrawled, entry, page, self._limits.max_decoded, self._offload)
        usage = usage_of(site, noted, reading.found, page.content_type.startswith("image/"))
        return (page if usage is NO_USAGE else msgspec.structs.replace(page, usage=usage)), entries

    async def _rendered(
        self,
        page: Page,
        exchange: Exchange,
        reading: ParsedDocument,
        document: Document,
        rules: Rules | None,
        render: RenderTurn,
    ) -> tuple[Page, ParsedDocument]:
        """Return `page` and its `reading` with what a browser made of it, if it needs one."""
        rendering, leased, entry = render
        delay_s = rules.crawl_delay if rules is not None else None

        def decoded() -> bytes:
            return decode_body(exchange.body, document.coding, INLINE_OUTPUT, INLINE_INPUT).data

        if (why := rendering.why(render, exchange.url, reading, delay_s, decoded)) is None:
            return page, reading
        rendered, extras = await rendering.render(leased, entry, exchange, why)
        page = msgspec.structs.replace(page, rendered=rendered, extras=extras)
        if rendered.outcome != "done":
            reading = reading._replace(cut=(*reading.cut, "render"))
        if rendered.dom is None:
            return page, reading
        url = rendered.url if origin_of(rendered.url) == origin_of(exchange.url) else exchange.url
        shown = document._replace(url=url, coding="", content_type="text/html; charset=utf-8", may_be_sitemap=False)
        found = await self._offload.contents(shown, self._limits, rendered.dom)
        static, reading = reading, united(reading, found, rendered.links, self.settings.extract)
        if not rendering.learn(render, rendered, extras, static, reading, decoded) and why == "sample":
            # Scripts may hide what the server sends, such as behind a wall: the page is what most of its like are.
            page = msgspec.structs.replace(page, rendered=msgspec.structs.replace(rendered, dom=None))
            mixed = united(found, static, rendered.links, self.settings.extract)
            reading = static._replace(found=mixed.found, cut=mixed.cut)
        if self.settings.extract.requisites:
            embedded = dict.fromkeys(reading.found.requisites)
            for sent in (extra.exchange for extra in extras if extra.kind in ("stylesheet", "frame")):
                if not 200 <= sent.status < 300:
                    continue
                tags, link = robots_tags(noted_fields(sent.headers)), sent.header_text(b"link")
                part = Document(
                    b"", sent.url, sent.content_coding, sent.header_text(b"content-type"), tags, link_header=link
                )
                inner = (await self._offload.contents(part, self._limits, sent)).found
                if not (inner.noarchive and self.settings.noarchive):
                    embedded |= dict.fromkeys(inner.requisites)
            loaded = {extra.exchange.url for extra in extras}
            left = tuple(url for url in embedded if url.href not in loaded)
            reading = reading._replace(found=msgspec.structs.replace(reading.found, requisites=left))
        return page, reading

    def _compared(
        self, entry: Entry, page: Page, exchange: Exchange, found: Extracted, sent: str
    ) -> tuple[Page, Collection[str]]:
        """Compare a page with others of its site. If its body is that of another one, its relative links may lead to more
        of the same, so all but its frames are put off. `found`: its links; `sent`: the header fields with links, which
        count as part of the body. Returns `page`, and the URLs to put off."""
        shown = page.shown or exchange

        def decoded() -> bytes:
            return decode_body(shown.body, shown.content_coding, COMPARED_BYTES, INLINE_INPUT).data

        body = shown.body + sent.encode(errors="replace") if sent else shown.body
        new = self._links.new(zip(found.urls, map(_kind_of, found.links), strict=True), entry)
        noted = self.shapes.note(entry, found.title, found.noindex, body, decoded if found.links else None, new)
        if noted.shape:
            page = msgspec.structs.replace(page, put_off=(noted.shape, noted.pages, noted.useless))
        links = zip(found.links, found.urls, strict=True) if noted.is_copy else ()
        return page, {url.href for link, url in links if link.kind in _OF_COPIES}

    def _embedded(self, entry: Entry, found: Extracted, target: Url | None = None) -> list[Entry]:
        """Return the entries for what the page or requisite `entry` embeds, or for the `target` of its redirect."""
        if found.noarchive and self.settings.noarchive:
            return []
        entries, dropped = self._links.requisites(found.requisites if target is None else (target,), entry)
        self.report_dropped(dropped)
        return self._found_on(entry.url, entries)

    def _requisite(
        self, entry: Entry, page: Page, reading: ParsedDocument, target: Url | None, content_type: str, usage: Usage
    ) -> tuple[Page, Sequence[Entry]]:
        """Return the page of the requisite `entry`, and the entries for what it embeds itself. Its links are not followed.
        A link to it that is found later makes it a page, so that each linked URL has a line, in whatever order."""
        exchange = page.exchange
        assert exchange is not None
        page = msgspec.structs.replace(reading.describe(page, content_type, exchange.truncated), links=(), usage=usage)
        if exchange.status >= 400:
            return msgspec.structs.replace(page, outcome=Outcome.DEAD), ()
        return page, self._embedded(entry, reading.found, target)

    def redirect_to_itself(self, entry: Entry, exchange: Exchange) -> str | None:
        """How the redirect in `exchange` writes the URL of `entry`, or None if it leads elsewhere."""
        location, rules = _location(exchange), self.settings.extract.rules
        if location is None or exchange.method != "GET":
            return None
        try:
            is_same = canonicalize(location, exchange.url, rules).href == entry.target
            return as_written(location, exchange.url, rules) if is_same else None
        except BadUrl:
            return None

    async def relinked(self, entry: Entry, links: Sequence[Entry], handled: Handled) -> Sequence[Entry]:
        """Return the `links` of `entry` with the changes that its handler asks for. Added URLs that are malformed, or
        that the crawl does not follow, are dropped and counted."""
        kept, left = dict[str, Entry](), list(reversed(links))

        def steps() -> Iterator[None]:
            while left:
                link = left.pop()
                if not any(pattern.is_in(link.url) for pattern in handled.dropped):
                    kept[link.url] = link
                yield

        if not await self._offload.in_steps(entry.domain, steps()):
            self.report_dropped({EXCESS: len(left)})
        wanted: dict[str, Wanted] = {}
        targets: dict[str, Url] = {}
        for link in handled.added:
            try:
                target = canonicalize(link.url, handled.base or entry.url, self.settings.extract.rules)
            except BadUrl as error:
                self.report_dropped({error.reason: 1})
                self._tell(handled.handler, error.reason, link.url)
                continue
            target = with_key(target, link.key)
            earlier = wanted.get(target.href)
            if earlier is not None and not link.key and (label := label_of(link.tag)) != label_of(earlier.tag):
                target = with_key(target, f"@{label}" if label else "")
            if target.href not in wanted:  # the first one counts, as among pages
                wanted[target.href], targets[target.href] = link, target
        rules = self._control.rules
        gone = {href for href, url in targets.items() if rules.is_forgotten(url.domain)}
        self.report_dropped({"forgotten": len(gone)})
        new = [(url, LinkKind.ANCHOR) for href, url in targets.items() if href not in kept and href not in gone]
        entries, dropped = self._links.judged(new, entry, NO_HINTS, "new", may_be_recent=True)
        self.report_dropped(dropped)
        for reason in (reason for reason in dropped if (handled.handler, reason) not in self._told):
            first = next(url.href for url, kind in new if reason in self._links.select([(url, kind)], entry)[1])
            self._tell(handled.handler, reason, first)
        kept |= {added.url: added for added in self._found_on(entry.url, entries)}
        for href, link in wanted.items():
            if (chosen := kept.get(href)) is not None:
                priority = chosen.priority if link.priority is None else link.priority
                kept[href] = msgspec.structs.replace(chosen, priority=priority, tag=link.tag)
        kept = {href: link for href, link in kept.items() if not self._links.is_recent(link)}
        if self._links.scope.kind == "seeds" and (handled.handler, "outside") not in self._told:
            for href, target in targets.items():
                if href not in kept and target.domain in self._unknown:  # it was offered before
                    self._tell(handled.handler, "outside", href)
                elif href in kept and kept[href].mode == "known":
                    self._doubtful[target.domain] = handled.handler, href
        return list(kept.values())

    def _note_unknown(self, event: Event) -> None:
        """Say which handlers want links followed to domains that the crawl does not know: the push has told."""
        if not isinstance(event, LinksPushed) or not event.unknown:
            return
        for domain in event.unknown & self._doubtful.keys():
            self._tell(self._doubtful[domain][0], "outside", self._doubtful[domain][1])
        for domains in (self._doubtful, self._unknown):
            if len(domains) > MAX_DOUBTFUL:
                domains.clear()
        self._unknown |= event.unknown

    def _tell(self, handler: str, reason: str, url: str) -> None:
        """Say once that `handler` wants links followed that are not, for `reason`, with the first of them."""
        if (handler, reason) not in self._told:
            self._told.add((handler, reason))
            self._runtime.events.emit(HandlerLinkDropped(handler, reason, url))

    def _is_named_sitemap(self, url: str, origin: str, rules: Rules) -> bool:
        if rules not in self._named:
            self._named[rules] = named_sitemaps(rules.sitemaps, origin, self.settings.extract.rules)
        return url in self._named[rules]

    async def _select(
        self, entry: Entry, reading: ParsedDocument, mode: PushMode, of_copy: Collection[str]
    ) -> list[Entry]:
        """Return the entries for the links to follow. Emits an event for those that are dropped. `mode`: how they are
        pushed; `of_copy`: URLs to put off."""
        found = reading.found
        selected: list[Entry] = []
        links = list(zip(found.urls, map(_kind_of, found.links), strict=True))
        if not (
            entry.tag and links and links[0][1] is LinkKind.REDIRECT
        ):  # its target may have been queued without the tag
            links = self._links.not_recent(links, mode)
        at = 0

        def steps() -> Iterator[None]:
            nonlocal at
            while at < len(links):
                part = links[at : at + LINKS_AT_ONCE]
                at += len(part)
                entries, dropped = self._links.judged(part, entry, reading.hints, mode, of_copy=of_copy)
                selected.extend(entries)
                self.report_dropped(dropped)
                yield

        if links and not await self._offload.in_steps(entry.domain, steps()):
            self.report_dropped({EXCESS: len(links) - at})
        return self._found_on(entry.url, selected)

    def _found_on(self, via: str, entries: list[Entry]) -> list[Entry]:
        return [msgspec.structs.replace(entry, via=via) for entry in entries] if self.settings.via else entries

    def _refreshed(self, found: Extracted, refresh: str, url: str) -> Extracted:
        """Return `found` with where the header field `refresh` of the page at `url` leads, as its `meta` would."""
        target = refresh_target(refresh)
        if target is None or (found.nofollow and self.settings.extract.obey_nofollow):
            return found
        try:
            to = canonicalize(target, url, self.settings.extract.rules)
        except BadUrl as error:
            self.report_dropped({error.reason: 1})
            return found
        if to in found.urls:
            return found
        return msgspec.structs.replace(
            found, links=(*found.links, Link(to.href, LinkKind.LINK)), urls=(*found.urls, to)
        )

    def _redirect(self, exchange: Exchange) -> Url | None:
        if (location := _location(exchange)) is None:
            return None
        try:
            return canonicalize(location, exchange.url, self.settings.extract.rules)
        except BadUrl as error:
            self.report_dropped({error.reason: 1})
            return None


def _location(exchange: Exchange) -> str | None:
    location = exchange.header(b"location")
    # An empty one leads nowhere in browsers, though it is a reference to the same page.
    return decoded_reference(location) if location else None


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


_OF_COPIES = frozenset({LinkKind.ANCHOR, LinkKind.LINK})
"""Links that are put off from a page with the body of another one. Its frames are parts of the page."""

COMPARED_BYTES = 65_536
"""Bytes of a decoded body that are compared with those of other pages."""


class PageHandling:
    """Has pages handled. `builder` builds them, and checks the links that `handlers` add; None if there are none.
    `types`: checks items. `wanted`: the content that is extracted here if that takes long; the archive extracts that of
    other pages.

    While a page waits for a handler or such a text, its worker waits in the block of `waiting`, so that another worker
    has its slot, and the next request to the domain need not wait. If too many pages wait, the workers keep their
    slots, which slows fetching. `begin_visit`: returns what makes the requests of a handler."""

    def __init__(
        self,
        builder: PageBuilder,
        types: ItemTypes,
        wanted: ContentWanted,
        offload: DocumentOffloader,
        handlers: PageHandlers | None,
        waiting: Callable[[LeasedDomain, bool], AbstractAsyncContextManager[None]],
        runtime: Runtime,
        begin_visit: Callable[[LeasedDomain], OpenVisit],
    ) -> None:
        self._builder = builder
        self._types = types
        self._wanted = wanted
        self._offload = offload
        self._handlers = handlers
        self._waits = waiting
        self._runtime, self._events = runtime, runtime.events
        self._begin_visit = begin_visit
        self._waiting = self._waiting_bytes = 0
        self._types.apply(declared(builder.settings.item_rules))

    def apply(self, settings: BuildSettings, links: LinkFilter) -> None:
        """Use these settings and this link filter from now on."""
        self._builder.apply(settings, links)
        self._types.apply(declared(settings.item_rules))

    async def handle(
        self, leased: LeasedDomain, entry: Entry, page: Page, links: Sequence[Entry]
    ) -> tuple[Page, Sequence[Entry]]:
        """Return `page`, the one of `entry` of `leased`, with its items, and its `links` as its handler wants them. If
        the handler fails finally, the page is dead and has no links but those that a handler for failures adds. When it is
        fetched again, its handler can still choose and label them. Raises RetryWanted if the page is to be fetched again
        now, and VisitInterrupted."""
        if page.exchange is not None and 200 <= page.exchange.status < 300:
            settings = self._builder.settings
            page = await extract_items(page, settings.item_rules, settings.max_decoded, self._offload, self._events)
        if self._handlers is None:
            return await self._types.checked(page), links
        handled = NOTHING
        if page.items and self._handlers.changes_items:
            async with self._awaiting(leased, page):
                handled = await self._handlers.changed(page.items)
            page = with_items(page, handled.items, handled.rejected)
        if not handled.reason:
            if not self._handlers.wants(page):
                return await self._types.checked(page), links
            handled, page = await self._call_handler(self._handlers, leased, page)
        if handled.reason:
            page, links = self._failed(entry, page, links, handled), ()
            if handled.is_of_failure or not self._handlers.wants(page):
                return page, links
            handled, page = await self._call_handler(self._handlers, leased, page)
            if handled.reason:
                self._events.emit(HandlerFailed(handled.handler, page.url, handled.error, handled.reason))
                return page, links
        if handled.stop is not None:
            self._events.emit(HandlerStopsCrawl(handled.handler, page.url, handled.stop))
        if handled.items or handled.rejected:
            page = with_items(page, (*page.items, *handled.items), handled.rejected)
        if handled.added or handled.dropped:
            links = await self._builder.relinked(entry, links, handled)
            page = msgspec.structs.replace(page, followed=_by_tag(links))
        return await self._types.checked(page), links

    def _failed(self, entry: Entry, page: Page, links: Sequence[Entry], handled: Handled) -> Page:
        """Return `page` as it ends after its handler has failed. Raises RetryWanted if it is fetched again instead."""
        failed = HandlerFailed(handled.handler, page.url, handled.error or "Retry", handled.reason)
        if handled.retry_after_s is None:
            self._events.emit(failed)
            is_last = page.outcome is Outcome.DEAD or entry.was_sent
            tries = max(self._builder.settings.handler_tries, self._runtime.policy.tries if handled.may_pass else 1)
            tries = 1 if is_last else tries
        else:
            tries = self._runtime.policy.tries
        result = last_try(UrlResult(Outcome.RETRY, handled.reason), entry.tries, tries)
        if result.outcome is Outcome.RETRY:
            raise RetryWanted(handled, result, page.extras)
        if handled.retry_after_s is not None:
            self._events.emit(failed)
        self._builder.report_dropped({handled.reason: len(links)})
        reason = page.reason if page.outcome is Outcome.DEAD else handled.reason
        return msgspec.structs.replace(
            page, outcome=Outcome.DEAD, reason=reason, handler_error=failed.error, items=(), followed={}
        )

    async def _call_handler(self, handlers: PageHandlers, leased: LeasedDomain, page: Page) -> tuple[Handled, Page]:
        """Return what the handler of `page` asks for, and the page with what it has fetched."""
        visit = self._begin_visit(leased)
        try:
            async with self._awaiting(leased, page):
                handled = await handlers.handle(page, visit)
        finally:
            visit.end()
        visit.check_interrupted()
        if visit.may_pass and handled.reason:
            handled = msgspec.structs.replace(handled, may_pass=True)
        return handled, msgspec.structs.replace(page, extras=(*page.extras, *visit.extras)) if visit.extras else page

    def links_after_defect(self, links: Sequence[Entry]) -> Sequence[Entry]:
        """Return those of the `links` of a page that are followed although an unexpected exception ended its handling:
        none that a handler could have chosen and labelled."""
        if self._handlers is None:
            return links
        self._builder.report_dropped({DEFECT.reason: len(links)})
        return ()

    async def with_content(self, leased: LeasedDomain, page: Page) -> Page:
        """Return `page` of `leased` with its text and data, if extracting them takes long. It has none if its domain
        has used up its budget."""
        if is_light(page, self._wanted):
            return page
        assert page.exchange is not None
        async with self._awaiting(leased, page):
            content = await self._offload.content(ContentJob.of(page, self._wanted), page.shown or page.exchange)
        if content is None:
            return msgspec.structs.replace(page, content=NO_CONTENT, cut=(*page.cut, "budget"))
        return msgspec.structs.replace(page, content=content)

    @asynccontextmanager
    async def _awaiting(self, leased: LeasedDomain, page: Page) -> AsyncIterator[None]:
        """A block in which `page` waits. It holds up nobody, unless too much is waiting already."""
        size = len(page.exchange.body) if page.exchange else 0
        if self._waiting >= MAX_LENT or self._waiting_bytes + size > MAX_WAITING_BYTES:
            leased.held_back += 1
            leased.turn_ended()
            try:
                yield
            finally:
                leased.held_back -= 1
            return
        self._waiting, self._waiting_bytes = self._waiting + 1, self._waiting_bytes + size
        try:
            async with self._waits(leased, self._waiting > MAX_WAITING):
                yield
        finally:
            self._waiting, self._waiting_bytes = self._waiting - 1, self._waiting_bytes - size


class RetryWanted(Exception):
    """Raised if a page is to be fetched again because of what its handler did."""

    def __init__(self, handled: Handled, result: UrlResult, extras: tuple[Extra, ...]) -> None:
        super().__init__(handled.error)
        self.extras = extras
        self.after_s = handled.retry_after_s or 0.0
        self.result = result


def _by_tag(links: Sequence[Entry]) -> dict[str, tuple[str, ...]]:
    """The URLs of `links` by their tags, without those whose requests have secrets: lines of pages have all others."""
    found: dict[str, list[str]] = {}
    for link in links:
        if (request := link.request) is None or not request.has_secrets:
            found.setdefault(link.tag, []).append(link.url)
    return {tag: tuple(urls) for tag, urls in found.items()}
