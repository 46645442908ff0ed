"""What this machine lacks is not called a fault of the site."""

from __future__ import annotations

import asyncio
import errno
import ssl
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import ClientConnectorError

from crawler.errors import FailureKind, FetchFailed
from crawler.fetch import client
from crawler.fetch.client import Fetcher, FetchSettings
from crawler.fetch.resolver import DnsAnswer
from frontier.clock import SystemClock
from tests.fetch.fetching import AGENT, fetcher
from tests.fetch.servers import FaultServer
from tests.no_files import no_files_left


async def test_a_request_without_a_file_descriptor() -> None:
    async with FaultServer() as server, fetcher(server.port) as under_test:
        with no_files_left(), pytest.raises(FetchFailed) as caught:
            await under_test.fetch("http://www.test/")
        assert caught.value.kind is FailureKind.MACHINE
        assert not caught.value.request_sent
        assert (await under_test.fetch("http://www.test/")).status == 200


def test_certificates_that_cannot_be_opened() -> None:
    error = ssl.SSLCertVerificationError("unable to get local issuer certificate")
    with no_files_left():
        assert client._failure_kind(error) is FailureKind.MACHINE
    assert client._failure_kind(error) is FailureKind.TLS


@pytest.mark.parametrize(
    ("code", "host", "has_route", "kind"),
    [
        (errno.ENOBUFS, "a.test", True, FailureKind.MACHINE),
        (errno.ENOMEM, "a.test", True, FailureKind.MACHINE),
        (errno.EADDRNOTAVAIL, "a.test", True, FailureKind.MACHINE),  # no local port is left
        (errno.EADDRNOTAVAIL, "2001:db8::1", True, FailureKind.UNREACHABLE),  # this machine has no IPv6
        (errno.ENETUNREACH, "a.test", False, FailureKind.MACHINE),
        (errno.ENETUNREACH, "a.test", True, FailureKind.UNREACHABLE),  # a router may have said so
        (errno.EHOSTUNREACH, "a.test", False, FailureKind.UNREACHABLE),
        (errno.ECONNREFUSED, "a.test", True, FailureKind.REFUSED),
    ],
)
def test_errors_of_connect(
    monkeypatch: pytest.MonkeyPatch, code: int, host: str, has_route: bool, kind: FailureKind
) -> None:
    monkeypatch.setattr(client, "has_route", lambda: has_route)
    key: Any = Mock(host=host, port=80, is_ssl=False)
    assert client._failure_kind(ClientConnectorError(key, OSError(code, "for the test"))) is kind


class SilentLookup:
    """A DNS that does not answer."""

    async def lookup(self, host: str) -> DnsAnswer:
        await asyncio.sleep(60)
        raise AssertionError

    async def close(self) -> None: ...


async def test_the_time_for_a_connection_that_passes_with_the_look_up_of_its_host() -> None:
    """c-ares tries for 17 seconds, which is longer than a connection may take."""
    under_test = Fetcher(FetchSettings(AGENT, connect_timeout_s=0.1), SystemClock(), lookup=SilentLookup())
    await under_test.start()
    with pytest.raises(FetchFailed) as caught:
        await under_test.fetch("http://www.example.org/")
    assert caught.value.kind is FailureKind.OUR_DNS
    await under_test.stop(0)
