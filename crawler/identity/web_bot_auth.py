"""Web Bot Auth: signed requests, and the directory with the keys that sign them.

This module follows draft-ietf-webbotauth-httpsig-protocol-01 (29 October 2026), which has replaced
draft-meunier-web-bot-auth-architecture and draft-meunier-http-message-signatures-directory. Section titles in the comments
are of that draft.

Every request gets a signature of its own, with a nonce of its own. The draft calls one signature for many requests an
anti-pattern ("Static Signatures", "Deployment Anti-Patterns"), and a site that remembers nonces would refuse the second.
The signature covers the method, the authority, the path and the URL of the directory ("Generating HTTP Message Signature"
recommends more than the authority). The query is not covered, because proxies reorder it. How long it is valid,
`identity.lifetime` says (`crawler.settings.tables`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from crawler.identity.keys import PUBLISHED_KEYS, PublicKey, SigningKey, base64, public_key, thumbprint
from crawler.identity.published import LONGEST_VALIDITY_S, is_https_url
from crawler.identity.signatures import (
    Message,
    NotDecided,
    NotValid,
    Signature,
    authority,
    check,
    dictionary,
    signatures_of,
)

TAG, DIRECTORY_TAG = "web-bot-auth", "http-message-signatures-directory"
WELL_KNOWN = "/.well-known/http-message-signatures-directory"
MEDIA_TYPE = "application/http-message-signatures-directory+json"
LABEL = "sig1"
NONCE_BYTES = 18

CLOCK_SKEW_S = 5
"""Seconds by which the clock of the signer may be ahead."""

LONGEST_DIRECTORY, MOST_KEYS = 65_536, 100
"""Bytes and keys of a directory that is read ("Server-Side Request Forgery")."""

Keys = Mapping[str, PublicKey]
"""The keys of a directory by their thumbprints."""


class Verified(msgspec.Struct, frozen=True):
    """A signature that holds. Times are in seconds since 1970."""

    agent: str
    key_id: str
    created: int
    expires: int
    nonce: str
    covers: tuple[str, ...]


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
        covered = (
            f'"@method": {method}\n"@authority": {host}\n"@path": {target.partition("?")[0]}\n'
            f'"signature-agent";key="{LABEL}": "{self._directory}"\n"@signature-params": {parameters}'
        )
        signature = base64(self._key.sign(covered.encode()))
        return (
            f'Signature-Agent: {LABEL}="{self._directory}"\r\n'
            f"Signature-Input: {LABEL}={parameters}\r\n"
            f"Signature: {LABEL}=:{signature}:\r\n"
        ).encode()


# checking a request


def check_request(message: Message, find_keys: Callable[[str], Keys], now: float, source: str = "") -> list[Verified]:
    """Check the signatures of the request `message` as a site would at `now`, in seconds since 1970 ("Validating Message
    Signature"). `find_keys` returns the keys of a directory. `source`: what has the keys, if it is not the directory
    itself, for messages. Raises NotValid and NotDecided."""
    signatures = [signature for signature in signatures_of(message) if signature.text("tag") == TAG]
    if not signatures:
        raise NotDecided(f"the request has no signature with the tag {TAG!r}")
    return [_check_one(message, signature, find_keys, now, source) for signature in signatures]


def _check_one(
    message: Message, signature: Signature, find_keys: Callable[[str], Keys], now: float, source: str
) -> Verified:
    agent = agent_of(message, signature)
    if not (signature.covers("@authority") or signature.covers("@target-uri")):
        raise NotValid("the signature covers neither @authority nor @target-uri, so it would fit a request to any site")
    created, expires, key_id = signature.time("created"), signature.time("expires"), signature.text("keyid")
    if created > now + CLOCK_SKEW_S:
        raise NotValid(f"the signature was created {created - now:.0f} s in the future: check the clock of the signer")
    if expires <= now:
        raise NotValid(f"the signature expired {now - expires:.0f} s ago")
    if expires - created > LONGEST_VALIDITY_S:
        raise NotValid("the signature is valid for more than 24 hours")
    if not key_id:
        raise NotValid("the signature does not name its key (keyid)")
    key = find_keys(agent).get(key_id)
    if key is None and signature.parameters.get("alg", "ed25519") != "ed25519":
        algorithm = signature.text("alg")
        raise NotDecided(f"the signature by {key_id} has the algorithm {algorithm!r}, and only ed25519 can be checked")
    if key is None:
        raise NotDecided(f"the key {key_id} is not in {source or f'the directory at {agent}'}")
    check(message, signature, key)
    covers = tuple(name for name, _ in signature.components)
    return Verified(agent, key_id, created, expires, signature.text("nonce"), covers)


def agent_of(message: Message, signature: Signature) -> str:
    """Return the URL of the directory that `signature` names and covers ("Signature-Agent"). Raises NotValid."""
    header = message.field("signature-agent")
    if header is None:
        raise NotValid("the request has no field Signature-Agent")
    if header.startswith('"'):  # of earlier revisions
        member: Any = dictionary(Message((("agent", f"agent={header}"),)), "agent").get("agent")
        is_covered = signature.covers("signature-agent")
    else:
        member = dictionary(message, "signature-agent").get(signature.label)
        is_covered = signature.covers("signature-agent", key=signature.label)
        if member is None:  # a proxy may have changed the label: the key that is covered counts ("Labeling")
            labels = [options.get("key") for name, options in signature.components if name == "signature-agent"]
            member = dictionary(message, "signature-agent").get(str(labels[0])) if len(labels) == 1 else None
            is_covered = member is not None
    if member is None or not isinstance(member[0], str) or member[1]:
        raise NotValid(f"Signature-Agent has no URL for the signature {signature.label!r}")
    if not is_covered:
        raise NotValid("the signature does not cover Signature-Agent")
    if not is_https_url(member[0]):
        raise NotValid(f"Signature-Agent: {member[0]!r} is not an https URL")
    return str(member[0])


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
    digest = content_digest(body)
    inputs, values = [], []
    for number, key in enumerate(keys):
        parameters = (
            f'("@authority";req "content-digest");created={created};expires={created + lifetime_s}'
            f';keyid="{key.thumbprint}";tag="{DIRECTORY_TAG}"'
        )
        covered = (
            f'"@authority";req: {authority(urlsplit(url).netloc, "https")}\n"content-digest": {digest}\n'
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


def content_digest(body: bytes) -> str:
    """Return the field Content-Digest (RFC 9530 2) of `body`."""
    return f"sha-256=:{base64(hashlib.sha256(body).digest())}:"


def read_key_set(body: bytes, url: str = "", source: str = "") -> Keys:
    """Return the Ed25519 keys in the directory `body`, which is at `url`. Entries that cannot be used are left out, and so
    are keys that everyone has. `source`: where `body` comes from, if not from `url`, for messages. Raises NotDecided if it
    is not a directory."""
    source = source or f"the directory at {url}"
    if len(body) > LONGEST_DIRECTORY:
        raise NotDecided(f"{source} is longer than {LONGEST_DIRECTORY:,} bytes")
    try:
        entries = msgspec.json.decode(body, type=dict[str, Any]).get("keys")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotDecided(f"{source} is not a JSON Web Key Set: {error}") from error
    if not isinstance(entries, list) or len(entries) > MOST_KEYS:
        raise NotDecided(f"{source} has no list `keys` with at most {MOST_KEYS} keys")
    is_well_known = urlsplit(url).path == WELL_KNOWN
    keys = {}
    for entry in entries:
        match entry:
            case {"kty": "OKP", "crv": "Ed25519", "x": str(x)}:
                name = thumbprint(x)
                is_named_otherwise = is_well_known and entry.get("kid", name) != name
                if is_named_otherwise or name in PUBLISHED_KEYS:
                    continue
                try:
                    keys[name] = public_key(x)
                except ValueError:
                    continue
    return keys
