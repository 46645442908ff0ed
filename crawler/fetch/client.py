"""One HTTP exchange: a URL in, an `Exchange` out, or `FetchFailed` with the reason.

Each fetch sends exactly one request. It follows no redirect, repeats no request and decompresses nothing. It keeps cookies,
sends other fields and uses a proxy only as the operator's rules say (`request_rules`).
Everything that a server controls has a limit (docs/reference/limits.md). If a limit is exceeded before the head of the
response is complete, the fetch fails. After that, the exchange is returned, and `Exchange.truncated` says why its body is
incomplete.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import ssl
import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import Protocol, cast
from urllib.parse import unquote

import aiohttp
import msgspec

from crawler.errors import FailureKind, FetchFailed, is_machines_fault
from crawler.fetch.address_policy import AddressPolicy, HostMap
from crawler.fetch.connection import GuardedConnector, GuardedProtocol, Request
from crawler.fetch.cookies import Cookies
from crawler.fetch.proxy import Proxy
from crawler.fetch.request_rules import (
    HIDDEN,
    Handling,
    Origin,
    ProxyAnswers,
    RequestRule,
    RequestRules,
    Signer,
    header_lines,
)
from crawler.fetch.resolver import DnsLookup, HostLookup, Resolver, ResolverSettings, has_route
from crawler.fetch.response import describe
from crawler.fetch.tls import (
    MAX_CERTIFICATE,
    Issuers,
    lacks_roots,
    store_in_words,
    system_context,
    tls_in_words,
    unverified,
    weak_context,
)
from crawler.http_head import redacted
from crawler.logs import log
from crawler.page import Exchange
from crawler.processes import IDLE_CONNECTIONS, is_out_of_files
from frontier.clock import Clock
from frontier.domains import host_of
from frontier.errors import BadUrl
from frontier.urls import canonicalize
from politeness.rate_limit import network_of

_ACCEPTED = (
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.5"),
    ("Accept-Language", "en,*;q=0.5"),
    ("Accept-Encoding", "gzip, deflate, br, zstd"),
)

_CREDENTIALS = frozenset({b"authorization", b"cookie"})
_NAME_OF_SECRET = re.compile("csrf|xsrf|token|session|auth")
"""Fields of a request whose values no record has."""

_NOT_REPEATED = frozenset({"POST", "PATCH"})
"""Methods whose requests are sent on new connections: if the server closes an idle one at the same moment, nobody can tell
whether it has carried out the request (RFC 9110 9.2.2)."""

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose requests have a Content-Length even if it is 0 (RFC 9110 8.6)."""


class HttpClient(Protocol):
    """What the crawl needs from an HTTP client. `Fetcher` implements it."""

    async def start(self, hosts_in_turn: Callable[[], int]) -> None: ...

    async def fetch(
        self,
        url: str,
        *,
        is_too_late: Callable[[], bool] | None = None,
        extra_headers: Sequence[tuple[str, str]] = (),
        network: str | None = None,
        method: str = "GET",
        body: bytes = b"",
        is_private: bool = False,
        proxy: Proxy | None = None,
    ) -> Exchange: ...

    async def locate(self, url: str) -> str | None: ...

    def remember(self, host: str, age_s: float) -> None: ...

    def apply(self, max_body_bytes: int, parallel: int) -> None: ...

    async def stop(self, grace_s: float) -> None: ...


class FetchSettings(msgspec.Struct, frozen=True):
    """How requests are made. `user_agent` is the whole header value. It must name the crawler and a way to reach its
    operator.

    Sizes are in bytes as received, before content decoding. `connect_timeout_s` limits name resolution, connection and TLS
    together; `read_timeout_s` the silence before and between bytes; `total_timeout_s` the whole exchange, so that a server
    that sends a byte a second does not occupy a worker for longer. Idle connections are kept for `keepalive_s`, to at most
    `max_idle` origins, and at most `parallel` to each. `keepalive_s` should exceed the usual delay between two requests to
    a domain.
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
    verify_tls: bool = True
    addresses: AddressPolicy = msgspec.field(default_factory=AddressPolicy)
    host_map: HostMap = msgspec.field(default_factory=HostMap)
    resolver: ResolverSettings = msgspec.field(default_factory=ResolverSettings)
    rules: tuple[RequestRule, ...] = ()


class Fetcher:
    """Makes the requests of a replica. Call `start` before the first request, `drain` to refuse new ones, and `stop` at the
    end.
    """

    def __init__(
        self,
        settings: FetchSettings,
        clock: Clock,
        *,
        lookup: HostLookup | None = None,
        tls: ssl.SSLContext | None = None,
        signer: Signer | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`lookup` asks the DNS; the default is c-ares. `tls` replaces the system's certificates. `signer` signs every
        request. `wall` returns seconds since 1970.
        """
        self._settings = settings
        self._clock = clock
        self._lookup = lookup
        self._tls = tls
        self._signer = signer
        self._wall = wall
        self._connector: GuardedConnector | None = None
        self._resolver: Resolver | None = None
        self._taking = False
        self._under_way = 0
        self._idle = asyncio.Event()
        usual = [("User-Agent", settings.user_agent), *_ACCEPTED]
        self._usual, self._fields = usual, header_lines(usual)
        self._rules = RequestRules(settings.rules, usual) if settings.rules else None
        self._cookies, self._has_warned = Cookies(wall), False
        self._issuers = Issuers(tls)
        self._proxy_answers = ProxyAnswers()
        self._connect_timeout = aiohttp.ClientTimeout(
            total=None, connect=min(settings.connect_timeout_s, settings.total_timeout_s)
        )

    def apply(self, max_body_bytes: int, parallel: int) -> None:
        """From now on, truncate bodies at `max_body_bytes`, and keep at most `parallel` idle connections to an origin."""
        self._settings = msgspec.structs.replace(self._settings, max_body_bytes=max_body_bytes, parallel=parallel)
        if self._connector is not None:
            self._connector.keep_idle(parallel)

    def __repr__(self) -> str:
        state = "taking" if self._taking else "draining"
        return f"<Fetcher {state} under_way={self._under_way}>"

    async def start(self, hosts_in_turn: Callable[[], int] = lambda: 0) -> None:
        """Makes no connection yet. `hosts_in_turn` returns the number of hosts that the crawl fetches from in turn; as many
        addresses are cached."""
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
            tls=lambda: self._usual_tls,
        )
        self._taking = True

    def drain(self) -> None:
        """Refuse new requests. Those in progress continue."""
        self._taking = False

    async def stop(self, grace_s: float) -> None:
        """Wait at most `grace_s` seconds for the requests in progress, then abort the rest and close everything."""
        self.drain()
        if self._under_way:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):  # the callers of the others get FetchFailed(STOPPED)
                async with asyncio.timeout(grace_s):
                    await self._idle.wait()
        if self._connector is not None and self._resolver is not None:
            connector, self._connector = self._connector, None
            await connector.close()
            await self._resolver.close()

    async def fetch(
        self,
        url: str,
        *,
        is_too_late: Callable[[], bool] | None = None,
        extra_headers: Sequence[tuple[str, str]] = (),
        network: str | None = None,
        method: str = "GET",
        body: bytes = b"",
        is_private: bool = False,
        proxy: Proxy | None = None,
    ) -> Exchange:
        """Request `url` once. It must be canonical, because it is sent byte for byte. `extra_headers` replace the usual
        fields of the same name; Content-Length follows from `body`. The exchange does not have `body` if it
        `is_private`, nor credentials in `extra_headers`. `proxy`: in place of that of the
        rules.

        `is_too_late` is called once, when a connection has been obtained, immediately before the request is written. If it
        returns True, the time is over and nothing is sent. `network`: the only network, as `network_of` names it, that may
        get the request; if the connection leads to another one, the next request begins with that one (OTHER_ADDRESS).
        Raises FetchFailed if no complete response head is received.
        """
        connector = self._connector
        if connector is None or not self._taking:
            raise FetchFailed(FailureKind.STOPPED, "the fetcher takes no requests")
        request = self._request(url, is_too_late, extra_headers, method, body, proxy)
        hidden = _hidden(extra_headers) if extra_headers else ()
        self._under_way += 1
        try:
            try:
                exchange = await self._exchange(connector, request, url, network)
            except aiohttp.ClientConnectorCertificateError as error:
                self._check_roots(error)
                if (context := await self._with_issuers(connector, request, error)) is None:
                    raise
                exchange = await self._exchange(connector, _with_tls(request, context), url, network)
            if hidden or is_private:
                exchange = msgspec.structs.replace(
                    exchange,
                    request_head=redacted(exchange.request_head, hidden, HIDDEN),
                    request_body=HIDDEN if is_private else body,
                )
            return exchange
        except (aiohttp.ClientError, FetchFailed, TimeoutError, ValueError) as error:
            if self._connector is None:
                sent = isinstance(error, FetchFailed) and error.request_sent
                raise FetchFailed(FailureKind.STOPPED, "aborted by the shutdown", request_sent=sent) from error
            self._check_roots(error)
            if isinstance(error, FetchFailed):
                raise
            if isinstance(error, aiohttp.ClientConnectorError):
                _forget_frames(error)
            if self._resolver is not None:
                self._resolver.refused(request.connection_key.host)
            kind = await self._overdue(request, error) or _failure_kind(error)
            raise FetchFailed(kind, _in_words(kind, error)) from error
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    def _check_roots(self, error: Exception) -> None:
        """Raise FetchFailed if `error` is no fault of the site, because this machine has no roots."""
        if self._tls is None and lacks_roots(error):
            self.__dict__.pop("_weak_tls", None)  # so that it reads the store again, too
            raise FetchFailed(FailureKind.MACHINE, store_in_words()) from error

    async def _overdue(self, request: Request, error: Exception) -> FailureKind | None:
        """The kind of `error` if the time for the connection of `request` has passed with the look-up of its host."""
        if self._resolver is None or not isinstance(error, TimeoutError):
            return None
        return await self._resolver.overdue(request.connection_key.host)

    async def locate(self, url: str) -> str | None:
        """The address that a request to the canonical `url` will be sent to; None if only a proxy knows it. Raises
        FetchFailed as `fetch` does."""
        if self._resolver is None or not self._taking:
            raise FetchFailed(FailureKind.STOPPED, "the fetcher takes no requests")
        if self._rules is not None:
            proxy = self._handling(self._rules, Origin.parse("/".join(url.split("/", 3)[:3])), url).proxy
            if proxy is not None and proxy.looks_up:
                return None
        return await self._resolver.first(host_of(url))

    def remember(self, host: str, age_s: float) -> None:
        """Note that the DNS had an address of `host` so many seconds ago, before this process looked it up."""
        if self._resolver is not None:
            self._resolver.remember(host, age_s)

    def _request(
        self,
        url: str,
        is_too_late: Callable[[], bool] | None,
        extra_headers: Sequence[tuple[str, str]],
        method: str = "GET",
        body: bytes = b"",
        proxy: Proxy | None = None,
        is_bare: bool = False,
    ) -> Request:
        """`is_bare`: for a certificate and not for the crawl, so without signature and rules. Raises FetchFailed: BAD_URL
        or FORBIDDEN_PORT."""
        settings = self._settings
        slash = url.find("/", url.find("://") + 3)
        if slash < 0:
            raise FetchFailed(FailureKind.BAD_URL, "not a canonical http or https URL")
        origin = Origin.parse(url[:slash])
        host, port = origin.key.host, origin.key.port
        if port not in settings.addresses.ports and settings.host_map.find(host.rstrip(".")) is None:
            raise FetchFailed(FailureKind.FORBIDDEN_PORT, f"port {port}")
        now = self._loop.time()
        until = now + settings.total_timeout_s
        sign = None if self._signer is None or is_bare else partial(self._signer, method, origin.authority, url[slash:])
        if body or method in _WITH_BODY:
            extra_headers = [*extra_headers, ("Content-Length", str(len(body)))]
        rules = self._rules if proxy is None else self._rules or self._no_rules
        if rules is None or is_bare:
            handling, key = None, origin.key
            head = origin.request_head(url[slash:], self._fields, extra_headers, method)
        else:
            handling = self._handling(rules, origin, url, proxy)
            if handling.cookies and (cookies := self._cookies.value(url, host_of(url), handling.start_cookies.text)):
                extra_headers = _with_cookies(extra_headers, cookies)
            head, key = handling.head(origin, url[slash:], extra_headers, method), handling.key(origin)
        if method in _NOT_REPEATED:
            key = key._replace(proxy_auth=cast(aiohttp.BasicAuth, object()))  # like no other
        most = MAX_CERTIFICATE if is_bare else settings.max_body_bytes
        request = Request(
            origin.url, key, head, is_too_late, now, until, most, sign, handling, method=method, body=body
        )
        if not origin.key.is_ssl:
            return request
        is_weak = handling is not None and handling.weak_tls
        context = self._weak_tls if is_weak else self._issuers.context_of(str(origin.url))
        return request if context is None else _with_tls(request, context)

    @cached_property
    def _no_rules(self) -> RequestRules:
        return RequestRules((), self._usual)

    @cached_property
    def _usual_tls(self) -> ssl.SSLContext:
        if self._tls is not None or self._settings.verify_tls:
            return self._tls or system_context()
        context = unverified(ssl.create_default_context())
        context.set_alpn_protocols(["http/1.1"])
        return context

    @cached_property
    def _weak_tls(self) -> ssl.SSLContext:
        return weak_context(self._tls, self._settings.verify_tls)

    async def _with_issuers(
        self, connector: GuardedConnector, request: Request, error: Exception
    ) -> ssl.SSLContext | None:
        """The context with which `request` may succeed after `error`, because of certificates that its server does not
        send. None if there is none, and through a proxy."""
        server = str(request.url)
        if not self._issuers.may_help(server, error) or request.connection_key.proxy is not None:
            return None
        try:
            anyone = _with_tls(request, unverified(ssl.create_default_context()))
            connection = await connector.obtain(anyone, self._connect_timeout)
        except (aiohttp.ClientError, TimeoutError):
            return None
        peer = connection.transport.get_extra_info("ssl_object") if connection.transport else None
        connection.close()
        certificate = peer.getpeercert(True) if peer else None
        await self._issuers.find(server, certificate or b"", partial(self._certificate, connector))
        return self._issuers.context_of(server)

    async def _certificate(self, connector: GuardedConnector, url: str) -> bytes:
        try:
            url = canonicalize(url).href
            request = self._request(url, None, (), is_bare=True)
            connection = await connector.obtain(request, self._connect_timeout)
            try:
                protocol = connection.protocol
                assert isinstance(protocol, GuardedProtocol)
                protocol.send(request, self._wall())
                exchange = await protocol.receive(url)
            finally:
                connection.close()
        except (aiohttp.ClientError, TimeoutError, ValueError, BadUrl) as error:
            raise FetchFailed(FailureKind.TLS, describe(error)) from error
        if exchange.status != HTTPStatus.OK or exchange.truncated:
            raise FetchFailed(FailureKind.TLS, f"status {exchange.status} of {url}")
        return exchange.body

    def _handling(self, rules: RequestRules, origin: Origin, url: str, proxy: Proxy | None = None) -> Handling:
        """How `rules` have the canonical `url` requested; `proxy`: in place of theirs. A host of the host map is not asked
        for through a proxy."""
        handling = rules.of(origin, url)
        if proxy is not None:
            handling = handling.through(proxy)
        if handling.proxy is not None and self._settings.host_map.find(origin.key.host.rstrip(".")) is not None:
            return handling.without_proxy()
        return handling

    async def _exchange(self, connector: GuardedConnector, request: Request, url: str, network: str | None) -> Exchange:
        connection = await connector.obtain(request, self._connect_timeout)
        try:
            protocol = connection.protocol
            assert isinstance(protocol, GuardedProtocol)
            if network is not None and self._leads_elsewhere(protocol.address, network, request):
                connection.release()
                raise FetchFailed(FailureKind.OTHER_ADDRESS, f"connected to {protocol.address}")
            protocol.send(request, self._wall())
            exchange = await protocol.receive(url)
            if request.method not in _NOT_REPEATED:
                connection.release()
        finally:
            connection.close()  # unless it has been released
        if self._connector is None:
            raise FetchFailed(FailureKind.STOPPED, request_sent=True)
        handling = request.handling
        if request.method == "POST" and (handling is None or not (handling.cookies or handling.secret_fields.text)):
            self._warn_of_cookies(url, exchange)
        if handling is None:
            return exchange
        self._proxy_answers.check(handling, exchange)
        if handling.cookies:
            self._cookies.received(url, host_of(url), exchange.headers)
        return handling.recorded(exchange)

    def _warn_of_cookies(self, url: str, exchange: Exchange) -> None:
        """Say once that the answer to a POST sets cookies that are not kept, because it is probably a login."""
        if not self._has_warned and exchange.header(b"set-cookie") is not None:
            self._has_warned = True
            problem = "a login needs cookies = true in a table [[requests]], or Crawl(..., cookies=True)"
            log(logging.WARNING, "cookies_not_kept", url=url, problem=problem)

    def _leads_elsewhere(self, address: str, network: str, request: Request) -> bool:
        """Whether the connection to `address` does not lead to `network`. If so, the next request to the host begins with
        this address."""
        is_proxied = request.handling is not None and request.handling.proxy is not None
        if not address or address == network or is_proxied or network_of(address) == network:
            return False
        if self._resolver is not None:
            self._resolver.connected(request.connection_key.host, str(ip_address(address.partition("%")[0])))
        return True


def _with_cookies(fields: Sequence[tuple[str, str]], cookies: str) -> list[tuple[str, str]]:
    """`fields` with `cookies` in one field with those that they have (RFC 6265 5.4 forbids a second one), and that count
    if the names are the same: a browser has the cookies of its page, too."""
    own = _pairs(fields)
    names = {pair.partition("=")[0] for pair in own}
    kept = [pair for pair in cookies.split("; ") if pair.partition("=")[0] not in names]
    return [("Cookie", "; ".join([*own, *kept])), *(one for one in fields if one[0].lower() != "cookie")]


def _hidden(fields: Sequence[tuple[str, str]]) -> set[bytes]:
    """The names of those of `fields` whose values no record has: credentials, and copies of cookies, which scripts send in
    fields of their own against forged requests. A short value is a copy only if the name says so: consent cookies are
    `1`, and so is `DNT`."""
    values = {unquote(pair.partition("=")[2]) for pair in _pairs(fields)}
    copies = ((name.lower(), value) for name, value in fields if unquote(value) in values)
    hidden = {name.encode() for name, value in copies if len(value) >= 16 or _NAME_OF_SECRET.search(name)}
    return hidden | _CREDENTIALS.intersection(name.lower().encode() for name, _ in fields)


def _pairs(fields: Sequence[tuple[str, str]]) -> list[str]:
    return [pair for name, value in fields if name.lower() == "cookie" for pair in value.split("; ")]


def _with_tls(request: Request, context: ssl.SSLContext) -> Request:
    key = request.connection_key._replace(ssl=context)
    return msgspec.structs.replace(request, ssl=context, connection_key=key)


_ERRNO_KINDS = {
    errno.ECONNREFUSED: FailureKind.REFUSED,
    errno.ECONNRESET: FailureKind.DISCONNECTED,
    errno.EPIPE: FailureKind.DISCONNECTED,
    errno.ECONNABORTED: FailureKind.DISCONNECTED,
    errno.ETIMEDOUT: FailureKind.CONNECT_TIMEOUT,
}


_NO_ROUTE = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL})
"""A router, or an address of a family that this machine does not have, can be the reason as well."""


def _forget_frames(error: BaseException | None) -> None:
    """Break the reference cycle between the error and the frames that tried to connect. Otherwise they and a socket would
    be kept until a garbage collection."""
    while error is not None:
        error.__traceback__, error = None, error.__cause__


def _failure_kind(error: Exception) -> FailureKind:
    """Translate the exceptions that aiohttp raises while it connects. Subclasses come first."""
    match error:
        case TimeoutError():
            return FailureKind.CONNECT_TIMEOUT
        case aiohttp.ClientSSLError() | ssl.SSLError():
            # Certificates that cannot be opened count as missing.
            return FailureKind.MACHINE if is_out_of_files() else FailureKind.TLS
        case aiohttp.ClientConnectorError():
            return _connect_failure(error.os_error, error.host)
        case aiohttp.InvalidURL() | ValueError():
            return FailureKind.BAD_URL
        case _:
            return FailureKind.DISCONNECTED


def _in_words(kind: FailureKind, error: Exception) -> str:
    if kind is FailureKind.TLS:
        return tls_in_words(error)
    if isinstance(error, aiohttp.ClientConnectorError) and error.errno:
        return "" if kind is FailureKind.REFUSED else os.strerror(error.errno)
    return describe(error)


def _connect_failure(error: OSError, host: str) -> FailureKind:
    has_no_ports = error.errno == errno.EADDRNOTAVAIL and ":" not in host
    if is_machines_fault(error) or has_no_ports or (error.errno in _NO_ROUTE and not has_route()):
        return FailureKind.MACHINE
    return _ERRNO_KINDS.get(error.errno or 0, FailureKind.UNREACHABLE)
