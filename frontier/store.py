"""The interface to Redis: sends calls in one round trip to each node that they concern, and translates errors.

`Store.send` writes a batch of calls and reads their replies in order. Scripts are sent as EVALSHA, and by their source if
the server does not know them (a server forgets its scripts in a restart or failover). All transitions may be repeated, so
a batch that raised `RedisAway` may be sent again as a whole: some of it may have been executed, but nothing takes effect
twice.

`connection` has the connections to a server and says which errors are temporary, and `cluster` finds the node of a key.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from hiredis import ReplyError

from frontier.cluster import UNSERVED, Cluster, NodeFacts
from frontier.connection import (
    WRONG_SERVER,
    RedisServer,
    Servers,
    TimeLimits,
    fields,
    first_word,
    translate,
    wrong_type,
)
from frontier.errors import FrontierError, RedisAway, RedisMisused, WrongType
from frontier.keys import prefix_of, types_of
from frontier.redis_url import RedisUrl, display_url, read_url
from frontier.scripts import Argument, Call, Reply, command, packed, packed_by_source, packed_words

T = TypeVar("T")

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


FIRST_WAIT_S, LONGEST_WAIT_S = 0.002, 0.1
"""For a slot that moves. Most move within milliseconds."""

PATIENT_ROUNDS = 2
"""After so many redirects in a row, wait between them: the nodes disagree for a moment."""

ACK_LIMIT_MS = 500
"""How long a node waits for its replicas. They acknowledge within milliseconds, unless one is away or falls behind."""

ACK_KEY_MS = 1_000
"""How long the key lives that is written before a node waits for its replicas."""

_MOVING = "non local key"
"""In the error of a script that finds its slot moving (script.c of Redis 7 and Valkey)."""

_NOWHERE = -1
"""The place of a reply that is not wanted, the one to ASKING."""


class _Batch(NamedTuple):
    """Calls for one server. `run_id`: that must carry them out, None for any. `at`: their places among all calls."""

    server: RedisServer
    run_id: str | None
    at: Sequence[int]
    calls: Sequence[Call]
    data: bytes

    def begin(self) -> asyncio.Future[list[Reply]]:
        """Send the calls, and two commands more if replicas have to acknowledge them."""
        if not self.calls[0].acks:
            return self.server.begin(self.data, len(self.at), self.run_id)
        self.server.check_replicas()
        return self.server.begin(self.data + _wait_for_acks(self.calls[0]), len(self.at) + 2, self.run_id)

    async def check_acks(self, replies: list[Reply]) -> None:
        """Remove the replies to the two commands. Raises ReplicasMissing if too few replicas have acknowledged the calls: a
        failover could undo them, so they have to be repeated."""
        if not self.calls[0].acks:
            return
        acknowledged, written = replies.pop(), replies.pop()
        carried_out = [call for call, reply in zip(self.calls, replies, strict=True) if type(reply) is not ReplyError]
        if not carried_out:
            return  # nothing was written; each call goes to another node, or fails for its own reason
        if type(written) is ReplyError:  # its slot moves or has moved, but not that of a call that was carried out
            written, acknowledged = await self.server.begin(_wait_for_acks(carried_out[0]), 2, self.run_id)
        for reply in (written, acknowledged):
            if type(reply) is ReplyError:
                raise translate(reply, self.server.name)
        wanted = self.calls[0].acks
        if acknowledged < wanted:
            raise self.server.lacks_replicas(
                f"{acknowledged} of {wanted} replicas of Redis at {self.server.name} have acknowledged a write"
            )
        self.server.has_replicas()


def _wait_for_acks(call: Call) -> bytes:
    """The two commands that wait until replicas have what was written before. A server waits only for what the same
    connection has written, and a repeated call may write nothing, so a key beside that of `call` is written first."""
    key = f"{call.key.partition('}')[0]}}}:acked"
    return packed_words("SET", key, "", "PX", ACK_KEY_MS) + packed_words("WAIT", call.acks, ACK_LIMIT_MS)


class _Refused(NamedTuple):
    """A call that was answered with an error."""

    at: int
    batch: _Batch
    error: ReplyError


async def _exchange(batches: Iterable[_Batch], replies: list[Reply | FrontierError]) -> list[_Refused]:
    """Send `batches` side by side and put the replies into their places, an error that concerns a whole server into all of
    its. Returns the calls that were answered with an error, in their order."""
    started: list[tuple[_Batch, asyncio.Future[list[Reply]] | FrontierError]] = []
    refused: list[_Refused] = []
    for batch in batches:
        try:
            started.append((batch, batch.begin()))
        except FrontierError as error:
            started.append((batch, error))
    for batch, answer in started:
        try:
            if isinstance(answer, FrontierError):
                raise answer
            found = await answer
            await batch.check_acks(found)
        except FrontierError as error:
            found = [error] * len(batch.at)
        for at, reply in zip(batch.at, found, strict=True):
            if at != _NOWHERE:
                replies[at] = reply
                if type(reply) is ReplyError:
                    refused.append(_Refused(at, batch, reply))
    return sorted(refused, key=lambda one: one.at) if len(started) > 1 else refused


class RedisStore:
    """A `Store` on a single Redis or Valkey server, or on a Redis Cluster."""

    def __init__(self, url: RedisUrl, limits: TimeLimits, where: str) -> None:
        self._where = where
        self._timeout_s = limits.reply_s
        self._is_cluster = url.kind == "cluster"
        self._servers = (Cluster if self._is_cluster else Servers)(url, limits, where, self._round_trip_ended)
        self.round_trips = 0
        self._watchers: list[Callable[[float, bool], None]] = []

    async def start(self) -> None:
        """Connect, and check the versions of the servers. Raises RedisAway or RedisMisused."""
        await self._servers.start()
        for server in self._servers.members.values():
            if server.version and tuple(map(int, server.version.split(".")[:2])) < OLDEST_SERVER:
                oldest = ".".join(map(str, OLDEST_SERVER))
                raise RedisMisused(
                    f"Redis at {self._where} is version {server.version}; use Redis {oldest} or later, or Valkey"
                )

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
        return await self._send(calls, FrontierError)

    async def send_each(self, calls: Sequence[Call]) -> list[Reply | RedisAway]:
        return await self._send(calls, RedisMisused)

    async def _send(self, calls: Sequence[Call], raised: type[FrontierError]) -> list[Reply]:
        """Send `calls`, whether or not the caller is cancelled: a script that was sent takes effect even if its caller no
        longer waits, and a connection with unread replies would have to be closed."""
        if not calls:
            return []
        replies: list[Reply | FrontierError] = [None] * len(calls)
        sending = asyncio.create_task(self._deliver(calls, self._divided(calls, replies), replies))
        sending.add_done_callback(_retrieve_error)
        await asyncio.shield(sending)
        if wrong := [(at, reply) for at, reply in enumerate(replies) if isinstance(reply, WrongType)]:
            found = await wrong_keys(self, {prefix_of(reply.key) for _, reply in wrong})
            for at, error in wrong:
                names = [key for key in found if prefix_of(key) == prefix_of(error.key)]
                replies[at] = wrong_type(self._where, error.node, error.key, names)
        for reply in replies:
            if isinstance(reply, raised):
                raise reply
        return replies

    def _divided(self, calls: Sequence[Call], replies: list[Reply | FrontierError]) -> list[_Batch]:
        """`calls` by the node that carries them out, each with the run that it has now. Those that no node serves get their
        errors in `replies`."""
        if not self._is_cluster:
            server = self._servers.server_of("")
            return [_Batch(server, server.run_id, range(len(calls)), calls, packed(calls))]
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
            batches.append(_Batch(server, server.run_id, mine, part, packed(part, guarded=True)))
        return batches

    async def _deliver(
        self, calls: Sequence[Call], batches: Sequence[_Batch], replies: list[Reply | FrontierError]
    ) -> None:
        """Send `batches`, and the calls that are answered with an error again, until `replies` has what all come to."""
        refused = await _exchange(batches, replies)
        if not refused:
            return
        loop = asyncio.get_running_loop()
        deadline, wait_s, rounds = loop.time() + self._timeout_s, FIRST_WAIT_S, 0
        while refused:
            following = _Round(self._servers, self._is_cluster)
            late: list[_Refused] = []
            for one in refused:
                try:
                    if not await following.add(calls[one.at], one):
                        late.append(one)
                except FrontierError as error:
                    replies[one.at] = error
            rounds += 1
            if late or rounds > PATIENT_ROUNDS:
                if loop.time() > deadline:
                    for one in refused:
                        if replies[one.at] is one.error:
                            replies[one.at] = translate(one.error, one.batch.server.name)
                    return
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)
                for one in late:  # for the nodes that have their slots by now
                    try:
                        server = self._servers.server_of(calls[one.at].key)
                    except RedisAway as away:
                        replies[one.at] = away
                        continue
                    run_id = one.batch.run_id if server is one.batch.server else None
                    following.put(server, run_id, one.at, calls[one.at])
            refused = await _exchange(following.batches(), replies)

    def node_of(self, key: str) -> str:
        try:
            return self._servers.server_of(key).name
        except RedisAway:
            return UNSERVED

    def is_away(self, node: str) -> bool:
        members = self._servers.members.values()
        return node == UNSERVED or any(server.is_away for server in members if server.name == node)

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

    @property
    def eviction_policy(self) -> str:
        """The maxmemory-policy of a server that may evict keys; "" if none does."""
        policies = {server.eviction_policy for server in self._servers.members.values()}
        return min(policies - {"", "noeviction"}, default="")

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
        return await self._servers.node_facts() if isinstance(self._servers, Cluster) else {}

    async def silent_hosts(self) -> dict[str, FrontierError]:
        """The nodes in the URL of a cluster that do not answer, with their errors. Empty for a single server."""
        return await self._servers.silent_hosts() if isinstance(self._servers, Cluster) else {}

    async def close(self) -> None:
        await self._servers.close()
        await asyncio.sleep(0)  # the event loop closes the sockets


class _Round:
    """The calls that are sent again in one round, by server and run.

    | reply | what follows |
    |---|---|
    | NOSCRIPT | the script's source is sent, once for all calls of it |
    | MOVED | the call goes to the node that is named, which has the slot now |
    | ASK | a plain command goes to the node that is named, for this once; a script waits |
    | TRYAGAIN, or a script that finds its slot moving | it waits until the slot has moved |
    | READONLY, LOADING, MASTERDOWN, NOREPLICAS | the connections to this server are closed |

    While a slot moves, its keys are on two nodes, and no script may run: it would take a key that has left for one that
    does not exist. So scripts begin with a look at a key that never exists (`scripts.GUARD`), which fails on a node that
    hands over its slot, and are never sent to the node that receives it before it owns the slot.
    """

    def __init__(self, servers: Servers, is_cluster: bool) -> None:
        self._servers = servers
        self._is_cluster = is_cluster
        self._targets: dict[tuple[RedisServer, str], RedisServer] = {}  # of redirects
        self._scripts: set[tuple[RedisServer, str | None, bytes]] = set()  # whose source is sent
        self._parts: dict[tuple[RedisServer, str | None], list[tuple[int, Call, bytes]]] = {}

    def put(self, server: RedisServer, run_id: str | None, at: int, call: Call, data: bytes = b"") -> None:
        """Send `call`, which is the one at `at`, to `server`."""
        data = data or packed([call], guarded=self._is_cluster)
        self._parts.setdefault((server, run_id), []).append((at, call, data))

    def batches(self) -> list[_Batch]:
        return [
            _Batch(
                server,
                run_id,
                [at for at, _, _ in parts],
                [call for _, call, _ in parts],
                b"".join(data for _, _, data in parts),
            )
            for (server, run_id), parts in self._parts.items()
        ]

    async def add(self, call: Call, refused: _Refused) -> bool:
        """Send a refused call again. False if it has to wait. Raises the error that it comes to."""
        at, (server, run_id, *_), error = refused
        word = first_word(error)
        if word == "NOSCRIPT" and call.script is not None:
            script = (server, run_id, call.script.sha)
            is_sent = script in self._scripts
            self._scripts.add(script)
            self.put(server, run_id, at, call, b"" if is_sent else packed_by_source(call, guarded=self._is_cluster))
        elif word == "MOVED":
            self.put(await self._target(error, server), None, at, call)
        elif word == "ASK" and call.script is None:
            target = await self._target(error, server)
            self.put(target, None, _NOWHERE, call, packed_words("ASKING"))
            self.put(target, None, at, call)
        elif word in ("TRYAGAIN", "ASK") or (self._is_cluster and call.script is not None and _MOVING in str(error)):
            return False
        else:
            if word == "CLUSTERDOWN":
                self._servers.refresh_soon()
                silent = [one.name for one in self._servers.members.values() if one.is_away]
                error = ReplyError(f"{error} (no answer from {', '.join(silent)})") if silent else error
            translated = translate(error, server.name, key=call.key)
            if word in WRONG_SERVER and isinstance(translated, RedisAway):
                server.drop(translated)
            raise translated
        return True

    async def _target(self, error: ReplyError, server: RedisServer) -> RedisServer:
        target = self._targets.get((server, str(error)))
        if target is None:
            target = self._targets[server, str(error)] = await self._servers.follow(str(error), server)
        return target


def _retrieve_error(sending: asyncio.Task[None]) -> None:
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


def fields_of(reply: Reply) -> dict[bytes, Any]:
    """A reply of field, value, field, value ... as a dict."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


_COUNT = re.compile(rb"-?[0-9]{1,18}")


def count_in(text: bytes | None) -> int:
    """The number in a counter, 0 for a text that is none: somebody else has written it. So with the next two."""
    return int(text) if text and _COUNT.fullmatch(text) else 0


def text_in(text: bytes | None) -> str:
    return (text or b"").decode(errors="replace")


def ms_in(score: bytes) -> int:
    """The time in a score, which may be infinite, within the years 1 to 9999."""
    return int(max(-6e13, min(2.5e14, float(score))))


def pairs(reply: Reply) -> dict[str, str]:
    """Convert a reply of field, value, field, value ... to a dict of strings."""
    items = [text_in(item) if isinstance(item, bytes) else str(item) for item in reply]
    return dict(zip(items[::2], items[1::2], strict=True))


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


AT_ONCE = 128
"""Calls in one round trip, if there may be thousands. They take about 10 ms of the server's time, so that other clients do
not wait long."""

Send = Callable[[Sequence[Call]], Awaitable[list[Reply]]]
"""`Store.send` or `Store.send_each`."""


async def send_in_parts(send: Send, parts: Iterable[Sequence[Call]], look: Callable[[list[Reply]], None]) -> None:
    """Call `look` with the replies to each of `parts`, in order. At most two parts are in flight: while the caller looks at
    the replies to one, the server works on the next. `send`: of a store.

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


async def ask(store: Store, calls: Sequence[Call]) -> list[Reply]:
    """The replies to `calls`, which are sent in parts of `AT_ONCE`."""
    replies: list[Reply] = []
    await send_in_parts(store.send, batched(calls, AT_ONCE), replies.extend)
    return replies


async def sound_replies(store: Store, calls: Sequence[Call]) -> list[Reply]:
    """The replies to `calls`, with None for a key of a wrong type. Raises as `Store.send` does otherwise."""
    replies = await store.send_each(calls)
    if away := [reply for reply in replies if isinstance(reply, RedisAway) and not isinstance(reply, WrongType)]:
        raise away[0]
    return [None if isinstance(reply, WrongType) else reply for reply in replies]


async def wrong_keys(store: Store, prefixes: Iterable[str]) -> list[str]:
    """The keys of the shards and crawls of `prefixes` (`keys.types_of`) that have a wrong type, without those on nodes that
    are away."""
    kinds = {key: kind for prefix in prefixes for key, kind in types_of(prefix).items()}
    found: list[Reply | RedisAway] = []
    await send_in_parts(store.send_each, batched([command("TYPE", key) for key in kinds], AT_ONCE), found.extend)
    known = zip(kinds.items(), found, strict=True)
    return [
        key
        for (key, kind), reply in known
        if not isinstance(reply, RedisAway) and reply not in (b"none", kind.encode())
    ]


async def scan(store: Store, verb: str, key: str, *options: Argument, at: str = "") -> AsyncIterator[list[Any]]:
    """The pages that HSCAN, ZSCAN or SCAN (without `key`, on the node of the key `at`) find; some members perhaps more than
    once. Raises RedisAway."""
    cursor: bytes | int | None = None
    while cursor is None or int(cursor):
        words = (verb, key, cursor or 0) if key else (verb, cursor or 0)
        ((cursor, page),) = await store.send([Call((*words, *options), at=at)])
        yield page
