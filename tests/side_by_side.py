"""Run the tests of disjoint sets of files side by side: `python -m tests.side_by_side -m "not timed" [--workers 6]`.

Each set is a pytest process of its own, so that no process imports all tests. Many tests wait for a delay or a lease to
pass, so there are more processes than cores. Sets with whole crawls begin first: the run shall not end with one of them.

Real processes on a crowded machine are sometimes later than a test expects. So up to `MOST_REPEATED` tests that fail are
run once more at the end, alone. Those that pass then are named: each of them is to be looked at.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, repeat
from pathlib import Path

TESTS = Path(__file__).parent
FIRST = ("apps", "sinks", "app", "e2e", "simulation", "frontier", "cli")
"""Folders whose tests take longest."""

FILES = {"e2e": 4, "chaos": 1, "sinks": 3, "cli": 9, "frontier": 14, "app": 6}
"""The most files of a set, by folder. Elsewhere it is a whole folder."""


def sets_of_files() -> Iterator[tuple[str, ...]]:
    paths = sorted(str(path.relative_to(TESTS.parent)) for path in TESTS.rglob("test_*.py"))

    def place(path: str) -> tuple[int, str]:
        folder = path.split("/")[1]
        return (FIRST.index(folder) if folder in FIRST else len(FIRST), folder if folder.count(".") == 0 else "")

    for (_, folder), group in groupby(sorted(paths, key=place), key=place):
        files, size = tuple(group), FILES.get(folder, 40)
        yield from (files[start : start + size] for start in range(0, len(files), size))


MOST_REPEATED = 5
"""If more tests fail, something is broken."""


def pytest(*arguments: str, number: str, cache: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with `arguments`. `number`: of the set ("3/27"). `cache`: folder that remembers what failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={cache}/{number.partition('/')[0]}", *arguments]
    environment = {**os.environ, "PEERCRAWL_TEST_SET": number}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def run(files: tuple[str, ...], number: str, expression: str, cache: str) -> tuple[Counter[str], bool]:
    """Run `files`. Return how many tests passed, failed and so on, and whether all is well."""
    started = time.monotonic()
    ended = pytest("-m", expression, *files, number=number, cache=cache)
    is_well = ended.returncode in (0, 5)  # 5: none of them is selected
    last = ended.stdout.rstrip().rpartition("\n")[2]
    print(f"{time.monotonic() - started:6.1f} s  {files[0]} and {len(files) - 1} more: {last}", flush=True)
    if not is_well:
        print(ended.stdout, ended.stderr, sep="\n", flush=True)
    counts = Counter({word.rstrip("s"): int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", last)})
    return counts, is_well


def pass_alone(files: tuple[str, ...], number: str, expression: str, cache: str) -> bool:
    """Run those of `files` that failed once more."""
    ended = pytest("--last-failed", "-rA", "-m", expression, *files, number=number, cache=cache)
    for line in ended.stdout.splitlines():
        if line.startswith(("PASSED", "FAILED", "ERROR")):
            print(f"once more, alone: {line}", flush=True)
    return ended.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", dest="expression", default="", help="which marks, as for pytest")
    parser.add_argument("--workers", type=int, default=6)
    options = parser.parse_args()
    sets = list(sets_of_files())
    numbers = [f"{number}/{len(sets)}" for number in range(len(sets))]
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(options.workers) as pool:
        results = list(pool.map(run, sets, numbers, repeat(options.expression), repeat(cache)))
        counts = sum((counts for counts, _ in results), Counter())
        failed = counts["failed"] + counts["error"]
        print(f"{counts['passed']} passed, {failed} failed, {counts['skipped']} skipped")
        unwell = [i for i, (_, is_well) in enumerate(results) if not is_well]
        if failed > MOST_REPEATED:
            return 1
        return 0 if all(pass_alone(sets[i], numbers[i], options.expression, cache) for i in unwell) else 1


if __name__ == "__main__":
    sys.exit(main())
