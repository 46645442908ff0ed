"""One HTTP exchange: URL in, `Exchange` out, or `FetchFailed` that says why not.

What goes on the wire is exactly one GET: no redirect is followed, no cookie is kept, no request repeated,
nothing decompressed. Everything that a server can stretch has a bound: connecting, silence between bytes,
the exchange as a whole, header and body. Once a response head is there the exchange counts, and what a bound
cuts off the body is named in `Exchange.truncated`; before that it is a failure.

aiohttp does the HTTP, `crawler.fetch.connection` guards it, `crawler.fetch.resolver` finds the addresses. One session
lives as long as the process.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import aiohttp
import msgspec

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.address_policy import AddressPolicy, HostMap
from crawler.fetch.connection import GuardedConnector, GuardedProtocol, Request
from crawler.fetch.fd_limit import IDLE_CONNECTIONS
from crawler.fetch.request import Origin, header_lines
from crawler.fetch.resolver import DnsLookup, HostLookup, Resolver, ResolverSettings
from crawler.fetch.response import describe
from crawler.page import Exchange
from frontier.clock import Clock


class HttpClient(Protocol):
    """What the crawl asks of an HTTP client. `Fetcher` is the real one."""

    async def start(self, hosts_in_turn: Callable[[], int]) -> None: ...

    async def fetch(
        self, url: str, *, deadline: Callable[[], bool] | None = None, extra_headers: Iterable[tuple[str, str]] = ()
    ) -> Exchange: ...

    async def locate(self, url: str) -> str: ...

    def apply(self, max_body_bytes: int, parallel: int) -> None: ...

    async def stop(self, deadline: float) -> None: ...


class FetchSettings(msgspec.Struct, frozen=True):
    """How requests are made. `user_agent` is the whole header: it must name the crawler and a way to reach
    its operator.

    Sizes are bytes as received, content coding included. `connect_timeout_s` bounds name resolution,
    connection and TLS together; `read_timeout_s` the silence before and between bytes; `total_timeout_s` the
    whole, so that a server which sends a byte a second holds a worker no longer. Idle connections are kept for
    `keepalive_s`, which is worth a little more than the usual delay between two requests to a domain, to at most
    `max_idle` origins, and `parallel` to each.
    """

    user_agent: str
    max_body_bytes: int = 10 * 1024 * 1024
    max_header_bytes: int = 64 * 1024
    connect_timeout_s: float = 15.0
    read_timeout_s: float = 20.0
    total_timeout_s: float = 60.0
    keepalive_s: float = 15.0
    max_idle: int = IDLE_CONNECTIONS
    parallel: int = 1
    accept: str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.5"
    accept_language: str = "en,*;q=0.5"
    accept_encoding: str = "gzip, deflate, br, zstd"
    verify_tls: bool = True
    addresses: AddressPolicy = msgspec.field(default_factory=AddressPolicy)
    host_map: HostMap = msgspec.field(default_factory=HostMap)
    resolver: ResolverSettings = msgspec.field(default_factory=ResolverSettings)


class Fetcher:
    """Makes requests for a whole replica. `start` before the first, `quiet` to take no more, `stop` at the
    end.
    """

    def __init__(
        self,
        settings: FetchSettings,
        clock: Clock,
        *,
        lookup: HostLookup | None = None,
        tls: ssl.SSLContext | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`lookup` asks the DNS, by default c-ares. `tls` replaces the system's trust. `wall`: seconds
        since 1970.
        """
        self._settings = settings
        self._clock = clock
        self._lookup = lookup
        self._tls = tls
        self._wall = wall
        self._connector: GuardedConnector | None = None
        self._resolver: Resolver | None = None
        self._taking = False
        self._under_way = 0
        self._idle = asyncio.Event()
        self._fields = _common_fields(settings)
        self._connect_timeout = aiohttp.ClientTimeout(
            total=None, connect=min(settings.connect_timeout_s, settings.total_timeout_s)
        )

    def apply(self, max_body_bytes: int, parallel: int) -> None:
        """From now on bodies are cut off at `max_body_bytes`, and so many idle connections are kept to each origin."""
        self._settings = msgspec.structs.replace(self._settings, max_body_bytes=max_body_bytes, parallel=parallel)
        if self._connector is not None:
            self._connector.keep_idle(parallel)

    def __repr__(self) -> str:
        state = "taking" if self._taking else "quiet"
        return f"<Fetcher {state} under_way={self._under_way}>"

    async def start(self, hosts_in_turn: Callable[[], int] = lambda: 0) -> None:
        """No connection is made yet. `hosts_in_turn` tells how many hosts take turns, whose addresses are remembered."""
        settings = self._settings
        lookup = self._lookup or DnsLookup()
        self._resolver = Resolver(
            lookup, settings.addresses, settings.host_map, self._clock, settings.resolver, hosts_in_turn
        )
        self._loop = asyncio.get_running_loop()
        self._connector = GuardedConnector(
            settings.addresses,
            max_idle=settings.max_idle,
            parallel=settings.parallel,
            max_head_bytes=settings.max_header_bytes,
            read_timeout_s=settings.read_timeout_s,
            resolver=self._resolver,
            keepalive_timeout=settings.keepalive_s,
            # aiohttp has read the system's certificates once, which takes 50 ms, when it was imported.
            ssl=self._tls or settings.verify_tls,
        )
        self._taking = True

    def quiet(self) -> None:
        """Take no more requests; those under way go on."""
        self._taking = False

    async def stop(self, deadline: float) -> None:
        """Let requests under way end for at most `deadline` seconds, then cut off the rest and close
        everything.
        """
        self.quiet()
        if self._under_way:
            self._idle.clear()
            try:
                async with asyncio.timeout(deadline):
                    await self._idle.wait()
            except TimeoutError:
                pass  # what is cut off raises FetchFailed(STOPPED) in its caller
        if self._connector is not None and self._resolver is not None:
            connector, self._connector = self._connector, None
            await connector.close()
            await self._resolver.close()

    async def fetch(
        self,
        url: str,
        *,
        deadline: Callable[[], bool] | None = None,
        extra_headers: Iterable[tuple[str, str]] = (),
    ) -> Exchange:
        """GET `url` (canonical: it goes on the wire byte for byte) once.

        `deadline` is asked once, after a connection has been obtained and right before the request is
        written; when it returns True the time is over and nothing is sent. Raises FetchFailed when there is
        no response head.
        """
        connector = self._connector
        if connector is None or not self._taking:
            raise FetchFailed(FailureKind.STOPPED, "the fetcher takes no requests")
        request = self._request(url, deadline, extra_headers)
        self._under_way += 1
        try:
            return await self._exchange(connector, request, url)
        except (aiohttp.ClientError, FetchFailed, TimeoutError, ValueError) as error:
            if self._connector is None:
                sent = isinstance(error, FetchFailed) and error.request_sent
                raise FetchFailed(FailureKind.STOPPED, "cut off by the shutdown", request_sent=sent) from error
            if isinstance(error, FetchFailed):
                raise
            if isinstance(error, aiohttp.ClientConnectorError):
                _forget_frames(error)
            raise FetchFailed(_failure_kind(error), describe(error)) from error
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def locate(self, url: str) -> str:
        """The address that a request to `url` (canonical) will be sent to. Raises FetchFailed as `fetch` would."""
        if self._resolver is None or not self._taking:
            raise FetchFailed(FailureKind.STOPPED, "the fetcher takes no requests")
        return await self._resolver.first(host_of(url))

    def _request(
        self, url: str, deadline: Callable[[], bool] | None, extra_headers: Iterable[tuple[str, str]]
    ) -> Request:
        """Raises FetchFailed: BAD_URL or FORBIDDEN_PORT."""
        settings = self._settings
        slash = url.find("/", url.find("://") + 3)
        if slash < 0:
            raise FetchFailed(FailureKind.BAD_URL, "not a canonical http or https URL")
        origin = Origin.parse(url[:slash])
        host, port = origin.key.host, origin.key.port
        if port not in settings.addresses.ports and settings.host_map.find(host.rstrip(".")) is None:
            raise FetchFailed(FailureKind.FORBIDDEN_PORT, f"port {port}")
        head = origin.request_head(url[slash:], self._fields, extra_headers)
        now = self._loop.time()
        return Request(origin, head, deadline, now, now + settings.total_timeout_s, settings.max_body_bytes)

    async def _exchange(self, connector: GuardedConnector, request: Request, url: str) -> Exchange:
        connection = await connector.obtain(request, self._connect_timeout)
        try:
            protocol = connection.protocol
            assert isinstance(protocol, GuardedProtocol)
            started_at = self._wall()
            protocol.send(request)
            response = await protocol.receive()
            connection.release()
        finally:
            connection.close()  # unless it has been released
        if self._connector is None:
            raise FetchFailed(FailureKind.STOPPED, request_sent=True)
        message = response.message
        return Exchange(
            url=url,
            status=message.code,
            reason=message.reason or "",
            headers=message.raw_headers,
            request_head=request.head,
            response_head=response.head,
            body=response.body,
            address=protocol.address,
            started_at=started_at,
            elapsed=response.elapsed_s,
            first_byte=response.first_byte_s,
            truncated=response.truncated,
            protocol=f"http/{message.version.major}.{message.version.minor}",
            tls=protocol.tls,
            phases=response.phases,
        )


def host_of(url: str) -> str:
    """The host of the canonical `url`, an IPv6 address in its brackets."""
    authority = url.partition("://")[2].partition("/")[0]
    name, colon, port = authority.rpartition(":")
    return name if colon and port.isdigit() else authority


_ERRNO_KINDS = {
    errno.ECONNREFUSED: FailureKind.REFUSED,
    errno.ECONNRESET: FailureKind.DISCONNECTED,
    errno.EPIPE: FailureKind.DISCONNECTED,
    errno.ECONNABORTED: FailureKind.DISCONNECTED,
    errno.ETIMEDOUT: FailureKind.CONNECT_TIMEOUT,
}


def _forget_frames(error: BaseException | None) -> None:
    """Those that tried to connect keep the error, which keeps them: 58 objects, and a socket, would wait for the garbage
    collector."""
    while error is not None:
        error.__traceback__, error = None, error.__cause__


def _failure_kind(error: Exception) -> FailureKind:
    """Translate what aiohttp raises while it connects. This is the only place that does. Subclasses come first."""
    match error:
        case TimeoutError():
            return FailureKind.CONNECT_TIMEOUT
        case aiohttp.ClientSSLError():
            return FailureKind.TLS
        case aiohttp.ClientConnectorError():
            return _ERRNO_KINDS.get(error.os_error.errno or 0, FailureKind.UNREACHABLE)
        case aiohttp.InvalidURL() | ValueError():
            return FailureKind.BAD_URL
        case _:
            return FailureKind.DISCONNECTED


def _common_fields(settings: FetchSettings) -> bytes:
    """The header lines that all requests have in common."""
    return header_lines(
        [
            ("User-Agent", settings.user_agent),
            ("Accept", settings.accept),
            ("Accept-Language", settings.accept_language),
            ("Accept-Encoding", settings.accept_encoding),
        ]
    )
