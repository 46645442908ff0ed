"""Each change to the internals of another library is still needed: the unchanged library has the fault."""

from __future__ import annotations

import asyncio
import gc
import importlib
import subprocess
import sys
import weakref

import pytest

from crawler.fetch import library_privates


class Ends(asyncio.Protocol):
    """Waits for the end of its connection."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


async def ended_connection_is_held() -> bool:
    """Whether a connection that its server aborted is still in memory, without a garbage collection."""

    def break_off(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    server = await asyncio.start_server(break_off, "127.0.0.1", 0)
    async with server:
        gc.disable()
        try:
            address = server.sockets[0].getsockname()
            transport, protocol = await asyncio.get_running_loop().create_connection(Ends, *address)
            held = weakref.ref(transport)
            await protocol.ended.wait()
            del transport, protocol
            await asyncio.sleep(0)
            return held() is not None
        finally:
            gc.enable()


async def test_ended_connections_hold_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    library_privates.install()
    assert not await ended_connection_is_held()
    monkeypatch.setattr(library_privates._SocketTransport, "_call_connection_lost", library_privates._lose_connection)
    if sys.version_info < (3, 12):
        assert await ended_connection_is_held(), "asyncio lets go of connections by itself now: remove the change"


@pytest.mark.parametrize("reader", ["asyncio.sslproto.SSLProtocol", "asyncio.selector_events._SelectorSocketTransport"])
def test_reads_are_large(reader: str) -> None:
    library_privates.install()
    module, _, name = reader.rpartition(".")
    assert getattr(importlib.import_module(module), name).max_size == library_privates.READ_BYTES
    untouched = f"import {module}; print({reader}.max_size)"
    done = subprocess.run([sys.executable, "-c", untouched], capture_output=True, text=True, check=True)
    assert int(done.stdout) > library_privates.READ_BYTES, (
        "asyncio reads no more than that by itself now: remove the change"
    )
