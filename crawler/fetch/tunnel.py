"""Opens connections to sites through a proxy.

A failure of the proxy itself is `FailureKind.PROXY`: it cannot be reached, breaks off, or does not accept the credentials.
It says nothing about the site. What the proxy reports of the site (a status such as 502, a reply code of SOCKS) counts as a
failure of the site.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from asyncio import Protocol, Transport
from collections.abc import Callable
from typing import Any, cast

import msgspec

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.proxy import Proxy
from crawler.fetch.response import describe

MAX_ANSWER_BYTES = 16 * 1024
"""Of the head of an answer to CONNECT."""

_ANSWER = re.compile(rb"HTTP/1\.[01] (\d{3})\b[^\n]*\n(?:[^\n]*\n)*?\r?\n")

_OF_THE_PROXY = frozenset({401, 402, 407, 429})
"""Statuses with which a proxy refuses its client, and not the site: credentials, payment, too many requests."""

_SOCKS_KINDS = {5: FailureKind.REFUSED}
"""RFC 1928 6. The other reply codes are about the site as well, but less clear."""


class Destination(msgspec.Struct, frozen=True):
    """The site that a tunnel leads to. `tls`: None for plain http."""

    host: str
    port: int
    tls: ssl.SSLContext | None

    @property
    def server_name(self) -> str | None:
        """The name in the certificate. It has no final dot."""
        return self.host.rstrip(".") if self.tls else None

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def open_through(
    proxy: Proxy, proxy_tls: ssl.SSLContext | None, to: Destination, factory: Callable[[], Protocol], limit_s: float
) -> Protocol:
    """Connect a protocol, which `factory` makes, to the site `to`, or to the `proxy` if that forwards plain requests.
    `limit_s`: within which the proxy has to accept the connection. Raises FetchFailed, or TimeoutError as its caller asks.
    """
    if not proxy.forwards:
        return await _secured(await _connected_by_socks(proxy, to, limit_s), to, factory)
    if to.tls is None:
        return (await _reached(proxy, proxy_tls, factory, limit_s))[1]
    transport, connect = await _reached(proxy, proxy_tls, lambda: _Connect(proxy, to), limit_s)
    try:
        await cast(_Connect, connect).accepted
        protocol = factory()
        over_tls = await _of_the_site(
            asyncio.get_running_loop().start_tls(transport, protocol, to.tls, server_hostname=to.server_name)
        )
    except BaseException:
        transport.abort()
        raise
    protocol.connection_made(over_tls)
    return protocol


async def _reached(
    proxy: Proxy, tls: ssl.SSLContext | None, factory: Callable[[], Protocol], limit_s: float
) -> tuple[Transport, Protocol]:
    """Connect a protocol to the proxy. The system looks up its name, as for other services of the operator."""
    name = proxy.host if tls else None
    try:
        async with asyncio.timeout(limit_s):
            return await asyncio.get_running_loop().create_connection(
                factory, proxy.host, proxy.port, ssl=tls, server_hostname=name, happy_eyeballs_delay=0.25
            )
    except TimeoutError:
        raise FetchFailed(FailureKind.PROXY, f"{proxy} did not accept a connection within {limit_s:g} s") from None
    except OSError as error:
        raise FetchFailed(FailureKind.PROXY, f"{proxy}: {describe(error)}") from error


async def _of_the_site(made: Any) -> Any:
    """Await `made`. Raises FetchFailed for a failure of the site."""
    try:
        return await made
    except ssl.SSLError as error:
        raise FetchFailed(FailureKind.TLS, describe(error)) from error
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise
        raise FetchFailed(FailureKind.DISCONNECTED, describe(error)) from error


async def _secured(sock: socket.socket, to: Destination, factory: Callable[[], Protocol]) -> Protocol:
    loop = asyncio.get_running_loop()
    made = loop.create_connection(factory, sock=sock, ssl=to.tls, server_hostname=to.server_name)
    _, protocol = await _of_the_site(made)
    return cast(Protocol, protocol)


async def _connected_by_socks(proxy: Proxy, to: Destination, limit_s: float) -> socket.socket:
    """Return a socket that the SOCKS5 proxy has connected to the site."""
    # An optional package.
    from python_socks import ProxyConnectionError, ProxyError, ProxyTimeoutError, ProxyType  # noqa: PLC0415
    from python_socks.async_.asyncio import Proxy as SocksProxy  # noqa: PLC0415

    user, password = (proxy.user.text, proxy.password.text) if proxy.user else (None, None)
    socks = SocksProxy(ProxyType.SOCKS5, proxy.host, proxy.port, user, password, rdns=True)
    try:
        connected: socket.socket = await socks.connect(to.host, to.port, timeout=2 * limit_s)
    except ProxyConnectionError as error:
        raise FetchFailed(FailureKind.PROXY, f"{proxy}: {describe(error)}") from error
    except ProxyTimeoutError as error:
        raise FetchFailed(FailureKind.CONNECT_TIMEOUT, f"{proxy} opened no connection in time") from error
    except ProxyError as error:
        said = f"{proxy} says: {describe(error)}"
        if error.error_code is None:
            raise FetchFailed(FailureKind.PROXY, said) from error
        raise FetchFailed(_SOCKS_KINDS.get(error.error_code, FailureKind.UNREACHABLE), said) from error
    except OSError as error:
        raise FetchFailed(FailureKind.PROXY, f"{proxy}: {describe(error)}") from error
    return connected


class _Connect(Protocol):
    """Asks a proxy for a tunnel. `accepted` ends when there is one, or with FetchFailed."""

    def __init__(self, proxy: Proxy, to: Destination) -> None:
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._proxy = proxy
        self._to = to
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        authority, fields = self._to.authority, self._proxy.authorization.text
        head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n"
        cast(Transport, transport).write(head.encode())

    def data_received(self, data: bytes) -> None:
        self._held += data
        answer = _ANSWER.match(self._held)
        if answer is None:
            if len(self._held) > MAX_ANSWER_BYTES or not b"HTTP/1.".startswith(self._held[:7]):
                self._refuse(FailureKind.PROXY, "does not answer in HTTP/1")
            return
        status = int(answer[1])
        if status // 100 == 2:
            # TLS begins with the client. Whatever came before is not of the site.
            if answer.end() < len(self._held):
                self._refuse(FailureKind.PROXY, "sent bytes before the tunnel was used")
            elif not self.accepted.done():
                self.accepted.set_result(None)
            return
        kind = FailureKind.PROXY if status in _OF_THE_PROXY else FailureKind.UNREACHABLE
        self._refuse(kind, f"answered CONNECT with status {status}")

    def connection_lost(self, exc: BaseException | None) -> None:
        self._refuse(FailureKind.PROXY, "closed the connection before it answered CONNECT")

    def _refuse(self, kind: FailureKind, detail: str) -> None:
        if not self.accepted.done():
            self.accepted.set_exception(FetchFailed(kind, f"{self._proxy} {detail}"))
