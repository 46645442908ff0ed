"""Values that the functions of a router share on all replicas of a crawl: counters, logins, what was seen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from crawler.arguments import Json, checked
from crawler.redis_retry import RedisRetry
from frontier.scripts import SHARED_VALUE, Reply, script_call
from frontier.store import Store

MOST_VALUES = 10_000
MAX_NAME, MAX_VALUE = 200, 8 << 10
"""Values of a crawl, bytes of a name, and of a value as JSON: 80 MB of Redis at most."""

Ask = Callable[[str, str, bytes], Awaitable[Reply]]
"""Carries out `frontier/lua/shared_value.lua`: what to do, a name, and a value."""


class SharedValues:
    """A small key-value store in the Redis of the crawl. It is kept until the crawl is removed. `ask`: carries out a call;
    None: the values are in the memory of this object, for tests.

    While Redis is away, its methods wait, and that does not count as time of a handler. They raise ValueError for a name or
    a value that is too long or too much, and TypeError for what JSON does not have."""

    def __init__(self, ask: Ask | None = None) -> None:
        self.ask = ask or _in_memory({})
        self._calls = 0

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is awaited."""
        return self._calls > 0

    @checked
    async def get(self, name: str, default: Any = None) -> Any:
        """Return the value `name`, or `default` if there is none."""
        found = await self._call("get", name)
        return default if found is None else msgspec.json.decode(found)

    @checked
    async def set(self, name: str, value: Json) -> None:
        """Keep `value`, which becomes JSON, as `name`."""
        await self._call("set", name, msgspec.json.encode(value))

    @checked
    async def delete(self, name: str) -> None:
        """Remove the value `name`, if there is one."""
        await self._call("delete", name)

    @checked
    async def increment(self, name: str, by: int = 1) -> int:
        """Add `by` to the whole number `name`, which is 0 before, in one step, and return the sum. A call whose answer is
        lost because Redis went away is repeated, and may then count twice. Raises ValueError if the value is no whole
        number, or gets more than 64 bits."""
        return int(await self._call("increment", name, b"%d" % by))

    async def _call(self, verb: str, name: str, value: bytes = b"") -> Any:
        if not name or len(name.encode()) > MAX_NAME:
            raise ValueError(f"a name has 1 to {MAX_NAME} bytes: {name[:MAX_NAME]!r}")
        if len(value) > MAX_VALUE:
            raise ValueError(f"the value {name!r} has {len(value):,} bytes; it may have {MAX_VALUE:,}")
        self._calls += 1
        try:
            word, *found = await self.ask(verb, name, value)
        finally:
            self._calls -= 1
        if word == b"full":
            raise ValueError(f"{name!r} would be one value more than a crawl may have, {MOST_VALUES:,}")
        if word == b"no number":
            problem = "it is no whole number, or the sum has more than 64 bits"
            raise ValueError(f"the value {name!r} cannot be incremented by {value.decode()}: {problem}")
        return found[0] if found else None


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, None if none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def check_loop(home: asyncio.AbstractEventLoop | None) -> None:
    """Raise RuntimeError unless the event loop `home` runs in this thread; None: any. Without a loop, nobody would await
    the call, and from another one it would leave the locks of the crawl locked."""
    here = running_loop()
    if here is None or here is not (home or here):
        raise RuntimeError(
            "this call has to be awaited in the event loop of the crawl: in a handler that is declared with `async def`, "
            "or by asyncio.run_coroutine_threadsafe(COROUTINE, CRAWL.loop) from another loop or thread"
        )


def in_redis(store: Store, key: str, retry: RedisRetry) -> Ask:
    """Return what keeps values in the hash `key` of the crawl, which waits while Redis is away."""

    async def ask(verb: str, name: str, value: bytes) -> Reply:
        call = script_call(SHARED_VALUE, [key], verb, name, value, MOST_VALUES)
        (reply,) = await retry.call_crawl_node(lambda: store.send([call]))
        return reply

    return ask


def _in_memory(values: dict[str, bytes]) -> Ask:
    async def ask(verb: str, name: str, value: bytes) -> Reply:
        if verb == "delete":
            values.pop(name, None)
        elif verb != "get" and name not in values and len(values) >= MOST_VALUES:
            return [b"full"]
        elif verb == "set":
            values[name] = value
        elif verb == "increment":
            try:
                total = int(values.get(name, b"0")) + int(value)
            except ValueError:
                return [b"no number"]
            if not -(2**63) <= total < 2**63:
                return [b"no number"]
            values[name] = b"%d" % total
        return [b"value", values.get(name)]

    return ask
