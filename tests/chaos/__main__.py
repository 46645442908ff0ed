"""A long crawl under faults; prints the table and ends with 1 if anything is not as it must be.

python -m tests.chaos --seconds 300 --kills 60 --restarts 5 --reshards 6
"""

from __future__ import annotations

import sys

from tests.chaos.command import options, run_and_print
from tests.chaos.plan import Options
from tests.chaos.run import run


def main(argv: list[str]) -> int:
    """Run as the arguments say; the exit status."""
    parser = options("tests.chaos", __doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--restarts", type=int, default=5, help="of Valkey")
    parser.add_argument("--reshards", type=int, default=0, help="changes between 64 and 1,024 shards")
    given = parser.parse_args(argv)
    chosen = Options(
        seconds=given.seconds,
        kills=given.kills,
        restarts=given.restarts,
        stops=max(1, round(given.seconds / 20)),
        proxy_faults=max(1, round(given.seconds / 5)),
        changes=max(1, round(given.seconds / 10)),
        replicas=given.replicas,
        domains=60,
        # The largest domain has a fifth of the pages, ten a second at most: it lasts for more than half of the time.
        pages=max(600, round(given.seconds * 40)),
        seed=given.seed,
        reshards=given.reshards,
    )
    return run_and_print(lambda folder: run(chosen, folder, end_limit_s=given.seconds + 300), given.keep)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
