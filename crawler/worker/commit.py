"""The commit: it makes the results of visits durable, in an order that loses nothing in a crash.

Results are collected for some tens of milliseconds and committed as a group:

1. **push** the links, so that the links of every settled page are in the frontier;
2. make the pages' records **durable** in the sink, so that every settled URL has its record;
3. **settle** the URLs. After a crash before this step, URLs are fetched a second time, but no page or link is lost: when
   the sink's files are recovered, the pages that were not settled are removed from them. This replica does the same with
   pages whose lease was lost before they were settled.

Before the first and the last step, results are dropped if the lease of their visit has ended, for example while the
replica was suspended. Other replicas may have counted its permits as used, fetched the URLs again, and found the end of
the crawl.

If the server was restarted, it may have lost its last writes. So they are repeated before the next group, and the links of
a group also before its URLs are settled (`crawler.worker.repeat`).

Each step is repeated until it succeeds, and only then does the next one begin. A step that has succeeded is not repeated.
The backlog is bounded: while it is full, workers wait with their results. A slow disk or a Redis outage therefore stops
the fetching.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol, TypeVar

import msgspec

from crawler.defects import defect
from crawler.errors import SinkFull
from crawler.events import GroupCommitted, LinksPushed, PageSettled, SinkBlocked
from crawler.page import Exchange, Outcome, Page, Written
from crawler.scope.recent_urls import RecentUrls
from crawler.worker.held_leases import HeldLeases
from crawler.worker.repeat import WriteRepeater
from crawler.worker.runtime import Runtime
from crawler.worker.visit import Visit
from frontier.entries import Entry, PushMode
from frontier.queue import Frontier, LeasedUrl, Pushed, Settled, Settlement, SettleReply

T = TypeVar("T")

EVENTS_PER_SLICE = 64
"""Page events that are emitted before yielding to the event loop: about 3 ms."""

WINDOW_S = 0.03
"""How long results are collected, in seconds. A longer window costs less per page but settles later."""

GROUP = 64
"""If this many results already wait, they are committed without waiting for the window."""

BACKLOG = 256
"""The number of waiting results at which workers have to wait."""

MANY_LINKS = 1_000
"""After a page with more links than this, the commit yields to the event loop."""


class PageSink(Protocol):
    """Where records are written.

    `write` returns when the records are durable. `leased` has the lease under which each page was fetched. `settled`
    reports that the group is settled, except for the pages with the indexes `unsettled`, which the sink removes. Both
    raise SinkFull when there is no room; the call may then be repeated. `take_back` removes pages of the last seconds.
    """

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> Written: ...

    async def settled(self, unsettled: Collection[int] = ()) -> None: ...

    async def take_back(self, urls: Sequence[LeasedUrl]) -> None: ...


class Result(msgspec.Struct, frozen=True):
    """The result of one turn of a visit: a settled URL with its page, links to push, or a robots.txt to archive."""

    visit: Visit
    settled: Settled | None = None
    page: Page | None = None
    links: Sequence[Entry] = ()
    exchange: Exchange | None = None  # of a robots.txt

    @property
    def leased(self) -> LeasedUrl:
        """The settled URL and its lease."""
        assert self.settled is not None
        lease = self.visit.lease
        return LeasedUrl(lease.shard, lease.domain, lease.token, self.settled.entry)

    def unless_in(self, failed: frozenset[str]) -> Result:
        """This result, settled as a defect if its page is one of those that a sink could not handle."""
        if self.page is None or self.settled is None or self.page.url not in failed:
            return self
        page = self.page.failed()
        return msgspec.structs.replace(self, page=page, settled=Settled(self.settled.entry, page.outcome, page.reason))


class _Group(msgspec.Struct):
    results: list[Result] = msgspec.field(default_factory=list)
    closing: list[Visit] = msgspec.field(default_factory=list)
    first_at: float = 0.0  # monotonic seconds when the first result came

    def add(self, result: Result, now: float) -> None:
        """Add `result`, which came `now` (monotonic seconds)."""
        self.first_at = self.first_at if self.results else now
        self.results.append(result)


class _VisitReport(msgspec.Struct):
    """What a group reports to Redis about one visit."""

    urls: list[Settled] = msgspec.field(default_factory=list)
    received_bytes: int = 0
    duplicates: int = 0
    cut: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, settled: Settled, page: Page | None, is_duplicate: bool) -> None:
        self.urls.append(settled)
        self.duplicates += is_duplicate
        if page is not None and page.exchange is not None:
            self.received_bytes += len(page.exchange.body)
            for reason in page.cut:
                self.cut[reason] = self.cut.get(reason, 0) + 1


_FREED_AT_ONCE = 4 << 20
"""Bytes of bodies that are freed before yielding to the event loop. Freeing 10 MB takes the kernel 0.7 ms or more, and a
group may have 64 such bodies."""


async def _release_memory(results: list[Result]) -> None:
    """Drop `results`, and yield to the event loop between large bodies."""
    freed = 0
    while results:
        freed += _body_bytes(results.pop())
        if freed > _FREED_AT_ONCE:
            freed = 0
            await asyncio.sleep(0)


def _body_bytes(result: Result) -> int:
    exchange = result.page.exchange if result.page is not None else result.exchange
    return 0 if exchange is None else len(exchange.body)


class Committer:
    """Commits results in groups, one group at a time, in the order of arrival."""

    def __init__(
        self,
        runtime: Runtime,
        frontier: Frontier,
        sink: PageSink,
        recent: RecentUrls,
        held: HeldLeases,
    ) -> None:
        self._runtime = runtime
        self._frontier = frontier
        self._sink = sink
        self._recent = recent
        self.held = held
        self._repeater = WriteRepeater(runtime, frontier, sink, recent, held)
        self._next, self._now = _Group(), _Group()  # collecting, and being committed
        self._has_work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()

    def __repr__(self) -> str:
        return f"<Committer backlog={len(self._next.results)} idle={self.is_idle}>"

    @property
    def backlog(self) -> int:
        """The number of results that wait for the next group."""
        return len(self._next.results)

    def awaits(self, visit: Visit) -> bool:
        """Whether results or the release of `visit` are not yet committed to Redis."""
        return any(
            visit in group.closing or any(result.visit is visit for result in group.results)
            for group in (self._now, self._next)
        )

    @property
    def is_idle(self) -> bool:
        """Whether all results are committed."""
        return self._idle.is_set()

    async def add(self, result: Result) -> None:
        """Add `result` to the next group. Waits while the backlog is full."""
        await self._room.wait()
        self._next.add(result, self._runtime.now())
        if len(self._next.results) >= BACKLOG:
            self._room.clear()
        self._wake()

    def give_back(self, visit: Visit) -> None:
        """Release the lease of `visit` with its remaining URLs, after the results that were added before."""
        self._next.closing.append(visit)
        self._wake()

    def _wake(self) -> None:
        self._idle.clear()
        self._has_work.set()

    async def run(self) -> None:
        """Commit group after group until cancelled."""
        while True:
            await self._has_work.wait()
            if len(self._next.results) < GROUP:
                await self._runtime.clock.sleep(WINDOW_S)
            self._now, self._next = self._next, _Group()
            self._has_work.clear()
            self._room.set()
            await self._commit(self._now)
            done, self._now = self._now.results, _Group()
            await _release_memory(done)
            if not self._has_work.is_set():
                self._idle.set()

    async def watch_runs(self) -> None:
        """Have the last writes repeated when the server was restarted, until cancelled."""
        await self._repeater.watch(self._wake)

    async def flush(self) -> None:
        """Wait until all results added so far are committed."""
        await self._idle.wait()

    async def _commit(self, group: _Group) -> None:
        started = self._runtime.now()
        await self._repeater.repeat(self.renew)
        results = await self._push(group.results)
        pushed = self._runtime.now()
        # Also pages that are dropped because their lease has ended, or that a sink cannot handle, have used their permits.
        done = sum(result.settled is not None and result.settled.outcome == Outcome.DONE for result in group.results)
        kept = await self._write(results)
        if kept.failed:
            results = [result.unless_in(kept.failed) for result in results]
        written = self._runtime.now()
        stale = await self._settle(results, kept.duplicates)
        await self._keep(results, stale)
        await self._release(group.closing)
        settled = self._runtime.now()
        for number, result in enumerate(results, 1):
            if result.page is not None:
                self._emit_page(result.page)
            if number % EVENTS_PER_SLICE == 0:
                await asyncio.sleep(0)
        stale |= {result.visit for result in group.results} - {result.visit for result in results}
        lag_s = settled - group.first_at if group.results else 0.0
        steps = (pushed - started, written - pushed, settled - written)
        self._runtime.events.emit(GroupCommitted(len(group.results), done, *steps, len(stale), lag_s))

    def _emit_page(self, page: Page) -> None:
        try:
            self._runtime.events.emit(PageSettled(page))
        except Exception as error:  # raised by a listener; the page is settled nevertheless
            self._runtime.events.emit(defect("listener", page.url, error))

    async def _push(self, results: Sequence[Result]) -> list[Result]:
        """Push the links of the results whose leases are still valid, and return these results. The others are dropped,
        since another replica may have crawled their URLs by now. A robots.txt is archived in any case."""

        async def push() -> tuple[list[Result], dict[tuple[str, PushMode], Entry], Pushed]:
            now, links = self._runtime.now(), dict[tuple[str, PushMode], Entry]()
            valid = [result for result in results if result.exchange is not None or result.visit.holds(now)]
            for result in valid:
                links.update([((link.url, link.mode), link) for link in result.links if link not in self._recent])
                if len(result.links) > MANY_LINKS:
                    await asyncio.sleep(0)
            return valid, links, await self._frontier.push(links.values()) if links else Pushed()

        valid, links, pushed = await self._runtime.retry.call(push)
        for number, link in enumerate(links.values(), 1):
            self._recent.add(link)
            if number % (10 * MANY_LINKS) == 0:
                await asyncio.sleep(0)
        self.held.pushed(pushed.shards)
        if offered := sum(len(result.links) for result in valid):
            skipped = offered - len(links)
            self._runtime.events.emit(
                LinksPushed(pushed.accepted, pushed.known, pushed.capped, pushed.outside, skipped)
            )
        return valid

    async def _write(self, results: Sequence[Result]) -> Written:
        with_page = [result for result in results if result.page is not None]
        pages = [result.page for result in with_page if result.page is not None]
        exchanges = [result.exchange for result in results if result.exchange is not None]
        if not pages and not exchanges:
            return Written()
        leased = [result.leased for result in with_page]
        return await self._write_until_there_is_room(lambda: self._sink.write(pages, exchanges, leased))

    async def _write_until_there_is_room(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat `call` to the sink until it has room, and return the result."""
        wait_s = 1.0
        while True:
            try:
                return await call()
            except SinkFull as error:
                self._runtime.events.emit(SinkBlocked(str(error)))
                await self._runtime.clock.sleep(wait_s)
                wait_s = min(wait_s * 2, 30.0)

    async def _settle(self, results: Sequence[Result], duplicates: frozenset[str]) -> set[Visit]:
        """Settle the group's URLs. Returns the visits whose leases were lost. A lease that has ended counts as lost even if
        Redis still has it, because other replicas may have given this one up.

        If the server was restarted after the links were pushed, it may have lost them, so they are pushed again first.
        """
        by_visit: dict[Visit, _VisitReport] = {}
        for result in results:
            if result.settled is not None:
                by_visit.setdefault(result.visit, _VisitReport()).add(
                    result.settled, result.page, is_duplicate=result.settled.entry.url in duplicates
                )
        if not by_visit:
            return set()

        async def settle() -> list[tuple[Visit, SettleReply, float]]:
            current = [result for result in results if result.visit.holds(self._runtime.now())]
            if self._frontier.runs():
                await self._frontier.push([link for result in current for link in result.links])
            at = self._runtime.now()
            visits = {result.visit for result in current}
            valid = {visit: report for visit, report in by_visit.items() if visit in visits and visit.holds(at)}
            replies = await self._frontier.settle([self._settlement(*item) for item in valid.items()])
            by_lease = dict(zip(valid, replies, strict=True))
            return [(visit, by_lease.get(visit, SettleReply(stale=True)), at) for visit in by_visit]

        replies = await self._runtime.retry.call(settle)
        for visit, reply, at in replies:
            self._apply(visit, reply, at)
        return {visit for visit, reply, _ in replies if reply.stale}

    def _settlement(self, visit: Visit, report: _VisitReport) -> Settlement:
        next_ms, delay_ms, state = self._runtime.server_ms(visit.next_at), visit.delay_ms, str(visit.backoff)
        counts = (report.received_bytes, report.duplicates, report.cut)
        return Settlement(visit.lease, next_ms, delay_ms, state, report.urls, *counts)

    async def _keep(self, results: Sequence[Result], stale: set[Visit]) -> None:
        """Report the group as settled to the sink, except for pages of `stale` visits that were not settled.

        If a settle call ended the lease but its reply was lost, the repeated call is answered "stale" although the page is
        settled. Redis is therefore asked which of these pages are settled.
        """
        with_page = [result for result in results if result.page is not None]
        if not with_page:
            return
        doubtful = [number for number, result in enumerate(with_page) if result.visit in stale]
        leased = [with_page[number].leased for number in doubtful]
        answers = await self._runtime.retry.call(lambda: self._frontier.revoke(leased)) if leased else []
        unsettled = [number for number, answer in zip(doubtful, answers, strict=True) if answer]
        await self._write_until_there_is_room(lambda: self._sink.settled(unsettled))

    async def renew(self, visits: Sequence[Visit]) -> None:
        """Renew the leases of `visits` that have not ended. Raises RedisAway."""
        at = self._runtime.now()
        valid = [visit for visit in visits if visit.holds(at)]
        replies = await self._frontier.settle([self._settlement(visit, _VisitReport()) for visit in valid])
        for visit, reply in zip(valid, replies, strict=True):
            self._apply(visit, reply, at)

    async def _release(self, visits: Sequence[Visit]) -> None:
        if not visits:
            return

        async def release() -> list[SettleReply]:
            return await self._frontier.release([self._settlement(visit, _VisitReport()) for visit in visits])

        replies = await self._runtime.retry.call(release)
        for visit, reply in zip(visits, replies, strict=True):
            self._apply(visit, reply, self._runtime.now())

    def _apply(self, visit: Visit, reply: SettleReply, asked_at: float) -> None:
        if reply.expires_ms is not None:
            deadline = self.held.lease_end(asked_at, self._frontier.settings.lease_ms)
            visit.renewed(deadline, self._runtime.now())
        elif reply.stale:
            visit.renewed(float("-inf"), self._runtime.now())
        self.held.settled(visit, reply)
