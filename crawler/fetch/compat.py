"""Changes to the internals of other libraries: all of them, installed by name from the composition root (`install`).

Each says what it mends and on which versions that was seen. tests/fetch/test_compat.py fails when one is no longer needed.
"""

from __future__ import annotations

from asyncio import selector_events
from asyncio.sslproto import SSLProtocol
from typing import Any

TLS_READ = 1 << 16
"""Bytes that asyncio reads of a TLS connection at a time. It keeps room for so many as long as the connection is open:
with its own 256 KiB an idle connection takes 350 KB, with these 150. Half as many would take 120 KB, and 40 KB a seventh
more CPU to receive."""

_SocketTransport: Any = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
_lose_connection = _SocketTransport._call_connection_lost


def install() -> None:
    """Make all of them. A second call changes nothing."""
    let_go_of_ended_connections()
    read_less_of_tls()


def read_less_of_tls() -> None:
    """asyncio's TLS buffers shrink to `TLS_READ` (CPython 3.11 to 3.13)."""
    SSLProtocol.max_size = TLS_READ


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
