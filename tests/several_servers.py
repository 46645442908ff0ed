"""Several independent Valkey servers that act as the nodes of a cluster: each key is on the server of its hash tag.

Nothing moves and nothing fails over, so a test decides alone what is away, and for how long.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from pathlib import Path

from xxhash import xxh3_64_intdigest

from frontier.errors import RedisAway
from frontier.scripts import Call, Reply
from frontier.store import RedisStore, connect
from tests.divided_calls import in_order, places_by_node
from tests.valkey import ValkeyProcess

TIMEOUT_S = 5.0
"""As in production: a server that hangs is noticed after this time."""

_TAG = re.compile(r"\{([^}]+)\}")


class SeveralServers:
    """A `Store` on several servers. Calls to a server that is away fail at once, except one at a time, which tries it."""

    def __init__(self, stores: dict[str, RedisStore]) -> None:
        self._stores = stores
        self._names = list(stores)
        self._away: set[str] = set()
        self._trying: set[str] = set()
        self._time_key = ""

    def node_of(self, key: str) -> str:
        found = _TAG.search(key)
        return self._names[xxh3_64_intdigest((found[1] if found else key).encode()) % len(self._names)]

    def is_away(self, node: str) -> bool:
        return node in self._away

    def run_of(self, key: str) -> str:
        return self._stores[self.node_of(key)].run_of(key)

    def runs(self) -> Hashable:
        return tuple(store.runs() for store in self._stores.values())

    def keep_time_by(self, key: str) -> None:
        self._time_key = key

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        replies = await self.send_each(calls)
        for reply in replies:
            if isinstance(reply, RedisAway):
                raise reply
        return replies

    async def send_each(self, calls: Sequence[Call]) -> list[Reply | RedisAway]:
        places = places_by_node(calls, self._node_of_call)
        parts = [self._ask(node, [calls[place] for place in of_node]) for node, of_node in places.items()]
        return in_order(places.values(), await asyncio.gather(*parts))

    def _node_of_call(self, call: Call) -> str:
        return self.node_of(call.keys[0] if call.keys else str(call.arguments[1]))

    async def _ask(self, node: str, calls: Sequence[Call]) -> list[Reply] | RedisAway:
        if node in self._trying:
            return RedisAway(f"{node} is away", node)
        if node in self._away:
            self._trying.add(node)
        try:
            replies = await self._stores[node].send(calls)
        except RedisAway as away:
            self._away.add(node)
            return RedisAway(str(away), node)
        finally:
            self._trying.discard(node)
        self._away.discard(node)
        return replies

    async def time_ms(self) -> float:
        node = self.node_of(self._time_key)
        try:
            return await self._stores[node].time_ms()
        except RedisAway as away:
            raise RedisAway(str(away), node) from away

    async def close(self) -> None:
        for store in self._stores.values():
            await store.close()


class Servers:
    """The processes of `SeveralServers`, by name. They are killed at the end of the block."""

    def __init__(self, folder: Path, count: int) -> None:
        self._processes: dict[str, ValkeyProcess] = {}
        for number in range(count):
            name = f"node{number}"
            (folder / name).mkdir(parents=True)
            self._processes[name] = ValkeyProcess(folder / name, persistent=True)
        self.stopped: set[str] = set()

    def __enter__(self) -> Servers:
        for process in self._processes.values():
            process.start()
        return self

    def __exit__(self, *_: object) -> None:
        for name, process in self._processes.items():
            if name in self.stopped:
                self.resume(name)
            process.__exit__()

    @contextlib.asynccontextmanager
    async def store(self) -> AsyncIterator[SeveralServers]:
        """A way to all of them, as one replica has it."""
        urls = {name: process.url for name, process in self._processes.items()}
        store = SeveralServers({name: await connect(url, TIMEOUT_S) for name, url in urls.items()})
        try:
            yield store
        finally:
            await store.close()

    @property
    def pids(self) -> dict[str, int]:
        """The process of each server."""
        return {name: process.pid for name, process in self._processes.items()}

    def suspend(self, name: str) -> None:
        """The server `name` hangs: it takes connections and calls, and answers nothing."""
        os.kill(self._processes[name].pid, signal.SIGSTOP)
        self.stopped.add(name)

    def resume(self, name: str) -> None:
        os.kill(self._processes[name].pid, signal.SIGCONT)
        self.stopped.discard(name)


async def until(happened: Callable[[], object], limit_s: float = 180.0) -> None:
    """Wait for `happened`. Raises AssertionError after `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while not happened():
        assert time.monotonic() < deadline, f"waited {limit_s:g} s in vain"
        await asyncio.sleep(0.02)
