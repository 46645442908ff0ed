"""Resolves host names to addresses that may be connected to.

aiohttp's connector calls `Resolver`, which consults the operator's host map, then its cache, then the DNS, with one look-up
at a time for each host. It judges every address before it returns it, so no name leads into the operator's network.

A look-up that fails (no answer in time, SERVFAIL, REFUSED) is the fault of the host's own name servers or of the DNS that
this machine uses. It is the host's (`FailureKind.DNS`) only if the DNS has answered for another name since the failure of
this host before. Otherwise it is ours (`OUR_DNS`), and another name is looked up, so that the next failure can be judged.

aiohttp's own cache is off: it ignores the time to live and does not remember failures.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Protocol

import aiodns
import msgspec
import pycares
from aiohttp.abc import AbstractResolver, ResolveResult

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.address_policy import AddressPolicy, HostMap, judge_address
from crawler.processes import is_out_of_files
from frontier.clock import Clock


class DnsAnswer(msgspec.Struct, frozen=True):
    """Addresses in text form, best first, and the seconds for which they may be kept."""

    addresses: tuple[str, ...]
    ttl_s: float


class HostLookup(Protocol):
    """Asks the DNS."""

    async def lookup(self, host: str) -> DnsAnswer:
        """The addresses of `host`. Raises FetchFailed with NO_SUCH_HOST, DNS or MACHINE."""

    async def close(self) -> None:
        """Cancel the look-ups in progress."""


_NO_SUCH_HOST = frozenset({pycares.errno.ARES_ENOTFOUND, pycares.errno.ARES_ENODATA, pycares.errno.ARES_EBADNAME})
"""Name error, no address records, and a malformed name. All other errors may be temporary."""


class DnsLookup:
    """c-ares. It reads /etc/hosts and /etc/resolv.conf, or asks only `nameservers` ("ADDRESS:PORT").

    Search domains are off: a link contains the full name of its host, and on Kubernetes, trying names such as
    `example.org.svc.cluster.local` first would multiply the queries by five. IPv6 addresses are requested if this machine
    has a route to them.

    c-ares caches any number of answers for their time to live, and this cannot be turned off. To bound its memory, the
    channel is replaced after `lookups_per_channel` look-ups. The previous one is closed after as many again, when its last
    query has long been answered or has timed out.
    """

    def __init__(
        self,
        nameservers: Sequence[str] = (),
        *,
        timeout_s: float = 3.0,
        tries: int = 3,
        ipv6: bool | None = None,
        lookups_per_channel: int = 10_000,
    ) -> None:
        self._nameservers = list(nameservers)
        self._timeout_s = timeout_s
        self._tries = tries
        self._lookups_per_channel = lookups_per_channel
        self._family = socket.AF_UNSPEC if (has_ipv6_route() if ipv6 is None else ipv6) else socket.AF_INET
        self._channel = self._new_channel()
        self._previous: aiodns.DNSResolver | None = None
        self._lookups = 0

    async def lookup(self, host: str) -> DnsAnswer:
        if self._lookups >= self._lookups_per_channel:
            await self._replace_channel()
        self._lookups += 1
        try:
            found = await self._channel.getaddrinfo(host, family=self._family, type=socket.SOCK_STREAM)
        except aiodns.error.DNSError as error:
            code, *text = error.args
            raise FetchFailed(_dns_failure_kind(code), f"{host}: {' '.join(map(str, text))}") from error
        ttls = [node.ttl for node in found.nodes] + [alias.ttl for alias in found.cnames]
        return DnsAnswer(tuple(node.addr[0].decode() for node in found.nodes), float(min(ttls, default=0)))

    async def close(self) -> None:
        await self._channel.close()
        if self._previous is not None:
            await self._previous.close()

    async def _replace_channel(self) -> None:
        oldest, self._previous, self._channel = self._previous, self._channel, self._new_channel()
        self._lookups = 0
        if oldest is not None:
            await oldest.close()

    def _new_channel(self) -> aiodns.DNSResolver:
        return aiodns.DNSResolver(
            nameservers=self._nameservers or None,
            timeout=self._timeout_s,
            tries=self._tries,
            flags=pycares.ARES_FLAG_NOSEARCH,
        )


def _dns_failure_kind(code: int) -> FailureKind:
    if code in _NO_SUCH_HOST:
        return FailureKind.NO_SUCH_HOST
    # Without a descriptor for its socket, c-ares says that no server could be contacted.
    return FailureKind.MACHINE if code == pycares.errno.ARES_ENOMEM or is_out_of_files() else FailureKind.DNS


def has_ipv6_route() -> bool:
    """Whether this machine has a route to the public IPv6 Internet. Sends nothing."""
    return _has_route(socket.AF_INET6, "2001:4860:4860::8888")  # any address in 2000::/3 will do


def has_route() -> bool:
    """Whether this machine has a route to the public Internet. Sends nothing."""
    return _has_route(socket.AF_INET, "8.8.8.8") or has_ipv6_route()


def _has_route(family: socket.AddressFamily, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 53))
    except OSError:
        return False
    return True


CONTROL_HOST = "example.com"
"""The name that is looked up to see whether the DNS answers, if the crawl knows no other (RFC 2606)."""


class ResolverSettings(msgspec.Struct, frozen=True):
    """How many answers are kept, and for how long.

    An answer is kept for its time to live, at most for `max_ttl_s`. That a host does not exist, or has only forbidden
    addresses, is kept for `negative_ttl_s`. A failure of the DNS is kept for `failure_ttl_s`: long enough that the URLs of
    one batch do not ask again, short enough that a brief failure does no harm. At most `max_entries` are kept, or as many
    as there are hosts in turn, if that is more. An entry takes about 300 bytes.
    """

    max_entries: int = 10_000
    max_ttl_s: float = 300.0
    negative_ttl_s: float = 60.0
    failure_ttl_s: float = 5.0


class _CacheEntry(msgspec.Struct, frozen=True):
    """A cache entry: addresses, or the kind and detail of the failure. `cached_until`: until when other caches may answer,
    too, so that an answer does not show that the DNS works. `failed_at`: when the DNS failed, None if it answered."""

    expires_at: float
    addresses: tuple[str, ...] = ()
    failure: tuple[FailureKind, str] | None = None
    cached_until: float = math.inf
    failed_at: float | None = None


class Resolver(AbstractResolver):
    """The resolver of a process, for aiohttp. `resolve` raises FetchFailed, which passes through aiohttp unchanged.
    `in_turn` returns the number of hosts that the crawl fetches from in turn."""

    def __init__(
        self,
        lookup: HostLookup,
        policy: AddressPolicy,
        host_map: HostMap,
        clock: Clock,
        settings: ResolverSettings = ResolverSettings(),
        in_turn: Callable[[], int] = lambda: 0,
    ) -> None:
        self._lookup = lookup
        self._policy = policy
        self._host_map = host_map
        self._clock = clock
        self._settings = settings
        self._in_turn = in_turn
        self._known: dict[str, _CacheEntry] = {}  # the oldest answer first
        self._asking: dict[str, asyncio.Task[_CacheEntry]] = {}
        self._answered_at = -math.inf  # when the DNS has last answered for any host
        self._control: asyncio.Task[_CacheEntry] | None = None  # a look-up that shows whether the DNS answers

    def __repr__(self) -> str:
        return f"<Resolver known={len(self._known)} asking={len(self._asking)}>"

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Where to connect for `host`. Raises FetchFailed: NO_SUCH_HOST, DNS, OUR_DNS, MACHINE or
        FORBIDDEN_ADDRESS."""
        host = host.lower().rstrip(".")
        if (target := self._host_map.find(host)) is not None:
            return [_result(host, *target)]
        known = self._known.get(host)
        if known is None or known.expires_at <= self._clock.monotonic():
            known = await asyncio.shield(self._start(host))  # it continues when a caller is cancelled
        if known.failure is not None:
            raise FetchFailed(*known.failure)
        return [_result(host, address, port) for address in known.addresses]

    async def first(self, host: str) -> str:
        """The address that a request to `host` will be sent to, if it accepts connections. Raises what `resolve` raises."""
        try:
            return str(ip_address(host.removeprefix("[").removesuffix("]")))
        except ValueError:
            return str((await self.resolve(host))[0]["host"])

    def overdue(self, host: str) -> FailureKind | None:
        """What it means that `host` is still being looked up when there is no time left; None if it is not."""
        return self._failure_kind(host) if host.lower().rstrip(".") in self._asking else None

    async def close(self) -> None:
        """Cancel the look-ups in progress. Call once, after the last `resolve`."""
        for task in self._asking.values():
            task.cancel()
        await self._lookup.close()

    def _start(self, host: str) -> asyncio.Task[_CacheEntry]:
        """One look-up for all concurrent callers."""
        task = self._asking.get(host)
        if task is None:
            task = self._asking[host] = asyncio.create_task(self._learn(host))
            task.add_done_callback(lambda _: self._asking.pop(host, None))
        return task

    async def _learn(self, host: str) -> _CacheEntry:
        try:
            known = self._judged(host, await self._lookup.lookup(host))
        except FetchFailed as failure:
            known = self._failed(host, failure)
        before, now = self._known.pop(host, None), self._clock.monotonic()
        if known.failed_at is None and (before is None or before.failed_at is not None or before.cached_until <= now):
            self._answered_at = now
        self._known[host] = known
        while len(self._known) > max(self._settings.max_entries, self._in_turn()):
            del self._known[next(iter(self._known))]
        return known

    def _failed(self, host: str, failure: FetchFailed) -> _CacheEntry:
        now, kind = self._clock.monotonic(), failure.kind
        if kind not in (FailureKind.DNS, FailureKind.MACHINE):
            return _CacheEntry(now + self._settings.negative_ttl_s, failure=(kind, failure.detail))
        if kind is FailureKind.DNS:
            kind = self._failure_kind(host)
        expires_at = now + self._settings.failure_ttl_s
        return _CacheEntry(expires_at, failure=(kind, failure.detail), failed_at=now)

    def _failure_kind(self, host: str) -> FailureKind:
        """Whose fault it is that the DNS fails for `host`."""
        before = self._known.get(host)
        if before is not None and before.failed_at is not None and before.failed_at <= self._answered_at:
            return FailureKind.DNS
        if self._control is None or self._control.done():
            now, known = self._clock.monotonic(), self._known.items()
            passed = (name for name, entry in known if entry.addresses and entry.cached_until <= now)
            self._control = self._start(next(passed, CONTROL_HOST))
        return FailureKind.OUR_DNS

    def _judged(self, host: str, answer: DnsAnswer) -> _CacheEntry:
        verdicts = {address: judge_address(address, self._policy) for address in answer.addresses}
        allowed = tuple(address for address, reason in verdicts.items() if reason is None)
        if allowed:
            ttl_s = min(answer.ttl_s, self._settings.max_ttl_s)
            now = self._clock.monotonic()
            return _CacheEntry(now + ttl_s, allowed, cached_until=now + answer.ttl_s)
        if not verdicts:
            raise FetchFailed(FailureKind.NO_SUCH_HOST, f"{host} has no address")
        refused = ", ".join(f"{address} ({reason})" for address, reason in verdicts.items())
        raise FetchFailed(FailureKind.FORBIDDEN_ADDRESS, f"{host} is at {refused}")


def _result(host: str, address: str, port: int) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=socket.AF_INET6 if ":" in address else socket.AF_INET,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST,
    )
