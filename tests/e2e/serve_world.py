"""Serves a world of any make-up, in a process of its own: its seed, domains, pages and features come pickled on standard
input. Prints its host map as a JSON line, and runs until SIGTERM: `python -m tests.e2e.serve_world LOG`. Each further line
of standard input is a number of requests: the process stops itself after so many, until SIGCONT.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import sys
from pathlib import Path

from tests.simweb.server import Record, RequestLog, SimWebServer
from tests.simweb.world import World


class StoppingLog(RequestLog):
    """Stops this process when the log has a number of requests that was read from standard input."""

    _limit: int | None = None

    def append(self, record: Record) -> None:
        super().append(record)
        self._stop()

    def read_limit(self) -> None:
        line = sys.stdin.buffer.readline()
        if not line:  # the test is over
            asyncio.get_running_loop().remove_reader(sys.stdin)
            return
        self._limit = int(line)
        self._stop()

    def _stop(self) -> None:
        if self._limit is not None and self.count >= self._limit:
            self._limit = None
            self.flush()
            os.kill(os.getpid(), signal.SIGSTOP)


async def serve(world: World, path: Path) -> None:
    """Serve until SIGTERM; every request is in the log at `path` then."""
    stopping = asyncio.Event()
    log = StoppingLog(path, keep=False)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    asyncio.get_running_loop().add_reader(sys.stdin, log.read_limit)
    try:
        async with SimWebServer(world, log) as server:
            print(json.dumps(server.host_map()), flush=True)
            await stopping.wait()
    finally:
        log.close()


def main() -> None:
    asyncio.run(serve(World(*pickle.load(sys.stdin.buffer)), Path(sys.argv[1])))


if __name__ == "__main__":
    main()
