"""Sends many calls in parts. While the caller processes the replies to one part, the server works on the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from frontier.store import Call, Reply, Store


async def send_in_parts(store: Store, parts: Iterable[Sequence[Call]], look: Callable[[list[Reply]], None]) -> None:
    """Call `look` with the replies to each of `parts`, in order. At most two parts are in flight.

    Raises as `Store.send` does. When it returns or raises, no part is in flight. An asynchronous generator could not
    guarantee this to a caller that is cancelled.
    """
    asked: deque[asyncio.Task[list[Reply]]] = deque()
    try:
        for calls in parts:
            asked.append(asyncio.create_task(store.send(calls)))
            if len(asked) > 1:
                look(await asked.popleft())
        while asked:
            look(await asked.popleft())
    finally:
        for part in asked:
            part.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
