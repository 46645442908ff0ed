"""A TCP proxy in front of Valkey, with a port for each replica, that can delay, cut and swallow what goes through."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter
from pathlib import Path

_PIECE = 65_536


class Link:
    """One replica's way to the server, at `port` of loopback.

    `delay_s` holds each reply back for so long. `swallow` keeps connections open and lets nothing through.
    `cut_next` ends each connection in the middle of the next reply that it carries.
    """

    def __init__(self, upstream: Path) -> None:
        self._upstream = upstream
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._may_pass = asyncio.Event()
        self._may_pass.set()
        self._to_cut: set[object] = set()
        self.delay_s = 0.0
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def swallow(self, on: bool) -> None:
        """Let nothing through while `on`; what was held back goes on afterwards."""
        (self._may_pass.clear if on else self._may_pass.set)()

    def cut_next(self) -> None:
        """Cut every connection of now in the middle of its next reply: the call was carried out, nobody learns how."""
        self._to_cut = set(self._open)

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.ensure_future(self._connected(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            server_reader, server_writer = await asyncio.open_unix_connection(self._upstream)
            back = asyncio.create_task(self._replies(server_reader, writer, task))
            try:
                await self._requests(reader, server_writer)
            finally:
                back.cancel()
                server_writer.close()
        except OSError:
            pass  # the server is away: so is what we show of it
        finally:
            writer.close()

    async def _requests(self, client: StreamReader, server: StreamWriter) -> None:
        while data := await client.read(_PIECE):
            await self._may_pass.wait()
            server.write(data)
            await server.drain()

    async def _replies(self, server: StreamReader, client: StreamWriter, connection: asyncio.Task[None]) -> None:
        with contextlib.suppress(OSError):
            while data := await server.read(_PIECE):
                await self._may_pass.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if connection in self._to_cut:
                    self._to_cut.discard(connection)
                    client.write(data[: len(data) // 2])
                    await client.drain()
                    break
                client.write(data)
                await client.drain()
        client.close()
        connection.cancel()
