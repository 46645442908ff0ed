"""One connection to a Redis server: commands go out in one write, and all their replies come back in one future.

redis-py's connections are not used. They need a future and a timer per reply, and open with a round trip per command of the
handshake.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import hiredis

from frontier.calls import Argument, Reply, packed_words
from frontier.errors import RedisMisused
from frontier.redis_url import Access, Address

LIBRARY_NAME = "peercrawl"


OnEnd = Callable[["Connection", Exception | None], Exception]
"""Called with a connection whose exchange has ended with the error, or is over (None), or that has broken while idle.
Returns the error to be raised."""


class NotServing(Exception):
    """Raised when a server can be reached but is not, or not yet, one that serves. The message says why."""


class Connection(asyncio.Protocol):
    """A connection that carries one exchange at a time. `run_id`: of the server process at its other end."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._future: asyncio.Future[list[Reply]] | None = None
        self._replies: list[Reply] = []
        self._wanted = 0
        self._on_end: OnEnd | None = None
        self.info: dict[str, str] = {}

    @property
    def run_id(self) -> str:
        return self.info.get("run_id", "")

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
        if wire is not None and wire.family != socket.AF_UNIX:
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


async def open_connection(address: Address, access: Access, timeout_s: float) -> Connection:
    """Connect to `address` and make the connection ready for commands. Raises OSError (TimeoutError included), and
    hiredis.ReplyError if the server refuses a command of the handshake."""
    loop = asyncio.get_running_loop()
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
            await _shake_hands(connection, access)
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


async def _shake_hands(connection: Connection, access: Access) -> None:
    """All in one round trip: who we are, and which server process this is."""
    commands: list[tuple[Argument, ...]] = []
    if access.password or access.username:
        user = (access.username,) if access.username else ()
        commands.append(("AUTH", *user, access.password))
    if access.database:
        commands.append(("SELECT", access.database))
    if access.client_name:
        commands.append(("CLIENT", "SETNAME", access.client_name))
    commands += [("CLIENT", "SETINFO", "LIB-NAME", LIBRARY_NAME), ("INFO",)]
    replies = await connection.exchange(b"".join(packed_words(*words) for words in commands), len(commands))
    for words, reply in zip(commands, replies, strict=True):
        # Servers before Redis 7.2 do not know SETINFO.
        if isinstance(reply, hiredis.ReplyError) and "SETINFO" not in words:
            raise reply
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


def check_serving(info: dict[str, str]) -> None:
    """Raises NotServing if the server with this INFO does not carry out calls: it is another server's replica, which could
    only show an older state, or still loads its data."""
    if info.get("role", "master") != "master":
        raise NotServing("READONLY it is a replica of another server")
    if info.get("loading", "0") != "0":
        raise NotServing("LOADING it is loading its data")


def fields(info: Any) -> dict[str, str]:
    """The fields of a reply to INFO. Raises RedisMisused if it is not such a reply."""
    if not isinstance(info, bytes):
        raise RedisMisused(f"not a Redis server: it answers INFO with {str(info)[:100]!r}")
    lines = info.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
