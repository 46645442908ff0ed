"""Handles one URL of a leased domain: requests it and builds its page, or settles it without a request."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from crawler.defects import Stage, defect
from crawler.errors import FetchFailed
from crawler.events import UrlPostponed
from crawler.page import KEPT_DENIALS, UNREADABLE, Exchange, Outcome, Page
from crawler.parse.document import header_usage
from crawler.worker.allowance import Allowance
from crawler.worker.commit import Committer
from crawler.worker.commit_group import Result
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.outcomes import (
    DEFECT,
    NOT_THE_URLS_FAULT,
    REDIRECT_LOOP,
    UrlResult,
    judge_failure,
    judge_status,
    last_try,
)
from crawler.worker.page_builder import bare_page
from crawler.worker.page_handling import PageHandling
from crawler.worker.polite_fetch import PoliteFetch
from crawler.worker.runtime import Runtime
from crawler.worker.url_verdict import REFUSED, USAGE_UNREACHABLE
from crawler.worker.visit_planning import SiteGains, conditions, planned
from frontier.entries import Entry
from frontier.settle import KEEP, SettledUrl, postpone, retry
from politeness.robots_cache import OriginRobots
from politeness.tdmrep import NOT_STATED


class UrlHandler:
    """Requests the URLs of leased domains or settles them without a request, and passes the results to the committer.
    `handling`: builds pages and passes them to handlers."""

    def __init__(
        self, runtime: Runtime, fetch: PoliteFetch, handling: PageHandling, committer: Committer, allowance: Allowance
    ) -> None:
        self._runtime = runtime
        self._fetch = fetch
        self._builder = handling.builder
        self._handling = handling
        self._committer = committer
        self._allowance = allowance
        self._gains = SiteGains()

    async def may_request(self, leased: LeasedDomain, entry: Entry) -> bool:
        """Return whether `entry`, the next URL of `leased`, may be requested now. If so, takes a permit and removes the URL
        from the pending ones. If not, the domain has to wait."""
        if not self._allowance.take():
            leased.want_permit(True)
            return False
        if not await self._fetch.may_request(leased, entry.url) or leased.closing:
            self._allowance.give_back()
            return False
        leased.pending.popleft()
        return True

    async def request(self, leased: LeasedDomain, entry: Entry, known: OriginRobots) -> None:
        """Request `entry`, for which `may_request` returned True, and pass the result to the committer."""
        try:
            conditional = conditions(self._builder.recrawl_rules, entry)
            exchange = await self._fetch.fetch(leased, leased.written(entry), known, conditional)
        except FetchFailed as failure:
            self._allowance.give_back()
            await self._failed(leased, entry, failure)
        except Exception as error:
            self._allowance.give_back()
            if self._fetch.own_failures.pauses_for(leased, error):
                leased.pending.appendleft(entry)
                return
            self._report("fetch", entry, error)
            await self._settle(leased, entry, DEFECT)
        except BaseException:
            self._allowance.give_back()
            leased.pending.appendleft(entry)
            raise
        else:
            leased.received(len(exchange.body))
            await self._answered(leased, entry, exchange, known)

    async def settle_without_request(
        self, leased: LeasedDomain, entry: Entry, result: UrlResult, known: OriginRobots | None
    ) -> None:
        """Settle `entry` as denied or dead, or postpone it until the unreachable file in `known` is fetched again. If the
        file was fetched, but cannot be applied to `entry`, retry that later."""
        is_of_tdm = result.reason == USAGE_UNREACHABLE
        if result.outcome is Outcome.RETRY and known is not None and (is_of_tdm or known.record.access == "disallow"):
            at_ms = known.record.tdm_retry_at_ms if is_of_tdm else known.record.retry_at_ms
            settled = postpone(entry, result.reason, at_ms)
            self._runtime.events.emit(UrlPostponed(result.reason))
            leased.forget_repeats(entry)
            await self._committer.add(Result(leased, settled))
        else:
            await self._settle(leased, entry, result, known=known if result == REFUSED else None)

    async def _answered(self, leased: LeasedDomain, entry: Entry, exchange: Exchange, known: OriginRobots) -> None:
        result = last_try(judge_status(exchange.status), entry.tries, self._runtime.policy.tries)
        if result.outcome is not Outcome.DONE:
            self._allowance.give_back()  # a page uses its permit when it is settled
        try:
            self._fetch.throttle.update_backoff(leased, result, exchange)
        except Exception as error:
            self._report("answer", entry, error)
        if result.reason == "redirect" and (written := self._builder.redirect_to_itself(entry, exchange)):
            self._allowance.give_back()
            if leased.repeat(entry, written):
                await self._committer.add(Result(leased, exchange=self._kept(exchange)))
                return
            result = REDIRECT_LOOP
        await self._settle(leased, entry, result, exchange, known)

    def _kept(self, exchange: Exchange) -> Exchange:
        """What is kept of `exchange`, a redirect that settles nothing."""
        purpose = self._runtime.policy.usage.purpose
        if purpose and header_usage(exchange.headers).refusal(purpose):
            return msgspec.structs.replace(exchange, body=b"", truncated=None)
        return exchange

    async def _failed(self, leased: LeasedDomain, entry: Entry, failure: FetchFailed) -> None:
        if failure.kind in NOT_THE_URLS_FAULT:
            leased.pending.appendleft(entry)
            return
        result = last_try(judge_failure(failure.kind), entry.tries, self._runtime.policy.tries)
        self._fetch.throttle.update_backoff(leased, result, None)
        await self._settle(leased, entry, result)

    async def _settle(
        self,
        leased: LeasedDomain,
        entry: Entry,
        result: UrlResult,
        exchange: Exchange | None = None,
        known: OriginRobots | None = None,
    ) -> None:
        """Pass the outcome of `entry` to the committer, with its page and links. `known`: the files of the site, if they
        may say something about the use of the page."""
        leased.forget_repeats(entry)
        purpose = self._runtime.policy.usage.purpose
        if result.outcome is Outcome.RETRY:
            ready_ms = self._fetch.throttle.retry_at_ms(leased, entry, result)
            settled = retry(entry, result.reason, ready_ms, entry.priority - 1)
            page = bare_page(entry, result, exchange, self._now_s())
            if exchange is not None and purpose:
                page = _if_allowed(msgspec.structs.replace(page, usage=header_usage(exchange.headers)), purpose)
            await self._committer.add(Result(leased, settled, page))
            return
        links: Sequence[Entry] = ()
        try:
            site = known.usage(entry.url) if known is not None else NOT_STATED
            page, links = await self._builder.build(entry, result, exchange, self._now_s(), site)
            page = _if_allowed(page, purpose) if purpose else page
            if page.outcome is Outcome.DONE:
                page, links = await self._handling.handle(leased, entry, page, links)
                page = await self._with_content(leased, entry, page)
        except Exception as error:
            if self._fetch.own_failures.pauses_for(leased, error):  # costs a second request
                if exchange is not None and result.outcome is Outcome.DONE:
                    self._allowance.give_back()
                leased.pending.appendleft(entry)
                return
            self._report("read", entry, error)
            page = bare_page(entry, DEFECT, exchange, self._now_s())
            page = page.withheld() if purpose else page  # what its owner says is not known
            links = self._handling.links_after_defect(links)
        is_done = page.outcome is Outcome.DONE
        if result.outcome is Outcome.DONE and not is_done:
            self._allowance.give_back()
        reason = str(exchange.status) if exchange and is_done else page.reason
        keep = KEEP if page.reason in KEPT_DENIALS and page.outcome is Outcome.DENIED else ""
        done = SettledUrl(entry, page.outcome, reason, keep)
        settled, page = planned(self._builder.recrawl_rules, done, page, self._gains)
        await self._committer.add(Result(leased, settled, page, links))

    async def _with_content(self, leased: LeasedDomain, entry: Entry, page: Page) -> Page:
        try:
            return await self._handling.with_content(leased, page)
        except Exception as error:
            self._report("text", entry, error)
            return msgspec.structs.replace(page, content=UNREADABLE)

    def _now_s(self) -> float:
        return self._runtime.server_clock.now_ms() / 1000

    def _report(self, stage: Stage, entry: Entry, error: Exception) -> None:
        self._runtime.events.emit(defect(stage, entry.url, error))


def _if_allowed(page: Page, purpose: Collection[str]) -> Page:
    """`page`, or what is kept of it if its owner refuses the `purpose` of the crawl."""
    return page.withheld() if page.exchange is not None and page.usage.refusal(purpose) else page
