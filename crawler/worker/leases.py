"""The lease manager: which shards this replica owns, and how their due domains get into the local queue.

It asks a shard for domains only when workers could use them and when something may be due there: a lease call tells
when the shard is next due, a settle call when the domain that it gave back is, and a push tells which shards it filled
(`HeldLeases`). What others push into an idle shard is found by looking there every `poll_s`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

import msgspec

from crawler.events import DomainsLeased, ShardFenced, ViewAdopted
from crawler.worker.allowance import Allowance
from crawler.worker.commit import Committer, lease_deadline
from crawler.worker.held_leases import HeldLeases
from crawler.worker.runtime import Runtime
from crawler.worker.visit import Visit
from frontier.errors import Fenced
from frontier.peers import View
from frontier.queue import Frontier, Leased
from frontier.ring import plan_handoff

CALLS_A_ROUND = 64
"""Lease calls in one round trip: about 1 ms of the server's time, which nobody else can use meanwhile."""

Prefetch = Callable[[Sequence[Visit]], Awaitable[None]]
"""Is awaited with new visits before they have their first turn."""


class LeaseManagerSettings(msgspec.Struct, frozen=True):
    """`ahead`: due domains kept ready for the workers. `visits`: leases held at most, those that wait included: each
    costs about 4 KB. `poll_s`: how often an idle shard is looked at, at least."""

    ahead: int = 128
    visits: int = 20_000
    poll_s: float = 0.5


class LeaseManager:
    """Leases due domains of the owned shards, keeps their leases alive, and gives them back."""

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
        self.view: View | None = None
        self._quiet = False
        self._paused = False

    def __repr__(self) -> str:
        return f"<LeaseManager {self.held!r}>"

    def adopt(self, view: View) -> None:
        """Take up the shards that `view` gives us and let go of those that it takes away. Work on the others goes on.

        Once quiet we take up none."""
        if self._quiet:
            return
        handoff = plan_handoff(self.held.shards, () if self._paused else view.owners, self._runtime.replica)
        self.view = view
        self._close(self.held.remove_shards(handoff.drop))
        self.held.add_shards(handoff.take)
        self._runtime.events.emit(ViewAdopted(view, len(self.held.shards), len(handoff.take), len(handoff.drop)))

    def pause(self, paused: bool) -> None:
        """While `paused`, own nothing and give everything back at once; views are followed all the same."""
        if paused != self._paused:
            self._paused = paused
            if self.view is not None:
                self.adopt(self.view)

    def quiet(self) -> None:
        """Take no more leases, and give back those that wait for their turn."""
        self._quiet = True
        self.held.disown_all()
        self._close(self.held)

    def _close(self, visits: Iterable[Visit]) -> None:
        closing = list(visits)
        for visit in closing:
            visit.close()
            visit.queued(False)
        self.queue.remove(set(closing))
        for visit in closing:
            if not visit.busy:
                self.finish(visit)

    def finish(self, visit: Visit) -> None:
        """`visit` has had its last turn: what is left of it goes back."""
        if visit.pending:
            visit.pending.clear()
            self._committer.give_back(visit)

    async def run(self) -> None:
        """Lease until cancelled."""
        while True:
            self.held.wake.clear()
            if self._has_room:
                await self._lease_round()
            await self._pause()

    @property
    def _has_room(self) -> bool:
        if self._quiet or self.view is None or len(self.held) >= self._settings.visits or self._allowance.is_awaited:
            return False
        return self.queue.idle_takers > 0 or self.queue.lateness() < 0.01

    async def _pause(self) -> None:
        """Until a shard is to be asked; at least a moment, so that calls gather."""
        await self._runtime.clock.sleep(0.01)
        if not self._has_room:
            return
        wait_s = min(self.held.next_due() - self._runtime.now(), self._settings.poll_s)
        if wait_s > 0 and not self.held.wake.is_set():
            timer = asyncio.get_running_loop().call_later(wait_s, self.held.wake.set)
            await self.held.wake.wait()
            timer.cancel()

    async def _lease_round(self) -> None:
        now = self._runtime.now()
        shards = await self._without_idle(self.held.due(CALLS_A_ROUND), now)
        if not shards or self.view is None:
            return
        epoch = self.view.epoch
        each = max(1, self._settings.ahead // len(shards))

        async def lease() -> tuple[float, list[Leased], list[Fenced]]:
            asked_at = self._runtime.now()  # of the attempt that succeeds: Redis may have been away before it
            return asked_at, *await self._frontier.lease(shards, epoch, self._runtime.replica, each)

        asked_at, leased, fenced = await self._runtime.retry.call(lease)
        taken = [visit for answer in leased for visit in self._accept(answer, asked_at)]
        for refusal in fenced:
            self._runtime.events.emit(ShardFenced(str(refusal)))
        self._ask_later(shards, now)  # fenced: the next view will tell
        count = sum(len(answer.leases) for answer in leased)
        urls = sum(len(lease.entries) for answer in leased for lease in answer.leases)
        self._runtime.events.emit(DomainsLeased(count, urls, self._runtime.now() - now))
        await self._enqueue(taken)

    async def _enqueue(self, visits: Sequence[Visit]) -> None:
        if visits:
            await self._prefetch(visits)
        for visit in visits:
            if not visit.closing:  # by now
                self.queue.put(visit, visit.next_at)

    async def _without_idle(self, shards: list[int], now: float) -> list[int]:
        """`shards` but for those that were empty when they were asked, and still are.

        A shard that is new here is asked in any case: that, even if in vain, makes us its owner in the eyes of others.
        """
        empty = self.held.empty_among(shards)
        if not empty:
            return shards
        self.held.filled(await self._runtime.retry.call(lambda: self._frontier.shards_with_work(empty)))
        empty = self.held.empty_among(empty)
        self._ask_later(empty, now)
        owned = self.held.shards
        return [shard for shard in shards if shard in owned and shard not in empty]

    def _ask_later(self, shards: Collection[int], now: float) -> None:
        self.held.ask_later(shards, now, now + self._settings.poll_s)

    def _accept(self, answer: Leased, asked_at: float) -> list[Visit]:
        """Hold the leases of `answer`; returns the visits that are to be queued."""
        deadline = lease_deadline(asked_at, self._frontier.settings.lease_ms)
        visits, is_ours = self.held.take(answer, deadline, asked_at, self._settings.poll_s)
        if is_ours and not self._quiet:
            return visits
        for visit in visits:
            visit.close()
            self.finish(visit)
        return []

    async def keep_alive(self) -> None:
        """Renew leases that have less than half of their time left, until cancelled.

        One with which we are through, and which Redis still holds, is given back: a Redis that lost its last second
        has lost what we settled, and would otherwise wait for us for ever.
        """
        half_s = self._frontier.settings.lease_ms / 2000
        while True:
            await self._runtime.clock.sleep(half_s / 4)
            now = self._runtime.now()
            old = [visit for visit in self.held if now < visit.deadline < now + half_s]
            for visit in [visit for visit in old if self._is_through(visit)]:
                old.remove(visit)
                self._committer.give_back(visit)
            for at in range(0, len(old), CALLS_A_ROUND):
                batch = old[at : at + CALLS_A_ROUND]
                await self._runtime.retry.call(lambda batch=batch: self._committer.renew(batch))  # type: ignore[misc]
            for visit in self.held:
                if visit.deadline <= now and not visit.busy:
                    self.held.forget(visit)  # lost: it expired while nobody could renew it

    def _is_through(self, visit: Visit) -> bool:
        return not (visit.pending or visit.busy or self._committer.awaits(visit))
