"""A site that verifies Web Bot Auth, written from RFC 9421, RFC 9651 and draft-ietf-webbotauth-httpsig-protocol-01 alone.
It shares no code with the crawler but the parser of structured fields. It refuses a nonce that it has seen (RFC 9421
7.2.2)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from http_sf import parse, ser


class Refused(Exception):
    """Raised for a request that the site does not accept, with the reason."""


Member = tuple[Any, dict[str, Any], str]
"""A member of a structured field: its value, its parameters, and the text of both."""


def members(field: str) -> dict[str, Member]:
    """Parse a dictionary (RFC 9651 3.2). Raises Refused."""

    def refuse(key: str, _: str) -> None:
        raise ValueError(f"{key} occurs twice")

    try:
        parsed: Any = parse(field.encode(), tltype="dictionary", on_duplicate_key=refuse)
    except ValueError as error:
        raise Refused(f"not a dictionary: {error}") from error
    return {
        label: (value, parameters, ser([(value, parameters)] if isinstance(value, list) else (value, parameters)))
        for label, (value, parameters) in parsed.items()
    }


class Site:
    """Accepts requests that are signed with a key in one of `directories` (URL -> JSON Web Key Set)."""

    def __init__(self, directories: Mapping[str, bytes]) -> None:
        self._keys = {(url, name): key for url, body in directories.items() for name, key in keys_in(body).items()}
        self._nonces: set[str] = set()

    def accept(self, method: str, host: str, target: str, signed: tuple[str, str, str] | None, now: float) -> str:
        """Return the URL to which the request is attributed. `signed`: Signature-Agent, Signature-Input and Signature.
        Raises Refused."""
        if signed is None:
            raise Refused("not signed")
        agents, inputs, values = map(members, signed)
        chosen = [label for label, (_, parameters, _) in inputs.items() if parameters.get("tag") == "web-bot-auth"]
        if len(chosen) != 1:
            raise Refused("no signature with the tag")
        (label,) = chosen
        components, parameters, shown = inputs[label]
        agent, agent_parameters, agent_text = agents.get(label, ("", {}, ""))
        if not isinstance(agent, str) or not agent.startswith("https://") or agent_parameters:
            raise Refused("no URL in Signature-Agent")
        path, _, query = target.partition("?")
        known = {
            '"@method"': method,
            '"@authority"': host,
            '"@path"': path,
            '"@query"': f"?{query}",
            f'"signature-agent";key="{label}"': agent_text,
        }
        covered = [ser(component) for component in components]
        if '"@authority"' not in covered or f'"signature-agent";key="{label}"' not in covered:
            raise Refused("covers too little")
        if len(set(covered)) != len(covered) or not set(covered) <= known.keys():
            raise Refused("covers what the site does not know")
        self._check_times(parameters, now)
        key = self._keys.get((agent, parameters.get("keyid")))
        if key is None:
            raise Refused("an unknown key")
        base = "".join(f"{name}: {known[name]}\n" for name in covered) + f'"@signature-params": {shown}'
        try:
            key.verify(values[label][0], base.encode())
        except (InvalidSignature, KeyError) as error:
            raise Refused("the signature does not fit") from error
        nonce = parameters.get("nonce")
        if not nonce or nonce in self._nonces:
            raise Refused("replayed")
        self._nonces.add(nonce)
        return agent

    def _check_times(self, parameters: dict[str, Any], now: float) -> None:
        created, expires = parameters.get("created"), parameters.get("expires")
        if not isinstance(created, int) or not isinstance(expires, int):
            raise Refused("no times")
        if created > now + 1 or expires <= now or expires - created > 86_400:
            raise Refused("expired, from the future, or valid for too long")


def keys_in(body: bytes) -> dict[str, Ed25519PublicKey]:
    """The Ed25519 keys of a directory by their thumbprints (RFC 7638, RFC 8037 A.3)."""
    found = {}
    for key in json.loads(body)["keys"]:
        assert (key["kty"], key["crv"]) == ("OKP", "Ed25519")
        required = json.dumps({name: key[name] for name in ("crv", "kty", "x")}, separators=(",", ":"))
        name = base64.urlsafe_b64encode(hashlib.sha256(required.encode()).digest()).decode().rstrip("=")
        assert key["kid"] == name
        found[name] = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(key["x"] + "="))
    return found


def check_directory(authority: str, fields: Mapping[str, str], body: bytes, now: float) -> set[str]:
    """The thumbprints of the keys that have signed the directory `body`, asked for at `authority`. Raises Refused."""
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    if fields["content-digest"] != f"sha-256=:{digest}:":
        raise Refused("another digest")
    inputs, values = members(fields["signature-input"]), members(fields["signature"])
    keys, proven = keys_in(body), set()
    for label, (components, parameters, shown) in inputs.items():
        assert [ser(component) for component in components] == ['"@authority";req', '"content-digest"']
        assert parameters["tag"] == "http-message-signatures-directory"
        assert parameters["created"] <= now < parameters["expires"]
        base = (
            f'"@authority";req: {authority}\n"content-digest": {fields["content-digest"]}\n"@signature-params": {shown}'
        )
        try:
            keys[parameters["keyid"]].verify(values[label][0], base.encode())
        except InvalidSignature as error:
            raise Refused("the signature does not fit") from error
        proven.add(parameters["keyid"])
    return proven
