"""Many calls sent in parts, one part ahead: while the caller looks at the replies to one, the server works on the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence

from frontier.store import Call, Reply, Store


async def in_parts(store: Store, parts: Iterable[Sequence[Call]]) -> AsyncIterator[list[Reply]]:
    """The replies to each of `parts`, in their order; at most two parts are under way. Raises as `Store.send` does."""
    asked: deque[asyncio.Task[list[Reply]]] = deque()
    try:
        for calls in parts:
            asked.append(asyncio.create_task(store.send(calls)))
            if len(asked) > 1:
                yield await asked.popleft()
        while asked:
            yield await asked.popleft()
    finally:
        for part in asked:
            part.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
