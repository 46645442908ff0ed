"""Adds three guards to aiohttp's client: where it may connect, when it may write, and how much it may receive.

aiohttp's connector provides the pool, the addresses and TLS. Its session, request and response objects are not used:
this crawler has no use for redirects, cookies, proxies, decoded bodies and middlewares.

- `GuardedConnector` makes a socket only for an address that the policy allows, immediately before it is connected. It
  also limits the idle connections (aiohttp limits only those in use).
- `GuardedProtocol` is one connection, for one request at a time. It asks whether the lease still holds immediately before
  it writes the request. `response.ResponseReader` reads the response. The caller sleeps until the response is over. Bytes
  that arrive when nothing was requested close the connection and are not kept.
- `Request` is what the connector and the protocol need to know of a request.

Rules for editors: some hooks are private to aiohttp (`_factory`, `_release`, `_conns`, `_wrap_create_connection`), and so
is what a connector reads of a request. The tests in tests/fetch check the result with real sockets, so a release of
aiohttp that breaks a hook is noticed.
"""

from __future__ import annotations

import socket
from asyncio import AbstractEventLoop, BaseTransport, Future, Timeout, Transport, timeout_at
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

from aiohttp import ClientRequest, ClientTimeout, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http_parser import RawResponseMessage

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.address_policy import AddressPolicy, OperatorAddress, judge_address
from crawler.fetch.request import Origin
from crawler.fetch.response import ResponseReader, describe
from crawler.page import Phases


@dataclass(frozen=True, slots=True)
class Request:
    """A request, with what aiohttp's connector reads of one. `asked_at` and `until`, when it must be over, are event loop
    times. `deadline` is called once, immediately before the request is written; if it returns True, nothing is written.
    """

    origin: Origin
    head: bytes
    deadline: Callable[[], bool] | None
    asked_at: float
    until: float
    max_body_bytes: int

    ssl: ClassVar = True  # the TLS context of the connector
    proxy: ClassVar = None
    server_hostname: ClassVar = None

    @property
    def connection_key(self) -> Any:
        return self.origin.key

    @property
    def url(self) -> Any:
        return self.origin.url

    @property
    def port(self) -> int | None:
        return self.origin.key.port

    def is_ssl(self) -> bool:
        return self.origin.key.is_ssl


class Response(NamedTuple):
    """What was received. `truncated`: why the body is incomplete, in the words of WARC 1.1 section 5.13. Times are in
    seconds since the request was written. `phases` is None if the connection was reused."""

    message: RawResponseMessage
    head: bytes
    body: bytes
    truncated: str | None
    first_byte_s: float
    elapsed_s: float
    phases: Phases | None


class GuardedProtocol(ResponseHandler):
    """One connection, for one request at a time: `send`, then `receive`."""

    def __init__(self, loop: AbstractEventLoop, max_head_bytes: int, read_timeout_s: float) -> None:
        """`read_timeout_s` limits the silence before and between bytes."""
        super().__init__(loop)
        self._max_head_bytes = max_head_bytes
        self._read_timeout_s = read_timeout_s
        self._request: Request | None = None
        self._reader: ResponseReader | None = None  # None: nothing is expected
        self._failure: tuple[FailureKind, str] = (FailureKind.DISCONNECTED, "")
        self._over: Future[None] = loop.create_future()
        self._timeout: Timeout | None = None
        self._sent_at = self._head_at = 0.0
        self._has_received = self._is_reused = False
        self._phases: Phases | None = None  # until the first response
        self._connected_at = loop.time()  # the loop makes the protocol once TCP is connected
        self._ready_at = self._connected_at
        self.address = ""
        self.tls: str | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        self._ready_at = self._loop.time()  # over TLS, this is called after the handshake
        peer = transport.get_extra_info("peername")  # None if the peer has already gone
        self.address = peer[0] if peer else ""
        cipher = transport.get_extra_info("cipher")
        self.tls = f"{cipher[0]} {cipher[1]}" if cipher else None
        super().connection_made(transport)

    def opened(self, asked_at: float, connecting_at: float) -> None:
        """The connection was asked for at `asked_at`, and its address was known at `connecting_at`."""
        tls_s = self._ready_at - self._connected_at if self.tls else None
        self._phases = Phases(connecting_at - asked_at, self._connected_at - connecting_at, tls_s)

    def send(self, request: Request) -> None:
        """Write the request. Raises FetchFailed, with nothing written, if that is not allowed."""
        if self.transport is None or self.should_close:
            raise FetchFailed(FailureKind.STALE_CONNECTION, "the idle connection was closed, or had received bytes")
        if request.deadline is not None and request.deadline():
            raise FetchFailed(FailureKind.LEASE_EXPIRED, "the lease ended before the request was written")
        self._request = request
        self._reader = ResponseReader(self._max_head_bytes, request.max_body_bytes)
        self._has_received = False
        self._over = self._loop.create_future()
        self._sent_at = self._head_at = self._loop.time()
        self.transport.write(request.head)

    async def receive(self) -> Response:
        """The response to the request that was sent. Raises FetchFailed if its head did not arrive."""
        request, reader = self._request, self._reader
        assert request is not None
        assert reader is not None
        truncated = "disconnect"
        try:
            async with timeout_at(self._next_timeout(request)) as self._timeout:
                await self._over
        except TimeoutError:
            if self._reader is not None:  # else the response ended in the same turn of the loop
                truncated = "time"
                silent = self._loop.time() < request.until
                detail = f"silent for {self._read_timeout_s:g} s" if silent else "the exchange took too long"
                self._failure = (FailureKind.TIMEOUT, detail)
        finally:
            self._request = self._reader = self._timeout = None
        if not reader.is_clean:
            self.force_close()
        if reader.message is None:
            raise FetchFailed(*self._failure, request_sent=True)
        phases, self._phases, self._is_reused = self._phases, None, True
        return Response(
            reader.message,
            reader.head,
            reader.body,
            "length" if reader.is_too_long else None if reader.is_whole else truncated,
            self._head_at - self._sent_at,
            self._loop.time() - self._sent_at,
            phases,
        )

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader is None or self._request is None:  # nobody asked for this
            self._give_up()
            return
        self._has_received = True
        is_head_due = reader.message is None
        try:
            is_over = reader.feed(data)
        except FetchFailed as failure:
            self._end(failure.kind, failure.detail)
            self._give_up()
            return
        if is_head_due:
            self._head_at = self._loop.time()
        if is_over:
            self._end()
        elif self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(self._next_timeout(self._request))

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._reader is not None:
            if exc is None:
                self._reader.close()
            is_stale = self._is_reused and not self._has_received
            kind = FailureKind.STALE_CONNECTION if is_stale else FailureKind.DISCONNECTED
            detail = describe(exc) if exc else "the server closed the connection"
            self._end(kind, detail)
        super().connection_lost(exc)

    def _end(self, kind: FailureKind = FailureKind.DISCONNECTED, detail: str = "") -> None:
        """Read no more of the response, and wake the caller. `kind` and `detail` count if the head did not arrive."""
        self._failure, self._reader = (kind, detail), None
        if not self._over.done():
            self._over.set_result(None)

    def _give_up(self) -> None:
        self.force_close()
        self.abort()

    def _next_timeout(self, request: Request) -> float:
        return min(request.until, self._loop.time() + self._read_timeout_s)


class GuardedConnector(TCPConnector):
    """aiohttp's connection pool behind the address policy. `max_idle`: origins with idle connections at most; `parallel`:
    those of one origin."""

    def __init__(
        self,
        policy: AddressPolicy,
        *,
        max_idle: int,
        parallel: int,
        max_head_bytes: int,
        read_timeout_s: float,
        **options: Any,
    ) -> None:
        super().__init__(socket_factory=self._make_socket, use_dns_cache=False, limit=0, **options)
        self._policy = policy
        self._max_idle = max_idle
        self._parallel = parallel
        protocol: Callable[..., ResponseHandler] = GuardedProtocol
        self._factory = partial(protocol, self._loop, max_head_bytes, read_timeout_s)

    async def obtain(self, request: Request, timeout: ClientTimeout) -> Connection:
        """A connection for `request`, idle or new. Raises aiohttp's exceptions or FetchFailed."""
        return await self.connect(cast(ClientRequest, request), [], timeout)

    async def _wrap_create_connection(
        self, *args: Any, req: ClientRequest, **options: Any
    ) -> tuple[Transport, ResponseHandler]:
        connecting_at = self._loop.time()
        transport, protocol = await super()._wrap_create_connection(*args, req=req, **options)
        cast(GuardedProtocol, protocol).opened(cast(Request, req).asked_at, connecting_at)
        return transport, protocol

    def keep_idle(self, parallel: int) -> None:
        """So many idle connections an origin are kept from now on."""
        self._parallel = parallel

    def _make_socket(self, addr_info: tuple[Any, ...]) -> socket.socket:
        """A socket that is about to be connected to the address in `addr_info`, and to no other."""
        family, kind, proto, _, peer = addr_info
        address = peer[0]
        if not isinstance(address, OperatorAddress):
            reason = judge_address(address, self._policy)
            if reason is not None:
                raise FetchFailed(FailureKind.FORBIDDEN_ADDRESS, f"{address} ({reason})")
        return socket.socket(family, kind, proto)

    def _release(self, key: Any, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        # A domain has so many requests at a time, and one more idle connection to an origin would only take a
        # descriptor.
        idle = self._conns.get(key)
        super()._release(key, protocol, should_close=should_close or (idle is not None and len(idle) >= self._parallel))
        if len(self._conns) > self._max_idle:
            oldest = next(iter(self._conns))
            for connection, _ in self._conns.pop(oldest):
                connection.close()
