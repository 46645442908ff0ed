"""A visit: one leased domain with its URLs, and what the replica knows about it while it holds the lease."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

from crawler.worker.lease_scope import LeaseScope
from frontier.entries import Entry
from frontier.queue import Lease, Settled, Settlement
from frontier.reservations import Reservation
from politeness.backoff import BackoffState
from politeness.robots_fetch import RobotsFetch

NONE_CUT: Mapping[str, int] = MappingProxyType({})


class Visit:
    """The mutable side of a lease. Others read its attributes; its methods change them.

    `pending`: URLs not yet fetched. `next_at`: when the domain may be asked again, in monotonic seconds; it is also when
    the visit is due in the queue. `deadline`: when the lease is no longer ours, by our own monotonic clock, which is
    what makes a replica that slept harmless. `closing`: the lease shall be given back as soon as nothing is in flight.

    `busy`: workers that have taken the visit now, at most `concurrency`. `is_queued`: it waits in the queue for its next
    turn, or for a permit (`wants_permit`: it found none), or a worker prepares that turn. So one worker at a time decides
    what the domain is asked next, however many requests are in flight.
    """

    __slots__ = (
        "_slot",
        "_stored_robots",
        "backoff",
        "body_bytes",
        "busy",
        "closing",
        "concurrency",
        "deadline",
        "delay_ms",
        "ended_at",
        "is_queued",
        "lease",
        "lease_scope",
        "next_at",
        "pending",
        "refusals",
        "reservation",
        "robots",
        "wants_permit",
    )

    def __init__(self, lease: Lease, deadline: float, now: float) -> None:
        self.lease = lease
        self.pending: deque[Entry] = deque(lease.entries)
        self.deadline = deadline
        self.lease_scope = LeaseScope()  # of the requests under way
        self.next_at = now
        self.ended_at = float("-inf")  # when the last response ended
        self.delay_ms = lease.delay_ms
        self.body_bytes = 0  # of the last body
        self.backoff = BackoffState.parse(lease.state)
        self.robots: dict[str, RobotsFetch] = {}  # those under way, by origin
        self.reservation: Reservation | None = None  # on the domain that a robots.txt redirects to
        self.refusals = 0  # of a reservation, in a row
        self.busy = 0
        self.concurrency = 1
        self.is_queued = True
        self.closing = False
        self.wants_permit = False
        self._slot: tuple[str, float] | None = None  # reserved by the address limiter: network, monotonic seconds
        self._stored_robots: tuple[str, bytes | None] | None = None

    def __repr__(self) -> str:
        return f"<Visit {self.lease.domain} pending={len(self.pending)} busy={self.busy}>"

    @property
    def domain(self) -> str:
        return self.lease.domain

    # the lease

    def holds(self, now: float) -> bool:
        """Whether the lease is still ours at `now`."""
        return now < self.deadline

    def renewed(self, deadline: float, now: float) -> None:
        """The lease is ours until `deadline`, or no longer if that has passed; so are the requests under way."""
        self.deadline = deadline
        self.lease_scope.reschedule(deadline - now)

    def close(self) -> None:
        """Give the lease back as soon as nothing is in flight."""
        self.closing = True

    def settlement(
        self,
        next_ms: int,
        urls: list[Settled],
        received_bytes: int = 0,
        duplicates: int = 0,
        cut: Mapping[str, int] = NONE_CUT,
    ) -> Settlement:
        """What there is to tell Redis about this visit now. For the other arguments see `Settlement`."""
        return Settlement(self.lease, next_ms, self.delay_ms, str(self.backoff), urls, received_bytes, duplicates, cut)

    # turns

    def taken(self) -> None:
        """A worker has taken the visit."""
        self.busy += 1

    def left(self) -> None:
        """A worker is done with it."""
        self.busy -= 1

    def queued(self, is_queued: bool) -> None:
        """It waits for its next turn, or no longer does."""
        self.is_queued = is_queued

    def limit_to(self, concurrency: int) -> None:
        """So many requests may be in flight from now on."""
        self.concurrency = concurrency

    def want_permit(self, wants: bool) -> None:
        """It found no permit, or waits for one now."""
        self.wants_permit = wants

    # times

    def wait_until(self, at: float) -> None:
        """The next turn is at `at` (monotonic seconds), whatever was said before."""
        self.next_at = at

    def wait_at_least_until(self, at: float) -> None:
        """The next turn is not before `at` (monotonic seconds)."""
        self.next_at = max(self.next_at, at)

    def start_delay(self, delay_ms: int, ended_at: float) -> None:
        """The last response ended at `ended_at`; the next request follows `delay_ms` later. Never shortens a wait."""
        self.delay_ms = delay_ms
        self.ended_at = ended_at
        self.wait_at_least_until(ended_at + delay_ms / 1000)

    def back_off(self, state: BackoffState) -> None:
        """The backoff of the domain is `state` from now on."""
        self.backoff = state

    def received(self, received_bytes: int) -> None:
        """A body of so many bytes came."""
        self.body_bytes = received_bytes

    # reservations

    def reserve_slot(self, network: str, at: float) -> None:
        """Wait for the slot at `network`'s rate limit that begins `at` (monotonic seconds)."""
        self._slot = (network, at)
        self.next_at = at

    def take_slot(self) -> tuple[str, float] | None:
        """The slot that was waited for, once."""
        slot, self._slot = self._slot, None
        return slot

    def reserve(self, reservation: Reservation) -> None:
        """There is a reservation on another domain."""
        self.reservation, self.refusals = reservation, 0

    def refused(self, at_most: int) -> int:
        """No reservation was to be had. How many times in a row, counted up to `at_most`."""
        self.reservation, self.refusals = None, min(self.refusals + 1, at_most)
        return self.refusals

    def take_reservation(self) -> Reservation | None:
        """The reservation, once."""
        reservation, self.reservation = self.reservation, None
        return reservation

    # robots.txt

    def remember_robots(self, origin: str, record: bytes | None) -> None:
        """What Redis has of the robots.txt of `origin`."""
        self._stored_robots = (origin, record)

    def take_stored_robots(self, origin: str) -> tuple[bool, bytes | None]:
        """Whether it was read what Redis has of the robots.txt of `origin`, and that; once."""
        stored, self._stored_robots = self._stored_robots, None
        return (True, stored[1]) if stored is not None and stored[0] == origin else (False, None)
