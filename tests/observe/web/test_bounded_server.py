"""Connections that send no request use up neither the status server nor the file descriptors of the replica."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

from crawler.observe.web.routes import MAX_CONNECTIONS, MAX_WATCHERS, BoundedServer, KeptMetrics
from frontier.store import RedisStore
from tests.no_files import no_files_left
from tests.observe.web.serving import serving

HALF_A_REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Served:
    """A server on loopback whose answers wait for `may_answer`."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.asked = 0
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
        for writer in self._writers:
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked += 1
        await self.may_answer.wait()
        return web.Response(text="ok")

    async def connect(self, data: bytes) -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        self._writers.append(writer)
        return reader, writer


@asynccontextmanager
async def served(max_connections: int, idle_s: float) -> AsyncIterator[Served]:
    found = Served()
    server = BoundedServer(found.answer, max_connections, idle_s)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    found.port = listener.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        listener.close()
        await found.close()
        await server.shutdown(0.1)


async def is_closed(streams: Streams) -> bool:
    try:
        return await asyncio.wait_for(streams[0].read(), 2) == b""
    except ConnectionError:
        return True


async def until_asked(found: Served, times: int) -> None:
    async with asyncio.timeout(5):
        while found.asked < times:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_new_connection_takes_the_place_of_the_one_that_is_idle_the_longest() -> None:
    async with served(3, idle_s=60) as found:
        busy = await found.connect(REQUEST)
        await until_asked(found, 1)
        idle = [await found.connect(HALF_A_REQUEST) for _ in range(2)]
        asking = await found.connect(REQUEST)
        assert await is_closed(idle[0])
        await until_asked(found, 2)
        found.may_answer.set()
        for reader, _ in (busy, asking):
            assert b"200 OK" in await reader.readline()


async def test_a_new_connection_is_closed_if_none_is_idle() -> None:
    async with served(2, idle_s=60) as found:
        busy = [await found.connect(REQUEST) for _ in range(2)]
        await until_asked(found, 2)
        assert await is_closed(await found.connect(REQUEST))
        found.may_answer.set()
        for reader, _ in busy:
            assert b"200 OK" in await reader.readline()


async def test_a_connection_without_a_request_is_closed_at_first_and_after_an_answer() -> None:
    async with served(9, idle_s=0.1) as found:
        assert await is_closed(await found.connect(HALF_A_REQUEST))
        asking = await found.connect(REQUEST)
        await until_asked(found, 1)
        await asyncio.sleep(0.2)  # an answer may take longer
        found.may_answer.set()
        async with asyncio.timeout(2):
            try:
                assert (await asking[0].read()).endswith(b"ok")
            except ConnectionError:
                pytest.fail("the answer was lost")


def test_live_pages_leave_connections_for_health_checks() -> None:
    assert MAX_WATCHERS <= MAX_CONNECTIONS / 2


async def test_a_server_without_file_descriptors_tries_once_a_second(
    store: RedisStore, crawl_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio reports each try, and would make a hundred of them whenever a connection waits."""
    async with serving(store, crawl_name) as server:
        host, _, port = server.address.rpartition(":")
        with socket.socket() as waiting:
            waiting.setblocking(False)
            with no_files_left(), caplog.at_level(logging.ERROR, "asyncio"):
                await asyncio.get_running_loop().sock_connect(waiting, (host, int(port)))
                await asyncio.sleep(0.3)
    assert [record.message.partition("\n")[0] for record in caplog.records] == [
        "socket.accept() out of system resource"
    ]


def test_metrics_are_collected_at_most_twice_a_second_for_all_who_ask() -> None:
    now, answers = [100.0], iter([b"first", b"second"])
    metrics = KeptMetrics(lambda: next(answers), lambda: now[0])
    for at, expected in ((100.0, b"first"), (100.4, b"first"), (100.5, b"second"), (100.9, b"second")):
        now[0] = at
        assert metrics() == expected


@pytest.mark.parametrize(
    "request_of",
    [b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"/" * 20_000 + b" HTTP/1.1\r\n\r\n"],
    ids=["version", "length"],
)
async def test_a_malformed_request_is_one_line_of_the_log(request_of: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with served(9, idle_s=2) as found:
        reader, _ = await found.connect(request_of)
        assert b" 400 " in await reader.readline()
    [record] = caplog.records
    assert (record.name, record.message, record.exc_info) == ("crawler", "status_request_malformed", None)


async def test_a_defect_in_an_answer_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        raise ValueError("two\nlines")

    server = BoundedServer(answer)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
    writer.write(REQUEST)
    assert b" 500 " in await reader.readline()
    writer.close()
    listener.close()
    await server.shutdown(0.1)
    [record] = caplog.records
    assert (record.name, record.message, record.exc_info) == ("crawler", "status_request_failed", None)
    assert record.fields["error"] == "ValueError: two lines"  # type: ignore[attr-defined]
