"""Every error that redis-py or a server can raise becomes an error of the frontier."""

from __future__ import annotations

import inspect
import ssl

import hiredis
import pytest
from redis import exceptions

from frontier.errors import FrontierError, RedisAway, RedisMisused
from frontier.redis_errors import translate

CLASSES = [one for _, one in inspect.getmembers(exceptions, inspect.isclass) if issubclass(one, Exception)]

MISUSED = {
    *("AuthenticationError", "AuthorizationError", "AuthenticationWrongNumberOfArgsError", "NoPermissionError"),
    *("ExternalAuthProviderError", "ClusterCrossSlotError", "CrossSlotTransactionError", "DataError", "ExecAbortError"),
    *("InvalidPipelineStack", "LockError", "LockNotOwnedError", "ModuleError", "NoSuchFieldsetError", "PubSubError"),
    *("RedisError", "ResponseError", "WatchError", "ChildDeadlockedError", "IncorrectPolicyType"),
}
AWAY = {
    *(
        "ConnectionError",
        "TimeoutError",
        "BusyLoadingError",
        "MaxConnectionsError",
        "ReadOnlyError",
        "OutOfMemoryError",
    ),
    *(
        "ClusterError",
        "ClusterDownError",
        "MasterDownError",
        "TryAgainError",
        "AskError",
        "MovedError",
        "NoScriptError",
    ),
    *("RedisClusterException", "SlotNotCoveredError", "InvalidResponse"),
}


def made(kind: type[Exception]) -> Exception:
    """An instance of `kind`, with a message in the form that it parses."""
    return kind("3999 127.0.0.1:6381") if issubclass(kind, exceptions.AskError) else kind("something")


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_exception_of_redis_py_is_translated(kind: type[Exception]) -> None:
    translated = translate(made(kind), "redis://host")
    assert isinstance(translated, (RedisAway, RedisMisused))
    if kind.__name__ in MISUSED | AWAY:
        assert isinstance(translated, RedisAway) == (kind.__name__ in AWAY)


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (hiredis.ReplyError("READONLY You can't write against a read only replica."), RedisAway),
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
        (ssl.SSLCertVerificationError("self-signed certificate"), RedisMisused),
    ],
)
def test_what_passes_by_itself_is_away(error: Exception, meaning: type[FrontierError]) -> None:
    translated = translate(error, "redis://host", "node")
    assert type(translated) is meaning
    if isinstance(translated, RedisAway):
        assert translated.node == "node"
