"""A blocking connection to the Valkey server. The simulation runs one call at a time, so blocking costs nothing.

Reads what the referee needs from the keys and arguments of the frontier's scripts.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hiredis

from frontier import scripts
from frontier.entries import parse_entry
from frontier.scripts import Call, Reply


class ScriptFailed(Exception):
    """Raised when the server answers a call with an error."""


class Wire:
    """Carries out calls of `frontier.store` on the server that listens on `path`."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._reader = hiredis.Reader()
        self.calls = 0
        for script in scripts.ALL:
            self.command("SCRIPT", "LOAD", script.source)

    def close(self) -> None:
        self._socket.close()

    def execute(self, calls: Sequence[Call]) -> list[Reply]:
        """Carry out `calls` in one round trip, nothing in between. Raises ScriptFailed for an error reply."""
        return self._exchange([_words(call) for call in calls])

    def command(self, *words: Any) -> Any:
        """One command and its reply."""
        return self._exchange([words])[0]

    def commands(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Many commands in one round trip."""
        return self._exchange(commands)

    def _exchange(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        self.calls += len(commands)
        self._socket.sendall(b"".join(map(hiredis.pack_command, commands)))
        replies: list[Any] = []
        while len(replies) < len(commands):
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(1 << 16))
            elif isinstance(reply, hiredis.ReplyError):
                raise ScriptFailed(str(reply))
            else:
                replies.append(reply)
        return replies


def _words(call: Call) -> tuple[Any, ...]:
    if call.script is None:
        return tuple(call.arguments)
    return ("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.arguments)


def shard_tag(key: str) -> str:
    """The hash tag of a shard's key, as `Domain.shard` has it."""
    return key[: key.index("}") + 1]


def shard_number(tag: str) -> int:
    """The number of the shard with this hash tag."""
    return int(tag[1:-1].rpartition(":")[2].partition("@")[0])


def bytes_of(word: object) -> bytes:
    """An argument as Redis has got it."""
    return word if isinstance(word, bytes) else str(word).encode()


def linked_url(member: str) -> str:
    """The URL of a link in an outbox."""
    _, domain, _, raw = member.split("\n")
    return parse_entry(raw, domain, 0.0).url


def each_end(ends: list[str]) -> Iterator[tuple[str, str, str]]:
    """Outcome, what shall come again, and entry of each URL whose end `settle` is told."""
    at = 0
    while at < len(ends):
        last = at + 4 + int(ends[at + 3])
        yield from ((ends[at], ends[at + 2], raw) for raw in ends[at + 4 : last])
        at = last
