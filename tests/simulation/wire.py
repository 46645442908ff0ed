"""A blocking connection to the Valkey server. The simulation runs one call at a time, so blocking costs nothing."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hiredis

from frontier import scripts
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
