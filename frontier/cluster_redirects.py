"""Sends calls to their nodes side by side, and again where a node answers that another one, or a later time, is right.

| reply | what follows |
|---|---|
| NOSCRIPT | the script's source is sent, once for all calls of it |
| MOVED | the call goes to the node that is named, which has the slot now |
| ASK | a plain command goes to the node that is named, for this once; a script waits |
| TRYAGAIN, or a script that finds its slot moving | it waits until the slot has moved |
| READONLY, LOADING, MASTERDOWN | the connections to this server are closed |

While a slot moves, its keys are on two nodes, and no script may run: it would take a key that has left for one that does
not exist. So scripts begin with a look at a key that never exists (`calls.GUARD`), which fails on a node that hands over
its slot, and are never sent to the node that receives it before it owns the slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hiredis import ReplyError

from frontier.calls import Acks, Call, Reply, packed, packed_by_source, packed_words
from frontier.errors import FrontierError, RedisAway, ReplicasMissing
from frontier.redis_errors import WRONG_SERVER, first_word, translate
from frontier.redis_server import RedisServer
from frontier.servers import Servers

FIRST_WAIT_S, LONGEST_WAIT_S = 0.002, 0.1
"""For a slot that moves. Most move within milliseconds."""

PATIENT_ROUNDS = 2
"""After so many redirects in a row, wait between them: the nodes disagree for a moment."""

_MOVING = "non local key"
"""In the error of a script that finds its slot moving (script.c of Redis 7 and Valkey)."""


_NOWHERE = -1
"""The place of a reply that is not wanted, the one to ASKING."""


ACK_LIMIT_MS = 500
"""How long a node waits for its replicas. They acknowledge within milliseconds, unless one is away or falls behind."""

ACK_KEY_MS = 1_000
"""How long the key of `Acks` lives."""


class Batch(NamedTuple):
    """Calls for one server. `run_id`: that must carry them out, None for any. `at`: their places among all calls. `acks`:
    of each call, empty if no replicas have to acknowledge them."""

    server: RedisServer
    run_id: str | None
    at: Sequence[int]
    data: bytes
    acks: Sequence[Acks] = ()

    def begin(self) -> asyncio.Future[list[Reply]]:
        """Send the calls, and two commands more if replicas have to acknowledge them."""
        if not self.acks:
            return self.server.begin(self.data, len(self.at), self.run_id)
        self.server.check_replicas()
        return self.server.begin(self.data + _mark(self.acks[0]), len(self.at) + 2, self.run_id)

    async def check_acks(self, replies: list[Reply]) -> None:
        """Remove the replies to the two commands. Raises ReplicasMissing if too few replicas have acknowledged the calls: a
        failover could undo them, so they have to be repeated."""
        if not self.acks:
            return
        acknowledged, marked = replies.pop(), replies.pop()
        carried_out = [number for number, reply in enumerate(replies) if type(reply) is not ReplyError]
        if not carried_out:
            return  # nothing was written; each call goes to another node, or fails for its own reason
        if type(marked) is ReplyError:  # its slot moves or has moved, but not that of a call that was carried out
            mark = _mark(self.acks[carried_out[0]])
            marked, acknowledged = await self.server.begin(mark, 2, self.run_id)
        for reply in (marked, acknowledged):
            if type(reply) is ReplyError:
                raise translate(reply, self.server.name)
        name, wanted = self.server.name, self.acks[0].replicas
        if acknowledged < wanted:
            text = f"{acknowledged} of {wanted} replicas of Redis at {name} have acknowledged a write"
            raise self.server.lacks_replicas(ReplicasMissing(text, name))
        self.server.has_replicas()


def _mark(acks: Acks) -> bytes:
    """The two commands that wait until replicas have what was written before."""
    mark = packed_words("SET", acks.key, "", "PX", ACK_KEY_MS)
    return mark + packed_words("WAIT", acks.replicas, ACK_LIMIT_MS)


class Refused(NamedTuple):
    """A call that was answered with an error."""

    at: int
    batch: Batch
    error: ReplyError


def acks_of(calls: Sequence[Call]) -> list[Acks]:
    """The acks of `calls`, of which all have some, or none."""
    return [call.acks for call in calls if call.acks is not None]


async def exchange(batches: Sequence[Batch], replies: list[Reply | FrontierError]) -> list[Refused]:
    """Send `batches` side by side and put the replies into their places, an error that concerns a whole server into all of
    its. Returns the calls that were answered with an error."""
    started: list[tuple[Batch, asyncio.Future[list[Reply]]]] = []
    refused: list[Refused] = []
    for batch in batches:
        try:
            started.append((batch, batch.begin()))
        except FrontierError as error:
            _fill(replies, batch.at, error)
    for batch, future in started:
        try:
            found = await future
            await batch.check_acks(found)
        except FrontierError as error:
            _fill(replies, batch.at, error)
            continue
        for at, reply in zip(batch.at, found, strict=True):
            if at == _NOWHERE:
                continue
            replies[at] = reply
            if type(reply) is ReplyError:
                refused.append(Refused(at, batch, reply))
    return refused


def _fill(replies: list[Reply | FrontierError], at: Iterable[int], error: FrontierError) -> None:
    for place in at:
        if place != _NOWHERE:
            replies[place] = error


def _joined(batches: Iterable[Batch]) -> list[Batch]:
    """One batch for each server and run, with the calls in the same order."""
    joined: dict[tuple[RedisServer, str | None], list[Batch]] = {}
    for batch in batches:
        joined.setdefault((batch.server, batch.run_id), []).append(batch)
    return [
        Batch(
            server,
            run_id,
            [at for part in parts for at in part.at],
            b"".join(part.data for part in parts),
            [acks for part in parts for acks in part.acks],
        )
        for (server, run_id), parts in joined.items()
    ]


class Redirects:
    """Finds out what to do about refused calls. `timeout_s`: how long calls may wait for slots that move."""

    def __init__(self, servers: Servers, is_cluster: bool, timeout_s: float) -> None:
        self._servers = servers
        self._is_cluster = is_cluster
        self._timeout_s = timeout_s
        # In this round:
        self._followed: dict[tuple[RedisServer, str], RedisServer] = {}
        self._taught: set[tuple[RedisServer, str | None, bytes]] = set()

    async def resolve(
        self, calls: Sequence[Call], replies: list[Reply | FrontierError], refused: Sequence[Refused]
    ) -> None:
        """Replace the errors of `refused` in `replies` by what the calls come to."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        wait_s, rounds = FIRST_WAIT_S, 0
        while refused:
            again: list[Batch] = []
            late: list[Refused] = []
            self._followed.clear()
            self._taught.clear()
            for one in refused:
                try:
                    batch = await self._next(calls[one.at], one)
                except FrontierError as error:
                    replies[one.at] = error
                    continue
                if batch is not None:
                    again.append(batch)
                else:
                    late.append(one)
            rounds += 1
            if late or rounds > PATIENT_ROUNDS:
                if asyncio.get_running_loop().time() > deadline:
                    for one in refused:
                        if replies[one.at] is one.error:
                            replies[one.at] = translate(one.error, one.batch.server.name)
                    return
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)
                again += self._anew(calls, replies, late)
            refused = sorted(await exchange(_joined(again), replies))

    def _anew(
        self, calls: Sequence[Call], replies: list[Reply | FrontierError], late: Sequence[Refused]
    ) -> list[Batch]:
        """The calls of `late`, for the nodes that have their slots by now."""
        batches = []
        for one in late:
            try:
                server = self._servers.server_of(calls[one.at].key)
            except RedisAway as away:
                replies[one.at] = away
                continue
            run_id = one.batch.run_id if server is one.batch.server else None
            batches.append(self._batch(calls[one.at], one.at, server, run_id))
        return batches

    def _batch(self, call: Call, at: int, server: RedisServer, run_id: str | None) -> Batch:
        return Batch(server, run_id, [at], packed([call], guarded=self._is_cluster), acks_of([call]))

    async def _next(self, call: Call, refused: Refused) -> Batch | None:
        """How to send a refused call again, or None if it has to wait. Raises the error that it comes to."""
        at, batch, error = refused
        word = first_word(error)
        if word == "NOSCRIPT" and call.script is not None:
            lesson = (batch.server, batch.run_id, call.script.sha)
            if lesson in self._taught:  # the source is sent right before
                return self._batch(call, at, batch.server, batch.run_id)
            self._taught.add(lesson)
            source = packed_by_source(call, guarded=self._is_cluster)
            return Batch(batch.server, batch.run_id, [at], source, acks_of([call]))
        if word == "MOVED":
            return self._batch(call, at, await self._follow(error, batch.server), None)
        if word == "ASK" and call.script is None:
            server = await self._follow(error, batch.server)
            return Batch(server, None, [_NOWHERE, at], packed_words("ASKING") + packed([call]))
        if word in ("TRYAGAIN", "ASK") or (self._is_cluster and call.script is not None and _MOVING in str(error)):
            return None
        if word == "CLUSTERDOWN":
            self._servers.refresh_soon()
        translated = translate(error, batch.server.name)
        if word in WRONG_SERVER:
            batch.server.drop(translated)
        raise translated

    async def _follow(self, error: ReplyError, server: RedisServer) -> RedisServer:
        target = self._followed.get((server, str(error)))
        if target is None:
            target = self._followed[server, str(error)] = await self._servers.follow(str(error), server)
        return target
