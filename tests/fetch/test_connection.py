"""When a connection is used again and when it is not; large bodies; no memory is left of a closed connection."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from asyncio import BaseTransport, StreamWriter
from collections.abc import Iterator

import pytest

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.connection import REST_S
from tests.fetch.fetching import fetcher
from tests.fetch.servers import FaultServer, NeverAnswers, OneByteASecond, Raw, tls_pair

OK = b"HTTP/1.1 200 OK\r\n"
SIZE = 2_400_000


class Says(FaultServer):
    """Answers each request with the given bytes in one piece, and keeps the connection open."""

    def __init__(self, response: bytes) -> None:
        super().__init__()
        self._response = response

    async def answer(self, writer: StreamWriter) -> bool:
        writer.write(self._response)
        return True


class AnswersOnce(FaultServer):
    """Answers the first request on a connection, and is silent after the second."""

    async def answer(self, writer: StreamWriter) -> bool:
        if len(self.requests) > 1:
            await asyncio.Event().wait()
        return await super().answer(writer)


def _chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


@pytest.mark.parametrize(
    ("response", "body", "connections"),
    [
        (OK + b"Content-Length: 2\r\n\r\nab", b"ab", 1),
        (OK + b"Content-Length: 0\r\n\r\n", b"", 1),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + _chunked(b"a", b"b"), b"ab", 1),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", 1),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b"", 1),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nab", b"ab", 1),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nab", b"ab", 1),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", b"ab", 2),
        (OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nab", b"ab", 2),
        (OK + b"Content-Length: 2\r\n\r\nab" + OK + b"Content-Length: 6\r\n\r\nforged", b"ab", 2),
        (OK + b"Content-Length: 2\r\n\r\nabcd", b"ab", 2),
    ],
    ids=[
        "length", "empty", "chunked", "204", "304", "interim", "1.0-kept",
        "1.0", "close", "second-response", "bytes-behind",
    ],
)  # fmt: skip
async def test_a_clean_connection_is_used_again_and_another_is_not(
    response: bytes, body: bytes, connections: int
) -> None:
    async with Says(response) as server, fetcher(server.port) as under_test:
        for number in range(2):
            exchange = await under_test.fetch(f"http://www.test/{number}")
            assert (exchange.body, exchange.truncated) == (body, None)
        assert (server.connections, len(server.requests)) == (connections, 2)


@pytest.mark.parametrize("code", [b"000", b"099", b"101"])
async def test_an_impossible_status_is_an_error_at_once(code: bytes) -> None:
    """It is not an interim response, so no other head follows. No request asks for another protocol."""
    response = b"HTTP/1.1 %b X\r\nContent-Length: 2\r\n\r\nab" % code
    async with Says(response) as server, fetcher(server.port) as under_test:
        with pytest.raises(FetchFailed) as failed:
            await under_test.fetch("http://www.test/")
        assert failed.value.kind is FailureKind.PROTOCOL
        assert failed.value.request_sent


@pytest.mark.parametrize(
    "response",
    [
        OK + b"Content-Length: %d\r\n\r\n" % SIZE + b"x" * SIZE,
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + _chunked(*[b"x" * 100_000] * (SIZE // 100_000)),
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + _chunked(*[b"x" * 32] * (SIZE // 32)),
    ],
    ids=["length", "chunks", "small-chunks"],
)
async def test_a_large_body_is_taken_piece_by_piece_and_whole(response: bytes) -> None:
    async with Says(response) as server, fetcher(server.port) as under_test:
        for number in range(2):
            exchange = await under_test.fetch(f"http://www.test/{number}")
            assert (len(exchange.body), exchange.truncated) == (SIZE, None)
        assert server.connections == 1


async def test_bodies_of_short_lines_take_a_tenth_of_the_time_together() -> None:
    response = OK + b"Transfer-Encoding: chunked\r\n\r\n" + _chunked(*[b"x"] * 20_000)
    began = asyncio.get_running_loop().time()
    async with Says(response) as server, fetcher(server.port) as under_test:
        exchanges = await asyncio.gather(*(under_test.fetch(f"http://{number}.test/") for number in range(4)))
    assert {(len(exchange.body), exchange.truncated) for exchange in exchanges} == {(20_000, None)}
    assert asyncio.get_running_loop().time() - began > 4 * 15 * REST_S


@pytest.mark.parametrize("is_over_tls", [False, True])
async def test_a_server_that_closes_during_a_rest_loses_nothing(is_over_tls: bool) -> None:
    response = OK + b"Transfer-Encoding: chunked\r\n\r\n" + _chunked(*[b"x"] * 30_000)
    server_tls, client_tls = tls_pair("www.test") if is_over_tls else (None, None)
    scheme = "https" if is_over_tls else "http"
    async with Raw(response, tls=server_tls) as server, fetcher(server.port, tls=client_tls) as under_test:
        exchange = await under_test.fetch(f"{scheme}://www.test/")
    assert (len(exchange.body), exchange.truncated) == (30_000, None)


async def test_a_large_body_is_cut_at_the_limit() -> None:
    response = OK + b"Content-Length: %d\r\n\r\n" % SIZE + b"x" * SIZE
    async with Says(response) as server, fetcher(server.port, max_body_bytes=2_000_001) as under_test:
        exchange = await under_test.fetch("http://www.test/")
        await server.hung_up.wait()
    assert (len(exchange.body), exchange.truncated) == (2_000_001, "length")


async def test_a_trickle_is_cut_at_the_limit_and_not_at_the_end_of_the_time() -> None:
    async with OneByteASecond() as server, fetcher(server.port, max_body_bytes=3) as under_test:
        exchange = await under_test.fetch("http://www.test/")
    assert (exchange.body, exchange.truncated) == (b"xxx", "length")
    assert exchange.elapsed < 20


async def test_silence_is_counted_from_the_last_byte() -> None:
    """A byte every 0.05 s is not a silence of 0.6 s, however many of them pass."""
    bounds = {"read_timeout_s": 0.6, "total_timeout_s": 1.4}
    async with OneByteASecond() as server, fetcher(server.port, **bounds) as under_test:
        exchange = await under_test.fetch("http://www.test/")
    assert exchange.truncated == "time"
    assert exchange.elapsed > 1.35


async def test_a_kept_connection_is_not_waited_for_longer_than_a_new_one() -> None:
    async with AnswersOnce() as server, fetcher(server.port, read_timeout_s=0.3, total_timeout_s=60) as under_test:
        await under_test.fetch("http://www.test/1")
        async with asyncio.timeout(40):
            with pytest.raises(FetchFailed) as caught:
                await under_test.fetch("http://www.test/2")
        assert (caught.value.kind, server.connections) == (FailureKind.TIMEOUT, 1)


async def test_a_cancelled_fetch_hangs_up() -> None:
    async with NeverAnswers() as server, fetcher(server.port) as under_test:
        for number in range(3):
            server.asked.clear()
            under_way = asyncio.create_task(under_test.fetch(f"http://www.test/{number}"))
            await server.asked.wait()
            under_way.cancel()
            with pytest.raises(asyncio.CancelledError):
                await under_way
        # What does not answer cannot notice that it was hung up on: the next request needs another connection.
        assert server.connections == 3


class ClosesAfterOne(FaultServer):
    """Answers one request on a connection and closes it without having announced that."""

    async def answer(self, writer: StreamWriter) -> bool:
        await super().answer(writer)
        return False


class BreaksOff(FaultServer):
    async def answer(self, writer: StreamWriter) -> bool:
        writer.transport.abort()
        return False


@pytest.mark.parametrize("kind", [FaultServer, ClosesAfterOne, BreaksOff])
@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
async def test_nothing_of_a_connection_that_has_ended_waits_for_the_collector(
    kind: type[FaultServer], has_tls: bool
) -> None:
    """Given connections that were closed as surplus idle ones or by the server, or were aborted, when the garbage
    collector does not run, then they are gone."""
    hosts = ["a.test", "b.test", "c.test"]
    server_tls, client_tls = tls_pair(*hosts)
    with _nothing_collected():
        async with (
            kind(server_tls if has_tls else None) as server,
            fetcher(server.port, tls=client_tls, max_idle=1) as under_test,
        ):
            for host in hosts:
                with contextlib.suppress(FetchFailed):
                    await under_test.fetch(f"http{'s' if has_tls else ''}://{host}/")
            assert server.connections == len(hosts)
            await _until_no_more_than(1, server.port)
        await _until_no_more_than(0, server.port)


async def test_nothing_of_a_refused_connection_waits_for_the_collector() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with _nothing_collected():
        before = _refusals()  # of other tests, which something keeps
        async with fetcher(port) as under_test:
            with contextlib.suppress(FetchFailed):
                await under_test.fetch("http://www.test/")
        assert [error for error in _refusals() if error not in before] == []


def _refusals() -> list[ConnectionRefusedError]:
    return [thing for thing in gc.get_objects() if isinstance(thing, ConnectionRefusedError)]


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """Without the garbage collector, and without garbage at the start."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _until_no_more_than(count: int, port: int) -> None:
    async with asyncio.timeout(15):
        while len(_ends_of_connections_to(port)) > count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # nobody tells that an object has gone


def _ends_of_connections_to(port: int) -> set[int]:
    """The local ports of the connections to `port` of which something is still in memory."""
    transports = [thing for thing in gc.get_objects() if isinstance(thing, BaseTransport)]
    # A TLS transport that was closed twice, as asyncio's server does, has no address.
    ends = [one.get_extra_info for one in transports if getattr(one, "_ssl_protocol", one) is not None]
    return {told("sockname")[1] for told in ends if told("peername", (None, None))[1] == port}
