"""The interface to Redis: connects, sends calls in one round trip, and translates errors. No other module imports redis.

A *call* is a command or a script with its arguments. `Store.send` writes a batch of calls and reads their replies in
order. Scripts are sent as EVALSHA, and are loaded if the server does not know them (a server forgets its scripts in a
restart or failover). All transitions may be repeated, so a batch that raised `RedisAway` may be sent again as a whole:
some of it may have been executed, but nothing takes effect twice.

The table `_LATER` lists the errors that are temporary. All others are permanent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakKeyDictionary

import msgspec
import redis
import redis.asyncio as aioredis
from hiredis import pack_command
from redis import exceptions as rx
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from frontier.errors import BadInput, FrontierError, RedisAway, RedisMisused
from frontier.scripts import Script

Argument = bytes | str | int | float
Reply = Any
"""A reply of Redis: bytes, int, None, or lists of these."""

OLDEST_SERVER = (7, 0)
"""The oldest Redis version that is tested. For compatibility, Valkey reports 7.2.4 or later."""

_SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster")

# The first words of temporary error replies: https://redis.io/docs/latest/develop/reference/protocol-spec/
_LATER = frozenset(
    {"LOADING", "BUSY", "READONLY", "OOM", "MISCONF", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS"}
    | {"MOVED", "ASK", "UNKILLABLE"}
)

_REFUSED = (rx.AuthenticationError, rx.AuthorizationError, rx.NoPermissionError)
_REFUSALS = frozenset({"WRONGPASS", "NOAUTH", "NOPERM"})


class Call(msgspec.Struct, frozen=True):
    """One command of a batch. If `script` is set, it is called with `keys` and `arguments`; otherwise `arguments` are
    the command."""

    arguments: Sequence[Argument]
    keys: Sequence[str] = ()
    script: Script | None = None


def command(*words: Argument) -> Call:
    """A plain command, such as ``command("ZCARD", keys.due)``. Its second word must be its key."""
    return Call(words)


def run(script: Script, keys: Sequence[str], *arguments: Argument) -> Call:
    """A script call."""
    return Call(arguments, keys, script)


class Store(Protocol):
    """The operations of Redis that the frontier needs."""

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        """The replies to `calls`, in order. Raises RedisAway or RedisMisused; see the module's docstring."""

    async def send_each(self, calls: Sequence[Call]) -> list[Reply | RedisAway]:
        """Like `send`, but each node is on its own: a call whose node cannot serve has its RedisAway in its place. Raises
        RedisMisused."""

    def node_of(self, key: str) -> str:
        """The name of the node that serves `key`, by what is known now: its host and port, or what a single server is shown
        as."""

    def is_away(self, node: str) -> bool:
        """Whether the last round trip to `node` failed. A node that has not been asked is not away."""

    def run_of(self, key: str) -> str:
        """The run ID of the server process that serves `key`, "" before the first connection to it. It changes with each
        restart, failover and slot move. A batch is carried out by the run that was named when it was sent, or raises
        RedisAway."""

    def keep_time_by(self, key: str) -> None:
        """Take the time from the node that serves `key`."""

    async def time_ms(self) -> float:
        """The clock of the node in `keep_time_by`, in milliseconds since 1970."""

    async def close(self) -> None:
        """Close all connections."""


Words = tuple[Argument, ...]
RoundTrip = Callable[[Sequence[Words], str], Awaitable[list[Reply]]]
"""Sends commands to the run that is expected, and returns their replies in order. Error replies are returned;
connection errors are raised."""


class RunIds:
    """The run ID of the server process at the other end of each connection."""

    def __init__(self) -> None:
        self._by_connection: WeakKeyDictionary[AbstractConnection, str] = WeakKeyDictionary()

    async def connected(self, connection: AbstractConnection) -> None:
        """Prepare a new connection, and ask for its server's run ID."""
        await connection.on_connect()
        await connection.send_command("INFO", "server")
        reply = await connection.read_response()
        self._by_connection[connection] = _fields(reply)["run_id"]

    def of(self, connection: AbstractConnection) -> str:
        return self._by_connection.get(connection, "")


class RedisStore:
    """A `Store` on a single Redis or Valkey server, or on a Redis Cluster."""

    def __init__(self, client: aioredis.Redis | RedisCluster, runs: RunIds, where: str, timeout_s: float) -> None:
        self._client = client
        self._runs = runs
        self._where = where
        self._timeout_s = timeout_s
        self._is_away = False
        self._run_id = ""  # of the server process that was connected to last
        cluster = isinstance(client, RedisCluster)
        self._exchange: RoundTrip = self._through_cluster if cluster else self._through_connection
        self.round_trips = 0
        self._watchers: list[Callable[[float, bool], None]] = []

    def watch_round_trips(self, watcher: Callable[[float, bool], None]) -> None:
        """Call `watcher` after each round trip, with its duration in seconds and whether it failed."""
        self._watchers.append(watcher)

    def __repr__(self) -> str:
        return f"<RedisStore {self._where} round_trips={self.round_trips}>"

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        # Shielded against cancellation. A connection with unread replies must be closed, and a script that was sent takes
        # effect even if its caller no longer waits.
        sending = asyncio.ensure_future(self._send(calls, self._run_id))
        sending.add_done_callback(_retrieve_error)
        return await asyncio.shield(sending)

    async def send_each(self, calls: Sequence[Call]) -> list[Reply | RedisAway]:
        try:
            return await self.send(calls)
        except RedisAway as away:
            return [away] * len(calls)

    def node_of(self, key: str) -> str:
        return self._where

    def is_away(self, node: str) -> bool:
        return self._is_away

    def run_of(self, key: str) -> str:
        return self._run_id

    def keep_time_by(self, key: str) -> None:
        """There is only one clock."""

    async def _send(self, calls: Sequence[Call], expected_run: str) -> list[Reply]:
        replies = await self._round_trip([_words(call) for call in calls], expected_run)
        unknown = [at for at, reply in enumerate(replies) if isinstance(reply, rx.NoScriptError)]
        if unknown:
            again = await self._round_trip([_words(calls[at], by_source=True) for at in unknown], expected_run)
            for at, reply in zip(unknown, again, strict=True):
                replies[at] = reply
        for reply in replies:
            if isinstance(reply, Exception):
                raise translate(reply, self._where) from reply
        return replies

    async def _round_trip(self, commands: Sequence[Words], expected_run: str) -> list[Reply]:
        self.round_trips += 1
        began, failed = time.monotonic(), True
        try:
            async with asyncio.timeout(self._timeout_s):
                replies = await self._exchange(commands, expected_run)
        except (rx.RedisError, OSError, TimeoutError) as error:
            raise translate(error, self._where) from error
        else:
            failed = False
            return replies
        finally:
            self._is_away = failed
            for watcher in self._watchers:
                watcher(time.monotonic() - began, failed)

    async def _through_connection(self, commands: Sequence[Words], expected_run: str) -> list[Reply]:
        """Write all commands and read all replies on one connection of redis-py's pool.

        redis-py's own pipeline takes several times the CPU time, mostly for a timer per command and for callbacks that are
        not needed here. Raises RedisAway if the server has been restarted since `expected_run`: it may have lost what its
        caller relies on, so the caller must see the new run first.
        """
        assert isinstance(self._client, aioredis.Redis)
        pool = self._client.connection_pool
        connection: AbstractConnection = await pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            self._run_id = run_id = self._runs.of(connection)
            if expected_run and run_id != expected_run:
                raise RedisAway(f"Redis at {self._where} was restarted", self._where)
            await connection.send_packed_command(b"".join(map(_packed, commands)), check_health=False)
            replies = [await _reply(connection) for _ in commands]
        except RedisAway:
            raise
        except BaseException:
            # Replies may still arrive, and the next caller must not take them for its own.
            await connection.disconnect(nowait=True)
            raise
        finally:
            await pool.release(connection)
        return replies

    async def _through_cluster(self, commands: Sequence[Words], expected_run: str) -> list[Reply]:
        assert isinstance(self._client, RedisCluster)
        if (len(commands) == 1 and len(commands[0]) < 2) or commands[0][0] in ("INFO", "CONFIG"):
            return [await self._client.execute_command(*words, target_nodes="random") for words in commands]
        pipeline = self._client.pipeline()
        for words in commands:
            pipeline.execute_command(*words)
        return list(await pipeline.execute(raise_on_error=False))

    async def time_ms(self) -> float:
        (reply,) = await self.send([Call(("TIME",))])
        seconds, microseconds = reply
        return int(seconds) * 1000 + int(microseconds) / 1000

    async def info(self, section: str) -> dict[str, str]:
        """A section of the server's INFO, or of one node of a cluster. Raises RedisAway."""
        (reply,) = await self.send([Call(("INFO", section))])
        if isinstance(reply, dict):
            return {str(name): str(value) for name, value in reply.items()}
        return _fields(reply)

    async def setting(self, name: str) -> str | None:
        """The server's setting `name`, or that of one node of a cluster. None if there is no such setting, or if this
        user may not read it. Raises RedisAway."""
        try:
            (reply,) = await self.send([Call(("CONFIG", "GET", name))])
        except RedisMisused:
            return None
        return pairs(reply).get(name)

    async def close(self) -> None:
        await self._client.aclose()


def _fields(info: bytes) -> dict[str, str]:
    """The fields of a reply to INFO."""
    lines = info.decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _retrieve_error(sending: asyncio.Future[list[Reply]]) -> None:
    """Retrieve the exception of `sending`. Its caller may be gone, and asyncio would log it as never retrieved."""
    if not sending.cancelled():
        sending.exception()


_packed: Callable[[Words], bytes] = pack_command  # type: ignore[assignment]  # annotated as a tuple of one


async def _reply(connection: AbstractConnection) -> Reply:
    try:
        return await connection.read_response()
    except rx.ResponseError as error:
        return error


def _words(call: Call, by_source: bool = False) -> Words:
    if call.script is None:
        return tuple(call.arguments)
    if by_source:
        return ("EVAL", call.script.source, len(call.keys), *call.keys, *call.arguments)
    return ("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.arguments)


def translate(error: BaseException, where: str) -> FrontierError:
    """Translate an exception of redis-py, or an error reply, to an error of the frontier."""
    words = str(error).split()
    first = words[0] if words else ""
    if isinstance(error, _REFUSED) or isinstance(error.__context__, _REFUSED) or first in _REFUSALS:
        return RedisMisused(f"Redis at {where} refused the credentials; check user and password ({error})")
    away = (rx.ConnectionError, rx.TimeoutError, rx.BusyLoadingError, rx.ReadOnlyError, rx.OutOfMemoryError)
    cluster = (rx.ClusterError, rx.ClusterDownError, rx.TryAgainError, rx.MasterDownError)
    if isinstance(error, (*away, *cluster, OSError, TimeoutError)) or first.rstrip(":") in _LATER:
        return RedisAway(f"Redis at {where} cannot serve now: {error or type(error).__name__}", where)
    return RedisMisused(f"Redis at {where} refused a call: {error}")


async def connect(url: str, timeout_s: float = 5.0) -> RedisStore:
    """Connect to `url` and check the version of the server.

    `url` is ``redis://``, ``rediss://`` or ``unix://`` as redis-py takes them, or ``redis+cluster://`` and
    ``rediss+cluster://`` for a Redis Cluster. `timeout_s` bounds connecting and each reply.
    Raises BadInput for an invalid URL, RedisAway if the server does not respond, and RedisMisused if it is too old or
    refuses the credentials.
    """
    runs = RunIds()
    store = RedisStore(_client(url, runs, timeout_s), runs, display_url(url), timeout_s)
    try:
        _check_version((await store.info("server")).get("redis_version", "0"), display_url(url))
    except BaseException:
        await store.close()
        raise
    return store


def _client(url: str, runs: RunIds, timeout_s: float) -> aioredis.Redis | RedisCluster:
    # redis-py must not retry by itself, because readiness and metrics would not see the outage.
    options: dict[str, Any] = {
        "socket_timeout": None,  # RedisStore has one timer per round trip instead of one per reply
        "socket_connect_timeout": timeout_s,
        "protocol": 2,  # replies have the same form on all servers
        "retry": Retry(NoBackoff(), 0),
        **_driver(),
    }
    check_url(url)
    try:
        if url.partition("://")[0].endswith("+cluster"):
            return RedisCluster.from_url(url.replace("+cluster", "", 1), **options)
        client = aioredis.Redis.from_url(url, **options, redis_connect_func=runs.connected)
        client.connection_pool.make_connection()  # type: ignore[no-untyped-call]  # does not connect, but checks the options
    except (TypeError, ValueError) as error:
        raise BadInput(f"Redis URL {display_url(url)}: {error}") from error
    return client


def _driver() -> dict[str, Any]:
    """The library name and version that connections report to the server. Unless given, redis-py 7.2 and later reads its
    package metadata for each connection, and workers that start at once wait for that."""
    driver_info = getattr(redis, "DriverInfo", None)
    return {"driver_info": driver_info()} if driver_info is not None else {}


def _check_version(version: str, where: str) -> None:
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_SERVER:
        oldest = ".".join(map(str, OLDEST_SERVER))
        raise RedisMisused(f"Redis at {where} is version {version}; use Redis {oldest} or later, or Valkey")


def check_url(url: str) -> str:
    """Returns `url` if it is a Redis URL, and raises BadInput otherwise. The message does not repeat the URL, because any
    part of it may be the password."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, strict_parsing=True) if parts.query else []
        database = dict(query).get("db", parts.path.removeprefix("/")) if parts.scheme != "unix" else ""
        known = parts.path if parts.scheme == "unix" else parts.hostname and parts.scheme in _SCHEMES
        if known and parts.port != 0 and not parts.fragment and (database.isdecimal() or not database):
            return url
    except ValueError:
        pass
    raise BadInput(
        "the Redis URL cannot be used; write it as redis://USER:PASSWORD@HOST:PORT/DATABASE, rediss:// (TLS), "
        "redis+cluster:// or unix:///SOCKET, with special characters of user and password %-encoded"
    )


def display_url(url: str) -> str:
    """`url` for messages and pages: rebuilt from its scheme, host, port, and path (the database or socket of Redis).
    All other parts may contain a password or a token."""
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "(malformed URL)"
    if not parts.scheme:
        return url
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{parts.scheme}://{host}{port}{parts.path}"


def pairs(reply: Reply) -> dict[str, str]:
    """Convert a reply of field, value, field, value ... to a dict of strings. For some commands, the client for a cluster
    has made a dict of it."""
    flat = chain.from_iterable(reply.items()) if isinstance(reply, dict) else reply
    items = [item.decode() if isinstance(item, bytes) else str(item) for item in flat]
    return dict(zip(items[::2], items[1::2], strict=True))
