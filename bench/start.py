"""How soon a user sees something: from `crawler crawl` in an empty folder to the first page, and to the end of 100 pages.

    python -m bench.start [--runs 5]

The site is local and answers at once; the delay is 0. Aims, as medians on two cores: the first page is requested within
1.5 s, and the command ends within 4 s. Nothing else may run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from bench.measure import Figure
from tests.site import Request, Site

PAGES = 100


class Start(NamedTuple):
    """Seconds from the command to the first request for a page, to the last one, and to the end of the command."""

    first_s: float
    last_s: float
    end_s: float
    pages: int


def linked_pages(request: Request) -> str | None:
    """Pages that link to all others."""
    if request.path == "/robots.txt":
        return None
    return f"<title>{request.path}</title>" + "".join(f'<a href="/{number}">' for number in range(1, PAGES))


def start() -> Start:
    """Crawl the site in a new folder. Raises CalledProcessError if the command fails."""
    with Site(linked_pages) as site, tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "CRAWLER_FETCH__ALLOW": '["127.0.0.0/8"]',
            "CRAWLER_FETCH__PORTS": f"[{site.port}]",
            "CRAWLER_POLITENESS__DELAY": "0",
        }
        command = [sys.executable, "-m", "crawler", "crawl", site.url]
        began = time.monotonic()
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        ended = time.monotonic()
    asked = [request.at for request, _ in site.answered if request.path != "/robots.txt"]
    return Start(asked[0] - began, asked[-1] - began, ended - began, len(asked))


FIRST_S, END_S = 1.5, 4.0


def medians(runs: list[Start]) -> tuple[float, float]:
    """Seconds to the first page and to the end."""
    return statistics.median(run.first_s for run in runs), statistics.median(run.end_s for run in runs)


def short() -> list[Figure]:
    """For the table of all benchmarks."""
    first_s, end_s = medians([start() for _ in range(3)])
    return [
        Figure("start", "from the command to the first page", first_s, "s", f"<= {FIRST_S}", first_s <= FIRST_S),
        Figure("start", "to the end of 100 pages", end_s, "s", f"<= {END_S:g}", end_s <= END_S),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = [start() for _ in range(parser.parse_args().runs)]
    print("first page s  last page s  end s")
    for run in runs:
        print(f"{run.first_s:12.2f} {run.last_s:12.2f} {run.end_s:6.2f}")
    first_s, end_s = medians(runs)
    print(f"median: first page {first_s:.2f} s (aim {FIRST_S}), end {end_s:.2f} s (aim {END_S:g})")
    return int(first_s > FIRST_S or end_s > END_S)


if __name__ == "__main__":
    sys.exit(main())
