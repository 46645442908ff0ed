"""The answers of the HTTP server of a replica: its routes, limits and response headers.

The limits bound what strangers who can reach the port may use up: connections, and with them file descriptors. A
connection that sends no request within `IDLE_S` is closed, at first and after each response. If there are too many, a new
one takes the place of the one that has been idle the longest, so that health checks and scrapes are answered meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection
from traceback import format_exception
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CONTENT_TYPE_LATEST

from crawler.defects import in_words
from crawler.logs import log
from crawler.observe.web.feed import Live
from crawler.observe.web.pages import StatePages, Template
from crawler.wording import count_of

MAX_WATCHERS = 32
"""The most live pages open at a time. Each takes some kilobytes per second, and one of the connections of the server
(`bounded_server.MAX_CONNECTIONS`), which health checks need, too."""

MAX_CONNECTIONS = 64

IDLE_S = 5.0
"""Seconds until the head of a request has arrived, and after the answer until the next one and until the client has read
it."""

METRICS_S = 0.5
"""Seconds for which metrics are kept for all who ask. To collect them takes some milliseconds of the event loop."""

_PAGE = Template("live.html")


class KeptMetrics:
    """Metrics that `collect` returns, at most every `METRICS_S`."""

    def __init__(self, collect: Callable[[], bytes], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._collect = collect
        self._monotonic = monotonic
        self._latest = b""
        self._until = -math.inf

    def __call__(self) -> bytes:
        if self._monotonic() >= self._until:
            self._latest, self._until = self._collect(), self._monotonic() + METRICS_S
        return self._latest


class Routes(msgspec.Struct, frozen=True):
    """Answers requests that are addressed to one of `hosts`. The other fields are arguments of `StatusServer`."""

    hosts: Collection[str]
    metrics: Callable[[], bytes]
    readiness: Callable[[], tuple[bool, str]]
    live: Live
    answers: StatePages

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer `request`, but not if it is addressed to an unknown name (RFC 9110 15.5.20)."""
        if not is_addressed(request.headers.get("Host", ""), self.hosts):
            return web.Response(status=421, text="unknown Host; add its name to the setting replica.hosts\n")
        if request.method not in ("GET", "HEAD"):
            raise web.HTTPMethodNotAllowed(request.method, ("GET", "HEAD"))
        match request.path.split("/")[1:]:
            case [""]:
                return _html(_PAGE.fill({}), _PAGE.policy)
            case ["domain", name] if name:
                return _html(await self.answers.domain(name), self.answers.policy)
            case ["replica", name] if name:
                return _html(await self.answers.replica(name), self.answers.policy)
            case ["items", name] if name:
                return _html(await self.answers.data_set(name), self.answers.policy)
            case ["why"]:
                return _html(await self.answers.why(request.query.get("url", "").strip()), self.answers.policy)
            case ["events"]:
                return await self._events(request)
            case ["snapshot"]:
                return _json(msgspec.json.encode(await self.live.snapshot()))
            case ["metrics"]:
                return web.Response(body=self.metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})
            case ["sd"]:
                return await self._targets()
            case ["healthz"]:
                return web.Response(text="ok\n")
            case ["readyz"]:
                is_ready, text = self.readiness()
                return web.Response(text=f"{text}\n", status=200 if is_ready else 503)
        raise web.HTTPNotFound

    async def _events(self, request: web.BaseRequest) -> web.StreamResponse:
        """Send server-sent events (HTML Standard 9.2): a complete snapshot each second."""
        if self.live.watchers >= MAX_WATCHERS:
            return web.Response(status=503, text=f"{count_of(MAX_WATCHERS, 'page')} are open already\n")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        number = 0
        with self.live.watching(), contextlib.suppress(ConnectionError):  # the page was closed
            while (news := await self.live.next(number)) is not None:
                number, text = news
                await response.write(b"data: " + text + b"\n\n")
        return response

    async def _targets(self) -> web.Response:
        """Return the targets for Prometheus' HTTP service discovery: each replica with a current health record."""
        snapshot = await self.live.snapshot()
        if snapshot.error:
            return web.Response(status=503, text=f"{snapshot.error}\n")  # Prometheus then keeps its current list
        groups = [
            {
                "targets": [record.address],
                "labels": {"__meta_crawl": snapshot.crawl, "__meta_replica": record.replica},
            }
            for record in snapshot.replicas
            if record.address
        ]
        return _json(msgspec.json.encode(groups))


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, headers={"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"})


def _html(page: str, policy: str) -> web.Response:
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return web.Response(text=page, content_type="text/html", headers=headers)


def is_addressed(host: str, names: Collection[str]) -> bool:
    """Return whether a request with the header `Host: host` is for a server with these `names`, which are in lower case.

    Any IP address is accepted, and so is a request without a host. Other names are not: a web page could otherwise read the
    crawl's state through a browser in this network, by pointing its own name at this address (DNS rebinding).
    """
    name = name_in(host)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return not host or name in names
    return True


def name_in(host: str) -> str:
    """Return the name or address in "HOST:PORT", in lower case; "" if it is malformed."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


class _ServerLog(logging.Logger):
    """Logs what aiohttp reports of a request: a warning if it cannot be read, and otherwise an error."""

    def exception(self, msg: object, *args: object, exc_info: Any = None, **_: object) -> None:
        error = exc_info if isinstance(exc_info, BaseException) else RuntimeError(msg)
        said = " ".join(in_words(error).split())[:200]
        if isinstance(error, HttpProcessingError):
            log(logging.WARNING, "status_request_malformed", error=said)
        else:
            log(logging.ERROR, "status_request_failed", error=said, traceback="".join(format_exception(error)))


class BoundedServer(web.Server):
    """An HTTP server with limits. `answer` answers a request."""

    def __init__(
        self,
        answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        max_connections: int = MAX_CONNECTIONS,
        idle_s: float = IDLE_S,
    ) -> None:
        super().__init__(self._answered, access_log=None, logger=_ServerLog("status"))
        self._answer = answer
        self._max_connections = max_connections
        self._idle_s = idle_s
        self._idle: dict[asyncio.Transport, asyncio.TimerHandle] = {}  # the one that is idle the longest first
        self._busy: set[asyncio.Transport] = set()
        self._transports: dict[web.RequestHandler, asyncio.Transport] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._transports[handler] = transport
        if len(self._idle) + len(self._busy) >= self._max_connections:
            if not self._idle:
                asyncio.get_running_loop().call_soon(transport.abort)  # not before aiohttp has begun to serve it
                return
            self._abort(next(iter(self._idle)))
        self._wait(transport)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        if transport := self._transports.pop(handler, None):
            self._leave(transport)
        super().connection_lost(handler, exc)

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        self._leave(transport)
        self._busy.add(transport)
        try:
            return await self._answer(request)
        finally:
            self._leave(transport)
            if not transport.is_closing():
                self._wait(transport)

    def _wait(self, transport: asyncio.Transport) -> None:
        self._idle[transport] = asyncio.get_running_loop().call_later(self._idle_s, self._abort, transport)

    def _leave(self, transport: asyncio.Transport) -> None:
        self._busy.discard(transport)
        if timer := self._idle.pop(transport, None):
            timer.cancel()

    def _abort(self, transport: asyncio.Transport) -> None:
        self._leave(transport)
        transport.abort()
