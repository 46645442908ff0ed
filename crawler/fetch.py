"""One HTTP exchange: URL in, `Exchange` out, or `FetchFailed` that says why not.

What goes on the wire is exactly one GET: no redirect is followed, no cookie is kept, no request repeated,
nothing decompressed. Everything that a server can stretch has a bound: connecting, silence between octets,
the exchange as a whole, header and body. Once a response head is there the exchange counts, and what a bound
cuts off the body is named in `Exchange.truncated`; before that it is a failure.

aiohttp does the HTTP, `crawler.connection` guards it, `crawler.resolver` finds the addresses. One session
lives as long as the process.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import aiohttp
from aiohttp.client_middlewares import ClientHandlerType
from aiohttp.http_exceptions import LineTooLong
from yarl import URL

from crawler.addresses import AddressPolicy, HostMap
from crawler.connection import Flight, GuardedConnector, GuardedRequest, HeadTooLarge
from crawler.errors import FailureKind, FetchFailed
from crawler.page import Exchange
from crawler.resolver import DnsLookup, Lookup, Resolver, ResolverSettings
from frontier.clock import Clock


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How requests are made. `user_agent` is the whole header: it must name the crawler and a way to reach
    its operator.

    Sizes are octets as received, content coding included. `connect_timeout_s` bounds name resolution,
    connection and TLS together; `read_timeout_s` the silence before and between octets; `total_timeout_s` the
    whole, so that a server which sends an octet a second holds a worker no longer. Idle connections are kept for
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
    max_idle: int = 512
    parallel: int = 1
    accept: str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.5"
    accept_language: str = "en,*;q=0.5"
    accept_encoding: str = "gzip, deflate, br, zstd"
    verify_tls: bool = True
    addresses: AddressPolicy = field(default_factory=AddressPolicy)
    host_map: HostMap = field(default_factory=HostMap)
    resolver: ResolverSettings = field(default_factory=ResolverSettings)


class Fetcher:
    """Makes requests for a whole replica. `start` before the first, `quiet` to take no more, `stop` at the
    end.
    """

    def __init__(
        self,
        settings: FetchSettings,
        clock: Clock,
        *,
        lookup: Lookup | None = None,
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
        self._session: aiohttp.ClientSession | None = None
        self._resolver: Resolver | None = None
        self._taking = False
        self._under_way = 0
        self._idle = asyncio.Event()

    def keep_idle(self, parallel: int) -> None:
        """So many idle connections an origin are kept from now on."""
        if self._session is not None and isinstance(self._session.connector, GuardedConnector):
            self._session.connector.parallel = parallel

    def cut_off_at(self, max_body_bytes: int) -> None:
        """Bodies end there from now on."""
        self._settings = replace(self._settings, max_body_bytes=max_body_bytes)

    def __repr__(self) -> str:
        state = "taking" if self._taking else "quiet"
        return f"<Fetcher {state} under_way={self._under_way}>"

    async def start(self) -> None:
        """Open the session. No connection is made yet."""
        settings = self._settings
        lookup = self._lookup or DnsLookup()
        self._resolver = Resolver(lookup, settings.addresses, settings.host_map, self._clock, settings.resolver)
        self._session = aiohttp.ClientSession(
            connector=GuardedConnector(
                settings.addresses,
                max_idle=settings.max_idle,
                parallel=settings.parallel,
                max_head_bytes=settings.max_header_bytes,
                resolver=self._resolver,
                keepalive_timeout=settings.keepalive_s,
                ssl=self._tls or _tls_context(settings.verify_tls),
            ),
            headers=_session_headers(settings),
            timeout=aiohttp.ClientTimeout(
                total=settings.total_timeout_s,
                connect=settings.connect_timeout_s,
                sock_read=settings.read_timeout_s,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            request_class=GuardedRequest,
            auto_decompress=False,
            # One line may fill the whole head: the limit that counts is HeadKeeper's.
            max_line_size=settings.max_header_bytes,
            max_field_size=settings.max_header_bytes,
            max_headers=settings.max_header_bytes // len(b"a:\r\n"),
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
        if self._session is not None and self._resolver is not None:
            session, self._session = self._session, None
            await session.close()
            await self._resolver.close()

    async def fetch(
        self,
        url: str,
        *,
        deadline: Callable[[], bool] | None = None,
        extra_headers: Iterable[tuple[str, str]] = (),
    ) -> Exchange:
        """GET `url` (canonical: it goes on the wire octet for octet) once.

        `deadline` is asked once, after a connection has been obtained and right before the request is
        written; when it returns True the time is over and nothing is sent. Raises FetchFailed when there is
        no response head.
        """
        session = self._session
        if session is None or not self._taking:
            raise FetchFailed(FailureKind.STOPPED, "the fetcher takes no requests")
        target = self._target(url)
        flight = Flight(deadline, self._clock.monotonic, self._wall)
        self._under_way += 1
        try:
            return await self._exchange(session, flight, url, target, tuple(extra_headers))
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def locate(self, url: str) -> str:
        """The address that a request to `url` (canonical) will be sent to. Raises FetchFailed as `fetch` would."""
        if self._resolver is None or not self._taking:
            raise FetchFailed(FailureKind.STOPPED, "the fetcher takes no requests")
        return await self._resolver.first(host_of(url))

    def _target(self, url: str) -> URL:
        """`url` as aiohttp wants it. Raises FetchFailed: BAD_URL or FORBIDDEN_PORT."""
        scheme, _, rest = url.partition("://")
        authority, slash, path = rest.partition("/")
        authority = authority.rpartition("@")[2]  # userinfo never leaves this machine
        try:
            # The query stays in the path here: split off, an empty one would lose its question mark.
            target = URL.build(scheme=scheme, authority=authority, path=slash + path, encoded=True)
            host, port = target.raw_host, target.port
        except ValueError as error:
            raise FetchFailed(FailureKind.BAD_URL, str(error)) from error
        if not host or not slash or scheme not in ("http", "https"):
            raise FetchFailed(FailureKind.BAD_URL, "not a canonical http or https URL")
        if port not in self._settings.addresses.ports and self._settings.host_map.find(host.rstrip(".")) is None:
            raise FetchFailed(FailureKind.FORBIDDEN_PORT, f"port {port}")
        return target

    async def _exchange(
        self,
        session: aiohttp.ClientSession,
        flight: Flight,
        url: str,
        target: URL,
        extra_headers: tuple[tuple[str, str], ...],
    ) -> Exchange:
        async def fly(request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
            # aiohttp repeats a GET whose connection broke. Here it must not: a second request so soon would
            # break the domain's delay. A foreign exception is therefore translated before aiohttp sees it.
            assert isinstance(request, GuardedRequest)
            request.flight = flight
            try:
                return await handler(request)
            except aiohttp.ClientError as error:
                raise self._failure(error, flight) from error

        try:
            response = await session.get(
                target, headers=extra_headers or None, allow_redirects=False, middlewares=(fly,)
            )
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise self._failure(error, flight) from error
        first_byte = flight.elapsed()
        try:
            body, truncated = await _read_body(response.content, self._settings.max_body_bytes)
        finally:
            # After a whole body the connection is back in the pool already and this does nothing.
            response.close()
        if self._session is None:
            raise FetchFailed(FailureKind.STOPPED, "cut off by the shutdown", request_sent=True)
        version = response.version
        return Exchange(
            url=url,
            status=response.status,
            reason=response.reason or "",
            headers=response.raw_headers,
            request_head=flight.request_head,
            response_head=flight.response_head,
            body=body,
            address=flight.address,
            started_at=flight.started_at,
            elapsed=flight.elapsed(),
            first_byte=first_byte,
            truncated=truncated,
            protocol=f"http/{version.major}.{version.minor}" if version else "",
            tls=flight.tls,
            phases=flight.phases,
        )

    def _failure(self, error: Exception, flight: Flight) -> FetchFailed:
        kind = FailureKind.STOPPED if self._session is None else _failure_kind(error, flight)
        # Some messages quote what the server sent: one line, and no more of it than helps.
        detail = " ".join(str(error).split())[:200] or type(error).__name__
        return FetchFailed(kind, detail, request_sent=flight.sent_at is not None)


def host_of(url: str) -> str:
    """The host of the canonical `url`, an IPv6 address in its brackets."""
    authority = url.partition("://")[2].partition("/")[0]
    name, colon, port = authority.rpartition(":")
    return name if colon and port.isdigit() else authority


_JOINED_AT_ONCE = 1 << 20
"""Octets of a body that the event loop puts together itself. 10 MB take it 8 ms and more, nearly all of it in the kernel,
which must find the memory; in a thread that holds up nobody, as the interpreter's lock is not held."""


async def _read_body(content: aiohttp.StreamReader, limit: int) -> tuple[bytes, str | None]:
    """The body up to `limit` octets, and what cut it off, as one of the words of WARC 1.1 section 5.13."""
    chunks: list[bytes] = []
    room = limit
    truncated: str | None = None
    try:
        while room >= 0 and (chunk := await content.readany()):
            chunks.append(chunk)
            room -= len(chunk)
    except TimeoutError:
        truncated = "time"
    except (aiohttp.ClientError, aiohttp.http.HttpProcessingError, OSError):
        truncated = "disconnect"
        # What had come before the error, and was not yet read, aiohttp holds back behind it.
        chunks.append(content._read_nowait(-1))
        room -= len(chunks[-1])
    if room < 0:
        chunks[-1] = chunks[-1][:room]
        truncated = "length"
    if limit - room > _JOINED_AT_ONCE:
        return await asyncio.to_thread(b"".join, chunks), truncated
    return b"".join(chunks), truncated


_ERRNO_KINDS = {
    errno.ECONNREFUSED: FailureKind.REFUSED,
    errno.ECONNRESET: FailureKind.DISCONNECTED,
    errno.EPIPE: FailureKind.DISCONNECTED,
    errno.ECONNABORTED: FailureKind.DISCONNECTED,
    errno.ETIMEDOUT: FailureKind.CONNECT_TIMEOUT,
}


def _failure_kind(error: Exception, flight: Flight) -> FailureKind:
    """The table from aiohttp's exceptions to ours: the one place where they meet. More special ones come
    first.
    """
    match error:
        case HeadTooLarge():
            return FailureKind.HEADER_TOO_LARGE
        case aiohttp.ConnectionTimeoutError():
            return FailureKind.CONNECT_TIMEOUT
        case TimeoutError():
            return FailureKind.TIMEOUT if flight.sent_at is not None else FailureKind.CONNECT_TIMEOUT
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return FailureKind.TLS
        case aiohttp.ClientConnectorError():
            return _ERRNO_KINDS.get(error.os_error.errno or 0, FailureKind.UNREACHABLE)
        case aiohttp.InvalidURL() | ValueError():
            return FailureKind.BAD_URL
        case aiohttp.ClientResponseError():
            cause = error.__cause__.__cause__ if error.__cause__ else None
            return FailureKind.HEADER_TOO_LARGE if isinstance(cause, LineTooLong) else FailureKind.PROTOCOL
        case _:
            fault_free = flight.reused and not flight.response_head
            return FailureKind.STALE_CONNECTION if fault_free else FailureKind.DISCONNECTED


def _session_headers(settings: FetchSettings) -> dict[str, str]:
    return {
        "User-Agent": settings.user_agent,
        "Accept": settings.accept,
        "Accept-Language": settings.accept_language,
        "Accept-Encoding": settings.accept_encoding,
    }


def _tls_context(verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context
