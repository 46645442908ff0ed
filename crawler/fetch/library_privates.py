"""Changes to the internals of asyncio. The composition root calls `install`.

Each function states what it changes and for which versions. Other private names are used, but not changed, in
`crawler.fetch.connection` (aiohttp) and `crawler.parse.tags` (pcre2).
"""

from __future__ import annotations

from asyncio import selector_events
from asyncio.sslproto import SSLProtocol
from typing import Any

READ_BYTES = 1 << 16
"""How much asyncio reads from a connection at a time: a quarter of its default. A protocol handles what was read in one
turn of the event loop, so this bounds the turn. It is also the size of the buffer that a TLS connection keeps while it is
open. With less, large TLS responses would take noticeably more CPU."""

_SocketTransport: Any = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
_lose_connection = _SocketTransport._call_connection_lost


def install() -> None:
    """Make all changes. A second call does nothing."""
    let_go_of_ended_connections()
    read_less_at_a_time()


def read_less_at_a_time() -> None:
    """asyncio reads `READ_BYTES` at a time, with and without TLS (CPython 3.11 to 3.14)."""
    SSLProtocol.max_size = _SocketTransport.max_size = READ_BYTES


def let_go_of_ended_connections() -> None:
    """A closed connection no longer refers to itself, as it does in CPython 3.11, and in some later versions if it was
    aborted (python/cpython#100348, #106503; not in 3.13.18 and 3.14.10). Otherwise its memory would be kept until a full
    garbage collection."""
    _SocketTransport._call_connection_lost = _connection_lost_without_cycle


def _connection_lost_without_cycle(transport: Any, exc: BaseException | None) -> None:
    try:
        _lose_connection(transport, exc)
    finally:
        transport._read_ready_cb = transport._write_ready = None
