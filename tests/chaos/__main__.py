"""A long crawl under faults; prints the table and ends with 1 if anything is not as it must be.

python -m tests.chaos --seconds 300 --kills 60 --restarts 5
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.chaos.plan import Options
from tests.chaos.run import run


def main(argv: list[str]) -> int:
    """Run as the arguments say; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long faults go on")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--restarts", type=int, default=5, help="of Valkey")
    parser.add_argument("--replicas", type=int, default=4, help="at a time")
    parser.add_argument("--seed", type=int, default=1, help="of the web and of the faults")
    parser.add_argument("--keep", type=Path, help="an empty folder for logs and data, which then stay")
    options = parser.parse_args(argv)
    chosen = Options(
        seconds=options.seconds,
        kills=options.kills,
        restarts=options.restarts,
        stops=max(1, round(options.seconds / 20)),
        proxy_faults=max(1, round(options.seconds / 5)),
        changes=max(1, round(options.seconds / 10)),
        replicas=options.replicas,
        domains=60,
        # The largest domain has a fifth of the pages, ten a second at most: it lasts for more than half of the time.
        pages=max(600, round(options.seconds * 40)),
        seed=options.seed,
    )
    with tempfile.TemporaryDirectory(prefix="peercrawl-chaos-") as scratch:
        found = asyncio.run(run(chosen, options.keep or Path(scratch), end_limit_s=options.seconds + 300))
    sys.stdout.write(f"{found}\n{found.details()}\n{'OK' if found.is_perfect else 'NOT OK'}\n")
    return 0 if found.is_perfect else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
