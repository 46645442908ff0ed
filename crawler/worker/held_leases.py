"""The leases that this replica holds, and when to ask each owned shard for more. State and decisions only, no I/O."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from crawler.events import HandedOver
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.runtime import Runtime
from frontier.budget import Budget
from frontier.settle import LeaseReply, SettleReply


class HeldLeases:
    """The owned shards and held leases of this replica. `wake` is set when a shard should be asked earlier than planned."""

    def __init__(self, runtime: Runtime, budget: Budget | None = None) -> None:
        self._runtime = runtime
        self._budget = budget
        self._domains: dict[LeasedDomain, None] = {}  # an ordered set, so that runs are reproducible
        self._domains_of_shard: Counter[int] = Counter()
        self._poll_at: dict[int, float] = {}  # owned shard -> when to ask it, monotonic seconds
        self._empty: set[int] = set()  # owned shards that had no more than planned visits when last asked
        self._leaving: set[LeasedDomain] = set()  # in shards that a view assigned to others
        self._leaving_since = 0.0
        self.wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<HeldLeases shards={len(self._poll_at)} leased={len(self)}>"

    def __len__(self) -> int:
        return len(self._domains)

    def __iter__(self) -> Iterator[LeasedDomain]:
        return iter(list(self._domains))

    # shards

    @property
    def shard_count(self) -> int:
        """How many shards this replica owns."""
        return len(self._poll_at)

    @property
    def shards(self) -> frozenset[int]:
        """The shards that this replica owns according to the latest view."""
        return frozenset(self._poll_at)

    def add_shards(self, shards: Collection[int]) -> None:
        """Add `shards` to the owned shards. They are asked at once."""
        now = self._runtime.now()
        for shard in shards:
            self._poll_at[shard] = now
        self.wake.set()

    def remove_shards(self, shards: Collection[int]) -> list[LeasedDomain]:
        """Remove `shards` from the owned shards. Returns their leased domains, whose leases have to be returned."""
        for shard in shards:
            del self._poll_at[shard]
            self._empty.discard(shard)
        parting = [leased for leased in self if leased.lease.shard in shards]
        if parting and not self._leaving:
            self._leaving_since = self._runtime.now()
        self._leaving.update(parting)
        return parting

    def disown_all(self) -> None:
        """Stop asking all shards. Held leases stay."""
        self._poll_at.clear()

    # when to ask shards

    def due(self) -> list[int]:
        """Return the shards that should be asked now."""
        now = self._runtime.now()
        return [shard for shard, at in self._poll_at.items() if at <= now]

    def longest_due(self, due: Sequence[int], calls: int, checks: int) -> list[int]:
        """Return those of `due` that have been due longest, so that none waits for ever: up to `calls` that may have work,
        and up to `checks` that were empty when last asked."""
        if len(due) <= calls:
            return list(due)
        empty = [shard for shard in due if shard in self._empty]
        others = [shard for shard in due if shard not in self._empty]
        at = self._poll_at.__getitem__
        return heapq.nsmallest(calls, others, key=at) + heapq.nsmallest(checks, empty, key=at)

    def next_due(self) -> float:
        """Return when the next shard should be asked, in monotonic seconds; infinite if no shard is owned."""
        return min(self._poll_at.values(), default=float("inf"))

    def empty_among(self, shards: Collection[int]) -> set[int]:
        """Return those of `shards` that were empty when last asked."""
        return self._empty.intersection(shards)

    def filled(self, shards: Collection[int]) -> None:
        """Record that `shards` are no longer empty."""
        self._empty.difference_update(shards)

    def ask_later(self, shards: Collection[int], now: float, at: float) -> None:
        """Postpone those of `shards` that were due by `now` until `at` (monotonic seconds)."""
        for shard in shards:
            if self._poll_at.get(shard, float("inf")) <= now:
                self._poll_at[shard] = at

    def _poll(self, shard: int, at: float) -> None:
        if at < self._poll_at.get(shard, float("-inf")):
            self._poll_at[shard] = at
            self.wake.set()

    # leases

    def lease_end(self, asked_at: float, lease_ms: int) -> float:
        """Return until when (monotonic seconds) a lease that was requested at `asked_at` may be used.

        This is earlier than its expiry by a twentieth of `lease_ms`, but at most by a second. Other replicas' estimates of
        the server clock may be ahead of ours by a round trip, and a request must be sent before another replica can lease
        the domain. It is also earlier than the expiry of the permits with which its pages are fetched.
        """
        lease_s = lease_ms / 1000
        end = asked_at + lease_s - min(1.0, lease_s / 20)
        return end if self._budget is None else min(end, self._runtime.now() + self._budget.valid_s)

    def take(
        self, answer: LeaseReply, lease_end: float, asked_at: float, poll_s: float
    ) -> tuple[list[LeasedDomain], bool]:
        """Add the leases of `answer`. `lease_end`: until when they may be used; `asked_at`: when they were requested,
        both in monotonic seconds; `poll_s`: the longest time until the shard is asked again. Returns their domains, and
        whether this replica still owns their shard."""
        domains = [LeasedDomain(lease, lease_end, asked_at) for lease in answer.leases]
        for leased in domains:
            self._domains[leased] = None
        self._domains_of_shard[answer.shard] += len(domains)
        is_ours = answer.shard in self._poll_at
        if is_ours:
            poll = asked_at + poll_s
            next_ms = answer.visit_ms if answer.next_ms is None else answer.next_ms
            due = poll if next_ms is None else self._runtime.monotonic(next_ms)
            if answer.next_ms is None:
                self._empty.add(answer.shard)
            # Never in the past: a shard that is due now is asked again next round, not at once.
            self._poll_at[answer.shard] = max(min(poll, due), math.nextafter(asked_at, math.inf))
        return domains, is_ours

    def settled(self, leased: LeasedDomain, reply: SettleReply) -> None:
        """Apply the reply to a settle or release call for `leased`."""
        if reply.expires_ms is not None:
            return
        self.forget(leased)
        if reply.due_ms is not None:
            self._poll(leased.lease.shard, self._runtime.monotonic(reply.due_ms))

    def pushed(self, shards: Collection[int]) -> None:
        """Record that URLs were queued in `shards`. Those without a lease are asked at once; for the others, the next
        settle reply says when to ask."""
        now = self._runtime.now()
        self.filled(shards)
        for shard in shards:
            if not self._domains_of_shard[shard]:
                self._poll(shard, now)

    def void(self, node: str) -> None:
        """Record that the leases of the shards on `node` have ended, because it has lost them."""
        for leased in self:
            if self._runtime.retry.node_of(leased.lease.shard) == node:
                leased.renewed(float("-inf"), self._runtime.now())

    def forget(self, leased: LeasedDomain) -> None:
        """Remove `leased`, whose lease has ended."""
        leased.timer.stop()
        if leased in self._domains:
            del self._domains[leased]
            self._domains_of_shard[leased.lease.shard] -= 1
        if leased in self._leaving:
            self._leaving.remove(leased)
            if not self._leaving:
                self._runtime.events.emit(HandedOver(self._runtime.now() - self._leaving_since))

    @property
    def is_busy(self) -> bool:
        """Whether a worker is busy with any of the domains."""
        return any(leased.busy for leased in self._domains)
