"""How long a running crawl is slow while it is given another number of shards.

    python -m bench.reshard [--changes 64:1024 1024:64] [--links 5]

One replica crawls an endless web without a delay, as fast as it can. The lines of its output are counted twice a second.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bench import endless
from bench.crawl import Tables, fill, running
from bench.measure import median
from crawler.sinks.lines import line_files
from tests.valkey import ValkeyProcess

DOMAINS = 1_000
EVERY_S = 0.5
WARM_S, USUAL_S, AFTER_S = 10.0, 15.0, 20.0
"""Seconds before anything is measured, of the usual rate, and after the command has ended."""

AIM_S = 10.0
"""The rate may be below half of the usual one for so long."""


class Count(NamedTuple):
    """How many pages the output had at `at` (monotonic seconds)."""

    at: float
    pages: int


class Output:
    """Counts the lines of a crawl's output while they are written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[int, int] = {}  # inode, which a file keeps when it is finished and renamed -> bytes
        self._lines = 0

    def count(self) -> Count:
        for path in line_files(self._folder):
            with suppress(FileNotFoundError), path.open("rb") as lines:  # it may be renamed just now
                inode = os.fstat(lines.fileno()).st_ino
                lines.seek(self._read.get(inode, 0))
                new = lines.read()
                self._read[inode] = self._read.get(inode, 0) + len(new)
                self._lines += new.count(b"\n")
        return Count(time.monotonic(), self._lines)

    def watch(self, seconds: float) -> Iterator[Count]:
        """Counts for `seconds`."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(EVERY_S)
            yield self.count()


def rates(counts: Sequence[Count]) -> list[tuple[float, float]]:
    """For each two counts in a row the seconds between them, and the pages a second."""
    spans = [(after.at - before.at, after.pages - before.pages) for before, after in pairwise(counts)]
    return [(seconds, pages / seconds) for seconds, pages in spans]


def longest_below(least: float, found: Sequence[tuple[float, float]]) -> float:
    """The most seconds in a row in which the rate was below `least`."""
    longest = lasting = 0.0
    for seconds, rate in found:
        lasting = lasting + seconds if rate < least else 0.0
        longest = max(longest, lasting)
    return longest


def measure_running(changes: Sequence[tuple[int, int]], links: int) -> bool:
    """Reshard a running crawl, each time from the number of shards that it has, and print the results. False if it was slow
    for too long. With more new `links` on each page, more URLs are queued and have to be copied."""
    is_fine = True
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, endless.serve(DOMAINS, links) as host_map:
        folder = Path(scratch)
        with ValkeyProcess(folder, persistent=False) as valkey:
            tables: Tables = {
                "politeness": {"delay": 0, "address_rate_limit": "off"},
                "fetch": {"host_map": host_map},
                "scope": {"kind": "any"},
            }
            fill(valkey.url, tables, endless.seeds(DOMAINS), changes[0][0])
            with running(valkey.url, folder):
                output = Output(folder / "out")
                list(output.watch(WARM_S))
                for before, after in changes:
                    is_fine &= _reshard(output, valkey.url, (before, after), links)
    return is_fine


def _reshard(output: Output, url: str, change: tuple[int, int], links: int) -> bool:
    usual = median(rate for _, rate in rates(list(output.watch(USUAL_S))))
    words = [sys.executable, "-m", "crawler", "reshard", "--shards", str(change[1]), "--crawl", "crawl", "--redis", url]
    counts, began = [output.count()], time.monotonic()
    command = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while command.poll() is None:
        counts += output.watch(EVERY_S)
    took_s = time.monotonic() - began
    if command.returncode:
        raise SystemExit(f"crawler reshard ended with {command.returncode}")
    counts += output.watch(AFTER_S)
    slow_s = longest_below(usual / 2, rates(counts))
    later = median(rate for _, rate in rates(counts)[-int(AFTER_S / EVERY_S / 2) :])
    queued = counts[0].pages * (links - 1)
    print(
        f"{change[0]:>6} -> {change[1]:>6} shards  {queued:,} queued URLs, {usual:,.0f} pages a second; the command took "
        f"{took_s:.1f} s; below half of that for {slow_s:.1f} s{'' if slow_s <= AIM_S else ' (TOO LONG)'}, "
        f"then {later:,.0f} a second",
        flush=True,
    )
    return slow_s <= AIM_S


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", nargs="+", default=["64:1024", "1024:64"])
    parser.add_argument("--links", type=int, default=5, help="new links of each page")
    given = parser.parse_args()
    changes = [(int(before), int(after)) for before, after in (change.split(":") for change in given.changes)]
    sys.exit(not measure_running(changes, given.links))


if __name__ == "__main__":
    main()
