"""Many domains behind one address share a rate: the address rate limiter, for one replica or for all of them.

The rate of a domain says nothing about the machine behind it: a shared host serves thousands of domains, and a crawl of
all of them would meet it with thousands of polite requests at once. So each request also needs a slot at which its
address may be asked. Moments are given out by the generic cell rate algorithm (ITU-T I.371): on average `rate_per_s`,
and up to `burst` at once after a pause. They are reserved when given out, so a domain keeps its place in the line while
it waits, and needs no worker to do so.

`SharedRateLimiter` keeps the line in Redis (`lua/rate_limit.lua`), where all replicas share it. Whoever asks within a few
milliseconds goes in one round trip. `LocalRateLimiter` keeps it in memory, for this replica alone. Both decide alike;
`slots` is the pure form of the decision.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from ipaddress import IPv6Network, ip_address
from typing import Protocol

import msgspec

from frontier.clock import Clock, ServerClock
from frontier.keys import CrawlKeys
from frontier.scripts import RATE_LIMIT
from frontier.store import Reply, Store, run

HORIZON_S = 20.0
"""Moments further ahead are not reserved. Whoever would have to wait longer does better to give its domain back."""

GATHER_S = 0.003
"""How long questions gather before they are asked: next to nothing against the delay of a domain."""

SWEEP_SIZE = 10_000
"""Addresses that a `LocalRateLimiter` remembers before it looks for those that may be forgotten: about 1.5 MB."""


class RateLimitPolicy(msgspec.Struct, frozen=True):
    """`rate_per_s`: requests a second to one address on average, by whoever shares the limiter; above 0. `burst`: how many
    may follow one another at once after a pause. `shared`: whether all replicas share the limiter."""

    rate_per_s: float
    burst: int = 5
    shared: bool = True
    horizon_s: float = HORIZON_S

    @property
    def interval_ms(self) -> float:
        return 1000 / self.rate_per_s


class RateLimiter(Protocol):
    """Gives out slots."""

    async def reserve(self, network: str) -> float | None:
        """Seconds until the slot reserved for one request to `network` (see `network_of`), 0 for now; or None: the line
        reaches beyond the horizon, and nothing was reserved. Raises RedisAway."""


def network_of(address: str) -> str:
    """What stands for one machine or customer: an IPv4 address as it is, of an IPv6 address the /64.

    RFC 6177: a site gets a /64 at least, so its addresses are as many as it likes. An IPv4-mapped address is its IPv4 one.
    """
    ip = ip_address(address.partition("%")[0])
    if ip.version == 4:
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(IPv6Network((int(ip) >> 64 << 64, 64)))


def slots(arrival_ms: float, now_ms: float, wanted: int, policy: RateLimitPolicy) -> tuple[list[float], float]:
    """Up to `wanted` slots (ms), and the theoretical arrival time after them. The same decision as `lua/rate_limit.lua`."""
    given: list[float] = []
    arrival_ms = max(now_ms, arrival_ms)
    tolerance_ms = (policy.burst - 1) * policy.interval_ms
    for _ in range(wanted):
        slot_ms = max(now_ms, arrival_ms - tolerance_ms)
        if slot_ms > now_ms + policy.horizon_s * 1000:
            break
        given.append(slot_ms)
        arrival_ms += policy.interval_ms
    return given, arrival_ms


class LocalRateLimiter:
    """The rate limiter of one replica."""

    def __init__(self, clock: Clock, policy: RateLimitPolicy) -> None:
        self._clock = clock
        self._policy = policy
        self._arrivals: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<LocalRateLimiter addresses={len(self._arrivals)}>"

    async def reserve(self, network: str) -> float | None:
        """See `RateLimiter.reserve`."""
        now_ms = self._clock.monotonic() * 1000
        given, arrival_ms = slots(self._arrivals.get(network, 0.0), now_ms, 1, self._policy)
        if not given:
            return None
        self._arrivals[network] = arrival_ms
        if len(self._arrivals) > SWEEP_SIZE:
            self._arrivals = {name: at for name, at in self._arrivals.items() if at > now_ms}
        return (given[0] - now_ms) / 1000


class SharedRateLimiter:
    """The rate limiter of all replicas of a crawl."""

    def __init__(
        self, store: Store, keys: CrawlKeys, clock: Clock, server_clock: ServerClock, policy: RateLimitPolicy
    ) -> None:
        self._store = store
        self._keys = keys
        self._clock = clock
        self._server_clock = server_clock
        self._policy = policy
        self._asked: defaultdict[str, list[asyncio.Future[float | None]]] = defaultdict(list)
        self._asking: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<SharedRateLimiter {self._keys.crawl} asked={len(self._asked)}>"

    async def reserve(self, network: str) -> float | None:
        """See `RateLimiter.reserve`. Asking again after RedisAway costs the address one slot at most."""
        if not self._asked:
            task = asyncio.create_task(self._ask_soon())
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        answer: asyncio.Future[float | None] = asyncio.get_running_loop().create_future()
        self._asked[network].append(answer)
        return await answer

    async def _ask_soon(self) -> None:
        """Gather, ask for all in one round trip, and hand the answers out."""
        await self._clock.sleep(GATHER_S)
        asked, self._asked = self._asked, defaultdict(list)
        now_ms, policy = self._server_clock.now_ms(), self._policy
        horizon_ms = int(policy.horizon_s * 1000)
        calls = [
            run(
                RATE_LIMIT,
                [self._keys.rate_limit(name)],
                now_ms,
                policy.interval_ms,
                policy.burst,
                len(waiting),
                horizon_ms,
            )
            for name, waiting in asked.items()
        ]
        try:
            replies = await self._store.send(calls)
        except asyncio.CancelledError:
            _end(asked, None)
            raise
        except Exception as error:  # whoever asked knows whether this can be waited out
            _end(asked, error)
        else:
            for waiting, reply in zip(asked.values(), replies, strict=True):
                _answer(waiting, reply, now_ms)


def _answer(waiting: list[asyncio.Future[float | None]], reply: Reply, now_ms: int) -> None:
    waits = [(float(slot_ms) - now_ms) / 1000 for slot_ms in reply[1:]]
    for place, future in enumerate(waiting):
        if not future.done():
            future.set_result(waits[place] if place < len(waits) else None)


def _end(asked: dict[str, list[asyncio.Future[float | None]]], error: Exception | None) -> None:
    """No answer will come: hand on `error`, or the cancellation."""
    for future in (future for waiting in asked.values() for future in waiting if not future.done()):
        if error is None:
            future.cancel()
        else:
            future.set_exception(error)
