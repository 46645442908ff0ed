"""A replica that a supervisor has started: what `crawler run` does for one replica, without the options.

`crawler.app.supervisor` passes the settings in the environment, so no options are parsed. Importing Typer, and building its
parser, would be a tenth of what such a process takes to start, and each replica of a crawl is one.
"""

from __future__ import annotations

import asyncio
import sys

from crawler import logs
from crawler.app.replica import RunOptions, run_replica
from crawler.cli.exits import run_to_exit
from crawler.settings.load import load


def main() -> None:
    """Run a replica when a line arrives on standard input. The command line, which only the supervisor writes, is `crawler
    run --when-told CRAWL`, with `--until-empty` after it if the replica is to end when nothing is left."""
    run_to_exit(_run)


def _run() -> None:
    crawl, *options = sys.argv[3:]
    settings = load()
    logs.configure(settings.replica.log_format, settings.replica.log_level)
    if not sys.stdin.readline():  # the supervisor has ended
        sys.exit(1)
    # The supervisor has compared the settings.
    how = RunOptions("--until-empty" in options, on_difference="keep", supervised=True)
    sys.exit(asyncio.run(run_replica(crawl, settings, 1, how)))
