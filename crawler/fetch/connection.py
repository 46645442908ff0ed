"""Adds three guards to aiohttp's client: where it may connect, when it may write, and how much it may receive. Only its
connector is used, not its sessions, requests and responses.

- `GuardedConnector` makes a socket only for an address that the policy allows, immediately before it is connected, and
  limits the idle connections. Through a proxy (`tunnel`), it judges the site's address before the proxy is asked.
- `GuardedProtocol` is one connection, for one request at a time. It asks whether the lease still holds immediately
  before it writes the request. Bytes that arrive when nothing was requested close the connection.
- `Request` is what the connector and the protocol need to know of a request.

Rules for editors: some hooks are private to aiohttp: `_factory` (the protocol), `_create_connection` (proxies),
`_wrap_create_connection` (when the look-up of the address ended), `_release` and `_conns` (the limit of idle
connections), and what a connector reads of a request. The tests in tests/fetch notice a release that breaks one.
"""

from __future__ import annotations

import select
import socket
import ssl
from asyncio import AbstractEventLoop, BaseTransport, Future, TimerHandle, Transport
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal, cast

import msgspec
from aiohttp import ClientRequest, ClientTimeout, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from yarl import URL

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.address_policy import AddressPolicy, OperatorAddress, judge_address
from crawler.fetch.proxy import Destination, Proxy, open_through
from crawler.fetch.request_rules import Handling
from crawler.fetch.response import ResponseReader, describe
from crawler.page import Exchange, Phases

TlsContext = ssl.SSLContext


class Request(msgspec.Struct, frozen=True):
    """A request in the form that aiohttp's connector reads. It was made at `asked_at` and must be over at `until`, both in
    event loop time. `is_too_late` is called once, immediately before the request is written; if it returns True, nothing is
    written. `sign`: returns the header lines that sign the request at a time in seconds since 1970. `handling`: what rules
    add to it. `ssl`: the TLS context, True for that of the connector.
    """

    url: URL  # of the origin
    connection_key: ConnectionKey
    head: bytes
    is_too_late: Callable[[], bool] | None
    asked_at: float
    until: float
    max_body_bytes: int
    sign: Callable[[float], bytes] | None = None
    handling: Handling | None = None
    ssl: TlsContext | Literal[True] = True
    method: str = "GET"
    body: bytes = b""

    proxy: ClassVar = None  # aiohttp's own way would send and read by its own classes
    server_hostname: ClassVar = None

    def __repr__(self) -> str:
        return f"<Request {self.url}>"  # the head may have secrets

    @property
    def port(self) -> int | None:
        return self.connection_key.port

    def is_ssl(self) -> bool:
        return self.connection_key.is_ssl

    def head_at(self, now: float) -> bytes:
        """The head with the signature at `now` (seconds since 1970), if the request has to be signed."""
        return self.head if self.sign is None else self.head[:-2] + self.sign(now) + b"\r\n"


REST_S = 0.015
"""Ten times what reading `MOST_LINES` takes."""


class Rests:
    """When connections whose bodies consist of short lines may read on: one after the other, so that they take a tenth of
    the event loop's time in all."""

    def __init__(self) -> None:
        self._ends_at = 0.0

    def end_of_next(self, now: float) -> float:
        """When the next one may read on, in event loop time."""
        self._ends_at = max(self._ends_at, now) + REST_S
        return self._ends_at


class GuardedProtocol(ResponseHandler):
    """One connection, for one request at a time: `send`, then `receive`."""

    def __init__(self, loop: AbstractEventLoop, max_head_bytes: int, read_timeout_s: float, rests: Rests) -> None:
        """`read_timeout_s` limits the silence before and between bytes."""
        super().__init__(loop)
        self._rests = rests
        self._max_head_bytes = max_head_bytes
        self._read_timeout_s = read_timeout_s
        self._request: Request | None = None
        self._reader: ResponseReader | None = None  # None: nothing is expected
        self._failure: tuple[FailureKind, str] = (FailureKind.DISCONNECTED, "")
        self._over: Future[None] = loop.create_future()
        self._head = b""
        self._started_at = self._sent_at = self._head_at = self._heard_at = 0.0
        self._has_received = False
        self._is_time_over = False
        self._alarm: TimerHandle | None = None  # of `_limit_time`
        self._phases: Phases | None = None  # None once it has been used
        self._connected_at = loop.time()  # the loop makes the protocol once TCP is connected
        self._ready_at = self._connected_at
        self._poll = select.poll()
        self._address = ""
        self._tls: str | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        self._ready_at = self._loop.time()  # over TLS, this is called after the handshake
        peer = transport.get_extra_info("peername")  # None if the peer has already gone
        self._address = peer[0] if peer else ""
        cipher = transport.get_extra_info("cipher")
        self._tls = f"{cipher[0]} {cipher[1]}" if cipher else None
        self._poll.register(transport.get_extra_info("socket"), select.POLLIN)
        super().connection_made(transport)

    @property
    def address(self) -> str:
        """Where the connection leads, "" if that is unknown."""
        return self._address

    def is_connected(self) -> bool:
        """Whether the connection can be used again: not if bytes, or its end, wait to be read. httpcore and urllib3 check
        the same."""
        if self.transport is None or self.transport.is_closing():
            return False
        return not self._poll.poll(0)

    def opened(self, asked_at: float, connecting_at: float) -> None:
        """The connection was asked for at `asked_at`, and its address was known at `connecting_at`."""
        tls_s = self._ready_at - self._connected_at if self._tls else None
        self._phases = Phases(connecting_at - asked_at, self._connected_at - connecting_at, tls_s)

    def send(self, request: Request, started_at: float) -> None:
        """Write the request at `started_at`, in seconds since 1970. Raises FetchFailed, with nothing written, if that is
        not allowed."""
        if self.transport is None or self.should_close:
            raise FetchFailed(FailureKind.STALE_CONNECTION, "the idle connection was closed, or had received bytes")
        if request.is_too_late is not None and request.is_too_late():
            raise FetchFailed(FailureKind.LEASE_EXPIRED, "the lease ended before the request was written")
        self._request, self._started_at = request, started_at
        self._reader = ResponseReader(self._max_head_bytes, request.max_body_bytes, request.method != "HEAD")
        self._has_received = self._is_time_over = False
        self._over = self._loop.create_future()
        self._sent_at = self._head_at = self._heard_at = self._loop.time()
        self._head = request.head_at(started_at)  # as late as possible, because signatures expire
        self.transport.write(self._head + request.body)

    async def receive(self, url: str) -> Exchange:
        """The exchange of the request that was sent, for `url`. Raises FetchFailed if the head of the response did not
        arrive."""
        request, reader = self._request, self._reader
        assert request is not None
        assert reader is not None
        if self._alarm is None:
            self._limit_time()
        try:
            await self._over
        finally:
            self._request = self._reader = None
        if not reader.is_clean:
            self.force_close()
        if reader.message is None:
            raise FetchFailed(*self._failure, request_sent=True)
        phases, self._phases = self._phases, None
        return Exchange(
            url=url,
            status=reader.message.status,
            reason=reader.message.reason,
            headers=reader.message.fields,
            request_head=self._head,
            response_head=reader.head,
            body=reader.body,
            address=self._address,
            started_at=self._started_at,
            elapsed=self._loop.time() - self._sent_at,
            first_byte=self._head_at - self._sent_at,
            truncated=self._truncated(reader),
            protocol=f"http/{reader.message.version}",
            tls=self._tls,
            phases=phases,
            repaired=reader.repaired,
            method=request.method,
            request_body=request.body,
        )

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader is None or self._request is None:  # nothing was requested
            self.abort()
            return
        self._has_received = True
        is_head_due = reader.message is None
        try:
            is_over = reader.feed(data)
        except FetchFailed as failure:
            self._end(failure.kind, failure.detail)
            self.abort()
            return
        self._heard_at = self._loop.time()
        if is_head_due:
            self._head_at = self._heard_at
        if is_over:
            self._end()
        elif reader.is_resting:
            self._heard_at = self._rests.end_of_next(self._heard_at)
            if self.transport is not None:
                self.transport.pause_reading()
            self._loop.call_at(self._heard_at, self._read_on, reader)

    def _read_on(self, reader: ResponseReader) -> None:
        """Read what `reader` has left and, unless it rests again, what comes next."""
        if self._reader is reader and self.transport is not None:
            self.transport.resume_reading()
            self.data_received(b"")

    def connection_lost(self, exc: BaseException | None) -> None:
        while self._reader is not None and self._reader.is_resting:
            self.data_received(b"")
        if self._reader is not None:
            if exc is None:
                self._reader.close()
            is_stale = self._phases is None and not self._has_received
            kind = FailureKind.STALE_CONNECTION if is_stale else FailureKind.DISCONNECTED
            self._end(kind, describe(exc) if exc else "the server closed the connection")
        if self._alarm is not None:
            self._alarm.cancel()
        super().connection_lost(exc)

    def _end(self, kind: FailureKind = FailureKind.DISCONNECTED, detail: str = "") -> None:
        """Read no more of the response, and wake the caller. `kind` and `detail` count if the head did not arrive."""
        self._failure, self._reader = (kind, detail), None
        if not self._over.done():
            self._over.set_result(None)

    def _limit_time(self) -> None:
        """End the exchange if it took too long, or the server was silent for too long. Otherwise check again when that may
        be so. A timer that is rescheduled for each request, or whenever bytes arrive, would cost more. Both limits are the
        same for all requests of a connection, so the timer is never later than what the next request needs."""
        self._alarm, request = None, self._request
        if request is None:
            return
        now, silent_until = self._loop.time(), self._heard_at + self._read_timeout_s
        if now < min(request.until, silent_until):
            self._alarm = self._loop.call_at(min(request.until, silent_until), self._limit_time)
        elif self._reader is not None:
            self._is_time_over = True
            silent = f"silent for {self._read_timeout_s:g} s"
            self._end(FailureKind.TIMEOUT, silent if now < request.until else "the exchange took too long")

    def _truncated(self, reader: ResponseReader) -> str | None:
        """Why the body is incomplete, None if it is not."""
        if reader.is_too_long:
            return "length"
        if reader.is_whole:
            return None
        return "time" if self._is_time_over else "disconnect"


PROXY_SHARE = 0.5
"""Share of the time limit for a connection in which the proxy has to accept one. If it does not, the proxy is at fault, and
the site if the rest of the time is not enough."""


class GuardedConnector(TCPConnector):
    """aiohttp's connection pool behind the address policy. It keeps idle connections to at most `max_idle` origins, and at
    most `parallel` to each."""

    def __init__(
        self,
        policy: AddressPolicy,
        *,
        max_idle: int,
        parallel: int,
        max_head_bytes: int,
        read_timeout_s: float,
        tls: Callable[[], ssl.SSLContext],
        **options: Any,
    ) -> None:
        """`tls` returns the context for requests that have none. It is called when such a request connects over TLS."""
        super().__init__(socket_factory=self._make_socket, use_dns_cache=False, limit=0, **options)
        self._tls = tls
        self._policy = policy
        self._max_idle = max_idle
        self._parallel = parallel
        protocol: Callable[..., ResponseHandler] = GuardedProtocol
        self._factory = partial(protocol, self._loop, max_head_bytes, read_timeout_s, Rests())

    async def obtain(self, request: Request, timeout: ClientTimeout) -> Connection:
        """A connection for `request`, idle or new. Raises aiohttp's exceptions or FetchFailed."""
        return await self.connect(cast(ClientRequest, request), [], timeout)

    async def _wrap_create_connection(
        self, *args: Any, req: ClientRequest, addr_infos: list[Any], **options: Any
    ) -> tuple[Transport, ResponseHandler]:
        connecting_at = self._loop.time()
        # aiohttp would try all but the first address once more, and so on, until the list is empty.
        tried = addr_infos.copy()
        addr_infos.clear()
        transport, protocol = await super()._wrap_create_connection(*args, req=req, addr_infos=tried, **options)
        cast(GuardedProtocol, protocol).opened(cast(Request, req).asked_at, connecting_at)
        return transport, protocol

    async def _create_connection(
        self, req: ClientRequest, traces: list[Any], timeout: ClientTimeout
    ) -> ResponseHandler:
        request = cast(Request, req)
        if request.ssl is True and request.is_ssl():
            request = msgspec.structs.replace(request, ssl=self._tls())
        if request.handling is None or (proxy := request.handling.proxy) is None:
            return await super()._create_connection(cast(ClientRequest, request), traces, timeout)
        return await self._connect_through(proxy, request, timeout)

    async def _connect_through(self, proxy: Proxy, request: Request, timeout: ClientTimeout) -> GuardedProtocol:
        await self._judge_behind(proxy, request)
        host = request.connection_key.host
        tls = request.ssl if request.is_ssl() and request.ssl is not True else None
        to = Destination(host, request.port or 0, tls)
        connecting_at = self._loop.time()
        proxy_tls = self._tls() if proxy.scheme == "https" else None
        made = await open_through(proxy, proxy_tls, to, self._factory, (timeout.connect or 0) * PROXY_SHARE)
        protocol = cast(GuardedProtocol, made)
        protocol.opened(request.asked_at, connecting_at)
        return protocol

    async def _judge_behind(self, proxy: Proxy, request: Request) -> None:
        """Raise FetchFailed if the site of `request` is not allowed to be connected to, as far as this is known here."""
        host = request.connection_key.host
        reason = judge_address(host, self._policy)
        if reason == "not_an_address":
            if not proxy.looks_up:
                await self._resolver.resolve(host, request.port or 0)
        elif reason is not None:
            raise FetchFailed(FailureKind.FORBIDDEN_ADDRESS, f"{host} ({reason})")

    def keep_idle(self, parallel: int) -> None:
        """From now on, keep at most `parallel` idle connections to an origin."""
        self._parallel = parallel

    def _make_socket(self, addr_info: tuple[Any, ...]) -> socket.socket:
        """A socket, which aiohttp then connects to the address in `addr_info` and to no other."""
        family, kind, proto, _, peer = addr_info
        address = peer[0]
        if not isinstance(address, OperatorAddress):
            reason = judge_address(address, self._policy)
            if reason is not None:
                raise FetchFailed(FailureKind.FORBIDDEN_ADDRESS, f"{address} ({reason})")
        return socket.socket(family, kind, proto)

    def _release(self, key: Any, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        # A domain gets at most `parallel` requests at a time, so more idle connections to an origin would never be used.
        idle = self._conns.get(key)
        super()._release(key, protocol, should_close=should_close or (idle is not None and len(idle) >= self._parallel))
        if len(self._conns) > self._max_idle:
            oldest = next(iter(self._conns))
            for connection, _ in self._conns.pop(oldest):
                connection.close()
