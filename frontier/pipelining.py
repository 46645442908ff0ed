"""Sends many calls in parts. While the caller processes the replies to one part, the server works on the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

from frontier.store import Call, Reply

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
