"""What this machine lacks is not called a fault of the site."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import ClientConnectorError

from crawler.app.requests import request_rules
from crawler.errors import FailureKind, FetchFailed
from crawler.fetch import client
from crawler.fetch.address_policy import HostMap
from crawler.fetch.client import Fetcher, FetchSettings
from crawler.fetch.resolver import DnsAnswer
from crawler.fetch.tls import system_context
from crawler.settings.tables import RequestsTable
from frontier.clock import SystemClock
from tests.fetch.fetching import AGENT, fetcher
from tests.fetch.servers import FaultServer, Raw
from tests.fetch.test_tls import ROOT, certificate_response, issued, server_tls
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

    async def lookup(self, host: str, *, anew: bool = False) -> DnsAnswer:
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


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file with the roots of the system, which is empty, and there is no folder of them."""
    path = tmp_path / "roots.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\ncut off")
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    system_context.cache_clear()
    yield path
    system_context.cache_clear()


def test_roots_are_read_from_the_file_and_from_the_folder(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL would look for those in the folder during each handshake."""
    folder = store.parent / "folder"
    folder.mkdir()
    _write(store, ROOT.pem)
    (folder / "01234567.0").write_bytes(ROOT.pem)
    (folder / "01234567.1").write_bytes(issued("Another").pem)
    (folder / "README").write_text("not a certificate")
    monkeypatch.setenv("SSL_CERT_DIR", f"{store.parent / 'none'}:{folder}")
    assert system_context().cert_store_stats()["x509_ca"] == 2


def _write(store: Path, data: bytes) -> None:
    store.write_bytes(data)


@pytest.mark.parametrize("chain", [["a.test"], ["a.test", "Root"], ["self-signed"]], ids=str)
@pytest.mark.parametrize("weak", [False, True])
async def test_a_certificate_store_without_roots(store: Path, tmp_path: Path, chain: list[str], weak: bool) -> None:
    known = {"Root": ROOT, "a.test": issued("a.test", ROOT, is_ca=False), "self-signed": issued("a.test", is_ca=False)}
    rules = request_rules([RequestsTable(weak_tls=True)], {}) if weak else ()
    async with FaultServer(server_tls(tmp_path, *(known[name] for name in chain))) as site:
        hosts = HostMap.parse([f"a.test=127.0.0.1:{site.port}"])
        under_test = Fetcher(FetchSettings(AGENT, host_map=hosts, rules=rules), SystemClock())
        await under_test.start()
        with pytest.raises(FetchFailed) as caught:
            await under_test.fetch("https://a.test/")
        assert caught.value.kind is FailureKind.MACHINE
        assert f"no trusted certificate authorities in {store}" in caught.value.detail
        _write(store, ROOT.pem)
        with contextlib.suppress(FetchFailed):  # the store is read again after a failure
            await under_test.fetch("https://a.test/")
        if chain == ["self-signed"]:
            with pytest.raises(FetchFailed) as caught:
                await under_test.fetch("https://a.test/")
            assert caught.value.kind is FailureKind.TLS
        else:
            assert (await under_test.fetch("https://a.test/")).status == 200
        await under_test.stop(0)


async def test_a_certificate_store_that_is_lost_during_the_crawl(store: Path, tmp_path: Path) -> None:
    """Roots that were read before stay in use, for contexts that are made later, too."""
    _write(store, ROOT.pem)
    middle = issued("Middle", ROOT)
    leaf = issued("a.test", middle, aia="http://ca.test/issuer.crt", is_ca=False)
    async with FaultServer(server_tls(tmp_path, leaf)) as site, Raw(certificate_response(middle.der)) as authority:
        hosts = HostMap.parse([f"ca.test=127.0.0.1:{authority.port}", f"a.test=127.0.0.1:{site.port}"])
        under_test = Fetcher(FetchSettings(AGENT, host_map=hosts), SystemClock())
        await under_test.start()
        with pytest.raises(FetchFailed):  # it does not speak TLS
            await under_test.fetch("https://ca.test/")
        _write(store, b"")
        assert (await under_test.fetch("https://a.test/")).status == 200
        await under_test.stop(0)
