"""Checks that time and memory grow linearly with what a site sends. Each slot gets inputs of n, 2n and 4n bytes.

Time is CPU time of this process, which other processes hardly change, and the least of several runs counts. Memory is that
of Python's objects, or what the process takes from the system if that is more, because libraries in C have memory of their
own. A slot that seems to grow too fast is tried again with inputs four times as long: passing a limit, such as the size of
a cache, looks like growth only once.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.repeated_inputs import FORMATS, Format

UNNOTICED_S = 0.03
"""Less time for the longest input is too little to judge."""
TOO_LONG_S = 3.0
"""More time for one input is too much, however it grows."""
GROWTH = 8.0
"""Four times the input may take so many times the time or the memory: 4 is linear, 16 is quadratic."""
UNNOTICED_BYTES = 4 << 20
RUNS = 3
CONFIRMATIONS = 3


NUMBER = b"{n}"
"""In a unit, this stands for a different number each time that the unit is repeated."""


class Slot(NamedTuple):
    """An input that can be made of any size."""

    format: str
    start: bytes
    unit: bytes
    end: bytes

    def input(self, size: int) -> bytes:
        repeated, times = self.unit, size // len(self.unit)
        if NUMBER not in repeated:
            return self.start + repeated * times + self.end
        return self.start + b"".join(repeated.replace(NUMBER, b"%d" % number) for number in range(times)) + self.end

    @property
    def feed(self) -> Format:
        return FORMATS[self.format]


def slots(name: str) -> Iterator[Slot]:
    """Every start of the format `name` with every unit and end."""
    made = FORMATS[name]
    for start in made.starts:
        for number, unit in enumerate(made.units):
            yield Slot(name, start, unit, made.ends[number % len(made.ends)])


def random_slots(name: str, count: int, rng: random.Random) -> Iterator[Slot]:
    """`count` slots in which several units are repeated together."""
    made = FORMATS[name]
    for _ in range(count):
        unit = b"".join(rng.choices(made.units, k=rng.randint(1, 4)))
        start = rng.choice(made.starts) + b"".join(rng.choices(made.units, k=rng.randint(0, 2)))
        yield Slot(name, start, unit, rng.choice(made.ends))


def wrong_with(slot: Slot, size: int) -> str | None:
    """What grows too fast with inputs of `size`, twice and four times as many bytes; None if nothing does."""
    if _seconds(slot, 4 * size, 1) < UNNOTICED_S:
        return None
    for _ in range(CONFIRMATIONS):
        times = [_seconds(slot, size * factor, RUNS) for factor in (1, 2, 4)]
        if times[2] > TOO_LONG_S:
            return f"{times[2]:.1f} s for {4 * size} bytes"
        if times[2] < GROWTH * max(times[0], UNNOTICED_S / GROWTH) or times[2] < GROWTH / 2 * times[1] / 1.25:
            return None
        size *= 4
    return f"{times[0]:.3f}, {times[1]:.3f} and {times[2]:.3f} s for up to {size} bytes"


def hungry(slot: Slot, size: int) -> str | None:
    """As `wrong_with`, for memory."""
    peaks = [_peak_bytes(slot, size * factor) for factor in (1, 4)]
    if peaks[1] < GROWTH * max(peaks[0], UNNOTICED_BYTES / GROWTH):
        return None
    return f"{peaks[0]} and {peaks[1]} bytes of memory for {size} and {4 * size} bytes"


def _seconds(slot: Slot, size: int, runs: int) -> float:
    data = slot.input(size)
    least = float("inf")
    for _ in range(runs):
        started = time.process_time()
        slot.feed.feed(data)
        least = min(least, time.process_time() - started)
        if least > TOO_LONG_S:
            break
    return least


def _peak_bytes(slot: Slot, size: int) -> int:
    data = slot.input(size)
    tracemalloc.start()
    try:
        resident = resident_growth(lambda: slot.feed.feed(data))
        return max(tracemalloc.get_traced_memory()[1], resident)
    finally:
        tracemalloc.stop()


_STATUS = Path("/proc/self/status")


def resident_growth(work: Callable[[], object]) -> int:
    """Bytes of memory that this process takes from the system during `work`, at most; 0 where that is unknown."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what there is now (proc(5))
        before = _resident_peak()
    except OSError:
        before = None
    work()
    return _resident_peak() - before if before is not None else 0


def _resident_peak() -> int:
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
