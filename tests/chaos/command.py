"""What the two programs of fault runs have in common: options, and how a run ends."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.chaos.report import ClusterReport, Report


def options(module: str, doc: str | None) -> argparse.ArgumentParser:
    """The options that both programs have."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=doc)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long faults go on")
    parser.add_argument("--replicas", type=int, default=4, help="of the crawler, at a time")
    parser.add_argument("--seed", type=int, default=1, help="of the web and of the faults")
    parser.add_argument("--keep", type=Path, help="an empty folder for logs and data, which then stay")
    return parser


def run_and_print(run: Callable[[Path], Coroutine[Any, Any, Report | ClusterReport]], keep: Path | None) -> int:
    """Run in the folder `keep`, or in one that does not stay, and print the report. Returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="peercrawl-chaos-") as scratch:
        found = asyncio.run(run(keep or Path(scratch)))
    sys.stdout.write(f"{found}\n{found.details()}\n{'OK' if found.is_perfect else 'NOT OK'}\n")
    return 0 if found.is_perfect else 1
