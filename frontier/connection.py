"""The connections to one Redis server: one exchange, a connection, a server with its outages, and a store's only server.

Commands go out in one write, and all their replies come back in one future. redis-py's connections need a future and a
timer per reply, and open with a round trip per command of the handshake: with ten commands, a batch takes 150 us of CPU
time with redis-py's pipeline, and 33 us here.

While a server is away, one call at a time tries it, over a new connection and with a short time limit, and all other calls
fail at once instead of waiting for the limit. A call waits for a connection if all are in use; it fails only if the server
does.

A batch is carried out by the run of the server that its sender names, or not at all: a restarted server, or its successor
behind the same address, may have lost what the sender relies on. So the sender must see the new run ID first.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Any

import hiredis
import msgspec

from frontier.errors import FrontierError, RedisAway, RedisMisused, ReplicasMissing, WritesRefused, WrongType
from frontier.redis_url import Access, Address, RedisUrl
from frontier.scripts import Argument, Reply, packed_words

# The first words of temporary error replies: https://redis.io/docs/latest/develop/reference/protocol-spec/
_LATER = frozenset(
    {"LOADING", "BUSY", "READONLY", "OOM", "MISCONF", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS"}
    | {"MOVED", "ASK", "UNKILLABLE", "NOSCRIPT", "REDIRECT", "INPROG", "NOMASTERLINK"}
)
_NO_WRITES = frozenset({"OOM", "MISCONF", "READONLY", "NOREPLICAS"})
"""Those of a server that still answers reads."""

_OF_VALUE = re.compile(
    r"user_script.*attempt to (perform|compare|concat)|(not an integer|not a valid float).*user_script"
)
"""Errors of a script that has found a value that only somebody else can have written. To call or index nil is its own."""

_REFUSALS = frozenset({"WRONGPASS", "NOAUTH"})

WRONG_SERVER = frozenset({"READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS"})
"""First words of replies that say that the server at the other end is not, or not yet, the one that serves, or that another
may have taken over (NOREPLICAS). Its connections are of no more use: a new one may lead to its successor."""

_NO_CLIENTS = "max number of clients"

_PASSING = (OSError, EOFError, asyncio.IncompleteReadError, hiredis.ProtocolError)
"""Exceptions of a connection. TimeoutError is an OSError."""


def first_word(error: BaseException) -> str:
    """The word at the beginning of an error reply that says what it is about."""
    return str(error).partition(" ")[0].rstrip(":")


def translate(error: BaseException, where: str, node: str = "", key: str = "") -> FrontierError:
    """Translate an error reply, or an exception of the connection, to an error of the frontier: RedisAway for what passes
    by itself, so that the caller tries again, and RedisMisused for what an operator has to remove. `where`: as the server
    is shown in messages; `node`: its name; `key`: the first one of the call. Nothing else translates errors of Redis."""
    if isinstance(error, FrontierError):
        return error
    word = first_word(error)
    is_passing = isinstance(error, _PASSING) and not isinstance(error, ssl.SSLCertVerificationError)
    if is_passing or word in _LATER or _NO_CLIENTS in str(error):
        kind = WritesRefused if word in _NO_WRITES else RedisAway
        said = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
        said = said.partition(" script: ")[0].rstrip(".")  # which of our scripts it was helps nobody
        return kind(f"Redis at {where} cannot serve now: {said}", node or where)
    if word in _REFUSALS:
        return RedisMisused(f"Redis at {where} refused the credentials; check user and password ({error})")
    if word == "NOPERM":
        return RedisMisused(f"Redis at {where} does not permit what the crawler needs; extend its ACL ({error})")
    if "cluster support disabled" in str(error):
        return RedisMisused(f"Redis at {where} is not a node of a cluster; write its URL as redis:// ({error})")
    if word == "WRONGTYPE" or (key and _OF_VALUE.search(str(error))):
        return wrong_type(where, node or where, key, [])
    return RedisMisused(f"Redis at {where} refused a call: {error}")


def wrong_type(where: str, node: str, key: str, names: Sequence[str]) -> WrongType:
    """`names`: of the keys, if they are known. The others as in `translate`."""
    named = ", ".join(names) or f"{key}, or others that belong to it"
    return WrongType(
        f"Redis at {where} has keys of a wrong type or with wrong values, which somebody else has written over: {named}; "
        "stop the crawl and run `crawler repair --evicted`",
        node,
        key,
        bool(names),
    )


LIBRARY_NAME = "peercrawl"


OnEnd = Callable[["Connection", Exception | None], Exception]
"""Called with a connection whose exchange has ended with the error, or is over (None), or that has broken while idle.
Returns the error to be raised."""


class Connection(asyncio.Protocol):
    """A connection that carries one exchange at a time. `run_id`: of the server process at its other end."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._future: asyncio.Future[list[Reply]] | None = None
        self._replies: list[Reply] = []
        self._wanted = 0
        self._on_end: OnEnd | None = None
        self._poll = select.poll()
        self.info: dict[str, str] = {}

    @property
    def run_id(self) -> str:
        return self.info.get("run_id", "")

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to read. An idle connection with something to read was closed by the server, which the
        event loop may not have seen yet: a server with a `timeout` does that after seconds, as during an import."""
        return not self._poll.poll(0)

    def watch(self, on_end: OnEnd) -> None:
        """Report the end of each exchange, and of the connection, to `on_end` from now on."""
        self._on_end = on_end

    def exchange(self, data: bytes, count: int) -> asyncio.Future[list[Reply]]:
        """Send `data`, which are `count` commands. The result of the future are the replies in order, error replies
        included; its exception is what `on_end` makes of an OSError or of the error that `fail` was called with."""
        assert self._transport is not None and self._future is None
        self._future = future = asyncio.get_running_loop().create_future()
        self._wanted = count
        self._transport.write(data)
        return future

    def fail(self, error: Exception) -> None:
        """End the exchange with `error`, and close the connection: replies may still arrive on it."""
        self._end(error)
        self.close()

    def close(self) -> None:
        """Close at once. An exchange that is not over raises ConnectionError."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        wire = transport.get_extra_info("socket")
        self._poll.register(wire.fileno(), select.POLLIN)
        if wire.family != socket.AF_UNIX:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                self._replies.append(reply)
        except hiredis.ProtocolError as error:
            self.fail(error)
            return
        if len(self._replies) < self._wanted or not self._replies:
            return
        if len(self._replies) > self._wanted:  # nobody asked: the server says why it is about to close the connection
            self.fail(ConnectionError(f"unexpected reply: {self._replies[-1]}"))
            return
        future, replies = self._future, self._replies
        self._future, self._replies, self._wanted = None, [], 0
        if self._on_end is not None:
            self._on_end(self, None)
        if future is not None and not future.done():
            future.set_result(replies)

    def connection_lost(self, exc: Exception | None) -> None:
        # A server that refuses a client, as one with too many, says so before it closes the connection.
        said = [reply for reply in self._replies if isinstance(reply, hiredis.ReplyError)]
        self._transport = None
        self._end(said[-1] if said else exc or ConnectionError("the connection was closed"))

    def _end(self, error: Exception) -> None:
        future, self._future, on_end, self._on_end = self._future, None, self._on_end, None
        if on_end is not None:
            error = on_end(self, error)
        if future is not None and not future.done():
            future.set_exception(error)


async def open_connection(address: Address, access: Access, timeout_s: float, is_sentinel: bool = False) -> Connection:
    """Connect and do the handshake. Raises OSError (TimeoutError included), and hiredis.ReplyError if it is refused."""
    loop, password = asyncio.get_running_loop(), await access.current_password()
    async with asyncio.timeout(timeout_s):
        connection: Connection
        if address.port:
            # A race of one would only leak a socket if it is cancelled at the wrong moment, as asyncio's does.
            race_s = None if _is_ip_address(address.host) else 0.25
            _, connection = await loop.create_connection(
                Connection, address.host, address.port, ssl=access.tls, happy_eyeballs_delay=race_s
            )
        else:
            _, connection = await loop.create_unix_connection(Connection, address.host)
        try:
            await _handshake(connection, access, password, is_sentinel)
        except BaseException:
            connection.close()
            raise
    return connection


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _handshake(connection: Connection, access: Access, password: str, is_sentinel: bool) -> None:
    """All in one round trip: who we are, and which server process this is. A user of Sentinels may not ask for INFO."""
    commands: list[tuple[Argument, ...]] = []
    if password or access.username:
        user = (access.username,) if access.username else ()
        commands.append(("AUTH", *user, password))
    if access.database:
        commands.append(("SELECT", access.database))
    if access.client_name:
        commands.append(("CLIENT", "SETNAME", access.client_name))
    commands += [("CLIENT", "SETINFO", "LIB-NAME", LIBRARY_NAME), *([] if is_sentinel else [("INFO",)])]
    replies = await connection.exchange(b"".join(packed_words(*words) for words in commands), len(commands))
    for words, reply in zip(commands, replies, strict=True):
        # Servers before Redis 7.2 do not know SETINFO.
        if isinstance(reply, hiredis.ReplyError) and "SETINFO" not in words:
            raise reply
    if not is_sentinel:
        connection.info.update(fields(replies[-1]))


async def ask(address: Address, access: Access, question: bytes, timeout_s: float) -> Reply:
    """The reply of the server at `address` to one command, over a connection of its own. Raises as `open_connection`."""
    async with asyncio.timeout(timeout_s):
        connection = await open_connection(address, access, timeout_s)
        try:
            (reply,) = await connection.exchange(question, 1)
        finally:
            connection.close()
    if isinstance(reply, hiredis.ReplyError):
        raise reply
    return reply


def fields(info: Any) -> dict[str, str]:
    """The fields of a reply to INFO. Raises RedisMisused if it is not such a reply."""
    if not isinstance(info, bytes):
        raise RedisMisused(f"not a Redis server: it answers INFO with {str(info)[:100]!r}")
    lines = info.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


MOST_CONNECTIONS = 48
"""More than a server that works one call at a time can use, and few enough for a thousand replicas at a limit of 65,536
open files."""

SILENT_S = 1.0
"""A server that has not replied for this long may have a successor, and others can be asked. A reply normally takes
milliseconds."""

LOOK_S = 0.25
"""How often to look whether a server is silent."""

WATCH_S = 0.5
"""How often to look whether another server has taken over. A shard grants no leases for a second after a replica has
noticed that, so all notice it within that time."""

LAGGARD_S = 0.25
"""How long to wait for other Sentinels or nodes after the first answer."""

ACKS_AGAIN_S = 1.0
"""How often a write waits for replicas that have not acknowledged the one before. The wait takes half a second, in which it
may hold up a whole group of pages."""

Find = Callable[[], Awaitable[Address]]
"""Finds out where the server is. Raises RedisAway."""

OnRoundTrip = Callable[[float, bool], None]
"""Called after each round trip with its duration in seconds, and whether it failed."""


class TimeLimits(msgspec.Struct, frozen=True):
    """Seconds: for one round trip, for a new connection, and for one while the server is away (`probe_s`)."""

    reply_s: float = 5.0
    connect_s: float = 5.0
    probe_s: float = 1.0


class RedisServer:
    """The server `name`. `find`: where it is, for each connection; `on_silence`: called while a reply is late."""

    def __init__(
        self,
        name: str,
        find: Find,
        access: Access,
        limits: TimeLimits,
        on_round_trip: OnRoundTrip,
        on_silence: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._find = find
        self._access = access
        self._limits = limits
        self._on_round_trip = on_round_trip
        self._on_silence = on_silence
        self._idle: list[Connection] = []
        self._busy: dict[Connection, float] = {}  # -> when its exchange began
        self._opening: dict[asyncio.Timeout, float] = {}  # -> when it began
        self._look: asyncio.TimerHandle | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._trying = False  # one call tries a server that is away
        self._is_serving = True
        self._trouble: RedisAway | None = None
        self._missing: ReplicasMissing | None = None  # the replicas have not acknowledged the last write that waited
        self._acks_at = 0.0  # when a write may wait for them again
        self._most_replicas = 0  # that this process was seen to have
        self.address: Address | None = None  # of the last connection
        self.run_id = ""  # of the server process that was connected to last, "" before the first connection
        self.version = ""  # of the same process
        self.eviction_policy = ""  # of the same process when it was connected to

    def __repr__(self) -> str:
        return f"<RedisServer {self.name} idle={len(self._idle)} busy={len(self._busy)} away={self.is_away}>"

    @property
    def is_away(self) -> bool:
        return self._trouble is not None

    def begin(self, data: bytes, count: int, run_id: str | None) -> asyncio.Future[list[Reply]]:
        """Send `data`, which are `count` commands, if the server process is still `run_id` (None: whichever it is). The
        result of the future are the replies, error replies included. Its exception, or what is raised at once, is
        RedisAway or RedisMisused."""
        if run_id is not None and run_id != self.run_id:
            raise self._restarted()
        if self._trouble is None and (connection := self._idle_one()) is not None:
            return self._start(connection, data, count)
        return asyncio.ensure_future(self._begin_later(data, count, run_id))

    async def _begin_later(self, data: bytes, count: int, run_id: str | None) -> list[Reply]:
        if self._trouble is None:
            return await self._start(self._check_run(await self._connection(), run_id), data, count)
        if self._trying:
            raise self._still_away()
        self._trying = True
        try:
            return await self._start(self._check_run(await self._open(self._limits.probe_s), run_id), data, count)
        finally:
            self._trying = False

    async def connect(self, timeout_s: float) -> None:
        """Open a connection, and learn the run ID, unless a call tries it already. Raises RedisAway or RedisMisused."""
        if self._trying:
            return
        self._trying = self.is_away
        try:
            self._release(await self._open(timeout_s))
        finally:
            self._trying = False

    def check_replicas(self) -> None:
        """Raises ReplicasMissing if the last write was not acknowledged, but not once in `ACKS_AGAIN_S`, to try again."""
        if self._missing is None:
            return
        now = time.monotonic()
        if now < self._acks_at:
            raise ReplicasMissing(str(self._missing), self.name)
        self._acks_at = now + ACKS_AGAIN_S

    def lacks_replicas(self, message: str) -> ReplicasMissing:
        """Note that too few replicas have acknowledged a write. Returns the error to be raised."""
        self._missing, self._acks_at = ReplicasMissing(message, self.name), time.monotonic() + ACKS_AGAIN_S
        return self._missing

    def has_replicas(self) -> None:
        """Note that the replicas have acknowledged a write."""
        self._missing = None

    def drop(self, error: RedisAway) -> None:
        """The server has answered that it is not the one that serves: close its connections, and take it for away."""
        self._failed(error)

    def replaced(self, why: str) -> None:
        """Another server has taken over, though this one may still take writes. Calls in progress raise RedisAway."""
        error = RedisAway(f"Redis at {self.name} cannot serve now: {why}", self.name)
        self._failed(error)
        for connection in list(self._busy):
            connection.fail(error)

    async def look_for_successor(self) -> None:
        """If the server has fewer replicas than it had, open a new connection: one of them may have been promoted by hand,
        and new connections may lead to it while this server still takes writes. Raises RedisAway."""
        if self.is_away:
            return  # the calls try new connections
        (reply,) = await self.begin(packed_words("INFO", "replication"), 1, None)
        replicas = int(fields(reply).get("connected_slaves", "0"))
        self._most_replicas = max(self._most_replicas, replicas)
        if replicas < self._most_replicas:
            await self.connect(self._limits.probe_s)

    def retire(self) -> None:
        """Keep no more connections. Exchanges may end if they do so soon."""
        self._is_serving = False
        self._close_idle()

    def close(self) -> None:
        self.retire()
        for connection in list(self._busy):
            connection.close()

    # connections

    async def _connection(self) -> Connection:
        while not self._idle and len(self._busy) + len(self._opening) >= MOST_CONNECTIONS:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
            if self._trouble is not None:
                raise self._still_away()
            if not self._is_serving:
                raise self._restarted()
        return self._idle_one() or await self._open(self._limits.connect_s)

    def _idle_one(self) -> Connection | None:
        while self._idle:
            if (connection := self._idle.pop()).is_quiet:
                return connection
            connection.close()
        return None

    async def _open(self, timeout_s: float) -> Connection:
        began = time.monotonic()
        limit = asyncio.timeout(timeout_s)
        self._opening[limit] = began
        self._look_soon()
        try:
            async with limit:
                address = await self._find()
                connection = await open_connection(address, self._access, timeout_s)
            try:
                _check_serving(connection.info)
            except hiredis.ReplyError:
                connection.close()
                raise
        except Exception as error:
            self._on_round_trip(time.monotonic() - began, True)
            raise self._failed(error) from error
        finally:
            del self._opening[limit]
        if connection.run_id != self.run_id:
            if self._busy:  # on connections to the process before, which may still live and take what is lost then
                self.replaced("it was restarted, or another server has taken over")
            self.run_id = connection.run_id
            self._close_idle()
            self._missing, self._most_replicas = None, 0
            if connection.info.get("connected_slaves") == "0":  # as after it has taken over
                self.lacks_replicas(f"no replica of Redis at {self.name} is connected")
        self._trouble, self.address = None, address
        self.version = connection.info.get("redis_version", "0")
        self.eviction_policy = connection.info.get("maxmemory_policy", "")
        connection.watch(self._ended)
        return connection

    def _check_run(self, connection: Connection, run_id: str | None) -> Connection:
        if run_id is not None and run_id != connection.run_id:
            self._release(connection)
            raise self._restarted()
        return connection

    def _start(self, connection: Connection, data: bytes, count: int) -> asyncio.Future[list[Reply]]:
        self._busy[connection] = time.monotonic()
        self._look_soon()
        return connection.exchange(data, count)

    def _look_soon(self) -> None:
        if self._look is None:
            look_s = min(LOOK_S, self._limits.reply_s / 4)
            self._look = asyncio.get_running_loop().call_later(look_s, self._look_at_late_ones)

    def _look_at_late_ones(self) -> None:
        """Decide about what takes long. Called again and again while anything is under way."""
        self._look = None
        if not self._busy and not self._opening:
            return
        now = time.monotonic()
        silent_s = min(SILENT_S, self._limits.reply_s)
        if now - min((*self._busy.values(), *self._opening.values())) >= silent_s:
            self._on_silence()
        limit_s = self._limits.reply_s if self._is_serving else silent_s
        for connection, began in list(self._busy.items()):
            if now - began >= limit_s:
                connection.fail(TimeoutError(f"no reply within {now - began:.1f} s"))
        for limit, began in self._opening.items():
            if not self._is_serving and now - began >= silent_s:
                limit.reschedule(asyncio.get_running_loop().time())
        self._look_soon()

    def _ended(self, connection: Connection, error: Exception | None) -> Exception:
        began = self._busy.pop(connection, None)
        if began is None:
            if connection in self._idle:
                self._idle.remove(connection)
            return error or ConnectionError()
        if error is None:
            self._trouble = None
            self._release(connection)
        else:
            error = self._failed(error)
        self._on_round_trip(time.monotonic() - began, error is not None)
        return error or ConnectionError()

    def _release(self, connection: Connection) -> None:
        if connection.run_id != self.run_id or not self._is_serving:
            connection.close()
        else:
            self._idle.append(connection)
        self._wake(1)

    def _wake(self, number: int) -> None:
        while self._waiting and number:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                number -= 1

    def _failed(self, error: Exception) -> FrontierError:
        """Note that the server is away, unless it refuses us. Returns the error to be raised."""
        translated = translate(error, self.name)
        if isinstance(translated, RedisAway):
            self._trouble = translated
            self._close_idle()
            self._on_silence()
        self._wake(len(self._waiting))
        return translated

    def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _still_away(self) -> RedisAway:
        return RedisAway(str(self._trouble), self.name)

    def _restarted(self) -> RedisAway:
        return RedisAway(f"Redis at {self.name} was restarted", self.name)


def _check_serving(info: dict[str, str]) -> None:
    """Raises ReplyError if the server is a replica, which could show an older state, or still loads its data."""
    if info.get("role", "master") != "master":
        raise hiredis.ReplyError("READONLY it is a replica of another server")
    if info.get("loading", "0") != "0":
        raise hiredis.ReplyError("LOADING it is loading its data")


class Servers:
    """The single server of a store, at a fixed address or named by Sentinels. `where`: as shown. `Cluster` has several."""

    def __init__(self, url: RedisUrl, limits: TimeLimits, where: str, on_round_trip: OnRoundTrip) -> None:
        self.url = url
        self.limits = limits
        self.where = where
        self.on_round_trip = on_round_trip
        self.members: dict[Address, RedisServer] = {}
        """All servers that serve keys."""
        self._sentinels = Sentinels(url, limits.probe_s, where) if url.kind == "sentinel" else None
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect. Raises RedisAway or RedisMisused."""
        address = self.url.hosts[0]
        find = self._sentinels.find_master if self._sentinels else partial(_fixed, address)
        self.members[address] = server = RedisServer(self.where, find, self.url.access, self.limits, self.on_round_trip)
        await server.connect(self.limits.connect_s)
        if address.port:  # nobody takes over at a Unix socket
            self._watching = asyncio.create_task(self._watch(server))

    async def _watch(self, server: RedisServer) -> None:
        """Notice when another server has taken over while this one still answers, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            with contextlib.suppress(FrontierError):  # whoever needs the server reports it
                if self._sentinels is None:
                    await server.look_for_successor()
                elif (master := await self._sentinels.find_master()) != server.address and not server.is_away:
                    server.replaced(f"the master is {master.name} now")

    def server_of(self, key: str) -> RedisServer:
        """The server that carries out calls with `key`; "": that tells the time. Raises RedisAway if there is none."""
        return next(iter(self.members.values()))

    def runs(self) -> Hashable:
        """What changes whenever another server, or another process of it, serves a key."""
        return self.server_of("").run_id

    def keep_time_by(self, key: str) -> None:
        """Take the time from the server of `key`."""

    def refresh_soon(self) -> None:
        """Find out again who serves which key."""

    async def follow(self, error: str, server: RedisServer) -> RedisServer:
        """The server that a MOVED or ASK reply of `server` names. Raises RedisAway."""
        raise RedisMisused(
            f"Redis at {server.name} is a node of a cluster; write its URL as redis+cluster:// ({error})"
        )

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._sentinels is not None:
            self._sentinels.close()
        for server in self.members.values():
            server.close()


async def _fixed(address: Address) -> Address:
    return address


class Sentinels:
    """The Sentinels in `url`, over connections that stay open. `timeout_s`: for the answer of one."""

    def __init__(self, url: RedisUrl, timeout_s: float, where: str) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._where = where
        self._idle: dict[Address, Connection] = {}

    async def find_master(self) -> Address:
        """The address of the master now (Redis documentation, "Sentinel client spec"). All are asked at once, so that one
        that hangs holds nothing up for long. If they disagree, the one with the latest configuration is right: others have
        not heard of a failover yet, and the old master may still live.

        Raises RedisAway if no Sentinel answers, and RedisMisused if none that answers knows the name.
        """
        error: FrontierError = RedisAway(f"no Sentinel of {self._where} answers", self._where)
        asking = {asyncio.create_task(self._ask(host)) for host in self._url.hosts}
        pending, answers = asking, list[tuple[int, Address]]()
        try:
            while pending:
                wait_s = LAGGARD_S if answers else None
                done, pending = await asyncio.wait(pending, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
                for task in done:
                    try:
                        answers.append(task.result())
                    except FrontierError as failed:
                        error = failed
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        if not answers:
            raise error
        return max(answers)[1]

    async def _ask(self, host: Address) -> tuple[int, Address]:
        """What one says: the epoch of its configuration, and the master."""
        name, connection = self._url.master, self._idle.pop(host, None)
        questions = packed_words("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name) + packed_words("SENTINEL", "MASTER", name)
        try:
            async with asyncio.timeout(self._timeout_s):
                if connection is None or not connection.is_open:
                    access = self._url.sentinel_access
                    connection = await open_connection(host, access, self._timeout_s, is_sentinel=True)
                address, state = await connection.exchange(questions, 2)
        except BaseException as error:
            if connection is not None:
                connection.close()  # a reply may still arrive
            if isinstance(error, (OSError, hiredis.HiredisError)):
                raise translate(error, host.name, self._where) from error
            raise
        if host in self._idle:
            connection.close()
        else:
            self._idle[host] = connection
        if isinstance(address, hiredis.ReplyError):
            raise translate(address, host.name, self._where)
        if address is None:
            raise RedisMisused(f"the Sentinel at {host.name} knows no master {name!r}")
        known = {} if isinstance(state, hiredis.ReplyError) else dict(zip(state[::2], state[1::2], strict=True))
        return int(known.get(b"config-epoch", 0)), self._url.reach(Address(address[0].decode(), int(address[1])))

    def close(self) -> None:
        for connection in self._idle.values():
            connection.close()
