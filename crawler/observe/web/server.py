"""The HTTP server of a replica: where it listens, and under which names."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from crawler.errors import UserError
from crawler.observe.web.feed import Live
from crawler.observe.web.pages import StatePages

if TYPE_CHECKING:
    from aiohttp import web

LOOPBACK = "127.0.0.1"

BACKLOG = 100
"""Connections that the kernel keeps until they are accepted."""

STOP_S = 1.0
"""Seconds that running requests may still take when the replica stops."""


class ServerAddress(msgspec.Struct, frozen=True):
    """Where a server listens, and its names. `listen`: "ADDRESS:PORT", or "PORT" on loopback. `advertise`: the address that
    others use; if empty, it is derived from `listen` (see `advertised`). `hosts`: further names (see `is_addressed`)."""

    listen: str
    advertise: str = ""
    hosts: tuple[str, ...] = ()


class StatusServer:
    """Serves the status pages. `readiness`: whether the replica is ready, and what to say. Raises UserError."""

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
        self._hosts = ("localhost", *(host.lower() for host in at.hosts))
        self._live = live
        self._contents = (metrics, readiness, live, answers)
        self._listener: asyncio.Server | None = None
        self._web: web.Server | None = None
        self.address = ""

    async def start(self) -> None:
        """Start listening. Raises UserError if the address cannot be used."""
        loop = asyncio.get_running_loop()
        try:
            # asyncio accepts up to `backlog` connections at once. Without a free file descriptor, it would fail and log as
            # often, again and again.
            listener = await loop.create_server(self._connection, self._host.strip("[]") or None, self._port, backlog=1)
            for listening in listener.sockets:
                with socket.fromfd(listening.fileno(), listening.family, listening.type) as twin:
                    twin.listen(BACKLOG)
            self._listener = listener
        except OSError as error:
            raise UserError(
                f"cannot listen at {self._host}:{self._port}: {error.strerror}; choose another --listen"
            ) from error
        host, port, *_ = self._listener.sockets[0].getsockname()
        self._port = port
        self.address = advertised(host, port, self._advertise)

    @property
    def listen(self) -> str:
        """ADDRESS:PORT where it listens, with the port that was found if none was chosen."""
        return f"{self._host}:{self._port}"

    async def stop(self) -> None:
        await self._live.close()
        if self._listener is not None:
            self._listener.close()
        if self._web is not None:
            await asyncio.sleep(0)  # requests that have arrived begin
            self._web.pre_shutdown()
            await self._web.shutdown(STOP_S)

    def _connection(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection. aiohttp's server is imported for the first one: often nobody looks."""
        if self._web is None:
            from crawler.observe.web.routes import BoundedServer, KeptMetrics, Routes, name_in  # noqa: PLC0415

            metrics, readiness, live, answers = self._contents
            names = [*self._hosts, name_in(self.address)]
            self._web = BoundedServer(Routes(names, KeptMetrics(metrics), readiness, live, answers).answer)
        return self._web()


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
