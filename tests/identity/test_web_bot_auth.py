"""Signed requests: what the crawler sends is accepted by two verifiers that it did not write, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver
from http_message_signatures.algorithms import ED25519
from hypothesis import example, given
from hypothesis import strategies as st

from crawler.identity.keys import SigningKey
from crawler.identity.web_bot_auth import NotValid, RequestSigner, check_request, key_set, read_key_set
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


def check(key: SigningKey, head: Signed, host: str = "a.test", target: str = "/x?y=1", now: float = NOW) -> str:
    """The crawler's own check, as the audit makes it."""
    return check_request(sent(head, host, target), read_key_set(key_set([key])), now)


def sent(head: Signed, host: str, target: str) -> bytes:
    lines = zip(("Signature-Agent", "Signature-Input", "Signature"), head, strict=True)
    fields = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\nHost: of the body".encode("latin-1")


@pytest.mark.parametrize("host", ["a.test", "a.test:8443", "[2001:db8::1]:8080"])
@pytest.mark.parametrize("target", ["/", "/x?y=1", "/robots.txt", "/%7Ea/b;c=d", "/?", "/a?b=%22%5C"])
def test_a_signed_request_is_accepted(
    key: SigningKey, signer: RequestSigner, site: Site, host: str, target: str
) -> None:
    head = signed(signer, host, target)
    assert site.accept("GET", host, target, head, NOW) == DIRECTORY
    assert check(key, head, host, target)


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
    key: SigningKey, signer: RequestSigner, site: Site, method: str, host: str, target: str
) -> None:
    head = signed(signer)
    with pytest.raises(Refused):
        site.accept(method, host, target, head, NOW)
    if method == "GET":
        with pytest.raises(NotValid):
            check(key, head, host, target)


Doctor = Callable[[Signed], Signed]

TAMPERED: dict[str, Doctor] = {
    "agent": lambda h: (h[0].replace("crawler.example", "other.example"), h[1], h[2]),
    "agent without https": lambda h: (h[0].replace("https", "http"), h[1], h[2]),
    "agent with a parameter": lambda h: (h[0] + ";type=jwks", h[1], h[2]),
    "no agent": lambda h: ("", h[1], h[2]),
    "created": lambda h: (h[0], h[1].replace(f"created={int(NOW)}", f"created={int(NOW) - 1}"), h[2]),
    "expires": lambda h: (h[0], h[1].replace(f"expires={int(NOW) + 60}", f"expires={int(NOW) + 3600}"), h[2]),
    "nonce": lambda h: (h[0], h[1].replace('nonce="', 'nonce="A'), h[2]),
    "tag": lambda h: (h[0], h[1].replace("web-bot-auth", "other"), h[2]),
    "key": lambda h: (h[0], h[1].replace('keyid="', 'keyid="x'), h[2]),
    "algorithm": lambda h: (h[0], h[1].replace("ed25519", "rsa-pss-sha512"), h[2]),
    "fewer components": lambda h: (h[0], h[1].replace('"@path" ', ""), h[2]),
    "no authority": lambda h: (h[0], h[1].replace('"@authority" ', ""), h[2]),
    "a component twice": lambda h: (h[0], h[1].replace('"@path"', '"@path" "@path"'), h[2]),
    "an unknown component": lambda h: (h[0], h[1].replace('"@path"', '"@status"'), h[2]),
    "an unsupported component": lambda h: (h[0], h[1].replace('"@path"', '"@query-param";name="y"'), h[2]),
    "signature": lambda h: (h[0], h[1], h[2][:10] + ("A" if h[2][10] != "A" else "B") + h[2][11:]),
    "no signature": lambda h: (h[0], h[1], ""),
    "another label": lambda h: (h[0], h[1], h[2].replace("sig1", "sig2")),
    "not a field": lambda h: (h[0], h[1] + "(", h[2]),
}


@pytest.mark.parametrize("doctor", TAMPERED.values(), ids=TAMPERED)
def test_a_tampered_signature_is_refused(key: SigningKey, signer: RequestSigner, site: Site, doctor: Doctor) -> None:
    head = doctor(signed(signer))
    with pytest.raises(Refused):
        site.accept("GET", "a.test", "/x?y=1", head, NOW)
    with pytest.raises(NotValid):
        check(key, head)


@pytest.mark.parametrize("later_s", [-30, LIFETIME_S, 100_000])
def test_a_signature_holds_only_in_its_time(key: SigningKey, signer: RequestSigner, site: Site, later_s: int) -> None:
    head = signed(signer)
    with pytest.raises(Refused, match="expired, from the future"):
        site.accept("GET", "a.test", "/x?y=1", head, NOW + later_s)
    with pytest.raises(NotValid, match=r"expired|in the future"):
        check(key, head, now=NOW + later_s)
    assert check(key, head, now=NOW + LIFETIME_S - 1)


def test_rotation_keeps_the_old_key_until_it_is_removed(tmp_path: Path) -> None:
    """Given two keys in the directory, then requests signed with either are accepted; without the old one, only the new."""
    old, new = key_in(tmp_path, "old.pem"), key_in(tmp_path, "new.pem")
    both, later = Site({DIRECTORY: key_set([new, old])}), Site({DIRECTORY: key_set([new])})
    for key in (old, new):
        both.accept("GET", "a.test", "/", signed(RequestSigner(key, DIRECTORY, 60), target="/"), NOW)
    later.accept("GET", "a.test", "/", signed(RequestSigner(new, DIRECTORY, 60), target="/"), NOW)
    with pytest.raises(Refused, match="unknown key"):
        later.accept("GET", "a.test", "/", signed(RequestSigner(old, DIRECTORY, 60), target="/"), NOW)


FIELD = st.text(st.characters(min_codepoint=9, max_codepoint=255), max_size=60) | st.sampled_from(
    [
        'sig1=("@authority");created=1;expires=2;tag="web-bot-auth"',
        "sig1=:AAAA:",
        'sig1="https://a.test"',
        'a=("x";key=1)',
    ]
)


@given(st.tuples(FIELD, FIELD, FIELD))
@example(("sig1=1", 'sig1=(1 2);tag="web-bot-auth"', "sig1=:AAAA:"))
@example(('"https://a', 'sig1=("@authority" "signature-agent");tag="web-bot-auth"', "sig1=:AAAA:"))
@example(("a=()", 'sig1=("@authority" "signature-agent";key=());tag="web-bot-auth"', "sig1=:AAAA:"))
def test_whatever_a_request_claims_the_check_has_an_answer(head: Signed) -> None:
    with pytest.raises(NotValid):
        check_request(sent(head, "a.test", "/"), {}, 1.5)


@pytest.mark.parametrize("target", ["http://a.test/x?y=1", "https://a.test:8443/x?y=1"])
def test_the_target_can_be_an_absolute_url(key: SigningKey, signer: RequestSigner, target: str) -> None:
    """As in a request to a proxy."""
    assert check(key, signed(signer), target=target)
    with pytest.raises(NotValid):
        check(key, signed(signer, target="/z"), target=target)
    assert check(key, signed(signer, target="/"), target="http://a.test")
