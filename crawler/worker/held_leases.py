"""The leases in hand, and when each owned shard is to be asked for more. State and decisions only, no I/O."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Iterator

from crawler.events import HandedOver
from crawler.worker.runtime import Runtime
from crawler.worker.visit import Visit
from frontier.queue import Leased, SettleReply


class HeldLeases:
    """What this replica owns and holds. `wake` is set when a shard is to be asked earlier than was known."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._visits: dict[Visit, None] = {}  # a set that keeps its order, so that a run can be repeated exactly
        self._visits_of_shard: Counter[int] = Counter()
        self._poll_at: dict[int, float] = {}  # owned shard -> when to ask it, monotonic seconds
        self._empty: set[int] = set()  # owned shards where nothing was queued or leased when they were asked
        self._leaving: set[Visit] = set()  # of shards that a view took away
        self._leaving_since = 0.0
        self.wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<HeldLeases shards={len(self._poll_at)} leased={len(self)}>"

    def __len__(self) -> int:
        return len(self._visits)

    def __iter__(self) -> Iterator[Visit]:
        return iter(list(self._visits))

    # shards

    @property
    def shards(self) -> frozenset[int]:
        """The shards owned in the view adopted last."""
        return frozenset(self._poll_at)

    def add_shards(self, shards: Collection[int]) -> None:
        """These shards are ours from now on."""
        now = self._runtime.now()
        for shard in shards:
            self._poll_at[shard] = now
        self.wake.set()

    def remove_shards(self, shards: Collection[int]) -> list[Visit]:
        """These shards are somebody else's. Returns the visits to give back for that."""
        for shard in shards:
            del self._poll_at[shard]
            self._empty.discard(shard)
        parting = [visit for visit in self if visit.lease.shard in shards]
        if parting and not self._leaving:
            self._leaving_since = self._runtime.now()
        self._leaving.update(parting)
        return parting

    def disown_all(self) -> None:
        """No shard is to be asked any more."""
        self._poll_at.clear()

    # when to ask

    def due(self, at_most: int) -> list[int]:
        """Shards that are to be asked now, up to so many."""
        now = self._runtime.now()
        return [shard for shard, at in self._poll_at.items() if at <= now][:at_most]

    def next_due(self) -> float:
        """When the first shard is to be asked, in monotonic seconds; infinite if none is."""
        return min(self._poll_at.values(), default=float("inf"))

    def empty_among(self, shards: Collection[int]) -> set[int]:
        """Those of `shards` that were empty when they were asked."""
        return self._empty.intersection(shards)

    def filled(self, shards: Collection[int]) -> None:
        """There is something in these `shards` now."""
        self._empty.difference_update(shards)

    def ask_later(self, shards: Collection[int], now: float, at: float) -> None:
        """Leave those of `shards` that were to be asked by `now` alone until `at`."""
        for shard in shards:
            if self._poll_at.get(shard, float("inf")) <= now:
                self._poll_at[shard] = at

    def _poll(self, shard: int, at: float) -> None:
        if at < self._poll_at.get(shard, float("-inf")):
            self._poll_at[shard] = at
            self.wake.set()

    # leases

    def take(self, answer: Leased, deadline: float, asked_at: float, poll_s: float) -> tuple[list[Visit], bool]:
        """Hold the leases of `answer`. Returns their visits, and whether their shard is still ours."""
        visits = [Visit(lease, deadline, asked_at) for lease in answer.leases]
        for visit in visits:
            self._visits[visit] = None
        self._visits_of_shard[answer.shard] += len(visits)
        is_ours = answer.shard in self._poll_at
        if is_ours:
            poll = asked_at + poll_s
            due = poll if answer.next_ms is None else self._runtime.monotonic(answer.next_ms)
            if answer.next_ms is None:
                self._empty.add(answer.shard)
            # Never in the past: a shard that is due now is asked again next round, not at once.
            self._poll_at[answer.shard] = max(min(poll, due), math.nextafter(asked_at, math.inf))
        return visits, is_ours

    def settled(self, visit: Visit, reply: SettleReply) -> None:
        """A settle or release call for `visit` was answered."""
        if reply.expires_ms is not None:
            return
        self.forget(visit)
        if reply.due_ms is not None:
            self._poll(visit.lease.shard, self._runtime.monotonic(reply.due_ms))

    def pushed(self, shards: Collection[int]) -> None:
        """URLs were queued in `shards`: look there soon, unless a lease there will tell us anyway."""
        now = self._runtime.now()
        self.filled(shards)
        for shard in shards:
            if not self._visits_of_shard[shard]:
                self._poll(shard, now)

    def forget(self, visit: Visit) -> None:
        """The lease of `visit` is over."""
        if visit in self._visits:
            del self._visits[visit]
            self._visits_of_shard[visit.lease.shard] -= 1
        if visit in self._leaving:
            self._leaving.remove(visit)
            if not self._leaving:
                self._runtime.events.emit(HandedOver(self._runtime.now() - self._leaving_since))

    @property
    def is_busy(self) -> bool:
        """Whether a worker has taken any of them."""
        return any(visit.busy for visit in self._visits)
