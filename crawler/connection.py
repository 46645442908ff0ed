"""What we hang into aiohttp's client: where it may connect, when it may write, and what exactly came back.

Each piece subclasses one of aiohttp's own:

- `GuardedConnector` makes a socket only for an address that the policy allows, at the last moment before it
  is connected, and bounds the idle connections (aiohttp bounds only those in use).
- `GuardedRequest` asks whether the lease still holds after a connection has been obtained and right before
  the request is written, and notes what was written, when, and to whom.
- `HeadKeeper` keeps the response head as it was received, bounds its size as a whole, and hands the head to
  aiohttp's parser apart from what follows. Fed in one piece, a good head is lost when the octets behind it
  are malformed (a wrong Content-Length suffices); and a body that breaks off in mid-chunk is waited for to
  the end of the time limit. Both are common on the real web, and in both the page is there.

Rules for editors: a `Flight` is all that these share with the fetcher, one for each request. Some hooks are
private to aiohttp (`_factory`, `_release`, `_conns`, `_payload`, `_create_connection`, `_wrap_create_connection`);
tests/crawler/test_fetch*.py hold what they are there for against real sockets, so a release that breaks one is seen.
"""

from __future__ import annotations

import re
import socket
from asyncio import BaseTransport, Transport
from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp import ClientRequest, ClientResponse, TCPConnector
from aiohttp.client_exceptions import ClientConnectionError
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

from crawler.addresses import AddressPolicy, OperatorAddress, judge_address
from crawler.errors import FailureKind, FetchFailed
from crawler.page import Phases

_HEAD_END = re.compile(rb"\n\r?\n")
"""RFC 9112 2.2: a recipient may take a bare LF for a line end."""


class HeadTooLarge(ClientConnectionError):
    """Raised into a response whose head exceeds the limit; the fetcher translates it."""


class Flight:
    """One request under way: what it may do, and what became of it. Times are of the clock that was handed
    in.
    """

    __slots__ = (
        "_monotonic",
        "_wall",
        "address",
        "connecting_at",
        "deadline",
        "opening_at",
        "phases",
        "request_head",
        "response_head",
        "reused",
        "sent_at",
        "started_at",
        "tls",
    )

    def __init__(
        self, deadline: Callable[[], bool] | None, monotonic: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self.deadline = deadline
        self._monotonic = monotonic
        self._wall = wall
        self.started_at = 0.0  # seconds since 1970 when the request was written
        self.sent_at: float | None = None  # monotonic seconds when it was written; None: nothing was sent
        self.reused = False
        self.address = ""
        self.tls: str | None = None
        self.request_head = b""
        self.response_head = b""
        self.opening_at = 0.0  # loop time when a new connection was asked for, and its host's addresses with it
        self.connecting_at = 0.0  # loop time when they were known
        self.phases: Phases | None = None

    def elapsed(self) -> float:
        """Seconds since the request was written."""
        return 0.0 if self.sent_at is None else self._monotonic() - self.sent_at

    def take_off(self, protocol: HeadKeeper) -> None:
        """The last look before the request is written on `protocol`. Raises FetchFailed to prevent it."""
        transport = protocol.transport
        self.reused = protocol.flights > 0
        if transport is None or protocol.should_close:
            # Octets that nobody asked for arrived on an idle connection: they must not pass for our response.
            raise FetchFailed(FailureKind.STALE_CONNECTION, "the idle connection was no longer clean")
        if self.deadline is not None and self.deadline():
            raise FetchFailed(FailureKind.LEASE_EXPIRED, "the lease ended before the request was written")
        if not self.reused and self.opening_at:
            self.phases = self._opened(protocol)
        protocol.flights += 1
        protocol.flight = self
        self.address = transport.get_extra_info("peername")[0]
        cipher = transport.get_extra_info("cipher")
        self.tls = f"{cipher[0]} {cipher[1]}" if cipher else None
        self.started_at = self._wall()
        self.sent_at = self._monotonic()

    def _opened(self, protocol: HeadKeeper) -> Phases:
        return Phases(
            dns_s=self.connecting_at - self.opening_at,
            connect_s=protocol.connected_at - self.connecting_at,
            tls_s=protocol.ready_at - protocol.connected_at if protocol.is_tls else None,
        )


class HeadKeeper(ResponseHandler):
    """aiohttp's protocol of one connection, with an eye on the response head."""

    def __init__(self, loop: Any, max_head_bytes: int) -> None:
        super().__init__(loop)
        self._max_head_bytes = max_head_bytes
        self._head_is_open = False
        self.flight: Flight | None = None
        self.flights = 0  # requests written on this connection
        self.connected_at = loop.time()  # the loop makes the protocol when TCP stands
        self.ready_at = self.connected_at
        self.is_tls = False

    def connection_made(self, transport: BaseTransport) -> None:
        self.ready_at = self._loop.time()  # with TLS the loop tells after the handshake
        self.is_tls = transport.get_extra_info("sslcontext") is not None
        super().connection_made(transport)

    def set_response_params(self, **params: Any) -> None:
        self.flight = None
        self._head_is_open = True
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        while self._head_is_open and data and self.flight is not None:
            data = self._receive_head(data, self.flight)
        if data:
            super().data_received(data)

    def _receive_head(self, data: bytes, flight: Flight) -> bytes:
        """Pass on what belongs to the head, return what follows it."""
        before = len(flight.response_head)
        head = flight.response_head + data if before else data
        end = _HEAD_END.search(head, max(0, before - 2))
        size = end.end() if end else len(head)
        if size > self._max_head_bytes:
            self._head_is_open = False
            self.set_exception(HeadTooLarge(f"more than {self._max_head_bytes} octets of header"))
            self.abort()
            return b""
        flight.response_head = head[:size]
        super().data_received(data[: size - before])
        if end is None:
            return b""
        if head[9:10] == b"1" and head[9:12] != b"101":
            flight.response_head = b""  # RFC 9110 15.2: an interim response, another head follows
        else:
            self._head_is_open = False
        return data[size - before :]

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Tell the reader of the body too: when the parser gives up on one, nobody else does."""
        payload = self._payload
        super().set_exception(exc, *cause)
        if payload is not None and not payload.is_eof() and payload.exception() is None:
            payload.set_exception(exc, *cause)


class GuardedRequest(ClientRequest):
    """aiohttp's request. `flight` is set by the fetcher before a connection is asked for."""

    flight: Flight

    async def send(self, conn: Connection) -> ClientResponse:
        protocol = conn.protocol
        assert isinstance(protocol, HeadKeeper)
        self.flight.take_off(protocol)
        response = await super().send(conn)
        fields = "".join([f"{name}: {value}\r\n" for name, value in self.headers.items()])
        head = f"{self.method} {self.url.raw_path_qs} HTTP/1.1\r\n{fields}\r\n"
        self.flight.request_head = head.encode()
        return response


class GuardedConnector(TCPConnector):
    """aiohttp's connection pool behind the address policy. `max_idle`: origins with idle connections at most; `parallel`:
    those of one origin."""

    def __init__(
        self, policy: AddressPolicy, *, max_idle: int, parallel: int, max_head_bytes: int, **options: Any
    ) -> None:
        super().__init__(socket_factory=self._make_socket, use_dns_cache=False, limit=0, **options)
        self._policy = policy
        self._max_idle = max_idle
        self.parallel = parallel
        keeper: Callable[..., ResponseHandler] = HeadKeeper
        self._factory = partial(keeper, self._loop, max_head_bytes)

    async def _create_connection(self, req: ClientRequest, *others: Any, **options: Any) -> ResponseHandler:
        assert isinstance(req, GuardedRequest)
        req.flight.opening_at = self._loop.time()
        return await super()._create_connection(req, *others, **options)

    async def _wrap_create_connection(
        self, *args: Any, req: ClientRequest, **options: Any
    ) -> tuple[Transport, ResponseHandler]:
        assert isinstance(req, GuardedRequest)
        req.flight.connecting_at = self._loop.time()
        return await super()._wrap_create_connection(*args, req=req, **options)

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
        super()._release(key, protocol, should_close=should_close or (idle is not None and len(idle) >= self.parallel))
        if len(self._conns) > self._max_idle:
            oldest = next(iter(self._conns))
            for connection, _ in self._conns.pop(oldest):
                connection.close()
