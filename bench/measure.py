"""What the benchmarks measure with: processor time and memory of processes, and figures in a table."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process used from its start to its end, its children included."""

    cpu_s: float
    wall_s: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Figure:
    """A line of the table that `python -m bench` prints. `aim`: in words, empty if there is none."""

    benchmark: str
    what: str
    value: float
    unit: str
    aim: str = ""
    met: bool = True


def used_by(
    words: Sequence[str | Path],
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    good_codes: Sequence[int] = (0,),
) -> Usage:
    """Run the process `words` to its end. Ends the benchmark unless it exits with one of `good_codes`."""
    started = time.monotonic()
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )
    assert process.stdin is not None
    process.stdin.write(stdin)
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in good_codes:
        raise SystemExit(f"{' '.join(map(str, words[:4]))} ended with {process.returncode}")
    return Usage(usage.ru_utime + usage.ru_stime, time.monotonic() - started, usage.ru_maxrss / 1024)


def cpu_s(pid: int) -> float:
    """Processor seconds that the process `pid` has used, all its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Wakefulness:
    """For what share of the time from now on the main thread of the process `pid` has something to do: it runs, or would
    if it were given a core. Looked at every 10 ms."""

    def __init__(self, pid: int) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._looks: list[bool] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.01):
            state = self._stat.read_text().rpartition(")")[2].split()[0]
            self._looks.append(state == "R")

    def share(self) -> float:
        """The share until now, between 0 and 1. No more looks are taken."""
        self._over.set()
        self._thread.join()
        return statistics.fmean(self._looks)


def rss_mb(pid: int) -> float:
    """Resident memory of the process `pid` now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of `values` lie; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def show(figures: Iterable[Figure]) -> None:
    """Print `figures` as a table."""
    lines = list(figures)
    width = max((len(line.what) for line in lines), default=0)
    print(f"{'benchmark':13} {'figure':{width}} {'value':>12} {'unit':14} aim")
    for line in lines:
        aim = f"{line.aim}{'' if line.met else '   MISSED'}"
        print(f"{line.benchmark:13} {line.what:{width}} {_number(line.value):>12} {line.unit:14} {aim}".rstrip())
    sys.stdout.flush()


def _number(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
