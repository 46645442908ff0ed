"""A fetcher for the tests: every host under .test is one server on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from crawler.fetch import library_privates
from crawler.fetch.address_policy import AddressPolicy, HostMap
from crawler.fetch.client import Fetcher, FetchSettings
from crawler.fetch.resolver import DnsAnswer
from frontier.clock import SystemClock

AGENT = "testcrawl/1 (+https://crawler.test/about)"


@asynccontextmanager
async def fetcher(port: int, *, tls: Any = None, **settings: Any) -> AsyncIterator[Fetcher]:
    """A started fetcher that sends *.test to 127.0.0.1:`port`."""
    library_privates.install()
    host_map = HostMap.parse([f"*.test=127.0.0.1:{port}"])
    under_test = Fetcher(FetchSettings(AGENT, host_map=host_map, **settings), SystemClock(), tls=tls)
    await under_test.start()
    try:
        yield under_test
    finally:
        await under_test.stop(0)


class InsideLookup:
    """A DNS in which every name resolves to this machine."""

    async def lookup(self, host: str, *, anew: bool = False) -> DnsAnswer:
        return DnsAnswer(("127.0.0.1", "::1"), 60.0)

    async def close(self) -> None: ...


@asynccontextmanager
async def plain_fetcher(port: int, **policy: Any) -> AsyncIterator[Fetcher]:
    """A started fetcher without a host map, which may use `port` in addition to 80 and 443."""
    addresses = AddressPolicy.of(ports=[80, 443, port], **policy)
    under_test = Fetcher(FetchSettings(AGENT, addresses=addresses), SystemClock(), lookup=InsideLookup())
    await under_test.start()
    try:
        yield under_test
    finally:
        await under_test.stop(0)
