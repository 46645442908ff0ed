"""One request to a domain that one holds no lease on: how replicas stay polite to a domain that they only pass by.

A lease is for whole domains and for their owner. A robots.txt, though, may redirect to a host of any domain (RFC 9309
2.3.1.2), which another replica may be crawling. `reserve` asks for the right to a single request there; while it is
held, `lua/lease.lua` finds the domain not due. A holder that dies blocks the domain for `hold_ms` and no longer.
"""

from __future__ import annotations

import msgspec

from frontier.clock import ServerClock
from frontier.errors import RedisMisused
from frontier.keys import CrawlKeys
from frontier.scripts import END_RESERVATION, RESERVE
from frontier.store import Store, run
from frontier.urls import shard_of

SHORTEST_WAIT_MS, LONGEST_WAIT_MS = 20, 1_000
"""Between two questions for a domain that is busy, at half of its delay: leases end after a batch of URLs, reservations
after one, and the domain then rests for its delay. Whoever asks that often meets the rest, and reserves its end."""


class Reservation(msgspec.Struct, frozen=True):
    """The right to one request to `domain`, from `slot_ms` on, answered before `until_ms` (server time). `delay_ms`: what
    those who crawl the domain wait between requests, 0 if nobody has yet."""

    domain: str
    slot_ms: int
    until_ms: int
    delay_ms: int


class ReservationRefused(msgspec.Struct, frozen=True):
    """Nothing was reserved; asking again makes sense at `again_ms` (server time)."""

    again_ms: int


class Reservations:
    """Reservations on the domains of the crawl that `keys` name. `hold_ms`: how long a request may take at most.
    `delay_ms`: what a domain without a delay of its own waits between requests."""

    def __init__(self, store: Store, keys: CrawlKeys, clock: ServerClock, hold_ms: int, delay_ms: int) -> None:
        self._store = store
        self._keys = keys
        self._clock = clock
        self._hold_ms = hold_ms
        self._delay_ms = delay_ms

    def apply(self, delay_ms: int) -> None:
        """From now on a domain without a delay of its own waits `delay_ms`."""
        self._delay_ms = delay_ms

    async def reserve(self, domain: str, max_wait_ms: int) -> Reservation | ReservationRefused:
        """The right to one request, now or within `max_wait_ms`. Raises RedisAway; asking again then may find the
        reservation that was lost, and wait for its end."""
        keys, now_ms = self._keys.shards[shard_of(domain, len(self._keys.shards))], self._clock.now_ms()
        call = run(RESERVE, (keys.due, keys.leases), domain, now_ms, self._hold_ms, max_wait_ms)
        match (await self._store.send([call]))[0]:
            case [b"reserved", slot_ms, until_ms, delay_ms]:
                return Reservation(domain, int(slot_ms), int(until_ms), max(0, int(delay_ms)))
            case [b"resting", until_ms]:
                return ReservationRefused(int(until_ms))
            case [_, delay_ms]:
                half_ms = (int(delay_ms) if int(delay_ms) >= 0 else self._delay_ms) // 2
                return ReservationRefused(now_ms + min(max(half_ms, SHORTEST_WAIT_MS), LONGEST_WAIT_MS))
            case reply:
                raise RedisMisused(f"reserve answered {reply!r}")

    async def end(self, reservation: Reservation, next_ms: int) -> None:
        """The request was answered, or given up; the domain may be asked again at `next_ms`. Raises RedisAway."""
        domain = reservation.domain
        keys = self._keys.shards[shard_of(domain, len(self._keys.shards))]
        uncertainty_ms = self._clock.uncertainty_ms
        await self._store.send(
            [run(END_RESERVATION, (keys.due,), domain, reservation.until_ms, next_ms + uncertainty_ms)]
        )
