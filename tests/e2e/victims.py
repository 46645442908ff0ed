"""Replicas that tests kill at a time when their connections are known, so that what each was fetching is known too."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.harness import Running, process_state, wait_until
from tests.simweb.server import Record

IN_HAND_S = 2.0
"""A URL is settled some tens of milliseconds after the end of its response, or later on a busy machine."""


def replicas_under(supervisor: Running, count: int) -> list[int]:
    """The process ids of the `count` replicas that `supervisor` keeps, once they crawl."""

    def found() -> list[int]:
        pids = [pid for pid in supervisor.children if b"run" in _command_line(pid)]
        return pids if len(pids) == count else []

    pids: list[int] = wait_until(found, f"{count} replicas under {supervisor.pid}")
    return pids


def _command_line(pid: int) -> list[bytes]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []


@dataclass(frozen=True, slots=True)
class Victim:
    """A process that was killed `at` (system-wide monotonic seconds), and the client ports that it held then."""

    at: float
    ports: frozenset[int]

    def explains(self, record: Record) -> bool:
        """Whether the request may have been unsettled when the process died. A web that stood still reads it later."""
        is_near = self.at - IN_HAND_S < record.end and record.start < self.at + IN_HAND_S
        return record.client_port in self.ports and is_near


def kill(pid: int) -> Victim:
    """Kill the process with SIGKILL at a time when its connections are known."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: process_state(pid) == "T", f"{pid} to stop")
    ports = client_ports(pid)
    at = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    return Victim(at, ports)


def client_ports(pid: int) -> frozenset[int]:
    """The local ports of the TCP sockets that the process holds."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return frozenset(int(row[1].partition(":")[2], 16) for row in rows if row[9] in inodes)
