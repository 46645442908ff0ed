"""Whatever a server answers, and whatever happens to a connection, becomes an error of the frontier."""

from __future__ import annotations

import asyncio
import ssl

import hiredis
import pytest

from frontier.connection import translate
from frontier.errors import FrontierError, RedisAway, RedisMisused, WritesRefused


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (hiredis.ReplyError("READONLY You can't write against a read only replica."), WritesRefused),
        (hiredis.ReplyError("CLUSTERDOWN Hash slot not served"), RedisAway),
        (hiredis.ReplyError("MOVED 3999 127.0.0.1:6381"), RedisAway),
        (hiredis.ReplyError("TRYAGAIN Multiple keys request during rehashing of slot"), RedisAway),
        (hiredis.ReplyError("ERR max number of clients reached"), RedisAway),
        (hiredis.ReplyError("BUSY Redis is busy running a script."), RedisAway),
        (hiredis.ReplyError("WRONGPASS invalid username-password pair"), RedisMisused),
        (hiredis.ReplyError("WRONGTYPE Operation against a key"), RedisMisused),
        (hiredis.ReplyError("ERR unknown command"), RedisMisused),
        (hiredis.ProtocolError("Protocol error, got 'H'"), RedisAway),
        (ConnectionRefusedError(111, "refused"), RedisAway),
        (TimeoutError(), RedisAway),
        (ConnectionResetError(104, "reset by peer"), RedisAway),
        (EOFError(), RedisAway),
        (asyncio.IncompleteReadError(b"", 5), RedisAway),
        (OSError(113, "no route to host"), RedisAway),
        (ssl.SSLEOFError("EOF occurred in violation of protocol"), RedisAway),
        (hiredis.ReplyError("LOADING Redis is loading the dataset in memory"), RedisAway),
        (hiredis.ReplyError("MASTERDOWN Link with MASTER is down"), RedisAway),
        (hiredis.ReplyError("ASK 3999 127.0.0.1:6381"), RedisAway),
        (hiredis.ReplyError("NOSCRIPT No matching script."), RedisAway),
        (hiredis.ReplyError("NOREPLICAS Not enough good replicas to write."), WritesRefused),
        (hiredis.ReplyError("OOM command not allowed when used memory > 'maxmemory'."), WritesRefused),
        (hiredis.ReplyError("NOAUTH Authentication required."), RedisMisused),
        (hiredis.ReplyError("NOPERM this user has no permissions"), RedisMisused),
        (hiredis.ReplyError("CROSSSLOT Keys in request don't hash to the same slot"), RedisMisused),
        (ssl.SSLCertVerificationError("self-signed certificate"), RedisMisused),
    ],
)
def test_what_passes_by_itself_is_away(error: Exception, meaning: type[FrontierError]) -> None:
    translated = translate(error, "redis://host", "node")
    assert type(translated) is meaning
    if isinstance(translated, RedisAway):
        assert translated.node == "node"


def test_an_error_without_a_text_says_what_happened() -> None:
    assert str(translate(TimeoutError(), "a:1")) == "Redis at a:1 cannot serve now: no answer in time"
    assert str(translate(ConnectionResetError(), "a:1")) == "Redis at a:1 cannot serve now: ConnectionResetError"
