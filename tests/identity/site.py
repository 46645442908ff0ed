"""A site that verifies Web Bot Auth, written from RFC 9421, RFC 9651 and draft-ietf-webbotauth-httpsig-protocol-01 alone.
It shares no code with the crawler, not even a parser. It refuses a nonce that it has seen (RFC 9421 7.2.2)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_ITEM = re.compile(
    r'(?P<string>"(?:[^"\\]|\\["\\])*")|:(?P<bytes>[A-Za-z0-9+/=]*):|(?P<integer>-?\d{1,15})(?![\d.])|\?(?P<boolean>[01])'
    r"|(?P<token>[A-Za-z*][\w!#$%&'*+.^`|~:/-]*)",
    re.ASCII,
)
_KEY = re.compile(r"[a-z*][a-z0-9_.*-]*")


class Refused(Exception):
    """Raised for a request that the site does not accept, with the reason."""


class Fields:
    """A parser of structured fields (RFC 9651 4.2)."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def dictionary(self) -> dict[str, tuple[Any, dict[str, Any], str]]:
        """Label -> value, parameters, and the text of both."""
        found: dict[str, tuple[Any, dict[str, Any], str]] = {}
        while self._at < len(self._text):
            label, value, parameters, start = self._key(), True, {}, self._at
            if self._takes("="):
                start = self._at
                value = self._inner_list() if self._takes("(") else self._item()
            parameters = self._parameters()
            if label in found:
                raise Refused("a label occurs twice")
            found[label] = value, parameters, self._text[start : self._at]
            self._skip()
            if self._at < len(self._text):
                self._needs(",")
                self._skip()
                if self._at == len(self._text):
                    raise Refused("a comma at the end")
        return found

    def _inner_list(self) -> list[tuple[Any, dict[str, Any], str]]:
        items = []
        while True:
            self._skip()
            if self._takes(")"):
                return items
            start = self._at
            value = self._item()
            items.append((value, self._parameters(), self._text[start : self._at]))

    def _parameters(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._takes(";"):
            self._skip()
            name = self._key()
            found[name] = self._item() if self._takes("=") else True
        return found

    def _item(self) -> Any:
        match = _ITEM.match(self._text, self._at)
        if match is None:
            raise Refused(f"no item at {self._text[self._at :]!r}")
        self._at = match.end()
        kind = match.lastgroup or ""
        text = match[kind]
        if kind == "string":
            return re.sub(r"\\(.)", r"\1", text[1:-1])
        if kind == "bytes":
            return base64.b64decode(text, validate=True)
        return int(text) if kind == "integer" else text == "1" if kind == "boolean" else text

    def _key(self) -> str:
        match = _KEY.match(self._text, self._at)
        if match is None:
            raise Refused(f"no key at {self._text[self._at :]!r}")
        self._at = match.end()
        return match[0]

    def _skip(self) -> None:
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1

    def _takes(self, sign: str) -> bool:
        if self._text[self._at : self._at + 1] != sign:
            return False
        self._at += 1
        return True

    def _needs(self, sign: str) -> None:
        if not self._takes(sign):
            raise Refused(f"{sign} is missing at {self._text[self._at :]!r}")


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
        agents, inputs, values = (Fields(text).dictionary() for text in signed)
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
        covered = [text for _, _, text in components]
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
    inputs, values = (Fields(fields[name]).dictionary() for name in ("signature-input", "signature"))
    keys, proven = keys_in(body), set()
    for label, (components, parameters, shown) in inputs.items():
        assert [text for _, _, text in components] == ['"@authority";req', '"content-digest"']
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
