"""Signed requests: what the crawler sends is accepted by two verifiers that it did not write, and nothing else is."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver
from http_message_signatures.algorithms import ED25519

from crawler.identity.keys import SigningKey
from crawler.identity.web_bot_auth import RequestSigner, key_set
from tests.identity.signed_requests import DIRECTORY, NOW, key_in, signed
from tests.identity.site import Refused, Site

LIFETIME_S = 60
Signed = tuple[str, str, str]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return key_in(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def signer(key: SigningKey) -> RequestSigner:
    return RequestSigner(key, DIRECTORY, LIFETIME_S)


@pytest.fixture
def site(key: SigningKey) -> Site:
    return Site({DIRECTORY: key_set([key])})


@pytest.mark.parametrize("host", ["a.test", "a.test:8443", "[2001:db8::1]:8080"])
@pytest.mark.parametrize("target", ["/", "/x?y=1", "/robots.txt", "/%7Ea/b;c=d", "/?", "/a?b=%22%5C"])
def test_a_signed_request_is_accepted(signer: RequestSigner, site: Site, host: str, target: str) -> None:
    assert site.accept("GET", host, target, signed(signer, host, target), NOW) == DIRECTORY


class Keys(HTTPSignatureKeyResolver):
    def __init__(self, key: SigningKey) -> None:
        self._key = key

    def resolve_public_key(self, key_id: str):  # type: ignore[no-untyped-def]
        assert key_id == self._key.thumbprint
        return self._key.public

    def resolve_private_key(self, key_id: str):  # type: ignore[no-untyped-def]
        raise NotImplementedError


class Sent:
    """A request as http-message-signatures reads it."""

    def __init__(self, url: str, head: Signed) -> None:
        self.method, self.url = "GET", url
        self.headers = dict(zip(("Signature-Agent", "Signature-Input", "Signature"), head, strict=True))


@pytest.mark.parametrize("host", ["a.test", "a.test:8443"])
def test_the_library_http_message_signatures_accepts_it(key: SigningKey, signer: RequestSigner, host: str) -> None:
    now = datetime.now(UTC).timestamp()
    head = signed(signer, host, "/x?y=1", now)
    verifier = HTTPMessageVerifier(signature_algorithm=ED25519, key_resolver=Keys(key))
    (found,) = verifier.verify(Sent(f"https://{host}/x?y=1", head), expect_tag="web-bot-auth")
    assert list(found.covered_components) == [
        '"@method"',
        '"@authority"',
        '"@path"',
        '"signature-agent";key="sig1"',
        '"@signature-params"',
    ]


def test_every_request_has_a_nonce_of_its_own(signer: RequestSigner, site: Site) -> None:
    """A site that remembers nonces accepts a hundred requests for one page in one second."""
    for _ in range(100):
        site.accept("GET", "a.test", "/x?y=1", signed(signer), NOW)


def test_a_signature_is_created_at_the_time_of_its_request(signer: RequestSigner) -> None:
    for now in (int(NOW), int(NOW) + 1):
        assert f"created={now};expires={now + LIFETIME_S};" in signed(signer, now=now + 0.5)[1]


@pytest.mark.parametrize(
    ("method", "host", "target"),
    [
        ("POST", "a.test", "/x?y=1"),
        ("GET", "b.test", "/x?y=1"),
        ("GET", "a.test:81", "/x"),
        ("GET", "a.test", "/z?y=1"),
    ],
)
def test_a_signature_does_not_fit_another_request(
    signer: RequestSigner, site: Site, method: str, host: str, target: str
) -> None:
    with pytest.raises(Refused):
        site.accept(method, host, target, signed(signer), NOW)


@pytest.mark.parametrize("later_s", [-30, LIFETIME_S, 100_000])
def test_a_signature_holds_only_in_its_time(signer: RequestSigner, site: Site, later_s: int) -> None:
    with pytest.raises(Refused, match="expired, from the future"):
        site.accept("GET", "a.test", "/x?y=1", signed(signer), NOW + later_s)


def test_rotation_keeps_the_old_key_until_it_is_removed(tmp_path: Path) -> None:
    """Given two keys in the directory, then requests signed with either are accepted; without the old one, only the new."""
    old, new = key_in(tmp_path, "old.pem"), key_in(tmp_path, "new.pem")
    both, later = Site({DIRECTORY: key_set([new, old])}), Site({DIRECTORY: key_set([new])})
    for key in (old, new):
        both.accept("GET", "a.test", "/", signed(RequestSigner(key, DIRECTORY, 60), target="/"), NOW)
    later.accept("GET", "a.test", "/", signed(RequestSigner(new, DIRECTORY, 60), target="/"), NOW)
    with pytest.raises(Refused, match="unknown key"):
        later.accept("GET", "a.test", "/", signed(RequestSigner(old, DIRECTORY, 60), target="/"), NOW)
