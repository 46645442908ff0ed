"""What we hang into aiohttp's client: where it may connect, when we may write, and what exactly came back.

aiohttp's connector (pool, addresses, TLS), its protocol of one connection and its parser in C do the work. Its session,
request and response objects are left out: redirects, cookies, proxies, bodies and middlewares are nothing that this
crawler wants. A fetch of a page of 40 KB over loopback takes 0.55 of the CPU of a bare `ClientSession.get` without them,
1.3 of it with them and the guards below.

- `GuardedConnector` makes a socket only for an address that the policy allows, at the last moment before it
  is connected, and bounds the idle connections (aiohttp bounds only those in use).
- `Flight` is one request, in the shape in which the connector wants it, and what became of it.
- `GuardedProtocol` asks whether the lease still holds after a connection has been obtained and right before
  the request is written. It keeps the response head as it was received, bounds its size as a whole, and hands the head
  to aiohttp's parser apart from what follows. Fed in one piece, a good head is lost when the bytes behind it
  are malformed (a wrong Content-Length suffices); and a body that breaks off in mid-chunk is waited for to
  the end of the time limit. Both are common on the real web, and in both the page is there.

A caller sleeps from its request to the end of the response: it is woken when the body is whole, when so much of it is
there that it should be taken (512 KiB), or when no more will come.

Rules for editors: some hooks are private to aiohttp (`_factory`, `_release`, `_conns`, `_read_nowait`,
`_create_connection`, `_wrap_create_connection`), and so is what a connector asks of a request. The tests in tests/fetch
hold what they are there for against real sockets, so a release that breaks one is seen.
"""

from __future__ import annotations

import re
import socket
from asyncio import BaseTransport, Future, TimerHandle, Transport
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

from aiohttp import ClientRequest, ClientTimeout, TCPConnector
from aiohttp.client_exceptions import ClientConnectionError
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http_exceptions import BadStatusLine
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import StreamReader

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.address_policy import AddressPolicy, OperatorAddress, judge_address
from crawler.fetch.request import Origin
from crawler.page import Phases

_HEAD_END = re.compile(rb"\n\r?\n")
"""RFC 9112 2.2: a recipient may take a bare LF for a line end."""


class HeadTooLarge(ClientConnectionError):
    """Raised when a response head exceeds the limit; the fetcher translates it."""


class Flight:
    """One request under way: what it may do, and what became of it. Times are of the event loop. `until`: when it has to
    be over. `deadline` is asked once, right before the request is written; True: it must not be.
    """

    __slots__ = (
        "connecting_at",
        "deadline",
        "first_byte_at",
        "max_body_bytes",
        "opening_at",
        "origin",
        "phases",
        "request_head",
        "response_head",
        "reused",
        "sent_at",
        "until",
    )

    # What else aiohttp's connector asks of a request. `True`: its own TLS context.
    ssl = True
    proxy = None
    server_hostname = None

    def __init__(
        self,
        origin: Origin,
        request_head: bytes,
        deadline: Callable[[], bool] | None,
        until: float,
        max_body_bytes: int,
    ) -> None:
        self.origin = origin
        self.request_head = request_head
        self.deadline = deadline
        self.until = until
        self.max_body_bytes = max_body_bytes
        self.response_head = b""
        self.opening_at = 0.0  # when a new connection was asked for, and its host's addresses with it
        self.connecting_at = 0.0  # when they were known
        self.phases: Phases | None = None  # of a connection that was opened for this request
        self.reused = False
        self.sent_at: float | None = None  # None: nothing was sent
        self.first_byte_at = 0.0

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
    """What came. `truncated`: what cut the body off, as one of the words of WARC 1.1 section 5.13."""

    message: RawResponseMessage
    body: list[bytes]  # in pieces
    truncated: str | None


class GuardedProtocol(ResponseHandler):
    """aiohttp's protocol of one connection, for one request at a time: `send`, then `receive`."""

    def __init__(self, loop: Any, parsing: dict[str, Any], max_head_bytes: int, read_timeout_s: float) -> None:
        """`parsing`: what aiohttp's parser is told. `read_timeout_s` bounds the silence before and between bytes."""
        super().__init__(loop)
        self._parsing = parsing
        self._max_head_bytes = max_head_bytes
        self._read_timeout_s = read_timeout_s
        self._flight: Flight | None = None
        self._flights = 0  # requests written on this connection
        self._head_is_open = False
        self._response: tuple[RawResponseMessage, StreamReader] | None = None
        self._failure: BaseException | None = None  # the first one, which tells why
        self._news: Future[None] | None = None  # the caller waits for it
        self._heard_at = 0.0
        self._alarm: TimerHandle | None = None
        self._connected_at = loop.time()  # the loop makes the protocol when TCP stands
        self._ready_at = self._connected_at
        self.address = ""
        self.tls: str | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        self._ready_at = self._loop.time()  # with TLS the loop tells after the handshake
        peer = transport.get_extra_info("peername")  # None if the peer has gone again
        self.address = peer[0] if peer else ""
        cipher = transport.get_extra_info("cipher")
        self.tls = f"{cipher[0]} {cipher[1]}" if cipher else None
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def send(self, flight: Flight) -> None:
        """Write the request. Raises FetchFailed, with nothing written, when it must not be."""
        transport = self.transport
        flight.reused = self._flights > 0
        if transport is None or self.should_close:
            # Bytes that nobody asked for arrived on an idle connection: they must not pass for our response.
            raise FetchFailed(FailureKind.STALE_CONNECTION, "the idle connection was no longer clean")
        self.set_response_params(**self._parsing)
        if flight.deadline is not None and flight.deadline():
            raise FetchFailed(FailureKind.LEASE_EXPIRED, "the lease ended before the request was written")
        if not flight.reused:
            flight.phases = Phases(
                dns_s=flight.connecting_at - flight.opening_at,
                connect_s=self._connected_at - flight.connecting_at,
                tls_s=self._ready_at - self._connected_at if self.tls else None,
            )
        self._flight, self._flights = flight, self._flights + 1
        self._head_is_open, self._response, self._failure = True, None, None
        self._news = self._loop.create_future()
        flight.sent_at = self._heard_at = self._loop.time()
        self._set_alarm(flight)
        transport.write(flight.request_head)

    async def receive(self) -> Response:
        """The response to the request that was sent. Raises what kept its head from coming."""
        assert self._flight is not None
        room = self._flight.max_body_bytes
        body: list[bytes] = []
        try:
            while True:
                await cast(Future[None], self._news)
                if self._response is not None:
                    message, payload = self._response
                    body.append(_taken_from(payload))
                    room -= len(body[-1])
                    if room < 0:
                        body[-1] = body[-1][:room]
                        return Response(message, body, "length")
                    if payload.is_eof():
                        return Response(message, body, None)
                    if self._failure is not None:
                        late = isinstance(self._failure, TimeoutError)
                        return Response(message, body, "time" if late else "disconnect")
                elif self._failure is not None:
                    raise self._failure
                self._news = self._loop.create_future()
        finally:
            self._flight = self._response = self._failure = self._news = None

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        flight = self._flight
        if flight is not None:
            while self._head_is_open and data:
                data = self._receive_head(data, flight)
        if data:
            super().data_received(data)
        if flight is not None and self._response is not None and self._response[1].total_bytes > flight.max_body_bytes:
            self._wake()

    def _receive_head(self, data: bytes, flight: Flight) -> bytes:
        """Pass on what belongs to the head, return what follows it."""
        before = len(flight.response_head)
        head = flight.response_head + data if before else data
        end = _HEAD_END.search(head, max(0, before - 2))
        size = end.end() if end else len(head)
        if size > self._max_head_bytes:
            self._head_is_open = False
            self.set_exception(HeadTooLarge(f"more than {self._max_head_bytes} bytes of header"))
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

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """A head has been parsed. One that nobody asked for stays with aiohttp, to which the connection is unclean."""
        message, payload = data
        flight = self._flight
        if flight is None or self._response is not None:
            super().feed_data(data, size)
        elif (
            message.code < 100
        ):  # RFC 9110 15: no status code, and what would come after it would be waited for in vain
            self.set_exception(BadStatusLine(f"status {message.code:03}"))
            self.abort()
        elif message.code >= 200 or message.code == 101:  # else an interim response
            flight.first_byte_at = self._loop.time()
            self._response = data
            payload.on_eof(self._wake)

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        if self._failure is None:
            self._failure = exc
        super().set_exception(exc, *cause)
        self._wake()

    def pause_reading(self) -> None:
        """So much of the body is there that it should be taken. That happens before the next bytes are read."""
        self._wake()

    def resume_reading(self, resume_parser: bool = True) -> None: ...

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _set_alarm(self, flight: Flight) -> None:
        """See to it that the caller is woken when the response is late. An alarm that stands rings early enough, as a
        rule, and is set again when it rings too early: a kept-alive connection needs one in a while, not one a segment.
        """
        at = min(flight.until, self._heard_at + self._read_timeout_s)
        if self._alarm is None or self._alarm.when() > at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._flight is None:
            return
        now = self._loop.time()
        if now >= self._flight.until:
            self.set_exception(TimeoutError("the exchange took too long"))
        elif now >= self._heard_at + self._read_timeout_s:
            self.set_exception(TimeoutError(f"silent for {self._read_timeout_s:g} s"))
        else:
            self._set_alarm(self._flight)


def _taken_from(payload: StreamReader) -> bytes:
    # What had come before an error, and was not yet taken, aiohttp holds back behind it.
    return payload.read_nowait() if payload.exception() is None else payload._read_nowait(-1)


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
        parsing = {
            "read_until_eof": True,
            "auto_decompress": False,
            # One line may fill the whole head: the limit that counts is GuardedProtocol's.
            "max_line_size": max_head_bytes,
            "max_field_size": max_head_bytes,
            "max_headers": max_head_bytes // len(b"a:\r\n"),
        }
        protocol: Callable[..., ResponseHandler] = GuardedProtocol
        self._factory = partial(protocol, self._loop, parsing, max_head_bytes, read_timeout_s)

    async def obtain(self, flight: Flight, timeout: ClientTimeout) -> Connection:
        """A connection for `flight`, an idle one or a new one. Raises as aiohttp does, or FetchFailed."""
        return await self.connect(cast(ClientRequest, flight), [], timeout)

    async def _create_connection(self, req: ClientRequest, *others: Any, **options: Any) -> ResponseHandler:
        cast(Flight, req).opening_at = self._loop.time()
        return await super()._create_connection(req, *others, **options)

    async def _wrap_create_connection(
        self, *args: Any, req: ClientRequest, **options: Any
    ) -> tuple[Transport, ResponseHandler]:
        cast(Flight, req).connecting_at = self._loop.time()
        return await super()._wrap_create_connection(*args, req=req, **options)

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
