"""Hosts with several addresses: how many a request tries, and that it goes to the one whose slot was taken."""

from __future__ import annotations

from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.address_policy import AddressPolicy, HostMap
from crawler.fetch.client import Fetcher, FetchSettings
from crawler.fetch.resolver import MAX_ADDRESSES, MAX_TRIED, DnsAnswer, Resolver
from frontier.clock import SystemClock
from tests.fetch.fetching import AGENT
from tests.fetch.servers import FaultServer

MANY = tuple(f"127.1.{number >> 8}.{number & 255}" for number in range(3_000))


class Addresses:
    """A DNS in which each name has the same `addresses`, for no longer than the look-up lasts."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def lookup(self, host: str, *, anew: bool = False) -> DnsAnswer:
        return DnsAnswer(self.addresses, 0.0)

    async def close(self) -> None: ...


@asynccontextmanager
async def fetching(port: int, *addresses: str) -> AsyncIterator[Fetcher]:
    policy = AddressPolicy.of(ports=[port], allow_private=True)
    under_test = Fetcher(FetchSettings(AGENT, addresses=policy), SystemClock(), lookup=Addresses(*addresses))
    await under_test.start()
    try:
        yield under_test
    finally:
        await under_test.stop(0)


class HangsUp(FaultServer):
    """Accepts connections at all addresses of loopback, and closes them. `reached`: the addresses."""

    at = "0.0.0.0"

    def __init__(self) -> None:
        super().__init__()
        self.reached: list[str] = []

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.reached.append(writer.get_extra_info("sockname")[0])


async def failure_of(under_test: Fetcher, url: str, network: str | None = None) -> FailureKind:
    with pytest.raises(FetchFailed) as caught:
        await under_test.fetch(url, network=network)
    assert not caught.value.request_sent
    return caught.value.kind


async def test_a_request_goes_only_to_the_address_whose_slot_was_taken() -> None:
    """The first address refuses, so the connection leads to another one, which has a slot of its own."""
    async with FaultServer() as server, fetching(server.port, "127.0.0.2", "127.0.0.1") as under_test:
        url = f"http://a.test:{server.port}/"
        assert await under_test.locate(url) == "127.0.0.2"
        assert await failure_of(under_test, url, "127.0.0.2") is FailureKind.OTHER_ADDRESS
        assert server.requests == []
        for _ in range(2):  # also after the next look-up, in which the order is as before
            assert await under_test.locate(url) == "127.0.0.1"
            assert (await under_test.fetch(url, network="127.0.0.1")).status == 200
        assert server.connections == 1


async def test_a_request_tries_few_addresses_and_each_once() -> None:
    async with HangsUp() as server, fetching(server.port, *MANY) as under_test:
        for _ in range(3):
            await failure_of(under_test, f"https://a.test:{server.port}/")
        assert 3 <= len(server.reached) <= 3 * MAX_TRIED
        assert len(set(server.reached)) == len(server.reached)  # the next request begins with others


async def test_addresses_that_refuse_give_way_to_the_others() -> None:
    addresses = [*(f"127.0.0.{number}" for number in range(2, 9)), "127.0.0.1"]
    async with FaultServer() as server, fetching(server.port, *addresses) as under_test:
        url = f"http://a.test:{server.port}/"
        for _ in range(2):
            assert await failure_of(under_test, url) is FailureKind.REFUSED
        assert (await under_test.fetch(url)).status == 200


async def test_few_addresses_are_kept_and_both_families_are_tried() -> None:
    async def resolved(*addresses: str) -> list[str]:
        resolver = Resolver(Addresses(*addresses), AddressPolicy(allow_private=True), HostMap(), SystemClock())
        found = [one["host"] for one in await resolver.resolve("a.test")]
        assert len(resolver._known["a.test"].addresses) <= MAX_ADDRESSES
        return found

    assert await resolved(*MANY) == list(MANY[:MAX_TRIED])
    assert await resolved("2606:4700::1", "2606:4700::2", "2606:4700::3", "2606:4700::4", "8.8.8.8") == [
        "2606:4700::1",
        "2606:4700::2",
        "8.8.8.8",
    ]
    assert await resolved("::ffff:8.8.8.8", "8.8.8.8", "8.8.4.4") == ["8.8.8.8", "8.8.4.4"]
