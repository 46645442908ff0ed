"""Asks the DNS for the addresses of a host.

`HostLookup` is the interface to the DNS. `DnsLookup` implements it with c-ares through aiodns. Unlike getaddrinfo in
threads, c-ares returns the records' time to live, and a slow name server can neither fill a thread pool nor delay a
shutdown.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol

import aiodns
import msgspec
import pycares

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.fd_limit import is_out_of_files


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
            raise FetchFailed(_failure_kind(code), f"{host}: {' '.join(map(str, text))}") from error
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


def _failure_kind(code: int) -> FailureKind:
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
