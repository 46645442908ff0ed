"""Each way in which a server can fail, and the reason that is counted for it."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from crawler.errors import FailureKind, FetchFailed
from tests.fetch.fetching import fetcher
from tests.fetch.servers import (
    DropsConnection,
    EndlessHeaderLine,
    EndlessHeaders,
    EndlessInterim,
    FallsSilent,
    FaultServer,
    NeverAnswers,
    OneByteASecond,
    Raw,
    SendsHalf,
)

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("server_type", "kind"),
    [
        (DropsConnection, FailureKind.DISCONNECTED),
        (EndlessHeaders, FailureKind.HEADER_TOO_LARGE),
        (EndlessHeaderLine, FailureKind.HEADER_TOO_LARGE),
        (EndlessInterim, FailureKind.PROTOCOL),
        (lambda: Raw(b"SSH-2.0-OpenSSH_9.2\r\n"), FailureKind.PROTOCOL),
        (lambda: Raw(b"HTTP/1.1 OK\r\n\r\n"), FailureKind.PROTOCOL),
        (lambda: Raw(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n"), FailureKind.PROTOCOL),
        (lambda: Raw(OK[:9]), FailureKind.DISCONNECTED),
    ],
    ids=["drops", "headers", "header-line", "interim", "ssh", "no-status", "two-lengths", "half-a-status-line"],
)
async def test_no_response_head_is_a_failure(server_type: Callable[[], FaultServer], kind: FailureKind) -> None:
    async with server_type() as server, fetcher(server.port) as under_test:
        with pytest.raises(FetchFailed) as caught:
            await under_test.fetch("http://www.test/")
    assert (caught.value.kind, caught.value.request_sent) == (kind, True)
    assert len(caught.value.detail) <= 200
    assert len(server.requests) == 1


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with fetcher(port) as under_test:
        with pytest.raises(FetchFailed) as caught:
            await under_test.fetch("http://www.test/")
    assert (caught.value.kind, caught.value.request_sent) == (FailureKind.REFUSED, False)


async def test_a_handshake_that_never_ends_is_a_connect_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with fetcher(silent.getsockname()[1], connect_timeout_s=0.1) as under_test:
            with pytest.raises(FetchFailed) as caught:
                await under_test.fetch("https://www.test/")
    assert (caught.value.kind, caught.value.request_sent) == (FailureKind.CONNECT_TIMEOUT, False)


@pytest.mark.parametrize(
    ("server_type", "bound"),
    [
        (NeverAnswers, "read_timeout_s"),
        (NeverAnswers, "total_timeout_s"),
    ],
)
async def test_no_answer_in_time(server_type: Callable[[], FaultServer], bound: str) -> None:
    async with server_type() as server, fetcher(server.port, **{bound: 0.3}) as under_test:
        with pytest.raises(FetchFailed) as caught:
            await under_test.fetch("http://www.test/")
    assert (caught.value.kind, caught.value.request_sent) == (FailureKind.TIMEOUT, True)


@pytest.mark.parametrize(
    ("server_type", "body"),
    [
        (SendsHalf, b"half."),
        (lambda: Raw(OK + b"Content-Length: 10\r\n\r\n", b"half."), b"half."),
        (lambda: Raw(CHUNKED + b"5\r\nhello\r\nZZ\r\n"), b"hello"),
        (lambda: Raw(CHUNKED + b"5\r\nhello\r\n", b"ZZ\r\n"), b"hello"),
        (lambda: Raw(CHUNKED + b"5\r\nhello\r\n5\r\nwo"), b"hellowo"),
    ],
    ids=["half", "half-later", "bad-chunk", "bad-chunk-later", "half-a-chunk"],
)
async def test_a_body_that_breaks_off_is_kept_as_far_as_it_came(
    server_type: Callable[[], FaultServer], body: bytes
) -> None:
    async with server_type() as server, fetcher(server.port, total_timeout_s=5) as under_test:
        exchange = await under_test.fetch("http://www.test/")
    assert (exchange.status, exchange.body, exchange.truncated) == (200, body, "disconnect")


@pytest.mark.parametrize(
    ("server_type", "bound"),
    [(OneByteASecond, "total_timeout_s"), (FallsSilent, "total_timeout_s"), (FallsSilent, "read_timeout_s")],
)
async def test_a_slow_body_is_cut_off_in_time(server_type: Callable[[], FaultServer], bound: str) -> None:
    async with server_type() as server, fetcher(server.port, **{bound: 0.3}) as under_test:
        exchange = await under_test.fetch("http://www.test/")
        if server_type is OneByteASecond:  # the other one does not look whether we are still there
            await server.hung_up.wait()
    assert exchange.truncated == "time"
    assert 1 <= len(exchange.body) <= 10
    assert 0.25 < exchange.elapsed < 10  # of the half day that the body would take


async def test_a_body_that_reaches_the_limit_and_goes_on_is_cut() -> None:
    """The first segment fills the limit exactly; only the next one shows that there is more."""
    async with (
        Raw(OK + b"Content-Length: 10\r\n\r\nfirst", b"later") as server,
        fetcher(server.port, max_body_bytes=5) as under_test,
    ):
        exchange = await under_test.fetch("http://www.test/")
    assert (exchange.body, exchange.truncated) == (b"first", "length")


async def test_a_body_of_exactly_the_limit_is_whole() -> None:
    async with FaultServer() as server, fetcher(server.port, max_body_bytes=len(FaultServer.body)) as under_test:
        exchange = await under_test.fetch("http://www.test/")
    assert (exchange.body, exchange.truncated) == (FaultServer.body, None)


async def test_headers_up_to_the_limit_are_taken_in_one_line_or_many() -> None:
    one = OK + b"X: " + b"y" * 60_000 + b"\r\n\r\n"
    many = OK + b"X: y\r\n" * 10_000 + b"\r\n"
    for head in (one, many):
        async with Raw(head + b"page") as server, fetcher(server.port) as under_test:
            exchange = await under_test.fetch("http://www.test/")
        assert (exchange.response_head, exchange.body) == (head, b"page")
