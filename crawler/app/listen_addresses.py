"""The addresses at which several replicas on one machine listen: their ports count up from the one in the settings."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence

from crawler.errors import UserError
from crawler.settings.tables import HIGHEST_PORT
from crawler.wording import count_of


def port_of(address: str) -> int:
    """Return the port in `address`, 0 if it has none."""
    port = address.rpartition(":")[2]
    return int(port) if port.isdecimal() else 0


def count_up(address: str, count: int) -> list[str]:
    """Return `address` for each of `count` replicas, with its port increased by one each. An address without a port, or
    with port 0, is the same for all. Raises UserError if there are not enough ports."""
    head, colon, _ = address.rpartition(":")
    first = port_of(address)
    if not first or (":" in head and not head.endswith("]")):  # or an IPv6 address alone
        return [address] * count
    last = first + count - 1
    if last > HIGHEST_PORT:
        raise UserError(
            f"address {address!r}: the last of {count_of(count, 'replica')} needs port {last}, above {HIGHEST_PORT}"
        )
    return [f"{head}{colon}{first + number}" for number in range(count)]


def check_free(addresses: Sequence[str]) -> None:
    """Raise UserError unless one process can listen at each of `addresses`, "HOST:PORT" or "PORT" on loopback."""
    with contextlib.ExitStack() as stack:
        for address in addresses:
            host, colon, port = address.rpartition(":")
            host = host.strip("[]") if colon else "127.0.0.1"
            if int(port) > HIGHEST_PORT:
                raise UserError(f"cannot listen at {address}: the last port is {HIGHEST_PORT}; choose another --listen")
            try:
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                stack.enter_context(socket.create_server((host, int(port)), family=family))
            except OSError as error:  # its own text repeats the address
                reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
                raise UserError(f"cannot listen at {address}: {reason}; choose another --listen") from error
