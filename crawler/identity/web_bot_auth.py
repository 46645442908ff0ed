"""Web Bot Auth: signed requests, and the directory with the keys that sign them, by
draft-ietf-webbotauth-httpsig-protocol-01 (29 October 2026). Section titles in the comments are of that draft.

Every request gets a signature of its own, with a nonce of its own, because a site that remembers nonces would refuse a
second request ("Static Signatures"). The signature covers the method, the authority, the path and the URL of the
directory. The query is not covered, because proxies reorder it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from crawler.errors import UserError
from crawler.http_head import HEAD_END, parse_head
from crawler.identity.keys import PublicKey, SigningKey, base64, fits, public_key, thumbprint

TAG, DIRECTORY_TAG = "web-bot-auth", "http-message-signatures-directory"
MEDIA_TYPE = "application/http-message-signatures-directory+json"
LABEL = "sig1"
NONCE_BYTES = 18

CLOCK_SKEW_S = 5
"""Seconds by which the clock of the signer may be ahead."""

Keys = Mapping[str, PublicKey]
"""The keys of a replica by their thumbprints."""

_FIELDS = tuple(
    re.compile(rf"{LABEL}={value}")
    for value in (
        r'"([^"]*)"',
        rf'(\([^)]*\);created=(\d{{1,12}});expires=(\d{{1,12}});nonce="([^"]*)";keyid="([^"]*)";alg="ed25519";tag="{TAG}")',
        r":([A-Za-z0-9+/=]*):",
    )
)
"""Signature-Agent, Signature-Input and Signature as `RequestSigner` writes them."""

_REQUEST_LINE = re.compile(r"([A-Z]+) (?:https?://[^/? ]+)?(/?[^ ]*) HTTP/")
"""The target is an absolute URL in a request to a proxy (RFC 9112 3.2.2)."""


class NotValid(UserError):
    """Raised for a request with a signature that does not hold, or with none."""


class _PublicKey(msgspec.Struct):
    x: str


class _KeySet(msgspec.Struct):
    keys: list[_PublicKey]


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


# checking a request


def check_request(sent: bytes, keys: Keys, now: float) -> str:
    """Check a request that `RequestSigner` has signed, as it was `sent` at `now` (seconds since 1970). Returns the nonce.
    Raises NotValid."""
    head = parse_head(HEAD_END.split(sent, 1)[0] + b"\n")
    names = (b"signature-agent", b"signature-input", b"signature")
    found = [pattern.fullmatch(head.get_list(name)) for pattern, name in zip(_FIELDS, names, strict=True)]
    agent, inputs, value = found
    first = _REQUEST_LINE.match(sent.decode("latin-1"))
    if agent is None or inputs is None or value is None or first is None:
        raise NotValid("the request is not signed")
    parameters, created, expires, nonce, key_id = inputs.groups()
    if int(created) > now + CLOCK_SKEW_S:
        raise NotValid(
            f"the signature was created {int(created) - now:.0f} s in the future: check the clock of the signer"
        )
    if int(expires) <= now:
        raise NotValid(f"the signature expired {now - int(expires):.0f} s ago")
    if key_id not in keys:
        raise NotValid(f"the key {key_id} is not in the key set in the warcinfo record")
    covered = _covered(first[1], head.get_list(b"host"), first[2] or "/", agent[1], parameters)
    if not fits(value[1], covered, keys[key_id]):
        raise NotValid("the signature does not fit the request: it was changed, or signed with another key")
    return nonce


def read_key_set(body: bytes) -> Keys:
    """Return the keys in `body`, as `key_set` has written it into a warcinfo record. Raises NotValid."""
    try:
        entries = msgspec.json.decode(body, type=_KeySet).keys
        return {thumbprint(entry.x): public_key(entry.x) for entry in entries}
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NotValid(f"the key set in the warcinfo record cannot be read: {error}") from error


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
