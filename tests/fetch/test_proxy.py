"""Requests through a proxy: what it is asked, what the site receives, whose fault a failure is, and which addresses it may
not be asked for."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from crawler.app.requests import request_rules
from crawler.errors import FailureKind, FetchFailed
from crawler.fetch import library_privates
from crawler.fetch.address_policy import AddressPolicy
from crawler.fetch.client import Fetcher, FetchSettings
from crawler.fetch.request_rules import Origin, RequestRules
from crawler.fetch.resolver import DnsAnswer
from crawler.settings.tables import RequestsTable
from frontier.clock import SystemClock
from tests.fetch.fetching import AGENT
from tests.fetch.proxies import HttpProxy, SocksProxy
from tests.fetch.servers import DropsConnection, EndlessBody, FallsSilent, FaultServer, NeverAnswers, Raw, tls_pair

LOGIN = "me:sesame"


class PublicLookup:
    """A DNS in which all hosts have the same public address, but for one, which is at a private address."""

    async def lookup(self, host: str, *, anew: bool = False) -> DnsAnswer:
        return DnsAnswer(("10.0.0.1" if host == "inside.test" else "8.8.8.8",), 60.0)

    async def close(self) -> None: ...


@asynccontextmanager
async def through(url: str, dns: bool = False, tls: Any = None, **settings: Any) -> AsyncIterator[Fetcher]:
    """A started fetcher whose only proxy is at `url`."""
    library_privates.install()
    rules = request_rules([RequestsTable(proxy_env="PROXY", proxy_dns=dns)], {"PROXY": url})
    made = FetchSettings(AGENT, rules=rules, addresses=AddressPolicy.of(ports=[80, 443]), **settings)
    under_test = Fetcher(made, SystemClock(), lookup=PublicLookup(), tls=tls)
    await under_test.start()
    try:
        yield under_test
    finally:
        await under_test.stop(0)


async def failure(under_test: Fetcher, url: str) -> FetchFailed:
    with pytest.raises(FetchFailed) as failed:
        await under_test.fetch(url)
    assert "sesame" not in str(failed.value)
    return failed.value


async def test_a_plain_request_goes_to_the_proxy_in_absolute_form() -> None:
    async with (
        FaultServer() as site,
        HttpProxy(site.port, LOGIN) as proxy,
        through(f"http://{LOGIN}@127.0.0.1:{proxy.port}") as under_test,
    ):
        exchange = await under_test.fetch("http://a.test/x?y")
        again = await under_test.fetch("http://a.test/z")
    assert exchange.body == FaultServer.body
    assert exchange.request_head.startswith(b"GET http://a.test/x?y HTTP/1.1\r\nHost: a.test\r\n")
    assert b"Proxy-Authorization: [redacted]\r\n" in exchange.request_head
    assert b"Proxy-Authorization: Basic bWU6c2VzYW1l\r\n" in proxy.heads[0]
    assert exchange.address == "", "that of the proxy is not that of the site"
    assert again.phases is None, "the connection is used again"
    assert b"Proxy-" not in site.requests[0]


@pytest.mark.parametrize("over_tls", [False, True], ids=["http", "https"])
async def test_https_goes_through_a_tunnel_and_the_proxy_sees_nothing_of_it(over_tls: bool) -> None:
    server_tls, client_tls = tls_pair("a.test", "127.0.0.1")
    proxy_tls, scheme = (server_tls, "https") if over_tls else (None, "http")
    async with (
        FaultServer(server_tls) as site,
        HttpProxy(site.port, LOGIN, tls=proxy_tls) as proxy,
        through(f"{scheme}://{LOGIN}@127.0.0.1:{proxy.port}", tls=client_tls) as under_test,
    ):
        exchange = await under_test.fetch("https://a.test/x")
        again = await under_test.fetch("https://a.test/y")
    assert proxy.heads == [
        b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nProxy-Authorization: Basic bWU6c2VzYW1l\r\n\r\n"
    ]
    assert exchange.request_head == site.requests[0]
    assert exchange.request_head.startswith(b"GET /x HTTP/1.1\r\nHost: a.test\r\nUser-Agent: ")
    assert b"Proxy-" not in exchange.request_head
    assert exchange.tls is not None
    assert exchange.phases is not None
    assert exchange.phases.tls_s is not None
    assert (again.phases, again.address) == (None, "")


async def test_a_plain_request_through_a_proxy_with_tls_is_recorded_as_plain() -> None:
    server_tls, client_tls = tls_pair("127.0.0.1")
    async with (
        FaultServer() as site,
        HttpProxy(site.port, tls=server_tls) as proxy,
        through(f"https://127.0.0.1:{proxy.port}", tls=client_tls) as under_test,
    ):
        exchange = await under_test.fetch("http://a.test/")
    assert (exchange.status, exchange.tls) == (200, None)


async def test_the_certificate_is_that_of_the_site() -> None:
    server_tls, client_tls = tls_pair("other.test", "127.0.0.1")
    async with (
        FaultServer(server_tls) as site,
        HttpProxy(site.port) as proxy,
        through(f"http://127.0.0.1:{proxy.port}", tls=client_tls) as under_test,
    ):
        failed = await failure(under_test, "https://a.test/")
    assert failed.kind is FailureKind.TLS
    assert site.requests == []


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (407, FailureKind.PROXY),
        (429, FailureKind.PROXY),
        (502, FailureKind.UNREACHABLE),
        (403, FailureKind.UNREACHABLE),
    ],
)
async def test_refusals_of_the_proxy_are_its_own_and_what_it_says_of_the_site_is_not(
    scheme: str, status: int, kind: FailureKind
) -> None:
    async with (
        FaultServer() as site,
        HttpProxy(site.port, status=status) as proxy,
        through(f"http://{LOGIN}@127.0.0.1:{proxy.port}") as under_test,
    ):
        if scheme == "http" and status != 407:  # it cannot be told from an answer of the site
            assert (await under_test.fetch("http://a.test/")).status == status
            return
        failed = await failure(under_test, f"{scheme}://a.test/")
    assert failed.kind is kind
    assert f"{proxy.port}" in failed.detail
    assert not failed.request_sent


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_site_cannot_pass_for_the_proxy_to_hold_up_a_crawl(scheme: str) -> None:
    server_tls, client_tls = tls_pair("a.test", "b.test")
    refuses = Raw(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", tls=server_tls if scheme == "https" else None)
    async with (
        FaultServer() as site,
        refuses,
        HttpProxy(site.port, tunnel_port=refuses.port) as proxy,
        through(f"http://127.0.0.1:{proxy.port}", tls=client_tls) as under_test,
    ):
        await under_test.fetch("http://b.test/")
        if scheme == "https":  # a proxy cannot answer in a tunnel
            assert (await under_test.fetch("https://a.test/")).status == 407
            return
        proxy.send_to(refuses.port)
        failed = await failure(under_test, "http://a.test/")
    assert failed.kind is FailureKind.UNREACHABLE


@pytest.mark.parametrize("url", ["http://a.test/", "https://a.test/"])
async def test_a_proxy_that_is_away_is_at_fault(url: str) -> None:
    async with FaultServer() as site, HttpProxy(site.port) as proxy:
        away = proxy.port
    async with through(f"http://{LOGIN}@127.0.0.1:{away}") as under_test:
        assert (await failure(under_test, url)).kind is FailureKind.PROXY
    async with through(f"https://{LOGIN}@localhost:{away}") as under_test:
        assert (await failure(under_test, url)).kind is FailureKind.PROXY


@pytest.mark.parametrize(
    "proxy",
    [Raw(b"220 ready\r\n"), Raw(b"HTTP/1.1 200 OK\r\n\r\n", b"early"), DropsConnection()],
    ids=["other", "early", "drops"],
)
async def test_a_proxy_that_speaks_something_else_or_hangs_up_is_at_fault(proxy: FaultServer) -> None:
    async with proxy, through(f"http://127.0.0.1:{proxy.port}") as under_test:
        assert (await failure(under_test, "https://a.test/")).kind in (FailureKind.PROXY, FailureKind.TLS)


async def test_a_tunnel_that_is_not_opened_in_time_is_a_failure_of_the_site() -> None:
    async with NeverAnswers() as proxy, through(f"http://127.0.0.1:{proxy.port}", connect_timeout_s=0.4) as under_test:
        assert (await failure(under_test, "https://a.test/")).kind is FailureKind.CONNECT_TIMEOUT
    assert len(proxy.requests) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_limits_hold_through_a_proxy(scheme: str) -> None:
    server_tls, client_tls = tls_pair("a.test")
    tls: ssl.SSLContext | None = server_tls if scheme == "https" else None
    limits = {"max_body_bytes": 100_000, "read_timeout_s": 0.3}
    async with (
        EndlessBody(tls) as site,
        HttpProxy(site.port) as proxy,
        through(f"http://127.0.0.1:{proxy.port}", tls=client_tls, **limits) as under_test,
    ):
        exchange = await under_test.fetch(f"{scheme}://a.test/")
    assert (len(exchange.body), exchange.truncated) == (100_000, "length")
    async with (
        FallsSilent(tls) as site,
        HttpProxy(site.port) as proxy,
        through(f"http://127.0.0.1:{proxy.port}", tls=client_tls, **limits) as under_test,
    ):
        exchange = await under_test.fetch(f"{scheme}://a.test/")
    assert (exchange.body, exchange.truncated) == (b"half.", "time")


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("dns", [False, True], ids=["looked up here", "only there"])
async def test_no_proxy_is_asked_for_an_address_that_is_not_allowed(scheme: str, dns: bool) -> None:
    """With `proxy_dns`, only addresses in URLs can be judged: what a name leads to is the business of the proxy."""
    async with (
        FaultServer() as site,
        HttpProxy(site.port, status=502) as proxy,
        through(f"http://127.0.0.1:{proxy.port}", dns) as under_test,
    ):
        for host in ("10.0.0.1", "169.254.169.254", "[::1]", "127.0.0.1"):
            failed = await failure(under_test, f"{scheme}://{host}/")
            assert failed.kind is FailureKind.FORBIDDEN_ADDRESS
        assert proxy.heads == []
        assert await under_test.locate(f"{scheme}://a.test/") == (None if dns else "8.8.8.8")
        if scheme == "http" and dns:
            assert (await under_test.fetch("http://inside.test/")).status == 502
        else:
            kind = FailureKind.UNREACHABLE if dns else FailureKind.FORBIDDEN_ADDRESS
            assert (await failure(under_test, f"{scheme}://inside.test/")).kind is kind
        assert len(proxy.heads) == dns


async def test_a_later_proxy_does_not_count_after_direct() -> None:
    tables = [RequestsTable(host="a.test", proxy="direct"), RequestsTable(proxy="http://127.0.0.1:9")]
    rules = RequestRules(request_rules(tables, {}), [])
    assert rules.of(Origin.parse("http://www.a.test"), "http://www.a.test/").proxy is None
    assert str(rules.of(Origin.parse("http://b.test"), "http://b.test/").proxy) == "the proxy http://127.0.0.1:9"


class TestSocks:
    """The same through SOCKS5."""

    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("python_socks")

    @pytest.mark.parametrize("scheme", ["http", "https"])
    async def test_requests_go_to_the_name_of_the_host(self, scheme: str) -> None:
        server_tls, client_tls = tls_pair("a.test")
        async with (
            FaultServer(server_tls if scheme == "https" else None) as site,
            SocksProxy(site.port, LOGIN) as proxy,
            through(f"socks5h://{LOGIN}@127.0.0.1:{proxy.port}", tls=client_tls) as under_test,
        ):
            exchange = await under_test.fetch(f"{scheme}://a.test/x")
            again = await under_test.fetch(f"{scheme}://a.test/y")
        assert proxy.heads == [b"a.test:443" if scheme == "https" else b"a.test:80"]
        assert exchange.request_head == site.requests[0]
        assert exchange.request_head.startswith(b"GET /x HTTP/1.1\r\n")
        assert (exchange.address, again.phases) == ("", None)

    @pytest.mark.parametrize(("code", "kind"), [(5, FailureKind.REFUSED), (4, FailureKind.UNREACHABLE)])
    async def test_what_it_says_of_the_site_is_a_failure_of_the_site(self, code: int, kind: FailureKind) -> None:
        async with (
            FaultServer() as site,
            SocksProxy(site.port, status=code) as proxy,
            through(f"socks5://127.0.0.1:{proxy.port}") as under_test,
        ):
            assert (await failure(under_test, "http://a.test/")).kind is kind

    async def test_refused_credentials_and_a_proxy_that_is_away_are_its_own(self) -> None:
        async with (
            FaultServer() as site,
            SocksProxy(site.port, "other:word") as proxy,
            through(f"socks5://{LOGIN}@127.0.0.1:{proxy.port}") as under_test,
        ):
            assert (await failure(under_test, "http://a.test/")).kind is FailureKind.PROXY
        async with through(f"socks5://{LOGIN}@127.0.0.1:{proxy.port}") as under_test:
            assert (await failure(under_test, "https://a.test/")).kind is FailureKind.PROXY
