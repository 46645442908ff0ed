"""A minimal HTTP/1.1 server that serves a whole synthetic web under many host names, and logs every request.

It has one process, one event loop, and as little parsing as possible, so that it is faster than the crawler under test.
A connection handles one request at a time. Its response is a list of steps (`responses.py`), which are run by callbacks
instead of a task, so that a waiting connection costs only a timer.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Self

import msgspec

from tests.simweb.responses import ScriptedResponse, Step, answer
from tests.simweb.world import World, address_slot, domain_of


class Record(msgspec.Struct, frozen=True, gc=False):
    """One request and its response.

    `start`: when the request was completely read. `end`: just before the last byte of the response was passed to the
    system, or when the client disconnected. Both are seconds of the server's monotonic clock, so records of one server
    can be compared. `wall`: `start` in seconds since 1970. `end` is before the client can have the whole response, so if
    two records overlap, the requests did, too.
    """

    start: float
    end: float
    wall: float
    address: str  # of the server, "127.0.0.1:8080"
    host: str  # lower case, without port 80
    domain: str
    method: str
    path: str  # with query
    status: int  # 0: no status line was sent
    retry_after: float | None  # seconds from `end`
    client_port: int
    agent: str
    aborted: bool = False  # the client went away before the end of the answer
    signed: tuple[str, str, str] | None = None  # Signature-Agent, Signature-Input and Signature, if it has the last

    @property
    def url(self) -> str:
        """The canonical URL that was requested."""
        return f"http://{self.host}{self.path}"


class RequestLog:
    """Append-only. `keep` holds the records in memory; `path` is a file to which whole lines are appended.

    Appended records are in the file after `flush`. Raises OSError if the file cannot be written.
    """

    def __init__(self, path: Path | None = None, keep: bool = True) -> None:
        self.records: list[Record] = []
        self.count = 0
        self._keep = keep
        self._unwritten: list[Record] = []
        self._fd = -1 if path is None else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, record: Record) -> None:
        """Append a record."""
        self.count += 1
        if self._keep:
            self.records.append(record)
        if self._fd >= 0:
            self._unwritten.append(record)

    def flush(self) -> None:
        """Write all records that are not yet written. A reader may see an incomplete last line."""
        if not self._unwritten:
            return
        data = memoryview(b"".join(msgspec.json.encode(record) + b"\n" for record in self._unwritten))
        self._unwritten.clear()
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Flush and close the file."""
        self.flush()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_log(path: Path) -> Iterator[Record]:
    """The records in a file. An incomplete last line is skipped, because the file may still be written."""
    decoder = msgspec.json.Decoder(Record)
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decoder.decode(line)


_FLUSH_S = 0.5
_LONGEST_HEAD = 65_536
_STEPS_AT_ONCE = 16
_PIECE_BYTES = 65_536


class SimWebServer:
    """Serves `world` on each of `addresses` and logs to `log`. Port 0: any free port, which may differ by address.

    Use it as an async context manager, or call `start` and `stop`. Raises OSError if it cannot listen on an address.
    """

    def __init__(self, world: World, log: RequestLog, addresses: Sequence[str] = ("127.0.0.1",), port: int = 0) -> None:
        self.world = world
        self.log = log
        self.attempts: Counter[str] = Counter()
        self.connections: set[Connection] = set()
        self.listening: list[tuple[str, int]] = []
        self._addresses = addresses
        self._port = port
        self._servers: list[asyncio.Server] = []
        self._flusher: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start listening. Prepares the attacks first, so that they do not block the event loop later."""
        for url in self.world.attacks():
            answer(self.world.resource(url), 1, {}, 0.0)
        loop = asyncio.get_running_loop()
        for address in self._addresses:
            server = await loop.create_server(lambda: Connection(self), address, self._port, backlog=1024)
            self._servers.append(server)
            self.listening.append(server.sockets[0].getsockname()[:2])
        self._flush()

    async def stop(self) -> None:
        """Close all connections. Requests in flight are logged as aborted. The log is flushed but not closed."""
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)  # lets the transports report their end
        if self._flusher is not None:
            self._flusher.cancel()
        self.log.flush()

    def host_map(self) -> list[str]:
        """Entries PATTERN=ADDRESS:PORT for the crawler's --host-map. The first match applies."""
        places = [f"{address}:{port}" for address, port in self.listening]
        if len(places) == 1:
            return [f"*.test={places[0]}"]
        digits = [f"*{digit}.test={places[address_slot(f'd{digit}.test', len(places))]}" for digit in range(10)]
        return [*digits, f"*.test={places[0]}"]

    def answer(self, host: str, target: str, request: Mapping[str, str], now: float) -> ScriptedResponse:
        """The response to send. Attempts are counted only for URLs with trouble, so memory grows only with those."""
        resource = self.world.at(host, target)
        attempt = 1
        if resource is not None and resource.trouble is not None:
            self.attempts[resource.url] += 1
            attempt = self.attempts[resource.url]
        return answer(resource, attempt, request, now)

    def _flush(self) -> None:
        self.log.flush()
        self._flusher = asyncio.get_running_loop().call_later(_FLUSH_S, self._flush)


class Connection(asyncio.Protocol):
    """One client. Either reads a request (`_answer` is None) or responds, and pauses while the client does not read."""

    def __init__(self, server: SimWebServer) -> None:
        self._server = server
        self._buffer = b""
        self._answer: ScriptedResponse | None = None
        self._steps: Iterator[Step] = iter(())
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._start = self._end = self._wall = 0.0
        self._request = ("", "", "", "")
        self._signed: tuple[str, str, str] | None = None
        self._last = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # Without a buffer, `pause_writing` is called as soon as the system has not taken all bytes.
        transport.set_write_buffer_limits(high=0)
        self._address = "{}:{}".format(*transport.get_extra_info("sockname")[:2])
        self._client_port: int = transport.get_extra_info("peername")[1]
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._answer is not None:
            self._end = time.monotonic()
            self._record(aborted=True)

    def abort(self) -> None:
        """Close the connection immediately."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._answer is None:
            self._read_request()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        # Not from here: a write that fails inside this callback makes CPython 3.11 end the connection twice.
        asyncio.get_running_loop().call_soon(self._advance)

    def _read_request(self) -> None:
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            if len(head) > _LONGEST_HEAD:
                self.abort()
            return
        self._buffer = rest
        self._start = self._end = time.monotonic()
        self._wall = time.time()
        request_line, *lines = head.decode("latin-1").split("\r\n")
        method, _, request_target = request_line.partition(" ")
        target = request_target.partition(" ")[0]
        fields = _fields(lines)
        host = fields.get("host", "").lower().removesuffix(":80")
        self._request = (method, host, target, fields.get("user-agent", ""))
        self._signed = _signature(fields)
        self._last = fields.get("connection", "").lower() == "close"
        self._answer = self._server.answer(host, target, fields, self._wall)
        self._steps = iter(self._answer.steps)
        self._advance()

    def _advance(self) -> None:
        """Run steps until one has to wait for a timer or for the client to read."""
        taken = 0
        while self._answer is not None and not (self._paused or self._timer or self._transport.is_closing()):
            # An endless response to a fast client must not block the loop for other connections.
            taken += 1
            step = next(self._steps, None) if taken <= _STEPS_AT_ONCE else 0.0
            if step is None:
                self._finish(self._answer)
                return
            if isinstance(step, bytes):
                self._send(step)
            else:
                self._timer = asyncio.get_running_loop().call_later(step, self._wake)

    def _send(self, data: bytes) -> None:
        """Send a piece, and leave the rest for the next steps.

        The end of a response is recorded before its last piece is sent. Any later, the client could already have it. The
        pieces are small, so the recorded time is not much too early.
        """
        if len(data) > _PIECE_BYTES:
            starts = range(_PIECE_BYTES, len(data), _PIECE_BYTES)
            self._steps = chain((data[start : start + _PIECE_BYTES] for start in starts), self._steps)
        self._end = time.monotonic()
        self._transport.write(data[:_PIECE_BYTES])

    def _wake(self) -> None:
        self._timer = None
        self._advance()

    def _finish(self, done: ScriptedResponse) -> None:
        self._record(aborted=False)
        if done.closes or self._last:
            self._transport.close()
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self.data_received, b"")

    def _record(self, aborted: bool) -> None:
        assert self._answer is not None
        method, host, target, agent = self._request
        self._server.log.append(
            Record(
                start=self._start,
                end=self._end,
                wall=self._wall,
                address=self._address,
                host=host,
                domain=domain_of(host),
                method=method,
                path=target,
                status=self._answer.status,
                retry_after=self._answer.retry_after,
                client_port=self._client_port,
                agent=agent,
                aborted=aborted,
                signed=self._signed,
            )
        )
        self._answer = None


def _signature(fields: dict[str, str]) -> tuple[str, str, str] | None:
    """The fields of a signature (RFC 9421) and of Web Bot Auth, None if the request is not signed."""
    if "signature" not in fields:
        return None
    return fields.get("signature-agent", ""), fields.get("signature-input", ""), fields["signature"]


def _fields(lines: list[str]) -> dict[str, str]:
    """Header fields by lower-case name. If a name occurs several times, the last value counts."""
    pairs = (line.partition(":") for line in lines)
    return {name.lower(): value.strip() for name, _, value in pairs}
