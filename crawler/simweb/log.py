"""The request log of the server: one record per request, in memory, in a file of JSON lines, or both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec


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

    def __repr__(self) -> str:
        return f"<RequestLog records={self.count} unwritten={len(self._unwritten)}>"

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
