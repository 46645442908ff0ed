"""The commit: it makes the results of requests durable, in an order that loses nothing in a crash.

Results are collected for some tens of milliseconds and committed as a group:

1. **push** the links, so that the links of every settled page are in the frontier; 2. make the pages' records
**durable** in the sink, so that every settled URL has its record; 3. **settle** the URLs. After a crash before this
step, URLs are fetched a second time, but no page or link is lost: when the sink's files are recovered, the pages that
were not settled are removed from them. This replica does the same with pages whose lease ended before they were
settled.

Before the first and the last step, results are dropped if the lease of their domain has ended, for example while the
replica was suspended. Other replicas may have counted its permits as used, fetched the URLs again, and found the end of
the crawl.

Each step is repeated until it succeeds, and only then does the next one begin. A step that has succeeded is not
repeated, unless a server was restarted. The backlog is bounded: while it is full, workers wait with their results. A
slow disk or a Redis outage therefore stops the fetching.

**A server that was restarted** may have lost its last writes. So they are repeated before the next group, and the links
of a group also before its URLs are settled. A shard grants no leases for a second after a restart
(`frontier/lua/lost_writes.lua`), so that all replicas repeat their writes before URLs that were settled are leased
again. If this replica is late, because it was suspended or cut off, another one may have leased them. Then their pages
are removed from the archive here, so that each page is kept once.

**A node of a cluster that is away** holds up only the results of its own shards. They are *parked*, and tried again
later. A link whose own node is away goes to the outbox of the page's shard (`frontier.outboxes`), so its page can be
settled at once. If a node does not answer when the group is settled, the files of the group are set aside, and a task
settles the rest later; until then, no other result of this node is written. Domains whose results would be parked take
no turns (`holds_up`), so no more than the results of the requests in flight wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from math import isfinite
from typing import Protocol, TypeVar

import msgspec

from crawler.defects import defect
from crawler.errors import SinkFull
from crawler.events import GroupCommitted, LinksPushed, PageSettled, RequisiteSettled, SinkBlocked, WritesRepeated
from crawler.page import FAILED_REQUESTS, Exchange, Outcome, Page, Written
from crawler.parse.child import StandIn
from crawler.parse.html import NOFOLLOW
from crawler.parse.turns import FairTurns
from crawler.scope.scope import RecentUrls
from crawler.worker.leases import HeldLeases, LeasedDomain
from crawler.worker.runtime import Runtime, TimeSlice
from frontier.entries import Entry, PushMode
from frontier.errors import RedisAway, RedisMisused, ReplicasMissing
from frontier.queue import Frontier, PushReply
from frontier.settle import Counted, LeasedUrl, SettledUrl, Settlement, SettleReply, with_next_visit
from frontier.store import batched

T = TypeVar("T")

MANY_LINKS = 1_000
MOST_WAITING_LINKS = 100_000
"""Links of a result that waits for its turn: to push them takes some milliseconds for each thousand, in which no other
result is committed. And the links of all results that wait while the workers lend their slots, about a kilobyte each."""

WINDOW_S = 0.06
"""How long results are collected, in seconds. A longer window costs less per page but settles later."""

GROUP = 256
"""If this many results already wait, they are committed without waiting for the window."""

BACKLOG = 512
BACKLOG_BYTES = 64 << 20
"""The number of waiting results, and the size of their bodies and links, at which workers have to wait."""

FREED_AT_ONCE = 8
"""The results whose memory is freed before other tasks get their turn. To free 10 MB takes the kernel 0.7 ms or more."""

LINK_BYTES = 200
"""Memory for a link: its object, its URL of 80 characters, and its place in a list."""

UNPARK_S = 0.25
"""How long parked results rest before they are tried again."""

WATCH_S = 0.25
"""Seconds between two looks for a restarted server. It is a fraction of the time in which a shard grants no leases."""

RENEWED_AT_ONCE = 64
"""Leases renewed in one round trip. They block the Redis server for about 1 ms."""

MOST_WORDS = 20
"""Most distinct item counters per lease and call, and as many for rejected items: a script can pass on those of 64
leases."""

OTHER = "other"
"""The counter for everything beyond that."""

LinkKey = tuple[str, PushMode, str]
Links = dict[LinkKey, Entry]


def _key(link: Entry) -> LinkKey:
    """What tells `link` apart from others of a group."""
    return link.url, link.mode, link.label_key if link.tag else ""


class PageSink(Protocol):
    """Where records are written.

    `write` returns when the records are durable. `leased` has the lease under which each page was fetched. `settled`
    reports that the group is settled, except for the pages with the indexes `unsettled`, which the sink removes. Both
    raise SinkFull when there is no room; the call may then be repeated. Instead of calling `settled`, the last group
    may be set aside: the call that is returned takes the place of `settled`, and other groups may be written before it.
    `take_back` removes pages of the last seconds.
    """

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> Written: ...

    async def settled(self, unsettled: Collection[int] = ()) -> None: ...

    async def set_aside(self) -> Callable[[Collection[int]], Awaitable[None]]: ...

    async def take_back(self, urls: Sequence[LeasedUrl]) -> None: ...


class Result(msgspec.Struct, frozen=True):
    """The result of one turn of a leased domain: a settled URL with its page, links to push, or a
    response to archive that settles nothing: of a robots.txt, or a redirect of a URL to itself."""

    leased: LeasedDomain
    settled: SettledUrl | None = None
    page: Page | None = None
    links: Sequence[Entry] = ()
    exchange: Exchange | None = None  # that settles nothing

    @property
    def shard(self) -> int:
        """The shard of the domain."""
        return self.leased.lease.shard

    @property
    def leased_url(self) -> LeasedUrl:
        """The settled URL and its lease."""
        assert self.settled is not None
        lease = self.leased.lease
        return LeasedUrl(lease.shard, lease.domain, lease.token, self.settled.entry)

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes until it is written: its body and its links."""
        page = self.page
        if page is not None:
            return LINK_BYTES * (len(self.links) + len(page.links)) + page.received_bytes
        return LINK_BYTES * len(self.links) + (0 if self.exchange is None else len(self.exchange.body))

    @property
    def link_keys(self) -> Iterable[LinkKey]:
        """What tells its links apart."""
        return map(_key, self.links)

    def as_written(self, written: Written) -> Result:
        """This result, settled as a defect if a sink could not handle its page, and for another visit without a condition
        if its body was not archived."""
        page, settled = self.page, self.settled
        if page is None or settled is None:
            return self
        if page.url in written.failed:
            page = page.failed()
            settled = SettledUrl(settled.entry, page.outcome, page.reason)
        elif (state := written.bodiless.get(page.url)) is not None:
            settled = with_next_visit(settled, page.visit, round(page.next_at * 1000), state)
        return msgspec.structs.replace(self, page=page, settled=settled)


class LeaseReport(Counted):
    """What a group reports to Redis about one lease."""

    urls: list[SettledUrl] = msgspec.field(default_factory=list)

    def add(self, settled: SettledUrl, page: Page | None, is_duplicate: bool) -> None:
        """Add one URL of the domain."""
        self.urls.append(settled)
        self.duplicates += is_duplicate
        if page is None:
            return
        self.requests += (page.exchange is not None or page.reason in FAILED_REQUESTS) + len(page.extras)
        for extra in page.extras:
            _count(self.extras, extra.kind, 1, otherwise=OTHER)
        if page.rendered is not None:
            why, shape = page.rendered.why, page.rendered.shape
            _count(self.rendered, f"{why}:{shape}", 1, otherwise=f"{why}:")
        for item in page.items:
            _count(self.items, item.name, 1, otherwise=OTHER)
        for word, number in page.rejected_by.items():
            _count(self.rejected, word, number, otherwise=f"{word.partition(':')[0]}::{OTHER}")
        if page.put_off[0]:
            name, pages, useless = page.put_off
            counts = {"pages": pages, "useless": useless, "denied": int(page.outcome is Outcome.DENIED)}
            for word, number in counts.items():
                if number:
                    _count(self.shapes, f"{word}:{name}", number, otherwise=f"{word}:{OTHER}")
        if page.exchange is not None:
            self.received_bytes += page.received_bytes
            if page.is_requisite:
                return
            for reason in page.cut:
                self.cut[reason] = self.cut.get(reason, 0) + 1
            if page.unfollowed:
                self.drop[NOFOLLOW] = self.drop.get(NOFOLLOW, 0) + page.unfollowed
            for part in page.repaired:
                self.repaired[part] = self.repaired.get(part, 0) + 1


def _count(counters: dict[str, int], word: str, number: int, *, otherwise: str) -> None:
    """Count `number` by `word`, or if there are too many words by `otherwise`."""
    if word not in counters and len(counters) >= MOST_WORDS:
        word = otherwise
    counters[word] = counters.get(word, 0) + number


def settlement(runtime: Runtime, leased: LeasedDomain, report: LeaseReport) -> Settlement:
    """What `report` says about the lease of `leased`, and when its domain may be requested next."""
    next_ms, state = runtime.server_ms(leased.next_at), leased.state
    # Without a response under this lease nothing is known that is not stored, and an operator may have changed that.
    delay_ms = leased.delay_ms if isfinite(leased.ended_at) else None
    return Settlement(leased.lease, next_ms, delay_ms, state, report.urls, report)


class Group:
    """Results to commit together, and leased domains whose leases are returned after that."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.closing: list[LeasedDomain] = []
        self.first_at = 0.0  # monotonic seconds when the first result came
        self.memory_bytes = 0  # of all results
        self.is_over = asyncio.Event()  # its commit has ended

    def add(self, result: Result, now: float) -> None:
        """Add `result`, which came `now` (monotonic seconds)."""
        self.first_at = self.first_at if self.results else now
        self.results.append(result)
        self.memory_bytes += result.memory_bytes

    def put_first(self, other: Group) -> None:
        """Put the contents of `other`, which came earlier, before those of this group."""
        self.first_at = other.first_at if other.results else self.first_at
        self.results[:0] = other.results
        self.closing[:0] = other.closing
        self.memory_bytes += other.memory_bytes

    def remove(self, domains: Collection[LeasedDomain]) -> None:
        """Remove the results of `domains`, but not their robots.txt, which only has to be archived."""
        self.results = [result for result in self.results if result.exchange or result.leased not in domains]


class SettlingGroup:
    """A group whose records are durable, while its URLs are settled: `results` are those whose leases were valid at the
    push. `duplicates`: URLs whose content was archived before."""

    def __init__(self, group: Group, results: Sequence[Result], duplicates: frozenset[str]) -> None:
        self.results = results
        self.closing = list(group.closing)
        self.first_at = group.first_at
        self.size = len(group.results)
        # Also pages that were dropped because their lease has ended, or that a sink could not handle, have used permits.
        settled = (one.settled for one in group.results if one.settled is not None)
        self.done = sum(one.outcome == Outcome.DONE and not one.entry.is_requisite for one in settled)
        self.pages = [result for result in results if result.page is not None]
        self.stale = {result.leased for result in group.results} - {result.leased for result in results}
        self.open = defaultdict[LeasedDomain, LeaseReport](LeaseReport)  # whose settle call is not answered
        # Number of a page of a stale lease -> whether it was not settled; None: unknown.
        self.answers: dict[int, bool | None] = {}
        for result in results:
            if result.settled is not None:
                is_duplicate = result.settled.entry.url in duplicates
                self.open[result.leased].add(result.settled, result.page, is_duplicate)

    @property
    def unsettled(self) -> list[int]:
        """The numbers of the pages that were not settled and never will be."""
        return [number for number, is_unsettled in self.answers.items() if is_unsettled]

    @property
    def doubtful(self) -> list[int]:
        """The numbers of the pages of stale leases of which it is unknown whether they were settled."""
        if not self.stale:
            return []
        return [
            number
            for number, result in enumerate(self.pages)
            if result.leased in self.stale and number not in self.answers
        ]


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
        self._retry = runtime.retry
        self._frontier = frontier
        self._sink = sink
        self._recent = recent  # links that this replica has pushed recently
        self._held = held
        self._next, self._committing = Group(), Group()  # collects results; is being committed
        self._many_links = FairTurns([None])
        self._waiting_links = 0
        self.stand_in: StandIn = nullcontext
        """While its block runs, another worker uses the slot of the one that waits in it."""
        self._parked = Group()  # for nodes that are away
        self.lacks_room = False  # the sink has none
        self.is_reader_behind: Callable[[], bool] = lambda: False
        """Whether a program that reads the pages has enough of them."""
        self._late: dict[asyncio.Task[None], SettlingGroup] = {}  # groups that are settled later
        self._late_nodes: Counter[str] = Counter()
        self._repeated: Collection[int] = ()  # shards of which it is not known yet whether their leases are lost
        self._forgotten_runs: dict[int, str] = {}  # shards and their new runs for which `recent` was cleared
        self.restore_old: Callable[[Mapping[int, int]], Awaitable[object]] | None = None
        """Restores shards that came back in a state older than the last writes: shard -> the time of its state, in ms."""
        self._timer: asyncio.TimerHandle | None = None
        self._has_work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()

    def __repr__(self) -> str:
        return f"<Committer backlog={self.backlog} parked={self.parked} idle={self.is_idle}>"

    @property
    def backlog(self) -> int:
        """The number of results that wait for the next group."""
        return len(self._next.results)

    @property
    def parked(self) -> int:
        """The number of results that wait for a node of a cluster."""
        return len(self._parked.results) + sum(len(group.results) for group in self._late.values())

    def awaits(self, leased: LeasedDomain) -> bool:
        """Whether results or the release of `leased` are not yet committed to Redis."""
        groups: list[Group | SettlingGroup] = [self._committing, self._next, self._parked, *self._late.values()]
        return any(
            leased in group.closing or any(result.leased is leased for result in group.results) for group in groups
        )

    def holds_up(self, leased: LeasedDomain) -> bool:
        """Whether a result of `leased` would have to wait for Redis, for room or for a reader now. It then takes no turns,
        so the pages that are fetched again if that outlasts the lease are at most those of the requests in flight."""
        shard = leased.lease.shard
        if (
            self.lacks_room
            or self.is_reader_behind()
            or self._retry.is_away
            or self._retry.is_shard_away(shard)
            or self._late_nodes[self._retry.node_of(shard)] > 0
            or shard in self._repeated
        ):
            return True
        return any(result.shard == shard for result in self._parked.results)

    @property
    def is_idle(self) -> bool:
        """Whether all results are committed."""
        return self._idle.is_set()

    async def add(self, result: Result) -> None:
        """Add `result` to the next group. Waits while the backlog is full. Of results with many links, each group has one,
        in turns of their domains, and it is committed afterwards."""
        count = len(result.links)
        if count <= MANY_LINKS:
            await self._add(result)
            return
        lent = self.stand_in() if self._waiting_links + count <= MOST_WAITING_LINKS else nullcontext()
        self._waiting_links += count
        try:
            async with lent, self._many_links.turn(result.leased.domain):
                await (await self._add(result)).is_over.wait()
        finally:
            self._waiting_links -= count

    async def _add(self, result: Result) -> Group:
        await self._room.wait()
        group = self._next
        self._next.add(result, self._runtime.now())
        if len(self._next.results) >= BACKLOG or self._next.memory_bytes >= BACKLOG_BYTES:
            self._room.clear()
        if len(self._next.results) == 1:  # whoever added the first one has woken it
            self._wake()
        return group

    def give_back(self, leased: LeasedDomain) -> None:
        """Release the lease of `leased` with its remaining URLs, after the results that were added before."""
        self._next.closing.append(leased)
        self._wake()

    def _wake(self) -> None:
        self._idle.clear()
        self._has_work.set()

    async def run(self) -> None:
        """Commit group after group until cancelled."""
        try:
            while True:
                await self._has_work.wait()
                if len(self._next.results) < GROUP:
                    await self._runtime.clock.sleep(WINDOW_S)
                self._committing, self._next = self._next, Group()
                self._has_work.clear()
                self._room.set()
                for task in [task for task in self._late if task.done()]:
                    del self._late[task]
                    task.result()  # raises what the task has raised
                await self._commit(self._committing)
                self._committing.is_over.set()
                done, self._committing = self._committing.results, Group()
                time_slice = TimeSlice(self._runtime.clock)
                while done:
                    del done[-FREED_AT_ONCE:]
                    await time_slice.end_if_over()
                if not (self._has_work.is_set() or self._late or self._parked.results or self._parked.closing):
                    self._idle.set()
        finally:
            for task in self._late:
                task.cancel()
            if self._timer is not None:
                self._timer.cancel()

    async def flush(self) -> None:
        """Wait until all results added so far are committed."""
        await self._idle.wait()

    # parked results

    def _park(self, results: Iterable[Result], closing: Iterable[LeasedDomain] = ()) -> None:
        for result in results:
            self._parked.add(result, self._runtime.now())
        self._parked.closing.extend(closing)
        if self._timer is None and (self._parked.results or self._parked.closing):
            self._timer = asyncio.get_running_loop().call_later(UNPARK_S, self._unpark)

    def _unpark(self) -> None:
        self._timer = None
        parked, self._parked = self._parked, Group()
        self._next.put_first(parked)
        self._wake()

    def _park_held_up(self, group: Group) -> None:
        if not (self._retry.has_many_nodes or self._parked.results or self._late):
            return
        held_up = {leased for leased in {result.leased for result in group.results} if self.holds_up(leased)}
        stuck = [result for result in group.results if not result.exchange and result.leased in held_up]
        domains = {result.leased for result in stuck}
        unsettled = domains.union(result.leased for late in self._late.values() for result in late.results)
        leaving = [leased for leased in group.closing if leased in unsettled or self.holds_up(leased)]
        group.remove(domains)
        group.closing = [leased for leased in group.closing if leased not in leaving]
        self._park(stuck, leaving)

    # the steps

    async def _commit(self, group: Group) -> None:
        self._park_held_up(group)
        started = self._runtime.now()
        await self.repeat_lost_writes()
        results = await self._push(group)
        pushed = self._runtime.now()
        sunk = await self._write(results)
        if sunk.failed or sunk.bodiless:
            results = [result.as_written(sunk) for result in results]
        written = self._runtime.now()
        settling = SettlingGroup(group, results, sunk.duplicates)
        if not await self._settle(settling):
            await self._settle_later(settling)
            return
        if settling.pages:
            await self._until_there_is_room(lambda: self._sink.settled(settling.unsettled))
        await self._release(settling.closing)
        await self._report(settling, started, pushed, written)

    async def _push(self, group: Group) -> list[Result]:
        """Push the links of the results whose leases are still valid. Returns these results. The others are dropped,
        since another replica may have crawled their URLs by now. A robots.txt is archived in any case. Results of which
        a link can be kept nowhere now are parked, because nodes of a cluster are away."""
        now, links, time_slice = self._runtime.now(), Links(), TimeSlice(self._runtime.clock)
        results = [one for one in group.results if one.exchange is not None or one.leased.may_settle(now)]
        for result in results:
            links.update([(_key(link), link) for link in result.links if link not in self._recent])
            await time_slice.end_if_over()
        pushed, unsent = await self._send(links)
        unsafe = await self._keep(results, unsent)
        for part in batched(list(links.items()), 1_000):
            # A link in an outbox is there for the pages of one shard only.
            self._recent.add(*[link for key, link in part if key not in unsent])
            await time_slice.end_if_over()
        self._held.pushed(pushed.shards)
        if offered := sum(len(result.links) for result in results):
            self._emit_pushed(pushed, skipped=offered - len(links))
        if unsafe:
            stuck = [result for result in results if result.leased in unsafe and not result.exchange]
            self._park(stuck, [leased for leased in group.closing if leased in unsafe])
            group.remove(unsafe)
            group.closing = [leased for leased in group.closing if leased not in unsafe]
            results = [result for result in results if result.exchange or result.leased not in unsafe]
        return results

    async def _send(self, links: Links) -> tuple[PushReply, Links]:
        """Push `links`. Returns the sum of the replies, and the links whose nodes are away."""
        pushed, unsent = await self._retry.each_node(
            list(links.items()),
            lambda item: self._frontier.shard_of(item[1].domain),
            lambda part: self._frontier.push(link for _, link in part),
        )
        return total(reply for _, reply in pushed), dict(unsent)

    async def _keep(self, results: Sequence[Result], unsent: Collection[LinkKey]) -> set[LeasedDomain]:
        """Put those links of `results` that are `unsent` into the outboxes of the shards of their pages. Returns the
        domains of results of which a link is in neither place now."""
        if not unsent:
            return set()
        kept: dict[int, dict[LinkKey, tuple[int, Entry]]] = {}
        for result in results:
            for link in result.links:
                key = _key(link)
                if key in unsent:
                    kept.setdefault(result.shard, {})[key] = self._frontier.shard_of(link.domain), link
        answered, missed = await self._retry.each_node(
            list(kept),
            int,
            lambda shards: self._frontier.keep_links({shard: list(kept[shard].values()) for shard in shards}),
        )
        full = {shard for _, shards in answered for shard in shards}
        unsafe = {key for shard in full.union(missed) for key in kept[shard]}
        return {result.leased for result in results if not unsafe.isdisjoint(result.link_keys)}

    def _emit_pushed(self, pushed: PushReply, skipped: int) -> None:
        counts = (pushed.accepted, pushed.seen, pushed.capped, pushed.outside)
        self._runtime.events.emit(LinksPushed(*counts, skipped, pushed.unknown))

    async def _write(self, results: Sequence[Result]) -> Written:
        with_page = [result for result in results if result.page is not None]
        pages = [result.page for result in with_page if result.page is not None]
        exchanges = [result.exchange for result in results if result.exchange is not None]
        if not pages and not exchanges:
            return Written()
        urls = [result.leased_url for result in with_page]
        return await self._until_there_is_room(lambda: self._sink.write(pages, exchanges, urls))

    async def _until_there_is_room(self, call: Callable[[], Awaitable[T]]) -> T:
        wait_s = 1.0
        try:
            while True:
                try:
                    return await call()
                except SinkFull as error:
                    self.lacks_room = True
                    self._runtime.events.emit(SinkBlocked(str(error)))
                    await self._runtime.clock.sleep(wait_s)
                    wait_s = min(wait_s * 2, 30.0)
        finally:
            self.lacks_room = False

    async def _settle(self, group: SettlingGroup) -> bool:
        """Settle what is not settled. Returns whether the group is complete: always on a single server. On a cluster,
        what a node has not answered is left to the next call.

        If a server was restarted or replaced since the links were pushed, it may have lost them, so the pushes of the
        last seconds are repeated first: also those of earlier groups, because links that were pushed recently are left
        out of later pages. A server of a cluster that cannot take them holds up nothing: the links of the group that
        belong to it go to outboxes. A lease that has ended counts as stale even if Redis still has it, because other
        replicas may have given this one up."""
        while group.open:
            runs = self._frontier.replaced_runs()
            await self._settle_open(group, runs)
            if self._frontier.replaced_runs() == runs:
                break
        await self._judge_stale(group)
        return not group.open and not group.doubtful

    async def _settle_open(self, group: SettlingGroup, runs: Mapping[int, str]) -> None:
        """Settle the open domains of `group`, after the pushes to the servers that were replaced by `runs`."""
        unsafe = await self._repeat_pushes(group, runs)

        async def settle(part: Sequence[LeasedDomain]) -> list[tuple[LeasedDomain, SettleReply, float]]:
            if self._frontier.replaced_runs() != runs:
                return []  # pushes have to be repeated before
            at = self._runtime.now()
            valid = [leased for leased in part if leased.may_settle(at)]
            settlements = [settlement(self._runtime, leased, group.open[leased]) for leased in valid]
            replies = dict(zip(valid, await self._frontier.settle(settlements), strict=True))
            return [(leased, replies.get(leased, SettleReply(stale=True)), at) for leased in part]

        domains = [leased for leased in group.open if leased not in unsafe]
        answered, _ = await self._retry.each_node(domains, _shard_of, settle)
        for _, replies in answered:
            for leased, reply, at in replies:
                self._apply(leased, reply, at)
                if group.open.pop(leased, None) is not None and reply.stale:
                    group.stale.add(leased)

    async def _repeat_pushes(self, group: SettlingGroup, runs: Collection[int]) -> set[LeasedDomain]:
        """Repeat the pushes of the last seconds to the shards in `runs`. Returns the domains that may not be
        settled."""
        _, missed = await self._retry.each_node(list(runs), int, self._frontier.repeat_pushes)
        if not missed:
            return set()
        results = [result for result in group.results if result.leased in group.open]
        links = [link for result in results for link in result.links]
        return await self._keep(
            results, {_key(link) for link in links if self._frontier.shard_of(link.domain) in missed}
        )

    async def _judge_stale(self, group: SettlingGroup) -> None:
        """If a settle call ended the lease but its reply was lost, the repeated call is answered "stale" although the
        page is settled. Redis is therefore asked which of these pages are settled."""

        async def revoke(numbers: Sequence[int]) -> list[bool | None]:
            return await self._frontier.revoke([group.pages[number].leased_url for number in numbers])

        answered, _ = await self._retry.each_node(group.doubtful, lambda number: group.pages[number].shard, revoke)
        for numbers, are_unsettled in answered:
            group.answers.update(zip(numbers, are_unsettled, strict=True))

    async def _settle_later(self, group: SettlingGroup) -> None:
        settled = await self._until_there_is_room(self._sink.set_aside) if group.pages else None
        open_shards = [leased.lease.shard for leased in group.open]
        open_shards += [group.pages[number].shard for number in group.doubtful]
        nodes = {self._retry.node_of(shard) for shard in open_shards}
        self._late_nodes.update(nodes)
        leaving = [leased for leased in group.closing if leased not in group.open]
        group.closing = [leased for leased in group.closing if leased in group.open]

        async def settle() -> None:
            began = self._runtime.now()
            while not await self._settle(group):
                await self._runtime.clock.sleep(UNPARK_S)
            if settled is not None:
                await self._until_there_is_room(lambda: settled(group.unsettled))
            self._late_nodes.subtract(nodes)
            await self._release(group.closing)
            await self._report(group, began, began, began)

        task = asyncio.create_task(settle())
        task.add_done_callback(lambda _: self._wake())
        self._late[task] = group
        await self._release(leaving)

    async def _report(self, group: SettlingGroup, started: float, pushed: float, written: float) -> None:
        """Emit the events of a group that is settled. The times are those at which its steps began, in monotonic
        seconds."""
        settled, time_slice = self._runtime.now(), TimeSlice(self._runtime.clock)
        for result in group.pages:
            assert result.page is not None
            if not (result.page.noarchive or result.page.is_withheld):  # what browsers have loaded is archived
                loaded = (one.exchange for one in result.page.extras if one.exchange.status < 400)
                self._recent.add(*(Entry(one.url, result.page.domain, mode="requisite") for one in loaded))
            try:
                self._runtime.events.emit(
                    RequisiteSettled(result.page) if result.page.is_requisite else PageSettled(result.page)
                )
            except Exception as error:  # raised by a listener; the page is settled anyway
                self._runtime.events.emit(defect("listener", result.page.url, error))
            await time_slice.end_if_over()
        lag_s = settled - group.first_at if group.size else 0.0
        steps = (pushed - started, written - pushed, settled - written)
        self._runtime.events.emit(GroupCommitted(group.size, group.done, *steps, len(group.stale), lag_s))

    # leases

    async def is_seen(self, entry: Entry) -> bool:
        """Return whether the URL of `entry` was queued or fetched. Raises RedisAway."""
        node = self._retry.node_of(self._frontier.shard_of(entry.domain))
        return await self._retry.soon(lambda: self._frontier.is_seen(entry), node)

    async def mark_sent(self, leased: LeasedDomain, entry: Entry, marked: Entry) -> bool:
        """Replace `entry` of `leased` by `marked` in Redis. Returns False if the lease has ended. Raises RedisAway."""
        node = self._retry.node_of(leased.lease.shard)
        return await self._retry.soon(lambda: self._frontier.mark_sent(leased.lease, entry, marked), node)

    async def renew(self, domains: Sequence[LeasedDomain]) -> None:
        """Renew the leases of `domains` that have not ended, except those on nodes that are away."""

        async def renew(part: Sequence[LeasedDomain]) -> None:
            at = self._runtime.now()
            valid = [leased for leased in part if leased.holds(at)]
            replies = await self._frontier.settle(
                [settlement(self._runtime, leased, LeaseReport()) for leased in valid]
            )
            for leased, reply in zip(valid, replies, strict=True):
                self._apply(leased, reply, at)

        for at in range(0, len(domains), RENEWED_AT_ONCE):
            part = domains[at : at + RENEWED_AT_ONCE]
            await self._retry.each_node(part, _shard_of, renew)

    async def _release(self, domains: Sequence[LeasedDomain]) -> None:
        """Return the leases of `domains`. Those on nodes that are away are parked, and those on a server that was
        restarted until this replica has repeated its writes: without a lease, Redis cannot tell which of its URLs were
        settled."""

        async def release(part: list[LeasedDomain]) -> None:
            replaced = self._frontier.replaced_runs()
            self._park((), [leased for leased in part if leased.lease.shard in replaced])
            part[:] = [leased for leased in part if leased.lease.shard not in replaced]
            settlements = [settlement(self._runtime, leased, LeaseReport()) for leased in part]
            for leased, reply in zip(part, await self._frontier.release(settlements), strict=True):
                self._apply(leased, reply, self._runtime.now())

        _, missed = await self._retry.each_node(domains, _shard_of, release)
        self._park((), missed)

    def _apply(self, leased: LeasedDomain, reply: SettleReply, asked_at: float) -> None:
        """Apply the reply to a settle or release call that was made at `asked_at` (monotonic seconds)."""
        if reply.expires_ms is not None:
            lease_end = self._held.lease_end(asked_at, self._frontier.settings.lease_ms)
            leased.renew(lease_end, self._runtime.now())
        elif reply.stale:
            leased.renew(float("-inf"), self._runtime.now())
        self._held.settled(leased, reply)

    # restarted servers

    async def watch_runs(self) -> None:
        """Have the last writes repeated when the server was restarted, until cancelled."""
        while True:
            await self._runtime.clock.sleep(WATCH_S)
            with contextlib.suppress(RedisAway, RedisMisused):  # whoever needs the node reports it
                await self._frontier.look_for_new_runs(if_lately=not len(self._held))
            if self._frontier.replaced_runs():
                self._wake()

    async def repeat_lost_writes(self) -> None:
        """Repeat the last writes to shards whose server was restarted, and renew the leases in them. That restores
        their domains' delays, and shows which leases are lost. Shards whose nodes are away are left to the next
        call."""
        try:
            while runs := self._frontier.replaced_runs():
                self._repeated = runs
                if not await self._repeat_writes(runs):
                    return
        finally:
            self._repeated = ()

    async def _repeat_writes(self, runs: dict[int, str]) -> bool:
        """Repeat the writes to the shards in `runs`. Returns whether none of them is left to the next call."""
        if not runs.items() <= self._forgotten_runs.items():
            self._recent.clear()  # once for each run: the shards of a node that is away may be left for hours
        self._forgotten_runs = runs
        ready = await self._repeat_all_pushes(self._retry.split(list(runs), int))
        done, _ = await self._retry.each_node(
            ready,
            int,
            lambda shards: self._frontier.repeat_settlements({shard: runs[shard] for shard in shards}),
        )
        # First, because what is restored from lines counts as settled.
        if unsettled := [url for _, urls in done for url in urls]:
            await self._sink.take_back(unsettled)
        if self.restore_old is not None:
            served = [shard for shards, _ in done for shard in shards]
            found, _ = await self._retry.each_node(
                served, int, lambda part: self._frontier.old_shards({shard: runs[shard] for shard in part})
            )
            if old := {shard: at for _, of_node in found for shard, at in of_node.items()}:
                await self.restore_old(old)
        if repeated := sum(len(shards) for shards, _ in done):
            self._runtime.events.emit(WritesRepeated(repeated, len(unsettled)))
        await self.renew([leased for leased in self._held if leased.lease.shard in runs])
        return repeated == len(runs)

    async def _repeat_all_pushes(self, parts: Mapping[str, list[int]]) -> list[int]:
        """Repeat the pushes to the shards in `parts`, by node. Links whose nodes are away go to the outboxes of the
        shards whose settlements are to be repeated, because they may be links of their pages. Returns those
        that may be settled now.

        So do links whose nodes have them but lack replicas, except for shards of the same node: a replica receives all
        writes of its node in their order, so it never has the settlement of a page without the page's links. A master
        that has just taken over may lack replicas for hours, in which its shards are to be crawled anyway. Of
        nodes that are reached in different calls, links to the earlier one are not in outboxes."""
        retry, frontier = self._retry, self._frontier
        answers = await retry.each(parts, frontier.repeat_pushes)
        lacking = {node: parts[node] for node, answer in answers.items() if isinstance(answer, ReplicasMissing)}
        taken = await retry.each(lacking, lambda shards: frontier.repeat_pushes(shards, without_acks=True))
        unsafe = {shard for node in parts if isinstance(answers[node], RedisAway) for shard in parts[node]}
        reached = [node for node in parts if not isinstance((answers | taken)[node], RedisAway)]
        ready = [shard for node in reached for shard in parts[node]]
        if not unsafe:
            return ready

        async def keep(shards: list[int]) -> set[int]:
            links = frontier.recent_links(unsafe.difference(shards))
            settled = frontier.recently_settled(shards)
            return await frontier.keep_links(dict.fromkeys(settled, links)) if links else set()

        kept, _ = await retry.each_node(ready, int, keep)
        return [shard for shards, full in kept for shard in shards if shard not in full]


def _shard_of(leased: LeasedDomain) -> int:
    return leased.lease.shard


def total(replies: Iterable[PushReply]) -> PushReply:
    """The sum of the replies."""
    replies = list(replies)
    return PushReply(
        accepted=sum(reply.accepted for reply in replies),
        seen=sum(reply.seen for reply in replies),
        capped=sum(reply.capped for reply in replies),
        outside=sum(reply.outside for reply in replies),
        shards=frozenset().union(*(reply.shards for reply in replies)),
        unknown=frozenset().union(*(reply.unknown for reply in replies)),
    )
