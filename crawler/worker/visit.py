"""The visit to one URL of a leased domain: its request, its page, and its result. Or its result without a request."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec

from crawler.defects import Stage, defect
from crawler.errors import NOT_THE_URLS_FAULT, BrowserFailed, FailureKind, FetchFailed
from crawler.events import LoginAsked, UrlPostponed
from crawler.hooks import HttpRequest, Intervened
from crawler.page import KEPT_DENIALS, UNREADABLE, Action, Exchange, Extra, Link, Outcome, Page
from crawler.parse.document import header_usage
from crawler.scope.actions import is_login
from crawler.scope.scope import AFTER_PAGES
from crawler.scope.shapes import COPIES, PUT_OFF, Recent, put_off
from crawler.worker.commit import Committer, Result
from crawler.worker.lease_manager import PagePermits
from crawler.worker.leases import LeasedDomain
from crawler.worker.page import PageBuilder, PageHandling, RetryWanted, bare_page
from crawler.worker.rendering import PageRendering, RenderTurn
from crawler.worker.request import PoliteFetch, Throttle
from crawler.worker.revisits import SiteGains, conditions, planned
from crawler.worker.runtime import Runtime, VisitInterrupted
from crawler.worker.verdict import (
    BEHIND_PAGES,
    DEFECT,
    LATER,
    LINKED,
    MAYBE_SENT,
    NO_HTTPS,
    NO_HTTPS_FAILURES,
    NO_SITEMAP,
    NOT_FETCHED,
    REDIRECT_LOOP,
    REFUSED,
    USAGE_UNREACHABLE,
    UrlResult,
    judge_failure,
    judge_status,
    last_try,
)
from frontier.entries import GUESSED, GUESSED_SITEMAP, PLAIN, Entry
from frontier.errors import RedisAway
from frontier.settle import KEEP, SettledUrl, postpone, retry
from politeness.robots_cache import OriginRobots
from politeness.tdmrep import NOT_STATED

LOGINS = 10
"""Pages of a domain that redirect to a page for logging in before that is logged."""

_NOT_CARRIED_OUT = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""Statuses which say that nothing was done, so that a request may be sent once more that must not be repeated."""


@dataclass(eq=False, repr=False)
class UrlVisits:
    """Requests the URLs of leased domains or settles them without a request, and passes the results to the committer.
    `actions`: says what a URL does that must not be requested
    because the request would have a secret or a cookie; `rendering`: renders pages in a browser, None if it is off;
    `has_session`: whether a request has a secret or a cookie."""

    runtime: Runtime
    permits: PagePermits
    fetch: PoliteFetch
    throttle: Throttle
    builder: PageBuilder
    handling: PageHandling
    committer: Committer
    actions: Callable[[str], Action | None] | None = None
    rendering: PageRendering | None = None
    has_session: Callable[[str], bool] | None = None
    _logins: Recent[str, int] = field(default_factory=lambda: Recent(1_024), init=False)
    gains: SiteGains = field(default_factory=SiteGains, init=False)

    async def request(self, leased: LeasedDomain, entry: Entry, known: OriginRobots) -> None:
        """Request `entry`, for which a permit was taken, and pass the result to the committer. `known`: its
        robots.txt."""
        request = entry.request or PLAIN
        try:
            if request.is_sent_once:
                entry = await self._marked(leased, entry, entry.sent())
            fields = (*conditions(self.builder.settings.recrawl_rules, entry), *request.headers)
            kind, url = "requisite" if entry.is_requisite else "page", leased.written(entry)
            made = HttpRequest(url, request.method, fields, request.body, kind, request.is_private, entry.tag)
            exchange = await self.fetch.fetch(leased, made, known)
        except FetchFailed as failure:
            self.permits.give_back(entry)
            if failure.kind in NOT_THE_URLS_FAULT:
                if entry.was_sent and not failure.request_sent:
                    with contextlib.suppress(FetchFailed, RedisAway):  # then it is dead, and can be queued again
                        entry = await self._marked(leased, entry, entry.unsent())
                leased.pending.appendleft(entry)
                return
            is_last = entry.was_sent and failure.request_sent and not isinstance(failure, Intervened)
            tries = 1 if is_last else self.runtime.policy.tries
            result = last_try(judge_failure(failure.kind), entry.tries, tries)
            refused = failure.exchange if isinstance(failure, Intervened) else None
            self.throttle.update_backoff(leased, judge_status(refused.status) if refused else result, refused)
            if isinstance(failure, Intervened) and result.outcome is Outcome.RETRY:
                await self._retry(leased, entry, result, refused, failure.detail, failure.after_s)
            else:
                await self._settle(leased, entry, result, detail=failure.detail)
        except Exception as error:
            self.permits.give_back(entry)
            if isinstance(error, RedisAway):
                leased.pending.appendleft(entry)
                raise
            if self.fetch.pauses_for(leased, error):
                leased.pending.appendleft(entry)
                return
            self._report("fetch", entry, error)
            await self._settle(leased, entry, DEFECT)
        except BaseException:
            self.permits.give_back(entry)
            leased.pending.appendleft(entry)
            raise
        else:
            leased.body_bytes = len(exchange.body)
            if key := entry.url.partition("#")[2]:
                exchange = msgspec.structs.replace(exchange, url=f"{exchange.url}#{key}")
            await self._settle_response(leased, entry, exchange, known)

    async def _marked(self, leased: LeasedDomain, entry: Entry, marked: Entry) -> Entry:
        """Return `marked`, after it has replaced `entry` of `leased` in Redis. Raises RedisAway, and FetchFailed if the
        lease has ended."""
        if not await self.committer.mark_sent(leased, entry, marked):
            raise FetchFailed(FailureKind.LEASE_EXPIRED, "the lease ended before the request was sent")
        return marked

    async def verdict(self, leased: LeasedDomain, entry: Entry) -> UrlResult | None:
        """What becomes of `entry` because of its URL: it does something, brings nothing new, or is a requisite that is
        fetched as a page, or later because its domain has backed off twice. None if it is requested. Raises RedisAway."""
        if entry.was_sent:
            return MAYBE_SENT
        if entry.is_requisite and await self.committer.is_seen(msgspec.structs.replace(entry, mode="new")):
            return LINKED
        if self.actions is not None and (entry.depth or entry.hops) and (action := self.actions(entry.target)):
            return UrlResult(Outcome.DENIED, action)
        if entry.is_requisite and entry.priority > AFTER_PAGES and leased.backoff.failures > 1:
            return None if self.permits.are_spent else BEHIND_PAGES
        shapes = self.builder.shapes
        is_put_off = entry.priority <= PUT_OFF and not shapes.is_good(entry.url)
        if not is_put_off and not shapes.puts_off(entry.url, entry.domain):
            return None
        if entry.depth == 0 or entry.visit or entry.tag or entry.is_requisite or entry.url in leased.repeats:
            return None  # somebody has asked for it
        if entry.priority > PUT_OFF:
            return LATER
        return None if shapes.may_fetch(entry.domain, entry.priority) else NOT_FETCHED

    async def settle_without_request(
        self, leased: LeasedDomain, entry: Entry, result: UrlResult, known: OriginRobots | None
    ) -> None:
        """Settle `entry` as denied or dead, or postpone it: until the unreachable file in `known` is fetched again, or, if
        its shape is put off, behind all other URLs of its domain; a requisite, behind its pages. If the file was fetched,
        but cannot be applied to `entry`, retry that later. A seed without a scheme whose host does not answer over https is
        queued with http."""
        is_of_tdm = result.reason == USAGE_UNREACHABLE
        if entry.chain == GUESSED and known is not None and known.record.reason in NO_HTTPS_FAILURES:
            plain = Entry("http" + entry.url.removeprefix("https"), entry.domain, entry.priority, tag=entry.tag)
            now_s = self.runtime.server_clock.now_ms() / 1000
            page = bare_page(entry, NO_HTTPS, None, now_s)
            await self._commit(leased, SettledUrl(entry, NO_HTTPS.outcome, NO_HTTPS.reason), page, [plain])
            return
        if result in (LATER, BEHIND_PAGES):
            self.runtime.events.emit(UrlPostponed(result.reason))
            later = AFTER_PAGES if entry.is_requisite else put_off(entry.priority, entry.url)
            entry = msgspec.structs.replace(entry, priority=later)
            await self._commit(leased, postpone(entry, result.reason, self.runtime.server_clock.now_ms()))
        elif result.outcome is Outcome.RETRY and known is not None and (is_of_tdm or known.record.access == "disallow"):
            at_ms = known.record.tdm_retry_at_ms if is_of_tdm else known.record.retry_at_ms
            self.runtime.events.emit(UrlPostponed(result.reason))
            await self._commit(leased, postpone(entry, result.reason, at_ms))
        else:
            is_unreachable = known is not None and known.record.access == "disallow"
            detail = f"robots.txt: {known.record.in_words}" if known is not None and is_unreachable else ""
            await self._settle(leased, entry, result, known=known if result == REFUSED else None, detail=detail)

    async def _settle_response(
        self, leased: LeasedDomain, entry: Entry, exchange: Exchange, known: OriginRobots
    ) -> None:
        tries = 1 if entry.was_sent and exchange.status not in _NOT_CARRIED_OUT else self.runtime.policy.tries
        result = last_try(judge_status(exchange.status), entry.tries, tries)
        if result.outcome is not Outcome.DONE:
            self.permits.give_back(entry)  # a page uses its permit when it is settled
        try:
            self.throttle.update_backoff(leased, result, exchange)
        except Exception as error:
            self._report("answer", entry, error)
        if result.reason == "redirect" and (written := self.builder.redirect_to_itself(entry, exchange)):
            self.permits.give_back(entry)
            if leased.repeat(entry, written):
                purpose = self.runtime.policy.usage.purpose
                if purpose and header_usage(exchange.headers).refusal(purpose):
                    exchange = msgspec.structs.replace(exchange, body=b"", truncated=None)
                await self.committer.add(Result(leased, exchange=exchange))
                return
            result = REDIRECT_LOOP
        await self._settle(leased, entry, result, exchange, known)

    def _note_login(self, domain: str, targets: Iterable[Link]) -> None:
        """Tell once that pages of `domain` redirect to a page for logging in, because its session has ended."""
        for target in filter(is_login, (link.url for link in targets)):
            pages = (self._logins.get(domain) or 0) + 1
            self._logins.put(domain, pages)
            if pages == LOGINS:
                self.runtime.events.emit(LoginAsked(domain, target, pages))

    async def _settle(
        self,
        leased: LeasedDomain,
        entry: Entry,
        result: UrlResult,
        exchange: Exchange | None = None,
        known: OriginRobots | None = None,
        detail: str = "",
    ) -> None:
        """Pass the outcome of `entry` to the committer, with its page and links. `known`: the files of the site, if
        they may say something about the use of the page. `detail`: why the request failed, in words."""
        purpose, now_s = self.runtime.policy.usage.purpose, self.runtime.server_clock.now_ms() / 1000
        is_requisite = entry.is_requisite
        if entry.chain == GUESSED_SITEMAP and result.outcome not in (Outcome.DONE, Outcome.RETRY):
            result = NO_SITEMAP
        if result.outcome is Outcome.RETRY:
            await self._retry(leased, entry, result, exchange, detail)
            return
        links: Sequence[Entry] = ()
        try:
            site = known.usage(entry.target) if known is not None else NOT_STATED
            is_page = exchange is not None and not is_requisite
            render = RenderTurn(self.rendering, leased, entry) if self.rendering and is_page else None
            page, links = await self.builder.build(entry, result, exchange, now_s, site, detail, render)
            if result.reason == "redirect" and self.has_session is not None and self.has_session(entry.target):
                self._note_login(entry.domain, page.links)
            page = _if_allowed(page, purpose) if purpose else page
            if result is NOT_FETCHED:
                shape = self.builder.shapes.puts_off(entry.url, entry.domain) or COPIES
                page = msgspec.structs.replace(page, put_off=(shape, 0, 0))
            if page.is_withheld:
                links = [link for link in links if not link.is_requisite]
            if page.outcome is not Outcome.DENIED and not is_requisite:
                page, links = await self.handling.handle(leased, entry, page, links)
            if page.outcome is Outcome.DONE and not is_requisite:
                page = await self._with_content(leased, entry, page)
        except BrowserFailed as error:
            self.fetch.pause(leased, FailureKind.MACHINE, str(error))
            self._put_back(leased, entry, exchange, result)
            return
        except VisitInterrupted:
            self._put_back(leased, entry, exchange, result)
            return
        except RetryWanted as wanted:
            if result.outcome is Outcome.DONE:
                self.permits.give_back(entry)
            await self._retry(leased, entry, wanted.result, exchange, str(wanted), wanted.after_s, wanted.extras)
            return
        except Exception as error:
            if self.fetch.pauses_for(leased, error):
                self._put_back(leased, entry, exchange, result)
                return
            self._report("read", entry, error)
            page = bare_page(entry, DEFECT, exchange, now_s)
            page = page.withheld() if purpose else page  # what its owner says is not known
            links = self.handling.links_after_defect(links)
        is_done = page.outcome is Outcome.DONE
        if result.outcome is Outcome.DONE and not is_done:
            self.permits.give_back(entry)
        reason = str(exchange.status) if exchange and is_done else page.reason
        keep = KEEP if page.reason in KEPT_DENIALS and page.outcome is Outcome.DENIED else ""
        settled = SettledUrl(entry, page.outcome, reason, keep)
        if not is_requisite:
            settled, page = planned(self.builder.settings.recrawl_rules, settled, page, self.gains)
            if self.rendering is not None:
                links = [*links, *self.rendering.to_visit_again(entry)]
        await self._commit(leased, settled, page, links)

    def _put_back(self, leased: LeasedDomain, entry: Entry, exchange: Exchange | None, result: UrlResult) -> None:
        """Have `entry` requested again although it was fetched. It loses no try."""
        if exchange is not None and result.outcome is Outcome.DONE:
            self.permits.give_back(entry)
        leased.repeats.pop(entry.url, None)
        leased.pending.appendleft(entry)

    async def _retry(
        self,
        leased: LeasedDomain,
        entry: Entry,
        result: UrlResult,
        exchange: Exchange | None,
        detail: str,
        after_s: float = 0.0,
        extras: tuple[Extra, ...] = (),
    ) -> None:
        """Have `entry` requested again, after `after_s` seconds at least."""
        purpose, now_ms = self.runtime.policy.usage.purpose, self.runtime.server_clock.now_ms()
        ready_ms = max(self.throttle.retry_at_ms(leased, entry, result), now_ms + round(after_s * 1000))
        page = bare_page(entry, result, exchange, now_ms / 1000, detail)
        page = msgspec.structs.replace(page, extras=extras) if extras else page
        if exchange is not None and purpose:
            page = _if_allowed(msgspec.structs.replace(page, usage=header_usage(exchange.headers)), purpose)
        priority = min(entry.priority, AFTER_PAGES) if entry.is_requisite else entry.priority - 1
        await self._commit(leased, retry(entry, result.reason, ready_ms, priority), page)

    async def _with_content(self, leased: LeasedDomain, entry: Entry, page: Page) -> Page:
        try:
            return await self.handling.with_content(leased, page)
        except Exception as error:
            self._report("text", entry, error)
            return msgspec.structs.replace(page, content=UNREADABLE)

    async def _commit(
        self, leased: LeasedDomain, settled: SettledUrl, page: Page | None = None, links: Sequence[Entry] = ()
    ) -> None:
        leased.repeats.pop(settled.entry.url, None)
        while leased.sending:  # the lease may end with this URL, and another replica could send its first request
            await leased.until_turn_ends()
        await self.committer.add(Result(leased, settled, page, links))

    def _report(self, stage: Stage, entry: Entry, error: Exception) -> None:
        self.runtime.events.emit(defect(stage, entry.url, error))


def _if_allowed(page: Page, purpose: Collection[str]) -> Page:
    """`page`, or what is kept of it if its owner refuses the `purpose` of the crawl."""
    return page.withheld() if page.exchange is not None and page.usage.refusal(purpose) else page
