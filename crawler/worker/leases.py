"""The feeder: which shards this replica owns, and how their due domains get into the local schedule.

It asks a shard for domains only when workers could use them and when something may be due there: a lease call tells
when the shard is next due, a settle call when the domain that it gave back is, and a push tells which shards it filled.
What others push into an idle shard is found by looking there every `poll_s`.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

import msgspec

from crawler.events import DomainsLeased, Events, HandedOver, ShardFenced, ViewAdopted
from crawler.redis_retry import Patience
from crawler.worker.commit import Committer, lease_deadline
from crawler.worker.delay_queue import Schedule
from crawler.worker.visit import Visit
from frontier.clock import Clock, ServerClock
from frontier.errors import Fenced
from frontier.peers import View
from frontier.queue import Frontier, Leased, SettleReply
from frontier.ring import plan_handoff

CALLS_A_ROUND = 64
"""Lease calls in one round trip: about 1 ms of the server's time, which nobody else can use meanwhile."""


async def _nothing(visits: Sequence[Visit]) -> None: ...


class FeedSettings(msgspec.Struct, frozen=True):
    """`ahead`: due domains kept ready for the workers. `visits`: leases held at most, those that wait included: each
    costs about 4 KB. `poll_s`: how often an idle shard is looked at, at least."""

    ahead: int = 128
    visits: int = 20_000
    poll_s: float = 0.5


class Feeder:
    """Leases due domains of the owned shards and keeps their leases alive. `prepare` is awaited with new visits before they
    have their first turn. `may_lease`: whether there is any use in further leases now."""

    def __init__(
        self,
        frontier: Frontier,
        schedule: Schedule[Visit],
        committer: Committer,
        patience: Patience,
        events: Events,
        clocks: tuple[Clock, ServerClock],
        replica: str,
        settings: FeedSettings,
    ) -> None:
        self._frontier = frontier
        self._schedule = schedule
        self._committer = committer
        self._patience = patience
        self._events = events
        self._clock, self._server_clock = clocks
        self._replica = replica
        self._settings = settings
        self.view: View | None = None
        self.visits: dict[Visit, None] = {}  # a set that keeps its order, so that a run can be repeated exactly
        self._visits_of_shard: Counter[int] = Counter()
        self._ask_at: dict[int, float] = {}  # owned shard -> when to ask it, monotonic seconds
        self._empty: set[int] = set()  # owned shards where nothing was queued or leased when they were asked
        self._parting: set[Visit] = set()  # of shards that a view took away
        self._parting_since = 0.0
        self._wake = asyncio.Event()
        self._quiet = False
        self._paused = False
        self.prepare: Callable[[Sequence[Visit]], Awaitable[None]] = _nothing
        self.may_lease: Callable[[], bool] = lambda: True
        committer.on_settled = self.settled
        committer.next_ms = self.next_ms
        committer.on_pushed = self.pushed

    def __repr__(self) -> str:
        return f"<Feeder shards={len(self._ask_at)} leased={len(self.visits)}>"

    @property
    def shards(self) -> frozenset[int]:
        """The shards owned in the view adopted last."""
        return frozenset(self._ask_at)

    def adopt(self, view: View) -> None:
        """Take up the shards that `view` gives us and let go of those that it takes away. Work on the others goes on.

        Once quiet we take up none."""
        if self._quiet:
            return
        handoff = plan_handoff(self.shards, () if self._paused else view.owners, self._replica)
        self.view = view
        now = self._clock.monotonic()
        for shard in handoff.drop:
            del self._ask_at[shard]
            self._empty.discard(shard)
        for shard in handoff.take:
            self._ask_at[shard] = now
        if handoff.drop:
            self._part([visit for visit in self.visits if visit.lease.shard in handoff.drop], now)
        self._wake.set()
        self._events.emit(ViewAdopted(view, len(self._ask_at), len(handoff.take), len(handoff.drop)))

    def pause(self, paused: bool) -> None:
        """While `paused`, own nothing and give everything back at once; views are followed all the same."""
        if paused != self._paused:
            self._paused = paused
            if self.view is not None:
                self.adopt(self.view)

    def _part(self, visits: Collection[Visit], now: float) -> None:
        """Let go of `visits`: their shards belong to somebody else now."""
        if not self._parting:
            self._parting_since = now
        self._parting.update(visits)
        self._close(visits)

    def quiet(self) -> None:
        """Take no more leases, and give back those that wait for their turn."""
        self._quiet = True
        self._ask_at.clear()
        self._close(list(self.visits))

    def _close(self, visits: Iterable[Visit]) -> None:
        closing = list(visits)
        for visit in closing:
            visit.closing, visit.placed = True, False
        self._schedule.remove(set(closing))
        for visit in closing:
            if not visit.busy:
                self.finish(visit)

    def finish(self, visit: Visit) -> None:
        """`visit` has had its last turn: what is left of it goes back."""
        if visit.pending:
            visit.pending.clear()
            self._committer.give_back(visit)

    def next_ms(self, visit: Visit) -> int:
        """When the domain of `visit` may next be fetched from, in server time."""
        return self._server_clock.now_ms() + math.ceil((visit.next_at - self._clock.monotonic()) * 1000)

    def settled(self, visit: Visit, reply: SettleReply) -> None:
        """A settle or release call for `visit` was answered."""
        if reply.expires_ms is not None:
            return
        self.forget(visit)
        if reply.due_ms is not None:
            self._ask(visit.lease.shard, self._monotonic(reply.due_ms))

    def forget(self, visit: Visit) -> None:
        """The lease of `visit` is over."""
        if visit in self.visits:
            del self.visits[visit]
            self._visits_of_shard[visit.lease.shard] -= 1
        if visit in self._parting:
            self._parting.remove(visit)
            if not self._parting:
                self._events.emit(HandedOver(self._clock.monotonic() - self._parting_since))

    def pushed(self, shards: Collection[int]) -> None:
        """URLs were queued in `shards`: look there soon, unless a lease there will tell us anyway."""
        now = self._clock.monotonic()
        self._empty.difference_update(shards)
        for shard in shards:
            if not self._visits_of_shard[shard]:
                self._ask(shard, now)

    def _ask(self, shard: int, at: float) -> None:
        if at < self._ask_at.get(shard, float("-inf")):
            self._ask_at[shard] = at
            self._wake.set()

    def _monotonic(self, server_ms: int) -> float:
        return self._clock.monotonic() + (server_ms - self._server_clock.now_ms()) / 1000

    async def run(self) -> None:
        """Feed until cancelled."""
        while True:
            self._wake.clear()
            if self._has_room:
                await self._lease_round()
            await self._pause()

    @property
    def _has_room(self) -> bool:
        if self._quiet or self.view is None or len(self.visits) >= self._settings.visits or not self.may_lease():
            return False
        return self._schedule.idle_takers > 0 or self._schedule.lateness() < 0.01

    async def _pause(self) -> None:
        """Until a shard is to be asked; at least a moment, so that calls gather."""
        await self._clock.sleep(0.01)
        if not self._has_room:
            return
        first = min(self._ask_at.values(), default=float("inf"))
        wait_s = min(first - self._clock.monotonic(), self._settings.poll_s)
        if wait_s > 0 and not self._wake.is_set():
            timer = asyncio.get_running_loop().call_later(wait_s, self._wake.set)
            await self._wake.wait()
            timer.cancel()

    async def _lease_round(self) -> None:
        now = self._clock.monotonic()
        shards = await self._without_empty(
            [shard for shard, at in self._ask_at.items() if at <= now][:CALLS_A_ROUND], now
        )
        if not shards or self.view is None:
            return
        epoch = self.view.epoch
        each = max(1, self._settings.ahead // len(shards))

        async def lease() -> tuple[float, list[Leased], list[Fenced]]:
            asked_at = self._clock.monotonic()  # of the attempt that succeeds: Redis may have been away before it
            return asked_at, *await self._frontier.lease(shards, epoch, self._replica, each)

        asked_at, leased, fenced = await self._patience.insist(lease)
        taken = [visit for answer in leased for visit in self._take_up(answer, asked_at)]
        for refusal in fenced:
            self._events.emit(ShardFenced(str(refusal)))
        self._put_off(shards, now)  # fenced: the next view will tell
        count = sum(len(answer.leases) for answer in leased)
        urls = sum(len(lease.entries) for answer in leased for lease in answer.leases)
        self._events.emit(DomainsLeased(count, urls, self._clock.monotonic() - now))
        await self._place(taken)

    async def _place(self, visits: Sequence[Visit]) -> None:
        if visits:
            await self.prepare(visits)
        for visit in visits:
            if not visit.closing:  # by now
                self._schedule.put(visit, visit.next_at)

    async def _without_empty(self, shards: list[int], now: float) -> list[int]:
        """`shards` but for those that were empty when they were asked, and still are.

        A shard that is new here is asked in any case: that, even if in vain, makes us its owner in the eyes of others.
        """
        empty = self._empty.intersection(shards)
        if not empty:
            return shards
        filled = await self._patience.insist(lambda: self._frontier.filled(empty))
        self._empty -= filled
        self._put_off(self._empty & empty, now)
        return [shard for shard in shards if shard in self._ask_at and shard not in self._empty]

    def _put_off(self, shards: Collection[int], now: float) -> None:
        """Leave those of `shards` that are still to be asked alone until the next poll."""
        for shard in shards:
            if self._ask_at.get(shard, float("inf")) <= now:
                self._ask_at[shard] = now + self._settings.poll_s

    def _take_up(self, answer: Leased, asked_at: float) -> list[Visit]:
        """Hold the leases of `answer`; returns the visits that are to be placed on the schedule."""
        deadline = lease_deadline(asked_at, self._frontier.settings.lease_ms)
        still_ours = answer.shard in self._ask_at and not self._quiet
        taken: list[Visit] = []
        for lease in answer.leases:
            visit = Visit(lease, deadline, asked_at)
            self.visits[visit] = None
            self._visits_of_shard[lease.shard] += 1
            if still_ours:
                taken.append(visit)
            else:
                visit.closing = True
                self.finish(visit)
        if still_ours:
            poll = asked_at + self._settings.poll_s
            due = poll if answer.next_ms is None else self._monotonic(answer.next_ms)
            if answer.next_ms is None:
                self._empty.add(answer.shard)
            # Never in the past: a shard that is due now is asked again next round, not at once.
            self._ask_at[answer.shard] = max(min(poll, due), math.nextafter(asked_at, math.inf))
        return taken

    async def keep_alive(self) -> None:
        """Renew leases that have less than half of their time left, until cancelled.

        One with which we are through, and which Redis still holds, is given back: a Redis that lost its last second
        has lost what we settled, and would otherwise wait for us for ever.
        """
        half_s = self._frontier.settings.lease_ms / 2000
        while True:
            await self._clock.sleep(half_s / 4)
            now = self._clock.monotonic()
            old = [visit for visit in self.visits if now < visit.deadline < now + half_s]
            for visit in [visit for visit in old if self._is_through(visit)]:
                old.remove(visit)
                self._committer.give_back(visit)
            for at in range(0, len(old), CALLS_A_ROUND):
                batch = old[at : at + CALLS_A_ROUND]
                await self._patience.insist(lambda batch=batch: self._committer.renew(batch))  # type: ignore[misc]
            for visit in [visit for visit in self.visits if visit.deadline <= now and not visit.busy]:
                self.forget(visit)  # lost: it expired while nobody could renew it

    def _is_through(self, visit: Visit) -> bool:
        return not (visit.pending or visit.busy or self._committer.awaits(visit))
