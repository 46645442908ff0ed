"""Reserves single requests to domains that the replica has not leased, so that their delay is still respected.

Only the owner of a domain leases it. A robots.txt, however, may redirect to a host of any domain (RFC 9309 2.3.1.2), and a
handler may request any, which another replica may be crawling. `reserve` reserves a single request to it. During the
reservation the domain is not due for `lua/lease.lua`. A holder that dies blocks the domain for `hold_ms` at most.

A domain that is leased is noted as wanted. Its holder, if that is another replica, reads that about once a second
(`frontier.control`) and ends the lease, or if pages wait for their handlers opens it (`open_lease`): from then on, all
requests need reservations, also those of the holder. So nobody waits for handlers of others, which may be waiting for him.
"""

from __future__ import annotations

import contextlib
import math

import msgspec

from frontier.clock import ServerClock
from frontier.errors import RedisAway, RedisMisused
from frontier.keys import CrawlKeys
from frontier.scripts import END_RESERVATION, OPEN_LEASE, RESERVE, command, script_call
from frontier.settle import Lease
from frontier.shards import send_to_shards, shard_call
from frontier.store import Store

SHORTEST_WAIT_MS, LONGEST_WAIT_MS = 20, 1_000
"""Limits of the time between two attempts to reserve a busy domain, which is half of its delay. A lease ends after a batch
of URLs, a reservation after one request, and then the domain's delay starts. At this rate an attempt falls within the
delay, and reserves the slot at its end."""


WANTED_MS = 3_000
"""For how long a domain is wanted after an attempt to reserve it. Whoever waits for it tries more often."""


class Reservation(msgspec.Struct, frozen=True):
    """A reserved request, from `slot_ms` until `until_ms` (server time). `delay_ms`: of the domain, 0 if never fetched."""

    domain: str
    slot_ms: int
    until_ms: int
    delay_ms: int


class ReservationRefused(msgspec.Struct, frozen=True):
    """Nothing was reserved. Try again at `retry_ms` (server time)."""

    retry_ms: int


class Reservations:
    """Reserves requests. `hold_ms`: the longest request; `delay_ms`: for domains without one of their own; `replica`: who
    wants the domains that are leased."""

    def __init__(
        self, store: Store, keys: CrawlKeys, clock: ServerClock, hold_ms: int, delay_ms: int, replica: str = ""
    ) -> None:
        self._store = store
        self._keys = keys
        self._clock = clock
        self._hold_ms = hold_ms
        self._delay_ms = delay_ms
        self._replica = replica

    def apply(self, delay_ms: int) -> None:
        """Use `delay_ms` from now on for domains without a delay of their own."""
        self._delay_ms = delay_ms

    def shard_of(self, domain: str) -> int:
        return self._keys.shard_of(domain)

    async def reserve(
        self, domain: str, max_wait_ms: int, hold_ms: float = math.inf
    ) -> Reservation | ReservationRefused:
        """Reserve one request to `domain`, which may start within `max_wait_ms` and ends within `hold_ms`. Raises
        ShardLost, and RedisAway: then the reservation may have been made anyway, and the next attempt waits for its end."""
        shard, now_ms = self._keys.shard_of(domain), self._clock.now_ms()
        hold_ms = int(min(hold_ms, self._hold_ms))
        call = shard_call(RESERVE, self._keys, shard, domain, now_ms, hold_ms, max_wait_ms)
        (answer,) = await send_to_shards(self._store, self._keys, [(shard, call)])
        match answer:
            case [b"reserved", slot_ms, until_ms, delay_ms]:
                return Reservation(domain, int(slot_ms), int(until_ms), max(0, int(delay_ms)))
            case [b"resting", until_ms]:
                return ReservationRefused(int(until_ms))
            case [word, delay_ms]:
                if word == b"leased":
                    await self._note_wanted(domain, now_ms)
                half_ms = (int(delay_ms) if int(delay_ms) >= 0 else self._delay_ms) // 2
                return ReservationRefused(now_ms + min(max(half_ms, SHORTEST_WAIT_MS), LONGEST_WAIT_MS))
            case reply:
                raise RedisMisused(f"reserve returned {reply!r}")

    async def _note_wanted(self, domain: str, now_ms: int) -> None:
        key = self._keys.wanted
        note = command("ZADD", key, now_ms, f"{domain} {self._replica}")
        drop_old = command("ZREMRANGEBYSCORE", key, "-inf", now_ms - WANTED_MS)
        with contextlib.suppress(RedisAway):  # it is noted with the next attempt
            await self._store.send([note, drop_old, command("PEXPIRE", key, WANTED_MS)])

    async def open_lease(self, lease: Lease, next_ms: int) -> None:
        """Allow reservations of the domain of `lease`, under which its holder makes no more requests, from `next_ms`
        (server time) on. Raises RedisAway."""
        keys = self._keys.of(lease.domain)
        call = script_call(OPEN_LEASE, (keys.domain(lease.domain),), lease.token, next_ms + self._clock.uncertainty_ms)
        await self._store.send([call])

    async def end(self, reservation: Reservation, next_ms: int) -> None:
        """End `reservation` after its request. The next one may start at `next_ms` (server time). Raises RedisAway."""
        domain = reservation.domain
        keys = self._keys.of(domain)
        times = (reservation.until_ms, next_ms + self._clock.uncertainty_ms)
        await self._store.send([script_call(END_RESERVATION, (keys.due, keys.domain(domain)), domain, *times)])
