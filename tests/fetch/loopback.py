"""A server on a free port of loopback, with a task for each connection."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from typing import Self


class LoopbackServer:
    """Serves while its `async with` block runs, at the address `at` and `port`. Subclasses say how a connection is
    served."""

    at = "127.0.0.1"

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, self.at, 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.ensure_future(self._guarded(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve one connection. It is closed at the end, whether the client ends it or not."""
        raise NotImplementedError
