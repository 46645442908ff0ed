"""Reads statements about the use of pages as simply as the drafts are written, character by character and without regard to
time. It shares no code with `politeness`, except the naive matcher of paths of the tests there.

`structured` follows RFC 9651 section 4.2, `robots_usage` draft-ietf-aipref-attach-05 section 3, and `combine`
draft-ietf-aipref-vocab-08 section 5.1.
"""

from __future__ import annotations

import string
from collections.abc import Iterable

from tests.politeness.test_robots_properties import byte_count, naive_match, tokens

Preferences = dict[str, str]
"""Category -> "y" or "n"."""

CATEGORIES = ("train-ai", "ai-use", "search")
LOWER, DIGITS = set(string.ascii_lowercase), set(string.digits)
ALPHA = set(string.ascii_letters)
TOKEN = ALPHA | DIGITS | set("!#$%&'*+-.^_`|~:/")


class Malformed(Exception):
    """Raised when parsing fails."""


class Parser:
    """A structured field, and what is left of it."""

    def __init__(self, text: str) -> None:
        self.rest = text

    def peek(self) -> str:
        return self.rest[:1]

    def take(self) -> str:
        char, self.rest = self.rest[:1], self.rest[1:]
        return char

    def want(self, char: str) -> None:
        if self.take() != char:
            raise Malformed

    def skip(self, chars: str) -> None:
        self.rest = self.rest.lstrip(chars)

    def while_in(self, chars: set[str]) -> str:
        taken = ""
        while self.peek() and self.peek() in chars:
            taken += self.take()
        return taken

    def key(self) -> str:
        if self.peek() not in LOWER | {"*"}:
            raise Malformed
        return self.while_in(LOWER | DIGITS | set("_-.*"))

    def dictionary(self) -> dict[str, str | None]:
        """Each key with its token, or None for another value."""
        found: dict[str, str | None] = {}
        while self.rest:
            key = self.key()
            value = None
            if self.peek() == "=":
                self.take()
                value = self.inner_list() if self.peek() == "(" else self.bare()
            self.parameters()
            found[key] = value
            self.skip(" \t")
            if not self.rest:
                return found
            self.want(",")
            self.skip(" \t")
            if not self.rest:
                raise Malformed
        return found

    def inner_list(self) -> None:
        self.want("(")
        while self.rest:
            self.skip(" ")
            if self.peek() == ")":
                self.take()
                return
            self.bare()
            self.parameters()
            if self.peek() not in (" ", ")"):
                raise Malformed
        raise Malformed

    def parameters(self) -> None:
        while self.peek() == ";":
            self.take()
            self.skip(" ")
            self.key()
            if self.peek() == "=":
                self.take()
                self.bare()

    def bare(self) -> str | None:
        """The token that comes next, or None for another item."""
        char = self.peek()
        if char and (char in ALPHA or char == "*"):
            return self.while_in(TOKEN)
        if char == '"':
            self.quoted()
        elif char == ":":
            self.byte_sequence()
        elif char == "?":
            self.take()
            if self.take() not in ("0", "1"):
                raise Malformed
        elif char == "@":
            self.take()
            self.number(is_date=True)
        elif char == "%":
            self.display_string()
        else:
            self.number()
        return None

    def number(self, is_date: bool = False) -> None:
        if self.peek() == "-":
            self.take()
        whole = self.while_in(DIGITS)
        if not whole:
            raise Malformed
        if self.peek() != ".":
            if len(whole) > 15:
                raise Malformed
            return
        self.take()
        if is_date or len(whole) > 12 or not 1 <= len(self.while_in(DIGITS)) <= 3:
            raise Malformed

    def quoted(self) -> None:
        self.want('"')
        while (char := self.take()) != '"':
            if char == "\\":
                if self.take() not in ('"', "\\"):
                    raise Malformed
            elif not " " <= char <= "~":
                raise Malformed

    def byte_sequence(self) -> None:
        self.want(":")
        self.while_in(ALPHA | DIGITS | set("+/"))
        self.while_in({"="})
        self.want(":")

    def display_string(self) -> None:
        self.want("%")
        self.want('"')
        data = b""
        while (char := self.take()) != '"':
            if char == "%":
                digits = self.take() + self.take()
                if len(digits) != 2 or not set(digits) <= set("0123456789abcdef"):
                    raise Malformed
                data += bytes([int(digits, 16)])
            elif " " <= char <= "~":
                data += char.encode()
            else:
                raise Malformed
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise Malformed from error


def structured(value: bytes) -> dict[str, str | None] | None:
    """The members of a dictionary; None if it is none."""
    parser = Parser(value.decode("latin-1"))
    parser.skip(" ")
    try:
        return parser.dictionary()
    except Malformed:
        return None


def preferences(value: bytes) -> Preferences:
    found = structured(value) or {}
    return {name: word for name in CATEGORIES if (word := found.get(name)) in ("y", "n")}  # type: ignore[misc]


def combine(statements: Iterable[Preferences]) -> Preferences:
    every = list(statements)
    combined = {}
    for name in CATEGORIES:
        said = {one.get(name) for one in every} - {None}
        if said:
            combined[name] = "n" if "n" in said else "y"
    return combined


def written(found: Preferences) -> str:
    return ", ".join(f"{name}={found[name]}" for name in CATEGORIES if name in found)


def product_token(value: bytes) -> str:
    """The product token at the start of a User-agent line, in lower case. Digits count, as in `politeness`."""
    return Parser(value.decode("latin-1")).while_in(ALPHA | DIGITS | set("_-")).lower()


def robots_usage(body: bytes, agent: str, path: str) -> Preferences:
    """What the robots.txt `body` says to `agent` about `path`."""
    rules: dict[str, list[bytes]] = {agent: [], "*": []}
    seen: set[str] = set()
    names: set[str] = set()
    in_rules = False
    for line in body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        name, colon, value = line.split(b"#")[0].strip().partition(b":")
        field, value = name.strip().lower(), value.strip()
        if not colon:
            continue
        if field == b"user-agent":
            names = set() if in_rules else names
            in_rules = False
            names |= {"*" if value.split()[:1] == [b"*"] else product_token(value)} & rules.keys()
            seen |= names
        elif field in (b"allow", b"disallow", b"content-usage"):
            in_rules = True
            for group in names if field == b"content-usage" else ():
                rules[group].append(value)
    group = agent if agent in seen else "*"
    return longest(rules[group] if group in seen else [], path)


def longest(rules: list[bytes], path: str) -> Preferences:
    url = tuple(tokens(path, ""))
    best, said = -1, []
    for value in rules:
        pattern, statement = b"", value
        if value.startswith(b"/"):
            end = min([at for at in (value.find(b" "), value.find(b"\t")) if at >= 0], default=len(value))
            pattern, statement = value[:end], value[end:].strip(b" \t")
        anchored = pattern.endswith(b"$")
        parts = tuple(tokens(pattern[: len(pattern) - anchored], "*")) + ("$",) * anchored
        if value and naive_match(parts, url):
            length = byte_count(parts)
            if length > best:
                best, said = length, []
            if length == best:
                said.append(preferences(statement))
    return combine(said)
