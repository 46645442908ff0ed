"""Ports for servers that cannot choose a free one by themselves and tell it."""

from __future__ import annotations

import os
import random
import socket

_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))

_BELOW_EPHEMERAL = range(20_000 + _WORKER, 32_000, _WORKERS)
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
