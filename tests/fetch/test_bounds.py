"""What a server can send without end, and where it is stopped: memory, and the CPU time of one turn of the event loop."""

from __future__ import annotations

import asyncio
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

import pytest

from crawler.errors import FailureKind, FetchFailed
from tests.fetch.fetching import fetcher

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
PAGE = OK + b"Content-Length: 2\r\n\r\nab"

MEMORY = 4 << 20
"""Bytes that one response may take beside its body."""

TURN_S = 0.08
"""CPU seconds. The costliest 64 KiB take about a fourth of that."""


class Flood:
    """A server in a thread of its own: after a request it sends `first`, then `block` until the client hangs up."""

    def __init__(self, first: bytes, block: bytes, pause_s: float = 0.0) -> None:
        self.hung_up = Event()
        self._first, self._block, self._pause_s = first, block, pause_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._thread = Thread(target=self._serve)

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (*self._connections, self._listener):
            with suppress(OSError):  # it may have gone already
                one.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for one in (*self._connections, self._listener):
            one.close()

    def _serve(self) -> None:
        with suppress(OSError):  # closed at the end
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                with suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(self._first)
                    time.sleep(self._pause_s)
                    while True:
                        connection.sendall(self._block)
                self.hung_up.set()


ATTACKS = {
    "blank-lines": (b"", b"\r\n" * 32768, FailureKind.HEADER_TOO_LARGE),
    "blank-line-then-head": (b"\n\r\n" + OK, b"X: " + b"y" * 60_000 + b"\r\n", FailureKind.HEADER_TOO_LARGE),
    "interim": (b"", b"HTTP/1.1 100\r\n\r\n" * 4096, FailureKind.PROTOCOL),
    "interim-with-fields": (b"", b"HTTP/1.1 103 Early\r\nA: " + b"b" * 30_000 + b"\r\n\r\n", FailureKind.HEADER_TOO_LARGE),
    "status-line": (b"HTTP/1.1 200 ", b"x" * 65536, FailureKind.HEADER_TOO_LARGE),
    "field": (OK + b"X: ", b"y" * 65536, FailureKind.HEADER_TOO_LARGE),
    "short-fields": (OK, b"a:\r\n" * 16384, FailureKind.HEADER_TOO_LARGE),
    "chunk-extension": (CHUNKED + b"1;", b"x" * 65536, "disconnect"),
    "chunk-extensions": (CHUNKED, b"1;" + b"x" * 5000 + b"\r\nx\r\n", "disconnect"),
    "chunk-size": (CHUNKED, b"0" * 65536, "disconnect"),
    "small-chunks": (CHUNKED, b"1\r\nx\r\n" * 10_000, "length"),
    "trailers": (CHUNKED + b"1\r\nx\r\n0\r\n", b"X: " + b"y" * 60_000 + b"\r\n", None),
    "short-trailers": (CHUNKED + b"1\r\nx\r\n0\r\n", b"a:\r\n" * 16384, None),
    "after-the-length": (PAGE, b"x" * 65536, None),
    "after-the-last-chunk": (CHUNKED + b"0\r\n\r\n", b"x" * 65536, None),
    "responses": (PAGE, PAGE * 2000, None),
    "no-content": (b"HTTP/1.1 204\r\n\r\n", b"HTTP/1.1 204\r\n\r\n" * 4096, None),
    "upgrade": (b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", b"x" * 65536, FailureKind.PROTOCOL),
    "body": (OK + b"Content-Length: 99999999999\r\n\r\n", b"x" * 65536, "length"),
    "body-until-close": (OK + b"\r\n", b"x" * 65536, "length"),
}  # fmt: skip


@pytest.mark.parametrize(("first", "block", "end"), ATTACKS.values(), ids=ATTACKS)
async def test_what_does_not_end_is_ended(first: bytes, block: bytes, end: FailureKind | str | None) -> None:
    with Flood(first, block) as server:
        assert await _outcome(server.port) == end
        assert await asyncio.to_thread(server.hung_up.wait, 60)


@pytest.mark.parametrize(("first", "block", "end"), ATTACKS.values(), ids=ATTACKS)
async def test_memory_and_turns_are_bounded(first: bytes, block: bytes, end: object) -> None:
    with Flood(first, block) as server, _memory() as peak:
        await _outcome(server.port)
    assert peak() < MEMORY
    with Flood(first, block) as server, _turns() as longest:
        await _outcome(server.port)
    assert longest() < TURN_S


async def test_what_arrives_unasked_closes_the_connection_and_is_not_kept() -> None:
    with Flood(PAGE, OK + b"\r\n" + b"x" * 65536, pause_s=0.05) as server, _memory() as peak:
        async with fetcher(server.port) as under_test:
            assert (await under_test.fetch("http://www.test/")).body == b"ab"
            assert await asyncio.to_thread(server.hung_up.wait, 60)
    assert peak() < MEMORY


async def test_bytes_that_wait_in_the_socket_are_not_the_next_response() -> None:
    """Given an unrequested response that arrives while the event loop is busy, when the next request is due, then it is
    written on a new connection."""
    with Flood(PAGE, PAGE.replace(b"ab", b"no"), pause_s=0.05) as server:
        async with fetcher(server.port) as under_test:
            await under_test.fetch("http://www.test/1")
            time.sleep(0.2)  # noqa: ASYNC251
            exchange = await under_test.fetch("http://www.test/2")
    assert exchange.body == b"ab"
    assert exchange.phases is not None


async def _outcome(port: int) -> FailureKind | str | None:
    async with fetcher(port, max_body_bytes=100_000) as under_test:
        try:
            return (await under_test.fetch("http://www.test/")).truncated
        except FetchFailed as failure:
            return failure.kind


@contextmanager
def _memory() -> Iterator[Callable[[], int]]:
    """The most bytes that were allocated at a time since."""
    tracemalloc.start()
    peak = [0]
    try:
        yield lambda: peak[0]
    finally:
        peak[0] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


@contextmanager
def _turns() -> Iterator[Callable[[], float]]:
    """The most CPU seconds that this thread took from one turn of the loop to the next."""
    loop = asyncio.get_running_loop()
    started_at, longest = time.thread_time(), 0.0

    def turn() -> None:
        nonlocal started_at, longest, handle
        longest, started_at = max(longest, time.thread_time() - started_at), time.thread_time()
        handle = loop.call_soon(turn)

    handle = loop.call_soon(turn)
    try:
        yield lambda: longest
    finally:
        handle.cancel()
