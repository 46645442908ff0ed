"""Notes when a process stood still because the machine was busy with others: its timers fired late, and it used no CPU."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

PERIOD_S = 0.05
NOTED_S = 0.1


class Standstill(NamedTuple):
    """`replica` stood still from `begin` to `end`, in the system's monotonic seconds; "": what is between it and Redis."""

    replica: str
    begin: float
    end: float


Note = Callable[[float, float], None]
"""Is told when a standstill began and ended."""


async def watch(note: Note) -> None:
    """Tell `note` of each standstill, until cancelled."""
    while True:
        at, used = time.monotonic(), time.process_time()
        await asyncio.sleep(PERIOD_S)
        due, now = at + PERIOD_S + time.process_time() - used, time.monotonic()
        if now - due > NOTED_S:
            note(due, now)


async def watch_process(pid: int, note: Note) -> None:
    """Tell `note` of each time for which the process `pid` could have run and had to wait for a CPU, until cancelled. Linux
    counts it (`schedstat`); elsewhere, nothing is told."""
    before = _waited_s(pid)
    while before is not None and (waited := _waited_s(pid)) is not None:
        if waited > before:
            now = time.monotonic()
            note(now - (waited - before), now)
        before = waited
        await asyncio.sleep(PERIOD_S)


def _waited_s(pid: int) -> float | None:
    """How long the process has waited for a CPU. None if that is not known, or it has ended."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return None


async def write(path: Path) -> None:
    """Write each standstill to `path`, until cancelled."""
    with path.open("a", buffering=1) as file:
        await watch(lambda begin, end: print(begin, end, file=file))


def read(path: Path, replica: str) -> list[Standstill]:
    """What `replica` wrote to `path`. The last line may lack its end if it was killed."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [Standstill(replica, *map(float, line.split())) for line in lines if line.endswith("\n")]


def longest(standstills: Iterable[Standstill], replica: str, begin: float, end: float) -> float:
    """For how many seconds from `begin` to `end` the replica, or what is between it and Redis, stood still."""
    sums = dict.fromkeys((replica, ""), 0.0)
    for one in standstills:
        if one.replica in sums:
            sums[one.replica] += max(0.0, min(one.end, end) - max(one.begin, begin))
    return max(sums.values())
