"""The lease manager: it leases due domains from the shards that this replica owns, and puts them into the local queue.

It asks a shard only when a domain may be due there, and workers are free or no domain is overdue. The reply to a
lease call says when the shard is next due, the reply to a settle call says when the returned domain is due, and a push
says which shards got URLs (`HeldLeases`). Idle shards are polled every `poll_s`, because other replicas may push URLs
into them. Each of several nodes has rounds of its own, so a node that does not answer holds up only its own shards.

`PagePermits` holds back domains while the crawl may fetch no more pages (`limits.max_pages`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial

import msgspec

from crawler.events import DomainsLeased, Event, GroupCommitted, ShardFenced, ViewAdopted
from crawler.worker.commit import Committer
from crawler.worker.leases import DelayQueue, HeldLeases, LeasedDomain
from crawler.worker.runtime import Runtime
from frontier.budget import PERIOD_S, SHORT_PERIOD_S, Budget
from frontier.entries import Entry
from frontier.errors import Fenced, RedisAway, WrongType
from frontier.peers import View, plan_handoff
from frontier.queue import Frontier
from frontier.settle import LeaseReply

GATHER_S = 0.01
"""Shortest time between two calls for permits, and between two rounds of leases, so that several needs share a call."""

CALLS_A_ROUND = 64
"""Lease calls in one round trip. They block the Redis server for about 1 ms."""

CHECKS_A_ROUND = 512
"""Empty shards that are looked at in one round trip, which takes the server about as long."""

CHECKS_A_SECOND = 8_192
"""The most looks at empty shards in a second. With more shards, each is looked at less often. For URLs of its own
pages, a replica does not wait for that."""


URGENT_ROUNDS = 8
"""Rounds after seeds were queued in which domains with urgent URLs are leased although all workers are busy: one of each
shard in a round."""


class LeaseManagerSettings(msgspec.Struct, frozen=True):
    """`ahead`: domains requested in one round, over all shards. `domains`: the most leases held at a time, with those
    that wait; each takes about 4 KB. `poll_s`: seconds between two polls of an idle shard, if there are not very many
    shards."""

    ahead: int = 128
    domains: int = 20_000
    poll_s: float = 0.5


class LeaseManager:
    """Leases due domains of the owned shards, renews the leases, and returns them. `prefetch` is awaited with new
    leased domains before they enter the queue."""

    def __init__(
        self,
        runtime: Runtime,
        frontier: Frontier,
        committer: Committer,
        held: HeldLeases,
        queue: DelayQueue,
        permits: PagePermits,
        prefetch: Callable[[Sequence[LeasedDomain]], Awaitable[None]],
        settings: LeaseManagerSettings,
    ) -> None:
        self._runtime = runtime
        self._frontier = frontier
        self._committer = committer
        self._held = held
        self._queue = queue
        self._permits = permits
        self._prefetch = prefetch
        self._settings = settings
        self.view: View | None = None
        self._is_draining = False
        self._paused = False
        self._rounds: dict[str, asyncio.Task[None]] = {}  # by node, if there are several
        self._urgent_rounds = 0  # that are left

    def __repr__(self) -> str:
        return f"<LeaseManager {self._held!r}>"

    def adopt(self, view: View) -> None:
        """Adopt `view`: start leasing from shards that it adds, and return the leases of shards that it removes. Work
        on the other shards continues. After `drain`, views are ignored."""
        if self._is_draining:
            return
        if not view.roster and self.view is not None and self.view.roster:
            # No replica could claim a place in the last epoch, because the node of the roster was away. Nobody has been
            # given this replica's shards, so it keeps them. If others have, they are in a newer view, and the shards
            # refuse this one.
            return
        handoff = plan_handoff(self._held.shards, () if self._paused else view.owners, self._runtime.replica)
        self.view = view
        self.close(self._held.remove_shards(handoff.drop))
        self._held.add_shards(handoff.take)
        self._runtime.events.emit(ViewAdopted(view, len(self._held.shards), len(handoff.take), len(handoff.drop)))

    def set_paused(self, paused: bool) -> None:
        """While `paused`, own no shards and return all leases. Views are still adopted."""
        if paused != self._paused:
            self._paused = paused
            if self.view is not None:
                self.adopt(self.view)

    def note_seeds(self) -> None:
        """Seeds were queued. Urgent ones are leased soon, even if there is no room for others."""
        self._urgent_rounds = URGENT_ROUNDS
        self._held.wake.set()

    def drain(self) -> None:
        """Take no more leases, and return those of leased domains that no worker is busy with."""
        self._is_draining = True
        self._held.disown_all()
        self.close(self._held)

    def close(self, domains: Iterable[LeasedDomain]) -> None:
        """Return the leases of `domains`, as soon as no worker is busy with them."""
        closing = list(domains)
        for leased in closing:
            leased.closing = True
            leased.is_queued = False
        self._queue.remove(set(closing))
        for leased in closing:
            if not leased.busy:
                self.finish(leased)

    def finish(self, leased: LeasedDomain) -> None:
        """Return the lease of `leased` with its remaining URLs, after its last turn."""
        if leased.pending:
            leased.pending.clear()
            self._committer.give_back(leased)

    async def run(self) -> None:
        """Lease domains until cancelled."""
        try:
            while True:
                self._held.wake.clear()
                if self._has_room:
                    await self._lease()
                elif self._urgent_rounds and self._may_lease:
                    await self._lease_urgent()
                await self._wait_for_need()
        finally:
            for task in self._rounds.values():
                task.cancel()

    async def _lease(self) -> None:
        """Lease from the shards that are due. With several nodes, start a round for each node that has none."""
        now = self._runtime.now()
        if not self._runtime.retry.has_many_nodes:
            await self._lease_round("", self._first(self._held.due()), now, self._settings.ahead)
            return
        for node, task in list(self._rounds.items()):
            if task.done():
                del self._rounds[node]
                task.result()  # raises what the round has raised
        parts = self._runtime.retry.split(self._held.due(), lambda shard: shard)
        each = self._settings.ahead // max(1, len(parts))
        for node, shards in parts.items():
            if node not in self._rounds:
                task = asyncio.create_task(self._lease_round(node, self._first(shards), now, each))
                task.add_done_callback(lambda _: self._held.wake.set())
                self._rounds[node] = task
            elif self._runtime.retry.is_node_away(node):
                self._ask_later(shards, now)  # its round goes on until it is back

    async def _lease_urgent(self) -> None:
        """Lease from the shards in which a domain may have urgent URLs. Nodes that are away are left out."""
        self._urgent_rounds -= 1
        retry = self._runtime.retry
        for node, owned in retry.split(list(self._held.shards), lambda shard: shard).items():
            if retry.has_many_nodes and retry.is_node_away(node):
                continue
            try:
                shards = await self._frontier.shards_with_urgent(owned)
            except RedisAway:
                continue  # the rounds of all shards notice that, and wait
            if shards and not retry.has_many_nodes:
                await self._lease_round("", shards, self._runtime.now(), len(shards))
            elif shards and node not in self._rounds:
                self._rounds[node] = asyncio.create_task(
                    self._lease_round(node, shards, self._runtime.now(), len(shards))
                )

    def _first(self, due: list[int]) -> list[int]:
        return self._held.longest_due(due, CALLS_A_ROUND, CHECKS_A_ROUND)

    @property
    def _poll_s(self) -> float:
        return max(self._settings.poll_s, len(self._held.shards) / CHECKS_A_SECOND)

    @property
    def _may_lease(self) -> bool:
        is_full = len(self._held) >= self._settings.domains
        if self._is_draining or self.view is None or is_full or self._permits.is_awaited:
            return False
        now = self._runtime.now()
        return self._held.lease_end(now, self._frontier.settings.lease_ms) > now  # or its pages could not be settled

    @property
    def _has_room(self) -> bool:
        if not self._may_lease:
            return False
        return self._queue.idle_workers > 0 or self._queue.lateness() < 0.01

    async def _wait_for_need(self) -> None:
        """Wait until a shard should be asked, and for at least `GATHER_S`."""
        await self._runtime.clock.sleep(GATHER_S)
        if self.view is not None and not self._has_room:
            return
        wait_s = min(self._held.next_due() - self._runtime.now(), self._poll_s)
        if wait_s > 0 and not self._held.wake.is_set():
            timer = asyncio.get_running_loop().call_later(wait_s, self._held.wake.set)
            await self._held.wake.wait()
            timer.cancel()

    async def _lease_round(self, node: str, due: list[int], now: float, ahead: int) -> None:
        """Lease up to `ahead` domains from the shards `due`, which are on `node`."""
        with contextlib.suppress(WrongType):  # in one of the shards, which is asked separately from now on
            await self._lease_from(node, due, now, ahead)

    async def _lease_from(self, node: str, due: list[int], now: float, ahead: int) -> None:
        shards = await self._without_idle(node, due, now)
        if not shards or self.view is None:
            return
        epoch = self.view.epoch
        each = max(1, ahead // len(shards))

        async def lease() -> tuple[float, list[LeaseReply], list[Fenced]]:
            asked_at = self._runtime.now()  # set by each attempt: earlier ones may have failed
            return asked_at, *await self._frontier.lease(shards, epoch, self._runtime.replica, each)

        asked_at, answers, fenced = await self._runtime.retry.call(lease, node, is_divisible=True)
        domains = [leased for answer in answers for leased in self._accept(answer, asked_at)]
        for refusal in fenced:
            self._runtime.events.emit(ShardFenced(str(refusal)))
        self._ask_later(shards, now)  # fenced shards too: the next view says who owns them
        count = sum(len(answer.leases) for answer in answers)
        urls = sum(len(lease.entries) for answer in answers for lease in answer.leases)
        self._runtime.events.emit(DomainsLeased(count, urls, self._runtime.now() - now))
        if domains:
            await self._prefetch(domains)
        for leased in domains:
            if not leased.closing:  # it may have been closed during the prefetch
                self._queue.put(leased)

    async def _without_idle(self, node: str, shards: list[int], now: float) -> list[int]:
        """Return `shards` without those that were empty when last asked and still are.

        A newly owned shard is always asked: even an empty lease call records this replica as its owner.
        """
        empty = self._held.empty_among(shards)
        if not empty:
            return shards
        look = partial(self._frontier.shards_with_work, empty)
        self._held.note_work(await self._runtime.retry.call(look, node, is_divisible=True))
        empty = self._held.empty_among(empty)
        self._ask_later(empty, now)
        owned = self._held.shards
        # The others stay due.
        return [shard for shard in shards if shard in owned and shard not in empty][:CALLS_A_ROUND]

    def _ask_later(self, shards: Collection[int], now: float) -> None:
        self._held.ask_later(shards, now, now + self._poll_s)

    def _accept(self, answer: LeaseReply, asked_at: float) -> list[LeasedDomain]:
        """Take the leases of `answer`. Returns the leased domains to put into the queue."""
        lease_end = self._held.lease_end(asked_at, self._frontier.settings.lease_ms)
        domains, is_ours = self._held.take(answer, lease_end, asked_at, self._poll_s)
        if is_ours and not self._is_draining:
            return domains
        for leased in domains:
            leased.closing = True
            self.finish(leased)
        return []

    async def keep_alive(self) -> None:
        """Renew leases that have less than half of their time left, until cancelled.

        A lease whose URLs are all settled but that Redis still has is returned instead. This happens when Redis
        restarts and loses its last second of writes: the settle call is lost, and without the return the lease would be
        renewed forever.
        """
        half_s = self._frontier.settings.lease_ms / 2000
        while True:
            await self._runtime.clock.sleep(half_s / 4)
            now = self._runtime.now()
            old = [leased for leased in self._held if now < leased.lease_end < now + half_s]
            for leased in [leased for leased in old if self._is_finished(leased)]:
                old.remove(leased)
                self._committer.give_back(leased)
            await self._committer.renew(old)
            for leased in self._held:
                if leased.lease_end <= now and not leased.busy:
                    self._held.forget(leased)  # it expired before it could be renewed

    def _is_finished(self, leased: LeasedDomain) -> bool:
        return not (leased.pending or leased.busy or self._committer.awaits(leased))


class PagePermits:
    """The permits of `budget` that this replica holds, for up to `at_once` requests in flight, and the domains that
    wait for a permit. They wait here and not in the queue, so they cost nothing until there are permits. Permits are
    fetched ahead of need. Domains have to wait only near the page limit.

    `replicas`: how many the view has. Without any, this replica may not know the time, and a call with a time that is
    ahead would end the permits of others."""

    def __init__(
        self,
        runtime: Runtime,
        budget: Budget,
        queue: DelayQueue,
        at_once: int,
        replicas: Callable[[], int] = lambda: 1,
    ) -> None:
        self._runtime = runtime
        self._budget = budget
        self._queue = queue
        self._at_once = at_once
        self._replicas = replicas
        runtime.events.subscribe(self._observe, GroupCommitted, ViewAdopted)
        self._waiting: deque[LeasedDomain] = deque()
        self._is_due = asyncio.Event()

    def __repr__(self) -> str:
        return f"<PagePermits {self._budget!r} waiting={len(self._waiting)}>"

    @property
    def is_awaited(self) -> bool:
        """Whether a leased domain waits for a permit. If so, it is useless to lease others."""
        return bool(self._waiting)

    def take(self, entry: Entry) -> bool:
        """Take a permit for `entry`, unless it is a requisite, which needs none. Returns False if there is none."""
        if entry.is_requisite:
            return True
        taken = self._budget.take()
        self.note_need()
        return taken

    def give_back(self, entry: Entry) -> None:
        """Return the permit that was taken for `entry` and brought no page."""
        if entry.is_requisite:
            return
        self._budget.give_back()
        self._wake()

    def _observe(self, event: Event) -> None:
        """Count the permits that settled pages have used, and fetch some as soon as there are replicas."""
        if isinstance(event, GroupCommitted):
            self._budget.used(event.done)
            self.note_need()
        elif isinstance(event, ViewAdopted):
            self._is_due.set()

    def wait(self, leased: LeasedDomain) -> None:
        """Put `leased` into the queue as soon as there is a permit for it."""
        leased.wants_permit = False
        self._waiting.append(leased)
        self._wake()

    def note_need(self) -> None:
        """Have permits fetched soon if the budget runs low."""
        if self._budget.is_low:
            self._is_due.set()

    @property
    def are_spent(self) -> bool:
        """Whether the crawl has reached its page limit."""
        return self._budget.is_exhausted

    def wake_all(self) -> None:
        """Put all waiting domains into the queue: they may have requisites, which need no permit."""
        self._wake(len(self._waiting))

    def _wake(self, most: int | None = None) -> None:
        """Put as many waiting domains into the queue as there are free permits, or `most`."""
        now = self._runtime.now()
        for _ in range(min(len(self._waiting), self._budget.available if most is None else most)):
            leased = self._waiting.popleft()
            if not leased.closing:  # otherwise its lease was returned in the meantime
                leased.wait_at_least_until(now)
                self._queue.put(leased)

    async def run(self, on_spent: Callable[[], None]) -> None:
        """Keep permits in stock until cancelled. Calls `on_spent` repeatedly once the crawl has reached its page
        limit."""
        while True:
            replicas = self._replicas()
            if replicas and self._budget.is_due(replicas, len(self._waiting)):
                await self._runtime.retry.call(self._refresh)
            self._is_due.clear()  # it may have been set during the call, for permits that the call has brought
            if replicas:  # otherwise the next view is awaited
                self.note_need()
            self._wake()
            if self._budget.is_exhausted:
                on_spent()
            await self._pause()

    async def _refresh(self) -> None:
        self._wake()  # without a limit, permits are free while the node of the budget is away
        await self._budget.refresh(self._at_once, len(self._waiting))
        if self._budget.is_used_up and not self._budget.is_exhausted:
            await self._budget.recount()
            await self._budget.refresh(self._at_once, len(self._waiting))

    async def _pause(self) -> None:
        """Wait until permits run low, or for as long as a report may be late."""
        await self._runtime.clock.sleep(GATHER_S)
        period_s = SHORT_PERIOD_S if self._budget.is_short or self._waiting else PERIOD_S
        timer = asyncio.get_running_loop().call_later(period_s, self._is_due.set)
        await self._is_due.wait()
        timer.cancel()
