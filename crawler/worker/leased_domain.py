"""A leased domain with its URLs, and the replica's state for it while it holds the lease."""

from __future__ import annotations

import asyncio
from collections import deque

from msgspec.structs import replace

from crawler.worker.lease_timer import LeaseTimer
from frontier.entries import Entry
from frontier.reservations import Reservation
from frontier.settle import Lease
from politeness.backoff import BackoffState
from politeness.robots_fetch import RobotsFetch
from politeness.tdmrep import TdmFetch

MAX_REPEATS = 3
"""How often a URL that redirects to itself is requested once more: for two cookies and another way of writing the URL."""


class LeasedDomain:
    """The mutable state of a lease. Other classes read its attributes, but change them only through its methods, except
    the collections `pending`, `robots` and `tdm`, and `timer`, which ends the requests in flight with the lease.

    `repeats`: of URLs that redirected to themselves, how often they did, and the last redirect's way of writing them.

    `pending`: URLs that are not fetched yet. `next_at`: when the domain may be requested again, and thus when it is
    due in the queue, in monotonic seconds. `lease_end`: when the lease ends, by the local monotonic clock; a replica that
    was suspended sees that its leases have ended. `closing`: the lease is returned as soon as nothing is in flight.

    `busy`: the number of workers that have taken the domain. `handling`: those of them that only wait for a handler of
    users; the others, `requesting`, are at most `concurrency`. `is_queued`: the domain waits in the queue for its next
    turn, or waits for a permit (`wants_permit`), or a worker prepares its turn. So only one worker at a time decides
    what to request next, however many requests are in flight.
    """

    __slots__ = (
        "_confirmed",
        "_slot",
        "_stored_robots",
        "backoff",
        "body_bytes",
        "busy",
        "closing",
        "concurrency",
        "delay_ms",
        "domain",
        "ended_at",
        "handling",
        "is_queued",
        "lease",
        "lease_end",
        "next_at",
        "pending",
        "refusals",
        "repeats",
        "reservation",
        "robots",
        "tdm",
        "timer",
        "wants_permit",
    )

    def __init__(self, lease: Lease, lease_end: float, now: float) -> None:
        self.lease = lease
        self.domain = lease.domain
        self.pending: deque[Entry] = deque(lease.entries)
        self.lease_end = lease_end
        self.timer = LeaseTimer()
        self.next_at = now
        self.ended_at = float("-inf")  # when the last response ended
        self.delay_ms = lease.delay_ms
        self.body_bytes = 0  # size of the last body
        self.backoff = replace(BackoffState.parse(lease.state), limited_until_ms=0)
        self.robots: dict[str, RobotsFetch] = {}  # unfinished fetches, by origin
        self.tdm: dict[str, TdmFetch] = {}  # the same for tdmrep.json
        self.reservation: Reservation | None = None  # on the domain that a robots.txt redirects to
        self.refusals = 0  # refused reservations in a row
        self.busy = 0
        self.handling = 0
        self.concurrency = 1
        self.is_queued = True
        self.closing = False
        self.wants_permit = False
        self.repeats: dict[str, tuple[int, str]] = {}
        self._slot: tuple[str, float] | None = None  # reserved by the address limiter: network, monotonic seconds
        self._stored_robots: tuple[str, bytes | None] | None = None
        self._confirmed: set[str] = set()  # origins whose robots.txt is still unreachable according to Redis

    def __repr__(self) -> str:
        return f"<LeasedDomain {self.lease.domain} pending={len(self.pending)} busy={self.busy}>"

    # the lease

    def holds(self, now: float) -> bool:
        """Return whether the lease is still valid at `now` (monotonic seconds)."""
        return now < self.lease_end

    def renewed(self, lease_end: float, now: float) -> None:
        """Move the end of the lease to `lease_end` (monotonic seconds). If that has passed, requests in flight are
        cancelled."""
        self.lease_end = lease_end
        if not self.timer.has_requests:
            return
        loop = asyncio.get_running_loop()
        self.timer.move(loop.time() + lease_end - now, loop)

    def close(self) -> None:
        """Have the lease returned as soon as nothing is in flight."""
        self.closing = True

    # turns

    def taken(self) -> None:
        """Record that a worker has taken the domain."""
        self.busy += 1

    def left(self) -> None:
        """Record that a worker has finished its turn."""
        self.busy -= 1

    @property
    def requesting(self) -> int:
        """The number of workers that may have a request in flight."""
        return self.busy - self.handling

    def handed_on(self, is_handed_on: bool) -> None:
        """Record that a worker begins, or ends, to wait for a handler while the next request may start."""
        self.handling += 1 if is_handed_on else -1

    def queued(self, is_queued: bool) -> None:
        """Record whether the domain waits for its next turn."""
        self.is_queued = is_queued

    def limit_to(self, concurrency: int) -> None:
        """Set how many requests may be in flight from now on."""
        self.concurrency = concurrency

    def want_permit(self, wants: bool) -> None:
        """Record whether the domain needs a permit before its next turn."""
        self.wants_permit = wants

    # times

    def wait_until(self, at: float) -> None:
        """Set the next turn to `at` (monotonic seconds), even if that is earlier than before."""
        self.next_at = at

    def wait_at_least_until(self, at: float) -> None:
        """Postpone the next turn to `at` (monotonic seconds) if it would be earlier."""
        self.next_at = max(self.next_at, at)

    def start_delay(self, delay_ms: int, ended_at: float) -> None:
        """Postpone the next request to `delay_ms` after the end of the last response, `ended_at` (monotonic seconds). Never
        shortens the wait."""
        self.delay_ms = delay_ms
        self.ended_at = ended_at
        self.wait_at_least_until(ended_at + delay_ms / 1000)

    def set_backoff(self, state: BackoffState) -> None:
        """Set the domain's backoff to `state`."""
        self.backoff = state

    def received(self, received_bytes: int) -> None:
        """Record the size of the last body."""
        self.body_bytes = received_bytes

    # URLs that redirect to themselves

    def written(self, entry: Entry) -> str:
        """How the URL of `entry` is written in the request."""
        return self.repeats[entry.url][1] if entry.url in self.repeats else entry.url

    def repeat(self, entry: Entry, written: str) -> bool:
        """Make `entry` the next URL, once more, `written` as its redirect says. Returns False if that was done
        `MAX_REPEATS` times."""
        number, _ = self.repeats.get(entry.url, (0, ""))
        if number == MAX_REPEATS:
            return False
        self.repeats[entry.url] = (number + 1, written)
        self.pending.appendleft(entry)
        return True

    def forget_repeats(self, entry: Entry) -> None:
        """`entry` is settled."""
        self.repeats.pop(entry.url, None)

    # reservations

    def reserve_slot(self, network: str, at: float) -> None:
        """Set the next turn to the slot for `network` that begins at `at` (monotonic seconds)."""
        self._slot = (network, at)
        self.next_at = at

    def take_slot(self) -> tuple[str, float] | None:
        """Return the reserved slot and forget it; None if there is none."""
        slot, self._slot = self._slot, None
        return slot

    def reserve(self, reservation: Reservation) -> None:
        """Keep a reservation on another domain."""
        self.reservation, self.refusals = reservation, 0

    def refused(self, at_most: int) -> int:
        """Count a refused reservation. Returns the number of refusals in a row, at most `at_most`."""
        self.reservation, self.refusals = None, min(self.refusals + 1, at_most)
        return self.refusals

    def take_reservation(self) -> Reservation | None:
        """Return the reservation and forget it; None if there is none."""
        reservation, self.reservation = self.reservation, None
        return reservation

    # robots.txt

    def remember_robots(self, origin: str, record: bytes | None) -> None:
        """Keep the record that Redis has for the robots.txt of `origin`, None if it has none."""
        self._stored_robots = (origin, record)

    def take_stored_robots(self, origin: str) -> tuple[bool, bytes | None]:
        """Return whether the record of `origin` was read from Redis, and the record; then forget it."""
        stored, self._stored_robots = self._stored_robots, None
        return (True, stored[1]) if stored is not None and stored[0] == origin else (False, None)

    def confirm_robots(self, origin: str) -> bool:
        """Record that Redis is asked for the robots.txt of `origin`. Returns whether it was asked before."""
        before = origin in self._confirmed
        self._confirmed.add(origin)
        return before
