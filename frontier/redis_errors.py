"""Translates what can go wrong with Redis into errors of the frontier. This is the only place that does so.

Errors that pass by themselves become RedisAway: the caller tries again. Those that an operator has to remove become
RedisMisused.
"""

from __future__ import annotations

import asyncio
import ssl

import hiredis

from frontier.errors import FrontierError, RedisAway, RedisMisused, WritesRefused

# The first words of temporary error replies: https://redis.io/docs/latest/develop/reference/protocol-spec/
_LATER = frozenset(
    {"LOADING", "BUSY", "READONLY", "OOM", "MISCONF", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS"}
    | {"MOVED", "ASK", "UNKILLABLE", "NOSCRIPT", "REDIRECT", "INPROG", "NOMASTERLINK"}
)
_NO_WRITES = frozenset({"OOM", "MISCONF", "READONLY", "NOREPLICAS"})
"""Those of a server that still answers reads."""

_REFUSALS = frozenset({"WRONGPASS", "NOAUTH", "NOPERM"})

WRONG_SERVER = frozenset({"READONLY", "LOADING", "MASTERDOWN"})
"""First words of replies that say that the server at the other end is not, or not yet, the one that serves. Its connections
are of no more use: behind a fixed address, a new one may lead to its successor."""

_NO_CLIENTS = "max number of clients"

_PASSING = (OSError, EOFError, asyncio.IncompleteReadError, hiredis.ProtocolError)
"""Exceptions of a connection. TimeoutError is an OSError."""


def first_word(error: BaseException) -> str:
    """The word at the beginning of an error reply that says what it is about."""
    return str(error).partition(" ")[0].rstrip(":")


def translate(error: BaseException, where: str, node: str = "") -> FrontierError:
    """Translate an error reply, or an exception of the connection, to an error of the frontier. `where`: as the server is
    shown in messages; `node`: its name."""
    if isinstance(error, FrontierError):
        return error
    word = first_word(error)
    is_passing = isinstance(error, _PASSING) and not isinstance(error, ssl.SSLCertVerificationError)
    if is_passing or word in _LATER or _NO_CLIENTS in str(error):
        kind = WritesRefused if word in _NO_WRITES else RedisAway
        said = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
        return kind(f"Redis at {where} cannot serve now: {said}", node or where)
    if word in _REFUSALS:
        return RedisMisused(f"Redis at {where} refused the credentials; check user and password ({error})")
    if "cluster support disabled" in str(error):
        return RedisMisused(f"Redis at {where} is not a node of a cluster; write its URL as redis:// ({error})")
    return RedisMisused(f"Redis at {where} refused a call: {error}")
