"""Only the request that opened a connection reports how long that took."""

from __future__ import annotations

from tests.fetch.fetching import fetcher
from tests.fetch.servers import FaultServer, tls_pair


async def test_a_new_connection_tells_its_phases_and_a_kept_one_has_none() -> None:
    async with FaultServer() as server, fetcher(server.port) as under_test:
        opened = await under_test.fetch("http://www.test/1")
        kept = await under_test.fetch("http://www.test/2")
    assert opened.phases is not None
    assert opened.phases.tls_s is None
    assert 0 <= opened.phases.dns_s < 5
    assert 0 <= opened.phases.connect_s < 5
    assert kept.phases is None


async def test_the_handshake_is_told_apart_from_the_connection() -> None:
    server_tls, client_tls = tls_pair("www.test")
    async with FaultServer(server_tls) as server, fetcher(server.port, tls=client_tls) as under_test:
        exchange = await under_test.fetch("https://www.test/")
    assert exchange.phases is not None
    assert exchange.phases.tls_s is not None
    assert 0 < exchange.phases.tls_s < 5
