"""Reads the heads of HTTP responses as they are in practice. The client, redaction, archives, exports and audits have
to agree on what is a field, so all of them use this module.

A malformed line costs no page: browsers, curl and wget read the rest. Each line becomes a field, a repaired field, or
nothing:

- Spaces before the colon are removed (RFC 9112 5.1), folded lines are joined by a space (5.2), and a NUL or a bare CR
  in a value counts as a space (RFC 9110 5.5).
- A line without a colon, or with a name that is not a token (RFC 9110 5.1), is dropped with the lines folded into it.
  So is one that begins with white space right after the status line (RFC 9112 2.2).

A head with such a line is not regular, and its sender may mean something else by it: do not reuse its connection. Every
pattern here takes linear time, whatever a site sends.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

HEAD_END = re.compile(rb"\n\r?\n")
"""RFC 9112 2.2: a recipient may take a bare LF for a line end."""

_STATUS_LINE = re.compile(rb"HTTP/([0-9.]{1,8})[ \t]+([0-9]{3})(?![0-9])[ \t]*([^\n]*)", re.IGNORECASE)
_REGULAR_STATUS_LINE = re.compile(rb"HTTP/1\.[01] [0-9]{3}(?: [^\x00-\x08\x0a-\x1f\x7f]*)?\r?")

_LINE = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]++):([^\x00-\x08\x0a-\x1f\x7f]*+)\r?\n(?![ \t])"  # a regular field: name and value
    rb"|(?!\Z)([^\n]*+(?:\n[ \t][^\n]*+)*+\n?+)"  # anything else, with the lines folded into it
)
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BLANK_LINES = (b"\n", b"\r\n")
_SPACES = bytes.maketrans(b"\0\r", b"  ")


_OF_THE_CLIENT = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive", "expect"}
    | {"proxy-connection", "proxy-authorization", "range", "accept-encoding"}
)


def is_of_the_client(name: str) -> bool:
    """Whether the field `name`, in lower case, of a request is for the client alone to set: as the connection, the decoders
    and the archive need it, or because it would ask for another response than the page."""
    return name in _OF_THE_CLIENT or name.startswith(("if-", "signature"))


class Head(NamedTuple):
    """The head of an HTTP response. `status`: 0 without a status line. `fields`: names as sent, and values. `version`: 1.0,
    or 1.1 for any later one. `is_regular`: nothing was repaired or dropped."""

    status: int
    fields: tuple[tuple[bytes, bytes], ...]
    reason: str = ""
    version: str = "1.1"
    is_regular: bool = True

    def get(self, name: bytes) -> str | None:
        """The first value of the field `name` (in lower case), or None."""
        value = first_values(self.fields).get(name)
        return None if value is None else value.decode("latin-1")

    def get_list(self, name: bytes) -> str:
        """All values of the field `name` (in lower case) as one list, empty without one."""
        return all_values(self.fields).get(name, b"").decode("latin-1")


@lru_cache(
    16
)  # the client, the worker and the archive ask for fields of the same response; a hostile head takes 1.5 MB
def first_values(fields: tuple[tuple[bytes, bytes], ...]) -> Mapping[bytes, bytes]:
    """The first value of each of `fields`, by its name in lower case."""
    return {name.lower(): value for name, value in reversed(fields)}


@lru_cache(16)
def all_values(fields: tuple[tuple[bytes, bytes], ...]) -> Mapping[bytes, bytes]:
    """All values of each of `fields` as one list, by its name in lower case: a field whose value is a list may come in
    several lines (RFC 9110 5.3)."""
    first = first_values(fields)
    if len(first) == len(fields):
        return first
    found = defaultdict[bytes, list[bytes]](list)
    for name, value in fields:
        found[name.lower()].append(value)
    return {name: b", ".join(values) for name, values in found.items()}


def parse_head(data: bytes) -> Head:
    """Parse any `data` as an HTTP head."""
    first, _, lines = data.partition(b"\n")
    found = _LINE.findall(lines)
    if found and found[-1][2] in _BLANK_LINES:
        found.pop()
    fields = [(name, value.strip(b" \t")) for name, value, irregular in found if not irregular]
    status, _, reason, version, is_regular = _status_line(first)
    if len(fields) < len(found):
        is_regular = False
        repaired = (_repaired(text) if text else (name, value.strip(b" \t")) for name, value, text in found)
        fields = [field for field in repaired if field is not None]
    return Head(status, tuple(fields), reason, version, is_regular)


@lru_cache(maxsize=16)  # nearly all responses begin with the same line
def _status_line(first: bytes) -> Head:
    status = _STATUS_LINE.match(first)
    if status is None:
        return Head(0, (), is_regular=False)
    version, code, reason = status.groups()
    reason_text = reason.translate(_SPACES).strip().decode("utf-8", "surrogateescape")
    is_regular = _REGULAR_STATUS_LINE.fullmatch(first) is not None
    return Head(int(code), (), reason_text, "1.0" if version < b"1.1" else "1.1", is_regular)


def redacted(head: bytes, names: Collection[bytes], mark: bytes) -> bytes:
    """Return the `head` of a request or response with `mark` for the values of the fields `names` (in lower case).

    Other readers may find such a field where this module finds none. So `mark` also stands for each dropped line, for a
    repaired value in which one of `names` occurs, and for what follows a bare CR in the first line.
    """

    def shown(line: re.Match[bytes]) -> bytes:
        text, name = line[0], line[1]
        if text in _BLANK_LINES:
            return text
        if name is not None:
            is_hidden = name.lower() in names
        elif _repaired(text) is not None:
            is_hidden = any(name in text.lower() for name in names)
        else:
            return mark + _end_of(text)
        return text[: text.index(b":") + 1] + b" " + mark + _end_of(text) if is_hidden else text

    first, newline, lines = head.partition(b"\n")
    start, carriage_return, rest = first.partition(b"\r")
    first = start + carriage_return + (mark if rest else b"")
    return first + newline + _LINE.sub(shown, lines)


def renamed(head: bytes, names: Collection[bytes], prefix: bytes) -> bytes:
    """Return the `head` of a response with `prefix` before the names of the fields `names` (in lower case), and before what
    other readers may take for one in lines that are not regular."""
    mentions = re.compile(rb"(?<![\w-])(?=(?:%b)[^\w\n-]{0,9}:)" % b"|".join(map(re.escape, names)), re.IGNORECASE)

    def shown(line: re.Match[bytes]) -> bytes:
        name = line[1]
        if name is None:
            return mentions.sub(prefix, line[0])
        return prefix + line[0] if name.lower() in names else line[0]

    first, newline, lines = head.partition(b"\n")
    return first + newline + _LINE.sub(shown, lines)


def _repaired(text: bytes) -> tuple[bytes, bytes] | None:
    """The name and value of the field in `text`, a line with those that are folded into it; None if it is none."""
    if b":" not in text or text[0] in b" \t":
        return None
    first, *folded = text.split(b"\n")
    name, colon, value = first.partition(b":")
    name = name.strip(b" \t\r")
    if not colon or not _TOKEN.fullmatch(name):
        return None
    parts = (part.translate(_SPACES).strip(b" \t") for part in (value, *folded))
    return name, b" ".join(part for part in parts if part)


def _end_of(text: bytes) -> bytes:
    return b"\r\n" if text.endswith(b"\r\n") else b"\n"


class Secret:
    """A text whose representation does not show it, so that it does not get into logs and messages by accident."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return "<Secret>"

    def __bool__(self) -> bool:
        return bool(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)
