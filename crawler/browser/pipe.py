"""Messages of the DevTools protocol over two pipes: JSON that ends in NUL. A browser that is driven this way opens no port,
and ends when the pipes are closed, as at the death of this process.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

import msgspec

MAX_MESSAGE = 64 << 20
"""Bytes of a message: the longest DOM fits, even if all its characters are escaped. After a longer one, nothing is read."""

Params = dict[str, Any]
Listener = Callable[[str, Params, str], None]
"""Called with the name of an event, its parameters and its session."""


class PipeError(Exception):
    """Raised when the browser refuses a command, or is gone."""


class Pipe(asyncio.Protocol):
    """Sends commands to a browser, and passes its events to `listener`. `closed` is set when the browser is gone."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.closed = asyncio.Event()
        self._parts: list[bytes] = []
        self._size = 0
        self._next = 0
        self._answers: dict[int, asyncio.Future[Params]] = {}
        self._reading: asyncio.ReadTransport | None = None
        self._writing: asyncio.WriteTransport | None = None

    async def open(self, read_fd: int, write_fd: int) -> None:
        """Use these file descriptors, and close them at the end."""
        loop = asyncio.get_running_loop()
        self._reading, _ = await loop.connect_read_pipe(lambda: self, os.fdopen(read_fd, "rb", 0))
        self._writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(write_fd, "wb", 0))

    def close(self) -> None:
        """Close both pipes. Calls in progress raise PipeError."""
        if self._reading is not None:
            self._reading.close()
        if self._writing is not None and not self._writing.is_closing():
            self._writing.abort()
        self._end()

    def post(self, method: str, params: Params | None = None, session: str = "") -> asyncio.Future[Params]:
        """Send a command. The answer need not be awaited."""
        answer = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self.closed.is_set() or self._writing is None or self._writing.is_closing():
            answer.set_exception(PipeError("the browser is gone"))
            return answer
        self._next += 1
        self._answers[self._next] = answer
        message: Params = {"id": self._next, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        self._writing.write(msgspec.json.encode(message) + b"\0")
        return answer

    async def call(self, method: str, params: Params | None = None, session: str = "") -> Params:
        """Send a command and return its result. Raises PipeError. The caller sets a deadline."""
        return await self.post(method, params, session)

    def data_received(self, data: bytes) -> None:
        first, *rest = data.split(b"\0")
        self._parts.append(first)
        self._size += len(first)
        if self._size > MAX_MESSAGE:
            self.close()
        for part in rest:
            message = b"".join(self._parts)
            self._parts, self._size = [part], len(part)
            self._take(message)

    def _take(self, raw: bytes) -> None:
        try:
            message = msgspec.json.decode(raw)
        except msgspec.DecodeError:  # halves of surrogate pairs, which only the standard library reads
            message = json.loads(raw)
        if "id" not in message:
            self.listener(message["method"], message["params"], message.get("sessionId", ""))
            return
        answer = self._answers.pop(message["id"], None)
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(PipeError(message["error"].get("message", "")))
        else:
            answer.set_result(message.get("result", {}))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        self.closed.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(PipeError("the browser is gone"))
        self._answers.clear()
