"""Ports for servers that cannot choose a free one by themselves and tell it."""

from __future__ import annotations

import random
import socket

_BELOW_EPHEMERAL = range(20_000, 32_000)
"""The kernel gives these to no outgoing connection (ip_local_port_range), so none takes the port before its server does."""


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens now. Drawn by chance, for tests that run at the same time."""
    while True:
        port = random.choice(_BELOW_EPHEMERAL)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
