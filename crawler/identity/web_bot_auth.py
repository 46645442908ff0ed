"""Web Bot Auth: signed requests, and the directory with the keys that sign them, by
draft-ietf-webbotauth-httpsig-protocol-01 (29 October 2026). Section titles in the comments are of that draft.

Every request gets a signature of its own, with a nonce of its own, because a site that remembers nonces would refuse a
second request ("Static Signatures"). The signature covers the method, the authority, the path and the URL of the
directory. The query is not covered, because proxies reorder it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import msgspec

from crawler.identity.keys import SigningKey, base64

TAG, DIRECTORY_TAG = "web-bot-auth", "http-message-signatures-directory"
MEDIA_TYPE = "application/http-message-signatures-directory+json"
LABEL = "sig1"
NONCE_BYTES = 18

# signing


class RequestSigner:
    """Signs requests. `directory`: its URL; `lifetime_s`: of a signature; `random`: returns so many random bytes."""

    def __init__(
        self, key: SigningKey, directory: str, lifetime_s: int, random: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._key = key
        self._directory = directory
        self._lifetime_s = lifetime_s
        self._random = random

    def __call__(self, method: str, host: str, target: str, now: float) -> bytes:
        """Return the header lines that sign a request at `now` (seconds since 1970)."""
        created = int(now)
        parameters = (
            f'("@method" "@authority" "@path" "signature-agent";key="{LABEL}");created={created}'
            f';expires={created + self._lifetime_s};nonce="{base64(self._random(NONCE_BYTES))}"'
            f';keyid="{self._key.thumbprint}";alg="ed25519";tag="{TAG}"'
        )
        signature = base64(self._key.sign(_covered(method, host, target, self._directory, parameters)))
        return (
            f'Signature-Agent: {LABEL}="{self._directory}"\r\n'
            f"Signature-Input: {LABEL}={parameters}\r\n"
            f"Signature: {LABEL}=:{signature}:\r\n"
        ).encode()


def _covered(method: str, host: str, target: str, directory: str, parameters: str) -> bytes:
    """The text that a signature covers (RFC 9421 2.5)."""
    return (
        f'"@method": {method}\n"@authority": {host}\n"@path": {target.partition("?")[0] or "/"}\n'
        f'"signature-agent";key="{LABEL}": "{directory}"\n"@signature-params": {parameters}'
    ).encode()


# the directory


class SignedDirectory(msgspec.Struct, frozen=True):
    """A key directory as it is served: its body, and the header fields that prove that the keys belong to its authority."""

    body: bytes
    fields: tuple[tuple[str, str], ...]


def key_set(keys: Sequence[SigningKey]) -> bytes:
    """Return the directory with `keys` ("Directory Format")."""
    entries = [{"kty": "OKP", "crv": "Ed25519", "kid": key.thumbprint, "x": key.x, "use": "sig"} for key in keys]
    return msgspec.json.encode({"keys": entries})


def signed_directory(keys: Sequence[SigningKey], url: str, now: float, lifetime_s: int) -> SignedDirectory:
    """Return the directory with `keys` for the directory's `url`, with one signature per key ("Possession Proof on the
    Directory Response"). They are valid from `now` (seconds since 1970) for `lifetime_s` seconds."""
    body, created = key_set(keys), int(now)
    digest = f"sha-256=:{base64(hashlib.sha256(body).digest())}:"  # RFC 9530 2
    inputs, values = [], []
    for number, key in enumerate(keys):
        parameters = (
            f'("@authority";req "content-digest");created={created};expires={created + lifetime_s}'
            f';keyid="{key.thumbprint}";tag="{DIRECTORY_TAG}"'
        )
        covered = (
            f'"@authority";req: {urlsplit(url).netloc.lower().removesuffix(":443")}\n"content-digest": {digest}\n'
            f'"@signature-params": {parameters}'
        )
        inputs.append(f"binding{number}={parameters}")
        values.append(f"binding{number}=:{base64(key.sign(covered.encode()))}:")
    fields = (
        ("Content-Type", MEDIA_TYPE),
        ("Content-Digest", digest),
        ("Signature-Input", ", ".join(inputs)),
        ("Signature", ", ".join(values)),
    )
    return SignedDirectory(body, fields)
