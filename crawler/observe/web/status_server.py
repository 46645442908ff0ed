"""The HTTP server of a replica: its routes, limits and response headers."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Collection
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from crawler.errors import UserError
from crawler.observe.web.live_feed import Live
from crawler.observe.web.state_pages import StatePages
from crawler.observe.web.template import Template
from crawler.wording import count_of

LOOPBACK = "127.0.0.1"

MAX_WATCHERS = 64
"""The most live pages open at a time. Each takes a connection and some kilobytes per second."""

STOP_S = 1.0
"""Seconds that running requests may still take when the replica stops."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ServerAddress(msgspec.Struct, frozen=True):
    """Where a server listens, and its names. `listen`: "ADDRESS:PORT", or "PORT" on loopback. `advertise`: the address that
    others use; if empty, it is derived from `listen` (see `advertised`). `hosts`: further names (see `is_addressed`)."""

    listen: str
    advertise: str = ""
    hosts: tuple[str, ...] = ()


class StatusServer:
    """Serves the status pages. `readiness` returns whether the replica is ready, and what to say about it. Raises UserError
    if `at.listen` is malformed."""

    def __init__(
        self,
        at: ServerAddress,
        metrics: Callable[[], bytes],
        readiness: Callable[[], tuple[bool, str]],
        live: Live,
        answers: StatePages,
    ) -> None:
        self._host, colon, port = at.listen.rpartition(":")
        if not port.isdecimal():
            raise UserError(f"listen address {at.listen!r}: write it as ADDRESS:PORT, such as 127.0.0.1:9410")
        if not colon:
            self._host = LOOPBACK
        self._port = int(port)
        self._advertise = at.advertise
        self._hosts = {"localhost", *(host.lower() for host in at.hosts)}
        self._metrics = metrics
        self._readiness = readiness
        self._live = live
        self._answers = answers
        self._page = Template("live.html")
        self._runner: web.AppRunner | None = None
        self.address = ""

    async def start(self) -> None:
        """Start listening. Raises UserError if the address cannot be used."""
        app = web.Application(middlewares=[self._check_host])
        app.add_routes([web.get(path, handler) for path, handler in self._routes().items()])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host.strip("[]") or None, self._port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise UserError(
                f"cannot listen at {self._host}:{self._port}: {error.strerror}; choose another --listen"
            ) from error
        host, port, *_ = self._runner.addresses[0]
        self._port = port
        self.address = advertised(host, port, self._advertise)
        self._hosts.add(_name_in(self.address))

    @property
    def listen(self) -> str:
        """ADDRESS:PORT where it listens, with the port that was found if none was chosen."""
        return f"{self._host}:{self._port}"

    async def stop(self) -> None:
        await self._live.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _routes(self) -> dict[str, Handler]:
        return {
            "/": self._serve_page,
            "/domain/{name}": self._serve_domain,
            "/replica/{name}": self._serve_replica,
            "/why": self._serve_why,
            "/events": self._serve_events,
            "/snapshot": self._serve_snapshot,
            "/metrics": self._serve_metrics,
            "/sd": self._serve_targets,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
        }

    @web.middleware
    async def _check_host(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse a request that is addressed to an unknown name (RFC 9110 15.5.20)."""
        if not is_addressed(request.headers.get("Host", ""), self._hosts):
            return web.Response(status=421, text="unknown Host; add its name to the setting replica.hosts\n")
        return await handler(request)

    async def _serve_page(self, _: web.Request) -> web.Response:
        return _html(self._page.fill({}), self._page.policy)

    async def _serve_domain(self, request: web.Request) -> web.Response:
        return _html(await self._answers.domain(request.match_info["name"]), self._answers.policy)

    async def _serve_replica(self, request: web.Request) -> web.Response:
        return _html(await self._answers.replica(request.match_info["name"]), self._answers.policy)

    async def _serve_why(self, request: web.Request) -> web.Response:
        return _html(await self._answers.why(request.query.get("url", "").strip()), self._answers.policy)

    async def _serve_snapshot(self, _: web.Request) -> web.Response:
        return _json(msgspec.json.encode(await self._live.snapshot()))

    async def _serve_events(self, request: web.Request) -> web.StreamResponse:
        """Send server-sent events (HTML Standard 9.2): a complete snapshot each second."""
        if self._live.watchers >= MAX_WATCHERS:
            return web.Response(status=503, text=f"{count_of(MAX_WATCHERS, 'page')} are open already\n")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        number = 0
        with self._live.watching(), contextlib.suppress(ConnectionError):  # the page was closed
            while (news := await self._live.next(number)) is not None:
                number, text = news
                await response.write(b"data: " + text + b"\n\n")
        return response

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _serve_targets(self, _: web.Request) -> web.Response:
        """Return the targets for Prometheus' HTTP service discovery: each replica with a current health record.

        The labels are for relabelling only, as the series of a replica name the crawl and the replica themselves.
        """
        found = await self._live.snapshot()
        if found.error:
            return web.Response(status=503, text=f"{found.error}\n")  # Prometheus then keeps its current list
        groups = [
            {
                "targets": [record.address],
                "labels": {"__meta_crawl": found.crawl, "__meta_replica": record.replica},
            }
            for record in found.replicas
            if record.address
        ]
        return _json(msgspec.json.encode(groups))

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        is_ready, text = self._readiness()
        return web.Response(text=f"{text}\n", status=200 if is_ready else 503)


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
    name = _name_in(host)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return not host or name in names
    return True


def _name_in(host: str) -> str:
    """Return the name or address in "HOST:PORT", in lower case; "" if it is malformed."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


def advertised(host: str, port: int, advertise: str) -> str:
    """Return the "ADDRESS:PORT" at which others reach a server that listens at `host` and `port`.

    `advertise` is "ADDRESS" or "ADDRESS:PORT". If it is empty and the server listens on all addresses, the result is the
    address of the machine's host name; containers and pods have exactly one.
    """
    if advertise:
        return advertise if re.search(r"[^:]:\d+$|\]:\d+$", advertise) else f"{advertise}:{port}"
    if host in ("0.0.0.0", "::"):
        try:
            host = socket.gethostbyname(socket.gethostname())
        except OSError:
            host = socket.gethostname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
