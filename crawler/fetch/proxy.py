"""A proxy between the replica and sites, as the operator names it.

An HTTP or HTTPS proxy gets plain requests in the absolute form (RFC 9112 3.2.2), and opens a tunnel for https (CONNECT, RFC
9110 9.3.6). A SOCKS5 proxy (RFC 1928) opens a connection for both, to the name of the host.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from asyncio import Protocol, Transport
from base64 import b64encode
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import msgspec

from crawler.errors import FailureKind, FetchFailed, UserError
from crawler.fetch.response import describe
from crawler.fetch.tls import tls_in_words
from crawler.http_head import Secret

PORTS = {"http": 80, "https": 443, "socks5": 1080}
"""The default port of each kind of proxy."""

_NO_HOST = re.compile(r"[^!-~]")

_EXPECTED = "write it as http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT"


class Proxy(msgspec.Struct, frozen=True):
    """A proxy at `host` and `port`. `looks_up`: the proxy alone looks up the names of sites. `user`, `password`: empty if
    it asks for none."""

    scheme: str
    host: str
    port: int
    user: Secret
    password: Secret
    looks_up: bool = False

    @classmethod
    def parse(cls, url: str, looks_up: bool = False) -> Proxy:
        """Parse the URL of a proxy. Raises UserError, which does not repeat it, because it may have a password."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
            user, password = unquote(parts.username or ""), unquote(parts.password or "")
        except ValueError:
            raise UserError(f"is not the URL of a proxy: {_EXPECTED}") from None
        # curl's name for names that the proxy looks up
        scheme = "socks5" if parts.scheme == "socks5h" else parts.scheme
        has_more = parts.path not in ("", "/") or parts.query or parts.fragment
        if scheme not in PORTS or not host or _NO_HOST.search(host) or has_more:
            raise UserError(f"is not the URL of a proxy: {_EXPECTED}")
        if not (user + password).isprintable() or ":" in user:
            raise UserError("has a control character in the user name or password, or a : in the user name")
        return cls(scheme, host, port or PORTS[scheme], Secret(user), Secret(password), looks_up)

    def __str__(self) -> str:
        return f"the proxy {self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def forwards(self) -> bool:
        """Whether it reads plain http requests, and does not open a tunnel for them."""
        return self.scheme != "socks5"

    @property
    def key(self) -> tuple[str, int]:
        """What keeps its connections apart from others in aiohttp's pool."""
        return str(self), hash((self.user, self.password))

    @property
    def authorization(self) -> Secret:
        """The header line with which it is asked (RFC 9110 11.7.2), empty if it asks for no credentials."""
        if not self.user:
            return Secret("")
        encoded = b64encode(f"{self.user.text}:{self.password.text}".encode()).decode()
        return Secret(f"Proxy-Authorization: Basic {encoded}\r\n")


@lru_cache(maxsize=1_024)
def proxy_named(url: str) -> Proxy | None:
    """Return the proxy with `url`, None if it is empty. Raises UserError."""
    proxy = Proxy.parse(url) if url else None
    if proxy is not None and proxy.scheme == "socks5" and find_spec("python_socks") is None:
        raise UserError("a SOCKS proxy needs a package: pip install 'peercrawl[socks]'")
    return proxy


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
    """Await the connection `made`. Raises FetchFailed, of a kind that counts against the site."""
    try:
        return await made
    except ssl.SSLError as error:
        raise FetchFailed(FailureKind.TLS, tls_in_words(error)) from error
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
