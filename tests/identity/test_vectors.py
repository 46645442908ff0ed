"""The published test vectors: RFC 9421 appendix B.2.6, and appendix "Test Vectors" of the draft."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.errors import UserError
from crawler.identity.keys import read_key
from crawler.identity.signatures import (
    Message,
    NotValid,
    check,
    signature_base,
    signatures_of,
)
from crawler.identity.web_bot_auth import Keys, RequestSigner, check_request, signed_directory
from tests.identity import site
from tests.identity.signed_requests import TEST_KEY, rfc_key

KEY_ID = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"
CREATED, EXPIRES = 1735689600, 4889289600

B_2_6 = """\
POST /foo?param=Value&Pet=dog HTTP/1.1
Host: example.com
Date: Tue, 20 Apr 2021 02:07:55 GMT
Content-Type: application/json
Content-Digest: sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:
Content-Length: 18
Signature-Input: sig-b26=("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473\
;keyid="test-key-ed25519"
Signature: sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==:
"""

AGENT_MEMBER = """\
GET /path/to/resource HTTP/1.1
Host: example.com
Signature-Agent: agent2="https://signature-agent.test"
Signature-Input: sig2=("@authority" "signature-agent";key="agent2");created=1735689600\
;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";expires=4889289600\
;nonce="n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA=="\
;tag="web-bot-auth"
Signature: sig2=:RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==:
"""

LEGACY = """\
GET /path/to/resource HTTP/1.1
Host: example.com
Signature-Agent: "https://signature-agent.test"
Signature-Input: sig2=("@authority" "signature-agent");created=1735689600\
;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";expires=1735693200\
;nonce="e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg=="\
;tag="web-bot-auth"
Signature: sig2=:jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3rLWBA==:
"""

DIRECTORY_BODY = (
    b'{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U",'
    b'"x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs","use":"sig"}]}'
)
DIRECTORY_URL = "https://signature-agent.test/.well-known/http-message-signatures-directory"
DIRECTORY_FIELDS = (
    ("Content-Type", "application/http-message-signatures-directory+json"),
    ("Content-Digest", "sha-256=:CADMT2aBdV/rqQr/NIru64ERQkCobVvllA4V0fLFDu0=:"),
    (
        "Signature-Input",
        'binding=("@authority";req "content-digest");created=1735689600;expires=4889289600'
        ';keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";tag="http-message-signatures-directory"',
    ),
    (
        "Signature",
        "binding=:l6P8R67tm3kujAxbHWio7ll01qrEZ0dKD/WWlGhNYEmTnFZM8Wt0VQ9zqGfvo7T/UMkBxsigzChM1Gpz7gOVBg==:",
    ),
)


def keys(_: str = "") -> Keys:
    return {KEY_ID: rfc_key().public}


def test_the_signature_of_rfc_9421_b_2_6_holds() -> None:
    message = Message.from_head(B_2_6)
    (signature,) = signatures_of(message)
    check(message, signature, rfc_key().public)
    assert signature_base(message, signature).startswith('"date": Tue, 20 Apr 2021 02:07:55 GMT\n"@method": POST\n')
    assert rfc_key().sign(signature_base(message, signature).encode()) == signature.value


@pytest.mark.parametrize("line", range(1, 6))
def test_b_2_6_does_not_hold_for_another_message(line: int) -> None:
    """Each line that the signature covers is changed. It does not cover Content-Digest."""
    lines = B_2_6.splitlines()
    lines[line] = f"{lines[line]}0"
    message = Message.from_head("\n".join(lines))
    (signature,) = signatures_of(message)
    if lines[line].startswith("Content-Digest"):
        check(message, signature, rfc_key().public)
        return
    with pytest.raises(NotValid):
        check(message, signature, rfc_key().public)


@pytest.mark.parametrize("head", [AGENT_MEMBER, LEGACY], ids=["member", "legacy"])
def test_the_signatures_of_the_draft_hold(head: str) -> None:
    """The expiry of the first is 100 years away, which is for tests only: its text is checked without the policy."""
    message = Message.from_head(head)
    (signature,) = signatures_of(message)
    check(message, signature, rfc_key().public)
    assert rfc_key().sign(signature_base(message, signature).encode()) == signature.value


def test_the_vector_of_earlier_revisions_is_accepted_at_its_time() -> None:
    (found,) = check_request(Message.from_head(LEGACY), keys, CREATED + 1)
    assert (found.agent, found.key_id, found.expires) == ("https://signature-agent.test", KEY_ID, 1735693200)


def test_a_signature_that_is_valid_for_a_century_is_refused() -> None:
    with pytest.raises(NotValid, match="24 hours"):
        check_request(Message.from_head(AGENT_MEMBER), keys, CREATED + 1)


def test_the_directory_of_the_draft_is_signed_and_made_alike() -> None:
    fields = {name.lower(): value for name, value in DIRECTORY_FIELDS}
    assert site.check_directory("signature-agent.test", fields, DIRECTORY_BODY, CREATED + 1) == {KEY_ID}
    made = signed_directory([rfc_key()], DIRECTORY_URL, CREATED, EXPIRES - CREATED)
    assert made.body == DIRECTORY_BODY
    assert {(name, value.replace("binding0=", "binding=")) for name, value in made.fields} == set(DIRECTORY_FIELDS)


def test_the_signer_covers_what_the_draft_asks_for() -> None:
    """The headers of a request, byte for byte, at a known time and with a known nonce."""
    signer = RequestSigner(rfc_key(), "https://signature-agent.test", 60, random=lambda count: b"\0" * count)
    lines = signer("GET", "example.com", "/path?query", CREATED).decode()
    head = f"GET /path?query HTTP/1.1\r\nHost: example.com\r\n{lines}\r\n"
    assert head.split("\r\n")[2:4] == [
        'Signature-Agent: sig1="https://signature-agent.test"',
        'Signature-Input: sig1=("@method" "@authority" "@path" "signature-agent";key="sig1");created=1735689600'
        f';expires=1735689660;nonce="{"A" * 24}";keyid="{KEY_ID}";alg="ed25519";tag="web-bot-auth"',
    ]
    (found,) = check_request(Message.from_head(head), keys, CREATED)
    assert found.covers == ("@method", "@authority", "@path", "signature-agent")


def test_nobody_can_use_the_key_of_the_examples(tmp_path: Path) -> None:
    """The draft, "Test and Demonstration Keys": MUST NOT be used in production."""
    (tmp_path / "key.pem").write_bytes(TEST_KEY)
    (tmp_path / "key.pem").chmod(0o600)
    with pytest.raises(UserError, match="example key of RFC 9421"):
        read_key(tmp_path / "key.pem")
