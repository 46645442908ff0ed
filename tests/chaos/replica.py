"""`crawler run`, with a name of its own in the User-Agent's contact, so that the web's log tells replicas apart."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from msgspec.structs import replace

from crawler import logs
from crawler.app.embedded_valkey import open_store
from crawler.app.engine import production_dependencies
from crawler.app.replica import Replica, run_until_stopped
from crawler.errors import TRY_LATER
from crawler.settings.load import CrawlSettings, load
from frontier.crawls import open_crawl
from frontier.errors import RedisAway, Resharding
from tests.chaos import standstills


async def run(name: str, standstills_file: Path, settings_file: Path, redis: str) -> int:
    """One replica called `name` until the crawl is empty or a signal comes. Writes down when it stood still."""
    watching = asyncio.create_task(standstills.write(standstills_file))
    try:
        return await _run(name, settings_file, redis)
    finally:
        watching.cancel()


async def _run(name: str, settings_file: Path, redis: str) -> int:
    local = load(settings_file, {"replica": {"redis": redis}}).replica
    logs.configure("console", "info")
    async with open_store(local) as store:
        opened = await open_crawl(store, "crawl")
        stored = CrawlSettings.from_json(opened.settings)
        named = replace(stored, fetch=replace(stored.fetch, contact=name))
        replica = Replica(store, production_dependencies(opened, store, named, local), named, local)
        return await run_until_stopped(replica, until_empty=True)


def main() -> int:
    """The exit status, that of `crawler run`."""
    try:
        return asyncio.run(run(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]))
    except (RedisAway, Resharding):
        return TRY_LATER


if __name__ == "__main__":
    sys.exit(main())
