"""The calls that a store carries out. A *call* is a command or a script with its arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from hiredis import pack_command

from frontier.scripts import Script

Argument = bytes | str | int | float
Reply = Any
"""A reply of Redis: bytes, int, None, or lists of these."""

_NONE = 0
_KEY_PLACES: dict[Argument, int] = {
    **dict.fromkeys(("INFO", "CONFIG", "SCAN", "ECHO", "CLIENT", "SCRIPT", "REPLICAOF", "SHUTDOWN"), _NONE),
    **dict.fromkeys(("MEMORY", "OBJECT"), 2),
}
"""Where a command has its key, if it is not the second word."""


class Acks(msgspec.Struct, frozen=True):
    """How many `replicas` of its node must have received what a call has written. `key`: is written after it, because a
    server waits only for what the same connection has written, and a repeated call may write nothing."""

    replicas: int
    key: str


class Call(msgspec.Struct, frozen=True):
    """One command of a batch. If `script` is set, it is called with `keys` and `arguments`; otherwise `arguments` are
    the command. `acks`: None if the reply of the node is enough. Of the calls of a batch all have acks, or none. `at`:
    a key of the node that carries out a command without a key."""

    arguments: Sequence[Argument]
    keys: Sequence[str] = ()
    script: Script | None = None
    acks: Acks | None = None
    at: str = ""

    @property
    def key(self) -> str:
        """The key that tells which node carries out the call, or "" if any node can."""
        if self.script is not None:
            return self.keys[0]
        if self.at:
            return self.at
        place = _KEY_PLACES.get(self.arguments[0], 1)
        return str(self.arguments[place]) if 0 < place < len(self.arguments) else ""


def command(*words: Argument) -> Call:
    """A plain command, such as ``command("ZCARD", keys.due)``. Its second word must be its key."""
    return Call(words)


def script_call(script: Script, keys: Sequence[str], *arguments: Argument) -> Call:
    """A script call."""
    return Call(arguments, keys, script)


Words = tuple[Argument, ...]

_packed: Callable[[Words], bytes] = pack_command  # type: ignore[assignment]  # annotated as a tuple of one


GUARD = "redis.call('EXISTS', KEYS[1] .. ':guard')\n"
"""The first line of a script on a cluster. Nobody creates this key. A node that hands over its slot to another answers that
it may be there, which ends the script before it has changed anything."""

_guarded_shas: dict[bytes, bytes] = {}


def packed(calls: Sequence[Call], guarded: bool = False) -> bytes:
    """`calls` as they are sent, scripts by their SHA-1. `guarded`: as scripts with `GUARD`."""
    return b"".join([_packed(_words(call, guarded)) for call in calls])


def _words(call: Call, guarded: bool) -> Words:
    if call.script is None:
        return tuple(call.arguments)
    sha = _guarded_sha(call.script) if guarded else call.script.sha
    return ("EVALSHA", sha, len(call.keys), *call.keys, *call.arguments)


def _guarded_sha(script: Script) -> bytes:
    sha = _guarded_shas.get(script.sha)
    if sha is None:
        sha = hashlib.sha1((GUARD + script.source).encode()).hexdigest().encode()
        _guarded_shas[script.sha] = sha
    return sha


def packed_by_source(call: Call, guarded: bool = False) -> bytes:
    """A script call as it is sent to a server that does not know the script."""
    assert call.script is not None
    source = GUARD + call.script.source if guarded else call.script.source
    return _packed(("EVAL", source, len(call.keys), *call.keys, *call.arguments))


def packed_words(*words: Argument) -> bytes:
    """One command as it is sent."""
    return _packed(words)
