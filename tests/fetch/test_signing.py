"""Signed requests on the wire: what the server receives is what the exchange records, signed when it was written."""

from __future__ import annotations

import pytest

from crawler.fetch import library_privates
from crawler.fetch.address_policy import HostMap
from crawler.fetch.client import Fetcher, FetchSettings
from crawler.fetch.request_rules import Signer
from frontier.clock import SystemClock
from tests.fetch.fetching import AGENT
from tests.fetch.servers import FaultServer


def by_hand(method: str, host: str, target: str, now: float) -> bytes:
    return f"Signature: sig=:{method} {host} {target} {now}:\r\n".encode()


@pytest.mark.parametrize("signer", [None, by_hand], ids=["unsigned", "signed"])
async def test_the_head_on_the_wire_is_the_one_that_is_recorded(signer: Signer | None) -> None:
    library_privates.install()
    async with FaultServer() as server:
        settings = FetchSettings(AGENT, host_map=HostMap.parse([f"*.test=127.0.0.1:{server.port}"]))
        times = iter([1000.5, 2000.5])
        fetcher = Fetcher(settings, SystemClock(), signer=signer, wall=lambda: next(times))
        await fetcher.start()
        first = await fetcher.fetch("http://a.test/x?y")
        second = await fetcher.fetch("http://b.test:80/robots.txt", extra_headers=[("If-None-Match", '"1"')])
        await fetcher.stop(0)
    assert [first.request_head, second.request_head] == server.requests
    lines = first.request_head.split(b"\r\n")
    assert lines[-2:] == [b"", b""]
    if signer is None:
        assert b"Signature" not in first.request_head + second.request_head
        return
    assert lines[-3] == b"Signature: sig=:GET a.test /x?y 1000.5:"
    assert second.request_head.endswith(b'If-None-Match: "1"\r\nSignature: sig=:GET b.test /robots.txt 2000.5:\r\n\r\n')
    assert (first.started_at, second.started_at) == (1000.5, 2000.5)
