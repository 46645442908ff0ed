"""Ports for servers that cannot choose a free one by themselves and tell it."""

from __future__ import annotations

import os
import random
import socket

_SET, _SETS = map(int, os.environ.get("PEERCRAWL_TEST_SET", "0/1").split("/"))
"""The number of this process among those that run tests side by side (tests/side_by_side.py)."""

_BELOW_EPHEMERAL = range(20_000 + _SET, 32_000, _SETS)
"""The kernel gives these to no outgoing connection (ip_local_port_range), so none takes the port before its server does.
Each process of a parallel test run has its own."""

_given: set[int] = set()


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens now, and that no other call has returned: its server may not listen yet.
    Drawn by chance, for test runs at the same time."""
    while True:
        port = random.SystemRandom().choice(_BELOW_EPHEMERAL)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
