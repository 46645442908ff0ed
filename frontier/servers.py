"""The servers of a store: what a store asks of them, and a single server, at a fixed address or named by Sentinels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Protocol

from frontier.errors import FrontierError, RedisMisused
from frontier.node_facts import NodeFacts
from frontier.redis_server import RedisServer, ServerWatcher, TimeLimits
from frontier.redis_url import Address, RedisUrl
from frontier.sentinels import Sentinels


class Servers(Protocol):
    """The servers of a store. Implemented by `SingleServer` and `Cluster`."""

    def server_of(self, key: str) -> RedisServer:
        """The server that carries out calls with `key`; "": that tells the time. Raises RedisAway."""

    @property
    def members(self) -> Collection[RedisServer]:
        """All servers that serve keys."""

    def server_named(self, name: str) -> RedisServer | None:
        """The server `name`, if it serves keys."""

    def runs(self) -> Hashable:
        """What changes whenever another server, or another process of it, serves a key."""

    def keep_time_by(self, key: str) -> None:
        """Take the time from the server of `key`."""

    def refresh_soon(self) -> None:
        """Find out again who serves which key."""

    async def follow(self, error: str, server: RedisServer) -> RedisServer:
        """The server that a MOVED or ASK reply of `server` names. Raises RedisAway."""

    async def node_facts(self) -> dict[str, NodeFacts | FrontierError]:
        """What each node of a cluster says about itself, or its error, by name."""

    async def silent_hosts(self) -> dict[str, FrontierError]:
        """The nodes in the URL of a cluster that do not answer, with their errors."""

    async def start(self) -> None:
        """Connect. Raises RedisAway or RedisMisused."""

    async def close(self) -> None:
        """Close all connections."""


class SingleServer(ServerWatcher):
    """One server, which carries out all calls. `where`: as it is shown in messages, and its name."""

    def __init__(
        self, url: RedisUrl, limits: TimeLimits, where: str, on_round_trip: Callable[[float, bool], None]
    ) -> None:
        (self._address, *_) = url.hosts
        self._limits = limits
        self._on_round_trip = on_round_trip
        find = Sentinels(url, limits.probe_s, where).find if url.kind == "sentinel" else self._find
        self._server = RedisServer(where, find, url.access, limits, self)

    async def _find(self) -> Address:
        return self._address

    def round_trip(self, seconds: float, failed: bool) -> None:
        self._on_round_trip(seconds, failed)

    def server_of(self, key: str) -> RedisServer:
        return self._server

    @property
    def members(self) -> Collection[RedisServer]:
        return (self._server,)

    def server_named(self, name: str) -> RedisServer | None:
        return self._server if name == self._server.name else None

    def runs(self) -> Hashable:
        return self._server.run_id

    def keep_time_by(self, key: str) -> None:
        """There is only one clock."""

    def refresh_soon(self) -> None:
        """Each new connection asks for the address."""

    async def follow(self, error: str, server: RedisServer) -> RedisServer:
        raise RedisMisused(
            f"Redis at {server.name} is a node of a cluster; write its URL as redis+cluster:// ({error})"
        )

    async def node_facts(self) -> dict[str, NodeFacts | FrontierError]:
        return {}

    async def silent_hosts(self) -> dict[str, FrontierError]:
        return {}

    async def start(self) -> None:
        await self._server.connect(self._limits.connect_s)

    async def close(self) -> None:
        self._server.close()
