"""Changes to the internals of other libraries: all of them, installed by name from the composition root (`install`).

Each says what it mends and on which versions that was seen. tests/fetch/test_compat.py fails when one is no longer needed.
"""

from __future__ import annotations

from asyncio import selector_events
from asyncio.sslproto import SSLProtocol
from typing import Any

READ_BYTES = 1 << 16
"""How much asyncio reads from a connection at a time, a fourth of its default. What a protocol does with the bytes, it does
in one turn of the event loop, so hostile bytes hold up the loop for a fourth of the time. A TLS connection keeps a buffer
of this size for as long as it is open. With less, large TLS responses would take noticeably more CPU."""

_SocketTransport: Any = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
_lose_connection = _SocketTransport._call_connection_lost


def install() -> None:
    """Make all of them. A second call changes nothing."""
    let_go_of_ended_connections()
    read_less_at_a_time()


def read_less_at_a_time() -> None:
    """asyncio reads `READ_BYTES` at a time, with and without TLS (CPython 3.11 to 3.13)."""
    SSLProtocol.max_size = _SocketTransport.max_size = READ_BYTES


def let_go_of_ended_connections() -> None:
    """A connection that has ended no longer holds itself, as it would for good in CPython 3.11, and if it was broken off in
    later ones (python/cpython#100348, #106503). One that lived for seconds would wait for a collection of everything, with
    2 KB."""
    _SocketTransport._call_connection_lost = _connection_lost_without_cycle


def _connection_lost_without_cycle(transport: Any, exc: BaseException | None) -> None:
    try:
        _lose_connection(transport, exc)
    finally:
        transport._read_ready_cb = transport._write_ready = None
