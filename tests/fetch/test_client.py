"""What goes on the wire and what comes back, against real sockets."""

from __future__ import annotations

import asyncio
from asyncio import StreamWriter
from collections.abc import Callable
from typing import Any

import pytest

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.address_policy import AddressPolicy
from crawler.fetch.client import Fetcher
from crawler.fetch.library_privates import READ_BYTES
from tests.fetch.fetching import AGENT, fetcher, plain_fetcher
from tests.fetch.servers import (
    AnswersInPlainText,
    DropsSecondRequest,
    EndlessBody,
    FallsSilent,
    FaultServer,
    NeverAnswers,
    Raw,
    SetsCookie,
    SpeaksUnasked,
    tls_pair,
)

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "target",
    ["/", "/?", "/a?b=c&d", "/a//b/../c", "/%7Euser/%e4", "/x?a=?&b=%41|{}'", "/p;q=1?x=http://y/"],
)
async def test_a_url_goes_on_the_wire_byte_for_byte(target: str) -> None:
    async with FaultServer() as server, fetcher(server.port) as under_test:
        exchange = await under_test.fetch(f"http://www.test{target}")
    assert server.requests[0].startswith(f"GET {target} HTTP/1.1\r\n".encode())
    assert exchange.url == f"http://www.test{target}"


async def test_the_stored_request_is_the_request_that_was_received() -> None:
    async with FaultServer() as server, fetcher(server.port) as under_test:
        exchange = await under_test.fetch(
            "http://www.test:8080/a", extra_headers=[("If-None-Match", '"x"'), ("X-Name", "Zoë")]
        )
    assert exchange.request_head == server.requests[0]
    fields = exchange.request_head.decode().split("\r\n")[1:-2]
    assert fields[0] == "Host: www.test:8080"
    assert f"User-Agent: {AGENT}" in fields
    assert 'If-None-Match: "x"' in fields
    assert {line.partition(":")[0] for line in fields} == {
        "Host", "User-Agent", "Accept", "Accept-Language", "Accept-Encoding", "If-None-Match", "X-Name",
    }  # fmt: skip


async def test_copies_of_cookies_are_in_no_record_and_all_other_fields_are() -> None:
    cookies = ("Cookie", "consent=1; e=; csrf=c0ffee; id=plum-plum-plum-plum")
    shown, hidden = [("DNT", "1"), ("X-None", "")], [("X-CSRFToken", "c0ffee"), ("X-Id", "plum-plum-plum-plum")]
    async with FaultServer() as server, fetcher(server.port) as under_test:
        exchange = await under_test.fetch("http://www.test/", extra_headers=[cookies, *shown, *hidden])
    fields = dict(line.split(": ", 1) for line in exchange.request_head.decode().split("\r\n")[1:-2])
    assert fields.items() >= {*shown, ("Cookie", "[redacted]"), *((name, "[redacted]") for name, _ in hidden)}


async def test_a_request_with_a_body_is_sent_and_recorded_whole() -> None:
    """Its own fields replace the usual ones. Its connection is a new one: whether a request was carried out while the
    server closed an idle one, nobody can tell."""
    async with FaultServer() as server, fetcher(server.port) as under_test:
        fields = [("Content-Type", "application/json"), ("accept", "application/json")]
        exchange = await under_test.fetch(
            "http://www.test/api", method="POST", body=b'{"page": 2}', extra_headers=fields
        )
        empty = await under_test.fetch("http://www.test/api", method="POST")
        await under_test.fetch("http://www.test/api", method="PUT", body=b"a")
        await under_test.fetch("http://www.test/api")
    assert exchange.request_head + exchange.request_body == server.requests[0]
    assert (exchange.method, exchange.request_body) == ("POST", b'{"page": 2}')
    lines = exchange.request_head.decode().split("\r\n")
    assert lines[0] == "POST /api HTTP/1.1"
    assert [line for line in lines if line.lower().startswith("accept:")] == ["accept: application/json"]
    assert "Content-Length: 11" in lines
    assert b"\r\nContent-Length: 0\r\n" in empty.request_head
    assert server.connections == 3


async def test_the_response_to_head_has_no_body() -> None:
    class Head(FaultServer):
        async def answer(self, writer: StreamWriter) -> bool:
            writer.write(OK + b"Content-Length: 12\r\n\r\n")
            return True

    async with Head() as server, fetcher(server.port) as under_test:
        for _ in range(2):
            exchange = await under_test.fetch("http://www.test/", method="HEAD")
            assert (exchange.body, exchange.truncated) == (b"", None)
    assert server.connections == 1


async def test_the_response_is_stored_as_received() -> None:
    head = OK + b"X-Odd:  \xe9 two  words\t\r\nx-odd: again\r\nContent-Length: 4\r\n\r\n"
    async with Raw(head + b"body") as server, fetcher(server.port) as under_test:
        exchange = await under_test.fetch("http://www.test/")
    assert exchange.response_head == head
    assert exchange.headers[0] == (b"X-Odd", b"\xe9 two  words")
    assert exchange.header(b"content-length") == b"4"
    assert (exchange.status, exchange.reason, exchange.body) == (200, "OK", b"body")
    assert (exchange.truncated, exchange.protocol, exchange.tls) == (None, "http/1.1", None)
    assert exchange.address == "127.0.0.1"
    assert 0 < exchange.first_byte <= exchange.elapsed < 5
    assert exchange.started_at > 1.7e9


async def test_a_content_coding_is_left_as_it_is() -> None:
    async with (
        Raw(OK + b"Content-Encoding: gzip\r\nContent-Length: 7\r\n\r\nnotgzip") as server,
        fetcher(server.port) as under_test,
    ):
        assert (await under_test.fetch("http://www.test/")).body == b"notgzip"


async def test_redirects_are_not_followed() -> None:
    found = b"HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n"
    async with Raw(found) as server, fetcher(server.port) as under_test:
        exchange = await under_test.fetch("http://www.test/")
    assert (exchange.status, exchange.header(b"location")) == (302, b"/next")
    assert len(server.requests) == 1


async def test_no_cookie_is_sent_back() -> None:
    async with SetsCookie() as server, fetcher(server.port) as under_test:
        for _ in range(2):
            await under_test.fetch("http://www.test/")
    assert all(b"cookie" not in request.lower() for request in server.requests)


async def test_userinfo_is_never_sent() -> None:
    async with FaultServer() as server, fetcher(server.port) as under_test:
        await under_test.fetch("http://name:secret@www.test/")
    assert b"secret" not in server.requests[0]
    assert b"uthorization" not in server.requests[0]


async def test_idle_connections_are_bounded_and_the_oldest_goes_first() -> None:
    async with FaultServer() as server, fetcher(server.port, max_idle=3) as under_test:
        for number in range(10):
            await under_test.fetch(f"http://host{number}.test/")
            while server.open > 3:
                server.hung_up.clear()
                await server.hung_up.wait()
        await under_test.fetch("http://host9.test/")
        assert server.connections == 10
        await under_test.fetch("http://host0.test/")
        assert server.connections == 11


async def test_a_request_is_never_repeated_in_place() -> None:
    """aiohttp would repeat it at once and so violate the delay of the domain."""
    async with DropsSecondRequest() as server, fetcher(server.port) as under_test:
        await under_test.fetch("http://www.test/1")
        with pytest.raises(FetchFailed) as caught:
            await under_test.fetch("http://www.test/2")
        assert caught.value.kind is FailureKind.STALE_CONNECTION
        assert len(server.requests) == 2


async def test_an_unasked_response_never_passes_for_the_next_one() -> None:
    async with SpeaksUnasked() as server, fetcher(server.port) as under_test:
        for number in range(3):
            try:
                exchange = await under_test.fetch(f"http://www.test/{number}")
            except FetchFailed as failure:
                assert failure.kind is FailureKind.STALE_CONNECTION
            else:
                assert exchange.body == server.body
            await asyncio.sleep(0.04)  # the forged response is on its way


class TestDeadline:
    """The lease check, at the last moment before the request is written."""

    async def test_nothing_is_sent_when_the_time_is_over(self) -> None:
        async with FaultServer() as server, fetcher(server.port) as under_test:
            with pytest.raises(FetchFailed) as caught:
                await under_test.fetch("http://www.test/", is_too_late=lambda: True)
            assert (caught.value.kind, caught.value.request_sent) == (FailureKind.LEASE_EXPIRED, False)
            await under_test.fetch("http://www.test/after", is_too_late=lambda: False)
        assert [request.split()[1] for request in server.requests] == [b"/after"]

    async def test_it_is_asked_once_and_after_the_connection_stands(self) -> None:
        seen: list[int] = []
        async with FaultServer() as server, fetcher(server.port) as under_test:

            def is_over() -> bool:
                seen.append(len(server.requests))
                return False

            await under_test.fetch("http://www.test/", is_too_late=is_over)
            await under_test.fetch("http://www.test/", is_too_late=is_over)
        assert seen == [0, 1]

    async def test_a_lease_that_ends_during_the_handshake_sends_nothing(self) -> None:
        """Here the lease ends when the server accepts the TLS connection."""
        server_tls, client_tls = tls_pair("www.test")
        over: list[bool] = []
        server_tls.sni_callback = lambda *_: over.append(True)
        async with FaultServer(server_tls) as server, fetcher(server.port, tls=client_tls) as under_test:
            with pytest.raises(FetchFailed) as caught:
                await under_test.fetch("https://www.test/", is_too_late=lambda: bool(over))
            assert caught.value.kind is FailureKind.LEASE_EXPIRED
        assert over
        assert server.requests == []


class TestTls:
    async def test_the_cipher_is_recorded(self) -> None:
        server_tls, client_tls = tls_pair("www.test")
        async with FaultServer(server_tls) as server, fetcher(server.port, tls=client_tls) as under_test:
            exchange = await under_test.fetch("https://www.test/")
        assert exchange.tls is not None
        assert exchange.tls.endswith(" TLSv1.3")

    async def test_an_idle_connection_keeps_little_room(self) -> None:
        server_tls, client_tls = tls_pair("www.test")
        async with FaultServer(server_tls) as server, fetcher(server.port, tls=client_tls) as under_test:
            await under_test.fetch("https://www.test/")
            assert under_test._connector is not None
            ((protocol, _),) = next(iter(under_test._connector._conns.values()))
            room = protocol.transport._ssl_protocol._ssl_buffer  # type: ignore[union-attr]
            assert len(room) <= READ_BYTES

    @pytest.mark.parametrize("host", ["www.test", "other.test"])
    async def test_an_unknown_authority_and_a_wrong_name_are_refused(self, host: str) -> None:
        server_tls, client_tls = tls_pair("www.test")
        trust = client_tls if host == "other.test" else None
        async with FaultServer(server_tls) as server, fetcher(server.port, tls=trust) as under_test:
            with pytest.raises(FetchFailed) as caught:
                await under_test.fetch(f"https://{host}/")
        assert (caught.value.kind, caught.value.request_sent) == (FailureKind.TLS, False)
        assert server.requests == []

    async def test_verification_can_be_switched_off(self) -> None:
        server_tls, _ = tls_pair("www.test")
        async with FaultServer(server_tls) as server, fetcher(server.port, verify_tls=False) as under_test:
            assert (await under_test.fetch("https://other.test/")).status == 200

    async def test_a_server_that_does_not_speak_tls(self) -> None:
        async with AnswersInPlainText() as server, fetcher(server.port) as under_test:
            await _fails(under_test, "https://www.test/", FailureKind.TLS)


class TestAddresses:
    """I9: no connection to a non-public address unless the operator allows it."""

    @pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254"])
    async def test_an_address_in_the_url_is_judged(self, host: str) -> None:
        async with FaultServer() as server, plain_fetcher(server.port) as under_test:
            failure = await _fails(under_test, f"http://{host}:{server.port}/", FailureKind.FORBIDDEN_ADDRESS)
        assert not failure.request_sent
        assert server.connections == 0

    @pytest.mark.parametrize("host", ["2130706433", "127.1", "0x7f.1", "017700000001", "0177.0.0.1"])
    async def test_other_spellings_of_an_address_lead_nowhere(self, host: str) -> None:
        async with FaultServer() as server, plain_fetcher(server.port) as under_test:
            with pytest.raises(FetchFailed):
                await under_test.fetch(f"http://{host}:{server.port}/")
        assert server.connections == 0

    @pytest.mark.parametrize("allowed", [{"allow_private": True}, {"allow": ["127.0.0.0/8"]}])
    async def test_the_operator_may_allow_private_addresses(self, allowed: dict[str, Any]) -> None:
        async with FaultServer() as server, plain_fetcher(server.port, **allowed) as under_test:
            assert (await under_test.fetch(f"http://127.0.0.1:{server.port}/")).status == 200

    async def test_a_mapped_address_is_open_to_the_mapped_hosts_only(self) -> None:
        async with FaultServer() as server:
            policy = AddressPolicy.of(ports=[80, server.port])
            async with fetcher(server.port, addresses=policy) as under_test:
                await under_test.fetch("http://www.test/")
                url = f"http://127.0.0.1:{server.port}/"
                await _fails(under_test, url, FailureKind.FORBIDDEN_ADDRESS)
            assert server.connections == 1

    async def test_a_name_that_leads_inside_is_refused(self) -> None:
        async with FaultServer() as server, plain_fetcher(server.port) as under_test:
            await _fails(under_test, f"http://inside.example:{server.port}/", FailureKind.FORBIDDEN_ADDRESS)
        assert server.connections == 0

    @pytest.mark.parametrize("port", [22, 25, 6379, 9200])
    async def test_only_web_ports(self, port: int) -> None:
        async with plain_fetcher(80) as under_test:
            failure = await _fails(under_test, f"http://8.8.8.8:{port}/", FailureKind.FORBIDDEN_PORT)
        assert not failure.request_sent


@pytest.mark.parametrize(
    "url", ["ftp://www.test/", "http:///x", "http://www.test", "www.test/", "", "http://www.test:99999/"]
)
async def test_what_is_not_a_url_is_said_so(url: str) -> None:
    async with plain_fetcher(80) as under_test:
        await _fails(under_test, url, FailureKind.BAD_URL)


class TestLife:
    async def test_a_draining_fetcher_takes_nothing_and_lets_the_rest_end(self) -> None:
        async with FaultServer() as server, fetcher(server.port) as under_test:
            under_way = asyncio.create_task(under_test.fetch("http://www.test/"))
            await asyncio.sleep(0)
            assert repr(under_test) == "<Fetcher taking under_way=1>"
            under_test.drain()
            await _fails(under_test, "http://www.test/", FailureKind.STOPPED)
            await under_test.stop(5)
            assert (await under_way).status == 200

    @pytest.mark.parametrize("server_type", [NeverAnswers, EndlessBody, FallsSilent])
    async def test_stop_cuts_off_what_outlasts_its_deadline(self, server_type: Callable[[], FaultServer]) -> None:
        async with server_type() as server, fetcher(server.port, max_body_bytes=1 << 40) as under_test:
            under_way = asyncio.create_task(under_test.fetch("http://www.test/"))
            await server.asked.wait()
            async with asyncio.timeout(15):
                await under_test.stop(0.05)
            with pytest.raises(FetchFailed) as caught:
                await under_way
            assert caught.value.kind is FailureKind.STOPPED


async def _fails(under_test: Fetcher, url: str, *kinds: FailureKind) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        await under_test.fetch(url)
    assert caught.value.kind in kinds
    return caught.value
