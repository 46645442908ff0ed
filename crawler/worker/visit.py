"""A visit: one leased domain with its URLs, and what the replica knows about it while it holds the lease."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

from crawler.worker.lease_scope import LeaseLimit
from frontier.entries import Entry
from frontier.queue import Lease, Settled, Settlement
from frontier.reservations import Reservation
from politeness.backoff import BackoffState
from politeness.robots_fetch import RobotsFetch

NONE_CUT: Mapping[str, int] = MappingProxyType({})


class Visit:
    """The mutable side of a lease.

    `pending`: URLs not yet fetched. `next_at`: when the domain may be asked again, in monotonic seconds; it is also when
    the visit is due in the schedule. `deadline`: when the lease is no longer ours, by our own monotonic clock, which is
    what makes a replica that slept harmless. `closing`: the lease shall be given back as soon as nothing is in flight.

    `stored_robots`: an origin, and the record of its robots.txt that Redis had when the visit began, until it is looked at.

    `busy`: workers that give it a turn now, at most `lanes`. `placed`: its next turn is on the schedule, or is being
    prepared by one of them, or waits for a permit (`wants_permit`: it found none). So one worker at a time decides what
    the domain is asked next, however many requests are in flight.
    """

    __slots__ = (
        "backoff",
        "busy",
        "closing",
        "deadline",
        "delay_ms",
        "ended_at",
        "lanes",
        "lease",
        "limit",
        "moment",
        "next_at",
        "octets",
        "pending",
        "placed",
        "refusals",
        "reservation",
        "robots",
        "stored_robots",
        "wants_permit",
    )

    def __init__(self, lease: Lease, deadline: float, now: float) -> None:
        self.lease = lease
        self.pending: deque[Entry] = deque(lease.entries)
        self.deadline = deadline
        self.limit = LeaseLimit()  # of the requests under way
        self.next_at = now
        self.ended_at = float("-inf")  # when the last response ended
        self.moment: tuple[str, float] | None = None  # reserved at the address gate: network, monotonic seconds
        self.delay_ms = lease.delay_ms
        self.octets = 0  # of the last body
        self.backoff = BackoffState.parse(lease.state)
        self.robots: dict[str, RobotsFetch] = {}  # those under way, by origin
        self.stored_robots: tuple[str, bytes | None] | None = None
        self.reservation: Reservation | None = None  # on the domain that a robots.txt redirects to
        self.refusals = 0  # of a reservation, in a row
        self.busy = 0
        self.lanes = 1
        self.placed = True
        self.closing = False
        self.wants_permit = False

    def __repr__(self) -> str:
        return f"<Visit {self.lease.domain} pending={len(self.pending)} busy={self.busy}>"

    @property
    def domain(self) -> str:
        return self.lease.domain

    def holds(self, now: float) -> bool:
        """Whether the lease is still ours at `now`."""
        return now < self.deadline

    def renewed(self, deadline: float, now: float) -> None:
        """The lease is ours until `deadline`, or no longer if that has passed; so are the requests under way."""
        self.deadline = deadline
        self.limit.move(deadline - now)

    def rest(self, until: float, ended_at: float) -> None:
        """The last response ended at `ended_at`; the domain rests until `until`. Never shortens a rest."""
        self.ended_at = ended_at
        self.next_at = max(self.next_at, until)

    def settlement(
        self, next_ms: int, urls: list[Settled], octets: int = 0, duplicates: int = 0, cut: Mapping[str, int] = NONE_CUT
    ) -> Settlement:
        """What there is to tell Redis about this visit now. For the other arguments see `Settlement`."""
        return Settlement(self.lease, next_ms, self.delay_ms, str(self.backoff), urls, octets, duplicates, cut)
