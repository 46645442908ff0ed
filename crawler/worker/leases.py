"""The leased domains of this replica: the state of each, which ones it holds, and the queue in which they wait for
turns. State and decisions only, no I/O."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from msgspec.structs import replace

from crawler.events import HandedOver
from crawler.worker.runtime import Runtime
from frontier.budget import Budget
from frontier.clock import Clock
from frontier.entries import Entry
from frontier.reservations import Reservation
from frontier.settle import Lease, LeaseReply, SettleReply
from politeness.backoff import BackoffState
from politeness.robots_fetch import RobotsFetch
from politeness.tdmrep import TdmFetch

MAX_REPEATS = 3
"""How often a URL that redirects to itself is requested once more: for two cookies and another way of writing the
URL."""

BEHIND_S = 0.1
"""The queue is overloaded when the domain that has been due the longest has waited for a worker longer than this."""

QUICK_S = 1.0
"""A domain is quick if its last request did not take longer."""

MOST_QUICK = 20_000
"""Quick domains that are remembered without a lease, each about 100 bytes."""

BYTES_PER_S = 1 << 20
"""Under overload, a domain is delayed by one second for this many bytes of its last body. A body of 10 MiB takes a
tenth of a CPU second to receive, parse and archive; its domain then waits 10 seconds longer."""


@dataclass(slots=True, eq=False, repr=False)
class LeasedDomain:
    """A leased domain with its URLs, and the replica's state for it while it holds the lease. Times are monotonic
    seconds.

    While `is_queued`, the domain waits in the queue for its next turn, or waits for a permit, or a worker prepares its
    turn. So only one worker at a time decides what to request next, however many requests are in flight.
    """

    lease: Lease
    lease_end: float  # a replica that was suspended sees here that its leases have ended
    next_at: float  # when the domain may be requested again, and thus when it is due in the queue
    settle_end: float = field(init=False)  # until when Redis may settle its results, also if it has lost the lease
    pending: deque[Entry] = field(init=False)  # URLs that are not fetched yet
    closing: bool = False  # the lease is returned as soon as nothing is in flight
    # turns
    is_queued: bool = True
    wants_permit: bool = False  # before its next turn
    busy: int = 0  # workers that have taken the domain
    handling: int = 0  # those of them that only wait for a handler of users
    held_back: int = 0  # the same, while the next page has to wait, too
    extras: int = 0  # extra requests that wait for a turn or are in flight
    foreign_extras: int = 0  # those of them for pages of other domains
    sending: int = 0  # those of `extras` that are in flight
    pages_next: bool = False  # a page comes before `foreign_extras`
    waiters: list[asyncio.Future[None]] = field(default_factory=list)  # wait until a turn has ended
    makes_way: bool = False  # no more turns under the lease: others want the domain, and reserve each request
    in_browser: int = 0  # pages that are in a browser, whose requests need no turns
    concurrency: int = 1  # how many requests may be in flight
    is_quick: bool = False  # its last request was quick; a new domain has to prove that
    trials: int = 0  # turns that began while it was not quick, and whose responses have not come yet
    requests: dict[asyncio.Timeout, float] = field(
        default_factory=dict
    )  # in flight: when each began, by the event loop
    # delays
    ended_at: float = -math.inf  # when the last response ended
    delay_ms: int = field(init=False)
    body_bytes: int = 0  # size of the last body
    backoff: BackoffState = field(init=False)
    learnt: str = field(init=False)  # which of its pages need a browser (`render_choice`)
    slot: tuple[str, float] | None = None  # reserved by the address limiter: network, and when it begins
    network: str | None = None  # that the next request may go to
    moves: int = 0  # connections in a row that led to other networks
    reservation: Reservation | None = None  # on the domain that a robots.txt redirects to
    refusals: int = 0  # refused reservations in a row
    # URLs that redirected to themselves: how often they did, and how the last redirect wrote them
    repeats: dict[str, tuple[int, str]] = field(default_factory=dict)
    # robots.txt and tdmrep.json
    robots: dict[str, RobotsFetch] = field(default_factory=dict)  # unfinished fetches, by origin
    tdm: dict[str, TdmFetch] = field(default_factory=dict)
    stored_robots: tuple[str, bytes | None] | None = None  # an origin, and the record that Redis has for it
    confirmed: set[str] = field(default_factory=set)  # origins for whose unreachable robots.txt Redis was asked again

    def __post_init__(self) -> None:
        self.settle_end = self.lease_end
        self.pending = deque(self.lease.entries)
        self.delay_ms = self.lease.delay_ms
        backoff, _, self.learnt = self.lease.state.partition("\n")
        self.backoff = replace(BackoffState.parse(backoff), limited_until_ms=0, limited_by="")

    def __repr__(self) -> str:
        return f"<LeasedDomain {self.lease.domain} pending={len(self.pending)} busy={self.busy}>"

    @property
    def domain(self) -> str:
        return self.lease.domain

    @property
    def state(self) -> str:
        """What is kept of it between leases."""
        return f"{self.backoff}\n{self.learnt}" if self.learnt else str(self.backoff)

    @property
    def is_urgent(self) -> bool:
        """Whether its next URL has a priority above 0, such as a seed that may not wait."""
        first = self.pending[0] if self.pending else None
        return first is not None and first.priority > 0 and not (first.visit or first.is_requisite)

    @property
    def requesting(self) -> int:
        """The number of workers that may have a request in flight, at most `concurrency`."""
        return self.occupied - self.held_back

    @property
    def occupied(self) -> int:
        """The number of workers that keep the next one from taking the domain."""
        return self.busy - self.handling

    @property
    def waits_for_extras(self) -> bool:
        """Whether extra requests come before its next page: those of its own pages always, others in turn with pages."""
        return self.extras > self.foreign_extras or (self.extras > 0 and not self.pages_next)

    @property
    def is_kept(self) -> bool:
        """Whether the lease cannot end by settling its URLs: one is not fetched yet, or its page is being handled."""
        return bool(self.pending or self.handling or self.held_back)

    @property
    def oldest_request(self) -> float:
        """When the oldest request in flight began, by the event loop; infinite without one."""
        return min(self.requests.values(), default=math.inf)

    def holds(self, now: float) -> bool:
        """Return whether the lease is still valid at `now`."""
        return now < self.lease_end

    def may_settle(self, now: float) -> bool:
        """Return whether Redis may settle its results at `now`. If it has lost the lease, it settles what is queued."""
        return now < self.settle_end

    def renew(self, lease_end: float, now: float) -> None:
        """Move the end of the lease to `lease_end`. If that has passed, requests in flight are cancelled."""
        self.lease_end = lease_end
        self.settle_end = max(self.settle_end, lease_end)
        for request in self.requests:
            if not request.expired():
                request.reschedule(asyncio.get_running_loop().time() + lease_end - now)

    async def until_turn_ends(self, timeout_s: float | None = None) -> None:
        """Wait until a turn has ended, for at most `timeout_s` seconds."""
        waiter = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            await asyncio.wait([waiter], timeout=timeout_s)
        finally:
            self.waiters.remove(waiter)

    def turn_ended(self) -> None:
        """Have those that wait in `until_turn_ends` go on."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wait_at_least_until(self, at: float) -> None:
        """Postpone the next turn to `at` if it would be earlier."""
        self.next_at = max(self.next_at, at)

    def start_delay(self, delay_ms: int, ended_at: float) -> None:
        """Postpone the next request to `delay_ms` after the end of the last response, `ended_at`. Never shortens the
        wait."""
        self.delay_ms = delay_ms
        self.ended_at = ended_at
        self.wait_at_least_until(ended_at + delay_ms / 1000)

    def written(self, entry: Entry) -> str:
        """How the URL of `entry` is written in the request."""
        return self.repeats[entry.url][1] if entry.url in self.repeats else entry.target

    def repeat(self, entry: Entry, written: str) -> bool:
        """Make `entry` the next URL, once more, `written` as its redirect says. Returns False if that was done
        `MAX_REPEATS` times."""
        number, _ = self.repeats.get(entry.url, (0, ""))
        if number == MAX_REPEATS:
            return False
        self.repeats[entry.url] = (number + 1, written)
        self.pending.appendleft(entry)
        return True


class DelayQueue:
    """Leased domains ordered by the time of their next turn. `take` returns the one that has been due the longest, an
    urgent one before others, and waits while none is due.

    Of the domains that are not quick, only `most_trials` have a turn at the same time. So slow servers and those that
    never answer, however many they are, leave workers for the others.

    One timer serves all domains. It is set for the first one, and only while a worker waits. A waiting domain occupies
    an entry in a heap, but no worker and no connection.
    """

    def __init__(self, clock: Clock, most_trials: float = math.inf) -> None:
        self._clock = clock
        self._most_trials = most_trials
        self._trials = 0
        self._urgent: list[tuple[float, int, LeasedDomain]] = []
        self._quick: list[tuple[float, int, LeasedDomain]] = []
        self._others: list[tuple[float, int, LeasedDomain]] = []
        self._order = count()
        self._workers: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def __len__(self) -> int:
        return len(self._urgent) + len(self._quick) + len(self._others)

    @property
    def idle_workers(self) -> int:
        """The number of workers that wait for a domain."""
        return len(self._workers)

    def lateness(self) -> float:
        """Return for how many seconds the first domain that may have a turn has been due; 0 or less if none is due."""
        heap = self._next()
        return self._clock.monotonic() - heap[0][0] if heap else 0.0

    def put(self, leased: LeasedDomain) -> None:
        """Add `leased`, to be taken when its next turn is due, or later. Under overload (`BEHIND_S`), domains with
        large responses are due later."""
        due = leased.next_at
        is_urgent = leased.is_urgent
        if not is_urgent and self.lateness() > BEHIND_S:
            due += leased.body_bytes / BYTES_PER_S
        heap = self._urgent if is_urgent else self._quick if leased.is_quick else self._others
        heapq.heappush(heap, (due, next(self._order), leased))
        if self._workers and due < self._timer_at:
            self._wake()

    async def take(self) -> LeasedDomain:
        """Return the domain that has been due the longest. Waits until one is due."""
        while not (heap := self._due()):
            worker = asyncio.get_running_loop().create_future()
            self._workers.append(worker)
            self._wake()
            try:
                await worker
            except asyncio.CancelledError:
                if worker in self._workers:
                    self._workers.remove(worker)
                self._wake()  # the domain that it was woken for needs another worker
                raise
        leased = heapq.heappop(heap)[2]
        if not leased.is_quick:
            leased.trials += 1
            self._trials += 1
        self._wake()
        return leased

    def end_trial(self, leased: LeasedDomain) -> None:
        """A turn of `leased` that began while it was not quick no longer waits for its server."""
        if leased.trials:
            leased.trials -= 1
            self._trials -= 1
            if self._trials + 1 == self._most_trials:
                self._wake()

    def _next(self) -> list[tuple[float, int, LeasedDomain]]:
        """Return the heap of the domain that has its turn next, urgent ones aside. It may be empty."""
        quick, others = self._quick, self._others
        if others and self._trials < self._most_trials and (not quick or others[0] < quick[0]):
            return others
        return quick

    def _due(self) -> list[tuple[float, int, LeasedDomain]]:
        """Return the heap whose first domain has the next turn now, or an empty list."""
        now = self._clock.monotonic()
        if self._urgent and self._urgent[0][0] <= now:
            return self._urgent
        heap = self._next()
        return heap if heap and heap[0][0] <= now else []

    def _first_at(self) -> float:
        heap = self._next()
        first_at = heap[0][0] if heap else math.inf
        return min(first_at, self._urgent[0][0]) if self._urgent else first_at

    def remove(self, unwanted: Collection[LeasedDomain]) -> None:
        """Remove the domains `unwanted`."""
        for heap in (self._urgent, self._quick, self._others):
            heap[:] = [entry for entry in heap if entry[2] not in unwanted]
            heapq.heapify(heap)

    def _wake(self) -> None:
        """Wake a worker if a domain is due, which then wakes the next one. Otherwise set the timer for the first
        domain."""
        if not self._workers or (first_at := self._first_at()) == math.inf:
            return
        wait_s = first_at - self._clock.monotonic()
        if wait_s <= 0:
            worker = self._workers.popleft()
            if not worker.done():
                worker.set_result(None)
        elif first_at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = first_at
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, math.inf
        self._wake()


class HeldLeases:
    """The owned shards and held leases of this replica, and when to ask each shard for more. `wake` is set when a shard
    should be asked earlier than planned."""

    def __init__(self, runtime: Runtime, budget: Budget | None = None) -> None:
        self._runtime = runtime
        self._budget = budget
        self._domains: dict[LeasedDomain, None] = {}  # an ordered set, so that runs are reproducible
        self._by_name: dict[str, LeasedDomain] = {}
        self._quick: dict[str, None] = {}  # names of domains whose leases have ended, the oldest first
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

    def of(self, domain: str) -> LeasedDomain | None:
        """The lease of `domain`, None if this replica has none."""
        return self._by_name.get(domain)

    @property
    def is_busy(self) -> bool:
        """Whether a worker is busy with any of the domains."""
        return any(leased.busy for leased in self._domains)

    # shards

    @property
    def shards(self) -> frozenset[int]:
        """The shards that this replica owns according to the latest view."""
        return frozenset(self._poll_at)

    def add_shards(self, shards: Collection[int]) -> None:
        """Add `shards` to the owned shards. They are asked at once."""
        self._poll_at.update(dict.fromkeys(shards, self._runtime.now()))
        self.wake.set()

    def remove_shards(self, shards: Collection[int]) -> list[LeasedDomain]:
        """Remove `shards` from the owned shards. Returns their leased domains, whose leases have to be returned."""
        for shard in shards:
            del self._poll_at[shard]
            self._empty.discard(shard)
        leaving = [leased for leased in self if leased.lease.shard in shards]
        if leaving and not self._leaving:
            self._leaving_since = self._runtime.now()
        self._leaving.update(leaving)
        return leaving

    def disown_all(self) -> None:
        """Stop asking all shards. Held leases stay."""
        self._poll_at.clear()

    # when to ask shards

    def due(self) -> list[int]:
        """Return the shards that should be asked now."""
        now = self._runtime.now()
        return [shard for shard, at in self._poll_at.items() if at <= now]

    def longest_due(self, due: Sequence[int], calls: int, checks: int) -> list[int]:
        """Return those of `due` that have been due longest, so that none waits forever: up to `calls` that may have
        work, and up to `checks` that were empty when last asked."""
        if len(due) <= calls:
            return list(due)
        empty = [shard for shard in due if shard in self._empty]
        others = [shard for shard in due if shard not in self._empty]
        at = self._poll_at.__getitem__
        return heapq.nsmallest(calls, others, key=at) + heapq.nsmallest(checks, empty, key=at)

    def next_due(self) -> float:
        """Return when the next shard should be asked, in monotonic seconds; infinite if no shard is owned."""
        return min(self._poll_at.values(), default=math.inf)

    def empty_among(self, shards: Collection[int]) -> set[int]:
        """Return those of `shards` that were empty when last asked."""
        return self._empty.intersection(shards)

    def note_work(self, shards: Collection[int]) -> None:
        """Record that `shards` are no longer empty."""
        self._empty.difference_update(shards)

    def ask_later(self, shards: Collection[int], now: float, at: float) -> None:
        """Postpone those of `shards` that were due by `now` until `at` (monotonic seconds)."""
        for shard in shards:
            if self._poll_at.get(shard, math.inf) <= now:
                self._poll_at[shard] = at

    def _ask_by(self, shard: int, at: float) -> None:
        if at < self._poll_at.get(shard, -math.inf):
            self._poll_at[shard] = at
            self.wake.set()

    # leases

    def lease_end(self, asked_at: float, lease_ms: int) -> float:
        """Return until when (monotonic seconds) a lease that was requested at `asked_at` may be used.

        This is earlier than its expiry by a twentieth of `lease_ms`, but at most by a second. Other replicas' estimates
        of the server clock may be ahead of ours by a round trip, and a request must be sent before another replica can
        lease the domain. It is also earlier than the expiry of the permits with which its pages are fetched.
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
            leased.is_quick = leased.domain in self._quick
        self._domains.update(dict.fromkeys(domains))
        self._by_name.update({leased.domain: leased for leased in domains})
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
            self._ask_by(leased.lease.shard, self._runtime.monotonic(reply.due_ms))

    def pushed(self, shards: frozenset[int]) -> None:
        """Record that URLs were queued in `shards`. Those without a lease are asked at once; for the others, the next
        settle reply says when to ask."""
        now = self._runtime.now()
        self.note_work(shards)
        if shards:
            for shard in shards - {leased.lease.shard for leased in self._domains}:
                self._ask_by(shard, now)

    def void(self, node: str) -> None:
        """Record that the leases of the shards on `node` have ended, because it has lost them."""
        for leased in self:
            if self._runtime.retry.node_of(leased.lease.shard) == node:
                leased.renew(-math.inf, self._runtime.now())
                leased.settle_end = -math.inf

    def forget(self, leased: LeasedDomain) -> None:
        """Remove `leased`, whose lease has ended."""
        self._domains.pop(leased, None)
        self._quick.pop(leased.domain, None)
        if leased.is_quick:
            self._quick[leased.domain] = None
            if len(self._quick) > MOST_QUICK:
                del self._quick[next(iter(self._quick))]
        if self._by_name.get(leased.domain) is leased:
            del self._by_name[leased.domain]
        if leased in self._leaving:
            self._leaving.remove(leased)
            if not self._leaving:
                self._runtime.events.emit(HandedOver(self._runtime.now() - self._leaving_since))
