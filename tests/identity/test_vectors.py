"""The published test vectors: the directory in appendix "Test Vectors" of the draft."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.errors import UserError
from crawler.identity.keys import read_key
from crawler.identity.web_bot_auth import RequestSigner, signed_directory
from tests.identity import site
from tests.identity.signed_requests import TEST_KEY, rfc_key

KEY_ID = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"
CREATED, EXPIRES = 1735689600, 4889289600

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


def test_nobody_can_use_the_key_of_the_examples(tmp_path: Path) -> None:
    """The draft, "Test and Demonstration Keys": MUST NOT be used in production."""
    (tmp_path / "key.pem").write_bytes(TEST_KEY)
    (tmp_path / "key.pem").chmod(0o600)
    with pytest.raises(UserError, match="example key of RFC 9421"):
        read_key(tmp_path / "key.pem")
