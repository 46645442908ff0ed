"""Resolves host names to addresses that may be connected to: by the operator's host map, a cache, or the DNS, with one
look-up at a time for each host. It judges every address before it returns it, so no name leads into the operator's
network.

A request tries the first `MAX_TRIED` addresses, each once. The one that accepts the connection comes first from then
on, and the others come last if none does, so that the rate limit of an address holds for those who connect to it.

A look-up that fails (no answer in time, SERVFAIL, REFUSED) is the fault of the host's own name servers or of the DNS
that this machine uses. Controls tell which: look-ups of names that nobody knows, so that no cache on the way has an
answer. The failure is the host's (`FailureKind.DNS`) if a control after it is answered, and the DNS has answered
controls since before the look-up began. Otherwise it is ours (`OUR_DNS`), and so is the first failure of a process.

That a host does not exist, or has only forbidden addresses, is also what a DNS says of all hosts while a VPN is down or
a network asks for a login. It is ours if it says so of hosts of other domains that had addresses, too.

aiohttp's own cache is off: it ignores the time to live and does not remember failures.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv6Address, ip_address
from secrets import token_hex
from typing import NamedTuple, Protocol

import aiodns
import msgspec
import pycares
from aiohttp.abc import AbstractResolver, ResolveResult

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.address_policy import AddressPolicy, HostMap, judge_address
from crawler.processes import is_out_of_files
from frontier.clock import Clock
from frontier.domains import domain_of


class DnsAnswer(msgspec.Struct, frozen=True):
    """Addresses in text form, best first, and the seconds for which they may be kept."""

    addresses: tuple[str, ...]
    ttl_s: float


class HostLookup(Protocol):
    """Asks the DNS."""

    async def lookup(self, host: str, *, anew: bool = False) -> DnsAnswer:
        """The addresses of `host`; `anew`: not from a cache of this process. Raises FetchFailed with NO_SUCH_HOST, DNS or
        MACHINE."""

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

    async def lookup(self, host: str, *, anew: bool = False) -> DnsAnswer:
        if anew:
            channel = self._new_channel()
            try:
                return await self._ask(channel, host)
            finally:
                await channel.close()
        if self._lookups >= self._lookups_per_channel:
            await self._replace_channel()
        self._lookups += 1
        return await self._ask(self._channel, host)

    async def _ask(self, channel: aiodns.DNSResolver, host: str) -> DnsAnswer:
        try:
            found = await channel.getaddrinfo(host, family=self._family, type=socket.SOCK_STREAM)
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


MAX_ADDRESSES = 20
"""The most addresses of a host that are kept. Some thousand fit into one answer."""

MAX_TRIED = 3
"""The most addresses that one request tries to connect to."""

CONTROL_DOMAIN = "example.com"
"""Controls ask for names below it (RFC 2606). If they fail, they ask for one below a domain that the crawl knows: the DNS
of a closed network may know no other."""

CONTROL_TIMEOUT_S = 3.0
"""A DNS that needs longer for a control does not answer."""

CONTROL_INTERVAL_S = 3.0
"""The seconds between two controls, and at most as long a failing look-up waits for the next one."""


WITNESSES = 3
"""Hosts of so many other domains that had addresses are asked for before the DNS is taken to know no host. If there are
fewer, `CONTROL_DOMAIN` is asked for, too."""

VANISHING_S = 900.0
"""A host that had an address this recently is not yet taken to be gone. Internal hosts vanish with a VPN, public ones
do not."""


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
    """A cache entry: addresses, or the kind and detail of the failure. `is_tried`: the order of the addresses is not that
    of the DNS, but comes from connections. `found_at`: when the DNS last had addresses."""

    expires_at: float
    found_at: float = -math.inf
    addresses: tuple[str, ...] = ()
    is_tried: bool = False
    failure: tuple[FailureKind, str] | None = None

    def beginning_with(self, first: Sequence[str]) -> _CacheEntry:
        """This entry with those of its addresses that are among `first` before the others, in that order."""
        addresses = sorted(self.addresses, key=lambda one: first.index(one) if one in first else len(first))
        return msgspec.structs.replace(self, addresses=tuple(addresses), is_tried=True)


class _Asking(NamedTuple):
    """A look-up in progress, and when it began."""

    task: asyncio.Task[_CacheEntry]
    began: float


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
        self._asking: dict[str, _Asking] = {}
        self._controls: set[asyncio.Task[bool]] = set()
        self._next_control: asyncio.Task[bool] | None = None  # one that has not begun
        self._control_due = -math.inf
        self._answers_since = math.inf  # since when the DNS has answered all controls

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
            known = await asyncio.shield(self._look_up(host))  # it continues when a caller is cancelled
        if known.failure is not None:
            raise FetchFailed(*known.failure)
        return [_result(host, address, port) for address in _of_both_families(known.addresses)]

    async def first(self, host: str) -> str:
        """The address that a request to `host` will be sent to, if it accepts connections. Raises what `resolve` raises."""
        return _address(host) or str((await self.resolve(host))[0]["host"])

    def connected(self, host: str, address: str) -> None:
        """Have the next requests to `host` begin with `address`, which has accepted a connection."""
        known = self._known.get(host)
        if known is not None and known.addresses[:1] != (address,):
            self._known[host] = known.beginning_with([address])

    def refused(self, host: str) -> None:
        """Have the next requests to `host` begin with other addresses than the last one, which could not connect."""
        known = self._known.get(host)
        if known is not None:
            tried = _of_both_families(known.addresses)
            self._known[host] = known.beginning_with([address for address in known.addresses if address not in tried])

    def remember(self, host: str, age_s: float) -> None:
        """Note that the DNS had an address of `host` so many seconds ago, before this process looked it up."""
        if _address(host) is None and self._host_map.find(host) is None:
            found_at = self._clock.monotonic() - age_s
            self._known.setdefault(host, _CacheEntry(-math.inf, found_at, failure=(FailureKind.DNS, "not looked up")))

    async def overdue(self, host: str) -> FailureKind | None:
        """What it means that `host` is still being looked up when there is no time left; None if it is not."""
        asking = self._asking.get(host.lower().rstrip("."))
        return None if asking is None else await self._failure_kind(asking.began)

    async def close(self) -> None:
        """Cancel the look-ups in progress. Call once, after the last `resolve`."""
        for task in [*(asking.task for asking in self._asking.values()), *self._controls]:
            task.cancel()
        await self._lookup.close()

    def _look_up(self, host: str) -> asyncio.Task[_CacheEntry]:
        if host not in self._asking:
            began = self._clock.monotonic()
            self._asking[host] = _Asking(asyncio.create_task(self._learn(host, began)), began)
            self._asking[host].task.add_done_callback(lambda _: self._asking.pop(host, None))
        return self._asking[host].task

    async def _learn(self, host: str, began: float) -> _CacheEntry:
        try:
            known = self._judged(host, await self._lookup.lookup(host))
        except FetchFailed as failure:
            known = await self._failed(host, failure, began)
        before = self._known.pop(host, None)
        if before is not None and before.is_tried:
            known = known.beginning_with(before.addresses)
        self._known[host] = known
        while len(self._known) > max(self._settings.max_entries, self._in_turn()):
            del self._known[next(iter(self._known))]
        return known

    async def _failed(self, host: str, failure: FetchFailed, began: float) -> _CacheEntry:
        kind, detail, kept_s = failure.kind, failure.detail, self._settings.failure_ttl_s
        found_at = self._known[host].found_at if host in self._known else -math.inf
        if kind is FailureKind.DNS:
            kind = await self._failure_kind(began)
        elif kind is not FailureKind.MACHINE:
            is_unknown = kind is FailureKind.NO_SUCH_HOST
            has_vanished = is_unknown and found_at > -math.inf
            is_recent = has_vanished and began - found_at < VANISHING_S
            if is_recent or not await self._knows_others(host, has_vanished):
                kind, detail = FailureKind.OUR_DNS, f"{detail} (the DNS fails for all hosts)"
            else:
                kept_s = self._settings.negative_ttl_s
        return _CacheEntry(self._clock.monotonic() + kept_s, found_at, failure=(kind, detail))

    async def _knows_others(self, host: str, has_vanished: bool) -> bool:
        """Return whether the DNS, which does not know `host` or has only forbidden addresses, still knows others. True if
        it has known none and `host` has not vanished: a closed network may have no names, and its hosts are called by
        their addresses."""
        domain, witnesses = domain_of(host), dict[str, str]()
        for other, entry in reversed(self._known.items()):
            if entry.found_at > -math.inf and domain_of(other) != domain:
                witnesses.setdefault(domain_of(other), other)
                if len(witnesses) == WITNESSES:
                    break
        if not witnesses and not has_vanished:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONTROL_TIMEOUT_S):
                for name in [*witnesses.values(), CONTROL_DOMAIN][:WITNESSES]:
                    with contextlib.suppress(FetchFailed):
                        self._judged(name, await self._lookup.lookup(name, anew=True))
                        return True
        return False

    async def _failure_kind(self, began: float) -> FailureKind:
        """Whose fault it is that the DNS has failed in a look-up that began at `began`."""
        if self._next_control is None:
            self._next_control = asyncio.create_task(self._ask_control())
            self._controls.add(self._next_control)
            self._next_control.add_done_callback(self._controls.discard)
        answers = await asyncio.shield(self._next_control)
        return FailureKind.DNS if answers and self._answers_since < began else FailureKind.OUR_DNS

    async def _ask_control(self) -> bool:
        """Return whether the DNS answers. All that failed before it is asked share the answer."""
        await self._clock.sleep(max(0.0, self._control_due - self._clock.monotonic()))
        self._next_control, self._control_due = None, self._clock.monotonic() + CONTROL_INTERVAL_S
        answers = await self._is_answered(CONTROL_DOMAIN)
        if not answers and (domain := self._working_domain()) is not None:
            answers = await self._is_answered(domain)
        self._answers_since = min(self._answers_since, self._clock.monotonic()) if answers else math.inf
        return answers

    async def _is_answered(self, domain: str) -> bool:
        """Return whether the DNS answers for a name below `domain` that no cache knows."""
        try:
            async with asyncio.timeout(CONTROL_TIMEOUT_S):
                await self._lookup.lookup(f"{token_hex(8)}.{domain}")
        except FetchFailed as failure:
            return failure.kind is FailureKind.NO_SUCH_HOST
        except TimeoutError:
            return False
        return True

    def _working_domain(self) -> str | None:
        """A domain of the crawl of which the DNS has lately known a host, and which no look-up in progress is about."""
        in_doubt = {domain_of(host) for host in self._asking}
        in_doubt.add("localhost")  # c-ares answers for it by itself (RFC 6761 6.3)
        for host, entry in reversed(self._known.items()):
            if entry.addresses and not in_doubt & {domain_of(host), host.rpartition(".")[2]}:
                return domain_of(host)
        return None

    def _judged(self, host: str, answer: DnsAnswer) -> _CacheEntry:
        addresses = dict.fromkeys(map(_as_v4, answer.addresses[:MAX_ADDRESSES]))
        verdicts = {address: judge_address(address, self._policy) for address in addresses}
        allowed = tuple(address for address, reason in verdicts.items() if reason is None)
        if allowed:
            ttl_s = min(answer.ttl_s, self._settings.max_ttl_s)
            now = self._clock.monotonic()
            return _CacheEntry(now + ttl_s, now, allowed)
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


def _as_v4(address: str) -> str:
    """`address`, or the IPv4 address that it carries (RFC 4291 2.5.5.2), which leads to the same machine."""
    ip = ip_address(address.partition("%")[0])
    return str(ip.ipv4_mapped) if isinstance(ip, IPv6Address) and ip.ipv4_mapped else address


def _of_both_families(addresses: Sequence[str]) -> list[str]:
    """The addresses that a request tries: the first ones, with one of the other family if there is one."""
    tried = list(addresses[:MAX_TRIED])
    families = {":" in address for address in tried}
    other = next((address for address in addresses if (":" in address) not in families), None)
    if other is not None:
        tried[-1] = other
    return tried


def _address(host: str) -> str | None:
    """The address that `host` is; None if it is a name."""
    try:
        return str(ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return None
