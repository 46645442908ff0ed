"""Serves a world of any make-up, in a process of its own: its seed, domains, pages and features come pickled on standard
input. Prints its host map as a JSON line, and runs until SIGTERM: `python -m tests.e2e.serve_world LOG`.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import signal
import sys
from pathlib import Path

from crawler.simweb import RequestLog, SimWebServer, World


async def serve(world: World, path: Path) -> None:
    """Serve until SIGTERM; every request is in the log at `path` then."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    log = RequestLog(path, keep=False)
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
