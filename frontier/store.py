"""The interface to Redis: sends calls in one round trip to each node that they concern, and translates errors.

`Store.send` writes a batch of calls and reads their replies in order. Scripts are sent as EVALSHA, and by their source if
the server does not know them (a server forgets its scripts in a restart or failover). All transitions may be repeated, so
a batch that raised `RedisAway` may be sent again as a whole: some of it may have been executed, but nothing takes effect
twice.

`redis_server` holds the connections to one server, `cluster` and `servers` find the server of a key, and `redis_errors`
says which errors are temporary.

Sends many calls in parts. While the caller processes the replies to one part, the server works on the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Protocol

from frontier.cluster import UNSERVED, Batch, Cluster, NodeFacts, Redirects, Servers, SingleServer, acks_of, exchange
from frontier.connection import RedisServer, TimeLimits, fields
from frontier.errors import FrontierError, RedisAway, RedisMisused
from frontier.redis_url import RedisUrl, display_url, read_url
from frontier.scripts import Call, Reply, packed

Send = Callable[[Sequence[Call]], Awaitable[list[Reply]]]
"""`Store.send` or `Store.send_each`."""


async def send_in_parts(send: Send, parts: Iterable[Sequence[Call]], look: Callable[[list[Reply]], None]) -> None:
    """Call `look` with the replies to each of `parts`, in order. At most two parts are in flight. `send`: of a store.

    Raises as `send` does. When it returns or raises, no part is in flight. An asynchronous generator could not
    guarantee this to a caller that is cancelled.
    """
    asked: deque[asyncio.Future[list[Reply]]] = deque()
    try:
        for calls in parts:
            asked.append(asyncio.ensure_future(send(calls)))
            if len(asked) > 1:
                look(await asked.popleft())
        while asked:
            look(await asked.popleft())
    finally:
        for part in asked:
            part.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


OLDEST_SERVER = (7, 0)
"""The oldest Redis version that is tested. For compatibility, Valkey reports 7.2.4 or later."""


class Store(Protocol):
    """The operations of Redis that the frontier needs."""

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        """The replies to `calls`, in order. Raises RedisAway or RedisMisused; see the module's docstring."""

    async def send_each(self, calls: Sequence[Call]) -> list[Reply | RedisAway]:
        """Like `send`, but each node is on its own: a call whose node cannot serve has its RedisAway in its place. Raises
        RedisMisused."""

    def node_of(self, key: str) -> str:
        """The name of the node that serves `key`, by what is known now: its host and port, or what a single server is shown
        as. `UNSERVED` if no node serves it."""

    def is_away(self, node: str) -> bool:
        """Whether the last round trip to `node` failed. A node that was not asked is not away; `UNSERVED` always is."""

    def run_of(self, key: str) -> str:
        """The run ID of the server process that serves `key`, "" before the first connection to it. It changes with each
        restart, failover and slot move. A batch is carried out by the run that was named when it was sent, or raises
        RedisAway; only while a slot moves, the next owner may carry it out, which has everything the last one had."""

    def runs(self) -> Hashable:
        """What changes whenever `run_of` changes for any key. It takes no time that depends on the number of keys."""

    def keep_time_by(self, key: str) -> None:
        """Take the time from the node that serves `key`."""

    async def time_ms(self) -> float:
        """The clock of the node in `keep_time_by`, in milliseconds since 1970."""

    async def close(self) -> None:
        """Close all connections."""


class RedisStore:
    """A `Store` on a single Redis or Valkey server, or on a Redis Cluster."""

    def __init__(self, read: RedisUrl, limits: TimeLimits, where: str) -> None:
        self._where = where
        self._timeout_s = limits.reply_s
        self._servers: Servers
        if read.kind == "cluster":
            self._servers = Cluster(read, limits, self._where, self._round_trip_ended)
        else:
            self._servers = SingleServer(read, limits, self._where, self._round_trip_ended)
        self._is_cluster = read.kind == "cluster"
        self.round_trips = 0
        self._watchers: list[Callable[[float, bool], None]] = []

    async def start(self) -> None:
        """Connect, and check the versions of the servers. Raises RedisAway or RedisMisused."""
        await self._servers.start()
        for server in self._servers.members:
            if server.version:
                _check_version(server.version, self._where)

    def watch_round_trips(self, watcher: Callable[[float, bool], None]) -> None:
        """Call `watcher` after each round trip, with its duration in seconds and whether it failed."""
        self._watchers.append(watcher)

    def unwatch_round_trips(self, watcher: Callable[[float, bool], None]) -> None:
        """Call `watcher` no more."""
        self._watchers.remove(watcher)

    def _round_trip_ended(self, seconds: float, failed: bool) -> None:
        self.round_trips += 1
        for watcher in self._watchers:
            watcher(seconds, failed)

    def __repr__(self) -> str:
        return f"<RedisStore {self._where} round_trips={self.round_trips}>"

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        replies = await self._shielded(calls)
        for reply in replies:
            if isinstance(reply, FrontierError):
                raise reply
        return replies

    async def send_each(self, calls: Sequence[Call]) -> list[Reply | RedisAway]:
        replies = await self._shielded(calls)
        for reply in replies:
            if isinstance(reply, RedisMisused):
                raise reply
        return replies

    async def _shielded(self, calls: Sequence[Call]) -> list[Reply | FrontierError]:
        """Send `calls`, whether or not the caller is cancelled: a script that was sent takes effect even if its caller no
        longer waits, and a connection with unread replies would have to be closed."""
        if not calls:
            return []
        batches, replies = self._divided(calls)
        sending = asyncio.ensure_future(self._delivered(calls, batches, replies))
        sending.add_done_callback(_retrieve_error)
        return await asyncio.shield(sending)

    def _divided(self, calls: Sequence[Call]) -> tuple[list[Batch], list[Reply | FrontierError]]:
        """`calls` by the node that carries them out, each with the run that it has now. Also returns the list for the
        replies, which has the errors of those calls that no node serves."""
        replies: list[Reply | FrontierError] = [None] * len(calls)
        if not self._is_cluster:
            server = self._servers.server_of("")
            return [Batch(server, server.run_id, range(len(calls)), packed(calls), acks_of(calls))], replies
        places: dict[RedisServer, list[int]] = {}
        server_of = self._servers.server_of
        for at, call in enumerate(calls):
            try:
                server = server_of(call.key)
            except RedisAway as away:
                replies[at] = away
                continue
            if server in places:
                places[server].append(at)
            else:
                places[server] = [at]
        batches = []
        for server, mine in places.items():
            part = calls if len(mine) == len(calls) else [calls[at] for at in mine]
            batches.append(Batch(server, server.run_id, mine, packed(part, guarded=True), acks_of(part)))
        return batches, replies

    async def _delivered(
        self, calls: Sequence[Call], batches: Sequence[Batch], replies: list[Reply | FrontierError]
    ) -> list[Reply | FrontierError]:
        refused = await exchange(batches, replies)
        if refused:
            await Redirects(self._servers, self._is_cluster, self._timeout_s).resolve(calls, replies, refused)
        return replies

    def node_of(self, key: str) -> str:
        try:
            return self._servers.server_of(key).name
        except RedisAway:
            return UNSERVED

    def is_away(self, node: str) -> bool:
        server = self._servers.server_named(node)
        return node == UNSERVED or (server is not None and server.is_away)

    def run_of(self, key: str) -> str:
        try:
            return self._servers.server_of(key).run_id
        except RedisAway:
            return ""

    def runs(self) -> Hashable:
        return self._servers.runs()

    def keep_time_by(self, key: str) -> None:
        self._servers.keep_time_by(key)

    async def time_ms(self) -> float:
        (reply,) = await self.send([Call(("TIME",))])
        seconds, microseconds = reply
        return int(seconds) * 1000 + int(microseconds) / 1000

    async def info(self, section: str) -> dict[str, str]:
        """A section of the server's INFO, or of the node of a cluster that tells the time. Raises RedisAway."""
        (reply,) = await self.send([Call(("INFO", section))])
        return fields(reply)

    async def setting(self, name: str) -> str | None:
        """The server's setting `name`, or that of the node of a cluster that tells the time. None if there is no such
        setting, or if this user may not read it. Raises RedisAway."""
        try:
            (reply,) = await self.send([Call(("CONFIG", "GET", name))])
        except RedisMisused:
            return None
        return pairs(reply).get(name)

    async def node_facts(self) -> dict[str, NodeFacts | FrontierError]:
        """What each node of a cluster says about itself, replicas included, or why it does not. Empty for a single
        server."""
        return await self._servers.node_facts()

    async def silent_hosts(self) -> dict[str, FrontierError]:
        """The nodes in the URL of a cluster that do not answer, with their errors. Empty for a single server."""
        return await self._servers.silent_hosts()

    async def close(self) -> None:
        await self._servers.close()
        await asyncio.sleep(0)  # the event loop closes the sockets


def _retrieve_error(sending: asyncio.Future[list[Reply]]) -> None:
    """Retrieve the exception of `sending`. Its caller may be gone, and asyncio would log it as never retrieved."""
    if not sending.cancelled():
        sending.exception()


async def connect(url: str, timeout_s: float = 5.0) -> RedisStore:
    """Connect to `url` and check the version of the server.

    `url` is as `redis_url` describes it. `timeout_s` bounds connecting and each round trip, unless the URL has limits
    of its own. Raises BadInput for an invalid URL, RedisAway if the server does not respond, and RedisMisused if it
    is too old or refuses the credentials.
    """
    read = read_url(url)
    limits = TimeLimits(read.timeout_s or timeout_s, read.connect_timeout_s or timeout_s)
    store = RedisStore(read, limits, display_url(url))
    try:
        await store.start()
    except BaseException:
        await store.close()
        raise
    return store


def _check_version(version: str, where: str) -> None:
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_SERVER:
        oldest = ".".join(map(str, OLDEST_SERVER))
        raise RedisMisused(f"Redis at {where} is version {version}; use Redis {oldest} or later, or Valkey")


def pairs(reply: Reply) -> dict[str, str]:
    """Convert a reply of field, value, field, value ... to a dict of strings."""
    items = [item.decode() if isinstance(item, bytes) else str(item) for item in reply]
    return dict(zip(items[::2], items[1::2], strict=True))
