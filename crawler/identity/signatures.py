"""HTTP Message Signatures (RFC 9421): the text that a signature covers, and whether a signature fits a message.

Only what Web Bot Auth needs: requests, and Ed25519. Components that need the value of a field in another form (`sf`, `bs`,
`tr`) and query parameters are refused as unsupported. http-sf parses structured fields.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from crawler.errors import UserError
from crawler.identity.keys import PublicKey  # before cryptography, which it reports as missing
from crawler.identity.published import LONGEST_HEAD

try:
    from cryptography.exceptions import InvalidSignature
    from http_sf import parse, ser
except ImportError as error:
    raise UserError("an identity needs the package http-sf: pip install 'peercrawl[identity]'") from error

LONGEST_FIELD = 16_384
"""Bytes of a field that are parsed. A signature takes some hundred."""

SINGLETONS = frozenset(
    {"host", "authorization", "content-length", "content-type", "date", "from", "if-modified-since", "if-range"}
    | {"if-unmodified-since", "max-forwards", "proxy-authorization", "range", "referer", "user-agent"}
)
"""Fields of a request that are not a list (RFC 9110 5.5): with two of them, readers differ in which one counts."""

_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\0\r]*)")  # no space before the colon: RFC 9112 5.1
_REQUEST_LINE = re.compile(r"([A-Za-z-]+) (\S+)(?: HTTP/[0-9.]+)?")
_ABSOLUTE = re.compile(r"(https?)://([^/?#@]+)(/?.*)", re.IGNORECASE)


class NotValid(UserError):
    """Raised when a message has a signature that does not hold."""


class NotDecided(UserError):
    """Raised when nobody can tell whether a signature holds: there is none, the key is unknown, or a component is one that
    this program cannot read."""


class Message(msgspec.Struct, frozen=True):
    """The head of a request. `fields`: names in lower case and values, as sent. `target`: as sent, so an absolute URL in a
    request to a proxy."""

    fields: tuple[tuple[str, str], ...]
    method: str = ""
    authority: str = ""
    target: str = "/"
    scheme: str = "https"

    @classmethod
    def from_head(cls, head: str, scheme: str = "https") -> Message:
        """Parse the head of a request, with or without its request line; a body after it is not read. Raises NotDecided if
        the head can be read in several ways, or if it has no Host field. `scheme`: unless the target has one."""
        text, blank_line, _ = head.replace("\r\n", "\n").lstrip("\n").partition("\n\n")
        if not blank_line and len(head) >= LONGEST_HEAD:
            raise NotDecided(f"the head of the request is longer than {LONGEST_HEAD:,} bytes")
        lines = re.sub(r"\n[ \t]+", " ", text.rstrip("\n")).split("\n") if text else []  # folded fields: RFC 9112 5.2
        method, target = "GET", "/"
        start = _REQUEST_LINE.fullmatch(lines[0]) if lines else None
        if start is not None:
            method, target = start[1], start[2]
            del lines[0]
        fields = tuple(_parse_field(line) for line in lines)
        names = [name for name, _ in fields]
        for name in SINGLETONS.intersection(names):
            if names.count(name) > 1:
                raise NotDecided(f"the request has the field {name} twice, so nobody can tell which one counts")
        host = dict(fields).get("host", "")
        if not host:
            raise NotDecided("the request has no Host field, so nobody can tell to which site it was sent")
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is not None:
            scheme = absolute[1].lower()
            if authority(absolute[2], scheme) != authority(host, scheme):  # RFC 9112 3.2.2
                raise NotDecided(
                    f"the request names two hosts: {absolute[2]} in its first line, {host} in its field Host"
                )
        return cls(fields, method, host, target, scheme)

    def field(self, name: str) -> str | None:
        """Return the values of the field `name` as one list (RFC 9421 2.1), or None if there is none."""
        values = [value for key, value in self.fields if key == name]
        return ", ".join(values) if values else None


class Signature(msgspec.Struct, frozen=True):
    """One signature of a message. `components`: what it covers, as names with parameters; `parameters`: its metadata."""

    label: str
    components: tuple[tuple[str, dict[str, Any]], ...]
    parameters: dict[str, Any]
    value: bytes

    def covers(self, name: str, **parameters: object) -> bool:
        """Whether it covers the component `name` with these parameters."""
        return (name, parameters) in self.components

    def text(self, name: str) -> str:
        """The parameter `name` if it is a string, else ""."""
        value = self.parameters.get(name)
        return value if type(value) is str else ""

    def time(self, name: str) -> int:
        """The parameter `name`, a time in seconds since 1970. Raises NotValid if there is none."""
        value = self.parameters.get(name)
        if type(value) is not int:
            raise NotValid(f"the signature has no time {name!r}")
        return value


def signatures_of(message: Message) -> list[Signature]:
    """Return the signatures (RFC 9421 4.1, 4.2). Raises NotDecided without one, and NotValid for malformed fields."""
    inputs, values = dictionary(message, "signature-input"), dictionary(message, "signature")
    if not inputs or not values:
        raise NotDecided("the message is not signed")
    signatures = []
    for label, (components, parameters) in inputs.items():
        value = values.get(label, (None,))[0]
        if not isinstance(components, list) or not isinstance(value, bytes):
            raise NotValid(f"signature {label!r}: not a list of components with a value")
        if not all(isinstance(name, str) for name, _ in components):
            raise NotValid(f"signature {label!r}: the name of a component is not a string")
        signatures.append(Signature(label, tuple(components), parameters, value))
    return signatures


def dictionary(message: Message, name: str) -> dict[str, Any]:
    """Return the field `name` as a dictionary (RFC 9651 3.2), empty without it. Raises NotValid."""
    value = message.field(name)
    if value is None:
        return {}
    if len(value) > LONGEST_FIELD:
        raise NotValid(f"the field {name} is longer than {LONGEST_FIELD:,} bytes")

    def refuse(key: str, _: str) -> None:
        raise ValueError(f"{key!r} occurs twice")

    try:
        parsed: Any = parse(value.encode(), tltype="dictionary", on_duplicate_key=refuse)
    except ValueError as error:
        raise NotValid(f"the field {name} cannot be parsed: {error}") from error
    return dict(parsed)


def check(message: Message, signature: Signature, key: PublicKey) -> None:
    """Raises NotValid if `key` did not make `signature`, and NotDecided for an unknown component (RFC 9421 3.2)."""
    if signature.parameters.get("alg", "ed25519") != "ed25519":
        raise NotValid("the algorithm of the signature is not Ed25519, but its key is an Ed25519 key")
    try:
        key.verify(signature.value, signature_base(message, signature).encode())
    except InvalidSignature as error:
        raise NotValid("the signature does not fit the message: it was changed, or signed with another key") from error


def signature_base(message: Message, signature: Signature) -> str:
    """Return the text that `signature` covers (RFC 9421 2.5)."""
    lines: dict[str, str] = {}
    for name, parameters in signature.components:
        component = ser((name, parameters))
        if component in lines:
            raise NotValid(f"the signature covers {component} twice")
        lines[component] = _value(message, name, parameters)
    covered: Any = list(signature.components)
    lines['"@signature-params"'] = ser([(covered, signature.parameters)])
    text = "\n".join(f"{component}: {value}" for component, value in lines.items())
    if not text.isascii():
        raise NotValid("the signature covers text that is not ASCII")
    return text


def _parse_field(line: str) -> tuple[str, str]:
    parsed = _FIELD.fullmatch(line)
    if parsed is None:
        raise NotDecided(f"the request has a line that is not a header field: {line[:80]!r}")
    return parsed[1].lower(), parsed[2].strip(" \t")


def _value(message: Message, name: str, parameters: dict[str, Any]) -> str:
    """The value of a component (RFC 9421 2.1 and 2.2)."""
    options = dict(parameters)
    if options.pop("req", False) is True:
        raise NotValid("a request is signed as if it were a response")
    key = options.pop("key", None)
    if options or (key is not None and name.startswith("@")):
        raise NotDecided(f"the signature covers {name!r} in a form that this program does not support")
    if name.startswith("@"):
        return _derived(message, name)
    value = message.field(name)
    if value is None or name != name.lower():
        raise NotValid(f"the signature covers the field {name!r}, which the message does not have")
    if key is None:
        return value
    member = dictionary(message, name).get(str(key))
    if member is None:
        raise NotValid(f"the signature covers {key!r} of the field {name!r}, which the message does not have")
    return ser([member]) if isinstance(member[0], list) else ser(member)


def _derived(message: Message, name: str) -> str:
    absolute = _ABSOLUTE.fullmatch(message.target)
    target = absolute[3] if absolute is not None else message.target
    path, mark, query = target.partition("?")
    derived = {
        "@method": message.method,
        "@authority": authority(message.authority, message.scheme),
        "@scheme": message.scheme,
        "@target-uri": f"{message.scheme}://{authority(message.authority, message.scheme)}{target}",
        "@request-target": message.target,
        "@path": path or "/",
        "@query": f"?{query}" if mark else "?",  # 2.2.7: a lone question mark if there is none
    }
    if name not in derived:
        raise NotDecided(f"the signature covers {name!r}, which this program does not support")
    return derived[name]


def authority(host: str, scheme: str) -> str:
    """Return the value of a Host field as RFC 9421 2.2.3 has it: in lower case, without the default port."""
    return host.lower().removesuffix(":443" if scheme == "https" else ":80")
