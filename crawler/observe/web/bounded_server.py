"""Bounds what strangers who can reach the status port may use up: connections, and with them file descriptors.

A connection that sends no request within `IDLE_S` is closed, at first and after each response. If there are too many, a new
one takes the place of the one that has been idle the longest, so that health checks and scrapes are answered meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

MAX_CONNECTIONS = 64

IDLE_S = 10.0
"""Seconds until the head of a request has arrived, and after the answer until the next one and until the client has read
it."""


class BoundedServer(web.Server):
    """An HTTP server with limits. `answer` answers a request."""

    def __init__(
        self,
        answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        max_connections: int = MAX_CONNECTIONS,
        idle_s: float = IDLE_S,
    ) -> None:
        super().__init__(self._answered, access_log=None)
        self._answer = answer
        self._max_connections = max_connections
        self._idle_s = idle_s
        self._idle: dict[asyncio.Transport, asyncio.TimerHandle] = {}  # the one that is idle the longest first
        self._busy: set[asyncio.Transport] = set()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._idle) + len(self._busy) >= self._max_connections:
            if not self._idle:
                self._loop.call_soon(transport.abort)  # not before aiohttp has begun to serve it
                return
            self._abort(next(iter(self._idle)))
        self._wait(transport)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        transport = self._connections.get(handler)
        if transport is not None:
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
        self._idle[transport] = self._loop.call_later(self._idle_s, self._abort, transport)

    def _leave(self, transport: asyncio.Transport) -> None:
        self._busy.discard(transport)
        if timer := self._idle.pop(transport, None):
            timer.cancel()

    def _abort(self, transport: asyncio.Transport) -> None:
        self._leave(transport)
        transport.abort()
