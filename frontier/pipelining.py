"""Many calls sent in parts, one part ahead: while the caller looks at the replies to one, the server works on the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from frontier.store import Call, Reply, Store


async def send_in_parts(store: Store, parts: Iterable[Sequence[Call]], look: Callable[[list[Reply]], None]) -> None:
    """Give `look` the replies to each of `parts`, in their order; at most two parts are under way.

    Raises as `Store.send` does. When it is over, however it ends, nothing is under way: an asynchronous generator could
    not promise that to a reader who is cut short.
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
