"""A blocking connection to the Valkey server. The simulation carries out one call at a time, so waiting costs nothing."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import hiredis

from frontier.store import Call, Reply


class ScriptFailed(Exception):
    """Raised when the server answers a call with an error."""


class Wire:
    """Carries out calls of `frontier.store` on the server that listens on `path`."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._reader = hiredis.Reader()
        self.calls = 0

    def close(self) -> None:
        self._socket.close()

    def execute(self, call: Call) -> Reply:
        """The server's reply. Raises ScriptFailed for an error reply."""
        if call.script is None:
            return self.command(*call.arguments)
        try:
            return self.command("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.arguments)
        except ScriptFailed as error:
            if "NOSCRIPT" not in str(error):
                raise ScriptFailed(f"{call.script.name}: {error}") from error
            return self.command("EVAL", call.script.source, len(call.keys), *call.keys, *call.arguments)

    def command(self, *words: object) -> Any:
        """One command and its reply."""
        self.calls += 1
        packed: tuple[Any, ...] = tuple(word if isinstance(word, (str, bytes)) else str(word) for word in words)
        self._socket.sendall(hiredis.pack_command(packed))
        reply = self._reader.gets()
        while reply is False:
            self._reader.feed(self._socket.recv(1 << 16))
            reply = self._reader.gets()
        if isinstance(reply, hiredis.ReplyError):
            raise ScriptFailed(str(reply))
        return reply
