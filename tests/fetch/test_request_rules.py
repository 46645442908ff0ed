"""What rules add to requests, on the wire and in records: to whom, in which order, and that secrets are in no record."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from crawler.app.requests import request_rules
from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.client import Fetcher
from crawler.fetch.request_rules import Origin, RequestRule, header_lines
from crawler.http_head import Secret
from crawler.page import Exchange
from crawler.settings.tables import RequestsTable
from tests.fetch.fetching import AGENT, fetcher
from tests.fetch.servers import FaultServer, Raw, SetsCookie, tls_pair

FIELDS = b"User-Agent: t/1\r\n"


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://a.test", b"a.test"),
        ("http://a.test:80", b"a.test"),
        ("https://a.test:443", b"a.test"),
        ("https://a.test:8443", b"a.test:8443"),
        ("http://a.test.", b"a.test"),
        ("http://[2001:db8::1]:8080", b"[2001:db8::1]:8080"),
        ("http://name:secret@a.test", b"a.test"),
    ],
)
def test_the_host_field_names_the_host_and_an_unusual_port(origin: str, host: bytes) -> None:
    head = Origin.parse(origin).request_head("/x?y", FIELDS)
    assert head == b"GET /x?y HTTP/1.1\r\nHost: " + host + b"\r\n" + FIELDS + b"\r\n"


def test_connections_are_kept_apart_by_host_port_and_tls() -> None:
    origins = ["http://a.test", "https://a.test", "http://a.test:8080", "http://b.test", "http://[::1]"]
    assert len({Origin.parse(origin).key for origin in origins}) == len(origins)
    assert Origin.parse("http://a.test:80").key == Origin.parse("http://a.test").key


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/a\0", "/a\x7f", "/\ud800"])
def test_a_target_that_would_break_the_request_line_is_refused(target: str) -> None:
    with pytest.raises(FetchFailed) as caught:
        Origin.parse("http://a.test").request_head(target, FIELDS)
    assert caught.value.kind is FailureKind.BAD_URL


@pytest.mark.parametrize("field", [("If-None-Match", '"\r\nX: y"'), ("A\nB", "c"), ("A", "\0"), ("A", "\x7f")])
def test_a_field_that_would_break_its_line_is_refused(field: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="control character"):
        header_lines([field])
    with pytest.raises(FetchFailed) as caught:
        Origin.parse("http://a.test").request_head("/", FIELDS, [field])
    assert caught.value.kind is FailureKind.BAD_URL


def test_a_tab_belongs_in_a_field() -> None:
    assert header_lines([("A", "b\tc")]) == b"A: b\tc\r\n"


USUAL = (
    b"GET /x HTTP/1.1\r\nHost: a.test\r\nUser-Agent: %b\r\n"
    b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.5\r\n"
    b"Accept-Language: en,*;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\r\n" % AGENT.encode()
)

ENVIRONMENT = {"LOGIN": "me:sesame-1", "TOKEN": "sesame-2", "KEY": "sesame-3", "SESSION": "sid=sesame"}


def rules(*tables: dict[str, Any]) -> tuple[RequestRule, ...]:
    return request_rules([RequestsTable(**table) for table in tables], ENVIRONMENT)


@asynccontextmanager
async def ruled(server: FaultServer, *tables: dict[str, Any], tls: Any = None) -> AsyncIterator[Fetcher]:
    async with fetcher(server.port, rules=rules(*tables), tls=tls) as under_test:
        yield under_test


async def lines(server: FaultServer, under_test: Fetcher, url: str) -> set[bytes]:
    await under_test.fetch(url)
    return set(server.requests[-1].split(b"\r\n"))


@pytest.mark.parametrize("table", [None, {"host": "b.test", "headers": ("X-Team: search",), "cookies": True}])
async def test_a_request_to_which_no_rule_applies_is_unchanged(table: dict[str, Any] | None) -> None:
    async with FaultServer() as server, ruled(server, *([table] if table else [])) as under_test:
        exchange = await under_test.fetch("http://a.test/x")
    assert server.requests == [USUAL]
    assert exchange.request_head == USUAL


async def test_rules_apply_to_their_hosts_and_patterns_and_the_first_one_counts() -> None:
    tables = (
        {"match": r"/shop/", "headers": ("X-Team: shop",)},
        {"host": "a.test", "headers": ("x-team: a", "X-More: 1"), "accept_language": "de"},
        {"accept_language": "fr", "headers": ("Accept: text/html",)},
    )
    async with FaultServer() as server, ruled(server, *tables) as under_test:
        assert {b"X-Team: shop", b"X-More: 1", b"Accept-Language: de"} <= await lines(
            server, under_test, "http://www.a.test/shop/1"
        )
        assert {b"x-team: a", b"Accept-Language: de", b"Accept: text/html"} <= await lines(
            server, under_test, "http://a.test/"
        )
        other = await lines(server, under_test, "http://ba.test/robots.txt")
    assert {b"Accept-Language: fr", b"Accept: text/html"} <= other
    assert not any(line.lower().startswith(b"x-") for line in other)
    assert sum(line.startswith(b"Accept") for line in other) == 3


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"basic_env": "LOGIN"}, b"Authorization: Basic bWU6c2VzYW1lLTE="),
        ({"bearer_env": "TOKEN"}, b"Authorization: Bearer sesame-2"),
        ({"headers_env": ("X-Api-Key: KEY",)}, b"X-Api-Key: sesame-3"),
    ],
)
async def test_authorisation_goes_to_its_origin_alone_and_is_not_recorded(table: dict[str, Any], line: bytes) -> None:
    server_tls, client_tls = tls_pair("a.test", "www.a.test", "b.test")
    async with (
        FaultServer(server_tls) as server,
        ruled(server, {"origin": "https://a.test", **table}, tls=client_tls) as under_test,
    ):
        exchanges = [await under_test.fetch(f"https://a.test/{path}") for path in ("robots.txt", "x")]
        for other in ("https://www.a.test/", "https://b.test/", "https://a.test:8443/"):
            await under_test.fetch(other)
    async with FaultServer() as plain, ruled(plain, {"origin": "https://a.test", **table}) as under_test:
        await under_test.fetch("http://a.test/")
        await under_test.fetch("http://a.test:443/")
    assert [line in head.split(b"\r\n") for head in server.requests] == [True, True, False, False, False]
    others = [*server.requests[2:], *plain.requests]
    assert not any(b"sesame" in head or b"bWU6" in head or b"Authorization" in head for head in others)
    name = line.partition(b":")[0]
    for recorded, sent in zip(exchanges, server.requests, strict=False):
        assert recorded.request_head == sent.replace(line, name + b": [redacted]")


async def test_a_session_cookie_that_answers_a_secret_is_not_recorded() -> None:
    table = {"origin": "http://a.test", "bearer_env": "TOKEN", "over_http": True}
    async with SetsCookie() as server, ruled(server, table) as under_test:
        exchange = await under_test.fetch("http://a.test/")
        other = await under_test.fetch("http://b.test/")
    assert b"id=1" in other.response_head
    assert dict(other.headers)[b"Set-Cookie"] == b"id=1; Path=/"
    assert exchange.response_head == other.response_head.replace(b"id=1; Path=/", b"[redacted]")
    assert dict(exchange.headers)[b"Set-Cookie"] == b"[redacted]"


async def test_kept_cookies_start_with_those_of_the_rule_at_its_origin_alone() -> None:
    secret = {"origin": "http://a.test", "headers_env": ("Cookie: SESSION",), "over_http": True, "cookies": True}
    async with SetsCookie() as server, ruled(server, secret, {"cookies": True}) as under_test:
        exchanges = [await under_test.fetch(url) for url in ("http://a.test/", "http://a.test/x", "http://www.a.test/")]
    sent = [re.findall(rb"\r\nCookie: ([^\r]*)", head) for head in server.requests]
    assert sent == [[b"sid=sesame"], [b"sid=sesame; id=1"], []]
    assert all(b"sesame" not in one.request_head for one in exchanges)


async def test_cookies_are_sent_back_and_are_in_no_record() -> None:
    async with SetsCookie() as server, ruled(server, {"host": "a.test", "cookies": True}) as under_test:
        exchanges: list[Exchange] = [
            await under_test.fetch("http://www.a.test/"),
            await under_test.fetch("http://a.test/"),
        ]
        exchanges.append(await under_test.fetch("http://www.a.test/x"))
        await under_test.fetch("http://b.test/")
        await under_test.fetch("http://b.test/")
    assert [re.findall(rb"\r\nCookie: ([^\r]*)", head) for head in server.requests] == [[], [], [b"id=1"], [], []]
    assert all(b"id=1" not in one.request_head + one.response_head for one in exchanges)
    assert b"id=1" not in repr([one.headers for one in exchanges]).encode()
    assert b"Cookie: [redacted]\r\n" in exchanges[2].request_head


@pytest.mark.parametrize(
    "lines",
    [
        b" Set-Cookie: id=SECRET; Path=/\r\n",
        b"Set-Cookie\t: id=SECRET; Path=/\r\n",
        b"Set-Cookie:\r\n id=SECRET; Path=/\r\n",
        b"Set-Cookie=id=SECRET\r\n",
        b"X: 1\rSet-Cookie: id=SECRET\r\n",
    ],
)
async def test_an_odd_cookie_is_in_no_record(lines: bytes) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nSet-Cookie: id=SECRET\r\n\r\n"
    answer = early + b"HTTP/1.1 200 OK\r\n" + lines + b"Content-Length: 1\r\n\r\na"
    async with Raw(answer) as server, ruled(server, {"host": "a.test", "cookies": True}) as under_test:
        exchange = await under_test.fetch("http://a.test/")
    assert b"SECRET" not in exchange.request_head + exchange.response_head + repr(exchange).encode()
    assert exchange.body == b"a"


async def test_a_cookie_with_odd_spaces_is_sent_back() -> None:
    class SetsOddCookie(SetsCookie):
        extra = b"Set-Cookie\t:\r\n id=1; Path=/\r\n"

    async with SetsOddCookie() as server, ruled(server, {"host": "a.test", "cookies": True}) as under_test:
        for _ in range(2):
            await under_test.fetch("http://a.test/")
    assert b"\r\nCookie: id=1\r\n" in server.requests[1]


def test_a_secret_is_not_in_the_representation_of_what_has_it() -> None:
    (rule,) = rules({"origin": "https://a.test", "basic_env": "LOGIN", "proxy_env": ""})
    assert "sesame" not in repr(rule)
    assert "bWU6" not in repr(rule)
    assert "sesame" not in f"{Secret('sesame')!r} {Secret('sesame')}"
