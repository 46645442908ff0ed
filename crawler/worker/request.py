"""Requests to leased domains: when they may be sent (`Throttle`, `AddressLimiter`, `ForeignDomains`), and sending them
within the lease (`PoliteFetch`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from itertools import takewhile
from math import ceil, inf

from msgspec.structs import replace

from crawler.defects import in_words
from crawler.errors import NOT_THE_URLS_FAULT, OURS, FailureKind, FetchFailed, is_machines_fault
from crawler.events import BackedOff, HandlerFailed, OwnFailure
from crawler.fetch.client import HttpClient
from crawler.fetch.proxy import Proxy, proxy_named
from crawler.hooks import HttpRequest, Intervened, OutgoingRequest, RequestFunctions
from crawler.page import Exchange, Outcome
from crawler.worker.leases import QUICK_S, LeasedDomain
from crawler.worker.runtime import Runtime, TimeSlice
from crawler.worker.verdict import UrlResult, judge_status
from frontier.control import Control
from frontier.domains import domain_of, host_of
from frontier.entries import Entry
from frontier.errors import FrontierError, RedisAway
from frontier.keys import turn_keys
from frontier.reservations import Reservation, ReservationRefused, Reservations
from frontier.scripts import TAKE_TURN, command, script_call
from frontier.store import Store
from politeness.backoff import HEALTHY, BackoffState, after_failure, after_success, is_given_up, parse_retry_after
from politeness.delay import delay_ms, with_set_delay
from politeness.rate_limit import (
    HORIZON_S,
    SWEEP_SIZE,
    RateLimiter,
    RateLimitPolicy,
    SharedRateLimiter,
    network_of,
    slots,
)
from politeness.robots_cache import OriginRobots

FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 600.0
"""After failures that are ours, the pause is as long as they have lasted, so it doubles: an outage costs few requests,
and no domain waits for much longer than the outage."""

PAUSE_JITTER = 0.25

DIVIDED_HORIZON_S = 5.0
"""How far ahead a replica reserves slots by itself. The node may come back before they are used, and does not know
them."""

MAX_WAIT_MS = 30_000
"""If the other domain is not available within this time, no reservation is made; the replica asks again at the end of
the domain's delay."""

KEPT_MS = 5_000
"""How long after its slot a reserved request may still begin. The response has to end before the reservation does."""

SLOW_S = 0.25
"""A request that takes longer counts as one that only waits."""

MOST_REFUSALS, LONGEST_MS = 4, 100
"""Each refusal in a row lengthens a short wait by its base value, up to this factor and time, so that many that wait for
the same domain do not overload Redis. Longer waits are half of the domain's delay: an attempt falls within each delay."""


SHORTEST_WAIT_S = 1.0
"""How long a domain waits at least if a function of users wants it to wait."""

MOST_MOVES = 5
"""After so many connections in a row to other addresses than those with the slots, the host counts as unreachable: some of
its addresses accept connections only now and then."""


class PoliteFetch:
    """Requests pages and robots.txt files within their leases, and starts the delay of their domains."""

    def __init__(
        self, runtime: Runtime, http: HttpClient, throttle: Throttle, turns: SharedTurns | None = None
    ) -> None:
        self._runtime = runtime
        self._http = http
        self._throttle = throttle
        self._turns = turns
        self.functions: RequestFunctions | None = None  # of users, which see each request
        self._time_slice = TimeSlice(runtime.clock)
        self._in_flight: dict[asyncio.Timeout, float] = {}  # when each began, by the event loop, the oldest first
        self._failing_since: dict[FailureKind, float] = {}  # when failures that are ours began, monotonic seconds

    def remember(self, host: str, age_s: float) -> None:
        """Note that `host` had an address so many seconds ago, before this process looked it up."""
        self._http.remember(host, age_s)

    async def fetch(self, leased: LeasedDomain, request: HttpRequest, known: OriginRobots | None) -> Exchange:
        """Make `request`. The domain's delay starts when the response ends, or when a request that was sent fails. `known`:
        the robots.txt that may set the delay, None if unknown. Raises FetchFailed, with LEASE_EXPIRED if the lease ended
        before or during the request. After a failure that is ours, the domain has to wait."""
        url = request.url
        await self._time_slice.end_if_over()
        began = self._runtime.now()
        try:
            if self.functions is None:
                exchange = await self._fetch_within_lease(leased, request)
            else:
                exchange = await self._fetch_with_functions(self.functions, leased, request)
        except FetchFailed as failure:
            if isinstance(failure, Intervened):
                self._intervened(leased, url, failure)
            if failure.kind is FailureKind.OTHER_ADDRESS:
                leased.moves += 1
                if leased.moves > MOST_MOVES:
                    leased.moves = 0
                    raise FetchFailed(FailureKind.UNREACHABLE, "each connection led to another address") from failure
            if failure.request_sent:
                self._throttle.start_delay(leased, self._runtime.now() - began, known)
            if self._turns is not None and self._runtime.policy.shares_delays:
                await self._turns.end(url, leased.delay_ms if failure.request_sent else 0)
            if failure.kind in OURS:
                self.pause(leased, failure.kind, failure.detail)
            raise
        except BaseException:  # cancelled, or a defect; the request may have been sent anyway
            self._throttle.start_delay(leased, self._runtime.now() - began, known)
            raise
        finally:  # a robots.txt, for which `known` is None, does not prove that pages come soon
            is_quick = leased.is_quick or known is not None
            leased.is_quick = is_quick and self._runtime.now() - began <= QUICK_S
        leased.moves = 0
        if exchange.phases is not None:  # a connection could be opened, so the next failure begins another row of them
            self._failing_since.clear()
        self._throttle.start_delay(leased, exchange.elapsed, known)
        if self._turns is not None and self._runtime.policy.shares_delays:
            await self._turns.end(url, leased.delay_ms)
        await self._time_slice.end_if_over()
        return exchange

    def _intervened(self, leased: LeasedDomain, url: str, failure: Intervened) -> None:
        if failure.kind is FailureKind.DELAYED:
            wait_for_turn(leased, self._runtime, max(SHORTEST_WAIT_S, failure.after_s), "function")
        elif failure.kind is FailureKind.MIDDLEWARE:
            self._runtime.events.emit(HandlerFailed(failure.function, url, failure.detail, str(failure.kind)))

    async def _fetch_with_functions(
        self, functions: RequestFunctions, leased: LeasedDomain, request: HttpRequest
    ) -> Exchange:
        """Make `request` with the changes of `functions`, which also see the response, or that there is none."""
        outgoing = OutgoingRequest(request.url, request.method, request.fields, request.kind, request.tag)
        await functions.before(outgoing)
        exchange, failure = None, None
        try:
            changed = replace(request, fields=outgoing.fields)
            exchange = await self._fetch_within_lease(leased, changed, proxy_named(outgoing.proxy))
        except FetchFailed as error:
            if error.kind in NOT_THE_URLS_FAULT and error.kind is not FailureKind.PROXY:
                raise
            failure, outgoing.failure = error, str(error.kind)
        try:
            await functions.after(outgoing, exchange)
        except Intervened as other:
            other.exchange, other.request_sent = exchange, failure is None or failure.request_sent
            raise
        if exchange is None:
            assert failure is not None
            raise failure
        return exchange

    async def _fetch_within_lease(
        self, leased: LeasedDomain, request: HttpRequest, proxy: Proxy | None = None
    ) -> Exchange:
        """Make `request`, but cancel it when the lease ends: a response that continued would overlap with the first
        request of the domain's next holder. Each renewal moves the end (`LeasedDomain.renew`)."""
        network = leased.network
        began, now = asyncio.get_running_loop().time(), self._runtime.now
        try:
            async with asyncio.timeout_at(began + leased.lease_end - now()) as timeout:
                leased.requests[timeout] = self._in_flight[timeout] = began
                try:
                    return await self._http.fetch(
                        request.url,
                        is_too_late=lambda: not leased.holds(now()),
                        extra_headers=request.fields,
                        network=network,
                        method=request.method,
                        body=request.body,
                        is_private=request.is_private,
                        proxy=proxy,
                    )
                finally:
                    del leased.requests[timeout], self._in_flight[timeout]
        except TimeoutError as error:
            if not timeout.expired():
                raise
            message = "the lease ended during the request"
            raise FetchFailed(FailureKind.LEASE_EXPIRED, message, request_sent=True) from error

    def waiting(self) -> int:
        """Return the number of requests that have lasted for longer than `SLOW_S`."""
        latest = asyncio.get_running_loop().time() - SLOW_S
        return sum(1 for _ in takewhile(latest.__gt__, self._in_flight.values()))

    def pause(self, leased: LeasedDomain, kind: FailureKind, detail: str) -> None:
        """Have `leased` wait after a failure of `kind`, one of `OURS`. Its lease is returned, and no URL loses a
        try."""
        now = self._runtime.now()
        lasted_s = now - self._failing_since.setdefault(kind, now)
        pause_s = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, lasted_s))
        pause_s *= self._runtime.rng.uniform(1 - PAUSE_JITTER, 1 + PAUSE_JITTER)
        return_until(leased, self._runtime, max(leased.next_at, now + pause_s), str(kind))
        self._runtime.events.emit(OwnFailure(kind, detail))

    def pauses_for(self, leased: LeasedDomain, error: Exception) -> bool:
        """Return whether this machine lacks what `error` says. `leased` then has to wait."""
        if is_machines_fault(error):
            self.pause(leased, FailureKind.MACHINE, in_words(error))
            return True
        return False


def wait_for_turn(leased: LeasedDomain, runtime: Runtime, wait_s: float, reason: str) -> None:
    """Have `leased` wait for `wait_s` seconds because of `reason`; if that is long, its lease is returned."""
    at = runtime.now() + wait_s
    if wait_s > HORIZON_S:
        return_until(leased, runtime, at, reason)
    else:
        leased.wait_at_least_until(at)


def return_until(leased: LeasedDomain, runtime: Runtime, at: float, reason: str) -> None:
    """Return the lease of `leased`, and do not lease its domain before `at` (monotonic seconds). This is not a failure
    of the domain. `reason`: see `BackoffState.limited_by`."""
    leased.next_at = at
    leased.backoff = replace(leased.backoff, limited_until_ms=runtime.server_ms(at), limited_by=reason)
    leased.closing = True


class Throttle:
    """Applies the politeness policy, and an operator's rules for single domains, to leased domains."""

    def __init__(self, runtime: Runtime, control: Control) -> None:
        self._runtime = runtime
        self._control = control

    def start_delay(self, leased: LeasedDomain, response_s: float, known: OriginRobots | None) -> None:
        """Start the domain's delay after a response that took `response_s` seconds and has just ended. `known`: the
        robots.txt that may set the delay."""
        leased.start_delay(self._delay_ms(leased, known, response_s), self._runtime.now())

    def prolong_delay(self, leased: LeasedDomain, fetched: OriginRobots) -> None:
        """Apply the delay that the robots.txt that was just `fetched` asks for. The lease may be released before its
        next turn."""
        leased.start_delay(max(leased.delay_ms, self._delay_ms(leased, fetched, 0.0)), leased.ended_at)

    def put_off_if_early(self, leased: LeasedDomain, known: OriginRobots) -> bool:
        """Put off the domain's next turn if the origin's robots.txt asks for a longer delay than it has waited. Returns
        whether it did. Another replica may have fetched the file, and died."""
        delay_s = self._delay_ms(leased, known, 0.0) / 1000
        if not delay_s:
            return False
        due = max(leased.ended_at, self._runtime.monotonic(known.record.fetched_at_ms)) + delay_s
        if self._runtime.now() >= due:
            return False
        leased.next_at = due
        return True

    def _delay_ms(self, leased: LeasedDomain, known: OriginRobots | None, response_s: float) -> int:
        set_delay_s = self._control.rules.delays.get(leased.domain)
        policy = with_set_delay(self._runtime.policy.throttle.delay, set_delay_s)
        # Compared with None because a file may ask for a delay and have no rules, and is then false.
        if known is None or known.rules is None:
            return delay_ms(policy, None, None, response_s)
        return delay_ms(policy, known.rules.crawl_delay, known.rules.request_rate, response_s)

    def concurrency(self, leased: LeasedDomain, known: OriginRobots) -> int:
        """Return how many requests to the domain may be in flight at once. More than one is allowed only if neither
        settings, operator nor robots.txt set a delay, and the domain's backoff counts no failures."""
        policy = self._runtime.policy.throttle
        if policy.parallel == 1 or leased.backoff.failures or self._delay_ms(leased, known, 0.0):
            return 1
        return policy.parallel

    def update_backoff(self, leased: LeasedDomain, result: UrlResult, exchange: Exchange | None) -> None:
        """Update the domain's backoff after `result`. If the domain has to back off, its lease is returned. `exchange`:
        the response, None without one."""
        if not result.backs_off and not leased.backoff.failures:
            return
        now_ms = self._runtime.server_clock.now_ms()
        before, policy = leased.backoff, self._runtime.policy.throttle.backoff
        is_backing_off = leased.closing and before.until_ms > now_ms  # the request was in flight when the backoff began
        if not result.backs_off:
            if not is_backing_off:
                leased.backoff = after_success(before, policy, now_ms)
            return
        if is_backing_off:  # requests that failed together are one failure
            before = replace(before, failures=before.failures - 1)
        after = backoff_after(self._runtime, before, result, exchange)
        leased.backoff = max(leased.backoff, after, key=lambda state: state.until_ms) if is_backing_off else after
        delay_s = (leased.backoff.until_ms - now_ms) / 1000
        leased.wait_at_least_until(self._runtime.now() + delay_s)
        leased.closing = True
        self._runtime.events.emit(BackedOff(result.reason, delay_s))

    def is_blocked(self, domain: str) -> bool:
        """Return whether an operator has blocked `domain`, or had it forgotten."""
        return self._control.rules.is_blocked(domain)

    def verdict(self, leased: LeasedDomain) -> UrlResult | None:
        """What becomes of URLs of `leased` because of the domain: an operator has blocked it, or it has failed so often
        that the crawl makes no more requests to it. None for any other domain."""
        if self.is_blocked(leased.domain):
            return UrlResult(Outcome.DENIED, "blocked")
        if leased.backoff.failures and is_given_up(leased.backoff, self._runtime.policy.throttle.backoff):
            return UrlResult(Outcome.DEAD, f"given_up_{leased.backoff.reason}")
        return None

    def retry_at_ms(self, leased: LeasedDomain, entry: Entry, result: UrlResult) -> int:
        """Return when `entry` may be tried again, in server milliseconds. If the domain backs off, this is the end of
        the backoff; otherwise the delay grows with the tries of the URL itself."""
        if result.backs_off:
            return leased.backoff.until_ms
        policy, rng = self._runtime.policy.throttle.backoff, self._runtime.rng
        delay_s = min(policy.max_s, policy.base_s * 2**entry.tries) * (1 + policy.jitter * rng.uniform(-1, 1))
        return self._runtime.server_clock.now_ms() + int(delay_s * 1000)


def backoff_after(runtime: Runtime, before: BackoffState, result: UrlResult, exchange: Exchange | None) -> BackoffState:
    """Return the state that follows `before` after `result`, a failure. `exchange`: the response, None without one."""
    now_ms, policy = runtime.server_clock.now_ms(), runtime.policy.throttle.backoff
    header = exchange.header(b"retry-after") if exchange else None
    wait_s = parse_retry_after(header, now_ms / 1000) if header else None
    retry_after_ms = None if wait_s is None else ceil(wait_s * 1000)
    return after_failure(before, policy, now_ms, retry_after_ms, runtime.rng.random(), result.reason)


class DividedRateLimiter:
    """The rate limiter that all replicas share. On a cluster, the rate limit of an address lives on any node. While
    that node is away, requests to domains on other nodes go on: the rate of its addresses is divided by the number of
    `replicas`. The first slot of each replica is at a random time, so that they do not all begin at once."""

    def __init__(
        self, runtime: Runtime, shared: SharedRateLimiter, policy: RateLimitPolicy, replicas: Callable[[], int]
    ) -> None:
        self._runtime = runtime
        self._shared = shared
        self._policy = policy
        self._replicas = replicas
        self._latest: dict[str, float] = {}  # network -> its latest slot here that has not begun, monotonic ms
        self._arrivals: dict[str, float] = {}  # network -> earliest next slot while its node is away, monotonic ms

    def __repr__(self) -> str:
        return f"<DividedRateLimiter {self._shared!r} alone={len(self._arrivals)}>"

    async def reserve(self, network: str) -> float | None:
        """See `RateLimiter.reserve`."""
        retry = self._runtime.retry
        try:
            wait_s = await retry.soon(lambda: self._shared.reserve(network), self._shared.node_of(network))
        except RedisAway:
            return self._reserve_alone(network)
        if wait_s and retry.has_many_nodes:
            self._latest[network] = (self._runtime.now() + wait_s) * 1000
            self._latest = self._swept(self._latest)
        self._arrivals.pop(network, None)
        return wait_s

    def _reserve_alone(self, network: str) -> float | None:
        now_ms, rate_per_s = self._runtime.now() * 1000, self._policy.rate_per_s / max(1, self._replicas())
        policy = replace(
            self._policy, rate_per_s=rate_per_s, burst=1, horizon_s=min(DIVIDED_HORIZON_S, self._policy.horizon_s)
        )
        if network not in self._arrivals:
            since_ms = max(now_ms, self._latest.get(network, 0.0))
            self._arrivals[network] = since_ms + policy.interval_ms * self._runtime.rng.random()
        given, arrival_ms = slots(self._arrivals[network], now_ms, 1, policy)
        if not given:
            return None
        self._arrivals[network] = arrival_ms
        self._arrivals = self._swept(self._arrivals)
        return (given[0] - now_ms) / 1000

    def _swept(self, times: dict[str, float]) -> dict[str, float]:
        if len(times) <= SWEEP_SIZE:
            return times
        now_ms = self._runtime.now() * 1000
        return {network: at for network, at in times.items() if at > now_ms}

    def may_use(self, network: str, slot: float) -> bool:
        """See `RateLimiter.may_use`."""
        return self._shared.may_use(network, slot)


class AddressLimiter:
    """Reserves slots at a rate limiter, which `create` makes from the current policy. Without a rate limit in the
    policy, every request is allowed.

    A slot is a reservation for one request to one network. The domain keeps it while it waits in the queue, so its next
    turn can send the request without another reservation."""

    def __init__(
        self,
        runtime: Runtime,
        http: HttpClient,
        create: Callable[[RateLimitPolicy], RateLimiter],
        turns: SharedTurns | None = None,
    ) -> None:
        self._runtime = runtime
        self._http = http
        self._create = create
        self._turns = turns
        self._limiter: RateLimiter | None = None
        self._policy: RateLimitPolicy | None = None

    def may_request(self, leased: LeasedDomain, url: str) -> Awaitable[bool]:
        """Return whether `leased` may request `url` now, with a turn at its domain if other crawls share its delay. If not,
        its next turn is set to the start of the slot; if that is later than `HORIZON_S`, the lease is returned."""
        turns = self._turns if self._runtime.policy.shares_delays else None
        return self._has_slot(leased, url) if turns is None else self._has_turn(turns, leased, url)

    async def _has_turn(self, turns: SharedTurns, leased: LeasedDomain, url: str) -> bool:
        if not await turns.take(leased, url):
            return False
        if await self._has_slot(leased, url) and not leased.closing:
            return True
        await turns.end(url, 0)
        return False

    async def _has_slot(self, leased: LeasedDomain, url: str) -> bool:
        policy = self._runtime.policy.rate_limit
        if policy != self._policy:
            self._policy, self._limiter = policy, None if policy is None else self._create(policy)
        leased.network = None
        if (limiter := self._limiter) is None:
            return True
        try:
            address = await self._http.locate(url)
        except FetchFailed:
            return True  # the request will fail for the same reason before anything is sent
        if address is None:
            return True
        leased.network = network = network_of(address)
        slot, leased.slot = leased.slot, None
        if slot is not None and slot[0] == network and limiter.may_use(*slot):
            return True
        wait_s = await self._runtime.retry.call(lambda: limiter.reserve(network))
        if wait_s is None:
            return_until(leased, self._runtime, self._runtime.now() + HORIZON_S, "address")
            return False
        if wait_s <= 0:
            return True
        leased.next_at = self._runtime.now() + wait_s
        leased.slot = network, leased.next_at
        return False


class SharedTurns:
    """Takes turns at domains with the crawls on the same Redis that share their delays. On a cluster, the keys of a domain
    may be on another node than its shard; while that is away, the domain waits.

    Within a crawl, the lease of a domain protects its delay. So if Redis forgets a turn, only requests of different crawls
    may come too close."""

    def __init__(self, runtime: Runtime, store: Store, crawl: str, hold_ms: int) -> None:
        self._runtime = runtime
        self._store = store
        self._crawl = crawl
        self._hold_ms = hold_ms

    async def take(self, leased: LeasedDomain, url: str) -> bool:
        """Return whether it is this crawl's turn at the domain of `url`, now and for `hold_ms` at most. If not, `leased`
        has to wait. Raises RedisAway if a node of a cluster is away."""
        keys, retry = turn_keys(domain_of(host_of(url))), self._runtime.retry
        call = script_call(TAKE_TURN, keys, self._crawl, self._hold_ms, int(HORIZON_S * 1000))
        (answer,) = await retry.soon(lambda: self._store.send([call]), self._store.node_of(keys[0]))
        if answer[0] == b"taken":
            return True
        wait_for_turn(leased, self._runtime, int(answer[1]) / 1000, "crawl")
        return False

    async def end(self, url: str, delay_ms: int) -> None:
        """End the turn at the domain of `url`. The next one begins after `delay_ms`. While Redis is away, it ends later by
        itself."""
        key, _ = turn_keys(domain_of(host_of(url)))
        rest = command("SET", key, f"rested {self._crawl}", "PX", delay_ms) if delay_ms else command("DEL", key)
        with contextlib.suppress(FrontierError):
            await self._store.send([rest])


class ForeignDomains:
    """Reserves requests to domains other than the leased one: a robots.txt may redirect to one, and another replica may
    hold its lease. While a leased domain waits for its reservation it is in the queue and occupies no worker."""

    def __init__(self, runtime: Runtime, reservations: Reservations) -> None:
        self._runtime = runtime
        self._reservations = reservations
        self._ending: set[asyncio.Task[None]] = set()  # of reservations on nodes that are away; at most one a request

    async def may_request(self, leased: LeasedDomain, url: str) -> bool:
        """Return whether `leased` may request `url` now. If not, its next turn is set to the slot, or to when it should
        ask again. Raises RedisAway if the other domain's node of a cluster is away."""
        domain = domain_of(host_of(url))
        return domain == leased.domain or await self.may_enter(leased, domain)

    async def may_enter(self, leased: LeasedDomain, domain: str, hold_s: float = inf) -> bool:
        """Return whether one request to `domain`, another one than that of `leased`, may be made now, with
        `leased.reservation`. It ends within `hold_s` seconds. Otherwise as `may_request`."""
        held, now_ms = leased.reservation, self._runtime.server_clock.now_ms()
        if held is not None and held.domain == domain and held.slot_ms <= now_ms <= held.slot_ms + KEPT_MS:
            return True
        retry = self._runtime.retry
        node = retry.node_of(self._reservations.shard_of(domain))
        answer = await retry.soon(lambda: self._reservations.reserve(domain, MAX_WAIT_MS, 1000 * hold_s), node)
        now_ms = self._runtime.server_clock.now_ms()
        if isinstance(answer, ReservationRefused):
            leased.reservation, leased.refusals = None, min(leased.refusals + 1, MOST_REFUSALS)
            base_ms = answer.retry_ms - now_ms
            wait_ms = max(base_ms, min(base_ms * leased.refusals, LONGEST_MS)) * self._runtime.rng.uniform(0.5, 1.0)
        else:
            leased.reservation, leased.refusals = answer, 0
            wait_ms = answer.slot_ms - now_ms
            if wait_ms <= 0:
                return True
        leased.wait_at_least_until(self._runtime.now() + wait_ms / 1000)
        return False

    async def end_request(self, leased: LeasedDomain, exchange: Exchange | None) -> bool:
        """End the request that `may_request` allowed. `exchange`: the response, None without one. If the request went
        to another domain, starts that domain's delay and returns True."""
        held, leased.reservation = leased.reservation, None
        if held is None:
            return False
        now_ms = self._runtime.server_clock.now_ms()
        next_ms = now_ms + max(leased.delay_ms, held.delay_ms)
        if exchange is not None and (result := judge_status(exchange.status)).backs_off:
            # The other domain's stored backoff is not changed, because that belongs to its lease.
            next_ms = max(next_ms, backoff_after(self._runtime, HEALTHY, result, exchange).until_ms)
        await self.end(held, next_ms)
        return True

    async def end(self, held: Reservation, next_ms: int) -> None:
        """End `held`. The next request may start at `next_ms` (server time). If its node of a cluster is away, this happens
        when it is back. Nobody can lease the domain before, and its worker need not wait."""
        retry = self._runtime.retry
        node = retry.node_of(self._reservations.shard_of(held.domain))
        try:
            await retry.soon(lambda: self._reservations.end(held, next_ms), node)
        except RedisAway:
            self._in_background(retry.call(lambda: self._reservations.end(held, next_ms), node))

    def end_soon(self, held: Reservation, next_ms: int) -> None:
        """The same, but nobody waits for it."""
        self._in_background(self.end(held, next_ms))

    def _in_background(self, ending: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(ending)
        self._ending.add(task)
        task.add_done_callback(self._has_ended)

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled():
            task.exception()  # if the crawl has other shards by now: then nothing is reserved, and the replica ends
