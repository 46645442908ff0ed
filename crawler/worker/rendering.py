"""Renders pages in a browser, as part of their visits: decides which pages, answers the browser's requests through the
crawl's own (`crawler.worker.extra`), and unites what the page had before with what it has then.

Scripts and style sheets are the same on all pages of a site, so they are kept in memory (`SharedCache`): the most polite
request is none. A request that a page makes again and again is made once at a time.

A failure of the browser fails no page: the page as the server has sent it is the result. While no browser works, pages that
want one wait, or are settled as they are (`RenderPolicy.waits`).
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import msgspec

from crawler.errors import BrowserFailed, Refused
from crawler.events import BrowserNeeded, PageRendered
from crawler.hooks import HttpRequest
from crawler.page import Action, Exchange, Extra, Link, LinkKind, Rendered, WhyRendered
from crawler.parse.coding import decode_body
from crawler.parse.document import ParsedDocument
from crawler.parse.html import ExtractPolicy
from crawler.parse.needs_scripts import MAX_SCRIPT, count_words, data_traits, needs_scripts, quoted_words, traits_of
from crawler.scope.page_steps import PageSteps, Step
from crawler.scope.shapes import Recent, shapes_of
from crawler.worker.leases import LeasedDomain
from crawler.worker.render_choice import RenderChoice, has_gained, is_evidence
from crawler.worker.runtime import OpenVisit, Runtime
from frontier.domains import domain_of, host_of
from frontier.entries import Entry
from frontier.errors import BadUrl
from frontier.urls import Url, UrlPattern, canonicalize

CACHE_BYTES = 64 << 20
LEAST_FRESH_S = 300.0
"""For how long scripts, style sheets and fonts are kept at least, unless their response forbids it: a page that was changed
minutes ago is rendered with the script of a moment ago."""

LONGEST_DELAY_S = 10.0
"""An origin that asks for a longer delay in its robots.txt asks for few requests, so its pages are only rendered if
`RenderPolicy.always` names them."""


MOST_WORDS = 20_000
"""Words of the scripts of a domain that are remembered."""


class PageRenderer(Protocol):
    """What renders pages: `crawler.browser.Renderer`, which says what its methods do."""

    async def render(
        self,
        exchange: Exchange,
        answer: Callable[[HttpRequest], Awaitable[Exchange]],
        *,
        takes_screenshot: bool = False,
        steps: tuple[Step, ...] = (),
    ) -> Rendered: ...

    async def stop(self) -> None: ...


class BrowserRequestPolicy(msgspec.Struct, frozen=True):
    """How the requests of a page in a browser are made. All belong to the visit of the page, so the delay of a domain is
    not kept between them: at most `parallel` are in flight to a domain, and each adds `share` of the delay to that after
    the visit. `obeys_robots`: the robots.txt of each origin decides, not only that of the page."""

    parallel: int = 2
    share: float = 0.1
    obeys_robots: bool = True


class RenderPolicy(msgspec.Struct, frozen=True):
    """Which pages are rendered: those with a URL in which one of `never` is found are not, those with one of `always` are,
    and others as `mode` says. `time_s`: of a page; `waits`: pages wait while no browser works; `steps`: what
    browsers do with them."""

    mode: Literal["auto", "always"]
    always: tuple[UrlPattern, ...] = ()
    never: tuple[UrlPattern, ...] = ()
    requests: BrowserRequestPolicy = BrowserRequestPolicy()
    time_s: float = 20.0
    takes_screenshot: bool = False
    waits: bool = True
    steps: PageSteps = msgspec.field(default_factory=PageSteps)


@dataclass(eq=False, repr=False)
class PageRendering:
    """Renders the pages of a replica. `begin_visit`: returns what makes the requests; `actions`: see `UrlVisits`.
    `waiting`: a block in which a domain waits, while its worker serves others."""

    runtime: Runtime
    renderer: PageRenderer
    policy: RenderPolicy
    begin_visit: Callable[[LeasedDomain, BrowserRequestPolicy], OpenVisit]
    waiting: Callable[[LeasedDomain], AbstractAsyncContextManager[None]]
    actions: Callable[[str], Action | None] | None = None
    _choice: RenderChoice = field(default_factory=RenderChoice, init=False)
    _words: Recent[str, set[bytes]] = field(default_factory=lambda: Recent(200), init=False)  # of scripts, by domain
    _cache: SharedCache = field(init=False)

    def __post_init__(self) -> None:
        self._cache = SharedCache(self.runtime.now)

    def why(
        self,
        turn: RenderTurn,
        url: str,
        reading: ParsedDocument,
        delay_s: float | None,
        decoded: Callable[[], bytes],
    ) -> WhyRendered | None:
        """Why the page of `turn` at `url`, an HTML document that was read as `reading`, is rendered; None if it is not.
        `delay_s`: what its robots.txt asks for, or None; `decoded`: returns its body."""
        if any(pattern.is_in(url) for pattern in self.policy.never):
            return None
        if any(pattern.is_in(url) for pattern in self.policy.always):
            return "pattern"
        if (delay_s or 0.0) > LONGEST_DELAY_S:
            return None
        if self.policy.mode == "always":
            return "always"
        found = reading.found
        body = decoded()
        need = needs_scripts(body, found.charset, len(found.links))
        self._choice.recall(turn.entry.domain, turn.leased.learnt)
        return self._choice.choose(turn.entry, need, lambda: self._traits_of(turn.entry, body))

    def _traits_of(self, entry: Entry, body: bytes) -> frozenset[int]:
        return traits_of(body, entry.url, self._words.get(entry.domain) or set())

    def learn(
        self,
        turn: RenderTurn,
        rendered: Rendered,
        extras: Iterable[Extra],
        static: ParsedDocument,
        dom: ParsedDocument,
        decoded: Callable[[], bytes],
    ) -> bool:
        """Learn from the page of `turn`, which was read as `static` before and as `dom` after it was rendered, and needed
        `extras`. Returns whether it has more than before, or may have. `decoded`: see `why`."""
        if self.policy.mode != "auto" or rendered.dom is None or not is_evidence(rendered):
            return True
        entry, body = turn.entry, decoded()
        words, words_of_dom = count_words(body, static.found.charset), count_words(rendered.dom.body, "utf-8")
        gained = has_gained(rendered.why, static, dom, entry.domain, words, words_of_dom)
        asked = (extra.exchange.url for extra in extras if extra.kind == "xhr")
        data = data_traits(url for url in asked if domain_of(host_of(url)) == entry.domain)
        turn.leased.learnt = self._choice.learn(entry, rendered.why, gained, self._traits_of(entry, body), data)
        return gained

    def to_visit_again(self, entry: Entry) -> list[Entry]:
        """The pages that were settled without a browser, and that need one, as the page of `entry` has shown."""
        if self.policy.mode != "auto":
            return []
        if skipped := self._choice.take_skipped(entry):
            self.runtime.events.emit(BrowserNeeded(shapes_of(entry.url)[1], len(skipped)))
        return skipped

    async def render(
        self, leased: LeasedDomain, entry: Entry, exchange: Exchange, why: WhyRendered
    ) -> tuple[Rendered, tuple[Extra, ...]]:
        """Render the page of `entry`, which the server has sent as `exchange`. Returns it with the exchanges that it
        needed. Raises BrowserFailed if the page has to wait, and VisitInterrupted."""
        visit = self.begin_visit(leased, self.policy.requests)

        async def answer(request: HttpRequest) -> Exchange:
            if self.actions is not None and (action := self.actions(request.url)):
                raise Refused(action)
            loaded = await self._cache.get(request, visit.send)
            if request.kind == "script" and why == "sample":
                self._note_words(entry.domain, loaded)
            return loaded

        try:
            async with self.waiting(leased):
                visit.ends_in(self.policy.time_s)
                policy = self.policy
                rendered = await self.renderer.render(
                    exchange, answer, takes_screenshot=policy.takes_screenshot, steps=policy.steps.of(exchange.url)
                )
        except BrowserFailed:
            if self.policy.waits:
                raise
            rendered = Rendered("gone", 0.0)
        finally:
            visit.end()
        visit.check_interrupted()
        rendered = msgspec.structs.replace(rendered, why=why, shape=self._choice.name(entry, why))
        self.runtime.events.emit(PageRendered(exchange.url, rendered))
        return rendered, tuple(visit.extras)

    def _note_words(self, domain: str, script: Exchange) -> None:
        if (words := self._words.get(domain)) is None:
            self._words.put(domain, words := set())
        if len(words) < MOST_WORDS:
            body = decode_body(script.body, script.content_coding, MAX_SCRIPT).data
            words |= quoted_words(body)


class RenderTurn(NamedTuple):
    """What renders the page of `entry` of `leased`, if it needs that."""

    rendering: PageRendering
    leased: LeasedDomain
    entry: Entry


def united(base: ParsedDocument, over: ParsedDocument, links: tuple[str, ...], policy: ExtractPolicy) -> ParsedDocument:
    """`base` with what is in `over`, which counts where they differ, and with the `links` of its scripts. What either
    forbids is forbidden."""
    before, after = base.found, over.found
    pairs = dict(zip(after.urls, after.links, strict=True))
    if before.nofollow and policy.obey_nofollow:
        pairs.clear()
    else:
        for written in links:
            try:
                url = canonicalize(written, None, policy.rules)
            except BadUrl:
                continue
            pairs.setdefault(url, Link(url.href, LinkKind.SCRIPT))
    for url, link in zip(before.urls, before.links, strict=True):
        pairs.setdefault(url, link)
    kept: list[tuple[Url, Link]] = list(pairs.items())[: policy.max_links]
    either = ("title", "lang", "canonical", "nofollow", "noindex", "noarchive", "noai", "noimageai", "tdm")
    found = msgspec.structs.replace(
        after,
        urls=tuple(url for url, _ in kept),
        links=tuple(link for _, link in kept),
        **{name: getattr(after, name) or getattr(before, name) for name in either},
    )
    cut = tuple(dict.fromkeys((*base.cut, *over.cut)))
    return base._replace(found=found, cut=cut)


_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=\"?([0-9]{1,9})")
_KEPT_KINDS = frozenset({"script", "stylesheet", "font", "image"})


class SharedCache:
    """Responses for pages that need the same (a part of RFC 9111). `now`: monotonic seconds."""

    def __init__(self, now: Callable[[], float], most_bytes: int = CACHE_BYTES) -> None:
        self._now = now
        self._most = most_bytes
        self._kept: OrderedDict[tuple[str, str], tuple[float, Exchange]] = OrderedDict()
        self._size = 0
        self._asking: dict[tuple[str, str], asyncio.Future[None]] = {}

    async def get(self, request: HttpRequest, send: Callable[[HttpRequest], Awaitable[Exchange]]) -> Exchange:
        """Return the response to `request`: a kept one, or that of `send`. Raises what that does."""
        if request.kind not in _KEPT_KINDS or request.method != "GET":
            return await send(request)
        origin = next((value for name, value in request.fields if name.lower() == "origin"), "")
        key = request.url, origin
        while (exchange := self._fresh(key)) is None and (asking := self._asking.get(key)) is not None:
            await asyncio.wait([asking])
            if self._fresh(key) is None:
                break  # it is not kept, so each page needs its own
        if exchange is None and (exchange := self._fresh(key)) is None:
            done = self._asking[key] = asyncio.get_running_loop().create_future()
            try:
                exchange = await send(request)
                self._keep(key, exchange)
            finally:
                if self._asking.get(key) is done:
                    del self._asking[key]
                done.set_result(None)
        return exchange

    def _fresh(self, key: tuple[str, str]) -> Exchange | None:
        until, exchange = self._kept.get(key, (0.0, None))
        if exchange is None or until <= self._now():
            return None
        self._kept.move_to_end(key)
        return exchange

    def _keep(self, key: tuple[str, str], exchange: Exchange) -> None:
        for_s = fresh_for_s(exchange)
        if not for_s or len(exchange.body) > self._most // 8:
            return
        _, before = self._kept.pop(key, (0.0, None))
        self._kept[key] = self._now() + for_s, exchange
        self._size += _held_bytes(exchange) - (_held_bytes(before) if before else 0)
        while self._size > self._most:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._size -= _held_bytes(oldest)


def _held_bytes(exchange: Exchange) -> int:
    """The memory of a response, about: its fields are kept as they came, and parsed."""
    return len(exchange.body) + 3 * len(exchange.request_head + exchange.response_head) + 1_000


def fresh_for_s(exchange: Exchange) -> float:
    """For how many seconds the response `exchange` may be used again for other pages; 0: not at all."""
    control = exchange.header_text(b"cache-control").lower()
    vary = exchange.header_text(b"vary").lower().replace(" ", "")
    if exchange.status != 200 or exchange.truncated or exchange.header(b"set-cookie") is not None:
        return 0.0
    if any(word in control for word in ("no-store", "no-cache", "private")):
        return 0.0
    if not set(vary.split(",")) <= {"", "accept-encoding", "origin", "user-agent"}:
        return 0.0
    named = _MAX_AGE.search(control)
    return max(LEAST_FRESH_S, float(named[1]) if named else 0.0)
