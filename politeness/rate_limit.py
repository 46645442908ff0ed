"""Limits the request rate of each network address, for one replica or for all replicas together.

The delay of a domain does not protect the machine behind it: a shared host serves thousands of domains, and would get
thousands of polite requests at once. So each request also needs a slot, a time at which its address may be requested.
Slots are computed by the generic cell rate algorithm (ITU-T I.371): on average `rate_per_s`, and up to `burst` at once
after a pause. A slot is reserved when it is assigned, so a domain that waits for its slot needs no worker.

`SharedRateLimiter` keeps the state in Redis (`lua/rate_limit.lua`) for all replicas. Calls within a few milliseconds share
a round trip. `LocalRateLimiter` keeps it in memory, for this replica alone. Both do the computation of `slots`.

A slot may be missed, for example because Redis did not answer for some seconds. If all domains that missed theirs sent
their requests at once, the address would get them all together. So a replica uses a missed slot only if it has made no
request to the address for as long as its share of the rate takes. Otherwise the domain reserves a new one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from ipaddress import IPv6Network, ip_address
from typing import Protocol

import msgspec

from frontier.clock import Clock, ServerClock
from frontier.keys import CrawlKeys
from frontier.scripts import RATE_LIMIT, Reply, script_call
from frontier.store import Store

HORIZON_S = 20.0
"""Slots further ahead than this are not reserved. A domain that would have to wait longer is better given back."""

GATHER_S = 0.003
"""How long calls are gathered before they are sent: short compared with the delay of a domain."""

ON_TIME_S = 0.25
"""A slot that began no longer ago than this is not missed: time for a round trip to Redis and for a busy event loop."""

SWEEP_SIZE = 10_000
"""Number of addresses from which a limiter removes those whose state no longer matters: about 1.5 MB."""


class RateLimitPolicy(msgspec.Struct, frozen=True):
    """`rate_per_s`: average number of requests per second to an address, from all who share the limiter; above 0. `burst`:
    number of requests that may be sent at once after a pause. `shared`: whether all replicas share the limiter."""

    rate_per_s: float
    burst: int = 5
    shared: bool = True
    horizon_s: float = HORIZON_S

    @property
    def interval_ms(self) -> float:
        return 1000 / self.rate_per_s


class RateLimiter(Protocol):
    async def reserve(self, network: str) -> float | None:
        """Reserve a slot for one request to `network` (see `network_of`). Returns the seconds until it begins, 0 for now;
        None if it would be beyond the horizon, and nothing was reserved. Raises RedisAway."""

    def may_use(self, network: str, slot: float) -> bool:
        """Whether a slot that was reserved for `network` and began at `slot`, in seconds of the monotonic clock, may be
        used now. If it was missed, this is seldom so. The caller then has to use it."""


def network_of(address: str) -> str:
    """The network that counts as one machine: an IPv4 address itself, or the /64 of an IPv6 address.

    A site gets at least a /64 (RFC 6177), so it may use any number of addresses. IPv4-mapped addresses count as IPv4.
    """
    ip = ip_address(address.partition("%")[0])
    if ip.version == 4:
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(IPv6Network((int(ip) >> 64 << 64, 64)))


def slots(arrival_ms: float, now_ms: float, wanted: int, policy: RateLimitPolicy) -> tuple[list[float], float]:
    """Up to `wanted` slots (ms), and the theoretical arrival time after them. Computes the same as `lua/rate_limit.lua`."""
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


class _MissedSlots:
    """Lets a replica use missed slots at its share of the rate of the policy. `replicas`: the number that share it."""

    def __init__(self, clock: Clock, policy: RateLimitPolicy, replicas: Callable[[], int] = lambda: 1) -> None:
        self._clock = clock
        self._policy = policy
        self._replicas = replicas
        self._used: dict[str, float] = {}  # network -> when a slot was last used

    def may_use(self, network: str, slot: float) -> bool:
        now, interval_s = self._clock.monotonic(), self._policy.interval_ms / 1000
        interval_s *= max(1, self._replicas())
        if now < slot:
            return True
        if now > slot + ON_TIME_S and now < self._used.get(network, -interval_s) + interval_s:
            return False
        self._used[network] = now
        if len(self._used) > SWEEP_SIZE:
            self._used = {name: at for name, at in self._used.items() if now < at + interval_s}
        return True


class LocalRateLimiter(_MissedSlots):
    def __init__(self, clock: Clock, policy: RateLimitPolicy) -> None:
        super().__init__(clock, policy)
        self._arrivals: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<LocalRateLimiter addresses={len(self._arrivals)}>"

    async def reserve(self, network: str) -> float | None:
        now_ms = self._clock.monotonic() * 1000
        given, arrival_ms = slots(self._arrivals.get(network, 0.0), now_ms, 1, self._policy)
        if not given:
            return None
        self._arrivals[network] = arrival_ms
        if len(self._arrivals) > SWEEP_SIZE:
            self._arrivals = {name: at for name, at in self._arrivals.items() if at > now_ms}
        return (given[0] - now_ms) / 1000


class SharedRateLimiter(_MissedSlots):
    def __init__(
        self,
        store: Store,
        keys: CrawlKeys,
        clock: Clock,
        server_clock: ServerClock,
        policy: RateLimitPolicy,
        replicas: Callable[[], int] = lambda: 1,
    ) -> None:
        super().__init__(clock, policy, replicas)
        self._store = store
        self._keys = keys
        self._server_clock = server_clock
        # By node of a cluster, so that one that is away holds up only its own addresses; then by network.
        self._asked: dict[str, defaultdict[str, list[asyncio.Future[float | None]]]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<SharedRateLimiter {self._keys.crawl} asked={len(self._asked)}>"

    async def reserve(self, network: str) -> float | None:
        """See `RateLimiter.reserve`. A call that is repeated after RedisAway wastes one slot at most."""
        while True:
            slot_ms = await self._ask(network)
            if slot_ms is None:
                return None
            wait_s = (slot_ms - self._server_clock.now_ms()) / 1000
            if self.may_use(network, self._clock.monotonic() + wait_s):  # not if the reply took too long
                return max(wait_s, 0.0)

    async def _ask(self, network: str) -> float | None:
        """Reserve a slot. Returns when it begins, in milliseconds of the server's clock; None beyond the horizon."""
        node = self.node_of(network)
        if node not in self._asked:
            self._asked[node] = defaultdict(list)
            task = asyncio.create_task(self._ask_soon(node))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        answer: asyncio.Future[float | None] = asyncio.get_running_loop().create_future()
        self._asked[node][network].append(answer)
        return await answer

    def node_of(self, network: str) -> str:
        """The node of a cluster that has the rate limit of `network`."""
        return self._store.node_of(self._keys.rate_limit(network))

    async def _ask_soon(self, node: str) -> None:
        """Gather calls to `node`, send them in one round trip, and resolve their futures."""
        await self._clock.sleep(GATHER_S)
        asked = self._asked.pop(node)
        now_ms, interval_ms, burst = self._server_clock.now_ms(), self._policy.interval_ms, self._policy.burst
        horizon_ms = int(self._policy.horizon_s * 1000)
        calls = [
            script_call(RATE_LIMIT, [self._keys.rate_limit(name)], now_ms, interval_ms, burst, len(waiting), horizon_ms)
            for name, waiting in asked.items()
        ]
        try:
            replies = await self._store.send(calls)
        except asyncio.CancelledError:
            _fail(asked, None)
            raise
        except Exception as error:  # the callers decide whether to retry
            _fail(asked, error)
        else:
            for waiting, reply in zip(asked.values(), replies, strict=True):
                _answer(waiting, reply)


def _answer(waiting: list[asyncio.Future[float | None]], reply: Reply) -> None:
    for place, future in enumerate(waiting, 1):
        if not future.done():
            future.set_result(float(reply[place]) if place < len(reply) else None)


def _fail(asked: dict[str, list[asyncio.Future[float | None]]], error: Exception | None) -> None:
    for future in (future for waiting in asked.values() for future in waiting if not future.done()):
        if error is None:
            future.cancel()
        else:
            future.set_exception(error)
