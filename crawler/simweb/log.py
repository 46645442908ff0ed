"""What the server saw: one record for each request, in memory, in a file of JSON lines, or both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False):
    """One request and its answer.

    `start` (the request was read wholly) and `end` (the last byte of the answer was about to be handed to
    the system, or the client went away) are in seconds of the server's monotonic clock, so records of one
    server can be compared; `wall` is `start` in seconds since 1970. `end` lies before the client can have
    the whole answer, so an overlap of two records is one in truth.
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

    @property
    def url(self) -> str:
        """The canonical URL that was asked for."""
        return f"http://{self.host}{self.path}"


class RequestLog:
    """Append-only. `keep` holds the records in memory; `path` is a file to which whole lines are appended.

    What was appended is in the file after `flush`. Raises OSError if the file cannot be written.
    """

    def __init__(self, path: Path | None = None, keep: bool = True) -> None:
        self.records: list[Record] = []
        self.count = 0
        self._keep = keep
        self._unwritten: list[Record] = []
        self._fd = -1 if path is None else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __repr__(self) -> str:
        return f"<RequestLog records={self.count} unwritten={len(self._unwritten)}>"

    def append(self, record: Record) -> None:
        """Take a record."""
        self.count += 1
        if self._keep:
            self.records.append(record)
        if self._fd >= 0:
            self._unwritten.append(record)

    def flush(self) -> None:
        """Write what has not been written yet. A reader sees whole lines, but perhaps a part of the last one."""
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
    """The records in a file, which may still be growing: an unfinished last line is left out."""
    decoder = msgspec.json.Decoder(Record)
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decoder.decode(line)
