"""Why TLS fails, in words; certificates that a server does not send; and servers whose TLS is weak."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from crawler.app.requests import request_rules
from crawler.errors import FailureKind, FetchFailed
from crawler.fetch.address_policy import AddressPolicy, HostMap
from crawler.fetch.client import Fetcher, FetchSettings
from crawler.settings.tables import RequestsTable
from frontier.clock import SystemClock
from tests.fetch.fetching import AGENT, InsideLookup
from tests.fetch.servers import AnswersInPlainText, FaultServer, Raw

NOW = datetime.now(UTC)
AIA = "http://ca.test/issuer.crt"


class Identity(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: Any

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)


def issued(
    name: str,
    by: Identity | None = None,
    *,
    aia: str = "",
    is_ca: bool = True,
    key: Any = None,
    days: tuple[int, int] = (-10, 10),
    issuer: str = "",
) -> Identity:
    """A certificate for `name`, valid for these `days` from now, and signed by that of `by`, or by itself. `issuer`: the
    name of its issuer."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer or name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else own)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW + timedelta(days[0]))
        .not_valid_after(NOW + timedelta(days[1]))
        .add_extension(x509.BasicConstraints(is_ca, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key((by.key if by else key).public_key()), critical=False
        )
    )
    if is_ca:
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        made = made.add_extension(usage, critical=True)
    else:
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    if aia:
        place = x509.AccessDescription(
            x509.AuthorityInformationAccessOID.CA_ISSUERS, x509.UniformResourceIdentifier(aia)
        )
        ocsp = x509.AccessDescription(
            x509.AuthorityInformationAccessOID.OCSP, x509.UniformResourceIdentifier("http://ocsp.test/")
        )
        made = made.add_extension(x509.AuthorityInformationAccess([ocsp, place]), critical=False)
    return Identity(made.sign((by.key if by else key), SHA256()), key)


ROOT = issued("Root")


def server_tls(folder: Path, *chain: Identity) -> ssl.SSLContext:
    """The context of a server that sends `chain`, its own certificate first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    key = chain[0].key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "chain.pem").write_bytes(key + b"".join(one.pem for one in chain))
    context.load_cert_chain(folder / "chain.pem")
    return context


def certificate_response(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body


class Web(NamedTuple):
    fetcher: Fetcher
    site: FaultServer
    authority: FaultServer


@asynccontextmanager
async def web(
    folder: Path, *chain: Identity, files: bytes = b"", site: FaultServer | None = None, **rule: Any
) -> AsyncIterator[Web]:
    """A site with this certificate chain at a.test, and the server at ca.test, which answers with `files`. Trusted is
    `ROOT` alone."""
    client = ssl.create_default_context()
    for authority in client.get_ca_certs():
        assert authority
    trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusted.load_verify_locations(cadata=ROOT.der)
    rules = request_rules([RequestsTable(**rule)], {}) if rule else ()
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(site or FaultServer(server_tls(folder, *chain)))
        authority = await stack.enter_async_context(Raw(files))
        hosts = HostMap.parse([f"ca.test=127.0.0.1:{authority.port}", f"*.test=127.0.0.1:{site.port}"])
        fetcher = Fetcher(FetchSettings(AGENT, host_map=hosts, rules=rules), SystemClock(), tls=trusted)
        await fetcher.start()
        stack.push_async_callback(fetcher.stop, 0)
        yield Web(fetcher, site, authority)


async def failure(web: Web, url: str = "https://a.test/") -> str:
    with pytest.raises(FetchFailed) as caught:
        await web.fetcher.fetch(url)
    assert caught.value.kind is FailureKind.TLS
    assert not caught.value.request_sent
    return caught.value.detail


async def test_a_missing_intermediate_certificate_is_fetched_once(tmp_path: Path) -> None:
    middle = issued("Middle", ROOT)
    for certificate in (middle.der, middle.pem):
        leaf = issued("a.test", middle, aia=AIA, is_ca=False)
        async with web(tmp_path, leaf, files=certificate_response(certificate)) as found:
            for _ in range(2):
                assert (await found.fetcher.fetch("https://a.test/")).status == 200
            found.fetcher._issuers._servers.clear()  # as for another server with a certificate of the same authority
            assert (await found.fetcher.fetch("https://a.test/")).status == 200
            assert len(found.authority.requests) == 1
            assert b"GET /issuer.crt HTTP/1.1\r\nHost: ca.test\r\n" in found.authority.requests[0]
            assert len(found.site.requests) == 3


async def test_further_certificates_are_fetched_up_to_a_limit(tmp_path: Path) -> None:
    upper = issued("Upper", ROOT)
    lower = issued("Lower", upper, aia=AIA)
    leaf = issued("a.test", lower, aia=AIA, is_ca=False)

    class Both(Raw):
        async def answer(self, writer: Any) -> bool:
            writer.write(certificate_response((lower, upper)[len(self.requests) - 1].der))
            return False

    async with web(tmp_path, leaf) as found, Both() as authority:
        found.authority.requests = authority.requests
        hosts = HostMap.parse([f"ca.test=127.0.0.1:{authority.port}", f"*.test=127.0.0.1:{found.site.port}"])
        trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusted.load_verify_locations(cadata=ROOT.der)
        fetcher = Fetcher(FetchSettings(AGENT, host_map=hosts), SystemClock(), tls=trusted)
        await fetcher.start()
        assert (await fetcher.fetch("https://a.test/")).status == 200
        await fetcher.stop(0)
        assert len(authority.requests) == 2


@pytest.mark.parametrize("kind", ["root", "case", "spaces", "without a root", "no authority"])
async def test_a_certificate_that_was_fetched_is_not_trusted_by_itself(tmp_path: Path, kind: str) -> None:
    """Whoever is on the way can answer instead of the authority."""
    evil = issued("Evil", issuer={"case": "eVIL", "spaces": " Evil  "}.get(kind, ""))
    offered = evil
    if kind == "without a root":
        offered = issued("Evil middle", evil)
    if kind == "no authority":
        offered = issued("Evil middle", evil, is_ca=False)
    leaf = issued("a.test", offered, aia=AIA, is_ca=False)
    async with web(tmp_path, leaf, files=certificate_response(offered.der)) as found:
        for _ in range(2):
            assert "authority" in await failure(found)
        assert len(found.authority.requests) == 1
        assert found.site.requests == []


@pytest.mark.parametrize(
    "files",
    [
        b"",
        certificate_response(b"no certificate"),
        certificate_response(ROOT.der[:-5]),
        certificate_response(b"x" * 100_000),
        certificate_response(b"", b"404 Not Found"),
        b"HTTP/1.1 302 Found\r\nLocation: http://ca.test/x\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_whatever_the_server_of_the_certificates_sends_costs_one_request(tmp_path: Path, files: bytes) -> None:
    leaf = issued("a.test", issued("Middle", ROOT), aia=AIA, is_ca=False)
    async with web(tmp_path, leaf, files=files) as found:
        for _ in range(2):
            assert await failure(found) == "an intermediate certificate is missing, or its authority is not trusted"
        assert len(found.authority.requests) == 1


async def test_certificates_are_not_fetched_from_private_addresses(tmp_path: Path) -> None:
    middle = issued("Middle", ROOT)
    async with Raw(certificate_response(middle.der)) as inside:
        leaf = issued("a.test", middle, aia=f"http://inside.invalid:{inside.port}/x", is_ca=False)
        for allow in (False, True):
            async with FaultServer(server_tls(tmp_path, leaf)) as site:
                hosts = HostMap.parse([f"a.test=127.0.0.1:{site.port}"])
                addresses = AddressPolicy.of(ports=[80, 443, inside.port], allow_private=allow)
                settings = FetchSettings(AGENT, host_map=hosts, addresses=addresses)
                trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                trusted.load_verify_locations(cadata=ROOT.der)
                fetcher = Fetcher(settings, SystemClock(), lookup=InsideLookup(), tls=trusted)
                await fetcher.start()
                if allow:
                    assert (await fetcher.fetch("https://a.test/")).status == 200
                else:
                    with pytest.raises(FetchFailed):
                        await fetcher.fetch("https://a.test/")
                await fetcher.stop(0)
            assert len(inside.requests) == allow


async def test_the_reason_of_a_failed_handshake_is_said_in_words(tmp_path: Path) -> None:
    small = rsa.generate_private_key(65537, 1024)
    chains = {
        "the certificate has expired": [issued("a.test", ROOT, is_ca=False, days=(-20, -10))],
        "the certificate is not valid yet": [issued("a.test", ROOT, is_ca=False, days=(10, 20))],
        "the certificate is for another name": [issued("b.test", ROOT, is_ca=False)],
        "the certificate is self-signed": [issued("a.test", is_ca=False)],
        "the key of the certificate is too small": [issued("a.test", ROOT, is_ca=False, key=small)],
    }
    other = issued("Other")
    chains["the certificate leads to an authority that is not trusted"] = [issued("a.test", other, is_ca=False), other]
    for words, chain in chains.items():
        async with web(tmp_path, *chain) as found:
            assert await failure(found) == words
            assert found.authority.requests == []
    async with web(tmp_path, site=AnswersInPlainText()) as found:
        assert await failure(found) == "the server does not speak TLS"


async def test_a_rule_lets_a_site_have_weak_tls_and_certificates_are_verified_all_the_same(tmp_path: Path) -> None:
    small = rsa.generate_private_key(65537, 1024)
    weak = issued("a.test", ROOT, is_ca=False, key=small)
    async with web(tmp_path, weak, host="a.test", weak_tls=True) as found:
        assert (await found.fetcher.fetch("https://a.test/")).status == 200
    async with web(tmp_path, weak, host="b.test", weak_tls=True) as found:
        assert "too small" in await failure(found)
    for chain in ([issued("b.test", ROOT, is_ca=False, key=small)], [issued("a.test", is_ca=False, key=small)]):
        async with web(tmp_path, *chain, weak_tls=True) as found:
            assert await failure(found)
