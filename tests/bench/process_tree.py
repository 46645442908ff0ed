"""The memory of a process and of all that it has started, by what each is for."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

EVERY_S = 0.2

KINDS = {
    "crawler.parse.subprocess_main": "offload process",
    "valkey-server": "server",
    "--when-told": "replica",
    "\0-m\0crawler\0": "command",
}
"""By a part of its command line."""


class TreeMemory:
    """Looks at the processes below this one from now on. `resident_mb`: the most that the largest process of a kind has had
    in memory. `peak_mb`: the most of all kinds together, in which what several processes share counts once.
    Only processes of the `kinds` count. `pid_file`: has the id of one that is not below this one."""

    def __init__(self, kinds: Collection[str] = tuple(KINDS.values()), pid_file: Path | None = None) -> None:
        self._kinds = kinds
        self._pid_file = pid_file
        self.resident_mb: dict[str, float] = defaultdict(float)
        self.peak_mb = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(EVERY_S):
            total_mb = 0.0
            for pid in [*descendants(os.getpid()), *self._other()]:
                with contextlib.suppress(OSError, LookupError):  # it has ended
                    if (kind := _kind(pid)) in self._kinds:
                        resident_mb, share_mb = memory_mb(pid)
                        self.resident_mb[kind] = max(self.resident_mb[kind], resident_mb)
                        total_mb += share_mb
            self.peak_mb = max(self.peak_mb, total_mb)

    def _other(self) -> list[int]:
        with contextlib.suppress(OSError, ValueError):  # it does not run
            return [int(self._pid_file.read_text())] if self._pid_file else []
        return []


def descendants(pid: int) -> list[int]:
    """The processes that `pid` and its descendants have started and that run now."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident memory of the process `pid`, and its proportional share of it (PSS). Raises OSError or LookupError if there
    is no such process."""
    found = dict(re.findall(r"^(Rss|Pss):\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE))
    return int(found["Rss"]) / 1024, int(found["Pss"]) / 1024


def _kind(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return next((kind for word, kind in KINDS.items() if word in words), "")
