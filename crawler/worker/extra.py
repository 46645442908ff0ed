"""Extra requests: those that the handling of a page makes besides the one for the page.

Each is as polite as that for a page. It has a turn of its own at its domain, which nobody else has at the same time: under
the lease of the domain if this replica has it, as the page's own domain, and otherwise with a reservation
(`frontier.reservations`). Then it needs what a page needs: a robots.txt that allows it, the delay, a slot at the address.
So it may need several turns, the first ones for robots.txt. While it waits for one, it holds nothing that others need.

Requests of a page in a browser need no turns, except for robots.txt: up to `BrowserRequestPolicy.parallel` are in flight
to a domain, and they lengthen the delay after the visit. All else counts for them, too.

A replica whose domain others want makes way within a second or two (`ExtraRequests.make_way`), also while its pages wait
for handlers, and those for others. So pages that request each other's domains never wait for each other.

The exchanges become part of the page: they are written with it, and removed with it if it is not settled. If the lease of
the page is lost, or a request fails for a reason that is ours, the visit is interrupted: the page is fetched again, and its
handler called again, without the loss of a try.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from weakref import WeakValueDictionary, finalize

from crawler.defects import defect
from crawler.errors import NOT_THE_URLS_FAULT, FailureKind, FetchFailed, Refused
from crawler.events import ExtraRequested
from crawler.hooks import HttpRequest
from crawler.page import Exchange, Extra, LooseExchange, Outcome
from crawler.parse.document import header_usage
from crawler.worker.commit import Result
from crawler.worker.leases import HeldLeases, LeasedDomain
from crawler.worker.rendering import BrowserRequestPolicy
from crawler.worker.request import AddressLimiter, ForeignDomains, PoliteFetch, Throttle, return_until
from crawler.worker.robots import RobotsLookup
from crawler.worker.runtime import Runtime, VisitInterrupted
from crawler.worker.verdict import ROBOTS_UNREACHABLE, USAGE_UNREACHABLE, judge_failure, judge_status, verdict_by_robots
from crawler.worker.worker import LOOK_AGAIN_S, REST_S, Turns
from frontier.domains import domain_of, host_of
from frontier.errors import FrontierError, RedisAway
from frontier.reservations import Reservation, Reservations
from frontier.settle import Lease
from politeness.robots_cache import OriginRobots

MAX_EXTRAS = 200
MAX_EXTRA_BYTES = 64 << 20
"""Extra requests for a page, and bytes of their bodies. They are in memory until the page is written."""

MOST_HELD_BYTES = 128 << 20
"""Bytes of such bodies in memory, of the handlers of all pages. Beyond, requests wait, except for pages of domains that
hold no more than their share. So that not all wait for each other, the handler that was the first to hold any may go on,
too, while those that have ended hold no more than this: their bodies leave memory when they are written."""

MARGIN_S = 1.0
"""The end of a reservation for its holder is earlier by this, as that of a lease is."""

WAY_S = 0.2
"""How long a domain that others want rests at least, also with a shorter delay: they look again within half of that time
(`crawler.worker.request.LONGEST_MS`), and before that this replica would have leased it again."""

PAGE_WAIT_S = 2.0
"""How long a request that a page of another domain causes lets the next page of a domain go first when both are due. No
worker may be free for that page."""

BROWSER_WAIT_S = 2.0
"""How long a request of a page in a browser may wait for a slot at an address."""

MOST_RESTING = 1_000
"""Domains that are remembered to rest after a response such as 429 to a request of a page in a browser."""

IS_EXTRA = ContextVar("IS_EXTRA", default=False)
"""Whether a request is an extra one, or one that this needs, for those that see nothing but requests."""

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods whose requests may be repeated (RFC 9110 9.2.1)."""


@dataclass(slots=True, eq=False, repr=False)
class PageVisit:
    """The visit to a page of `leased` while the page is handled. `until`: when its time is over, in monotonic seconds.
    `is_interrupted`: the page has to be fetched again; `may_pass`: so it is if its handler fails, because a request
    failed for a reason that may pass. `browser`: how requests are made if a browser makes them; None if a handler does.
    `own_requests`: how many a browser has made to the domain of the page; `was_held_up`: a request has waited for a
    reservation, or for other requests under a lease."""

    requests_of: ExtraRequests
    leased: LeasedDomain
    until: float = math.inf
    browser: BrowserRequestPolicy | None = None
    own_requests: int = 0
    extras: list[Extra] = field(default_factory=list)
    requests: int = 0
    received_bytes: int = 0
    is_over: bool = False
    is_interrupted: bool = False
    may_pass: bool = False
    was_held_up: bool = False
    callers: set[asyncio.Task[object]] = field(default_factory=set)

    async def send(self, request: HttpRequest) -> Exchange:
        """See `Visit`."""
        return await self.requests_of.send(self, request)

    def ends_in(self, seconds: float) -> None:
        """See `Visit`."""
        self.until = self.requests_of.runtime.now() + seconds

    def end(self) -> None:
        """End the visit. Requests that nobody has awaited are cancelled."""
        self.is_over = True
        self.requests_of.holding.pop(self, None)
        self.may_pass |= self.was_held_up and bool(self.callers)  # the handler took too long for that
        self.leased.in_browser -= self.browser is not None
        for caller in self.callers:
            caller.cancel()
        if self.browser is not None and self.own_requests:
            leased = self.leased
            delay_s = leased.delay_ms / 1000 * (1 + self.browser.share * self.own_requests)
            leased.wait_at_least_until(leased.ended_at + delay_s)

    def check_interrupted(self) -> None:
        """Raise VisitInterrupted if the page has to be fetched again."""
        if self.is_interrupted:
            raise VisitInterrupted


def may_pass(error: Refused | FetchFailed) -> bool:
    """Whether the request may succeed later."""
    if isinstance(error, FetchFailed):
        return error.kind not in NOT_THE_URLS_FAULT and judge_failure(error.kind).outcome is Outcome.RETRY
    return error.reason in (ROBOTS_UNREACHABLE.reason, USAGE_UNREACHABLE)


@dataclass(eq=False, repr=False)
class ExtraRequests:
    """Makes the extra requests of a replica."""

    runtime: Runtime
    held: HeldLeases
    turns: Turns
    fetch: PoliteFetch
    throttle: Throttle
    limiter: AddressLimiter
    robots: RobotsLookup
    foreign: ForeignDomains
    reservations: Reservations
    _lines: WeakValueDictionary[tuple[str, bool], asyncio.Lock] = field(default_factory=WeakValueDictionary, init=False)
    _gates: WeakValueDictionary[str, asyncio.Semaphore] = field(default_factory=WeakValueDictionary, init=False)
    _resting: dict[str, float] = field(default_factory=dict, init=False)
    holding: dict[PageVisit, None] = field(default_factory=dict, init=False)  # visits of handlers with responses
    held_bytes: Counter[str] = field(default_factory=Counter, init=False)  # of responses, by the page's domain

    def begin_visit(self, leased: LeasedDomain, browser: BrowserRequestPolicy | None = None) -> PageVisit:
        """Begin the visit to a page of `leased`. Its turn has to be one that only waits (`PageHandling`). `browser`: how
        requests are made if a browser makes them."""
        leased.in_browser += browser is not None
        return PageVisit(self, leased, browser=browser)

    def begin_without_page(self) -> PageVisit:
        """Begin a visit for the requests of a program, outside of any page."""
        return PageVisit(self, self._guest(""))

    async def send(self, visit: PageVisit, request: HttpRequest) -> Exchange:
        """Make `request` for the page of `visit`, and add the exchange to it. Any status is a response, and a redirect is
        not followed. Raises Refused and FetchFailed."""
        await asyncio.sleep(0)  # others run, even if a handler asks again after each refusal
        task, result = asyncio.current_task(), "cancelled"
        IS_EXTRA.set(True)
        if task is not None:
            visit.callers.add(task)
        try:
            if visit.requests >= MAX_EXTRAS or visit.received_bytes >= MAX_EXTRA_BYTES:
                raise Refused("too_many", f"a page may make {MAX_EXTRAS} requests for {MAX_EXTRA_BYTES >> 20} MiB")
            visit.requests += 1
            await self._wait_for_room(visit)
            exchange = await self._exchange(visit, request)
            visit.received_bytes += len(exchange.body)
            extra = Extra(exchange, request.kind)
            if visit.leased.domain:
                visit.extras.append(extra)
                if not (visit.browser or visit.is_over):
                    self._hold(visit, extra)
            else:
                await self.robots.committer.add(Result(visit.leased, exchange=LooseExchange.of(extra)))
            result = f"{exchange.status // 100}xx"
            return exchange
        except (Refused, FetchFailed) as error:
            result = error.reason
            visit.may_pass |= may_pass(error) or (error.reason == "too_late" and visit.was_held_up)
            raise
        finally:
            IS_EXTRA.set(False)
            if task is not None:
                visit.callers.discard(task)
            self.runtime.events.emit(ExtraRequested(request.kind, result))

    async def _wait_for_room(self, visit: PageVisit) -> None:
        """Wait while `visit` may not make a request. Raises Refused."""
        while visit.browser is None and not self.has_room(visit):
            visit.was_held_up = True
            self._check(visit)
            await self.runtime.clock.sleep(LOOK_AGAIN_S)

    def has_room(self, visit: PageVisit) -> bool:
        """Whether the handler of `visit` may make another request, by the bytes of those before."""
        total = self.held_bytes.total()
        if total <= MOST_HELD_BYTES or self.held_bytes[visit.leased.domain] * len(self.held_bytes) <= MOST_HELD_BYTES:
            return True
        left = total - sum(other.received_bytes for other in self.holding)  # will be written, whoever waits
        return left <= MOST_HELD_BYTES and next(iter(self.holding), visit) is visit

    def _hold(self, visit: PageVisit, extra: Extra) -> None:
        """Count the body of `extra` for as long as this object is in memory. A changed copy of it would not count."""
        domain, size = visit.leased.domain, len(extra.exchange.body)
        self.holding[visit] = None
        self.held_bytes[domain] += size
        finalize(extra, self._uncount, domain, size)

    def _uncount(self, domain: str, size: int) -> None:
        """Count `size` bytes less. This may run in any thread, such as that of the archive. It needs no lock, because the
        interpreter switches threads only when it loops or calls Python code, which nothing here does."""
        self.held_bytes[domain] -= size
        if not self.held_bytes[domain]:
            self.held_bytes.pop(domain)  # `del` of a Counter is Python code

    async def _exchange(self, visit: PageVisit, request: HttpRequest) -> Exchange:
        domain = domain_of(host_of(request.url))
        guest = self._guest(domain)
        if visit.browser is not None:
            return await self._send_for_browser(visit, visit.browser, guest, request)
        async with contextlib.AsyncExitStack() as place:
            await place.enter_async_context(self._line(visit, domain))
            while True:
                if self.throttle.is_blocked(domain):
                    raise Refused("blocked")
                async with self._turn(visit, guest) as target:
                    if target is not None and target.concurrency > 1:
                        await place.aclose()  # the next one need not wait for the response
                    if target is not None and (exchange := await self._in_turn(visit, target, request)) is not None:
                        return exchange

    # of browsers

    async def _send_for_browser(
        self, visit: PageVisit, policy: BrowserRequestPolicy, guest: LeasedDomain, request: HttpRequest
    ) -> Exchange:
        """Make `request` of a page in a browser to the domain of `guest`: at once, if no more than `policy` allows are in
        flight to it, and as part of the visit. Other domains get no reservation, except for their robots.txt: a page asks
        many of them, most of them once."""
        domain, url = guest.domain, request.url
        own = visit.leased if domain == visit.leased.domain else None
        known = await self._robots_of(visit, guest, url) if policy.obeys_robots else self.robots.at_hand(url)
        if known is not None and policy.obeys_robots:
            self._check_allowed(url, known)
        async with self._gates.setdefault(domain, asyncio.Semaphore(policy.parallel)):
            while True:
                self._check(visit)
                now, ended_at = self.runtime.now(), guest.ended_at
                if self.throttle.is_blocked(domain):
                    raise Refused("blocked")
                # It ends with the lease of the page, also where that is renewed.
                guest.lease_end, guest.requests = visit.leased.lease_end, visit.leased.requests
                if self._resting.get(domain, -math.inf) > now:
                    raise Refused("backoff")
                try:
                    exchange = await self._sent(guest, request, known)
                except FetchFailed as failure:
                    visit.is_interrupted |= failure.kind in (FailureKind.LEASE_EXPIRED, FailureKind.STOPPED)
                    if failure.kind is not FailureKind.STALE_CONNECTION or request.method not in SAFE:
                        raise
                    continue
                except RedisAway as error:
                    raise Refused("redis_away") from error
                finally:
                    self._note_sent_for_browser(visit, own, guest, ended_at)
                if exchange is not None:
                    return exchange
                wait_s = max(0.02, guest.next_at - self.runtime.now())  # for its slot at the address
                if wait_s > BROWSER_WAIT_S:
                    raise Refused("rate")
                await self.runtime.clock.sleep(wait_s)

    async def _robots_of(self, visit: PageVisit, guest: LeasedDomain, url: str) -> OriginRobots:
        """The robots.txt that applies to `url`, fetched in turns at its domain if it is not known. Raises Refused."""
        if (known := self.robots.at_hand(url)) is not None:
            return known
        async with self._line(visit, guest.domain):
            while (known := self.robots.at_hand(url)) is None:
                if self.throttle.is_blocked(guest.domain):
                    raise Refused("blocked")
                try:
                    async with self._turn(visit, guest) as target:
                        if target is not None and (known := await self.robots.robots_for(target, url)) is not None:
                            return known
                except RedisAway as error:
                    raise Refused("redis_away") from error
        return known

    def _note_sent_for_browser(
        self, visit: PageVisit, own: LeasedDomain | None, guest: LeasedDomain, ended_before: float
    ) -> None:
        """Start the delay of the domain after a request, and have it rest if that asks for it."""
        if guest.ended_at != ended_before:
            leased = own or self.held.of(guest.domain)
            visit.own_requests += own is not None
            if leased is not None:
                leased.start_delay(max(leased.delay_ms, guest.delay_ms), guest.ended_at)
        if guest.closing:
            guest.closing = False
            self._resting[guest.domain] = guest.next_at
            if own is not None:
                own.wait_at_least_until(guest.next_at)
            while len(self._resting) > MOST_RESTING:
                del self._resting[next(iter(self._resting))]

    # turns

    async def make_way(self, wanted: Collection[str]) -> None:
        """Let others make requests to the domains `wanted`, for which they wait. A lease under which no page is
        handled ends after the request in flight. Under another one, they may make theirs, except while its page is in
        a browser. A new lease makes one request first."""
        now = self.runtime.now()
        waited_for = [
            leased
            for domain in wanted
            if (leased := self.held.of(domain)) is not None
            and (leased.busy or leased.ended_at > -math.inf or now > leased.next_at + PAGE_WAIT_S)
        ]
        for leased in waited_for:
            if not leased.makes_way:
                leased.wait_at_least_until(now + WAY_S)
        self.turns.leases.close(waited_for)
        for leased in waited_for:
            leased.makes_way = True
            leased.turn_ended()
            if leased.busy and not (leased.requesting or leased.in_browser):
                with contextlib.suppress(FrontierError):  # it is tried again while the domain is wanted
                    await self.reservations.open_lease(leased.lease, self.runtime.server_ms(leased.next_at))

    @asynccontextmanager
    async def _line(self, visit: PageVisit, domain: str) -> AsyncIterator[None]:
        """A block for the request that is the first in the line for turns at `domain`. It stays the first for as many turns
        as it needs. If the domain may have several requests in flight, it leaves the line with its first turn, and takes
        any other beside the line. Those for pages of other domains wait in a line before, so requests of the domain's own
        pages wait for one of them at most: its lease does not end before."""
        line = self._lines.setdefault((domain, True), asyncio.Lock())
        is_own = domain == visit.leased.domain
        before = contextlib.nullcontext() if is_own else self._lines.setdefault((domain, False), asyncio.Lock())
        visit.was_held_up |= line.locked()
        async with before, line:
            yield

    @asynccontextmanager
    async def _turn(self, visit: PageVisit, guest: LeasedDomain) -> AsyncIterator[LeasedDomain | None]:
        """A block with a turn at the domain of `guest`. Yields what to make the request for: the lease of this replica, or
        `guest`; None if there is no turn now."""
        if (leased := self._lease(visit, guest.domain)) is not None:
            target, turn = leased, self._turn_under_lease(visit, leased)
        else:
            target, turn = guest, self._turn_with_reservation(visit, guest)
        async with turn as has_turn:
            yield target if has_turn else None

    def _check(self, visit: PageVisit, at: float = 0.0) -> None:
        """Raise Refused if the visit is over, or will be `at` (monotonic seconds)."""
        now = self.runtime.now()
        if not visit.leased.holds(now):
            visit.is_interrupted = True
        if visit.is_over or visit.is_interrupted:
            raise Refused("interrupted", "the visit to the page has ended")
        if at >= visit.until:
            raise Refused("too_late", f"its turn would come in {max(0.0, at - now):.1f} s, and the page has less time")

    def _lease(self, visit: PageVisit, domain: str) -> LeasedDomain | None:
        """The lease of `domain` that gives a turn, if this replica has one."""
        leased = visit.leased if domain == visit.leased.domain else self.held.of(domain)
        return leased if leased is not None and self._is_usable(visit, leased) else None

    def _is_usable(self, visit: PageVisit, leased: LeasedDomain) -> bool:
        """Whether the lease of `leased` gives a turn, and does not end during it."""
        if leased is visit.leased:
            return visit.browser is not None or not leased.makes_way
        is_kept = leased.busy > 0 if leased.closing else leased.is_kept
        return is_kept and not leased.makes_way and leased.holds(self.runtime.now())

    @asynccontextmanager
    async def _turn_under_lease(self, visit: PageVisit, leased: LeasedDomain) -> AsyncIterator[bool]:
        """A block in which `leased` has no other request in flight, unless it may have several. Yields False if its lease
        ends before."""
        is_foreign = leased is not visit.leased
        leased.extras += 1
        leased.foreign_extras += is_foreign
        last_end = leased.ended_at
        try:
            while True:
                visit.was_held_up |= leased.ended_at != last_end
                self._check(visit, leased.next_at)
                if not self._is_usable(visit, leased):
                    yield False
                    return
                wait_s = leased.next_at - self.runtime.now()
                is_loading = leased.in_browser > 0 and visit.browser is None  # another page, without turns
                has_others = leased.is_queued or leased.extras > leased.foreign_extras
                is_page_first = is_foreign and leased.pages_next and has_others and wait_s > -PAGE_WAIT_S
                is_free = leased.requesting < leased.concurrency and not is_loading
                if wait_s <= 0 and is_free and not is_page_first:
                    break
                await leased.until_turn_ends(wait_s if wait_s > 0 else PAGE_WAIT_S if is_free else None)
            leased.pages_next = is_foreign
            leased.busy += 1
            leased.sending += 1
            try:
                yield True
            finally:
                leased.busy -= 1
                leased.sending -= 1
        finally:
            leased.extras -= 1
            leased.foreign_extras -= is_foreign
            self.turns.next(leased)

    @asynccontextmanager
    async def _turn_with_reservation(self, visit: PageVisit, guest: LeasedDomain) -> AsyncIterator[bool]:
        """A block in which nobody else makes a request to the domain of `guest`. Yields False if this replica has leased
        the domain."""
        door = self._guest("")  # waits for the reservation; `guest` may need one for a robots.txt elsewhere
        held: Reservation | None = None
        try:
            held = await self._reserve(visit, door, guest.domain)
            if held is not None:
                guest.lease_end = self.runtime.monotonic(held.until_ms) - MARGIN_S
                guest.next_at = self.runtime.now()
            yield held is not None
        finally:
            if (reserved := door.reservation) is not None:
                sent = guest.ended_at + max(guest.delay_ms, reserved.delay_ms) / 1000 if held else -math.inf
                next_at = max(guest.next_at, sent) if held else self.runtime.monotonic(reserved.slot_ms)
                self.foreign.end_soon(reserved, self.runtime.server_ms(next_at))

    async def _reserve(self, visit: PageVisit, door: LeasedDomain, domain: str) -> Reservation | None:
        """Wait until one request to `domain` is reserved. None if this replica has leased it meanwhile."""
        while True:
            now = self.runtime.now()
            self._check(visit, now)
            if door.reservation is None and self._lease(visit, domain) is not None:
                return None
            # Hardly longer than the handler may take: if this replica dies, others wait for the end of the reservation. Its
            # end for the holder (`MARGIN_S`) is later than that of the visit, so a handler that takes too long is not
            # interrupted.
            hold_s = visit.until - now + 2 * MARGIN_S
            try:
                if now >= door.next_at and await self.foreign.may_enter(door, domain, hold_s):
                    return door.reservation
            except RedisAway:
                door.next_at = self.runtime.now() + REST_S
            visit.was_held_up = True
            self._check(visit, door.next_at)
            await self.runtime.clock.sleep(min(LOOK_AGAIN_S, max(0.0, door.next_at - self.runtime.now())))

    def _guest(self, domain: str) -> LeasedDomain:
        """State for `domain` as if it were leased."""
        now = self.runtime.now()
        lease = Lease(domain, self.reservations.shard_of(domain), 0, 0, 0, "", ())
        return LeasedDomain(lease, math.inf, now, is_queued=False, busy=1)

    # the request

    async def _in_turn(self, visit: PageVisit, target: LeasedDomain, request: HttpRequest) -> Exchange | None:
        """Make `request`, or what has to come before it. Returns None if it needs another turn."""
        exchange = None
        try:
            exchange = await self._request(target, request)
        except FetchFailed as failure:
            is_stale = failure.kind is FailureKind.STALE_CONNECTION and request.method in SAFE
            if not is_stale and failure.kind not in (FailureKind.DELAYED, FailureKind.OTHER_ADDRESS):
                if failure.kind in NOT_THE_URLS_FAULT:
                    self._interrupt(visit, target)
                raise
        except RedisAway:
            target.wait_at_least_until(self.runtime.now() + REST_S)
            return None
        is_limited = target.backoff.limited_until_ms > self.runtime.server_clock.now_ms()
        if exchange is None and is_limited and visit.leased.domain:  # a program waits
            self._interrupt(visit, target)
            raise Refused("interrupted", "this machine cannot make requests, or too many to this address")
        return exchange

    def _interrupt(self, visit: PageVisit, target: LeasedDomain) -> None:
        visit.is_interrupted = True
        if target is not visit.leased and target.next_at > visit.leased.next_at:
            return_until(visit.leased, self.runtime, target.next_at, target.backoff.limited_by)

    async def _request(self, target: LeasedDomain, request: HttpRequest) -> Exchange | None:
        url = request.url
        known = self.robots.at_hand(url) or await self.robots.robots_for(target, url)
        if known is None or self.throttle.put_off_if_early(target, known):
            return None
        self._check_allowed(url, known)
        return await self._sent(target, request, known)

    def _check_allowed(self, url: str, known: OriginRobots) -> None:
        purpose = self.runtime.policy.usage.purpose
        try:
            result = verdict_by_robots(url, known, self.runtime.policy.tries, purpose)
        except Exception as error:  # the file cannot be applied
            self.runtime.events.emit(defect("robots", url, error))
            result = ROBOTS_UNREACHABLE
        if result is not None:
            raise Refused(result.reason)

    async def _sent(self, target: LeasedDomain, request: HttpRequest, known: OriginRobots | None) -> Exchange | None:
        url, purpose = request.url, self.runtime.policy.usage.purpose
        if not await self.limiter.may_request(target, url):
            return None
        try:
            exchange = await self.fetch.fetch(target, request, known)
        except FetchFailed as failure:
            if failure.kind not in NOT_THE_URLS_FAULT:
                self.throttle.update_backoff(target, judge_failure(failure.kind), None)
            raise
        result = judge_status(exchange.status)
        self.throttle.update_backoff(target, result, exchange)
        if purpose and result.outcome is Outcome.DONE and header_usage(exchange.headers).refusal(purpose):
            raise Refused("usage")
        return exchange
