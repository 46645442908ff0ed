"""Keys and signed requests for tests."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.serialization import load_pem_private_key

from crawler.identity.keys import SigningKey, make_key
from crawler.identity.web_bot_auth import RequestSigner

DIRECTORY = "https://crawler.example/.well-known/http-message-signatures-directory"
NOW = 1_800_000_000.25

TEST_KEY = b"""\
-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF
-----END PRIVATE KEY-----
"""
"""test-key-ed25519 of RFC 9421 B.1.4."""


def rfc_key() -> SigningKey:
    return SigningKey(load_pem_private_key(TEST_KEY, None))  # type: ignore[arg-type]


def key_in(folder: Path, name: str = "identity.pem") -> SigningKey:
    return make_key(folder / name)


def signed(
    signer: RequestSigner, host: str = "a.test", target: str = "/x?y=1", now: float = NOW
) -> tuple[str, str, str]:
    """Signature-Agent, Signature-Input and Signature of a GET."""
    lines = signer("GET", host, target, now).decode().split("\r\n")
    values = dict(line.split(": ", 1) for line in lines if line)
    return values["Signature-Agent"], values["Signature-Input"], values["Signature"]
