"""HTTP/1.1 as bytes (RFC 9112): heads, framing, and the steps of a response."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

Step = bytes | float

_CHUNK_BYTES = 1500
_REASONS = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True, slots=True)
class ScriptedResponse:
    """A response as a sequence of steps: bytes to send, or seconds to wait.

    `closes`: the connection is then closed. `hangs`: it stays open, and nothing more is sent.
    """

    status: int  # 0: no status line is sent
    steps: Iterable[Step]
    retry_after: float | None = None  # seconds from the end of the response, if it has Retry-After
    closes: bool = False
    hangs: bool = False


def head(status: int, fields: list[str]) -> bytes:
    """Status line and header fields, with the empty line that ends them."""
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, '')}", *fields, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def whole(status: int, fields: list[str], body: bytes) -> bytes:
    """A response with Content-Length."""
    return head(status, [*fields, f"Content-Length: {len(body)}"]) + body


def chunked(status: int, fields: list[str], body: bytes) -> bytes:
    """A response with Transfer-Encoding: chunked (RFC 9112 section 7.1)."""
    chunks = (body[start : start + _CHUNK_BYTES] for start in range(0, len(body), _CHUNK_BYTES))
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head(status, [*fields, "Transfer-Encoding: chunked"]) + framed + b"0\r\n\r\n"
