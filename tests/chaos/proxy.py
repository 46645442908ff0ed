"""A TCP proxy in front of a Valkey server, which can delay, cut and swallow what goes through."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter
from pathlib import Path

_PIECE = 65_536


class Link:
    """A way to the server at `upstream`, a Unix socket or a port of 127.0.0.1, by way of `port` of loopback.

    `delay_s` holds each reply back for so long. `swallow` keeps connections open and lets nothing through.
    `cut_next` ends each connection in the middle of the next reply that it carries. `hold_replicas` lets replicas of the
    server receive no more writes; `swallow` does not touch their connections.
    """

    def __init__(self, upstream: Path | int) -> None:
        self._upstream = upstream
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._may_pass = asyncio.Event()
        self._may_pass.set()
        self._may_replicate = asyncio.Event()
        self._may_replicate.set()
        self._replicas: set[asyncio.Task[None]] = set()
        self._to_cut: set[object] = set()
        self.delay_s = 0.0
        self.port = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen at `port` of `host`; 0 for any free one."""
        self._server = await asyncio.start_server(self._accept, host, port)
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

    def hold_replicas(self) -> None:
        """Receive the server's writes, and pass none of them on to its replicas."""
        self._may_replicate.clear()

    def lose_held(self) -> None:
        """Close the connections of replicas with the writes that were held back, and hold no more."""
        for connection in list(self._replicas):
            connection.cancel()
        self._may_replicate.set()

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
            if isinstance(self._upstream, int):
                server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
            else:
                server_reader, server_writer = await asyncio.open_unix_connection(self._upstream)
            back = asyncio.create_task(self._replies(server_reader, writer, task))
            try:
                await self._requests(reader, server_writer, task)
            finally:
                self._replicas.discard(task)
                back.cancel()
                server_writer.close()
        except OSError:
            pass  # the server is away: so is what we show of it
        finally:
            writer.close()

    async def _requests(self, client: StreamReader, server: StreamWriter, connection: asyncio.Task[None]) -> None:
        while data := await client.read(_PIECE):
            if b"REPLCONF" in data or b"PSYNC" in data:
                self._replicas.add(connection)
            elif connection not in self._replicas:
                await self._may_pass.wait()
            server.write(data)
            await server.drain()

    async def _replies(self, server: StreamReader, client: StreamWriter, connection: asyncio.Task[None]) -> None:
        with contextlib.suppress(OSError):
            while data := await server.read(_PIECE):
                await (self._may_replicate if connection in self._replicas else self._may_pass).wait()
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
