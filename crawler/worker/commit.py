"""The commit: it makes the results of requests durable, in an order that loses nothing in a crash.

Results are collected for some tens of milliseconds and committed as a group:

1. **push** the links, so that the links of every settled page are in the frontier;
2. make the pages' records **durable** in the sink, so that every settled URL has its record;
3. **settle** the URLs. After a crash before this step, URLs are fetched a second time, but no page or link is lost: when
   the sink's files are recovered, the pages that were not settled are removed from them. This replica does the same with
   pages whose lease ended before they were settled.

Before the first and the last step, results are dropped if the lease of their domain has ended, for example while the
replica was suspended. Other replicas may have counted its permits as used, fetched the URLs again, and found the end of
the crawl.

If the server was restarted, it may have lost its last writes. So they are repeated before the next group, and the links of
a group also before its URLs are settled (`crawler.worker.redis_restarts`).

Each step is repeated until it succeeds, and only then does the next one begin. A step that has succeeded is not repeated,
unless a server was restarted.
The backlog is bounded: while it is full, workers wait with their results. A slow disk or a Redis outage therefore stops
the fetching.

**A node of a cluster that is away** holds up only the results of its own shards. They are *parked*, and tried again later.
Links that belong to its shards go to outboxes (`link_pusher`). If it does not answer when the group is settled, the files
of the group are set aside, and a task settles the rest later; until then, no other result of this node is written. Domains
whose results would be parked take no turns (`holds_up`), so no more than the results of the requests in flight wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeVar

from crawler.defects import defect
from crawler.errors import SinkFull
from crawler.events import GroupCommitted, PageSettled, SinkBlocked
from crawler.page import Exchange, Outcome, Page, Written
from crawler.scope.scope import RecentUrls
from crawler.worker.commit_group import Group, LeaseReport, Result, release_memory
from crawler.worker.group_settler import GroupSettler, settlement
from crawler.worker.held_leases import HeldLeases
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.link_pusher import LinkPusher
from crawler.worker.redis_restarts import WriteRepeater
from crawler.worker.runtime import Runtime
from frontier.errors import RedisAway
from frontier.queue import Frontier
from frontier.settle import LeasedUrl, SettleReply

T = TypeVar("T")

EVENTS_PER_SLICE = 64
"""Page events that are emitted before yielding to the event loop: about 3 ms."""

WINDOW_S = 0.06
"""How long results are collected, in seconds. A longer window costs less per page but settles later."""

GROUP = 256
"""If this many results already wait, they are committed without waiting for the window."""

BACKLOG = 512
BACKLOG_BYTES = 64 << 20
"""The number of waiting results, and the size of their bodies and links, at which workers have to wait."""

UNPARK_S = 0.25
"""How long parked results rest before they are tried again."""

SettleLater = Callable[[Collection[int]], Awaitable[None]]
"""`PageSink.settled` for a group that was set aside."""


class PageSink(Protocol):
    """Where records are written.

    `write` returns when the records are durable. `leased` has the lease under which each page was fetched. `settled`
    reports that the group is settled, except for the pages with the indexes `unsettled`, which the sink removes. Both
    raise SinkFull when there is no room; the call may then be repeated. Instead of calling `settled`, the last group may
    be set aside: the call that is returned takes the place of `settled`, and other groups may be written before it.
    `take_back` removes pages of the last seconds.
    """

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> Written: ...

    async def settled(self, unsettled: Collection[int] = ()) -> None: ...

    async def set_aside(self) -> SettleLater: ...

    async def take_back(self, urls: Sequence[LeasedUrl]) -> None: ...


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
        self._pusher = LinkPusher(runtime, frontier, recent, held)
        self.held = held
        self._repeater = WriteRepeater(runtime, frontier, sink, recent, held)
        self._next, self._committing = Group(), Group()  # collects results; is being committed
        self._parked = Group()  # for nodes that are away
        self._parked_shards: frozenset[int] = frozenset()
        self._late: dict[asyncio.Task[None], Group] = {}  # groups that are settled later
        self._late_nodes: Counter[str] = Counter()
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
        return any(
            leased in group.closing or any(result.leased is leased for result in group.results)
            for group in (self._committing, self._next, self._parked, *self._late.values())
        )

    def holds_up(self, leased: LeasedDomain) -> bool:
        """Whether a result of `leased` would be parked now. It then takes no turns, so the results that wait are at most
        those of the requests in flight."""
        shard = leased.lease.shard
        return shard in self._parked_shards or self._runtime.retry.is_shard_away(shard)

    @property
    def is_idle(self) -> bool:
        """Whether all results are committed."""
        return self._idle.is_set()

    async def add(self, result: Result) -> None:
        """Add `result` to the next group. Waits while the backlog is full."""
        await self._room.wait()
        self._next.add(result, self._runtime.now())
        if len(self._next.results) >= BACKLOG or self._next.memory_bytes >= BACKLOG_BYTES:
            self._room.clear()
        if len(self._next.results) == 1:  # whoever added the first one has woken it
            self._wake()

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
                self._reap()
                await self._commit(self._committing)
                done, self._committing = self._committing.results, Group()
                await release_memory(done)
                if not (self._has_work.is_set() or self._late or self._parked.results or self._parked.closing):
                    self._idle.set()
        finally:
            for task in self._late:
                task.cancel()
            if self._timer is not None:
                self._timer.cancel()

    def _reap(self) -> None:
        """Forget the groups that were settled meanwhile. Raises what their tasks have raised."""
        for task in [task for task in self._late if task.done()]:
            del self._late[task]
            task.result()

    async def watch_runs(self) -> None:
        """Have the last writes repeated when the server was restarted, until cancelled."""
        await self._repeater.watch(self._wake)

    async def flush(self) -> None:
        """Wait until all results added so far are committed."""
        await self._idle.wait()

    # parked results

    def _is_held_up(self, leased: LeasedDomain) -> bool:
        node, shard = self._runtime.retry.node_of(leased.lease.shard), leased.lease.shard
        return self._late_nodes[node] > 0 or shard in self._parked_shards or self._runtime.retry.is_node_away(node)

    def _park(self, results: Iterable[Result], closing: Iterable[LeasedDomain] = ()) -> None:
        for result in results:
            self._parked.add(result, self._runtime.now())
        self._parked.closing.extend(closing)
        self._parked_shards = frozenset(result.shard for result in self._parked.results)
        if self._timer is None and (self._parked.results or self._parked.closing):
            self._timer = asyncio.get_running_loop().call_later(UNPARK_S, self._unpark)

    def _unpark(self) -> None:
        self._timer = None
        parked, self._parked = self._parked, Group()
        self._parked_shards = frozenset()
        self._next.put_first(parked)
        self._wake()

    def _park_held_up(self, group: Group) -> None:
        """Park the results and returns in `group` of domains whose nodes are away. A robots.txt only has to be archived."""
        if not (self._runtime.retry.has_many_nodes or self._parked_shards or self._late):
            return
        stuck = [result for result in group.results if not result.exchange and self._is_held_up(result.leased)]
        domains = {result.leased for result in stuck}
        unsettled = domains.union(result.leased for late in self._late.values() for result in late.results)
        leaving = [leased for leased in group.closing if leased in unsettled or self._is_held_up(leased)]
        if domains:
            group.results[:] = [result for result in group.results if result.exchange or result.leased not in domains]
        group.closing[:] = [leased for leased in group.closing if leased not in leaving]
        self._park(stuck, leaving)

    # the steps

    async def _commit(self, group: Group) -> None:
        self._park_held_up(group)
        started = self._runtime.now()
        await self._repeater.repeat(self.renew)
        results = await self._push(group)
        pushed = self._runtime.now()
        kept = await self._write(results)
        if kept.failed:
            results = [result.unless_in(kept.failed) for result in results]
        written = self._runtime.now()
        settler = GroupSettler(self._runtime, self._frontier, self._apply, self._pusher.keep, results)
        settler.begin(kept.duplicates)
        if not await settler.attempt():
            await self._settle_later(group, results, settler)
            return
        if any(result.page is not None for result in results):
            await self._write_until_there_is_room(lambda: self._sink.settled(settler.unsettled))
        await self._release(group.closing)
        await self._report(group, results, settler.stale, (started, pushed, written))

    async def _report(
        self, group: Group, results: Sequence[Result], stale: set[LeasedDomain], began: tuple[float, float, float]
    ) -> None:
        """Emit the events of a group that is settled. `began`: when the pushing began, the writing and the settling."""
        settled = self._runtime.now()
        for number, result in enumerate(results, 1):
            if result.page is not None:
                self._emit_page(result.page)
            if number % EVENTS_PER_SLICE == 0:
                await asyncio.sleep(0)
        # Also pages that were dropped because their lease has ended, or that a sink could not handle, have used permits.
        done = sum(result.settled is not None and result.settled.outcome == Outcome.DONE for result in group.results)
        stale = stale | ({result.leased for result in group.results} - {result.leased for result in results})
        lag_s = settled - group.first_at if group.results else 0.0
        started, pushed, written = began
        steps = (pushed - started, written - pushed, settled - written)
        self._runtime.events.emit(GroupCommitted(len(group.results), done, *steps, len(stale), lag_s))

    def _emit_page(self, page: Page) -> None:
        try:
            self._runtime.events.emit(PageSettled(page))
        except Exception as error:  # raised by a listener; the page is settled nevertheless
            self._runtime.events.emit(defect("listener", page.url, error))

    async def _push(self, group: Group) -> list[Result]:
        """Push the links of `group`. Returns the results to write. Those whose links cannot be kept now are parked."""
        results, waiting = await self._pusher.push(group.results)
        if not waiting:
            return results
        stuck = {result.leased for result in waiting}
        leaving = [leased for leased in group.closing if leased in stuck]
        self._park((result for result in results if result.leased in stuck and not result.exchange), leaving)
        group.results[:] = [result for result in group.results if result.exchange or result.leased not in stuck]
        group.closing[:] = [leased for leased in group.closing if leased not in stuck]
        return [result for result in results if result.exchange or result.leased not in stuck]

    async def _write(self, results: Sequence[Result]) -> Written:
        with_page = [result for result in results if result.page is not None]
        pages = [result.page for result in with_page if result.page is not None]
        exchanges = [result.exchange for result in results if result.exchange is not None]
        if not pages and not exchanges:
            return Written()
        urls = [result.leased_url for result in with_page]
        return await self._write_until_there_is_room(lambda: self._sink.write(pages, exchanges, urls))

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

    async def _settle_later(self, group: Group, results: Sequence[Result], settler: GroupSettler) -> None:
        """Have a task settle what is left of `group`, whose pages were written."""
        has_pages = any(result.page is not None for result in results)
        settled = await self._write_until_there_is_room(self._sink.set_aside) if has_pages else None
        nodes = settler.nodes
        self._late_nodes.update(nodes)
        open_domains = set(settler.open_domains)
        whole = Group(list(group.results), [], group.first_at)  # `run` empties the lists of `group`
        rest = Group(list(results), [leased for leased in group.closing if leased in open_domains], group.first_at)

        async def settle() -> None:
            began = self._runtime.now()
            while not await settler.attempt():
                await self._runtime.clock.sleep(UNPARK_S)
            if settled is not None:
                await self._write_until_there_is_room(lambda: settled(settler.unsettled))
            self._late_nodes.subtract(nodes)
            await self._release(rest.closing)
            await self._report(whole, results, settler.stale, (began, began, began))

        task = asyncio.create_task(settle())
        task.add_done_callback(lambda _: self._wake())
        self._late[task] = rest
        await self._release([leased for leased in group.closing if leased not in open_domains])

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

        retry = self._runtime.retry
        await retry.each(retry.split(domains, lambda leased: leased.lease.shard), renew)

    async def _release(self, domains: Sequence[LeasedDomain]) -> None:
        """Return the leases of `domains`. Those on nodes that are away are parked, and those on a server that was restarted
        until this replica has repeated its writes: without a lease, Redis cannot tell which of its URLs were settled."""

        async def release(part: list[LeasedDomain]) -> None:
            replaced = self._frontier.replaced_runs()
            self._park((), [leased for leased in part if leased.lease.shard in replaced])
            part[:] = [leased for leased in part if leased.lease.shard not in replaced]
            settlements = [settlement(self._runtime, leased, LeaseReport()) for leased in part]
            for leased, reply in zip(part, await self._frontier.release(settlements), strict=True):
                self._apply(leased, reply, self._runtime.now())

        retry = self._runtime.retry
        parts = retry.split(domains, lambda leased: leased.lease.shard)
        for node, answer in (await retry.each(parts, release)).items():
            if isinstance(answer, RedisAway):
                self._park((), parts[node])

    def _apply(self, leased: LeasedDomain, reply: SettleReply, asked_at: float) -> None:
        if reply.expires_ms is not None:
            lease_end = self.held.lease_end(asked_at, self._frontier.settings.lease_ms)
            leased.renewed(lease_end, self._runtime.now())
        elif reply.stale:
            leased.renewed(float("-inf"), self._runtime.now())
        self.held.settled(leased, reply)
