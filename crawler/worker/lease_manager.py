"""The lease manager: it leases due domains from the shards that this replica owns, and puts them into the local queue.

It asks a shard only when a domain may be due there, and workers are free or no domain is overdue. The reply to a
lease call says when the shard is next due, the reply to a settle call says when the returned domain is due, and a push
says which shards got URLs (`HeldLeases`). Idle shards are polled every `poll_s`, because other replicas may push URLs
into them.

Each node of a cluster has rounds of its own, so a node that does not answer holds up only its own shards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

import msgspec

from crawler.events import DomainsLeased, ShardFenced, ViewAdopted
from crawler.worker.allowance import Allowance
from crawler.worker.commit import Committer
from crawler.worker.held_leases import HeldLeases
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.runtime import Runtime
from frontier.errors import Fenced
from frontier.peers import View, plan_handoff
from frontier.queue import Frontier
from frontier.settle import LeaseReply

CALLS_A_ROUND = 64
"""Lease calls in one round trip. They block the Redis server for about 1 ms."""

CHECKS_A_ROUND = 512
"""Empty shards that are looked at in one round trip, which takes the server about as long."""

CHECKS_A_SECOND = 8_192
"""The most looks at empty shards in a second. With more shards, each is looked at less often. For URLs of its own pages, a
replica does not wait for that."""

Prefetch = Callable[[Sequence[LeasedDomain]], Awaitable[None]]
"""Called with new leased domains, and awaited, before they enter the queue."""


class LeaseManagerSettings(msgspec.Struct, frozen=True):
    """`ahead`: domains requested in one round, over all shards. `domains`: the most leases held at a time, with those that
    wait; each takes about 4 KB. `poll_s`: seconds between two polls of an idle shard, if there are not very many shards."""

    ahead: int = 128
    domains: int = 20_000
    poll_s: float = 0.5


class LeaseManager:
    """Leases due domains of the owned shards, renews the leases, and returns them."""

    def __init__(
        self,
        runtime: Runtime,
        frontier: Frontier,
        committer: Committer,
        allowance: Allowance,
        prefetch: Prefetch,
        settings: LeaseManagerSettings,
    ) -> None:
        self._runtime = runtime
        self._frontier = frontier
        self._committer = committer
        self._allowance = allowance
        self._prefetch = prefetch
        self._settings = settings
        self.held: HeldLeases = committer.held
        self.queue = allowance.queue
        self.is_held_up = committer.holds_up
        self.view: View | None = None
        self._is_draining = False
        self._paused = False
        self._rounds: dict[str, asyncio.Task[None]] = {}  # by node of a cluster

    def __repr__(self) -> str:
        return f"<LeaseManager {self.held!r}>"

    def adopt(self, view: View) -> None:
        """Adopt `view`: start leasing from shards that it adds, and return the leases of shards that it removes. Work on
        the other shards continues. After `drain`, views are ignored."""
        if self._is_draining:
            return
        if not view.roster and self.view is not None and self.view.roster:
            # No replica could claim a place in the last epoch, because the node of the roster was away. Nobody has been
            # given this replica's shards, so it keeps them. If others have, they are in a newer view, and the shards
            # refuse this one.
            return
        handoff = plan_handoff(self.held.shards, () if self._paused else view.owners, self._runtime.replica)
        self.view = view
        self._close(self.held.remove_shards(handoff.drop))
        self.held.add_shards(handoff.take)
        self._runtime.events.emit(ViewAdopted(view, len(self.held.shards), len(handoff.take), len(handoff.drop)))

    def set_paused(self, paused: bool) -> None:
        """While `paused`, own no shards and return all leases. Views are still adopted."""
        if paused != self._paused:
            self._paused = paused
            if self.view is not None:
                self.adopt(self.view)

    def drain(self) -> None:
        """Take no more leases, and return those of leased domains that no worker is busy with."""
        self._is_draining = True
        self.held.disown_all()
        self._close(self.held)

    def _close(self, domains: Iterable[LeasedDomain]) -> None:
        closing = list(domains)
        for leased in closing:
            leased.close()
            leased.queued(False)
        self.queue.remove(set(closing))
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
                self.held.wake.clear()
                if self._has_room:
                    await self._lease()
                await self._wait_for_need()
        finally:
            for task in self._rounds.values():
                task.cancel()

    async def _lease(self) -> None:
        """Lease from the shards that are due. On a cluster, start a round for each node that has none."""
        now = self._runtime.now()
        if not self._runtime.retry.has_many_nodes:
            await self._lease_round("", self._first(self.held.due()), now, self._settings.ahead)
            return
        for node, task in list(self._rounds.items()):
            if task.done():
                del self._rounds[node]
                task.result()  # raises what the round has raised
        parts = self._runtime.retry.split(self.held.due(), lambda shard: shard)
        each = self._settings.ahead // max(1, len(parts))
        for node, shards in parts.items():
            if node not in self._rounds:
                task = asyncio.create_task(self._lease_round(node, self._first(shards), now, each))
                task.add_done_callback(lambda _: self.held.wake.set())
                self._rounds[node] = task
            elif self._runtime.retry.is_node_away(node):
                self._ask_later(shards, now)  # its round goes on until it is back

    def _first(self, due: list[int]) -> list[int]:
        return self.held.longest_due(due, CALLS_A_ROUND, CHECKS_A_ROUND)

    @property
    def _poll_s(self) -> float:
        return max(self._settings.poll_s, self.held.shard_count / CHECKS_A_SECOND)

    @property
    def _has_room(self) -> bool:
        if (
            self._is_draining
            or self.view is None
            or len(self.held) >= self._settings.domains
            or self._allowance.is_awaited
        ):
            return False
        now = self._runtime.now()
        if self.held.lease_end(now, self._frontier.settings.lease_ms) <= now:  # its pages could not be settled
            return False
        return self.queue.idle_takers > 0 or self.queue.lateness() < 0.01

    async def _wait_for_need(self) -> None:
        """Wait until a shard should be asked, and for at least 10 ms, so that several calls share a round trip."""
        await self._runtime.clock.sleep(0.01)
        if self.view is not None and not self._has_room:
            return
        wait_s = min(self.held.next_due() - self._runtime.now(), self._poll_s)
        if wait_s > 0 and not self.held.wake.is_set():
            timer = asyncio.get_running_loop().call_later(wait_s, self.held.wake.set)
            await self.held.wake.wait()
            timer.cancel()

    async def _lease_round(self, node: str, due: list[int], now: float, ahead: int) -> None:
        """Lease up to `ahead` domains from the shards `due`, which are on `node`."""
        shards = await self._without_idle(node, due, now)
        if not shards or self.view is None:
            return
        epoch = self.view.epoch
        each = max(1, ahead // len(shards))

        async def lease() -> tuple[float, list[LeaseReply], list[Fenced]]:
            asked_at = self._runtime.now()  # set by each attempt: earlier ones may have failed
            return asked_at, *await self._frontier.lease(shards, epoch, self._runtime.replica, each)

        asked_at, answers, fenced = await self._runtime.retry.call(lease, node)
        taken = [leased for answer in answers for leased in self._accept(answer, asked_at)]
        for refusal in fenced:
            self._runtime.events.emit(ShardFenced(str(refusal)))
        self._ask_later(shards, now)  # fenced shards too: the next view says who owns them
        count = sum(len(answer.leases) for answer in answers)
        urls = sum(len(lease.entries) for answer in answers for lease in answer.leases)
        self._runtime.events.emit(DomainsLeased(count, urls, self._runtime.now() - now))
        await self._enqueue(taken)

    async def _enqueue(self, domains: Sequence[LeasedDomain]) -> None:
        if domains:
            await self._prefetch(domains)
        for leased in domains:
            if not leased.closing:  # it may have been closed during the prefetch
                self.queue.put(leased, leased.next_at)

    async def _without_idle(self, node: str, shards: list[int], now: float) -> list[int]:
        """Return `shards` without those that were empty when last asked and still are.

        A newly owned shard is always asked: even an empty lease call records this replica as its owner.
        """
        empty = self.held.empty_among(shards)
        if not empty:
            return shards
        found = await self._runtime.retry.call(lambda: self._frontier.shards_with_work(empty), node)
        self.held.filled(found)
        empty = self.held.empty_among(empty)
        self._ask_later(empty, now)
        owned = self.held.shards
        # The others stay due.
        return [shard for shard in shards if shard in owned and shard not in empty][:CALLS_A_ROUND]

    def _ask_later(self, shards: Collection[int], now: float) -> None:
        self.held.ask_later(shards, now, now + self._poll_s)

    def _accept(self, answer: LeaseReply, asked_at: float) -> list[LeasedDomain]:
        """Take the leases of `answer`. Returns the leased domains to put into the queue."""
        lease_end = self.held.lease_end(asked_at, self._frontier.settings.lease_ms)
        domains, is_ours = self.held.take(answer, lease_end, asked_at, self._poll_s)
        if is_ours and not self._is_draining:
            return domains
        for leased in domains:
            leased.close()
            self.finish(leased)
        return []

    async def keep_alive(self) -> None:
        """Renew leases that have less than half of their time left, until cancelled.

        A lease whose URLs are all settled but that Redis still has is returned instead. This happens when Redis restarts
        and loses its last second of writes: the settle call is lost, and without the return the lease would be renewed
        for ever.
        """
        half_s = self._frontier.settings.lease_ms / 2000
        while True:
            await self._runtime.clock.sleep(half_s / 4)
            now = self._runtime.now()
            old = [leased for leased in self.held if now < leased.lease_end < now + half_s]
            for leased in [leased for leased in old if self._is_finished(leased)]:
                old.remove(leased)
                self._committer.give_back(leased)
            for at in range(0, len(old), CALLS_A_ROUND):
                await self._committer.renew(old[at : at + CALLS_A_ROUND])
            for leased in self.held:
                if leased.lease_end <= now and not leased.busy:
                    self.held.forget(leased)  # it expired before it could be renewed

    def _is_finished(self, leased: LeasedDomain) -> bool:
        return not (leased.pending or leased.busy or self._committer.awaits(leased))
